"""The wheel and the source distribution: reproducible, complete, and of use in an empty folder."""

from __future__ import annotations

import os
import re
import stat
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support import first_commands
from tests.support.distributions import (
    ROOT,
    build,
    build_elsewhere,
    digests,
    tracked,
)
from tests.support.first_commands import Command, empty_folder, faults

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (ROOT / ".git").exists(),
        reason="no git checkout: nothing is tracked",
    ),
]

PACKAGED = re.compile(
    r"(topologies|jobs|controller|testbed|reproductions|bench|labs|examples)/"
)
BUILT = re.compile(r"PKG-INFO|setup\.cfg|hosenet\.egg-info/.*")
INFO = {
    "LICENSE",
    "METADATA",
    "RECORD",
    "WHEEL",
    "entry_points.txt",
    "top_level.txt",
}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
    "project"
]["version"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a first build."""
    folder = tmp_path_factory.mktemp("built")
    build(ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def unpacked(built: Path) -> Iterator[Path]:
    """The unpacked wheel, as pip puts it into an environment, readable by everybody."""
    [wheel] = built.glob("*.whl")
    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(wheel) as archive,
    ):
        archive.extractall(folder)  # noqa: S202 - built a moment ago
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.long
def test_a_second_build_elsewhere_gives_the_same_bytes(
    built: Path, tmp_path: Path
) -> None:
    build_elsewhere(ROOT, tmp_path / "again")
    first, second = digests(built), digests(tmp_path / "again")
    assert list(first) == [
        f"hosenet-{VERSION}-py3-none-any.whl",
        f"hosenet-{VERSION}.tar.gz",
    ]
    assert first == second


def test_the_wheel_holds_the_packages_and_nothing_else(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    info = f"hosenet-{VERSION}.dist-info/"
    assert {
        name.removeprefix(info) for name in names if name.startswith(info)
    } == INFO
    held = sorted(name for name in names if not name.startswith(info))
    assert held == [name for name in tracked() if PACKAGED.match(name)]


def test_the_source_distribution_is_the_checkout(built: Path) -> None:
    [path] = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        members = [
            member for member in archive.getmembers() if not member.isdir()
        ]
    top = f"hosenet-{VERSION}/"
    names = [member.name.removeprefix(top) for member in members]
    assert [
        name for name in names if not BUILT.fullmatch(name)
    ] == tracked()
    programs = {
        member.name.removeprefix(top)
        for member in members
        if member.mode & stat.S_IXUSR
    }
    assert {"provision.sh", ".ci/run", "requirements/lock"} <= programs
    assert all(member.isreg() for member in members)


def called(
    commands: Sequence[Command],
    unpacked: Path,
    home: Path,
    *,
    nobody: bool = False,
) -> Iterator[str]:
    """Faults of commands of the unpacked wheel, called with the libraries of this Python.

    ``-P``: neither the folder nor the script's is searched for modules. The wheel comes first.
    """
    environment = {
        name: os.environ[name]
        for name in ("PATH", "LANG")
        if name in os.environ
    }
    environment |= {"HOME": str(home), "PYTHONPATH": str(unpacked)}
    python = [sys.executable, "-P"]
    programs = {
        "python": python,
        "testbed": [*python, "-m", "testbed.cli.main"],
    }
    for typed, fault in faults(
        commands, home, programs, environment, nobody=nobody
    ):
        if fault is not None:
            yield f"{typed}: {fault}"


def test_what_is_called_is_the_wheel(
    unpacked: Path, tmp_path: Path
) -> None:
    where = Command(
        "python -c import|testbed;print(testbed.__file__)",
        prints=str(unpacked),
    )
    version = Command("testbed --version", prints=f"testbed {VERSION}\n")
    assert (
        list(called([where, version], unpacked, empty_folder(tmp_path)))
        == []
    )


@pytest.mark.short("simulated", "labs")
@pytest.mark.parametrize(
    "commands", [first_commands.SIMULATED, first_commands.LABS, first_commands.FIGURES],
    ids=["simulated", "labs", "figures"],
)  # fmt: skip
def test_commands_work_in_an_empty_folder(
    commands: Sequence[Command], unpacked: Path, tmp_path: Path
) -> None:
    assert list(called(commands, unpacked, empty_folder(tmp_path))) == []


def test_the_live_network_is_refused_with_the_way_to_it(
    unpacked: Path,
) -> None:
    nobody = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as folder:
        home = empty_folder(Path(folder), nobody=nobody)
        if nobody and list(
            called([Command("python -V")], unpacked, home, nobody=nobody)
        ):
            pytest.skip(
                "nobody may not call this Python: its folder is root's alone"
            )
        assert (
            list(called(first_commands.LIVE, unpacked, home, nobody=nobody))
            == []
        )
