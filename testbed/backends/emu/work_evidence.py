"""Processor time that computing VMs lacked, as their control groups count it.

Files of both versions of control groups are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from testbed.backends.emu.cgroups import counts

# The files with the processor time used so far: in version 1 a number of
# nanoseconds; in version 2 lines of names and numbers, in microseconds.
USAGE_V1 = "cpuacct.usage"
STAT = "cpu.stat"
# Names in cpu.stat, which version 1 has for throttling alone.
USAGE_V2 = "usage_usec"
THROTTLED_V1 = "throttled_time"
THROTTLED_V2 = "throttled_usec"
NS = 1e-9
US = 1e-6


class Claim(NamedTuple):
    """Number of processors that a control group uses whenever it gets them.

    ``group``: its folder in the hierarchy that counts processor time.
    """

    group: Path
    cpus: float


def used_s(group: Path) -> float | None:
    """Processor time of a control group so far; None for one that is gone."""
    with suppress(OSError, ValueError):
        return NS * int((group / USAGE_V1).read_text(encoding="ascii"))
    with suppress(KeyError, ValueError):
        return US * counts(group / STAT)[USAGE_V2]
    return None


def throttled_s(group: Path) -> float:
    """Time for which a VM's quota, or its node's, kept it from processors.

    ``group``: the VM's folder in the hierarchy that shares out processors; its
    node's is the parent. Both quotas may hold the VM up at once, so the longer
    time counts. 0 where nothing is counted, and for a group that is gone.
    """
    return max(_throttled_s(group), _throttled_s(group.parent))


def _throttled_s(group: Path) -> float:
    """Time for which the quota of this control group held it up."""
    stat = counts(group / STAT)
    if THROTTLED_V1 in stat:
        return NS * stat[THROTTLED_V1]
    return US * stat.get(THROTTLED_V2, 0)


class Work:
    """Processor time that a job's VMs lacked while they were looked at.

    Time that a VM makes up later is not lacking. The time in which the VMs are
    paused does not count.
    """

    def __init__(self) -> None:
        # Claim -> time of the last look, and processor time used until then.
        # Empty after a pause.
        self._last: dict[Claim, tuple[float, float]] = {}
        # Negative for a VM that got more than its claim.
        self._lack_s: dict[Claim, float] = {}
        self._looked_s: dict[Claim, float] = {}
        self.watched_s = 0.0

    def look(self, now_s: float, claims: Sequence[Claim]) -> None:
        """Adds what the VMs with these claims lacked since the last look.

        ``claims``: those of the VMs that have work to do now.
        """
        last = self._last
        self._last = {}
        longest_s = 0.0
        # Background VMs of one node have one claim: it lacks the time once.
        for claim in dict.fromkeys(claims):
            now_used_s = used_s(claim.group)
            if now_used_s is None:
                continue
            self._last[claim] = (now_s, now_used_s)
            self._looked_s[claim] = now_s
            if claim not in last:
                continue
            last_s, last_used_s = last[claim]
            length_s = now_s - last_s
            # In seconds of the job: a VM that gets half of its claim for a
            # second is half a second behind.
            got_s = (now_used_s - last_used_s) / claim.cpus
            earlier_s = self._lack_s.get(claim, 0.0)
            self._lack_s[claim] = earlier_s + length_s - got_s
            longest_s = max(longest_s, length_s)
        self.watched_s += longest_s

    def end(self, claim: Claim, at_s: float) -> None:
        """Records that a VM's work was done at an instant that has passed.

        Looks after that instant saw a VM that used nothing. What they added is
        taken back.
        """
        after_s = self._looked_s.get(claim, at_s) - at_s
        if after_s > 0.0 and claim in self._lack_s:
            self._lack_s[claim] -= after_s

    def pause(self) -> None:
        """Leaves the time until the next look out: the VMs do not run in it."""
        self._last = {}

    @property
    def lack_s(self) -> float:
        """Time by which the VM that lacked most is behind."""
        return max([0.0, *self._lack_s.values()])
