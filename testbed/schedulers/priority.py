"""Priority scheduling of leases by comparison matrices (Ghanbari and Othman;
MBFCBS, Eq. 14).

Every lease has a priority by its type. Compared in pairs they make a matrix,
pg_if = p_i / p_f and so pg_if = 1 / pg_fi; its principal eigenvector ranks the
leases. Who is first takes the first available host; where none has room,
running leases of lower priority go, as often as that happens. Readings:
docs/decisions/38.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.schedulers.actions import Kill, Preempt, Reject, Wait
from testbed.schedulers.lease_capacity import (
    HeldLease,
    first_hosts,
    fitting,
)
from testbed.schedulers.lease_policy import LeasePolicy
from testbed.schedulers.policy import PolicyKind, parameter
from topologies.datacentre import IntArray

SLOT_S = 3600.0
HOUR_S = 3600.0
"""A lease's work is in core hours."""
CRITERIA = ("type", "work")
_WHOLE = (1.0, 1_000_000.0)


def priority_vector(priorities: Sequence[float]) -> npt.NDArray[np.float64]:
    """The principal eigenvector of the matrix p_i / p_f, with the sum 1.

    The matrix is consistent (pg_if · pg_fj = pg_ij), so that the iteration to
    its vector of weights ends in the first step: it is p / Σp.
    """
    weights = np.asarray(priorities, dtype=np.float64)
    vector: npt.NDArray[np.float64] = weights / weights.sum()
    return vector


@dataclass(frozen=True)
class Priorities:
    """The predetermined priorities of the three types, on any scale; how many
    are looked at.
    """

    advance: int = parameter(
        3, "priority of advance reservations", limits=_WHOLE
    )
    immediate: int = parameter(
        2, "priority of immediate leases", limits=_WHOLE
    )
    best_effort: int = parameter(
        1, "priority of best-effort leases", limits=_WHOLE
    )
    depth: int = parameter(
        100, "waiting leases that are looked at", limits=_WHOLE
    )
    criterion: str = parameter(
        "type",
        "what a lease's priority goes by: its type, or its type over the work that it asks for",
        choices=CRITERIA,
    )

    def of(self, lease: HeldLease) -> float:
        """A lease's priority, on any scale."""
        priority = float(self._of_type(lease))
        if self.criterion == "work":
            request = lease.request
            vm_s = request.n_vms * request.stated_s
            priority /= lease.vm_size.cores * vm_s / HOUR_S
        return priority

    def _of_type(self, lease: HeldLease) -> int:
        if lease.type == "advance":
            return self.advance
        if lease.type == "immediate":
            return self.immediate
        return self.best_effort


class Priority(LeasePolicy):
    """Highest priority first, first host first, preempting whatever is lower."""

    name = "priority"

    def __init__(self, priorities: Priorities) -> None:
        super().__init__(SLOT_S)
        self.priorities = priorities
        self._waiting: dict[str, HeldLease] = {}

    def arrive(self, lease: HeldLease) -> None:
        if not self.comes_later(lease, ": nothing is reserved ahead"):
            self._serve([lease])

    def woken(self) -> None:
        self._serve(list(self.come()))

    def _serve(self, new: list[HeldLease]) -> None:
        """Serves waiting leases by priority vector: the largest element first,
        then by arrival.
        """
        # Without news and without room that came free, waiting leases would
        # fail as they did before.
        considered = list(new)
        if self.capacity.freed or new:
            waiting = sorted(self._waiting.values(), key=lambda w: w.order)
            considered += waiting[: self.priorities.depth]
        self.capacity.freed.clear()
        if not considered:
            return
        # Waiting leases of a size that found no room before need no try.
        failed: set[tuple[int, int, int]] = set()
        for lease in self._by_priority(considered):
            size = (*lease.vm_size, lease.request.n_vms)
            if size in failed and lease.id in self._waiting:
                continue
            if self._try(lease):
                continue
            if lease.is_best_effort:
                failed.add(size)
                self._wait(lease)
            else:
                reason = (
                    f"{lease.asks} asked now, and leases of its priority"
                    " or above hold too many"
                )
                self.actions.append(Reject(lease.id, reason))

    def _try(self, lease: HeldLease) -> bool:
        """Starts a lease on hosts that have room, or that lower ones leave."""
        on = first_hosts(self._room(lease), lease.request.n_vms)
        if on is None:
            on = self._clear_hosts(lease)
        if on is None:
            return False
        self._waiting.pop(lease.id, None)
        self.actions += self.capacity.start_on(lease, on)
        return True

    def _by_priority(self, leases: Sequence[HeldLease]) -> list[HeldLease]:
        vector = priority_vector(list(map(self.priorities.of, leases)))
        orders = np.array([lease.order for lease in leases])
        ranked = np.lexsort((orders, -vector))
        return [leases[place] for place in ranked]

    def _wait(self, lease: HeldLease) -> None:
        if lease.id not in self._waiting:
            reason = f"{lease.asks} asked, no host has them"
            self.actions.append(Wait(lease.id, reason))
        self._waiting[lease.id] = lease

    def _room(
        self, lease: HeldLease, without: Sequence[HeldLease] = ()
    ) -> IntArray:
        """Number of a lease's VMs that fit on every host now, if some leases
        go.
        """
        available = self.capacity.available
        available.update(self.capacity.now_s)
        cores = available.free_cores.copy()
        memory_mib = available.free_memory_mib.copy()
        for other in without:
            for host, count in other.on.items():
                cores[host] += count * other.vm_size.cores
                memory_mib[host] += count * other.vm_size.memory_mib
        return fitting(cores, memory_mib, lease.vm_size)

    def _clear_hosts(self, lease: HeldLease) -> dict[int, int] | None:
        """The first hosts with room if all of lower priority go; those that
        must do.
        """
        mine = self.priorities.of(lease)
        lower = []
        for other in self.capacity.leases.values():
            if self.priorities.of(other) < mine:
                lower.append(other)
        # If even all lower ones together leave too little, nobody is put
        # off.
        on = first_hosts(self._room(lease, lower), lease.request.n_vms)
        if on is None:
            return None
        # The lowest priority first, and among equals the latest start.
        lower.sort(
            key=lambda v: (self.priorities.of(v), -v.start_s, -v.order)
        )
        for host, count in on.items():
            for victim in lower:
                # As many go as the host needs, and no more.
                if host in victim.on and self._room(lease)[host] < count:
                    self._put_off(victim, lease)
        return on

    def _put_off(self, victim: HeldLease, by: HeldLease) -> None:
        """A best-effort lease waits again; another one cannot, and has failed."""
        if victim.is_best_effort:
            reason = f"{by.type} lease {by.id}"
            self.actions.append(Preempt(victim.id, reason))
            self._waiting[victim.id] = victim
        else:
            reason = f"preempted by lease {by.id}: an {victim.type} lease cannot wait"
            self.actions.append(Kill(victim.id, reason))
        self.capacity.leave(victim.id)
        self.wake_now()


POLICIES = (
    PolicyKind(
        "priority",
        "leases: the highest priority first, lower ones preempted as often as it takes",
        lambda _, priorities: Priority(priorities),
        Priorities,
        leases=True,
    ),
)
