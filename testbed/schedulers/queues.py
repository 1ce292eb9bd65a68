"""Bases of queue policies, and the plain queues FCFS, SBF and SDF (Li et al.,
2018).

:class:`HoseQueue` is for jobs with bandwidth: one pass over the waiting jobs at
each event, on one transaction of free capacity. :class:`NodeQueue` is for whole
nodes of a machine whose network limits nothing: it keeps its own queue and its
own free nodes.

FCFS, SBF and SDF (:class:`OrderedQueue`) differ in their order: by arrival, by
bandwidth, by duration. The first is placed or blocks all others; with ``skip``
those behind it are tried too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeAlias

from jobs.request import JobRequest
from testbed.embedding.exact import least_bandwidth
from testbed.embedding.placement import (
    Embedder,
    Placement,
    Refusal,
    empty_residual,
)
from testbed.reservation.capacity import HoseCapacity, NodeCapacity, Refused
from testbed.schedulers.actions import (
    Action,
    Arrived,
    Ended,
    Migrate,
    PolicyEvent,
    Preempt,
    Reject,
    Resume,
    Start,
    Wait,
)
from testbed.schedulers.policy import PolicyKind, View, parameter

SortKey: TypeAlias = Callable[[JobRequest], float]
"""The sort key of a queue, smallest first; equal ones by arrival."""


# -- jobs with bandwidth -------------------------------------------------------


class Pass:
    """One pass over a waiting queue: its transaction of free capacity, and its
    actions.

    ``cost_s`` is what it costs a preempted job to resume (0: nothing).
    """

    def __init__(
        self, view: View, free: HoseCapacity, cost_s: float = 0.0
    ) -> None:
        self.view = view
        self.free = free
        self.actions: list[Action] = []
        self._cost_s = cost_s
        # Jobs that this pass has evicted, and their places: the view does not
        # know it yet.
        self._evicted: dict[str, Placement] = {}

    def start(self, job: JobRequest, placement: Placement) -> None:
        """Starts a job there, or resumes it there if it was preempted."""
        left = self._evicted.pop(job.id, None) or self.view.left(job.id)
        if left is None:
            self.actions.append(Start(job.id, placement, job.bandwidth_bps))
        elif left == placement:
            self.actions.append(Resume(job.id, self._cost_s))
        else:
            why = "its place was given up"
            self.actions.append(
                Migrate(job.id, placement, why, self._cost_s)
            )
        self.free.take(job, placement)

    def try_to_start(self, job: JobRequest) -> Refusal | None:
        """Starts a job if it fits; else the reason why it does not."""
        answer = self.free.fit(job)
        if isinstance(answer, Refusal):
            return self._start_alone(job, answer)
        self.start(job, answer)
        return None

    def _start_alone(
        self, job: JobRequest, refusal: Refusal
    ) -> Refusal | None:
        """Starts a job that its embedder finds no place for though nothing is
        taken.

        It had one when it arrived, but an order of servers that follows the
        largest request (AdaBa) may have changed since, and waiting would help
        nobody: it gets the placement with the least bandwidth.
        """
        if not self.free.idle:
            return refusal
        placement = least_bandwidth(
            self.view.datacentre,
            self.free.residual,
            job.n_vms,
            job.bandwidth_bps,
        )
        if placement is None:
            raise ValueError(
                f"job {job.id} does not fit in an empty data centre"
            )
        self.start(job, placement)
        return None

    def backfilled(self, head: JobRequest) -> list[str]:
        """Running jobs that arrived later than ``head``, the earliest first."""
        order = self.view.order
        later = []
        for job_id in sorted(self.view.running(), key=order):
            came_later = order(job_id) > order(head.id)
            if came_later and job_id not in self._evicted:
                later.append(job_id)
        return later

    def evict(self, job_id: str, reason: str) -> None:
        """Takes a running job off its nodes; it waits again."""
        placement = self.view.placement(job_id)
        if placement is None:
            raise ValueError(f"job {job_id} runs nowhere")
        self._evicted[job_id] = placement
        self.free.give_back(job_id)
        self.actions.append(Preempt(job_id, reason))

    def wait(
        self, job: JobRequest, reason: str, behind: tuple[str, ...] = ()
    ) -> None:
        """Records why a job waits."""
        self.actions.append(Wait(job.id, reason, behind))


class HoseQueue:
    """Rejects what can never fit, and makes a pass (:meth:`schedule`) once an
    instant.
    """

    def __init__(
        self, name: str, embedder: Embedder, *, cost_s: float = 0.0
    ) -> None:
        self.name = name
        self._embedder = embedder
        self._cost_s = cost_s
        self._refused = Refused()

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        fresh: JobRequest | None = None
        if isinstance(event, Ended) and event.more_at_this_time:
            return []
        if isinstance(event, Arrived):
            fresh = view.job(event.job_id)
            refusal = self._refusal_when_empty(view, fresh)
            if refusal is not None:
                reason = f"it does not fit even in an empty data centre: {refusal.reason}"
                return [Reject(fresh.id, reason)]
        plan = Pass(
            view,
            HoseCapacity(view, self._embedder, self._refused),
            self._cost_s,
        )
        self.schedule(plan, fresh)
        return plan.actions

    def schedule(self, plan: Pass, fresh: JobRequest | None) -> None:
        """Makes one pass; ``fresh`` is the job that arrived, if one did."""
        raise NotImplementedError

    def _refusal_when_empty(
        self, view: View, job: JobRequest
    ) -> Refusal | None:
        # Without the memory of what was refused: that is for what is free
        # now.
        empty = HoseCapacity(
            view, self._embedder, free=empty_residual(view.datacentre)
        )
        answer = empty.fit(job)
        if isinstance(answer, Refusal):
            return answer
        return None


def by_arrival(_: JobRequest) -> float:
    """FCFS: the queue as it is."""
    return 0.0


class OrderedQueue(HoseQueue):
    """FCFS, SBF, SDF: starts jobs with all they ask for, in the order of
    ``key``.
    """

    def __init__(
        self,
        name: str,
        embedder: Embedder,
        key: SortKey,
        *,
        skip: bool = False,
    ) -> None:
        super().__init__(name, embedder)
        self._key = key
        self._skip = skip

    def schedule(self, plan: Pass, fresh: JobRequest | None) -> None:
        head: JobRequest | None = None
        for job in self._in_order(plan.view):
            refusal = plan.try_to_start(job)
            if refusal is not None:
                # Of the others the reason was given when they arrived.
                if head is None or job is fresh:
                    plan.wait(job, refusal.reason)
                head = head or job
            if job is fresh:
                fresh = None
            # The first of a sorted queue blocks as well: to skip it is
            # another policy, which a parameter asks for.
            if head is not None and not self._skip:
                break
        # The pass ended before its turn came.
        if head is not None and fresh is not None:
            plan.wait(fresh, f"behind {head.id}, which waits", (head.id,))

    def _in_order(self, view: View) -> Iterable[JobRequest]:
        """The waiting jobs in order, each looked up when it is its turn."""
        jobs = map(view.job, view.waiting())
        if self._key is by_arrival:
            return jobs
        return sorted(jobs, key=self._key)


@dataclass(frozen=True)
class SortedQueueParameters:
    skip: bool = parameter(
        default=False, help="tries those behind one that does not fit"
    )


def _sorted(name: str, summary: str, key: SortKey) -> PolicyKind:
    return PolicyKind(
        name,
        summary,
        lambda embedder, parameters: OrderedQueue(
            name, embedder, key, skip=parameters.skip
        ),
        SortedQueueParameters,
        embeds=True,
        on_failure=("requeue", "kill", "wait"),
        claims=("no-preemption",),
    )


POLICIES = (
    PolicyKind(
        "fcfs",
        "a queue in order of arrival; the first waits until it fits, all others wait",
        lambda embedder, _: OrderedQueue("fcfs", embedder, by_arrival),
        embeds=True,
        on_failure=("requeue", "kill", "wait"),
        claims=("in-order-of-arrival", "no-preemption", "no-starvation"),
    ),
    _sorted(
        "sbf",
        "as fcfs, the smallest bandwidth first",
        attrgetter("bandwidth_bps"),
    ),
    _sorted("sdf", "as fcfs, the shortest first", attrgetter("duration_s")),
)


# -- whole nodes ---------------------------------------------------------------

Entry: TypeAlias = tuple[int, float, int, str]
"""A waiting job: nodes, planned time, bit/s, identity."""


class NodeQueue:
    """Rejects what can never run, and hands events on: :meth:`arrive`,
    :meth:`schedule`.

    ``queue`` holds the waiting jobs; ``nodes`` is free capacity.
    """

    nodes: NodeCapacity

    def __init__(self, name: str) -> None:
        self.name = name
        self.queue: list[Entry] = []
        self._begun = False
        self._recorded: object = None

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if not self._begun:
            self._begun = True
            self.nodes = NodeCapacity(view.datacentre)
        nodes = self.nodes
        if isinstance(event, Arrived):
            job = view.job(event.job_id)
            # Nearly all jobs of a trace ask for plain nodes: they need no look
            # at anything but their number.
            if _is_special(job) or job.n_vms > nodes.total:
                never = nodes.never(job)
                if never is not None:
                    return [Reject(job.id, never)]
            return self.arrive(view, job)
        if isinstance(event, Ended):
            if nodes.give_back(event.job_id) is None:
                # It held no nodes: it was waiting.
                self.queue = [
                    entry
                    for entry in self.queue
                    if entry[-1] != event.job_id
                ]
            if not event.more_at_this_time and self.queue:
                return self.schedule(view)
        return []

    def arrive(self, view: View, job: JobRequest) -> list[Action]:
        """Decides about a job that has arrived, and queues it where it cannot
        start.
        """
        raise NotImplementedError

    def schedule(self, view: View) -> list[Action]:
        """Starts waiting jobs on what the last ends have freed."""
        raise NotImplementedError

    def is_news(self, known: object) -> bool:
        """True where what is known of the first in the queue differs from the
        last time.
        """
        if known == self._recorded:
            return False
        self._recorded = known
        return True


def _is_special(job: JobRequest) -> bool:
    """True where a job asks for more than exclusive nodes of one core."""
    demand = job.demand
    return bool(job.bandwidth_bps or demand.cores != 1 or demand.memory_mib)
