"""The longest time that a decision may take.

In the main thread a decision that never returns is interrupted, by SIGALRM. In
any other thread, which gets no signals, its time is measured when it returns:
one that never returns is ended with its process. A call of C code that never
looks for signals, as ``sum(range(10**12))``, cannot be interrupted either.
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

from testbed.compiled import LazyLoop

OURS = frozenset({"testbed", "jobs", "topologies", "controller"})
"""Top-level packages of this program."""

AGAIN_S = 0.02
"""Time after which a plug-in that has caught an interrupt gets the next one."""

_Result = TypeVar("_Result")


class TimeOver(BaseException):
    """The time of a decision is over.

    No ``Exception``, so that ``except Exception`` of a plug-in does not catch
    it. ``call`` is the one that took too long; ``place`` is where the plug-in
    was, as ``(mine.py:12)``.
    """

    def __init__(
        self, call: Callable[..., Any], limit_s: float, place: str
    ) -> None:
        super().__init__(f"has not answered within {limit_s:g} s{place}")
        self.call = call


def within(
    limit_s: float, call: Callable[..., _Result], *arguments: Any
) -> _Result:
    """The result of a call. Raises TimeOver where the call takes longer.

    A timer that runs already, as that of a call around this one, continues
    afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        return _measured(limit_s, call, *arguments)

    caller = sys._getframe()  # noqa: SLF001 - its only name
    places: list[str] = []

    def ring(_: int, frame: FrameType | None) -> None:
        if _compiles(frame):
            # Machine code of our loops, once for an installation.
            signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
        elif not _collects_garbage(frame):
            places.append(_place_above(caller, frame))
            # Later ones may hit while the first is on its way out.
            raise TimeOver(call, limit_s, places[0])

    began_s = time.monotonic()
    # The timer first: an alarm of a call around this one is not this one's.
    left_s, interval_s = signal.setitimer(signal.ITIMER_REAL, 0)
    handler = signal.signal(signal.SIGALRM, ring)
    try:
        # Within the block: the alarm may ring from here on, and the former
        # timer and handler are known.
        signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
        return call(*arguments)
    finally:
        # The timer before the handler: a ring in between would be the
        # caller's.
        signal.setitimer(signal.ITIMER_REAL, 0)
        if handler is None:
            # It was not set from Python.
            handler = signal.SIG_DFL
        signal.signal(signal.SIGALRM, handler)
        if left_s:
            used_s = time.monotonic() - began_s
            # One that is over rings at once: 0 would switch it off.
            left_s = max(left_s - used_s, 1e-6)
            signal.setitimer(signal.ITIMER_REAL, left_s, interval_s)


def _measured(
    limit_s: float, call: Callable[..., _Result], *arguments: Any
) -> _Result:
    began_s = time.monotonic()
    result = call(*arguments)
    if time.monotonic() - began_s > limit_s:
        raise TimeOver(call, limit_s, place="")
    return result


def _place_above(caller: FrameType, frame: FrameType | None) -> str:
    """`` (mine.py:12)``: the innermost line of the module that was called."""
    frames = list(
        takewhile(lambda outer: outer is not caller, _from(frame))
    )
    for inner in frames:
        # Below it may be libraries, and the testbed's own functions.
        if inner.f_globals is frames[-1].f_globals:
            file = PurePath(inner.f_code.co_filename).name
            return f" ({file}:{inner.f_lineno})"
    return ""


def _collects_garbage(frame: FrameType | None) -> bool:
    """True in a callback of the garbage collector or of a weak reference, and in
    ``__del__``.

    Python prints an exception that is raised there and continues: the next
    ring, a moment later, meets the plug-in.
    """
    callbacks = {getattr(call, "__code__", None) for call in gc.callbacks}
    codes = [outer.f_code for outer in _from(frame)]
    return any(
        code in callbacks
        or code.co_filename == weakref.__file__
        or code.co_name == "__del__"
        for code in codes
    )


def _compiles(frame: FrameType | None) -> bool:
    """True while a loop of the testbed's becomes machine code."""
    compiling = LazyLoop.compile_and_run.__code__
    return any(outer.f_code is compiling for outer in _from(frame))


def _from(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame, and those that have called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back
