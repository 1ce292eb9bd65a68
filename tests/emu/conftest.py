"""Fixtures that live tests of a network share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.backends.emu.cleanup import remove_run
from testbed.backends.emu.cleanup_journal import (
    STATE_VARIABLE,
    CleanupJournal,
)


@pytest.fixture
def journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CleanupJournal]:
    """A journal of its own; what it names is removed after the test."""
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    made = CleanupJournal.create("test")
    yield made
    remove_run(made)
