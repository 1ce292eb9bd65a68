"""Clock, randomness, input and output in a plug-in's decisions, found as they happen.

Two hooks of Python's own: the profile function of the thread, which is told of each call of a
function written in C, and the audit events, which files, sockets and processes raise wherever they
are opened. Both hear of the deciding thread alone. Draws from numpy's global generator are seen by
its state, generators of Python's without a seed as they are made. A call counts if the plug-in or a
library called by it makes it, not if the testbed's own code does (its compiled loops read their
files), nor if Python loads a module, warns, or collects garbage, which may be anybody's.

This finds mistakes; it confines nobody (that is :mod:`testbed.labs.sandbox`'s part).
"""

from __future__ import annotations

import _thread
import builtins
import ctypes
import datetime
import gc
import io
import os
import random
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from dis import opname
from functools import cache
from pathlib import PurePath
from types import CodeType, FrameType
from typing import Any
from weakref import WeakSet

from numpy import random as numpy_random

OURS = frozenset({"testbed", "jobs", "topologies", "controller"})
PYTHONS_OWN = frozenset(
    {"importlib._bootstrap", "importlib._bootstrap_external", "warnings", "weakref"}
)

CLOCK, RANDOM, IO = "reads the clock", "draws random numbers", "does input or output"
WAITS, THREAD = "waits", "starts a thread"
HINTS = {
    CLOCK: "a policy knows the time by view.now_s",
    RANDOM: "a replay has to repeat each decision: break ties by arrival or id",
    IO: "read files in __init__; say why in the reasons of Wait and Reject (testbed explain)",
    WAITS: "a policy asks for a later decision with Wake(at_s)",
    THREAD: "a policy decides in the call that asks it",
}

_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime")
_TIMES = {"localtime": 1, "gmtime": 1, "ctime": 1, "asctime": 1, "strftime": 2}
_FILES = ("read", "write", "stat", "lstat", "access", "getcwd", "getloadavg", "times", "getpid")
_AUDITED = (
    *("open", "os.", "socket.", "subprocess.", "shutil.", "sqlite3.", "urllib.", "http.", "glob."),
    *("mmap.", "fcntl.", "pathlib.", "tempfile.", "syslog.", "ftplib.", "smtplib."),
)


class Stopped(BaseException):
    """Ends a decision from inside; what a plug-in's ``except Exception`` does not catch."""


@cache
def _calls() -> dict[Any, tuple[str, str]]:
    """Functions written in C that no decision may call: what each does, and its name."""
    clocks = [*_TIMES, *(f"{name}{unit}" for name in _CLOCKS for unit in ("", "_ns"))]
    found = {getattr(time, name): (CLOCK, f"time.{name}") for name in clocks}
    for kind, names in (
        (datetime.datetime, ("now", "utcnow", "today")),
        (datetime.date, ("today",)),
    ):
        found |= {getattr(kind, name): (CLOCK, f"{kind.__name__}.{name}") for name in names}
    found[time.sleep] = (WAITS, "time.sleep")
    # Each is there on some Pythons; `threading` takes the second where there is one.
    starts = [getattr(_thread, f"start_{kind}_thread", None) for kind in ("new", "joinable")]
    found |= dict.fromkeys(filter(None, starts), (THREAD, "threading.Thread"))
    found |= {getattr(os, name): (IO, f"os.{name}") for name in _FILES}
    found |= {getattr(builtins, name): (IO, name) for name in ("open", "print", "input")}
    found[select.select] = (IO, "select.select")
    found |= {getattr(os, name): (RANDOM, f"os.{name}") for name in ("urandom", "getrandom")}
    shared = random.random.__self__  # type: ignore[attr-defined]
    for name in ("random", "getrandbits", "seed"):
        found[getattr(super(random.Random, shared), name)] = (RANDOM, f"random.{name}")
    return found


_FILES_OPEN = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_without_seed: WeakSet[random.Random] = WeakSet()
_OPEN = frozenset((*_FILES_OPEN, socket.socket, random.Random))


