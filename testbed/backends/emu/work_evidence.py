"""Processor time that computing VMs lacked, by their control groups' accounts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

USAGE_V1, USAGE_V2 = "cpuacct.usage", "cpu.stat"
THROTTLED_V1 = "throttled_time"
THROTTLED_V2 = "throttled_usec"
NS = 1e-9
US = 1e-6


class Claim(NamedTuple):
    """Processors that a control group uses whenever it gets them.

    ``group``: its folder in the hierarchy that counts processor time.
    """

    group: Path
    cpus: float


def used_s(group: Path) -> float | None:
    """Processor time of a control group so far; None: it is gone."""
    try:
        if (group / USAGE_V1).exists():
            return NS * int((group / USAGE_V1).read_text(encoding="ascii"))
        # Names and numbers in turn.
        stat = (group / USAGE_V2).read_text(encoding="ascii").split()
        return US * int(stat[stat.index("usage_usec") + 1])
    except (OSError, ValueError, IndexError):
        return None


def throttled_s(group: Path) -> float:
    """Time for which a VM's quota, or its node's, kept it from processors.

    ``group``: the VM's, in the hierarchy that shares out processors, below its
    node's. Both may hold it up at once: the longer one counts. 0 where nothing
    is counted, and where the group is gone.
    """
    return max(map(_throttled_s, (group, group.parent)))


def _throttled_s(group: Path) -> float:
    try:
        words = (group / "cpu.stat").read_text(encoding="ascii").split()
    except OSError:
        return 0.0
    for name, unit_s in ((THROTTLED_V1, NS), (THROTTLED_V2, US)):
        if name in words:
            return unit_s * int(words[words.index(name) + 1])
    return 0.0


class Work:
    """Processor time that a job's VMs lacked while they were looked at.

    What they catch up is no lack, and time in which they are paused is not
    looked at.
    """

    def __init__(self) -> None:
        self._last: dict[Claim, tuple[float, float]] = {}
        self._lack_s: dict[Claim, float] = {}
        self._looked_s: dict[Claim, float] = {}
        self.watched_s = 0.0

    def look(self, now_s: float, claims: Sequence[Claim]) -> None:
        """Takes in the claims of the VMs that have work to do now."""
        last = self._last
        self._last = {}
        longest_s = 0.0
        for claim in claims:
            now_used_s = used_s(claim.group)
            if now_used_s is None:
                continue
            self._last[claim] = (now_s, now_used_s)
            self._looked_s[claim] = now_s
            if claim not in last:
                continue
            at_s, before_s = last[claim]
            length_s = now_s - at_s
            # In time of the whole claim: half of it for a second is half a
            # second behind.
            got_s = (now_used_s - before_s) / claim.cpus
            earlier_s = self._lack_s.get(claim, 0.0)
            self._lack_s[claim] = earlier_s + length_s - got_s
            longest_s = max(longest_s, length_s)
        self.watched_s += longest_s

    def end(self, claim: Claim, at_s: float) -> None:
        """The work of a VM was done at an instant, as is known only now.

        A look after it saw a VM that used nothing, which was no lack.
        """
        after_s = self._looked_s.get(claim, at_s) - at_s
        if after_s > 0.0 and claim in self._lack_s:
            self._lack_s[claim] -= after_s

    def pause(self) -> None:
        """Its VMs do not run: the time until the next look is not theirs."""
        self._last = {}

    @property
    def lack_s(self) -> float:
        """The time that the VM which lacked most is behind."""
        return max(0.0, max(self._lack_s.values(), default=0.0))
