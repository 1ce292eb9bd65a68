"""Load of the host while a virtual machine is measured: what others took of its processors.

A guest cannot see it: under software emulation a processor that somebody else has looks like a slow
one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

EVERY_S = 2.0
OTHERS_MAX = 0.10
"""Share of all processors that others may have at a time. The machine has as many processors as the
host, so what others take is taken from it: a fifth of one of two, which makes transfers late."""
STEAL_MAX = 0.02
"""Share that a hypervisor may take: as wide as the `datapath` step's band, whose rates it moves."""
BUSY_MAX_S = 30.0
"""Time over these limits in all. A figure is a median of three runs, which one disturbed run leaves
as it is; the shortest of those takes half a minute."""


@dataclass(frozen=True)
class Counters:
    """Processor time since the boot, in ticks of all processors together."""

    total: int
    busy: int
    steal: int
    own: int


@dataclass(frozen=True)
class Interval:
    seconds: float
    others: float
    steal: float

    @property
    def busy(self) -> bool:
        return self.others > OTHERS_MAX or self.steal > STEAL_MAX


@dataclass(frozen=True)
class HostLoad:
    """A summary of all intervals; of those that were busy the mean share that others had."""

    watched_s: float
    busy_s: float
    others_share: float
    others_when_busy: float
    steal_share: float
    load: float

    @property
    def believable(self) -> bool:
        return self.watched_s > 0 and self.busy_s <= BUSY_MAX_S

    def sentence(self) -> str:
        if self.watched_s == 0:
            return "host was not watched; what was measured is not to be believed"
        if self.believable:
            shares = f"others {self.others_share:.0%} of its processors, steal {self.steal_share:.1%}"  # noqa: E501
            return f"host was quiet: {shares}, busy for {self.busy_s:.0f} s"
        return (
            f"host was busy: others used {self.others_when_busy:.0%} of its processors for "
            f"{self.busy_s:.0f} s (steal {self.steal_share:.1%}); what was measured is not to be "
            f"believed (allowed: over {OTHERS_MAX:.0%} for {BUSY_MAX_S:.0f} s in all)"
        )

    def record(self) -> dict[str, float | bool]:
        return {**asdict(self), "believable": self.believable}


def interval(before: Counters, after: Counters, seconds: float) -> Interval:
    total = max(1, after.total - before.total)
    others = (after.busy - before.busy) - (after.own - before.own)
    return Interval(
        seconds,
        max(0, others) / total,
        (after.steal - before.steal) / total,
    )


def summary(intervals: Sequence[Interval], load: float) -> HostLoad:
    watched_s = sum(one.seconds for one in intervals)
    busy = [one for one in intervals if one.busy]
    return HostLoad(
        watched_s=round(watched_s, 1),
        busy_s=round(sum(one.seconds for one in busy), 1),
        others_share=_mean(intervals, lambda one: one.others),
        others_when_busy=_mean(busy, lambda one: one.others),
        steal_share=_mean(intervals, lambda one: one.steal),
        load=round(load, 2),
    )


def _mean(
    intervals: Sequence[Interval], value: Callable[[Interval], float]
) -> float:
    seconds = sum(one.seconds for one in intervals)
    whole = sum(value(one) * one.seconds for one in intervals)
    return round(whole / seconds, 4) if seconds else 0.0


# --------------------------------------------------------------------------------------- /proc


def counters(pid: int, proc: Path = Path("/proc")) -> Counters:
    """Raises OSError when the process has gone."""
    # user nice system idle iowait irq softirq steal; guests' time is in user and nice.
    ticks = [
        int(one)
        for one in (proc / "stat").read_text().split("\n")[0].split()[1:9]
    ]
    idle, steal = ticks[3] + ticks[4], ticks[7]
    # After the command's name, which may have blanks: state is field 3, utime 14, stime 15.
    fields = (
        (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    )
    own = int(fields[11]) + int(fields[12])
    return Counters(sum(ticks), sum(ticks) - idle - steal, steal, own)


class HostWatch:
    """Samples the host until stopped, in a thread of its own."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stopped = threading.Event()
        self._intervals: list[Interval] = []
        self._loads: list[float] = []
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> HostLoad:
        self._stopped.set()
        self._thread.join(timeout=10)
        return summary(
            self._intervals, sum(self._loads) / max(1, len(self._loads))
        )

    def _watch(self) -> None:
        try:
            before, then_s = counters(self._pid), time.monotonic()
            while not self._stopped.wait(EVERY_S):
                after, now_s = counters(self._pid), time.monotonic()
                self._intervals.append(
                    interval(before, after, now_s - then_s)
                )
                self._loads.append(os.getloadavg()[0])
                before, then_s = after, now_s
        except OSError:
            return  # the machine has ended
