"""The longest time that a decision may take.

In the main thread SIGALRM interrupts a decision that takes too long. Other
threads get no signals: there its time is measured when it returns, and a
decision that never returns lasts as long as the process. C code that never
checks for signals, such as ``sum(range(10**12))``, cannot be interrupted in any
thread.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import PurePath
from types import FrameType
from typing import Any, TypeVar
from weakref import WeakSet

from testbed.compiled import LazyLoop

_WEAK_FILES = (weakref.__file__, WeakSet.__init__.__code__.co_filename)
"""Python's files of callbacks that run when an object goes."""
AGAIN_S = 0.02
"""Time between interrupts, in s, for a plug-in that catches the first one."""

_Result = TypeVar("_Result")


class TimeOver(BaseException):
    """The time of a decision is over.

    Not an ``Exception``, so that a plug-in's ``except Exception`` does not
    catch it. ``call`` is the function that took too long; it tells nested calls
    of :func:`within` apart. ``place`` is the plug-in's line at that moment, as
    `` (mine.py:12)``.
    """

    def __init__(
        self, call: Callable[..., Any], limit_s: float, place: str
    ) -> None:
        super().__init__(f"has not answered within {limit_s:g} s{place}")
        self.call = call


def within(
    limit_s: float, call: Callable[..., _Result], *arguments: Any
) -> _Result:
    """The result of ``call(*arguments)``. Raises TimeOver if it takes longer
    than ``limit_s``.

    Calls may be nested: the timer of an outer call continues afterwards, less
    the time that has passed.
    """
    if threading.current_thread() is not threading.main_thread():
        return _call_and_measure(limit_s, call, *arguments)

    caller = sys._getframe()  # noqa: SLF001 - its only name
    places: list[str] = []

    def interrupt(_: int, frame: FrameType | None) -> None:
        if _compiles(frame):
            # Compilation of our own loops, once per installation, is not the
            # plug-in's time: the limit starts anew.
            signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
        elif not _collects_garbage(frame):
            places.append(_place_above(caller, frame))
            # An interrupt while an earlier TimeOver unwinds the stack replaces
            # it, and names the same line.
            raise TimeOver(call, limit_s, places[0])

    began_s = time.monotonic()
    # The outer timer is stopped before the handler is replaced, so that its
    # alarm does not count as one of this call.
    outer_left_s, outer_interval_s = signal.setitimer(signal.ITIMER_REAL, 0)
    outer_handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        # Within the block, so that an alarm from here on restores the outer
        # timer and handler.
        signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
        return call(*arguments)
    finally:
        # The timer is stopped before the handler is restored, so that no alarm
        # of this call reaches the outer handler.
        signal.setitimer(signal.ITIMER_REAL, 0)
        if outer_handler is None:
            # None stands for a handler that was not set from Python.
            outer_handler = signal.SIG_DFL
        signal.signal(signal.SIGALRM, outer_handler)
        if outer_left_s:
            used_s = time.monotonic() - began_s
            # An outer timer that is over fires at once; 0 would stop it.
            outer_left_s = max(outer_left_s - used_s, 1e-6)
            signal.setitimer(
                signal.ITIMER_REAL, outer_left_s, outer_interval_s
            )


def _call_and_measure(
    limit_s: float, call: Callable[..., _Result], *arguments: Any
) -> _Result:
    began_s = time.monotonic()
    result = call(*arguments)
    if time.monotonic() - began_s > limit_s:
        raise TimeOver(call, limit_s, place="")
    return result


def _place_above(caller: FrameType, frame: FrameType | None) -> str:
    """The innermost line of the called module, as `` (mine.py:12)``."""
    frames = list(
        takewhile(lambda outer: outer is not caller, _with_callers(frame))
    )
    for inner in frames:
        # Frames further in may be of libraries or of the testbed.
        if inner.f_globals is frames[-1].f_globals:
            file = PurePath(inner.f_code.co_filename).name
            return f" ({file}:{inner.f_lineno})"
    return ""


def _collects_garbage(frame: FrameType | None) -> bool:
    """True in a callback of the garbage collector, in the modules of weak
    references, and in ``__del__``.

    Python only prints an exception that is raised there. The next interrupt,
    after :data:`AGAIN_S`, will be in the plug-in's own code.
    """
    callbacks = {getattr(call, "__code__", None) for call in gc.callbacks}
    codes = [outer.f_code for outer in _with_callers(frame)]
    return any(
        code in callbacks
        or code.co_filename in _WEAK_FILES
        or code.co_name == "__del__"
        for code in codes
    )


def _compiles(frame: FrameType | None) -> bool:
    """True while a loop of the testbed is compiled to machine code."""
    compiling = LazyLoop.compile_and_run.__code__
    return any(outer.f_code is compiling for outer in _with_callers(frame))


def _with_callers(frame: FrameType | None) -> Iterator[FrameType]:
    """Yields a frame and its callers, from the inside out."""
    while frame is not None:
        yield frame
        frame = frame.f_back
