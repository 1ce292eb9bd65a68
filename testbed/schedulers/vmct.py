"""V-MCT: every lease to the host that completes it first; nothing is preempted (MBFCBS, Eq. 13).

The time to transfer a lease, S/b, is the same to every host of a homogeneous cluster (Section 3,
assumption 3) and decides nothing. Advance reservations are not known to it: such a lease is looked
at when its start has come. What has to start at a certain time and could only start later is
rejected (docs/decisions/38).
"""

from __future__ import annotations

import heapq

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
from testbed.schedulers.lease_book import Lease, LeaseBook
from testbed.schedulers.lease_reasons import never_fits
from testbed.schedulers.policy import PolicyKind, View

SLOT_S = 600


class Vmct:
    """Minimum completion time over hosts that run what they were given in its order."""

    name = "v-mct"

    def __init__(self) -> None:
        self._book: LeaseBook | None = None
        self._coming: list[tuple[float, int, Lease]] = []
        self._plans: list[tuple[float, int, str]] = []
        self._actions: list[Action] = []
        self._woken_s = -1.0

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if self._book is None:
            self._book = LeaseBook(view.datacentre, SLOT_S, reserves=False, most_used_first=False)
        book, self._actions = self._book, []
        book.advance(view.now_s)
        match event:
            case Arrived(job_id):
                self._arrive(book, Lease(view.job(job_id), view.order(job_id)), view)
            case Ended(job_id):
                book.leave(job_id)
                if self._woken_s != view.now_s:
                    self._woken_s = view.now_s
                    self._actions.append(Wake(view.now_s))
            case Woken():
                self._start_due(book)
            case Preempted():
                pass
        return self._actions

    def _arrive(self, book: LeaseBook, lease: Lease, view: View) -> None:
        refusal = never_fits(book, lease, view.datacentre.n_links)
        wanted_s = lease.request.demand.wanted_s
        if refusal is not None:
            self._actions.append(Reject(lease.id, refusal))
        elif wanted_s is not None and wanted_s > book.now_s:
            heapq.heappush(self._coming, (wanted_s, lease.order, lease))
            said = f"its start, {wanted_s:.6g} s, has not come, and v-mct reserves nothing ahead"
            self._actions += [Wait(lease.id, said, until_s=wanted_s), Wake(wanted_s)]
        else:
            self._assign(book, lease)

    def _assign(self, book: LeaseBook, lease: Lease) -> None:
        """To the host that completes it first: the same duration everywhere, so starts it first."""
        timed = lease.type in ("advance", "immediate")
        if not book.place_earliest(lease):
            self._actions.append(Reject(lease.id, f"{lease.asks} asked; no host will have them"))
            return
        due_s = lease.request.demand.wanted_s
        if timed and lease.start_s > (book.now_s if due_s is None else due_s):
            said = f"{lease.asks} asked; {book.name(min(lease.on))} completes it first and has no"
            self._actions.append(Reject(lease.id, f"{said} room before {lease.start_s:.6g} s"))
            book.withdraw(lease)
        elif lease.start_s <= book.now_s:
            self._actions += book.start(lease)
        else:
            heapq.heappush(self._plans, (lease.start_s, lease.order, lease.id))
            said = f"{lease.asks} asked; {book.name(min(lease.on))} completes it first"
            self._actions += [Wait(lease.id, said, until_s=lease.start_s), Wake(lease.start_s)]

    def _start_due(self, book: LeaseBook) -> None:
        self._woken_s = -1.0
        while self._plans and self._plans[0][0] <= book.now_s:
            start_s, _, lease_id = heapq.heappop(self._plans)
            lease = book.leases.get(lease_id)
            if lease is not None and lease.state == "planned" and lease.start_s == start_s:
                self._actions += book.start(lease)
        for lease in book.planned_on_freed():
            if book.move_up(lease):
                self._actions += book.start(lease)
        book.freed.clear()
        while self._coming and self._coming[0][0] <= book.now_s:
            self._assign(book, heapq.heappop(self._coming)[2])


POLICIES = (
    PolicyKind(
        "v-mct",
        "leases: each to the host that completes it first, nothing preempted",
        lambda _, __: Vmct(),
        leases=True,
        claims=("no-preemption",),
    ),
)
