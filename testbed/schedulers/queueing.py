"""FCFS, SBF and SDF: one queue in some order, whose head everybody waits for (Li et al. 2018).

The order is by arrival, by bandwidth or by duration. Whoever stands first is embedded or blocks
all others; with ``skip`` those behind it are tried as well, which is another policy
(docs/decisions/0413).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from jobs.request import JobRequest
from testbed.embedding.base import Embedder
from testbed.schedulers.actions import Action, Arrived, Ended, PolicyEvent
from testbed.schedulers.admission import Admission
from testbed.schedulers.planning import Pass, Refused
from testbed.schedulers.policy import PolicyKind, View, parameter

Rank = Callable[[JobRequest], float]
"""What a queue is sorted by, smallest first; equal ones by arrival."""


def by_arrival(_: JobRequest) -> float:
    """FCFS: the queue as it is."""
    return 0.0


def by_bandwidth(job: JobRequest) -> float:
    """SBF: the smallest bandwidth demand first."""
    return job.bandwidth_bps


def by_duration(job: JobRequest) -> float:
    """SDF: the shortest running time at the bandwidth asked for first (es of the paper)."""
    return job.duration_s


class Queueing:
    """Starts jobs with all they ask for, in the order of ``rank``; see the module."""

    def __init__(self, name: str, embedder: Embedder, rank: Rank, *, skip: bool = False) -> None:
        self.name = name
        self._embedder = embedder
        self._rank = rank
        self._skip = skip
        self._admission = Admission(embedder)
        self._refused = Refused()

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if isinstance(event, Ended) and event.more_at_this_time:
            return []
        if isinstance(event, Arrived):
            rejected = self._admission.refuse(view, view.job(event.job_id))
            if rejected is not None:
                return [rejected]
        return self._pass(view, event)

    def _pass(self, view: View, event: PolicyEvent) -> list[Action]:
        fresh = event.job_id if isinstance(event, Arrived) else None
        plan = Pass(view, self._embedder, self._refused)
        head: JobRequest | None = None
        for job in self._queue(view):
            refusal = plan.try_to_start(job)
            if refusal is not None and not plan.place_alone(job):
                if head is None or job.id == fresh:
                    plan.wait(job, refusal.reason)
                head = head or job
            if job.id == fresh:
                fresh = None
            if head is not None and not self._skip:
                break
        if head is not None and fresh is not None:
            plan.wait(view.job(fresh), f"behind {head.id}, which waits", (head.id,))
        return plan.actions

    def _queue(self, view: View) -> Iterable[JobRequest]:
        """The waiting jobs in order, each looked up when it is its turn."""
        jobs = map(view.job, view.waiting())
        return jobs if self._rank is by_arrival else sorted(jobs, key=self._rank)


@dataclass(frozen=True)
class SortedQueueParameters:
    skip: bool = parameter(default=False, help="tries those behind one that does not fit")


def _sorted(name: str, summary: str, rank: Rank) -> PolicyKind:
    return PolicyKind(
        name,
        summary,
        lambda embedder, given: Queueing(name, embedder, rank, skip=given.skip),
        SortedQueueParameters,
        embeds=True,
        claims=("no-preemption",),
    )


POLICIES = (
    PolicyKind(
        "fcfs",
        "a queue in order of arrival; the first waits until it fits, all others wait",
        lambda embedder, _: Queueing("fcfs", embedder, by_arrival),
        embeds=True,
        claims=("in-order-of-arrival", "no-preemption"),
    ),
    _sorted("sbf", "as fcfs, the smallest bandwidth first", by_bandwidth),
    _sorted("sdf", "as fcfs, the shortest first", by_duration),
)