class Purity:
    """Watch over the calls of one plug-in; between :meth:`start` and :meth:`stop`, in one thread.

    ``base`` is the code of the function of ours that calls the plug-in, ``module`` the plug-in's.
    ``fault`` is the first impurity, and what to do instead. ``expired`` holds what is to be called
    with each caller once the decision's time is over. Of watches that nest, the inner one hears.
    """

    def __init__(self, module: str, base: CodeType) -> None:
        self.fault: tuple[str, str] | None = None
        self.expired: list[Callable[[FrameType | None], None]] = []
        # Of a package of its own all modules; of a policy of ours its own module alone.
        package = module.partition(".")[0]
        self._own = {module} if package in OURS else {module, package}
        self._base = base
        self._seen = self._profile()
        self._generator: tuple[int, int] | None = None
        self._around: Purity | None = None
        _listen()

    def start(self) -> None:
        """Begin to watch. Whoever profiles this thread sees the calls instead."""
        self._generator = _global_generator()
        self._around = getattr(_deciding, "watched", None)
        _deciding.watched = self
        if sys.getprofile() in (None, getattr(self._around, "_seen", None)):
            sys.setprofile(self._seen)

    def stop(self) -> None:
        """Ends the watch; again, if need be."""
        if getattr(_deciding, "watched", None) is self:
            _deciding.watched = self._around
        if sys.getprofile() is self._seen:
            sys.setprofile(getattr(self._around, "_seen", None))
        if self.fault is None and self._generator != _global_generator():
            self.fault = (f"{RANDOM} (numpy.random)", HINTS[RANDOM])

    def refuse(self, kind: str, name: str, frame: FrameType | None) -> None:
        """Stops the decision if the plug-in is what makes a call."""
        made = self.culprit(frame)
        if made is not None:
            where = f"{name}, {place(made)}"
            self.fault = self.fault or (f"{kind} ({where})", HINTS[kind])
            raise Stopped

    def culprit(self, frame: FrameType | None) -> FrameType | None:
        """The plug-in's frame that a call comes from; None where the call is not its own."""
        outermost = frame
        while frame is not None and frame.f_code is not self._base:
            if self.is_own(frame):
                return frame
            module = _module(frame)
            if module.partition(".")[0] in OURS or module in PYTHONS_OWN or _collects(frame):
                return None
            outermost, frame = frame, frame.f_back
        return None if frame is None or outermost is frame else outermost

    def is_own(self, frame: FrameType) -> bool:
        """True for code of the plug-in's own module or package."""
        module = _module(frame)
        return module in self._own or module.partition(".")[0] in self._own

    def heard(self, event: str) -> None:
        """An audit event of this thread."""
        if event.startswith(_AUDITED):
            self.refuse(IO, event, sys._getframe(2))  # noqa: SLF001 - Python has no other name
        elif event == "time.sleep":
            self.refuse(WAITS, event, sys._getframe(2))  # noqa: SLF001 - Python has no other name

    def _profile(self) -> Callable[[FrameType, str, Any], None]:
        calls, objects, expired = {**_calls(), **_shown()}, _OPEN, self.expired

        def seen(frame: FrameType, event: str, called: Any) -> None:
            # At each call and return in a decision: as little as possible.
            if event != "c_call":
                if expired and event == "call":
                    expired[0](frame.f_back)
                return
            if called in calls and not _has_time(called, frame):
                self.refuse(*calls[called], frame)
            elif type(called.__self__) in objects:
                if type(called.__self__) is not random.Random:
                    self.refuse(IO, called.__qualname__, frame)
                elif _unseeded(frame, event, called):
                    self.refuse(RANDOM, "random.Random() without a seed", frame)

        return seen


def _has_time(called: Any, frame: FrameType) -> bool:
    """True for a frame's call of one of ``_TIMES`` with as many arguments, so that it is pure."""
    code, at, least = frame.f_code.co_code, frame.f_lasti, _TIMES.get(called.__name__, 0)
    return least > 0 and (opname[code[at]] != "CALL" or code[at + 1] >= least)


def _unseeded(frame: FrameType, event: str, called: Any) -> bool:
    """True for a call that seeds a generator of Python's with nothing, or draws from such."""
    if event != "c_call" or type(called.__self__) is not random.Random:
        return False
    generator, name = called.__self__, called.__name__
    if name in ("seed", "setstate"):
        none = name == "seed" and frame.f_locals.get("a") is None
        (_without_seed.add if none else _without_seed.discard)(generator)
    return name != "getstate" and generator in _without_seed


def noting_generators(make: Callable[..., Any], *given: Any) -> Any:
    """The result of a call; notes generators of Python without a seed, for those who draw later."""
    if sys.getprofile() is None:
        sys.setprofile(_unseeded)
    try:
        return make(*given)
    finally:
        if sys.getprofile() is _unseeded:
            sys.setprofile(None)


def _module(frame: FrameType) -> str:
    return frame.f_globals.get("__name__") or ""


def _collects(frame: FrameType) -> bool:
    """True where the garbage collector, which runs at any time, has called a function."""
    code = frame.f_code
    listening = (getattr(callback, "__code__", None) for callback in gc.callbacks)
    return code.co_name == "__del__" or any(code is other for other in listening)


def place(frame: FrameType, line: int | None = None) -> str:
    """``mine.py:14``."""
    return f"{PurePath(frame.f_code.co_filename).name}:{line or frame.f_lineno}"


def _shown() -> dict[Any, tuple[str, str]]:
    """The ways to write on the terminal, whatever stands in its place."""
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    writes = (getattr(stream, "write", None) for stream in streams)
    return {write: (IO, "print") for write in writes if write is not None}


# -- numpy's global generator: its functions are Cython's, which no profile function hears of


_WORDS = 624


def _global_generator() -> tuple[int, int] | None:
    """A part of the global generator's state that each draw changes; None before it is loaded."""
    if "numpy.random" not in sys.modules:
        return None
    state = _generator_state()
    return state[0], state[_WORDS]


@cache
def _generator_state() -> Any:
    """The Mersenne twister's words and its position among them, where numpy keeps them."""
    bits: Any = vars(numpy_random)["get_bit_generator"]()  # which numpy's stubs lack
    address = bits.ctypes.state_address
    return (ctypes.c_uint32 * (_WORDS + 1)).from_address(address)


# -- audit events


_deciding = threading.local()


def _hook(event: str, _: tuple[Any, ...]) -> None:
    watch = getattr(_deciding, "watched", None)
    if watch is not None:
        watch.heard(event)


@cache
def _listen() -> None:
    """Hears of audit events from now on: Python knows no end of that."""
    sys.addaudithook(_hook)
