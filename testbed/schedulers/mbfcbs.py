"""MBFCBS: modified best fit with capacity based scheduling of leases (Algorithm 1).

Advance reservations (AR) are accepted for their start or rejected on arrival; immediate leases (IM)
start on arrival or are rejected; best-effort leases (BE) start when there is room, give way to both
once, and go on afterwards. The interpretation of the text is in docs/decisions/36 to 38.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from itertools import islice

from jobs.request import JobRequest
from testbed.schedulers.actions import (
    Action,
    Arrived,
    Ended,
    PolicyEvent,
    Preempted,
    Reject,
    Wait,
    Wake,
    Woken,
)
from testbed.schedulers.calendar_queue import Use
from testbed.schedulers.lease_book import Lease, LeaseBook
from testbed.schedulers.lease_reasons import never_fits, no_room_at, no_room_now
from testbed.schedulers.policy import PolicyKind, View, parameter

SLOT_S = 600.0
DEPTH = 100


@dataclass(frozen=True)
class Settings:
    """``preemption`` and ``earliest``: what the algorithm adds to a greedy one (Section 5.1).

    ``slot_s`` is α, the calendar's bucket. ``depth``: how many waiting best-effort leases are
    looked at when something ends, and behind how many a newcomer waits unseen.
    """

    preemption: bool = parameter(default=True, help="best effort leaves for AR and IM")
    earliest: bool = parameter(default=True, help="best effort starts as early as it can")
    slot_s: float = parameter(
        SLOT_S, "α, the calendar's bucket", unit="s", limits=(1.0, 1_000_000.0)
    )
    depth: int = parameter(
        DEPTH, "waiting best-effort leases that are looked at", limits=(1.0, 1_000_000.0)
    )


class Mbfcbs:
    """Algorithm 1 over the calendar and the two lists (:class:`LeaseBook`)."""

    name = "mbfcbs"

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self._book: LeaseBook | None = None
        # Best-effort leases that wait without a plan, by order of arrival; plans by their start.
        self._queue: dict[str, Lease] = {}
        self._unsorted = False
        self._plans: list[tuple[float, int, str]] = []
        self._actions: list[Action] = []
        self._woken_s = -1.0

    @property
    def book(self) -> LeaseBook:
        if self._book is None:
            raise RuntimeError("no lease has arrived yet")
        return self._book

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if self._book is None:
            self._book = LeaseBook(view.datacentre, self.settings.slot_s)
        self._actions = []
        self._book.advance(view.now_s)
        match event:
            case Arrived(job_id):
                self._arrive(view, view.job(job_id))
            case Ended(job_id, _, more):
                self._forget(job_id)
                self._book.leave(job_id)
                if not more:
                    self._wake_now()
            case Preempted(job_id):
                self._pause(job_id)
                self._wake_now()
            case Woken():
                self._start_due()
                self._backfill()
        return self._actions

    # -- what arrives -------------------------------------------------------------------------

    def _arrive(self, view: View, job: JobRequest) -> None:
        lease = Lease(job, view.order(job.id))
        refusal = never_fits(self.book, lease, view.datacentre.n_links)
        if refusal is not None:
            self._actions.append(Reject(job.id, refusal))
        elif job.demand.lease_type == "advance":
            self._advance(lease)
        elif job.demand.lease_type == "immediate":
            self._immediate(lease)
        elif len(self._queue) >= self.settings.depth:
            self._wait(lease, f"it waits behind {len(self._queue)} best-effort leases")
        else:
            self._best_effort(lease)

    def _best_effort(self, lease: Lease) -> None:
        """Lines 2 to 6: now, or at the earliest available time, or in the backfill queue."""
        book = self.book
        if book.place_now(lease):
            self._actions += book.start(lease)
        elif not self._plan(lease):
            why = ", or every host has an advance reservation" if self.settings.earliest else ""
            self._wait(lease, f"{lease.asks} asked; no host has them free now{why}")

    def _plan(self, lease: Lease) -> bool:
        """Line 4: into the queue of the host that has room first, of those without AR."""
        if not (self.settings.earliest and self.book.place_earliest(lease)):
            return False
        start_s, hosts = lease.start_s, ", ".join(self.book.name(host) for host in lease.on)
        heapq.heappush(self._plans, (start_s, lease.order, lease.id))
        said = f"{lease.asks} asked; the first room for good is on {hosts}, at {start_s:.6g} s"
        self._actions += [Wait(lease.id, said, until_s=start_s), Wake(start_s)]
        return True

    def _immediate(self, lease: Lease) -> None:
        """Lines 7 to 12: now, in place of best-effort leases if need be, or not at all."""
        now_s = self.book.now_s
        if self.book.place_now(lease) or self._take(lease, now_s):
            self._actions += self.book.start(lease)
        else:
            self._actions.append(Reject(lease.id, no_room_now(self.book, lease)))

    def _advance(self, lease: Lease) -> None:
        """Lines 13 to 19: at its own start, in place of best-effort leases if need be."""
        start_s = lease.request.demand.wanted_s
        if start_s is None or start_s < self.book.now_s:
            self._actions.append(Reject(lease.id, f"its start, {start_s} s, has passed"))
        elif self.book.place_at(lease, start_s) or self._take(lease, start_s):
            self._actions += self.book.reserve(lease)
        else:
            self._actions.append(Reject(lease.id, no_room_at(self.book, lease, start_s)))

    # -- preemption ---------------------------------------------------------------------------

    def _take(self, lease: Lease, start_s: float) -> bool:
        """Lines 22 to 32: place a firm lease where best-effort leases with flag 1 give way."""
        if not self.settings.preemption:
            return False
        victims = self.book.place_over(lease, start_s)
        if victims is None:
            return False
        for victim in victims:
            planned = victim.state == "planned"
            self._actions += self.book.give_way(victim, start_s, lease)
            if victim.state == "waiting":
                self._requeue(victim)
                if planned:
                    self._actions.append(Wait(victim.id, f"its place went to lease {lease.id}"))
        if any(victim.state == "waiting" for victim in victims):
            self._wake_now()
        return True

    def _pause(self, job_id: str) -> None:
        """A lease that was to run until a reservation has done so."""
        lease = self.book.leases[job_id]
        self.book.paused(lease)
        self._requeue(lease)

    # -- what waits ---------------------------------------------------------------------------

    def _wait(self, lease: Lease, why: str) -> None:
        self._queue[lease.id] = lease
        self.book.leases[lease.id] = lease
        self._actions.append(Wait(lease.id, why))

    def _requeue(self, lease: Lease) -> None:
        self._queue[lease.id] = lease
        self._unsorted = True

    def _forget(self, job_id: str) -> None:
        self._queue.pop(job_id, None)

    def _wake_now(self) -> None:
        """Look at who waits when everything else of this instant has happened."""
        now_s = self.book.now_s
        if self._woken_s != now_s:
            self._woken_s = now_s
            self._actions.append(Wake(now_s))

    def _start_due(self) -> None:
        """Start what is planned for now; what is planned on hosts that got room, earlier."""
        now_s = self.book.now_s
        while self._plans and self._plans[0][0] <= now_s:
            start_s, _, lease_id = heapq.heappop(self._plans)
            lease = self.book.leases.get(lease_id)
            if lease is not None and lease.state == "planned" and lease.start_s == start_s:
                self._actions += self.book.start(lease)
        for lease in self.book.planned_on_freed():
            if self.book.move_up(lease):
                self._actions += self.book.start(lease)

    def _backfill(self) -> None:
        """Who waits without a plan, in order of arrival: as far as there is room."""
        self._woken_s = -1.0
        if not self.book.freed:
            return
        self.book.freed.clear()
        if self._unsorted:
            self._queue = dict(sorted(self._queue.items(), key=lambda item: item[1].order))
            self._unsorted = False
        # What did not fit for so long does not fit for longer either.
        failed: dict[tuple[Use, int], float] = {}
        for lease in list(islice(self._queue.values(), self.settings.depth)):
            size = (lease.each, lease.request.n_vms)
            if lease.remaining_s < failed.get(size, math.inf) and self.book.place_now(lease):
                del self._queue[lease.id]
                self._actions += self.book.start(lease)
            elif self._plan(lease):
                del self._queue[lease.id]
            else:
                failed[size] = min(failed.get(size, math.inf), lease.remaining_s)


GREEDY = Settings(preemption=False, earliest=False, depth=1)
"""The default of Haizea as Section 5.1 describes it: greedy, without preemption and EAT."""


POLICIES = (
    PolicyKind(
        "mbfcbs",
        "leases: best fit by capacity; best effort gives way once to AR and IM",
        lambda _, settings: Mbfcbs(settings),
        Settings,
        leases=True,
        claims=("best-effort-preempted-once",),
    ),
)
