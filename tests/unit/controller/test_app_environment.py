"""Environments of requirements files: made once, by one process at a time, with
pip's own words where it cannot.

Nothing is fetched: pip is given a folder of wheels, or an index at an address
at which nobody listens.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from controller import app_environment
from controller.app_environment import (
    EXIT_BAD_FILE,
    EXIT_MACHINE_CANNOT,
    CannotMake,
    install,
    key,
    last_of,
    locked,
    made,
    make,
    read,
    tools_of,
)
from controller.app_packages import package_folders
from tests.support.small_wheel import NOBODYS_INDEX, only_from, write_wheel


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one package, which pip looks in and nowhere else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    write_wheel(folder)
    for name, value in only_from(folder).items():
        monkeypatch.setenv(name, value)
    return folder


def started(
    requirements: Path, cache: Path
) -> subprocess.CompletedProcess[str]:
    """The program, started as the testbed starts it: by its text."""
    program = Path(app_environment.__file__).read_text("utf-8")
    base = Path(sys.base_prefix, "bin", "python3")
    return subprocess.run(
        [base, "-I", "-c", program, str(requirements), str(cache)],
        capture_output=True,
        check=False,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("wheels")
def test_a_files_packages_are_installed_once(tmp_path: Path) -> None:
    file = tmp_path / "needs.txt"
    file.write_text("needed\n")
    cache = tmp_path / "cache"
    first = started(file, cache)
    assert (first.returncode, first.stderr) == (0, "")
    *progress, python = first.stdout.splitlines()
    assert progress[0].startswith(f"packages of {file}: installing into ")
    assert "Installing collected packages: needed" in progress
    found = [
        folder
        for folder in package_folders(python)
        if Path(folder, "needed.py").exists()
    ]
    assert len(found) == 1
    assert Path(found[0]).is_relative_to(cache)
    assert cache.stat().st_mode & 0o777 == 0o700

    again = started(file, cache)
    assert again.stdout.splitlines()[-1] == python
    assert "installing" not in again.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment") / "made"
    make(folder)
    return folder / "bin" / "python"


@pytest.mark.slow
@pytest.mark.usefixtures("wheels")
def test_pips_last_words_are_told(python: Path, tmp_path: Path) -> None:
    file = tmp_path / "needs.txt"
    file.write_text("needed==2.0\n")
    with pytest.raises(CannotMake) as told:
        install(python, file, {})
    assert told.value.exit_code == EXIT_BAD_FILE
    said = str(told.value)
    assert said.startswith("pip: ERROR: Could not find a version")
    assert "No matching distribution found for needed==2.0" in said
    assert "\n" not in said


@pytest.mark.slow
@pytest.mark.usefixtures("wheels")
def test_without_a_network_that_is_said(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", NOBODYS_INDEX)
    file = tmp_path / "needs.txt"
    file.write_text("elsewhere\n")
    with pytest.raises(CannotMake, match="network is out of reach") as told:
        install(python, file, {})
    assert told.value.exit_code == EXIT_MACHINE_CANNOT


def test_what_was_cut_off_is_made_anew_and_another_file_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_now: list[Path] = []
    fails = [True, False, False]

    def make_one(folder: Path) -> None:
        folder.mkdir()
        made_now.append(folder)

    def install_one(*_: object) -> None:
        if fails.pop(0):
            raise CannotMake("no", EXIT_BAD_FILE)

    monkeypatch.setattr(app_environment, "make", make_one)
    monkeypatch.setattr(app_environment, "install", install_one)
    file = tmp_path / "needs.txt"
    file.write_text("needed\n")
    with pytest.raises(CannotMake):
        made(file, tmp_path / "cache")
    python = made(file, tmp_path / "cache")
    assert made(file, tmp_path / "cache") == python
    file.write_text("needed==1.0\n")
    assert made(file, tmp_path / "cache") != python
    assert made_now[0] == made_now[1]
    assert len(made_now) == 3


def test_what_a_file_includes_is_part_of_its_name(tmp_path: Path) -> None:
    file = tmp_path / "needs.txt"
    more = tmp_path / "more.txt"
    file.write_text("-r more.txt\n--constraint=more.txt\n-c https://x/y\n")
    more.write_text("-r needs.txt\nneeded\n")
    before = key(read(file), tmp_path)
    assert before == key(read(file), tmp_path)
    more.write_text("needed==1.0\n")
    assert key(read(file), tmp_path) != before


def test_a_byte_order_mark_hides_no_included_file(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("needed\n")
    file = tmp_path / "needs.txt"
    file.write_text("-r more.txt\n", "utf-8-sig")
    assert "needed" in read(file)


def test_a_file_includes_itself_by_a_way_around(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    file = tmp_path / "needs.txt"
    file.write_text("-r sub/../needs.txt\nneeded\n")
    assert read(file) == file.read_text()


@pytest.mark.parametrize(
    ("text", "is_local"),
    [
        ("./app", True),
        ("needed\n-e .\n", True),
        ("--editable=../app", True),
        ("app @ file:./app", True),
        ("needed==1.0\n# see ./README", False),
        ("-r base.txt\nneeded>=1\n", False),
    ],
)
def test_a_path_is_of_the_files_folder(text: str, is_local: bool) -> None:
    """Two experiments' ``./app`` are two packages."""
    differ = key(text, Path("/a")) != key(text, Path("/b"))
    assert differ == is_local


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_file_that_cannot_be_read(
    content: bytes | None, tmp_path: Path
) -> None:
    file = tmp_path / "needs.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CannotMake, match=str(file)) as told:
        read(file)
    assert told.value.exit_code == EXIT_BAD_FILE


def test_a_cache_in_which_others_write_is_refused(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with locked(cache):
        pass
    cache.chmod(0o777)
    with pytest.raises(CannotMake, match="others may write"), locked(cache):
        pass
    cache.rmdir()
    cache.symlink_to(tmp_path)
    with pytest.raises(OSError, match="cache"), locked(cache):
        pass


def test_ryu_is_built_by_tools_that_can(tmp_path: Path) -> None:
    assert tools_of("networkx\n", tmp_path) == {}
    variables = tools_of("networkx\nRyu==4.34\n", tmp_path)
    (constraint,) = set(variables.values())
    assert Path(constraint).read_text() == "setuptools<68\n"


def test_errors_alone_are_the_last_lines() -> None:
    lines = ["Collecting x", "", "ERROR: one", "WARNING: two"]
    assert last_of(lines) == "ERROR: one"
    assert last_of(["a", "", "b"]) == "a; b"
    assert last_of(["ERROR: Exception:", "File x", "OSError"]).endswith(
        "File x; OSError"
    )
