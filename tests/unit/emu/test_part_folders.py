"""The folder of a run's switch parts goes whatever moment the run was stopped at."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.backends.emu.cleanup import remove_network
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
    JournalEntry,
)


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
