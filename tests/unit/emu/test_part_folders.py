"""The folder of a run's switch parts goes whatever moment the run was stopped at."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from testbed.backends.emu import cleanup
from testbed.backends.emu.cleanup import remove_network
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
    JournalEntry,
)
from testbed.errors import RunFailed


@pytest.mark.parametrize("made", ["empty.db", "hn-part1/conf.db"])
def test_the_folder_goes_with_whatever_is_in_it(
    tmp_path: Path, made: str
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    journal = CleanupJournal.create("stopped", state)
    folder = tmp_path / journal.tag.run
    journal.add(
        [
            JournalEntry("part", str(folder / f"hn-part{i}"))
            for i in range(2)
        ]
    )
    (folder / made).parent.mkdir(parents=True)
    (folder / made).touch()
    other = tmp_path / "other" / "hn-part0"
    other.mkdir(parents=True)
    journal.add([JournalEntry("part", str(other))])
    remove_network(journal)
    assert not folder.exists()
    assert other.exists()
    assert journal.entries == ()


@pytest.fixture
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def journal(
    tmp_path: Path,
    daemon: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> CleanupJournal:
    """Of a run with one part, whose only daemon ``daemon`` is taken for."""
    journal = CleanupJournal.create("stopped", tmp_path)
    part = tmp_path / journal.tag.run / "hn-part0"
    part.mkdir(parents=True)
    journal.add([JournalEntry("part", str(part))])
    process = psutil.Process(daemon.pid)
    monkeypatch.setattr(psutil, "process_iter", lambda: [process])
    monkeypatch.setattr(cleanup, "_part_folder", lambda _: part)
    return journal


def test_a_daemon_that_ends_by_itself_meanwhile_is_no_failure(
    journal: CleanupJournal,
    daemon: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part_folder = cleanup._part_folder

    def ended_meanwhile(process: psutil.Process) -> Path | None:
        daemon.kill()
        daemon.wait()
        return part_folder(process)

    monkeypatch.setattr(cleanup, "_part_folder", ended_meanwhile)
    remove_network(journal)
    assert journal.entries == ()


def test_a_daemon_that_does_not_end_is_named_and_its_part_stays(
    journal: CleanupJournal,
    daemon: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(psutil.Process, "kill", lambda _: None)
    monkeypatch.setattr(cleanup, "PROCESS_TIMEOUT_S", 0.1)
    with pytest.raises(RunFailed, match=str(daemon.pid)):
        remove_network(journal)
    (part,) = journal.entries
    assert Path(part.name).is_dir()
