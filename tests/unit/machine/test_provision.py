"""provision.sh as far as it can be shown without changing the machine; CI runs it for real."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
PROVISION = ROOT / "provision.sh"
SCRIPTS = (
    "provision.sh",
    ".ci/run",
    "requirements/lock",
    "container/entrypoint",
    "tests/vm/guest",
    "tests/vm/datapath",
    "tests/vm/enter",
)
LOCKS = ("build", "run", "test", "site")
PYTHONS = ("3.11", "3.12", "3.13")


def call(
    *command: str | Path, **options: object
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        **options,  # type: ignore[call-overload]
    )


@pytest.fixture
def anyones() -> Iterator[Path]:
    """A folder that everybody may read, which pytest's own are not: root gives its rights up."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_help_names_every_verb_and_changes_nothing() -> None:
    shown = call(PROVISION, "help")
    assert shown.returncode == 0
    assert re.findall(r"^  (\w+) ", shown.stdout, re.MULTILINE) == [
        "install", "run", "test", "doctor", "uninstall", "help"
    ]  # fmt: skip


def test_an_unknown_verb_is_a_usage_error() -> None:
    refused = call(PROVISION, "instal")
    assert refused.returncode == 2
    assert "unknown verb: instal" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["install", "run", "test", "uninstall"])
def test_without_root_it_names_the_command_that_works(
    verb: str, anyones: Path
) -> None:
    script = anyones / "provision.sh"
    shutil.copy(PROVISION, script)
    nobody = (
        {"user": 65534, "group": 65534, "extra_groups": []}
        if os.geteuid() == 0
        else {}
    )
    environment = {**os.environ, "HOSENET_ANY_RELEASE": "1"}
    refused = call(script, verb, env=environment, **nobody)
    assert refused.returncode == 3
    assert f"sudo {script} {verb}" in refused.stderr


def test_doctor_before_install_gives_the_hint(tmp_path: Path) -> None:
    script = tmp_path / "provision.sh"
    shutil.copy(PROVISION, script)
    refused = call(script, "doctor")
    assert refused.returncode == 3
    assert f"sudo {script} install" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_pass_shellcheck(name: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("no shellcheck")
    found = call("shellcheck", ROOT / name)
    assert found.stdout == ""
    assert found.returncode == 0


class Pinned(NamedTuple):
    """A package of a lock: its version, and where it is installed."""

    version: str
    marker: Marker | None

    def on(self, python: str) -> bool:
        return self.marker is None or self.marker.evaluate(
            environment_of(python)
        )


def environment_of(python: str) -> dict[str, str]:
    return {
        "python_version": python,
        "python_full_version": f"{python}.4",
        "extra": "",
    }


def entries_of(lock: str) -> list[str]:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    return re.split(r"^(?=[^\s#])", text, flags=re.MULTILINE)[1:]


def pinned(lock: str) -> dict[str, Pinned]:
    head = re.compile(r"([a-z0-9][a-z0-9.-]*)==([^\s;]+)(?: ; (.+))? \\\n")
    found = [(entry, head.match(entry)) for entry in entries_of(lock)]
    assert [entry for entry, match in found if match is None] == []
    parts = [match.groups() for _, match in found if match is not None]
    return {
        name: Pinned(version, Marker(text) if text else None)
        for name, version, text in parts
    }


def not_locked(
    requirements: Iterable[str], lock: dict[str, Pinned], python: str
) -> list[str]:
    """The requirements that hold on this Python and that the lock does not meet there."""
    wanted = [Requirement(text) for text in requirements]
    return [
        str(one)
        for one in wanted
        if one.marker is None or one.marker.evaluate(environment_of(python))
        if (found := lock.get(canonicalize_name(one.name))) is None
        or not found.on(python)
        or found.version not in one.specifier
    ]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_a_hash_and_no_address(lock: str) -> None:
    entries = entries_of(lock)
    assert len(entries) > 0
    assert [
        e.split("==")[0] for e in entries if "--hash=sha256:" not in e
    ] == []
    assert "://" not in (ROOT / "requirements" / f"{lock}.txt").read_text()


@pytest.mark.parametrize("lock", LOCKS)
def test_one_version_of_each_package_holds_for_all_pythons(
    lock: str,
) -> None:
    assert len(entries_of(lock)) == len(pinned(lock)) > 0


def test_the_pythons_are_those_that_pyproject_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())[
        "project"
    ]
    minors = [f"3.{minor}" for minor in range(20)]
    assert (
        tuple(
            m
            for m in minors
            if m in SpecifierSet(project["requires-python"])
        )
        == PYTHONS
    )
    assert {f"Programming Language :: Python :: {p}" for p in PYTHONS} == {
        line
        for line in project["classifiers"]
        if line.startswith("Programming Language")
    }


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
def test_the_locks_cover_pyproject_and_agree(python: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())[
        "project"
    ]
    extras = project["optional-dependencies"]
    run, test = pinned("run"), pinned("test")
    needed = [*project["dependencies"], *extras["ryu"], *extras["os-ken"]]
    assert not_locked(needed, run, python) == []
    assert not_locked([*extras["test"], *extras["dev"]], test, python) == []
    versions = {name: found.version for name, found in run.items()}
    assert {
        n: v
        for n, v in test.items()
        if versions.get(n, v.version) != v.version
    } == {}


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", LOCKS)
def test_the_locks_cover_what_their_packages_need(
    lock: str, python: str
) -> None:
    """As far as the packages are installed here in the lock's versions; pip refuses the rest."""
    packages = pinned(lock)
    here = {
        canonicalize_name(one.name): one
        for one in importlib.metadata.distributions()
    }
    looked_at = 0
    for name, package in packages.items():
        installed = here.get(canonicalize_name(name))
        if (
            package.on(python)
            and installed
            and installed.version == package.version
        ):
            looked_at += 1
            assert (
                not_locked(installed.requires or (), packages, python) == []
            ), name
    assert looked_at > len(packages) // 2


def test_ryu_builds_with_the_setuptools_it_can_stand() -> None:
    major = int(pinned("build")["setuptools"].version.split(".")[0])
    assert major < 68


@pytest.mark.parametrize("release", ["bookworm", "trixie"])
def test_vagrant_accepts_the_vagrantfile(
    release: str, tmp_path: Path
) -> None:
    if shutil.which("vagrant") is None:
        pytest.skip("no vagrant")
    shutil.copy(ROOT / "Vagrantfile", tmp_path)
    home = str(tmp_path / "home")
    environment = {
        **os.environ,
        "VAGRANT_HOME": home,
        "HOSENET_BOX": release,
    }
    told = call(
        "vagrant",
        "validate",
        "--ignore-provider",
        cwd=tmp_path,
        env=environment,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "Vagrantfile validated successfully." in told.stdout
