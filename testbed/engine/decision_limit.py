"""The longest time that a decision may take: what never returns is interrupted.

In the main thread by SIGALRM, which wakes from waiting too; in any other (a worker of Dask, a
notebook's) by a thread beside it and an asynchronous exception. Both try again and again, as a
plug-in may catch it, and neither interrupts the testbed's own code, which the plug-in called: its
reservations stay whole, and the plug-in's next call ends. Compiling a loop of ours does not count.
A call of a function written in C that never looks for signals (``sum(range(10**12))``) cannot be
interrupted.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any
from weakref import ref

from testbed.compiled import LazyLoop
from testbed.engine.impurity import Stopped, place

AGAIN_S = 0.02
"""Time between two attempts to interrupt a decision."""

Culprit = Callable[[FrameType | None], FrameType | None]


class TimeLimit:
    """A limit on each decision of one plug-in; between :meth:`start` and :meth:`stop`.

    ``culprit`` finds the plug-in's own frame below an interrupted one (None: it is ours). ``late``
    is where the plug-in was when its time was over; None while it is not. ``expired``: what is
    called with the caller at each of its calls from then on.
    """

    def __init__(
        self,
        limit_s: float,
        culprit: Culprit,
        expired: list[Callable[[FrameType | None], None]],
    ) -> None:
        self.limit_s = limit_s
        self.late: str | None = None
        self._culprit = culprit
        self._expired = expired
        self._before: tuple[Any, tuple[float, float], float] | None = None
        self._watchdog: _Watchdog | None = None
        self._running = False
        # The trace function there was (coverage, a debugger), where ours has taken its place.
        self._traced: list[Any] = []

    def start(self) -> None:
        """Begin to count."""
        if threading.get_ident() != threading.main_thread().ident:
            if self._watchdog is None or not self._watchdog.is_alive():
                self._watchdog = _Watchdog(self)
            self._watchdog.watch()
            return
        handler = signal.signal(signal.SIGALRM, self._ring)
        timer = signal.setitimer(signal.ITIMER_REAL, self.limit_s, AGAIN_S)
        self._before = (handler, timer, time.monotonic() if timer[0] else 0.0)
        self._running = True

    def stop(self) -> None:
        """Ends the count; again, if need be. Puts back the handler and the timer there were."""
        self._running = False
        if self._watchdog is not None:
            self._watchdog.unwatch()
        self._expired.clear()
        if self._traced:
            sys.settrace(self._traced.pop())
        before, self._before = self._before, None
        if before is None:
            return
        handler, (left_s, interval_s), began_s = before
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
        if left_s:
            left_s = max(left_s - (time.monotonic() - began_s), 1e-6)
            signal.setitimer(signal.ITIMER_REAL, left_s, interval_s)

    def over(self, frame: FrameType | None) -> bool:
        """Notes that the time is over; True if the thread may be interrupted at this frame."""
        made = self._culprit(frame)
        if made is None:
            if not _compiles(frame):
                self._expired[:] = [self._stop_call]
            return False
        again, self.late = self.late is not None, self.late or place(made)
        if again and self._running:
            self.stop_at_next_line(made)
        return True

    def _stop_call(self, caller: FrameType | None) -> None:
        made = self._culprit(caller)
        if made is not None:
            self.late = self.late or place(made)
            self.stop_at_next_line(made)  # where it catches this one
            raise Stopped

    def _ring(self, _: int, frame: FrameType | None) -> None:
        if not self._running:
            return
        if self.over(frame):
            raise Stopped
        if _compiles(frame):
            signal.setitimer(signal.ITIMER_REAL, self.limit_s, AGAIN_S)

    def stop_at_next_line(self, frame: FrameType | None) -> None:
        """Stops a plug-in that catches everything a second time, where it has caught the first."""
        made = self._culprit(frame)
        if made is None:
            return

        def stop(at: FrameType, event: str, _: object) -> Any:
            if event == "line" and self._culprit(at) is not None:
                raise Stopped
            return stop

        if not self._traced:
            self._traced.append(sys.gettrace())
        made.f_trace = stop
        sys.settrace(stop)


def _compiles(frame: FrameType | None) -> bool:
    """True while a loop of the testbed's becomes machine code, once for an installation."""
    while frame is not None and frame.f_code is not LazyLoop.compile_and_run.__code__:
        frame = frame.f_back
    return frame is not None


class _Watchdog(threading.Thread):
    """Interrupts the thread that it was made in; ends with the limit that it belongs to."""

    def __init__(self, limit: TimeLimit) -> None:
        super().__init__(name="decision-limit", daemon=True)
        self._limit = ref(limit)
        self._limit_s = limit.limit_s
        self._target = threading.get_ident()
        self._until_s: float | None = None
        self._lock = threading.Lock()
        self._fired = False
        self.start()

    def watch(self) -> None:
        self._until_s = time.monotonic() + self._limit_s

    def unwatch(self) -> None:
        """Nothing is interrupted from now on, nor by what was about to."""
        with self._lock:
            self._until_s = None
        if self._fired:
            # One that is on its way comes here. Taking it back (NULL) leaves Python 3.11 looking
            # for it at every step, for good.
            self._fired = False
            with suppress(Stopped):
                for _ in range(2):
                    pass

    def run(self) -> None:
        pause_s = min(1.0, self._limit_s / 4)
        while (limit := self._limit()) is not None:
            with self._lock:
                until_s = self._until_s
                late = until_s is not None and time.monotonic() >= until_s
                frames = sys._current_frames() if late else {}  # noqa: SLF001 - its only name
                if late and limit.over(frames.get(self._target)):
                    self._fired = True
                    _interrupt(self._target, _caught_once(limit))
                elif _compiles(frames.get(self._target)):
                    self._until_s = time.monotonic() + self._limit_s
            del limit
            time.sleep(AGAIN_S if late else pause_s)


def _caught_once(limit: TimeLimit) -> type[Stopped]:
    """An exception that is made where it is caught, in the thread that it interrupts."""

    class Caught(Stopped):
        def __init__(self) -> None:
            super().__init__()
            limit.stop_at_next_line(sys._getframe(1))  # noqa: SLF001 - Python has no other name

    return Caught


def _interrupt(thread: int, exception: type[Stopped]) -> None:
    """Makes a thread raise an exception as soon as it can."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(exception))
