"""Inner loops, compiled where Numba is installed; everything works without it.

Numba is an optional speed-up (``pip install hosenet[fast]``). What calls :func:`compiled` keeps a
numpy path beside the loop, which decides the same, and takes it when this returns None.
``HOSENET_NUMBA=0`` in the environment takes it too.

A loop stands in a module of its own with the functions it calls, those marked :func:`inline`; such
a module is imported where it is needed, for marking them imports Numba.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

SWITCH = "HOSENET_NUMBA"

Loop = TypeVar("Loop", bound=Callable[..., Any])


@cache
def numba_available() -> bool:
    """Whether loops can be compiled. Looks for the package without importing it."""
    return os.environ.get(SWITCH, "1") != "0" and importlib.util.find_spec("numba") is not None


@cache
def compiled(loop: Loop) -> Loop | None:
    """``loop`` as machine code, or None without Numba. Compiled at the first call, then cached."""
    return _compile(loop) if numba_available() else None


def inline(part: Loop) -> Loop:
    """Mark a function that compiled loops call; without Numba it stays as it is.

    It becomes part of its callers: handing it a named tuple of many arrays costs nothing.
    """
    return _compile(part, inline="always") if numba_available() else part


def _compile(function: Loop, **options: Any) -> Loop:
    import numba

    machine_code: Loop = numba.njit(cache=True, nogil=True, **options)(function)
    return machine_code
