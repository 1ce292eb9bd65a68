"""Standstill of the controller's loop, recorded where its parent process looks.

Shared memory holds CLOCK_MONOTONIC at the last pass of the loop, how long passes
stood still so far, how long the loop's thread was ready and had no processor
(all in ns), and the thread's number.
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

    def stood_until(self, now_ns: int, waited_ns: int) -> int:
        """Standstill in ns up to ``now_ns``, without waits for a processor.

        ``waited_ns``: as of the thread now.
        """
        between_ns = now_ns - self.at_ns
        if between_ns <= STILL_S * 1e9:
            return self.stood_ns
        idle_ns = between_ns - max(0, waited_ns - self.waited_ns)
        # A pause of this length lies between any two passes.
        still_ns = idle_ns - round(PASS_EVERY_S * 1e9)
        return self.stood_ns + max(0, still_ns)


def _waited_ns(folder: Path) -> int:
    try:
        # The second number: ns for which the thread was ready to run and waited
        # for a processor.
        return int((folder / "schedstat").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def pass_for_ever(
    descriptor: int, sleep: Callable[[float], object]
) -> NoReturn:
    """Records passes from a green thread, which a blocked loop does not run."""
    folder = Path("/proc/thread-self")
    thread = threading.get_native_id()
    last = LoopPass(
        time.monotonic_ns(),
        stood_ns=0,
        waited_ns=_waited_ns(folder),
        thread=thread,
    )
    while True:
        now_ns = time.monotonic_ns()
        waited_ns = _waited_ns(folder)
        stood_ns = last.stood_until(now_ns, waited_ns)
        last = LoopPass(now_ns, stood_ns, waited_ns, thread)
        os.pwrite(descriptor, _NUMBERS.pack(*last), 0)
        sleep(PASS_EVERY_S)


class Passes:
    """The shared memory of a controller, as its parent reads it."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("controller-passes")
        weakref.finalize(self, os.close, self.descriptor)

    def last(self) -> LoopPass | None:
        """The last pass; None before the first."""
        # Not mapped: a user's application that cuts the file short would end
        # this process (SIGBUS).
        numbers = os.pread(self.descriptor, _NUMBERS.size, 0)
        if len(numbers) < _NUMBERS.size:
            return None
        return LoopPass(*_NUMBERS.unpack(numbers))

    def stood_s(self, pid: int) -> float | None:
        """Seconds for which a process has stood still until now; None before its
        first pass.
        """
        last = self.last()
        if last is None:
            return None
        folder = Path(f"/proc/{pid}/task/{last.thread}")
        waited_ns = _waited_ns(folder)
        return last.stood_until(time.monotonic_ns(), waited_ns) / 1e9
