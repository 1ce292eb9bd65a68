"""Passes of the controller's loop, counted where the process that started it looks.

Shared memory holds CLOCK_MONOTONIC at the last pass, the time so far for which
passes stood still, the time for which the loop's thread was ready and had no
processor, and the thread's number; times in ns.
"""

from __future__ import annotations

import os
import struct
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn

PASS_EVERY_S = 0.1
STILL_S = 0.3
"""The longest time between two passes of a controller that makes progress."""
_NUMBERS = struct.Struct("=QQQQ")


class LoopPass(NamedTuple):
    """The numbers of a pass."""

    at_ns: int
    stood_ns: int
    waited_ns: int
    thread: int

    def until(self, now_ns: int, waited_ns: int) -> int:
        """Standstill in ns until then; a wait for a processor is none."""
        between_ns = now_ns - self.at_ns
        if between_ns <= STILL_S * 1e9:
            return self.stood_ns
        idle_ns = between_ns - max(0, waited_ns - self.waited_ns)
        # A pause of this length lies between any two passes.
        still_ns = idle_ns - round(PASS_EVERY_S * 1e9)
        return self.stood_ns + max(0, still_ns)


def _waited_ns(thread: Path) -> int:
    try:
        # Its second number: ns for which the thread was ready to run and
        # waited for a processor.
        return int((thread / "schedstat").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def pass_for_ever(
    descriptor: int, sleep: Callable[[float], object]
) -> NoReturn:
    """Counts passes in a green thread: a loop that is blocked makes none."""
    loop = Path("/proc/thread-self")
    thread = threading.get_native_id()
    last = LoopPass(time.monotonic_ns(), 0, _waited_ns(loop), thread)
    while True:
        now_ns = time.monotonic_ns()
        waited_ns = _waited_ns(loop)
        stood_ns = last.until(now_ns, waited_ns)
        last = LoopPass(now_ns, stood_ns, waited_ns, thread)
        os.pwrite(descriptor, _NUMBERS.pack(*last), 0)
        sleep(PASS_EVERY_S)


class Passes:
    """The shared memory of a controller, as its parent reads it."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("controller-passes")
        weakref.finalize(self, os.close, self.descriptor)

    def last(self) -> LoopPass | None:
        """The last pass; None of a controller that counts none."""
        # Not mapped: a person's application could cut the file short.
        numbers = os.pread(self.descriptor, _NUMBERS.size, 0)
        if len(numbers) < _NUMBERS.size:
            return None
        return LoopPass(*_NUMBERS.unpack(numbers))

    def stood_s(self, pid: int) -> float | None:
        """Seconds of standstill of a process, with one that lasts until now."""
        last = self.last()
        if last is None:
            return None
        thread = Path(f"/proc/{pid}/task/{last.thread}")
        waited_ns = _waited_ns(thread)
        return last.until(time.monotonic_ns(), waited_ns) / 1e9
