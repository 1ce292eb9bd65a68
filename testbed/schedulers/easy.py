"""EASY backfilling: first come, first served, and whoever does not delay the first may jump.

The head of the queue has a reservation at its *shadow time*: when, by the stated running times,
enough nodes will be free. A later job starts at once if it fits and either is over by the
shadow time or needs no more than the *extra* nodes that the head leaves then (Lifka; Mu'alem and
Feitelson, Section 2.2).

A decision costs O(waiting) for the jump and, where somebody would fit, O(running) for the shadow;
an arrival behind a waiting head that does not fit costs O(1): whoever could not start after the
last decision cannot start now either.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TypeAlias

from testbed.schedulers.actions import Action, Arrived, Ended, PolicyEvent, Reject, Start, Wait
from testbed.schedulers.policy import PolicyKind, View, parameter
from testbed.schedulers.slots import Slots
from testbed.units import with_tolerance_s

ESTIMATES = ("accurate", "user")

Entry: TypeAlias = tuple[str, int, float, int]
"""A job: identity, nodes, planned running time, bandwidth."""

Run: TypeAlias = tuple[float, int, int, str]
"""A running job: planned end, number of its start, nodes, identity."""


class Easy:
    """``estimates``: what is planned with, ``accurate`` running times or what a ``user`` stated."""

    name = "easy"

    def __init__(self, estimates: str = "accurate") -> None:
        if estimates not in ESTIMATES:
            raise ValueError(f"estimates are one of {', '.join(ESTIMATES)}, not {estimates!r}")
        self._stated = estimates == "user"
        self._slots: Slots | None = None
        # Who waits, in order of arrival.
        self._queue: list[Entry] = []
        # Who runs, by planned end.
        self._running: list[Run] = []
        # Their entries there, and their slots.
        self._held: dict[str, tuple[Run, list[int]]] = {}
        self._started = 0
        # The head's shadow time, and up to when an end counts as that.
        self._shadow_s = self._limit_s = 0.0
        self._extra = 0
        # Whether these have to be worked out again before somebody looks at them.
        self._stale = True
        self._said: tuple[str, float] | None = None

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        slots = self._slots
        if slots is None:
            slots = self._slots = Slots(view.datacentre)
        if isinstance(event, Arrived):
            return self._arrive(view, slots, event.job_id)
        if isinstance(event, Ended):
            held = self._held.pop(event.job_id, None)
            if held is not None:
                run, taken = held
                slots.give_back(taken)
                del self._running[bisect_left(self._running, run)]
            if not event.more_at_this_time and self._queue:
                return self._plan(view, slots, view.now_s)
        return []

    # -- what happens -----------------------------------------------------------------------

    def _arrive(self, view: View, slots: Slots, job_id: str) -> list[Action]:
        job = view.job(job_id)
        n, now_s = job.n_vms, view.now_s
        if n > slots.total or job.bandwidth_bps or job.demand.cores != 1 or job.demand.memory_mib:
            # Something to look at more closely.
            wrong = slots.objection(job)
            if wrong is not None:
                return [Reject(job_id, wrong)]
        planned_s = job.stated_s if self._stated else job.duration_s
        entry = (job_id, n, planned_s, job.bandwidth_bps)
        if not self._queue:
            if n <= len(slots.free):
                return [self._start(slots, now_s, entry)]
            self._queue.append(entry)
            return self._plan(view, slots, now_s)
        self._queue.append(entry)
        if self._running and self._running[0][0] < now_s:
            # Somebody runs longer than planned: the shadow moves with the time.
            return self._plan(view, slots, now_s)
        if n <= len(slots.free) and self._may_jump(slots, now_s, n, planned_s):
            del self._queue[-1]
            return [self._start(slots, now_s, entry)]
        return [self._behind_the_head(slots, entry)] if view.listening else []

    # -- who starts -------------------------------------------------------------------------

    def _plan(self, view: View, slots: Slots, now_s: float) -> list[Action]:
        """Start from the head while it fits; then let others jump."""
        queue = self._queue
        out: list[Action] = []
        while queue and queue[0][1] <= len(slots.free):
            out.append(self._start(slots, now_s, queue.pop(0)))
        if not queue:
            return out
        free = len(slots.free)
        self._stale = True
        if free:
            self._jump(slots, now_s, free, out)
        if view.listening:
            self._look_ahead(slots, now_s)
            said = (queue[0][0], self._shadow_s)
            if said != self._said:
                self._said = said
                out.append(self._head_waits(slots, queue[0]))
        return out

    def _look_ahead(self, slots: Slots, now_s: float) -> None:
        """When the head can start at the latest, and how many nodes it leaves then."""
        if not self._stale:
            return
        self._stale = False
        free, needs = len(slots.free), self._queue[0][1]
        running = iter(self._running)
        for end_s, _, n, _ in running:
            free += n
            if free >= needs:
                # Who has run longer than planned may end at any moment.
                shadow_s = max(end_s, now_s)
                break
        else:
            raise AssertionError(f"{needs} nodes were admitted, which the machine does not have")
        limit_s = with_tolerance_s(shadow_s)
        for end_s, _, n, _ in running:
            if end_s > limit_s:
                break
            free += n
        self._shadow_s, self._limit_s, self._extra = shadow_s, limit_s, free - needs

    def _may_jump(self, slots: Slots, now_s: float, n: int, planned_s: float) -> bool:
        """Whether a job that fits delays the head; if it does not, it takes what it needs."""
        if self._stale:
            self._look_ahead(slots, now_s)
        if now_s + planned_s <= self._limit_s:
            return True
        if n <= self._extra:
            self._extra -= n
            return True
        return False

    def _jump(self, slots: Slots, now_s: float, free: int, out: list[Action]) -> None:
        """Start whoever does not delay the head, in order of arrival."""
        gone = []
        for entry in self._queue:
            # The head is larger than what is free.
            if entry[1] <= free and self._may_jump(slots, now_s, entry[1], entry[2]):
                gone.append(entry)
                free -= entry[1]
                if not free:
                    break
        for entry in gone:
            self._queue.remove(entry)
            out.append(self._start(slots, now_s, entry))

    def _start(self, slots: Slots, now_s: float, entry: Entry) -> Start:
        job_id, n, planned_s, rate_bps = entry
        taken, placement = slots.take(n)
        self._started += 1
        run = (now_s + planned_s, self._started, n, job_id)
        self._held[job_id] = (run, taken)
        insort(self._running, run)
        return Start(job_id, placement, rate_bps)

    # -- why others wait ----------------------------------------------------------------------

    def _head_waits(self, slots: Slots, entry: Entry) -> Wait:
        """For whom the head waits: those that end up to its shadow time."""
        behind = tuple(run[3] for run in self._running if run[0] <= self._limit_s)
        reason = f"first in the queue: {entry[1]} nodes asked, {len(slots.free)} free"
        return Wait(entry[0], reason, behind, self._shadow_s)

    def _behind_the_head(self, slots: Slots, entry: Entry) -> Wait:
        head, free = self._queue[0][0], len(slots.free)
        if entry[1] > free:
            reason = f"{entry[1]} nodes asked, {free} free"
        else:
            reason = (
                f"{entry[1]} of {free} free nodes asked for {entry[2]:g} s: it would delay {head},"
                f" which has them from {self._shadow_s:g} s"
            )
        return Wait(entry[0], reason, (head,))


@dataclass(frozen=True)
class EasyParameters:
    estimates: str = parameter(
        ESTIMATES[0], "running times that the plan is made with", choices=ESTIMATES
    )


POLICIES = (
    PolicyKind(
        "easy",
        "EASY: backfills whoever does not delay the first in the queue",
        lambda _, given: Easy(given.estimates),
        EasyParameters,
        claims=lambda given: (
            "head-not-delayed"
            if given.estimates == "accurate"
            else "head-not-delayed-by-user-estimates",
            "no-preemption",
        ),
    ),
)
