"""V-MCT: every lease to the host that completes it first; nothing is preempted (MBFCBS, Eq. 13).

The time to transfer a lease, S/b, is the same to every host of a homogeneous cluster (Section 3,
assumption 3) and decides nothing. Advance reservations are not known to it: such a lease is looked
at when its start has come. What has to start at a certain time and could only start later is
rejected (docs/decisions/38).
"""

from __future__ import annotations

import heapq

from testbed.schedulers.actions import (
    Reject,
    Wait,
    Wake,
)
from testbed.schedulers.lease_capacity import Lease, LeaseCapacity
from testbed.schedulers.lease_policy import LeasePolicy
from testbed.schedulers.policy import PolicyKind

SLOT_S = 600


class Vmct(LeasePolicy):
    """Minimum completion time over hosts that run what they were given in its order."""

    name = "v-mct"

    def __init__(self) -> None:
        super().__init__(SLOT_S, reserves=False, most_used_first=False)
        self._coming: list[tuple[float, int, Lease]] = []

    def arrive(self, lease: Lease) -> None:
        wanted_s = lease.request.demand.wanted_s
        if wanted_s is not None and wanted_s > self.capacity.now_s:
            heapq.heappush(self._coming, (wanted_s, lease.order, lease))
            reason = f"its start, {wanted_s:.6g} s, has not come, and v-mct reserves nothing ahead"
            self.actions += [Wait(lease.id, reason, until_s=wanted_s), Wake(wanted_s)]
        else:
            self._assign(self.capacity, lease)

    def ended(self, job_id: str, *, more: bool) -> None:  # noqa: ARG002 - each end is looked at
        self.wake_now()

    def woken(self) -> None:
        self.capacity.freed.clear()
        while self._coming and self._coming[0][0] <= self.capacity.now_s:
            self._assign(self.capacity, heapq.heappop(self._coming)[2])

    def _assign(self, capacity: LeaseCapacity, lease: Lease) -> None:
        """To the host that completes it first: the same duration everywhere, so starts it first."""
        timed = lease.type in ("advance", "immediate")
        if not capacity.place_earliest(lease):
            self.actions.append(Reject(lease.id, f"{lease.asks} asked; no host will have them"))
            return
        due_s = lease.request.demand.wanted_s
        if timed and lease.start_s > (capacity.now_s if due_s is None else due_s):
            reason = (
                f"{lease.asks} asked; {capacity.name(min(lease.on))} completes it first and has no"
            )
            self.actions.append(Reject(lease.id, f"{reason} room before {lease.start_s:.6g} s"))
            capacity.withdraw(lease)
        elif lease.start_s <= capacity.now_s:
            self.actions += capacity.start(lease)
        else:
            self.plan(
                lease, f"{lease.asks} asked; {capacity.name(min(lease.on))} completes it first"
            )


POLICIES = (
    PolicyKind(
        "v-mct",
        "leases: each to the host that completes it first, nothing preempted",
        lambda _, __: Vmct(),
        leases=True,
        claims=("no-preemption",),
    ),
)
