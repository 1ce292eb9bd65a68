"""Where each job is in its life, as the engine keeps it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

from jobs.request import JobRequest
from testbed.embedding.placement import Placement
from testbed.errors import RunFailed
from testbed.schedulers import actions as act

Phase = Literal["waiting", "reserved", "running", "preempted", "ended"]
"""Where a job is in its life."""


class Rank(IntEnum):
    """Order at one instant (NOTES, "Time order")."""

    END = 0
    START = 1
    ARRIVAL = 2
    WAKE = 3


@dataclass(slots=True)
class JobState:
    """A job inside the engine.

    ``visible`` is the request as policies may know it; ``order`` its place by arrival, from 1.
    ``left`` is where a preempted job was, ``tier`` where it runs or ran; ``epoch`` invalidates
    timers of an earlier plan; ``said`` is the last word on why it waits; ``yields`` says for whom
    it gives its nodes back early.
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
    said: act.Wait | None = None
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
