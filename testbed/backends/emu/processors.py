"""How much of the processors was to be had: idle, or used by those who give way to everybody.

A process of the scheduling class ``SCHED_IDLE`` runs only where nothing else of its group wants to;
the kernel counts its time as used all the same (docs/decisions/0234).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

PROC = Path("/proc")
AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Use:
    """Shares of all processors since the sample before: to be had, and stolen by a hypervisor."""

    idle: float
    steal: float

    @property
    def busy(self) -> float:
        return 1.0 - self.idle


class Processors:
    """Samples; each covers the time since the one before, the first since this was made."""

    def __init__(self) -> None:
        psutil.cpu_times_percent(interval=None)
        self._at = time.monotonic()
        self._giving_way = giving_way_s()

    def sample(self) -> Use:
        """What happened since the last one. Some milliseconds of work."""
        cpu = psutil.cpu_times_percent(interval=None)
        at, now = time.monotonic(), giving_way_s()
        spent_s = gained_s(self._giving_way, now)
        have_s = max(1e-9, (at - self._at) * (os.cpu_count() or 1))
        self._at, self._giving_way = at, now
        idle = (cpu.idle + cpu.iowait) / 100 + spent_s / have_s
        return Use(min(1.0, idle), getattr(cpu, "steal", 0.0) / 100)


class Waiting:
    """How long one thread, the first of a process, was ready to run and had no processor.

    Waiting for a quota to be filled up again counts: the thread is ready all the while.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._at = time.monotonic()
        self._waited_s = waited_s(pid)

    def sample(self) -> float | None:
        """As a share of the time since the last one; None where the kernel does not tell."""
        at, now_s = time.monotonic(), waited_s(self._pid)
        before_s, began = self._waited_s, self._at
        self._at, self._waited_s = at, now_s
        if now_s is None or before_s is None:
            return None
        return min(1.0, (now_s - before_s) / max(1e-9, at - began))


def waited_s(pid: int) -> float | None:
    """Since it began, in s (the second of the three numbers of ``/proc/PID/schedstat``)."""
    try:
        _, waited_ns, _ = (PROC / str(pid) / "schedstat").read_text().split()
    except (OSError, ValueError):
        return None
    return int(waited_ns) / 1e9


def giving_way_s() -> dict[int, float]:
    """Processor time of every process that gives way to this one, in s, by its number.

    The class counts where processes compete as such: within this one's control group, and in those
    above it, where they meet the group that it is in. Other groups get their share whatever is in
    them; with the kernel's autogroup (Debian's default) every session is one.
    """
    if _sessions_compete():
        return {}
    ours = _cpu_group(PROC / "self")
    found = {}
    for folder in PROC.iterdir():
        if folder.name.isdecimal():
            pid = int(folder.name)
            try:
                idle_class = os.sched_getscheduler(pid) == os.SCHED_IDLE
                if idle_class and competes(_cpu_group(folder), ours):
                    found[pid] = _processor_s((folder / "stat").read_text())
            except (OSError, ValueError, IndexError):
                continue  # it has ended meanwhile
    return found


def competes(theirs: str, ours: str) -> bool:
    """Whether a process of one control group competes as such, by its class, with another group:
    the same one, or one below.
    """
    return ours == theirs or ours.startswith(theirs.rstrip("/") + "/")


def _sessions_compete() -> bool:
    try:
        return AUTOGROUP.read_text().strip() != "0"
    except FileNotFoundError:
        return False


def _cpu_group(process: Path) -> str:
    """The control group that its processor time is shared out in."""
    unified = ""
    for line in (process / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return path
        if not controllers:
            unified = path
    return unified


def _processor_s(stat: str) -> float:
    """Utime and stime of ``/proc/PID/stat``, whose second field may hold blanks and brackets."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def gained_s(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """What those have spent who were there both times; who came or went meanwhile counts for
    nothing, so that nothing is taken for idle that was not.
    """
    return sum(max(0.0, now - before[pid]) for pid, now in after.items() if pid in before)
