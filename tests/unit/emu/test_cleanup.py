"""Things that cleanup takes for the run's own: processes, files, settings, an earlier boot."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from testbed.backends.emu import cgroups, cleanup_journal, open_vswitch
from testbed.backends.emu import cleanup as cleaning
from testbed.backends.emu.cleanup import (
    Removed,
    clean,
    remove_run,
    remove_temporary_folders,
)
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
    JournalEntry,
    journals,
    machine_lock,
    start_ticks,
)
from testbed.backends.emu.interrupts import uninterrupted
from testbed.errors import MachineCannot, RunFailed


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_a_listed_process_is_ended(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    journal = CleanupJournal.create("a", tmp_path)
    journal.add(
        [
            JournalEntry(
                "process",
                "agents",
                pid=sleeper.pid,
                start_ticks=start_ticks(sleeper.pid) or 0,
            )
        ]
    )
    assert remove_run(journal) == [
        Removed("process", f"agents ({sleeper.pid})")
    ]
    assert sleeper.wait(timeout=60) == -signal.SIGKILL
    assert journals(tmp_path) == []


def test_this_process_is_not_ended_and_not_listed(tmp_path: Path) -> None:
    journal = CleanupJournal.create("a", tmp_path)
    journal.add(
        [
            JournalEntry(
                "process",
                "a run",
                pid=os.getpid(),
                start_ticks=start_ticks(os.getpid()) or 0,
            )
        ]
    )
    assert remove_run(journal) == []


def test_a_number_used_again_is_not_ours(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    journal = CleanupJournal.create("a", tmp_path)
    journal.add(
        [
            JournalEntry(
                "process",
                "agents",
                pid=sleeper.pid,
                start_ticks=(start_ticks(sleeper.pid) or 0) - 1,
            )
        ]
    )
    assert remove_run(journal) == []
    assert sleeper.poll() is None


def test_another_boots_process_numbers_mean_nothing(
    tmp_path: Path,
    sleeper: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = CleanupJournal.create("a", tmp_path)
    setting = tmp_path / "setting"
    setting.write_text("2")
    journal.add([
        JournalEntry(
            "process", "agents", pid=sleeper.pid, start_ticks=start_ticks(sleeper.pid) or 0
        ),
        JournalEntry("netns", "lo"), JournalEntry("veth", "lo"),
        JournalEntry("sysctl", str(setting), old="1", new="2"),
    ])  # fmt: skip
    monkeypatch.setattr(cleaning, "boot_id", lambda: "another boot")
    assert remove_run(journal) == []
    assert sleeper.poll() is None
    assert setting.read_text() == "2"
    assert journals(tmp_path) == []


def test_a_control_group_whose_process_does_not_end_is_named_with_a_hint(
    tmp_path: Path,
    sleeper: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cgroups, "TIMEOUT_S", 0.1)
    journal = CleanupJournal.create("a", tmp_path)
    group = tmp_path / journal.tag.run
    group.mkdir()
    (group / "cgroup.procs").write_text(str(sleeper.pid))
    journal.add([JournalEntry("cgroup", str(group))])
    with pytest.raises(RunFailed, match=str(group)) as raised:
        remove_run(journal)
    assert "testbed clean" in str(raised.value.hint)
    assert [left.tag for left in journals(tmp_path)] == [journal.tag]


def test_a_device_of_the_right_name_but_not_in_the_runs_group_stays(
    tmp_path: Path,
) -> None:
    journal = CleanupJournal.create("a", tmp_path)
    journal.add(
        [
            JournalEntry("veth", "lo"),
            JournalEntry("netns", "nobody-has-this"),
        ]
    )
    assert clean(state=tmp_path) == []
    assert Path("/sys/class/net/lo").exists()


def test_files_go_and_missing_ones_are_fine(tmp_path: Path) -> None:
    state, token = tmp_path / "state", tmp_path / "token"
    state.mkdir()
    token.write_text("secret")
    journal = CleanupJournal.create("a", state)
    journal.add(
        [
            JournalEntry("file", str(token)),
            JournalEntry("file", str(tmp_path / "never made")),
        ]
    )
    assert clean(state=state) == [Removed("file", str(token))]
    assert not token.exists()


def test_a_folder_is_never_taken_for_a_file(tmp_path: Path) -> None:
    journal = CleanupJournal.create("a", tmp_path)
    folder = tmp_path / "precious"
    folder.mkdir()
    journal.add([JournalEntry("file", str(folder))])
    assert remove_run(journal) == []
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("now", "after"), [("2", "1"), ("7", "7"), ("1", "1")]
)
def test_a_setting_is_put_back_only_if_it_is_as_we_left_it(
    tmp_path: Path, now: str, after: str
) -> None:
    setting = tmp_path / "setting"
    setting.write_text(now)
    journal = CleanupJournal.create("a", tmp_path)
    journal.add([JournalEntry("sysctl", str(setting), old="1", new="2")])
    removed = remove_run(journal)
    assert setting.read_text() == after
    assert len(removed) == (now == "2")


def test_a_dry_run_says_the_same_and_does_nothing(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    state, token, setting = (
        tmp_path / "state",
        tmp_path / "token",
        tmp_path / "setting",
    )
    state.mkdir()
    token.write_text("secret")
    setting.write_text("2")
    journal = CleanupJournal.create("a", state)
    journal.add([
        JournalEntry(
            "process", "agents", pid=sleeper.pid, start_ticks=start_ticks(sleeper.pid) or 0
        ),
        JournalEntry("file", str(token)), JournalEntry("sysctl", str(setting), old="1", new="2"),
    ])  # fmt: skip
    output = clean(state=state, dry_run=True)
    assert len(output) == 3
    assert token.exists()
    assert setting.read_text() == "2"
    assert sleeper.poll() is None
    assert clean(state=state) == output
    assert clean(state=state) == []


@pytest.mark.parametrize(
    ("bridges", "idle"), [((), True), (("hn-s0",), True), (("br0",), False)]
)
def test_a_dry_run_names_the_switch_that_would_stop(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bridges: tuple[str, ...],
    idle: bool,
) -> None:
    left = list(bridges)
    stopped: list[list[str]] = []

    def deleted(arguments: Sequence[str], **_: object) -> str:
        left.remove(arguments[-1])
        return ""

    switch = Mock(database_pid=1, pid=1, vsctl=deleted)
    switch.rows = lambda *_: [[name] for name in left]
    monkeypatch.setattr(open_vswitch, "MACHINE", switch)
    monkeypatch.setattr(cleaning, "MACHINE", switch)
    monkeypatch.setattr(open_vswitch, "OVS_CTL", tmp_path)
    monkeypatch.setattr(open_vswitch, "detached", stopped.append)
    monkeypatch.setattr(
        open_vswitch,
        "owned_by",
        lambda _: ([name for name in left if name == "hn-s0"], []),
    )
    monkeypatch.setattr(cleaning, "devices_in_group", lambda _: set())
    journal = CleanupJournal.create("a", tmp_path)
    journal.add(
        [
            JournalEntry("daemon", "openvswitch"),
            JournalEntry("bridge", "hn-s0"),
        ]
    )
    would = remove_run(journal, dry_run=True)
    assert left == [*bridges]
    assert stopped == []
    assert would == remove_run(journal)
    assert bool(stopped) is idle
    assert ("service" in [thing.what for thing in would]) is idle


def test_several_dead_runs_are_cleaned_oldest_first(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
        CleanupJournal.create(name, state).add(
            [JournalEntry("file", str(tmp_path / name))]
        )
    assert [thing.name for thing in clean(state=state)] == [
        str(tmp_path / "one"),
        str(tmp_path / "two"),
    ]


def test_nothing_is_cleaned_while_a_run_is_alive(tmp_path: Path) -> None:
    state, token = tmp_path / "state", tmp_path / "token"
    state.mkdir()
    token.write_text("secret")
    CleanupJournal.create("a", state).add(
        [JournalEntry("file", str(token))]
    )
    with (
        machine_lock("night run", state),
        pytest.raises(MachineCannot, match="'night run'"),
    ):
        clean(state=state)
    assert token.exists()


@contextmanager
def full_disk() -> Iterator[None]:
    """No file takes another byte, as on a full disk.

    No fixture: pytest writes a test's result before it ends them, into a file
    where its output goes into one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup_journal, "GRACE_S", 0.0)
    token = tmp_path / "token"
    token.touch()
    journal = CleanupJournal.create("a", tmp_path)
    journal.add([JournalEntry("file", str(token))])
    with full_disk():
        removed = clean(state=tmp_path)
        left = journals(tmp_path)
        # The holder of the lock is without a name.
        with (
            machine_lock("night run", tmp_path),
            pytest.raises(MachineCannot),
        ):
            clean(state=tmp_path)
    assert removed == [Removed("file", str(token))]
    assert left == []


def test_a_full_disk_has_no_shared_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python looks for one that takes a file, and raises without it."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(cleaning, "ROOTS_BASE", tmp_path)
    (tmp_path / "left").mkdir()
    os.utime(tmp_path / "left", (0, 0))
    with full_disk():
        removed = remove_temporary_folders(dry_run=False)
    assert removed == [Removed("temporary folder", str(tmp_path / "left"))]


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    done = []

    def interrupted() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("the block")
        done.append("what follows")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["the block"]


def test_blocks_within_blocks_still_hear_of_the_interrupt() -> None:
    done = []

    def interrupted() -> None:
        with uninterrupted():
            with uninterrupted():
                signal.raise_signal(signal.SIGINT)
                done.append("inner")
            done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["inner", "outer"]
