"""The journal on disk: written before, read back after anything, never believed too much."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from testbed.backends.emu import cleanup_journal
from testbed.backends.emu.cleanup_journal import (
    COMPACT_AFTER,
    STATE_VARIABLE,
    CleanupJournal,
    JournalEntry,
    boot_id,
    journals,
    setting,
    start_ticks,
    state_dir,
)
from testbed.errors import MachineCannot, RunFailed
from tests.support.examples import examples

ENTRIES: tuple[JournalEntry, ...] = (
    JournalEntry("netns", "hn-s0v0"),
    JournalEntry("veth", "hn-s0v0"),
    JournalEntry("bridge", "hn-s0"),
    JournalEntry("cgroup", "/sys/fs/cgroup/cpu/hosenet/1"),
    JournalEntry("process", "controller", pid=17, start_ticks=4711),
    JournalEntry("file", "/run/token"),
    JournalEntry(
        "sysctl", "/proc/sys/net/core/wmem_default", old="1", new="2"
    ),
    JournalEntry("daemon", "openvswitch"),
)


def test_what_was_added_is_read_back_in_order(tmp_path: Path) -> None:
    journal = CleanupJournal.create("night run", tmp_path)
    journal.add(ENTRIES)
    again = CleanupJournal.read(journal.path)
    assert again.entries == ENTRIES
    assert again.tag == journal.tag
    assert again.tag.name == "night run"
    assert again.tag.boot_id == boot_id()


def test_two_runs_never_share_a_mark_or_a_group(tmp_path: Path) -> None:
    one, two = (
        CleanupJournal.create("a", tmp_path),
        CleanupJournal.create("a", tmp_path),
    )
    assert one.tag.run != two.tag.run
    assert one.tag.group != two.tag.group
    assert (
        one.tag.group >= 0x4000_0000
    )  # clear of the small numbers that people use
    assert one.path != two.path
    assert [journal.tag.run for journal in journals(tmp_path)] == [
        one.tag.run,
        two.tag.run,
    ]


def test_struck_out_entries_are_gone_and_may_come_again(
    tmp_path: Path,
) -> None:
    journal = CleanupJournal.create("a", tmp_path)
    journal.add([JournalEntry("netns", "x"), JournalEntry("bridge", "x")])
    journal.remove([JournalEntry("netns", "x")])
    assert CleanupJournal.read(journal.path).entries == (
        JournalEntry("bridge", "x"),
    )
    journal.add([JournalEntry("netns", "x", 12)])
    assert CleanupJournal.read(journal.path).entries == (
        JournalEntry("bridge", "x"),
        JournalEntry("netns", "x", 12),
    )


def test_no_line_costs_a_validator_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = CleanupJournal.create("a", tmp_path)
    journal.add(ENTRIES)
    built: list[object] = []

    def counted(kind: object) -> TypeAdapter[object]:
        built.append(kind)
        return TypeAdapter(kind)

    # Building one takes as long as reading a hundred lines.
    monkeypatch.setattr(cleanup_journal, "TypeAdapter", counted)
    assert CleanupJournal.read(journal.path).entries == ENTRIES
    assert len(built) <= 2


def test_a_later_line_says_more_of_the_same_thing(tmp_path: Path) -> None:
    journal = CleanupJournal.create("a", tmp_path)
    journal.add([JournalEntry("netns", "x"), JournalEntry("veth", "x")])
    journal.add([JournalEntry("netns", "x", 4026532177)])
    assert CleanupJournal.read(journal.path).entries == (
        JournalEntry("netns", "x", 4026532177),
        JournalEntry("veth", "x"),
    )


@pytest.mark.slow
def test_a_journal_is_bounded_however_much_comes_and_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = 50
    monkeypatch.setattr(cleanup_journal, "COMPACT_AFTER", few)
    journal = CleanupJournal.create("a", tmp_path)
    stays = [
        JournalEntry("bridge", f"hn-s{number}") for number in range(20)
    ]
    journal.add(stays)
    sizes = []
    for number in range(3 * few):
        comes = [JournalEntry("netns", f"hn-{number:04}")]
        journal.add(comes)
        journal.remove(comes)
        sizes.append(journal.path.stat().st_size)
    # Two lines a thing, of some 40 bytes.
    assert max(sizes) < 120 * few
    assert max(sizes[2 * few :]) <= max(sizes[: 2 * few])
    assert CleanupJournal.read(journal.path).entries == tuple(stays)
    assert [path.name for path in journal.path.parent.iterdir()] == [
        journal.path.name
    ]


@pytest.mark.slow
@pytest.mark.parametrize("call", ["fsync", "write", "replace"])
def test_a_disk_that_is_full_when_it_is_written_anew_loses_nothing(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = CleanupJournal.create("a", tmp_path)
    stays = [JournalEntry("bridge", "hn-s0")]
    goes = [
        JournalEntry("netns", f"hn-{n}") for n in range(COMPACT_AFTER + 1)
    ]
    journal.add([*stays, *goes])

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        journal.remove(goes)
    left = CleanupJournal.read(journal.path).entries
    assert left[0] == stays[0]
    journal.add([JournalEntry("netns", "hn-later")])
    assert CleanupJournal.read(journal.path).entries[-1].name == "hn-later"
    journal.delete()
    assert list(journal.path.parent.iterdir()) == []


def test_a_dropped_journal_is_removed(tmp_path: Path) -> None:
    journal = CleanupJournal.create("a", tmp_path)
    journal.delete()
    journal.delete()
    assert journals(tmp_path) == []


@pytest.mark.slow
@given(cut=st.integers(1, 400))
@examples(60)
def test_a_journal_cut_short_lists_a_prefix_and_takes_more(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    """A crash in the middle of a write loses only what was not made yet."""
    journal = CleanupJournal.create("a", tmp_path_factory.mktemp("state"))
    header = journal.path.stat().st_size
    journal.add(ENTRIES)
    size = journal.path.stat().st_size
    with journal.path.open("r+b") as file:
        file.truncate(max(header, size - cut))
    cut_short = CleanupJournal.read(journal.path)
    n = len(cut_short.entries)
    assert cut_short.entries == ENTRIES[:n]
    cut_short.add([JournalEntry("bridge", "after")])
    assert CleanupJournal.read(journal.path).entries == (
        *ENTRIES[:n],
        JournalEntry("bridge", "after"),
    )


def test_a_journal_without_even_a_first_line_made_nothing(
    tmp_path: Path,
) -> None:
    journal = CleanupJournal.create("a", tmp_path)
    text = journal.path.read_text()
    journal.path.write_text(text[: len(text) // 2])
    assert journals(tmp_path) == []
    assert not journal.path.exists()


def test_a_file_that_is_no_journal_is_not_taken_for_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "x.jsonl").write_text(
        json.dumps({"kind": "bridge", "name": "b"}) + "\n"
    )
    with pytest.raises(RunFailed, match="is not a cleanup journal"):
        journals(tmp_path)


def test_a_setting_that_another_changed_meanwhile_stays(
    tmp_path: Path,
) -> None:
    path = tmp_path / "gc_thresh3"
    path.write_text("1024\n")
    journal = CleanupJournal.create("a", tmp_path)
    with setting(path, "1048576", journal):
        path.write_text("8192\n")
    assert path.read_text() == "8192\n"
    assert journal.entries == ()


def test_a_setting_that_takes_no_value_leaves_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gc_thresh3"
    path.write_text("1024\n")
    journal = CleanupJournal.create("a", tmp_path)

    def refused(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(Path, "write_text", refused)
    with (
        pytest.raises(OSError, match="Invalid"),
        setting(path, "0", journal),
    ):
        pass
    assert journal.entries == ()


def test_it_is_on_disk_before_add_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    journal = CleanupJournal.create("a", tmp_path)
    assert str(journal.path) in synced
    assert (
        str(journal.path.parent) in synced
    )  # the folder too: else the file may have no name
    synced.clear()
    journal.add([JournalEntry("bridge", "x")])
    assert synced == [str(journal.path)]


def test_the_state_folder_is_roots_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "deep" / "state"))
    folder = state_dir()
    assert folder == tmp_path / "deep" / "state"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_state_folder_out_of_reach_gives_the_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(MachineCannot) as caught:
        state_dir()
    assert caught.value.exit_code == 3
    assert caught.value.hint is not None
    assert "sudo" in caught.value.hint


def test_a_state_folder_that_cannot_be_made_is_the_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "file" / "state"))
    with pytest.raises(MachineCannot, match="state folder"):
        state_dir()

    def read_only(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(MachineCannot) as caught:
        state_dir()
    assert STATE_VARIABLE in str(caught.value.hint)


def test_a_process_is_known_by_its_start() -> None:
    assert start_ticks(os.getpid()) is not None
    assert start_ticks(2**22 + 1) is None
