"""Fixtures that unit tests of many folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.undrawn import nothing_drawn


@pytest.fixture
def undrawn() -> Iterator[None]:
    """Saves each figure of this process as an empty picture."""
    with nothing_drawn():
        yield
