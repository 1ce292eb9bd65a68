"""Packages that applications require: installed by the user who calls sudo, as
that user, and never by root.
"""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.backends.emu import requirement_environment
from testbed.backends.emu.requirement_environment import with_packages
from testbed.errors import BadInput, MachineCannot
from testbed.owned_files import Owner
from testbed.spec.controller_choice import ControllerChoice
from tests.support.small_wheel import NOBODYS_INDEX, only_from, write_wheel

NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that others may enter; pytest's are closed to them."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def requirements(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a person's, who has called sudo and has a home."""
    home = folder / "home"
    home.mkdir()
    os.chown(home, NOBODY.pw_uid, NOBODY.pw_gid)
    entry = pwd.struct_passwd((*NOBODY[:5], str(home), NOBODY.pw_shell))
    monkeypatch.setattr(pwd, "getpwuid", {NOBODY.pw_uid: entry}.__getitem__)
    monkeypatch.setenv("SUDO_UID", str(NOBODY.pw_uid))
    monkeypatch.setenv("SUDO_GID", str(NOBODY.pw_gid))
    write_wheel(folder)
    for name, value in only_from(folder).items():
        monkeypatch.setenv(name, value)
    file = folder / "needs.txt"
    file.write_text("needed\n")
    return file


def test_they_are_the_callers_who_alone_may_write_there(
    requirements: Path,
) -> None:
    choice = ControllerChoice(("/a.py",), packages=str(requirements))
    said: list[str] = []
    made = with_packages(choice, said.append)
    assert "Installing collected packages: needed" in said
    python = Path(made.python)
    cache = requirements.parent / "home/.cache/hosenet/packages"
    assert python.is_relative_to(cache)
    assert len(list(cache.rglob("needed.py"))) == 1
    for path in (cache, *cache.rglob("*")):
        status = path.lstat()
        assert status.st_uid == NOBODY.pw_uid
        assert path.is_symlink() or not status.st_mode & 0o022
    # A second run has nothing to install.
    assert with_packages(choice, lambda _: None) == made


def test_what_pip_says_is_an_error_of_the_file(requirements: Path) -> None:
    requirements.write_text("absent\n")
    choice = ControllerChoice(("/a.py",), packages=str(requirements))
    with pytest.raises(
        BadInput, match="distribution found for absent"
    ) as told:
        with_packages(choice, lambda _: None)
    assert told.value.message.startswith(
        f"controller.packages: {requirements}"
    )
    assert "controller.python" in str(told.value.hint)


def test_without_a_network_the_machine_cannot(
    requirements: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", NOBODYS_INDEX)
    requirements.write_text("absent\n")
    choice = ControllerChoice(("/a.py",), packages=str(requirements))
    with pytest.raises(MachineCannot, match="network is out of reach"):
        with_packages(choice, lambda _: None)


@pytest.mark.parametrize("owner", [None, Owner(0, 0), Owner(54321, 1)])
def test_root_installs_nothing(
    owner: Owner | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirement_environment, "caller", lambda: owner)
    choice = ControllerChoice(("/a.py",), packages="/needs.txt")
    with pytest.raises(MachineCannot, match="never as root") as told:
        with_packages(choice, lambda _: None)
    assert "controller.python" in str(told.value.hint)
    without = ControllerChoice(("/a.py",))
    assert with_packages(without, lambda _: None) is without
