"""Temporary folders: made by their user, with names that nobody can make first."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobs.live.agent import make_folder
from testbed import private_folders
from testbed.backends.emu import cleanup
from testbed.backends.emu.cleanup import Removed, remove_temporary_folders
from testbed.errors import MachineCannot
from testbed.private_folders import (
    private_folder,
    remove_abandoned,
    replaceable,
)
from testbed.sweeps import worker_side
from testbed.sweeps.local_processes import Processors
from testbed.sweeps.tasks import InProcess, LocalContext

NOBODY = 65534
# Calls that make a file or folder with a name; TemporaryFile makes none.
NAMED = re.compile("mk[ds]temp|TemporaryDirectory|NamedTemporaryFile")


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shared temporary folder in which somebody was first."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    (folder / "dask-scratch-space").mkdir()
    (folder / "dask-scratch-space").chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(
        private_folders, "ROOTS_BASE", tmp_path / "cache" / "t"
    )
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "cache" / "t"))
    return folder


class Places:
    """A task that tells its scratch folder."""

    key, live, files = "k", False, {}

    def run(self, context: LocalContext) -> dict[str, object]:
        return {"result": {"scratch": str(context.scratch)}}


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [1, 3])
def test_a_local_sweep_works_in_no_folder_that_others_made(
    tasks: int, shared: Path, tmp_path: Path
) -> None:
    before = sorted(shared.rglob("*"))
    with Processors(2, str) as executor:
        for _, outcome in executor.results(
            [Places() for _ in range(tasks)]
        ):
            assert outcome.result is not None, outcome
            scratch = Path(outcome.result["scratch"])
            assert scratch.is_relative_to(tmp_path / "cache")
            assert replaceable(scratch) is None
    assert sorted(shared.rglob("*")) == before
    assert not scratch.exists()


def test_a_worker_in_a_folder_that_others_can_exchange_is_not_used(
    shared: Path,
) -> None:
    folder = shared / "dask-scratch-space" / "worker-1"
    folder.mkdir()
    worker = SimpleNamespace(local_directory=str(folder))
    with pytest.raises(
        MachineCannot, match="dask-scratch-space: start it with"
    ):
        asyncio.run(worker_side.facts(worker))


@pytest.mark.parametrize("entered", [False, True])
def test_a_folder_is_its_users(shared: Path, entered: bool) -> None:
    umask = os.umask(0o077)
    try:
        with private_folder("mine-", entered=entered) as folder:
            mode = folder.stat().st_mode & 0o777
            assert mode == (0o711 if entered else 0o700)
            assert not folder.is_relative_to(shared)
            assert len(folder.name) > len("mine-12345")
            if os.geteuid() == 0:
                (folder / "file").write_text("x")
                (folder / "file").chmod(0o644)
                assert may_read(folder / "file") == entered
    finally:
        os.umask(umask)
    assert not folder.exists()


@pytest.mark.usefixtures("shared")
def test_a_user_without_a_home_has_the_shared_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_home(path: Path) -> Path:
        if path.parts[:1] == ("~",):
            raise RuntimeError("could not determine home directory")
        return path

    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    monkeypatch.setattr(Path, "expanduser", no_home)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/proc/none")
    with private_folder("mine-") as folder:
        assert folder.parent == tmp_path / "shared"


def may_read(file: Path) -> bool:
    """True where nobody may read a file, as far as the temporary base decides."""
    base = private_folders.ROOTS_BASE
    parts = [base.parent, base, *reversed(file.parents)]
    below = [part for part in parts if part.is_relative_to(base.parent)]
    return all(part.stat().st_mode & 0o001 for part in below)


def test_a_base_that_others_can_write_to_is_not_used(
    shared: Path, tmp_path: Path
) -> None:
    (tmp_path / "cache").mkdir()
    base = tmp_path / "cache" / "t"
    base.mkdir()
    if os.geteuid() == 0:
        os.chown(base, NOBODY, NOBODY)
    else:
        base.chmod(0o777)
    with private_folder("mine-") as folder:
        assert not folder.is_relative_to(base)
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_sweeps_own_process_too(shared: Path, tmp_path: Path) -> None:
    with InProcess() as executor:
        ((_, outcome),) = executor.results([Places()])
    assert outcome.result is not None
    scratch = Path(outcome.result["scratch"])
    assert scratch.is_relative_to(tmp_path / "cache")


def test_what_killed_processes_left_is_removed_and_what_is_used_is_not(
    shared: Path,
) -> None:
    with private_folder("used-") as used:
        left = used.with_name("left-12345678")
        (left / "deep").mkdir(parents=True)
        fresh = used.with_name("left-fresh")
        fresh.mkdir()
        for folder in (used, left):
            os.utime(folder, (1.0, 1.0))
        with private_folder("next-"):
            assert used.exists()
            assert fresh.exists()
            assert not left.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="other users' folders")
def test_clean_removes_what_killed_commands_and_agents_left(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of root's commands all, of agents nobody's; what is held, young, or of
    another name or user stays.
    """
    base = tmp_path / "cache" / "t"
    monkeypatch.setattr(cleanup, "ROOTS_BASE", base)
    outside = tmp_path / "outside"
    outside.write_text("precious")
    with private_folder("used-") as used:
        left = made(base / "sweep-12345678", 0)
        agents = made(shared / "hosenet-abcd_123", NOBODY)
        (agents / "link").symlink_to(outside)
        staying = [
            used,
            made(shared / "hosenet-ofroot12", 0),
            made(shared / "hosenet-bench-abcd_123", NOBODY),
            made(base / "sweep-young", 0),
        ]
        held = made(shared / "hosenet-held1234", NOBODY)
        (shared / "hosenet-link1234").symlink_to(outside.parent)
        for folder in (left, agents, held, *staying[:-1]):
            os.utime(folder, (1.0, 1.0))
        with held_by_its_agent(held):
            for dry_run in (True, False):
                assert remove_temporary_folders(dry_run=dry_run) == [
                    Removed("temporary folder", str(left)),
                    Removed("temporary folder", str(agents)),
                ]
                assert left.exists() == agents.exists() == dry_run
        assert all(folder.exists() for folder in (held, *staying))
    assert outside.read_text() == "precious"


def made(folder: Path, user: int) -> Path:
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").write_text("x")
    os.chown(folder, user, user)
    return folder


@contextmanager
def held_by_its_agent(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    yield
    os.close(descriptor)


def test_an_agents_folder_is_held_while_it_lives(shared: Path) -> None:
    folder = Path(make_folder())
    assert folder.parent == shared
    os.utime(folder, (1.0, 1.0))
    assert remove_abandoned(shared, pattern="hosenet-*") == []
    assert folder.exists()


def test_all_of_the_product_makes_them_so() -> None:
    """But for a job's working folder, which is in its VM's own /tmp."""
    project = Path(__file__).parents[3]
    found = set()
    for room in ("testbed", "controller", "jobs", "topologies"):
        for path in sorted((project / room).rglob("*.py")):
            source = path.read_text("utf-8")
            if NAMED.search(source):
                found.add(str(path.relative_to(project)))
    assert found == {
        "testbed/private_folders.py",
        "jobs/live/agent.py",
    }
