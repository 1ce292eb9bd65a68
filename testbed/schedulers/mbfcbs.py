"""MBFCBS: modified best fit with capacity based scheduling of leases (Algorithm
1).

Advance reservations (AR) are accepted for their start, or rejected on arrival.
Immediate leases (IM) start on arrival or are rejected. Best-effort leases (BE)
start when there is room; AR or IM may preempt each of them once, and it resumes
afterwards. The paper's text is interpreted in docs/decisions/36 to 38.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from testbed.schedulers.actions import Reject, Wait
from testbed.schedulers.lease_calendar import Use
from testbed.schedulers.lease_capacity import HeldLease
from testbed.schedulers.lease_policy import LeasePolicy, no_room
from testbed.schedulers.policy import PolicyKind, parameter

SLOT_S = 600.0
DEPTH = 100


@dataclass(frozen=True)
class Settings:
    """Parameters of the algorithm.

    ``preemption`` and ``earliest``: its additions to a greedy one (Section
    5.1). ``slot_s``: α, the length of the calendar's buckets. ``depth``: waiting
    best-effort leases that may find no room before the search over the queue
    ends; with as many waiting, a new one is queued without a try. A depth of 1
    is first come, first served.
    """

    preemption: bool = parameter(
        default=True, help="best effort leaves for AR and IM"
    )
    earliest: bool = parameter(
        default=True, help="best effort starts as early as it can"
    )
    slot_s: float = parameter(
        SLOT_S,
        "α, the calendar's bucket",
        unit="s",
        limits=(1.0, 1_000_000.0),
    )
    depth: int = parameter(
        DEPTH,
        "waiting best-effort leases that may find no room before the search ends",
        limits=(1.0, 1_000_000.0),
    )


class Mbfcbs(LeasePolicy):
    """Algorithm 1 over the calendar and the availability list
    (:class:`LeaseCapacity`).
    """

    name = "mbfcbs"

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        super().__init__(self.settings.slot_s)
        # Best-effort leases that wait without a plan, by order of arrival.
        self._queue: dict[str, HeldLease] = {}
        self._unsorted = False

    def ended(self, job_id: str, *, more: bool) -> None:
        self._queue.pop(job_id, None)
        # Waiting leases are looked at once, after the last end of an
        # instant.
        if not more:
            self.wake_now()

    # -- what arrives -------------------------------------------------------------------------

    def arrive(self, lease: HeldLease) -> None:
        if lease.type == "advance":
            self._advance(lease)
        elif lease.type == "immediate":
            self._immediate(lease)
        elif len(self._queue) >= self.settings.depth:
            self._wait(
                lease,
                f"it waits behind {len(self._queue)} best-effort leases",
            )
        else:
            self._best_effort(lease)

    def _best_effort(self, lease: HeldLease) -> None:
        """Lines 2 to 6: start now, plan the earliest start, or queue it."""
        capacity = self.capacity
        if capacity.place_now(lease):
            self.actions += capacity.start(lease)
        elif not self._plan(lease):
            why = ""
            if self.settings.earliest:
                why = ", or every host has an advance reservation"
            self._wait(
                lease, f"{lease.asks} asked; no host has them free now{why}"
            )

    def _plan(self, lease: HeldLease) -> bool:
        """Line 4: plan a lease on the hosts that have room first.

        Hosts with an advance reservation are left out. False if none is found.
        """
        if not self.settings.earliest:
            return False
        plan = self.capacity.earliest(lease)
        if plan is None:
            return False
        start_s, on = plan
        self.capacity.plan(lease, start_s, on)
        hosts = ", ".join(map(self.capacity.name, lease.on))
        self.plan(
            lease,
            f"{lease.asks} asked; the first room for good is on {hosts}, at {lease.start_s:.6g} s",
        )
        return True

    def _immediate(self, lease: HeldLease) -> None:
        """Lines 7 to 12: start now, preempting if need be, or reject."""
        now_s = self.capacity.now_s
        # Lines 9 to 11 ask for a host whose earliest time is the start
        # itself (read as EAT ≤ ST): that is room now, which line 8 has
        # asked for.
        if self.capacity.place_now(lease) or self._take(lease, now_s):
            self.actions += self.capacity.start(lease)
        else:
            self._reject(lease, now_s, " at once")

    def _advance(self, lease: HeldLease) -> None:
        """Lines 13 to 19: reserve its start, preempting if need be, or reject."""
        start_s = lease.request.demand.wanted_s
        if start_s is None or start_s < self.capacity.now_s:
            self.actions.append(
                Reject(lease.id, f"its start, {start_s} s, has passed")
            )
        # "First host" (line 14) is read as the best fit among all that
        # qualify.
        elif self.capacity.place_at(lease, start_s) or self._take(
            lease, start_s
        ):
            self.actions += self.capacity.reserve(lease)
        else:
            self._reject(lease, start_s)

    def _reject(
        self, lease: HeldLease, start_s: float, when: str = ""
    ) -> None:
        reason = f"{lease.asks} asked{when}, {no_room(self.capacity, lease, start_s)}"
        self.actions.append(Reject(lease.id, reason))

    # -- preemption ---------------------------------------------------------------------------

    def _take(self, lease: HeldLease, start_s: float) -> bool:
        """Lines 22 to 32: place an AR or IM lease by preempting BE leases.

        Only those whose flag is 1: they were never preempted. False if that
        does not make enough room.
        """
        if not self.settings.preemption:
            return False
        victims = self.capacity.place_over(lease, start_s)
        if victims is None:
            return False
        for victim in victims:
            self._preempt(victim, start_s, lease)
        # A lease that was put off may fit on another host at once.
        if any(victim.state == "waiting" for victim in victims):
            self.wake_now()
        return True

    def _preempt(
        self, victim: HeldLease, start_s: float, lease: HeldLease
    ) -> None:
        planned = victim.state == "planned"
        self.actions += self.capacity.preempt(victim, start_s, lease)
        # One that runs until the reservation begins is queued then.
        if victim.state != "waiting":
            return
        self._requeue(victim)
        if planned:
            reason = f"its place went to lease {lease.id}"
            self.actions.append(Wait(victim.id, reason))

    def preempted(self, job_id: str) -> None:
        """Queue a lease again that ran until the reservation that preempts it."""
        lease = self.capacity.leases[job_id]
        self.capacity.vacate(lease)
        self._requeue(lease)
        self.wake_now()

    # -- what waits ---------------------------------------------------------------------------

    def _wait(self, lease: HeldLease, why: str) -> None:
        self._queue[lease.id] = lease
        self.capacity.leases[lease.id] = lease
        self.actions.append(Wait(lease.id, why))

    def _requeue(self, lease: HeldLease) -> None:
        self._queue[lease.id] = lease
        self._unsorted = True

    def woken(self) -> None:
        """Backfill: start or plan waiting leases that fit, by arrival."""
        if not self.capacity.freed:
            return
        self.capacity.freed.clear()
        if self._unsorted:
            self._queue = dict(
                sorted(self._queue.items(), key=lambda item: item[1].order)
            )
            self._unsorted = False
        # Shortest time, by size, for which a lease found no room: a longer one
        # of the same size needs no try.
        failed: dict[tuple[Use, int], float] = {}
        n_without_room = 0
        placed = []
        for lease in self._queue.values():
            if n_without_room == self.settings.depth:
                break
            size = (lease.vm_size, lease.request.n_vms)
            failed_s = failed.get(size, math.inf)
            if lease.remaining_s < failed_s and self.capacity.place_now(
                lease
            ):
                self.actions += self.capacity.start(lease)
                placed.append(lease.id)
            elif self._plan(lease):
                placed.append(lease.id)
            else:
                n_without_room += 1
                failed[size] = min(failed_s, lease.remaining_s)
        for lease_id in placed:
            del self._queue[lease_id]


POLICIES = (
    PolicyKind(
        "mbfcbs",
        "leases: best fit by capacity; best effort is preempted once by AR and IM",
        lambda _, settings: Mbfcbs(settings),
        Settings,
        leases=True,
        claims=("best-effort-preempted-once",),
    ),
)
