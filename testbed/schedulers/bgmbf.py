"""BgMBF and BgMBF-SDF: backfilling with bandwidth guarantees and preemption (Li
et al., 2018).

Algorithm 2. Jobs start in order of arrival while they fit. The first that does
not is the *head*. If it would fit without the jobs that arrived after it, they
are suspended and it starts; otherwise jobs behind it are backfilled into what
is free, in order of arrival or, in BgMBF-SDF, the shortest first. A suspended
job keeps its progress and its place by arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from jobs.request import JobRequest
from testbed.embedding.placement import Embedder, Placement, Refusal
from testbed.schedulers.policy import PolicyKind, parameter
from testbed.schedulers.queues import HoseQueue, Pass

EVICT = ("all", "needed")
"""Jobs that a head evicts: every backfilled one, as printed, or as few as it
takes.
"""


class BgMBF(HoseQueue):
    """See the module. ``cost_s`` is how long a suspended job takes to be
    restored.
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        shortest_first: bool = False,
        evict: str = EVICT[0],
        cost_s: float = 0.0,
    ) -> None:
        super().__init__(
            "bgmbf-sdf" if shortest_first else "bgmbf",
            embedder,
            cost_s=cost_s,
        )
        self._shortest_first = shortest_first
        self._evict = evict

    def schedule(self, plan: Pass, fresh: JobRequest | None) -> None:
        queue = list(plan.view.waiting())
        head = self._start_heads(plan, queue)
        if head is not None:
            self._backfill(plan, queue, head, fresh)

    def _start_heads(
        self, plan: Pass, queue: list[str]
    ) -> JobRequest | None:
        """Lines 1-4: takes the first from the queue and starts it, again and
        again; the first that must wait.
        """
        while queue:
            head = plan.view.job(queue.pop(0))
            refusal = plan.try_to_start(head)
            if refusal is not None:
                # Only a head that does not fit evicts: one that fits leaves
                # those that jumped before it where they are.
                evicted = self._start_by_force(plan, head)
                if not evicted:
                    plan.wait(head, refusal.reason)
                    return head
                # They wait again, and may have arrived before the rest.
                queue += evicted
                queue.sort(key=plan.view.order)
        return None

    def _start_by_force(self, plan: Pass, head: JobRequest) -> list[str]:
        """Lines 12-20: starts the head in the place of jobs that arrived later;
        those evicted.
        """
        later = plan.backfilled(head)
        if not later:
            return []
        victims, answer = self._victims(plan, head, later)
        if isinstance(answer, Refusal):
            return []
        for job_id in victims:
            plan.evict(
                job_id, f"{head.id} stands first and needs its place"
            )
        plan.start(head, answer)
        return victims

    def _victims(
        self, plan: Pass, head: JobRequest, later: list[str]
    ) -> tuple[list[str], Placement | Refusal]:
        """Lines 13-16: the jobs without which the head fits, and its place
        then.
        """
        # The most room that eviction can make: where that is not enough,
        # nobody is evicted.
        answer = plan.free.without(later).fit(head)
        if self._evict == "all" or isinstance(answer, Refusal):
            return later, answer
        # The latest first, as many as it takes; then spare those that turn out
        # not to be needed.
        victims = later
        for first in range(len(later) - 1, -1, -1):
            fewer = plan.free.without(later[first:]).fit(head)
            if not isinstance(fewer, Refusal):
                victims = later[first:]
                answer = fewer
                break
        for job_id in list(victims):
            others = [victim for victim in victims if victim != job_id]
            fewer = plan.free.without(others).fit(head)
            # Without any eviction the head did not fit, so the last victim
            # is needed.
            if others and not isinstance(fewer, Refusal):
                victims = others
                answer = fewer
        return victims, answer

    def _backfill(
        self,
        plan: Pass,
        queue: list[str],
        head: JobRequest,
        fresh: JobRequest | None,
    ) -> None:
        """Lines 5-9, for every job behind the head."""
        rest = list(map(plan.view.job, queue))
        if self._shortest_first:
            # The sort is stable: jobs of one length stay in order of
            # arrival.
            rest.sort(key=attrgetter("duration_s"))
        for job in rest:
            refusal = plan.try_to_start(job)
            # The others were given their reason when they arrived.
            if refusal is not None and job is fresh:
                plan.wait(job, refusal.reason, (head.id,))


@dataclass(frozen=True)
class BgMBFParameters:
    evict: str = parameter(
        EVICT[0], "jobs that the head of the queue evicts", choices=EVICT
    )
    migration_cost_s: float = parameter(
        0.0, "time that a suspended job takes to be restored", unit="s"
    )


def _kind(name: str, summary: str, *, shortest_first: bool) -> PolicyKind:
    return PolicyKind(
        name,
        summary,
        lambda embedder, parameters: BgMBF(
            embedder,
            shortest_first=shortest_first,
            evict=parameters.evict,
            cost_s=parameters.migration_cost_s,
        ),
        BgMBFParameters,
        embeds=True,
        on_failure=("requeue", "kill"),
        claims=("no-starvation",),
    )


POLICIES = (
    _kind(
        "bgmbf",
        "fcfs with bandwidth-guaranteed backfilling; the first in the queue evicts later ones",
        shortest_first=False,
    ),
    _kind(
        "bgmbf-sdf",
        "bgmbf that backfills the shortest first",
        shortest_first=True,
    ),
)
