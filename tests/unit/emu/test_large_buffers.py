"""Packet sockets with large buffers, where the kernel's settings can be changed and where not."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.backends.emu import open_vswitch
from testbed.backends.emu.cleanup_journal import (
    STATE_VARIABLE,
    CleanupJournal,
)


@pytest.fixture
def journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CleanupJournal:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    return CleanupJournal.create("test")


def test_a_setting_is_raised_for_the_block(
    tmp_path: Path, journal: CleanupJournal
) -> None:
    path = tmp_path / "wmem_default"
    path.write_text("212992\n")
    with open_vswitch.at_least(path, 1 << 20, journal):
        assert path.read_text() == str(1 << 20)
    assert path.read_text() == "212992"


def test_one_that_cannot_be_changed_or_is_not_there_is_left_to_the_library(
    tmp_path: Path, journal: CleanupJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "wmem_default"
    with open_vswitch.at_least(path, 1 << 20, journal):
        assert not path.exists()
    path.write_text("212992")
    monkeypatch.setattr(open_vswitch.os, "access", lambda *_: False)
    with open_vswitch.at_least(path, 1 << 20, journal):
        assert path.read_text() == "212992"
