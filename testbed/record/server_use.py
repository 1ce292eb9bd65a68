"""VM slots of servers over time, by job and CPU tier, from a run's events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from testbed import events
from testbed.record.job_lives import JobLife, Links

UseEnd = Literal["ended", "preempted", "moved", "tier", "failed", "open"]
"""The reason why a job leaves a server's slots. ``tier``: it stays there in
another tier; ``open``: it is there at the last event.
"""
_ENDS: dict[type[events.Event], UseEnd] = {
    events.JobEnded: "ended",
    events.JobPreempted: "preempted",
    events.JobMigrated: "moved",
    events.JobTierSwitched: "tier",
    events.JobRequeued: "failed",
}


class ServerUse(NamedTuple):
    """Slots of one server that a job's VMs take without a break."""

    job_id: str
    server: int
    n_slots: int
    tier: str
    start_s: float
    end_s: float
    end: UseEnd


class _Placed(NamedTuple):
    """VMs of a running job: since when, where, in which tier."""

    since_s: float
    vms_on: Links
    tier: str
    cores: int


class ServerUses:
    """Follows jobs' lives event by event, each in O(1)."""

    def __init__(self) -> None:
        self._closed: list[tuple[str, _Placed, float, UseEnd]] = []
        self._placed: dict[str, _Placed] = {}

    def follow(
        self, now_s: float, kind: type[events.Event], life: JobLife
    ) -> None:
        """Takes in a job's life as of after an event of that kind."""
        placed = self._placed.get(life.job_id)
        holds = life.hold is not None
        same = (
            holds
            and placed is not None
            and placed.vms_on == life.vms_on
            and placed.tier == life.tier
        )
        # Most of a job's events move no VM.
        if same:
            return
        if placed is not None:
            del self._placed[life.job_id]
            end = _ENDS.get(kind, "ended")
            self._closed.append((life.job_id, placed, now_s, end))
        if holds:
            cores = int(life.request.get("cores", 1))
            self._placed[life.job_id] = _Placed(
                now_s, life.vms_on, life.tier, cores
            )

    def until(self, now_s: float) -> list[ServerUse]:
        """All uses so far; those that are still open end at ``now_s``."""
        uses: list[ServerUse] = []
        for closed in self._closed:
            uses += _uses(*closed)
        for job_id, placed in self._placed.items():
            uses += _uses(job_id, placed, now_s, "open")
        return uses


def _uses(
    job_id: str, placed: _Placed, end_s: float, end: UseEnd
) -> Iterable[ServerUse]:
    # A job that leaves at the instant at which it came would be a bar
    # without a width.
    if end_s <= placed.since_s:
        return
    for server, n_vms in placed.vms_on:
        yield ServerUse(
            job_id=job_id,
            server=server,
            n_slots=n_vms * placed.cores,
            tier=placed.tier,
            start_s=placed.since_s,
            end_s=end_s,
            end=end,
        )
