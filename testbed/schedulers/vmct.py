"""V-MCT: every lease to the host that completes it first; nothing is preempted
(MBFCBS, Eq. 13).

The time to transfer a lease, S/b, is the same to every host of a homogeneous
cluster (Section 3, assumption 3) and decides nothing. Advance reservations are
not known to it: such a lease is looked at when its start has come. What has to
start at a certain time and could only start later is rejected
(docs/decisions/38).
"""

from __future__ import annotations

from testbed.schedulers.actions import Reject
from testbed.schedulers.lease_capacity import HeldLease
from testbed.schedulers.lease_policy import LeasePolicy
from testbed.schedulers.policy import PolicyKind

SLOT_S = 600


class Vmct(LeasePolicy):
    """Minimum completion time over hosts that run what they were given in its
    order.
    """

    name = "v-mct"

    def __init__(self) -> None:
        super().__init__(SLOT_S, best_fit=False)

    def arrive(self, lease: HeldLease) -> None:
        if not self.comes_later(
            lease, ", and v-mct reserves nothing ahead"
        ):
            self._assign(lease)

    def woken(self) -> None:
        # Plans on freed hosts have moved up where they could; no lease
        # waits here without a plan.
        self.capacity.freed.clear()
        for lease in self.come():
            self._assign(lease)

    def _assign(self, lease: HeldLease) -> None:
        """To the host that completes it first: the same duration everywhere, so
        starts it first.
        """
        capacity = self.capacity
        wanted_s = lease.request.demand.wanted_s
        plan = capacity.earliest(lease)
        # The empty hosts can hold it, and are empty after all bookings.
        if plan is None:
            raise AssertionError(f"{lease.id}: hosts are never free")
        start_s, on = plan
        reason = f"{lease.asks} asked; {capacity.name(min(on))} completes it first"
        due_s = capacity.now_s if wanted_s is None else wanted_s
        if not lease.is_best_effort and start_s > due_s:
            reason += f" and has no room before {start_s:.6g} s"
            self.actions.append(Reject(lease.id, reason))
            return
        capacity.plan(lease, start_s, on)
        if start_s <= capacity.now_s:
            self.actions += capacity.start(lease)
        else:
            self.plan(lease, reason)


POLICIES = (
    PolicyKind(
        "v-mct",
        "leases: each to the host that completes it first, nothing preempted",
        lambda _, __: Vmct(),
        leases=True,
        claims=("no-preemption",),
    ),
)
