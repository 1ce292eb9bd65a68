"""The VMs of every node as CMCBF sees them: who is in front, who behind, how busy each makes it."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.schedulers.slots import Slots


class Tier:
    """One VM on every slot: ``who[k]`` is the job on slot ``k``, ``use[k]`` its CPU use there."""

    def __init__(self, n_slots: int) -> None:
        self.who: list[str | None] = [None] * n_slots
        self.use = [0.0] * n_slots
        self.idle = n_slots

    def take(self, job_id: str, at: Sequence[int], use: Sequence[float]) -> None:
        for slot, share in zip(at, use, strict=True):
            self.who[slot], self.use[slot] = job_id, share
        self.idle -= len(at)

    def give_back(self, at: Sequence[int]) -> None:
        for slot in at:
            self.who[slot], self.use[slot] = None, 0.0
        self.idle += len(at)


class TwoTiers:
    """Both tiers; a background VM may run where the foreground uses less than ``threshold``."""

    def __init__(self, slots: Slots, threshold: float) -> None:
        self.slots = slots
        self.threshold = threshold
        self.front = Tier(slots.total)
        self.behind = Tier(slots.total)

    def idle_in_front(self) -> list[int]:
        """Idle foreground VMs, those with the least load behind them first."""
        who, load = self.front.who, self.behind.use
        idle = [slot for slot, job_id in enumerate(who) if job_id is None]
        idle.sort(key=load.__getitem__)
        return idle

    def open_behind(self) -> list[int]:
        """Idle background VMs that may run, those with the least load in front first."""
        load, limit = self.front.use, self.threshold
        idle = [
            slot
            for slot, job_id in enumerate(self.behind.who)
            if job_id is None and load[slot] < limit
        ]
        idle.sort(key=load.__getitem__)
        return idle

    @staticmethod
    def match(use: Sequence[float], nodes: Sequence[int]) -> list[int]:
        """The busiest process onto the least loaded of ``nodes``, and so on: its slot of each."""
        at = [0] * len(use)
        busiest = sorted(range(len(use)), key=lambda p: -use[p])
        for process, slot in zip(busiest, nodes, strict=False):
            at[process] = slot
        return at
