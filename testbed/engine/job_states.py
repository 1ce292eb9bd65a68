"""Arrivals and states of jobs in the engine."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from operator import attrgetter
from typing import Literal

from jobs.request import JobRequest, JobStream
from testbed.embedding.placement import Placement
from testbed.errors import RunFailed
from testbed.schedulers import actions as act

Phase = Literal["waiting", "reserved", "running", "preempted", "ended"]
"""A job's stage of life."""


class EventPriority(IntEnum):
    """Order of events at one instant."""

    END = 0
    FAILURE = 1
    START = 2
    ARRIVAL = 3
    WAKE = 4


@dataclass(slots=True)
class JobState:
    """A job inside the engine.

    ``visible`` is the request as policies may know it; ``order`` its place by
    arrival, from 1. ``last_placement`` is where a preempted job was, ``tier``
    where it runs or ran; ``epoch`` invalidates timers of an earlier plan;
    ``last_wait`` is the last wait reason; ``yields_to``: why its reservation was
    shortened, in words; ``asks_at_end``: the policy is asked before the job is
    killed at the end of its reservation.
    """

    request: JobRequest
    visible: JobRequest
    order: int = 0
    phase: Phase = "waiting"
    placement: Placement | None = None
    rate_bps: int = 0
    tier: act.Tier = "foreground"
    last_placement: Placement | None = None
    pending: act.Reserve | None = None
    epoch: int = 0
    last_wait: act.Wait | None = None
    yields_to: str | None = None
    asks_at_end: bool = False

    def placed(self) -> Placement:
        """The job's placement, or the one that it had when it was preempted."""
        place = self.placement or self.last_placement
        if place is None:
            raise RunFailed(f"job {self.request.id} has no place")
        return place


def visible_of(request: JobRequest) -> JobRequest:
    """The request as policies may know it: the truth behind its estimates stays
    hidden.
    """
    if request.demand.cpu_estimate is not None:
        request = replace(request, demand=request.demand.as_estimated())
    if request.true_duration_s is not None:
        request = replace(request, true_duration_s=None)
    return request


# ------------------------------------------------------------------------------------- arrivals


class Arrivals:
    """Jobs by time of submission, then by id; ``next`` is the first of them,
    None at the end.

    A job with ``after`` comes when the job of that name has left, and not before
    its own time. The jobs of a :class:`~jobs.request.JobStream` or an iterator are read
    one by one as the run proceeds, so that a million of them need no memory;
    any other jobs may be in any order.
    """

    def __init__(self, jobs: Iterable[JobRequest]) -> None:
        self.next: JobRequest | None = None
        self.followers: dict[str, list[JobRequest]] = {}
        # A heap of the followers whose predecessors have left.
        self._due: list[tuple[float, str, JobRequest]] = []
        if isinstance(jobs, JobStream | Iterator):
            self._ahead = _in_order(jobs)
        else:
            self._ahead = iter(self._sorted(list(jobs)))
        # The next of those that follow nobody.
        self._first = next(self._ahead, None)
        self._choose()

    def before(self, at_s: float, priority: int, key: str) -> bool:
        """True if ``next`` comes before something else that is due."""
        job = self.next
        if job is None:
            return False
        return (job.submit_s, int(EventPriority.ARRIVAL), job.id) < (
            at_s,
            priority,
            key,
        )

    def step(self) -> None:
        """Replaces ``next``, which has arrived, by its successor."""
        # The usual case of a log: nobody follows anybody.
        if not self._due:
            self.next = self._first = next(self._ahead, None)
            return
        if self.next is self._first:
            self._first = next(self._ahead, None)
        else:
            heapq.heappop(self._due)
        self._choose()

    def after(self, job_id: str, now_s: float) -> None:
        """Lets the followers of a job that has left come."""
        for job in self.followers.pop(job_id, ()):
            # Not before its own time, not before its predecessor has left.
            at_s = max(now_s, job.submit_s)
            heapq.heappush(
                self._due, (at_s, job.id, replace(job, submit_s=at_s))
            )
        self._choose()

    def _choose(self) -> None:
        first = self._first
        if self._due:
            at_s, job_id, job = self._due[0]
            if first is None or (at_s, job_id) < (first.submit_s, first.id):
                first = job
        self.next = first

    def _sorted(self, jobs: list[JobRequest]) -> list[JobRequest]:
        """Jobs without a predecessor, in order; the others are set aside."""
        known = {job.id for job in jobs}
        free = []
        for job in jobs:
            if job.after is None:
                free.append(job)
            elif job.after in known:
                self.followers.setdefault(job.after, []).append(job)
            else:
                raise ValueError(
                    f"job {job.id} follows {job.after!r}, which is not in the workload"
                )
        return sorted(free, key=lambda job: (job.submit_s, job.id))


def _in_order(jobs: Iterable[JobRequest]) -> Iterator[JobRequest]:
    """Jobs, those of one instant sorted by id. Raises ValueError for one that is
    out of order, or has ``after``.
    """
    by_id = attrgetter("id")
    same_time: list[JobRequest] = []
    for job in jobs:
        if same_time and job.submit_s != same_time[0].submit_s:
            if job.submit_s < same_time[0].submit_s:
                raise ValueError(
                    f"job {job.id} of a stream is out of order"
                )
            if len(same_time) > 1:
                same_time.sort(key=by_id)
            yield from same_time
            same_time.clear()
        if job.after is not None:
            raise ValueError(f"job {job.id} of a stream waits for another")
        same_time.append(job)
    same_time.sort(key=by_id)
    yield from same_time
