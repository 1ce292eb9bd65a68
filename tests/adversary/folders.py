"""Folders of others: modules, temporary folders, and links where root writes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from jobs.python_child import python_command
from testbed.private_folders import private_folder
from testbed.record.folder import RunFolder
from testbed.sweeps.local_processes import Processors
from tests.adversary.attack import Attack, Tries
from tests.unit.jobs_live.test_python_child import NAMES, ROOT
from tests.unit.record.test_links_of_others import exchange, untouched
from tests.unit.sweeps.test_private_folders import NOBODY, Places

MODULES = (
    ("testbed.cli.main", "--version"),
    ("controller.launch", "--help"),
)
TASKS = 4
WRITTEN = ("plan/0001.txt", "plan/more/0001.txt", "passwd")


def attacks() -> list[Attack]:
    return [
        Attack(
            "modules",
            "modules in the working directory are imported by root",
            lambda: _modules(python_command),
            lambda: _modules(_plain_python),
            expected_s=8,
        ),
        Attack(
            "temporary folders",
            "nobody exchanges a folder in which root works",
            _private_scratch,
            _shared_scratch,
            expected_s=10,
        ),
        Attack(
            "links",
            "links in a caller's run folder lead root elsewhere",
            lambda: _links(_write_as_run),
            lambda: _links(_write_plainly),
        ),
    ]


def _plain_python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def _modules(command: Callable[..., list[str]]) -> Tries:
    """Every name that the program imports, in the working directory."""
    with TemporaryDirectory() as folder:
        taken = Path(folder, "taken")
        code = (
            f"open({str(taken)!r}, 'a').write('x')\nraise SystemExit(9)\n"
        )
        hostile = Path(folder, "hostile")
        hostile.mkdir()
        for name in NAMES:
            (hostile / f"{name}.py").write_text(code)
        for module, argument in MODULES:
            subprocess.run(
                command(module, argument),
                cwd=hostile,
                env=os.environ | {"PYTHONPATH": f"{hostile}:{ROOT}"},
                capture_output=True,
                check=False,
                timeout=110,
            )
        imported = len(taken.read_text()) if taken.exists() else 0
    return Tries(len(NAMES) * len(MODULES), imported)


@contextmanager
def _shared() -> Iterator[Path]:
    """A shared temporary folder, in which somebody has been first."""
    with TemporaryDirectory(dir="/var/tmp") as folder:
        shared = Path(folder)
        shared.chmod(0o1777)
        first = shared / "dask-scratch-space"
        first.mkdir()
        os.chown(first, NOBODY, NOBODY)
        first.chmod(0o777)
        with (
            mock.patch.dict(os.environ, {"TMPDIR": str(shared)}),
            mock.patch.object(tempfile, "tempdir", None),
        ):
            yield shared


def _private_scratch() -> Tries:
    exchanged = tried = 0
    with _shared():
        with Processors(2, str) as executor:
            for _, outcome in executor.results([Places()] * TASKS):
                scratch = Path((outcome.result or {})["scratch"])
                exchanged += _exchanged(scratch)
                tried += len(scratch.parents)
        with private_folder("lab-", entered=True) as folder:
            exchanged += _exchanged(folder)
            tried += len(folder.parents)
    return Tries(tried, exchanged)


def _shared_scratch() -> Tries:
    """As Dask's workers do of themselves."""
    with _shared() as shared:
        folder = shared / "dask-scratch-space" / "worker-1"
        folder.mkdir(parents=True, exist_ok=True)
        return Tries(len(folder.parents), _exchanged(folder))


def _exchanged(folder: Path) -> int:
    """Tries, as nobody, to put another folder in the place of each on the way
    to one; returns how often it could.
    """
    ways = [folder, *folder.parents][:-1]
    child = os.fork()
    if child == 0:
        os._exit(_renamed_as_nobody(ways))
    status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status)


def _renamed_as_nobody(ways: list[Path]) -> int:
    renamed = 0
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    for path in ways:
        moved = path.with_name(f"{path.name}-moved")
        with suppress(OSError):
            path.rename(moved)
            renamed += 1
            moved.rename(path)
    return renamed


Write = Callable[[RunFolder, str], object]


def _write_as_run(run: RunFolder, name: str) -> None:
    run.write_text(name, "x")


def _write_plainly(run: RunFolder, name: str) -> None:
    path = run.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")


def _links(write: Write) -> Tries:
    """Links in the place of a folder, of the run folder and of a file."""
    followed = 0
    places = ("plan", "", "passwd")
    for name, place in zip(WRITTEN, places, strict=True):
        followed += _followed(write, name, place)
        followed += _followed(write, "plan/0002.txt", place)
    return Tries(2 * len(WRITTEN), followed)


def _followed(write: Write, name: str, place: str) -> bool:
    called = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}
    with (
        TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, called),
    ):
        elsewhere = Path(folder, "elsewhere")
        elsewhere.mkdir()
        (elsewhere / "passwd").write_text("root\n")
        now = datetime(2026, 1, 1, tzinfo=UTC)
        run = RunFolder.create(Path(folder, "runs"), "a", 1, now=now)
        target = elsewhere / "passwd" if place == "passwd" else elsewhere
        exchange(run.path / place, target)
        with suppress(OSError):
            write(run, name)
        return not untouched(elsewhere)
