"""EASY backfilling: first come, first served, and a job that does not delay the
first may jump.

The first in the queue has a reservation at its *shadow time*: when, by the
stated running times, enough nodes will be free. A later job starts at once if
it fits and either ends by the shadow time or needs no more than the *extra*
nodes that the first leaves then (Lifka; Mu'alem and Feitelson, Section 2.2). An
arrival that does not fit costs O(1), anything else O(waiting + running).
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.request import JobRequest
from testbed.schedulers.actions import Action, Start, Wait
from testbed.schedulers.policy import Claim, PolicyKind, View, parameter
from testbed.schedulers.queues import Entry, NodeQueue

CLAIMS_WITH: dict[str, tuple[Claim, ...]] = {
    "accurate": ("head-not-delayed", "no-preemption", "no-starvation"),
    # Jobs that run longer than was stated may keep the first waiting again and
    # again.
    "user": ("head-not-delayed-by-user-estimates", "no-preemption"),
}


@dataclass(frozen=True)
class EasyParameters:
    estimates: str = parameter(
        "accurate", "running times to plan with", choices=tuple(CLAIMS_WITH)
    )


class Easy(NodeQueue):
    """``estimates``: what is planned with, ``accurate`` running times or what a
    ``user`` stated.
    """

    def __init__(self, estimates: str = "accurate") -> None:
        if estimates not in CLAIMS_WITH:
            raise ValueError(
                f"estimates are one of {', '.join(CLAIMS_WITH)}, not {estimates!r}"
            )
        super().__init__("easy")
        self._stated = estimates == "user"

    def arrive(self, view: View, job: JobRequest) -> list[Action]:
        n = job.n_vms
        nodes = self.nodes
        now_s = view.now_s
        planned_s = job.stated_s if self._stated else job.duration_s
        entry = (n, planned_s, job.bandwidth_bps, job.id)
        starts = n <= len(nodes.free)
        is_first = not self.queue
        # The shadow moves with the time while a job runs longer than
        # planned: whether one may jump then is for the whole pass to say.
        overdue = not is_first and nodes.holders[0][0] < now_s
        if overdue:
            starts = False
        elif starts and not is_first:
            # Behind others a job jumps only where that does not delay the
            # first.
            starts = nodes.admits(n, now_s + planned_s)
        if starts:
            return [self._start(now_s, entry)]
        self.queue.append(entry)
        if is_first or overdue:
            return self.schedule(view)
        if view.listening:
            return [self._waits(entry)]
        return []

    def schedule(self, view: View) -> list[Action]:
        out: list[Action] = []
        now_s = view.now_s
        nodes = self.nodes
        queue = self.queue
        while queue and queue[0][0] <= len(nodes.free):
            # Those at the head need no reservation: they just start.
            out.append(self._start(now_s, queue.pop(0)))
        if queue:
            nodes.reserve(queue[0][0], now_s)
            if nodes.free:
                self._jump(now_s, len(nodes.free), out)
            if view.listening and self.is_news(
                (queue[0][3], nodes.shadow.at_s)
            ):
                out.append(self._waits(queue[0]))
        return out

    def _jump(self, now_s: float, free: int, out: list[Action]) -> None:
        """Starts the jobs that fit and do not delay the first, in order of
        arrival.
        """
        # A copy: those that jump leave the queue.
        for entry in self.queue[1:]:
            if entry[0] <= free and self.nodes.admits(
                entry[0], now_s + entry[1]
            ):
                self.queue.remove(entry)
                out.append(self._start(now_s, entry))
                free -= entry[0]
                if not free:
                    break

    def _start(self, now_s: float, entry: Entry) -> Start:
        n, planned_s, rate_bps, job_id = entry
        return Start(
            job_id, self.nodes.place(job_id, n, now_s + planned_s), rate_bps
        )

    def _waits(self, entry: Entry) -> Wait:
        n, planned_s, _, job_id = entry
        first = self.queue[0]
        free = len(self.nodes.free)
        shadow = self.nodes.shadow
        reason = f"{n} nodes asked, {free} free"
        if entry is first:
            # Jobs whose planned end makes its room.
            waits_for = [
                run[3]
                for run in self.nodes.holders
                if run[0] <= shadow.limit_s
            ]
            return Wait(
                job_id,
                f"first in the queue: {reason}",
                tuple(waits_for),
                shadow.at_s,
            )
        if n <= free:
            reason = f"{n} of {free} free nodes asked for {planned_s:g} s: it would delay"
            reason += f" {first[3]}, which has them from {shadow.at_s:g} s"
        return Wait(job_id, reason, (first[3],))


POLICIES = (
    PolicyKind(
        "easy",
        "EASY: backfills jobs that do not delay the first in the queue",
        lambda _, parameters: Easy(parameters.estimates),
        EasyParameters,
        claims=lambda parameters: CLAIMS_WITH[parameters.estimates],
    ),
)
