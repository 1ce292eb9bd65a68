"""Job states inside the engine, and the read-only view of them that policies decide from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

from jobs.request import JobRequest
from testbed.embedding.placement import Placement, Residual
from testbed.errors import RunFailed
from testbed.reservation.ledger import Ledger
from testbed.schedulers import actions as act
from topologies.datacentre import DataCentre

if TYPE_CHECKING:
    from testbed.engine.engine import Engine

Phase = Literal["waiting", "reserved", "running", "preempted", "ended"]
"""Phase of a job's life."""


class EventPriority(IntEnum):
    """Order of events at one instant."""

    END = 0
    START = 1
    ARRIVAL = 2
    WAKE = 3


@dataclass(slots=True)
class JobState:
    """A job inside the engine.

    ``visible`` is the request as policies may know it; ``order`` its place by arrival, from 1.
    ``left`` is where a preempted job was, ``tier`` where it runs or ran; ``epoch`` invalidates
    timers of an earlier plan; ``last_wait`` is the last wait reason that was recorded; ``yields``
    the reason for which it gives its nodes back early.
    """

    request: JobRequest
    visible: JobRequest
    order: int = 0
    phase: Phase = "waiting"
    placement: Placement | None = None
    rate_bps: int = 0
    tier: act.Tier = "foreground"
    left: Placement | None = None
    pending: act.Reserve | None = None
    epoch: int = 0
    last_wait: act.Wait | None = None
    yields: str | None = None

    def placed(self) -> Placement:
        """Where the job is, or was when it was preempted."""
        place = self.placement or self.left
        if place is None:
            raise RunFailed(f"job {self.request.id} has no place")
        return place


def visible_of(request: JobRequest) -> JobRequest:
    """The request as policies may know it: the truth behind its estimates stays hidden."""
    if request.demand.cpu_estimate is not None:
        request = replace(request, demand=request.demand.as_estimated())
    if request.true_duration_s is not None:
        request = replace(request, true_duration_s=None)
    return request


class EngineView:
    """The window that a policy decides from: see :class:`testbed.schedulers.policy.View`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._jobs = engine.jobs
        self.datacentre: DataCentre = engine.datacentre
        self.listening = engine.listening
        # Kept by the engine: nothing is looked at as often.
        self.now_s = engine.now_s

    def job(self, job_id: str) -> JobRequest:
        """The request as policies may know it: the true duration stays hidden."""
        return self._jobs[job_id].visible

    def waiting(self) -> tuple[str, ...]:
        return self._engine.waiting_by_arrival()

    def running(self) -> tuple[str, ...]:
        return tuple(self._engine.running)

    def placement(self, job_id: str) -> Placement | None:
        return self._jobs[job_id].placement

    def left(self, job_id: str) -> Placement | None:
        return self._jobs[job_id].left

    def tier(self, job_id: str) -> act.Tier:
        return self._jobs[job_id].tier

    def order(self, job_id: str) -> int:
        return self._jobs[job_id].order

    @property
    def largest_bps(self) -> int:
        return self._engine.largest_bps

    def residual(
        self, start_s: float, end_s: float | None, tier: act.Tier = "foreground"
    ) -> Residual:
        return self._engine.reservations.residual(start_s, end_s, tier)

    @property
    def ledger(self) -> Ledger:
        return self._engine.reservations.foreground
