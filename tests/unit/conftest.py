"""Fixtures that unit tests of many folders share."""

from __future__ import annotations

from typing import IO, Any

import pytest

EMPTY_PICTURE = '<svg xmlns="http://www.w3.org/2000/svg"></svg>'


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves each figure of this process as an empty picture.

    A small run takes less time than the pictures of its page: this is for
    tests that look at neither. What draws them is tested in ``report``.
    """

    def save(_figure: object, out: IO[Any], **_settings: object) -> None:
        try:
            out.write(EMPTY_PICTURE)
        except TypeError:
            # A file of bytes: a PNG, say.
            out.write(EMPTY_PICTURE.encode())

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", save)
