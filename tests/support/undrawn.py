"""Runs without their pictures, which take longer than a small run itself.

For tests that look at no picture. What draws them is tested in
``tests/unit/report``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pytest

EMPTY_PICTURE = '<svg xmlns="http://www.w3.org/2000/svg"></svg>'


def _save(_figure: object, out: IO[Any], **_settings: object) -> None:
    try:
        out.write(EMPTY_PICTURE)
    except TypeError:
        # A file of bytes: a PNG, say.
        out.write(EMPTY_PICTURE.encode())


@contextmanager
def nothing_drawn() -> Iterator[None]:
    """Saves each figure of this process as an empty picture meanwhile.

    A fixture of a whole module is made before those of its tests: the
    fixture ``undrawn`` comes too late for it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", _save)
        yield
