"""Damaged journals end no command in a traceback, and what can be read in them is cleaned."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import NoReturn

import pytest

from testbed.backends.emu import cleanup, machine_checks
from testbed.backends.emu.cleanup import clean, clean_leftovers
from testbed.backends.emu.cleanup_journal import (
    STATE_VARIABLE,
    CleanupJournal,
    JournalEntry,
    start_ticks,
)
from testbed.errors import MachineCannot

DAMAGED_LINES = {
    "bytes": b"\xff\xfe\x00garbage\n",
    "list": b"[1, 2]\n",
    "text": b'"bridge"\n',
    "number": b"7\n",
    "null": b"null\n",
    "nested": b"[" * 100_000 + b"\n",
    "long-number": b'{"kind": "process", "name": "x", "pid": '
    + b"1" * 5000
    + b"}\n",
    "without-name": b'{"kind": "bridge"}\n',
    "unknown-kind": b'{"kind": "planet", "name": "x"}\n',
    "wrong-type": b'{"kind": "process", "name": "x", "pid": "17"}\n',
    "gone-names": b'{"kind": "gone", "names": 7}\n',
    "gone-pairs": b'{"kind": "gone", "names": [[1, 2, 3]]}\n',
}
# Not JSON at all: as a line that a crash has cut.
TOLERATED = ("bytes",)
DAMAGED_HEADS = {
    "empty-record": b"{}\n",
    "no-run": b'{"kind": "run", "name": "a", "boot_id": "b", "started_unix_s": 1}\n',
    "run-type": b'{"kind": "run", "run": "zz", "name": "a", "boot_id": "b", "started_unix_s": 1}\n',
    "time-type": b'{"kind": "run", "run": "0000000a", "name": "a",'
    b' "boot_id": "b", "started_unix_s": "x"}\n',
}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setattr(cleanup, "NETNS_DIR", tmp_path / "netns")
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def told_and_set_aside(state: Path, path: Path) -> list[str]:
    """Things that clean removes of a journal that run and doctor have named as damaged."""
    with pytest.raises(MachineCannot, match=r"x\.jsonl") as refused:
        clean_leftovers()
    assert "testbed clean" in str(refused.value.hint)
    check = machine_checks._leftovers()
    assert check.grade == "warn"
    assert str(path) in check.sentence

    would = clean(dry_run=True)
    assert path.exists() or path.is_symlink()
    removed = clean()
    assert removed[0].what == would[0].what == "damaged journal"
    assert removed[1:] == would[1:]
    assert not path.exists()
    (aside,) = (state / "runs").glob("x.damaged-*")
    assert aside.name in removed[0].name
    assert clean() == []
    assert machine_checks._leftovers().grade == "ok"
    return [thing.name for thing in removed[1:]]


@pytest.mark.parametrize("name", DAMAGED_LINES)
def test_what_is_readable_beside_a_damaged_line_is_removed(
    state: Path, name: str, tmp_path: Path
) -> None:
    journal = CleanupJournal.create("a", state)
    path = journal.path.rename(journal.path.with_name("x.jsonl"))
    left = [tmp_path / "first", tmp_path / "second"]
    for file in left:
        file.touch()
    lines = [
        json.dumps({"kind": "file", "name": str(file)}).encode() + b"\n"
        for file in left
    ]
    with path.open("ab") as journal_file:
        journal_file.write(lines[0] + DAMAGED_LINES[name] + lines[1])
    if name in TOLERATED:
        clean()
    else:
        assert sorted(told_and_set_aside(state, path)) == [
            str(file) for file in left
        ]
    assert not any(file.exists() for file in left)


@pytest.mark.parametrize("name", DAMAGED_HEADS)
def test_a_journal_of_no_run_is_set_aside(state: Path, name: str) -> None:
    path = state / "runs" / "x.jsonl"
    path.parent.mkdir()
    path.write_bytes(DAMAGED_HEADS[name])
    assert told_and_set_aside(state, path) == []


def test_a_full_disk_loses_nothing_of_a_damaged_journal(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "left"
    left.touch()
    journal = CleanupJournal.create("a", state)
    journal.add([JournalEntry("file", str(left))])
    with journal.path.open("ab") as journal_file:
        journal_file.write(DAMAGED_LINES["list"])

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            clean()
    assert str(left) in [thing.name for thing in clean()]
    assert not left.exists()
    assert [path.suffix for path in (state / "runs").glob("*.new")] == []


def test_a_folder_in_its_place_is_set_aside(state: Path) -> None:
    path = state / "runs" / "x.jsonl"
    path.mkdir(parents=True)
    assert told_and_set_aside(state, path) == []


def test_only_control_groups_that_are_removed_are_told(
    state: Path, tmp_path: Path
) -> None:
    journal = CleanupJournal.create("a", state)
    other = tmp_path / "hosenet" / "other"
    other.mkdir(parents=True)
    journal.add([JournalEntry("cgroup", str(other))])
    assert clean() == []
    assert other.is_dir()


def test_namespaces_of_killed_doctors_are_removed(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netns = tmp_path / "netns"
    netns.mkdir()
    pid = os.getpid()
    alive = cleanup.new_doctor_namespace()
    assert alive.startswith(f"hn-doctor-{pid}-{start_ticks(pid)}-")
    dead = [
        f"hn-doctor-{pid}-1-ab12cd",
        "hn-doctor-ab12cd",
        "hn-doctor-x-y-z",
    ]
    for name in (*dead, alive, "hn-s0v0"):
        (netns / name).touch()
    lines: list[str] = []
    monkeypatch.setattr(cleanup, "ip_remove", lines.extend)
    removed = clean(dry_run=True)
    assert [thing.name for thing in removed] == sorted(dead)
    assert lines == []
    assert clean() == removed
    assert lines == [f"netns delete {name}" for name in sorted(dead)]
    del state
