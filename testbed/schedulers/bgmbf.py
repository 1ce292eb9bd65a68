"""BgMBF and BgMBF-SDF: backfilling with bandwidth guarantees and preemption (Li et al., 2018).

Algorithm 2. Jobs start in order of arrival while they fit. The first that does not is the *head*.
If it would fit without the jobs that arrived after it, they are suspended and it starts; otherwise
jobs behind it are backfilled into what is free, in order of arrival or, in BgMBF-SDF, the shortest
first. Whoever is suspended keeps its progress and its place by arrival. Readings:
docs/decisions/0413.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from jobs.request import JobRequest
from testbed.embedding.base import Embedder
from testbed.embedding.placement import Placement, Refusal
from testbed.schedulers.actions import Action, Arrived, Ended, PolicyEvent
from testbed.schedulers.admission import Admission
from testbed.schedulers.planning import Pass, Refused
from testbed.schedulers.policy import PolicyKind, View, parameter

Evict = Literal["all", "needed"]
"""Whom a head evicts: every backfilled job, as printed, or as few as it takes."""

EVICT: tuple[Evict, ...] = get_args(Evict)


class BgMBF:
    """See the module. ``cost_s`` is how long a suspended job takes to be restored."""

    def __init__(
        self,
        embedder: Embedder,
        *,
        shortest_first: bool = False,
        evict: Evict = "all",
        cost_s: float = 0.0,
    ) -> None:
        self.name = "bgmbf-sdf" if shortest_first else "bgmbf"
        self._embedder = embedder
        self._shortest_first = shortest_first
        self._evict = evict
        self._cost_s = cost_s
        self._admission = Admission(embedder)
        self._refused = Refused()

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if isinstance(event, Ended) and event.more_at_this_time:
            return []
        if isinstance(event, Arrived):
            rejected = self._admission.refuse(view, view.job(event.job_id))
            if rejected is not None:
                return [rejected]
        plan = Pass(view, self._embedder, self._refused, self._cost_s)
        queue = {job_id: view.job(job_id) for job_id in view.waiting()}
        head = self._start_heads(plan, queue)
        if head is not None:
            self._backfill(plan, queue, head, event)
        return plan.actions

    def _start_heads(self, plan: Pass, queue: dict[str, JobRequest]) -> JobRequest | None:
        """Start whoever stands first, again and again; the first that has to wait."""
        while queue:
            head = min(queue.values(), key=lambda job: plan.view.order(job.id))
            refusal = plan.try_to_start(head)
            if refusal is not None and not plan.place_alone(head):
                evicted = self._start_by_force(plan, head)
                if not evicted:
                    plan.wait(head, refusal.reason)
                    return head
                queue.update((job.id, job) for job in evicted)
            del queue[head.id]
        return None

    def _start_by_force(self, plan: Pass, head: JobRequest) -> list[JobRequest]:
        """Lines 12-20: start the head in the place of jobs that arrived later; those evicted."""
        later = plan.backfilled(head)
        if not later:
            return []
        whom, answer = self._victims(plan, head, later)
        if isinstance(answer, Refusal):
            return []
        for job in whom:
            plan.evict(job, f"{head.id} stands first and needs its place")
        plan.start(head, answer)
        return whom

    def _victims(
        self, plan: Pass, head: JobRequest, later: list[JobRequest]
    ) -> tuple[list[JobRequest], Placement | Refusal]:
        answer = plan.without(later).fit(head)
        if self._evict == "all" or isinstance(answer, Refusal):
            return later, answer
        # The latest first, as many as it takes; then spare those that turn out not to be needed.
        whom = later
        for first in range(len(later) - 1, -1, -1):
            fewer = plan.without(later[first:]).fit(head)
            if not isinstance(fewer, Refusal):
                whom, answer = later[first:], fewer
                break
        for job in list(whom):
            others = [each for each in whom if each is not job]
            fewer = plan.without(others).fit(head)
            if others and not isinstance(fewer, Refusal):
                whom, answer = others, fewer
        return whom, answer

    def _backfill(
        self, plan: Pass, queue: dict[str, JobRequest], head: JobRequest, event: PolicyEvent
    ) -> None:
        """Lines 5-9 for everybody behind the head."""
        order = plan.view.order
        rest = sorted((job for job in queue.values() if job is not head), key=lambda j: order(j.id))
        if self._shortest_first:
            rest.sort(key=lambda job: job.duration_s)
        for job in rest:
            refusal = plan.try_to_start(job)
            fresh = isinstance(event, Arrived) and event.job_id == job.id
            if refusal is not None and fresh:
                plan.wait(job, refusal.reason, (head.id,))


@dataclass(frozen=True)
class BgMBFParameters:
    evict: Evict = parameter(EVICT[0], "jobs that the head of the queue evicts", choices=EVICT)
    migration_cost_s: float = parameter(
        0.0, "time that a suspended job takes to be restored", unit="s"
    )


def _kind(name: str, summary: str, *, shortest_first: bool) -> PolicyKind:
    return PolicyKind(
        name,
        summary,
        lambda embedder, given: BgMBF(
            embedder,
            shortest_first=shortest_first,
            evict=given.evict,
            cost_s=given.migration_cost_s,
        ),
        BgMBFParameters,
        embeds=True,
    )


POLICIES = (
    _kind(
        "bgmbf",
        "fcfs with bandwidth-guaranteed backfilling; the first in the queue evicts later ones",
        shortest_first=False,
    ),
    _kind("bgmbf-sdf", "bgmbf that backfills the shortest first", shortest_first=True),
)
