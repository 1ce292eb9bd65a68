"""Fixtures that unit tests of many folders share."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import pytest

from tests.support.undrawn import nothing_drawn

_fsync = os.fsync


def _fsync_unless_stored(descriptor: int) -> None:
    """Writes nothing to the disk; all other errors of fsync are as they are."""
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        _fsync(descriptor)


@pytest.fixture(scope="session", autouse=True)
def _no_disk() -> Iterator[None]:
    """No test waits for the disk: none switches the machine off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", _fsync_unless_stored)
        yield


@pytest.fixture
def undrawn() -> Iterator[None]:
    """Saves each figure of this process as an empty picture."""
    with nothing_drawn():
        yield
