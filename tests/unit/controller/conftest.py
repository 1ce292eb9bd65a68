"""Fixtures of tests that start controllers."""

from __future__ import annotations

import pytest


@pytest.fixture
def slow_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may take long to end, as on a busy machine, and still has an exit code."""
    monkeypatch.setattr("controller.process.STOP_TIMEOUT_S", 120.0)
