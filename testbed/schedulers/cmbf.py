"""CMBF and AMBF: backfilling without running times, mended by preemption (CMBF, Section 4.1).

Nobody knows how long a job will run, so whoever fits runs. A job that arrived earlier takes the
nodes back: it starts whenever the idle nodes and those of jobs that arrived later are enough
for it, and of those jobs it sends away as few as it needs. In AMBF the head of the queue alone
may do so. What a preempted job has done is kept; going on costs ``cost_s``.

The printed algorithm stops when the idle nodes are *more* than the job needs (line 14); enough
is as many as it needs. "Backfilling jobs" of a job are the running ones that arrived later: a
stored list goes stale when the head starts (docs/decisions/0422).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.schedulers.actions import (
    Action,
    Arrived,
    Ended,
    Migrate,
    PolicyEvent,
    Preempt,
    Reject,
    Start,
    Wait,
)
from testbed.schedulers.policy import PolicyKind, View, parameter
from testbed.schedulers.slots import Slots

MIGRATION_COST_S = 20.0

Entry = tuple[int, str, int]
"""A job by its order of arrival: order, identity, nodes."""


class Cmbf:
    """``head_only``: AMBF. ``cost_s``: what it costs a preempted job to go on, 20 s as published.

    A decision costs O(waiting + running); an arrival O(1), because after a decision nobody who
    waits can start, and a newcomer has nobody to preempt.
    """

    def __init__(
        self, name: str = "cmbf", *, head_only: bool = False, cost_s: float = MIGRATION_COST_S
    ) -> None:
        self.name = name
        self._head_only = head_only
        self._cost_s = cost_s
        self._slots: Slots | None = None
        self._queue: list[Entry] = []
        self._running: list[Entry] = []
        self._held: dict[str, list[int]] = {}
        self._entries: dict[str, Entry] = {}
        self._rate_bps: dict[str, int] = {}
        self._began: set[str] = set()
        self._said: str | None = None

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        slots = self._slots
        if slots is None:
            slots = self._slots = Slots(view.datacentre)
        if isinstance(event, Arrived):
            return self._arrive(view, slots, event.job_id)
        if isinstance(event, Ended):
            self._leave(slots, event.job_id)
            if not event.more_at_this_time and self._queue:
                return self._plan(slots)
        return []

    # -- what happens -----------------------------------------------------------------------

    def _arrive(self, view: View, slots: Slots, job_id: str) -> list[Action]:
        job = view.job(job_id)
        wrong = slots.objection(job)
        if wrong is not None:
            return [Reject(job_id, wrong)]
        entry = (view.order(job_id), job_id, job.n_vms)
        self._entries[job_id] = entry
        if job.bandwidth_bps:
            self._rate_bps[job_id] = job.bandwidth_bps
        if job.n_vms <= len(slots.free):
            return [self._start(slots, entry)]
        self._queue.append(entry)
        return [self._waits(slots, entry)]

    def _leave(self, slots: Slots, job_id: str) -> None:
        entry = self._entries.pop(job_id, None)
        self._began.discard(job_id)
        self._rate_bps.pop(job_id, None)
        if entry is None:
            return
        held = self._held.pop(job_id, None)
        if held is None:
            self._queue.remove(entry)
        else:
            slots.give_back(held)
            del self._running[bisect_left(self._running, entry)]

    # -- Algorithm 1 ------------------------------------------------------------------------

    def _plan(self, slots: Slots) -> list[Action]:
        """Go through the queue in order of arrival; whoever can start does."""
        out: list[Action] = []
        queue, running = self._queue, self._running
        place, ahead = 0, 0
        later = sum(n for _, _, n in running)
        while place < len(queue):
            entry = queue[place]
            order, _, n = entry
            while ahead < len(running) and running[ahead][0] < order:
                later -= running[ahead][2]
                ahead += 1
            idle = len(slots.free)
            if idle + (0 if self._head_only and place else later) == 0:
                break
            if n > idle and n <= idle + later and not (self._head_only and place):
                for victim in victims(running[ahead:], n - idle):
                    out.append(self._evict(slots, victim, entry))
                    later -= victim[2]
            if n <= len(slots.free):
                del queue[place]
                out.append(self._start(slots, entry))
                # It arrived before everybody that is looked at from here on.
                ahead += 1
            else:
                place += 1
        if queue and queue[0][1] != self._said:
            self._said = queue[0][1]
            out.append(self._waits(slots, queue[0]))
        return out

    def _evict(self, slots: Slots, victim: Entry, winner: Entry) -> Action:
        slots.give_back(self._held.pop(victim[1]))
        del self._running[bisect_left(self._running, victim)]
        insort(self._queue, victim)
        return Preempt(victim[1], f"{winner[1]} arrived earlier and needs {winner[2]} nodes")

    def _start(self, slots: Slots, entry: Entry) -> Action:
        _, job_id, n = entry
        taken, placement = slots.take(n)
        self._held[job_id] = taken
        insort(self._running, entry)
        if job_id in self._began:
            return Migrate(job_id, placement, "nodes are free for it again", self._cost_s)
        self._began.add(job_id)
        return Start(job_id, placement, self._rate_bps.get(job_id, 0))

    # -- why others wait ----------------------------------------------------------------------

    def _waits(self, slots: Slots, entry: Entry) -> Wait:
        order, job_id, n = entry
        later = sum(m for at, _, m in self._running if at > order)
        head = self._queue[0]
        reason = f"{n} nodes asked, {len(slots.free)} idle, {later} held by jobs that came later"
        if entry == head:
            holders = tuple(name for at, name, _ in self._running if at < order)
            return Wait(job_id, f"first in the queue: {reason}", holders)
        if self._head_only and n <= len(slots.free) + later:
            reason += "; the head of the queue alone may preempt"
        return Wait(job_id, reason, (head[1],))


def victims(later: Sequence[Entry], needs: int) -> list[Entry]:
    """Whom to send away for ``needs`` nodes, of jobs in order of arrival that have as many.

    Collected latest arrival first until there are enough; then, earliest arrival first, whoever
    turns out not to be needed is spared (Fig. 1: J6 and J5 are collected, J5 alone goes).
    """
    collected: list[Entry] = []
    have = 0
    for entry in reversed(later):
        if have >= needs:
            break
        collected.append(entry)
        have += entry[2]
    for entry in reversed(collected[:]):
        if have - entry[2] >= needs:
            collected.remove(entry)
            have -= entry[2]
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
