"""Base of lease policies over one view of free capacity, and reasons for
rejecting a lease.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

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
from testbed.schedulers.lease_capacity import (
    UNLIMITED_MIB,
    HeldLease,
    LeaseCapacity,
    cores_text,
)
from testbed.schedulers.policy import View


class LeasePolicy:
    """Base of lease policies: free capacity over time, plans by their start,
    and wakes.

    ``name`` and :meth:`arrive` are the policy's; a plan starts at its time, or
    earlier where its host has room before.
    """

    name: str
    capacity: LeaseCapacity

    def __init__(self, slot_s: float, *, best_fit: bool = True) -> None:
        self._slot_s = slot_s
        self._best_fit = best_fit
        self._plans: list[tuple[float, int, str]] = []
        self._coming: list[tuple[float, int, HeldLease]] = []
        self.actions: list[Action] = []
        self.begun = False
        self._woken_s = -1.0

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if not self.begun:
            self.begun = True
            self.capacity = LeaseCapacity(
                view.datacentre, self._slot_s, best_fit=self._best_fit
            )
        self.actions = []
        self.capacity.advance(view.now_s)
        match event:
            case Arrived(job_id):
                self._arrived(view, job_id)
            case Ended(job_id, _, more):
                self.capacity.leave(job_id)
                self.ended(job_id, more=more)
            case Preempted(job_id):
                self.preempted(job_id)
            case Woken():
                self._use_room()
        return self.actions

    def _arrived(self, view: View, job_id: str) -> None:
        # What waits takes room that came free at this instant before a lease
        # that arrives now. Not at the end itself: other leases may still be
        # about to end at this instant.
        if self._woken_s == view.now_s:
            self._use_room()
        lease = HeldLease(view.job(job_id), view.order(job_id))
        refusal = never_fits(self.capacity, lease, view.datacentre.n_links)
        if refusal is None:
            self.arrive(lease)
        else:
            self.actions.append(Reject(job_id, refusal))

    def arrive(self, lease: HeldLease) -> None:
        """Decides about a lease that could be served."""
        raise NotImplementedError

    def ended(self, job_id: str, *, more: bool) -> None:  # noqa: ARG002
        """Called when a lease has left; ``more`` leave at this instant."""
        self.wake_now()

    def preempted(self, job_id: str) -> None:
        """Called when a lease was preempted at the time that it was shortened
        to.
        """

    def woken(self) -> None:
        """Called when the room that came free is to be used; due plans have
        started.
        """

    def plan(self, lease: HeldLease, reason: str) -> None:
        """Lets a placed lease wait for its start."""
        heapq.heappush(self._plans, (lease.start_s, lease.order, lease.id))
        self.actions += [
            Wait(lease.id, reason, until_s=lease.start_s),
            Wake(lease.start_s),
        ]

    def comes_later(self, lease: HeldLease, why: str) -> bool:
        """Keeps a lease whose start has not come for :meth:`come`; False of any
        other.
        """
        wanted_s = lease.request.demand.wanted_s
        if wanted_s is None or wanted_s <= self.capacity.now_s:
            return False
        heapq.heappush(self._coming, (wanted_s, lease.order, lease))
        reason = f"its start, {wanted_s:.6g} s, has not come{why}"
        self.actions += [
            Wait(lease.id, reason, until_s=wanted_s),
            Wake(wanted_s),
        ]
        return True

    def come(self) -> Iterator[HeldLease]:
        """The leases whose start has come."""
        while self._coming and self._coming[0][0] <= self.capacity.now_s:
            yield heapq.heappop(self._coming)[2]

    def wake_now(self) -> None:
        """Asks for a look at waiting leases once all that ends at this instant
        has ended.
        """
        now_s = self.capacity.now_s
        if self._woken_s != now_s:
            self._woken_s = now_s
            self.actions.append(Wake(now_s))

    def _use_room(self) -> None:
        self._woken_s = -1.0
        # Due plans hold their place already: they start before waiting
        # leases are looked at.
        self._start_due()
        self.woken()

    def _start_due(self) -> None:
        """Starts plans for now; and earlier than planned those on hosts that
        got room.
        """
        capacity = self.capacity
        while self._plans and self._plans[0][0] <= capacity.now_s:
            start_s, _, lease_id = heapq.heappop(self._plans)
            lease = capacity.leases.get(lease_id)
            # A plan that was given up, or replaced, stays in the heap.
            if (
                lease is not None
                and lease.state == "planned"
                and lease.start_s == start_s
            ):
                self.actions += capacity.start(lease)
        for lease in capacity.planned_on_freed():
            if capacity.move_up(lease):
                self.actions += capacity.start(lease)


def never_fits(
    capacity: LeaseCapacity, lease: HeldLease, n_links: int
) -> str | None:
    """The reason why the empty data centre could not hold a lease; None where
    it could.
    """
    cores = lease.vm_size.cores
    # Leases have no bandwidth (assumption 3 of Section 3; decision 36).
    if lease.request.bandwidth_bps and n_links:
        return (
            "it asks for bandwidth, and leases have cores and memory alone"
        )
    most = int(capacity.fit_when_empty(lease.vm_size).sum())
    if most >= lease.request.n_vms:
        return None
    if most == 0:
        most_cores = int(capacity.calendar.cores.max())
        if cores > most_cores:
            return f"{cores_text(cores)} asked, no host has more than {most_cores}"
        return f"{lease.asks} asked, no host has more than {capacity.calendar.memory_mib.max()} MiB"
    return f"{lease.asks} asked, the empty hosts hold {most} of them"


def no_room(
    capacity: LeaseCapacity, lease: HeldLease, start_s: float
) -> str:
    """The reason for rejecting a firm lease: what such leave on the emptiest
    host.
    """
    end_s = start_s + lease.remaining_s
    calendar = capacity.calendar
    host = calendar.emptiest(start_s, end_s, firm=True)
    use = calendar.used(host, start_s, end_s, firm=True)
    left = cores_text(int(calendar.cores[host]) - use.cores)
    if (
        lease.vm_size.memory_mib
        and calendar.memory_mib[host] < UNLIMITED_MIB
    ):
        left += f" and {calendar.memory_mib[host] - use.memory_mib} MiB"
    return (
        f"from {start_s:.6g} s to {end_s:.6g} s advance, immediate and once preempted leases leave"
        f" {left} on {capacity.name(host)}, the emptiest host"
    )
