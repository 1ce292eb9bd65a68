"""CMBF and AMBF: backfilling without running times, repaired by preemption (CMBF, Section 4.1).

Nobody knows how long a job will run, so every job that fits runs. A job that arrived earlier takes
the nodes back: it starts whenever the idle nodes and those of jobs that arrived later are enough
for it, and preempts as few of those as it needs. In AMBF the head of the queue alone may do so. A
preempted job keeps its progress; resuming costs ``cost_s``.

The printed algorithm stops when the idle nodes are *more* than the job needs (line 14); enough
is as many as it needs. "Backfilling jobs" of a job are the running ones that arrived later: a
stored list would be out of date as soon as the head starts.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.request import JobRequest
from testbed.reservation.capacity import Holder
from testbed.schedulers.actions import Action, Migrate, Preempt, Start, Wait
from testbed.schedulers.policy import PolicyKind, View, parameter
from testbed.schedulers.queues import NodeQueue

MIGRATION_COST_S = 20.0


class Cmbf(NodeQueue[Holder]):
    """``head_only``: AMBF. ``cost_s``: what resuming costs a preempted job, 20 s as published.

    ``queue`` and the holders of nodes stand in order of arrival. A decision costs O(waiting +
    running); an arrival O(1), because after a decision no waiting job can start, and a newcomer has
    nobody to preempt.
    """

    def __init__(
        self, name: str = "cmbf", *, head_only: bool = False, cost_s: float = MIGRATION_COST_S
    ) -> None:
        super().__init__(name)
        self._head_only = head_only
        self._cost_s = cost_s
        self._preempted: set[str] = set()

    def arrive(self, view: View, job: JobRequest) -> list[Action]:
        entry = (view.order(job.id), 0, job.n_vms, job.id)
        if job.n_vms <= len(self.nodes.free):
            return [self._start(view, entry)]
        self.queue.append(entry)
        return [self._waits(entry)]

    def schedule(self, view: View) -> list[Action]:
        """Algorithm 1: every job of the queue in order of arrival starts if it can."""
        out: list[Action] = []
        queue, nodes = self.queue, self.nodes
        place, ahead = 0, 0
        later = sum(n for _, _, n, _ in nodes.holders)
        while place < len(queue):
            entry = queue[place]
            order, _, n, _ = entry
            while ahead < len(nodes.holders) and nodes.holders[ahead][0] < order:
                later -= nodes.holders[ahead][2]
                ahead += 1
            may_preempt = not (self._head_only and place)
            idle = len(nodes.free)
            if idle + (later if may_preempt else 0) == 0:
                break
            # Lines 9-17: preempt backfilled jobs where that makes enough room.
            if may_preempt and idle < n <= idle + later:
                for victim in victims(nodes.holders[ahead:], n - idle):
                    out.append(self._preempt(victim, entry))
                    later -= victim[2]
            if n <= len(nodes.free):
                del queue[place]
                out.append(self._start(view, entry))
                # It arrived before all jobs that are looked at from here on.
                ahead += 1
            else:
                place += 1
        if queue and self.is_news(queue[0]):
            out.append(self._waits(queue[0]))
        return out

    def _preempt(self, victim: Holder, winner: Holder) -> Action:
        order, _, n, job_id = victim
        self.nodes.give_back(job_id)
        self._preempted.add(job_id)
        insort(self.queue, (order, 0, n, job_id))
        return Preempt(job_id, f"{winner[3]} arrived earlier and needs {winner[2]} nodes")

    def _start(self, view: View, entry: Holder) -> Action:
        order, _, n, job_id = entry
        placement = self.nodes.place(job_id, n, order)
        if job_id in self._preempted:
            self._preempted.remove(job_id)
            return Migrate(job_id, placement, "nodes are free for it again", self._cost_s)
        return Start(job_id, placement, view.job(job_id).bandwidth_bps)

    def _waits(self, entry: Holder) -> Wait:
        order, _, n, job_id = entry
        later = sum(held for at, _, held, _ in self.nodes.holders if at > order)
        free, head = len(self.nodes.free), self.queue[0]
        reason = f"{n} nodes asked, {free} idle, {later} held by jobs that came later"
        if entry == head:
            behind = tuple(holder for at, _, _, holder in self.nodes.holders if at < order)
            return Wait(job_id, f"first in the queue: {reason}", behind)
        if self._head_only and n <= free + later:
            reason += "; the head of the queue alone may preempt"
        return Wait(job_id, reason, (head[3],))


def victims(later: Sequence[Holder], needs: int) -> list[Holder]:
    """Jobs to preempt for ``needs`` nodes, out of jobs in order of arrival that have as many.

    Collected latest arrival first until there are enough; then, earliest arrival first, those that
    turn out not to be needed are spared (Fig. 1: J6 and J5 are collected, J5 alone goes).
    """
    collected: list[Holder] = []
    have = 0
    for holder in reversed(later):
        if have >= needs:
            break
        collected.append(holder)
        have += holder[2]
    for holder in reversed(collected[:]):
        if have - holder[2] >= needs:
            collected.remove(holder)
            have -= holder[2]
    return collected


@dataclass(frozen=True)
class CmbfParameters:
    migration_cost_s: float = parameter(
        MIGRATION_COST_S, "time that it costs a preempted job to resume", unit="s"
    )


def _kind(name: str, summary: str, *, head_only: bool) -> PolicyKind:
    return PolicyKind(
        name,
        summary,
        lambda _, given: Cmbf(name, head_only=head_only, cost_s=given.migration_cost_s),
        CmbfParameters,
    )


POLICIES = (
    _kind("cmbf", "CMBF: backfills all, earlier jobs preempt later", head_only=False),
    _kind("ambf", "AMBF: CMBF where the head of the queue preempts", head_only=True),
)
