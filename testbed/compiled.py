"""Inner loops that run as Python at first, and as machine code once that is
worth it.

A loop and the functions that it calls by name stand in one module; it takes
arrays, numbers and named tuples of them. Numba compiles it when it first
becomes long, and keeps the machine code beside the module (in its
``__pycache__``; without write permission there, in the user's cache folder),
for all later runs until the module changes. ``python -m
testbed.play.precompile`` does so for all loops, as ``provision.sh install``
does; elsewhere the first long run compiles, and says so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache, cached_property
from importlib import import_module
from threading import Timer
from types import FunctionType
from typing import Any, ClassVar

SILENT_S = 2.0
"""Compiling that takes longer is announced."""


class LazyLoop:
    """A loop as Python and as machine code, which compute the same to the last
    bit.

    Small runs never import Numba, and long ones lose little at their beginning.
    """

    patience: ClassVar[int] = 400_000
    """Steps that take as long in Python as the import of Numba."""

    def __init__(self, loop: Callable[..., Any]) -> None:
        self.python = loop
        self._run: Callable[..., Any] | None = None
        self._steps = 0

    def __call__(self, steps: int, *arguments: Any) -> Any:
        """The loop's result. ``steps``: about how many it will take."""
        if self._run is None:
            self._steps += steps
            if self._steps <= self.patience and not _numba_is_there():
                return self.python(*arguments)
            self._run = self.machine_code
            return self.compile_and_run(*arguments)
        try:
            return self._run(*arguments)
        except SystemError as error:
            _raise_interrupt(error)
            raise

    def compile_and_run(self, *arguments: Any) -> Any:
        """The first run as machine code, announced where compiling takes long."""
        timer = Timer(SILENT_S, _announce)
        timer.daemon = True
        timer.start()
        try:
            return self.machine_code(*arguments)
        except SystemError as error:
            _raise_interrupt(error)
            raise
        finally:
            timer.cancel()

    @cached_property
    def machine_code(self) -> Callable[..., Any]:
        """The loop as machine code; what it calls becomes part of it.

        Inlined at the level of Numba's own code, so that handing on a named
        tuple of many arrays costs nothing.
        """
        # Compiled parts stand under their names in another scope: the module
        # keeps Python.
        scope = dict(self.python.__globals__)
        for name, part in _called(self.python, {}).items():
            scope[name] = _compile(part, scope, inline="always")
        return _compile(self.python, scope, cache=True)


def _raise_interrupt(error: SystemError) -> None:
    """Raises the KeyboardInterrupt that an error of machine code stands for.

    Numba returns its result although a signal's handler has raised meanwhile,
    which Python then reports as a fault of Numba's. Where one such call was
    within another, so are the faults.
    """
    cause = error.__cause__
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            raise cause from None
        cause = cause.__cause__


def _numba_is_there() -> bool:
    """True once another loop has imported Numba, which takes half a second."""
    return "numba" in sys.modules


def _called(
    function: Any, functions: dict[str, FunctionType]
) -> dict[str, FunctionType]:
    """``functions`` with those of its own module that a function calls, also
    indirectly, by name.
    """
    for name in function.__code__.co_names:
        part = function.__globals__.get(name)
        is_of_module = (
            isinstance(part, FunctionType)
            and part.__module__ == function.__module__
        )
        if is_of_module and name not in functions:
            functions[name] = part
            _called(part, functions)
    return functions


def _compile(
    function: Any, scope: dict[str, Any], **options: Any
) -> Callable[..., Any]:
    """Machine code of a function that finds the names it uses in a scope."""
    in_scope = FunctionType(function.__code__, scope, function.__name__)
    compiler = _numba().njit(nogil=True, **options)
    machine_code: Callable[..., Any] = compiler(in_scope)
    return machine_code


@cache
def _numba() -> Any:
    """Numba, which reads no file of the working directory.

    Numba looks there for its settings at each compiling: a settings file of
    another user could name a folder with his machine code, which it would run.
    """
    import numba

    config: Any = import_module("numba.core.config")
    config._config_fname = os.devnull  # noqa: SLF001 - nothing public sets it
    config.reload_config()
    return numba


@cache
def _announce() -> None:
    sys.stderr.write(
        "compiling inner loops, once for this installation ...\n"
    )
