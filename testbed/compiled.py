"""Inner loops that run as Python at first, and as machine code once that is
worth it.

A loop stands in one module with the functions that it calls by name; its
arguments are arrays, numbers and named tuples of them. Numba compiles it once
its steps in this process add up to :attr:`LazyLoop.patience`, or once Numba is
imported anyway, and keeps the machine code beside the module (in its
``__pycache__``; without write permission there, in the user's cache folder)
until the module changes. ``provision.sh install`` runs ``python -m
testbed.play.precompile``, which compiles all loops; elsewhere the first long run
does, and says so.
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
"""A first run as machine code that takes longer is announced as compiling."""


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
        run = self._run
        if run is None:
            self._steps += steps
            if self._steps <= self.patience and not _numba_is_there():
                return self.python(*arguments)
            self._run = self.machine_code
            run = self.compile_and_run
        try:
            return run(*arguments)
        except SystemError as error:
            _raise_interrupt(error)
            raise

    def compile_and_run(self, *arguments: Any) -> Any:
        """The first run as machine code; a long one is announced as compiling."""
        timer = Timer(SILENT_S, _announce)
        timer.daemon = True
        timer.start()
        try:
            return self.machine_code(*arguments)
        finally:
            timer.cancel()

    @cached_property
    def machine_code(self) -> Callable[..., Any]:
        """The loop as machine code, compiled at its first call.

        The functions that it calls are inlined in Numba's own code, so that
        passing a named tuple of many arrays costs nothing.
        """
        # In a copy of the module's globals, so that the module keeps Python's
        # functions.
        scope = dict(self.python.__globals__)
        for name, part in _called(self.python, {}).items():
            scope[name] = _compile(part, scope, inline="always")
        return _compile(self.python, scope, cache=True)


def _raise_interrupt(error: SystemError) -> None:
    """Raises the interrupt that a SystemError of machine code stands for: a
    KeyboardInterrupt, or the end of a plug-in's time.

    If a signal's handler raises during a call of machine code, Numba returns a
    result all the same. Python turns the two into a SystemError, whose cause is
    the interrupt. Nested calls nest these errors.
    """
    cause = error.__cause__
    while cause is not None:
        if not isinstance(cause, Exception):
            raise cause from None
        cause = cause.__cause__


def _numba_is_there() -> bool:
    """True once another loop has imported Numba, which takes half a second."""
    return "numba" in sys.modules


def _called(
    function: Any, functions: dict[str, FunctionType]
) -> dict[str, FunctionType]:
    """Adds to ``functions``, by name, the functions of a function's module that
    it calls, also indirectly; returns ``functions``.
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
    """Says so once in a process, hence the cache."""
    sys.stderr.write(
        "compiling inner loops, once for this installation ...\n"
    )
