"""EASY backfilling: first come, first served, but a later job may start early
if that does not delay the first in the queue.

The first in the queue has a reservation at its *shadow time*: the earliest time
at which the planned ends of running jobs leave enough nodes. A later job starts
at once if it fits and either ends by the shadow time or needs no more than the
*extra* nodes, which the first leaves free at its shadow time (Lifka; Mu'alem
and Feitelson, Section 2.2). An arrival that does not fit costs O(1), anything
else O(waiting + running).
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.request import JobRequest
from testbed.schedulers.actions import Action, Start, Wait
from testbed.schedulers.policy import Claim, PolicyKind, View, parameter
from testbed.schedulers.queues import Entry, NodeQueue

CLAIMS_OF_ESTIMATES: dict[str, tuple[Claim, ...]] = {
    "accurate": (
        "head-not-delayed",
        "no-preemption",
        "no-starvation-without-bandwidth",
    ),
    # Starvation is possible: jobs that run longer than their users stated
    # can delay the first in the queue again and again.
    "user": ("head-not-delayed-by-user-estimates", "no-preemption"),
}


@dataclass(frozen=True)
class EasyParameters:
    estimates: str = parameter(
        "accurate",
        "running times to plan with",
        choices=tuple(CLAIMS_OF_ESTIMATES),
    )


class Easy(NodeQueue):
    """The EASY policy, for jobs that take a whole node per VM.

    ``estimates``: the running times to plan with, ``accurate`` ones or those
    that the ``user`` stated.
    """

    def __init__(self, estimates: str = "accurate") -> None:
        if estimates not in CLAIMS_OF_ESTIMATES:
            raise ValueError(
                f"estimates are one of {', '.join(CLAIMS_OF_ESTIMATES)}, not {estimates!r}"
            )
        super().__init__("easy")
        self._plans_with_stated = estimates == "user"

    def arrive(self, view: View, job: JobRequest) -> list[Action]:
        n_nodes = job.n_vms
        nodes = self.nodes
        now_s = view.now_s
        planned_s = job.duration_s
        if self._plans_with_stated:
            planned_s = job.stated_s
        entry = (n_nodes, planned_s, job.bandwidth_bps, job.id)
        queue = self.queue
        # The first in the queue needs a pass, which starts it or reserves its
        # nodes. While a running job is overdue, any job needs one: the shadow
        # time moves with the clock, so that the reservation of the last pass
        # is out of date. Holders are sorted by planned end.
        needs_pass = not queue or nodes.holders[0][0] < now_s
        if (
            not needs_pass
            and n_nodes <= len(nodes.free)
            and nodes.admits(n_nodes, now_s + planned_s)
        ):
            return [self._start(now_s, entry)]
        queue.append(entry)
        actions: list[Action] = []
        if needs_pass:
            actions = self.schedule(view)
        # The pass itself records why the first waits, and may have started
        # this job.
        if view.listening and len(queue) > 1 and queue[-1] is entry:
            actions.append(self._waits(entry))
        return actions

    def schedule(self, view: View) -> list[Action]:
        actions: list[Action] = []
        now_s = view.now_s
        nodes = self.nodes
        queue = self.queue
        # Jobs at the head that fit need no reservation. The first field of an
        # entry is its number of nodes.
        while queue and queue[0][0] <= len(nodes.free):
            actions.append(self._start(now_s, queue.pop(0)))
        if not queue:
            return actions
        n_nodes, _, _, job_id = queue[0]
        nodes.reserve(n_nodes, now_s)
        if nodes.free:
            self._backfill(now_s, actions)
        # Recorded only if another job has become the first, or its time moved.
        if view.listening and self.is_news((job_id, nodes.shadow.at_s)):
            actions.append(self._waits(queue[0]))
        return actions

    def _backfill(self, now_s: float, actions: list[Action]) -> None:
        """Starts jobs behind the first that fit and do not delay it, in order
        of arrival; adds the starts to ``actions``.
        """
        # Jobs that start take their nodes out of this list.
        free = self.nodes.free
        admits = self.nodes.admits
        # A copy, since jobs that start leave the queue. An entry begins with
        # its number of nodes and its planned time.
        for entry in self.queue[1:]:
            if entry[0] <= len(free) and admits(entry[0], now_s + entry[1]):
                self.queue.remove(entry)
                actions.append(self._start(now_s, entry))
                if not free:
                    break

    def _start(self, now_s: float, entry: Entry) -> Start:
        n_nodes, planned_s, rate_bps, job_id = entry
        placement = self.nodes.place(job_id, n_nodes, now_s + planned_s)
        return Start(job_id, placement, rate_bps)

    def _waits(self, entry: Entry) -> Wait:
        n_nodes, planned_s, _, job_id = entry
        # An entry ends with its job's id.
        first_id = self.queue[0][3]
        n_free = len(self.nodes.free)
        shadow = self.nodes.shadow
        reason = f"{n_nodes} nodes asked, {n_free} free"
        if job_id == first_id:
            # The running jobs on whose planned ends its start depends.
            waits_for = tuple(
                running_id
                for end_s, _, _, running_id in self.nodes.holders
                if end_s <= shadow.limit_s
            )
            return Wait(
                job_id,
                f"first in the queue: {reason}",
                waits_for,
                shadow.at_s,
            )
        if n_nodes <= n_free:
            reason = (
                f"{n_nodes} of {n_free} free nodes asked for {planned_s:g} s:"
                f" it would delay {first_id}, which has them"
                f" from {shadow.at_s:g} s"
            )
        return Wait(job_id, reason, (first_id,))


POLICIES = (
    PolicyKind(
        "easy",
        "EASY: backfills jobs that do not delay the first in the queue",
        lambda _, parameters: Easy(parameters.estimates),
        EasyParameters,
        claims=lambda parameters: CLAIMS_OF_ESTIMATES[parameters.estimates],
    ),
)
