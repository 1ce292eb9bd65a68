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
from functools import cache, cached_property
from types import FunctionType
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


ENOUGH = 400_000
"""Steps of a :class:`LazyLoop` that take as long in Python as Numba takes to import."""


class LazyLoop:
    """A loop that runs as Python at first, and as machine code once it has taken many steps.

    Small runs never import Numba (0.3 to 0.5 s) and long ones hardly notice the beginning. Both
    compute the same, to the last bit.
    """

    def __init__(self, loop: Callable[..., Any], *parts: Callable[..., Any]) -> None:
        """``parts``: the functions that ``loop`` calls by their names."""
        self.python = loop
        self._parts = parts
        self._run: Callable[..., Any] | None = None
        self._steps = 0

    def __call__(self, steps: int, *arguments: Any) -> Any:
        """Run the loop, which will take about so many steps."""
        if self._run is None:
            self._steps += steps
            if self._steps <= ENOUGH:
                return self.python(*arguments)
            self._run = self.machine_code or self.python
        return self._run(*arguments)

    @cached_property
    def machine_code(self) -> Callable[..., Any] | None:
        """The loop compiled together with its parts; None without Numba."""
        if not numba_available():
            return None
        # Compiled parts stand under their names in a scope of its own: the module keeps Python.
        scope = dict(self.python.__globals__)
        scope.update({part.__name__: _compile(part, inline="always") for part in self._parts})
        return _compile(FunctionType(self.python.__code__, scope, self.python.__name__))
