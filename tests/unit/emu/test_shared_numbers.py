"""Numbers that the whole machine has one of are raised for a network's life."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.backends.emu.cleanup_journal import (
    STATE_VARIABLE,
    CleanupJournal,
)
from testbed.backends.emu.shared_numbers import (
    AT_LEAST,
    SOCKET_PAGES,
    raised_numbers,
)


@pytest.fixture
def journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CleanupJournal:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    return CleanupJournal.create("numbers")


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A machine's settings."""
    folder = tmp_path / "sys"
    for name in (*SOCKET_PAGES, *AT_LEAST):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "100\t200\t300\n" if name in SOCKET_PAGES else "9\n"
        )
    return folder


def values(system: Path) -> dict[str, list[int]]:
    return {
        name: [int(text) for text in (system / name).read_text().split()]
        for name in (*SOCKET_PAGES, *AT_LEAST)
    }


def test_they_are_as_memory_bounds_them(
    journal: CleanupJournal, system: Path
) -> None:
    before = values(system)
    with raised_numbers(journal, system):
        raised = values(system)
        pages = os.sysconf("SC_PHYS_PAGES")
        for name in SOCKET_PAGES:
            assert raised.pop(name) == [pages] * 3
        assert raised == {name: [least] for name, least in AT_LEAST.items()}
        assert {entry.kind for entry in journal.entries} == {"sysctl"}
    assert values(system) == before
    assert not journal.entries


def test_larger_ones_and_missing_ones_stay(
    journal: CleanupJournal, system: Path
) -> None:
    larger = 1 << 62
    (system / "net/ipv4/tcp_mem").write_text(
        f"{larger}\t{larger}\t{larger}"
    )
    (system / "fs/aio-max-nr").unlink()
    with raised_numbers(journal, system):
        text = (system / "net/ipv4/tcp_mem").read_text()
        assert text.split() == [str(larger)] * 3
        assert not (system / "fs/aio-max-nr").exists()
