"""Progress of a process by the kernel's account of it: ``schedstat`` and state."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import NamedTuple

STANDSTILL_S = 0.15
"""The shortest time without progress that counts."""
RUNNING = 0.01
"""A process works if it ran, or waited to run, for more than this share of a
time.
"""
READY = "R"
"""State of a process that runs, or waits for a processor."""
STOPPED = frozenset("Tt")
"""States of a process that a signal, or a tracer, has stopped."""
PROC = Path("/proc")


class Spent(NamedTuple):
    """A process's time on a processor and its waits for one, so far, and its state."""

    run_s: float
    waited_s: float
    state: str


def spent(pid: int) -> Spent | None:
    """Time of a process's first thread; None where it is gone."""
    # schedstat: ns on a processor, ns ready without one, and time slices. The
    # state follows the name, which may hold parentheses itself, and bytes that
    # are no text.
    try:
        run, waited, _ = (PROC / str(pid) / "schedstat").read_text().split()
        stat = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2]
    except (OSError, ValueError):
        return None
    state = stat.split()[0].decode()
    return Spent(int(run) / 1e9, int(waited) / 1e9, state)


class PendingWork(NamedTuple):
    """Work that waits for a process that makes no progress.

    ``least_s``: the shortest time without progress that counts, as in a shorter
    one the process may wait for its next piece of work; ``running``: the least
    share of its time for which the work keeps it running.
    """

    least_s: float = STANDSTILL_S
    running: float = RUNNING


class Progress:
    """Standstills of a process.

    ``waited_s``: how long it waited for a processor between looks, in all.
    ``progressed_s``: the last look at which it had made progress; infinite for
    one that is gone.
    """

    def __init__(
        self, pid: int, read: Callable[[int], Spent | None] = spent
    ) -> None:
        self._pid = pid
        self._read = read
        self._last: tuple[float, Spent] | None = None
        self._still_s = 0.0
        self.waited_s = 0.0
        self.progressed_s = inf

    def look(self, now_s: float, work: PendingWork | None = None) -> float:
        """Seconds of standstill to add since the last look.

        ``work``: None where the process may have nothing to do; if it is
        stopped, it stands still all the same.
        """
        now = self._read(self._pid)
        last = self._last
        self._last = None
        # Later than any time: what has ended does not stand still.
        if now is None:
            self.progressed_s = inf
            return 0.0
        self._last = (now_s, now)
        if last is None:
            self.progressed_s = now_s
            return 0.0
        at_s, before = last
        length_s = now_s - at_s
        self.waited_s += now.waited_s - before.waited_s
        used_s = now.run_s - before.run_s + now.waited_s - before.waited_s
        # The kernel adds a wait when the wait is over: until then the state
        # tells of it.
        is_ready = now.state == READY
        if used_s > 0.0 or is_ready:
            self.progressed_s = now_s
        # Stopped at either end of the time: for some of it at least.
        stopped = not STOPPED.isdisjoint((now.state, before.state))
        wanted = work or PendingWork()
        has_gone_on = is_ready or used_s > wanted.running * length_s
        if has_gone_on or (work is None and not stopped):
            self._still_s = 0.0
            return 0.0
        return self._stood(length_s, wanted.least_s)

    def _stood(self, length_s: float, least_s: float) -> float:
        """Adds a time without progress; returns the seconds of it that count.

        None count before the standstill has lasted ``least_s``; then all of
        it does.
        """
        was_counted = self._still_s >= least_s
        self._still_s += length_s
        if self._still_s < least_s:
            return 0.0
        if was_counted:
            return length_s
        return self._still_s
