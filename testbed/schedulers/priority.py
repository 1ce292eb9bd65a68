"""Priority scheduling of leases by comparison matrices (Ghanbari and Othman; MBFCBS, Eq. 14).

Every lease has a priority by its type. Compared in pairs they make a matrix, pg_if = p_i / p_f and
so pg_if = 1 / pg_fi; its principal eigenvector ranks the leases. Who is first takes the first
available host; where none has room, running leases of lower priority go, as often as that happens.
Readings: docs/decisions/38.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from testbed.embedding.placement import Placement
from testbed.schedulers.actions import (
    Action,
    Arrived,
    Ended,
    Kill,
    Migrate,
    PolicyEvent,
    Preempt,
    Preempted,
    Reject,
    Start,
    Wait,
    Wake,
    Woken,
)
from testbed.schedulers.lease_capacity import Lease, LeaseCapacity
from testbed.schedulers.lease_policy import never_fits
from testbed.schedulers.policy import PolicyKind, View, parameter

DEPTH = 100
_WHOLE = (1.0, 1_000_000.0)


def priority_vector(priorities: Sequence[float]) -> npt.NDArray[np.float64]:
    """The principal eigenvector of the matrix p_i / p_f, with the sum 1.

    The matrix is consistent (pg_if · pg_fj = pg_ij), so that the iteration to its vector of weights
    ends in the first step: it is p / Σp.
    """
    given = np.asarray(priorities, dtype=np.float64)
    vector: npt.NDArray[np.float64] = given / given.sum()
    return vector


@dataclass(frozen=True)
class Priorities:
    """The predetermined priorities of the three types, on any scale."""

    advance: int = parameter(3, "priority of advance reservations", limits=_WHOLE)
    immediate: int = parameter(2, "priority of immediate leases", limits=_WHOLE)
    best_effort: int = parameter(1, "priority of best-effort leases", limits=_WHOLE)

    def of(self, lease: Lease) -> int:
        if lease.type == "advance":
            return self.advance
        return self.immediate if lease.type == "immediate" else self.best_effort


@dataclass
class _Host:
    """Free capacity of a host now, and the leases that run there."""

    cores: int
    memory_mib: int
    running: dict[str, Lease] = field(default_factory=dict)


class Priority:
    """Highest priority first, first host first, preempting whatever is lower."""

    name = "priority"

    def __init__(self, priorities: Priorities | None = None, depth: int = DEPTH) -> None:
        self.priorities = priorities or Priorities()
        self._depth = depth
        self._capacity: LeaseCapacity | None = None
        self._hosts: list[_Host] = []
        self._leases: dict[str, Lease] = {}
        self._waiting: dict[str, Lease] = {}
        self._coming: list[tuple[float, int, Lease]] = []
        self._actions: list[Action] = []
        self._now_s = 0.0
        self._woken_s = -1.0
        self._root = 0
        self._freed = False

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        self._actions, self._now_s = [], view.now_s
        book = self._meet(view)
        match event:
            case Arrived(job_id):
                self._arrive(book, Lease(view.job(job_id), view.order(job_id)), view)
            case Ended(job_id):
                lease = self._leases.pop(job_id, None)
                if lease is not None:
                    self._leave(lease)
                self._wake_now()
            case Woken():
                self._woken_s = -1.0
                due = []
                while self._coming and self._coming[0][0] <= self._now_s:
                    due.append(heapq.heappop(self._coming)[2])
                self._serve(due)
            case Preempted():
                pass
        return self._actions

    def _meet(self, view: View) -> LeaseCapacity:
        if self._capacity is None:
            self._capacity = book = LeaseCapacity(view.datacentre, 3600)
            self._root = view.datacentre.trees[0].root
            pairs = zip(
                book.calendar.cores.tolist(), book.calendar.memory_mib.tolist(), strict=True
            )
            self._hosts = [_Host(cores, memory) for cores, memory in pairs]
        return self._capacity

    def _arrive(self, book: LeaseCapacity, lease: Lease, view: View) -> None:
        refusal = never_fits(book, lease, view.datacentre.n_links)
        wanted_s = lease.request.demand.wanted_s
        if refusal is not None:
            self._actions.append(Reject(lease.id, refusal))
        elif wanted_s is not None and wanted_s > self._now_s:
            heapq.heappush(self._coming, (wanted_s, lease.order, lease))
            reason = f"its start, {wanted_s:.6g} s, has not come: nothing is reserved ahead"
            self._actions += [Wait(lease.id, reason, until_s=wanted_s), Wake(wanted_s)]
        else:
            self._freed = True
            self._serve([lease])

    def _serve(self, new: list[Lease]) -> None:
        """Serves waiting leases by priority vector: the largest element first, then by arrival."""
        old = list(self._waiting.values()) if self._freed or new else []
        old.sort(key=lambda lease: lease.order)
        everyone = new + old[: self._depth]
        self._freed = False
        if not everyone:
            return
        vector = priority_vector([self.priorities.of(lease) for lease in everyone]).tolist()
        ranked = sorted(zip(vector, everyone, strict=True), key=lambda one: (-one[0], one[1].order))
        failed: set[tuple[int, int, int]] = set()
        for _, lease in ranked:
            size = (*lease.each, lease.request.n_vms)
            if size in failed and lease.id in self._waiting:
                continue
            if self._place(lease) or self._place_over(lease):
                self._start(lease)
            elif lease.type in ("advance", "immediate"):
                reason = (
                    f"{lease.asks} asked now, and leases of its priority or above hold too many"
                )
                self._actions.append(Reject(lease.id, reason))
            else:
                failed.add(size)
                if lease.id not in self._waiting:
                    self._actions.append(Wait(lease.id, f"{lease.asks} asked, no host has them"))
                self._waiting[lease.id] = lease

    def _place(self, lease: Lease) -> bool:
        """The first hosts with room. O(hosts)."""
        left = lease.request.n_vms
        on: dict[int, int] = {}
        for number, host in enumerate(self._hosts):
            count = min(left, _room(host.cores, host.memory_mib, lease))
            if count > 0:
                on[number] = count
                left -= count
            if not left:
                lease.on = on
                return True
        return False

    def _place_over(self, lease: Lease) -> bool:
        """The first hosts with room if all of lower priority go; those that must do."""
        mine = self.priorities.of(lease)
        left, on = lease.request.n_vms, dict[int, int]()
        lower: dict[int, list[Lease]] = {}
        for number, host in enumerate(self._hosts):
            below = [v for v in host.running.values() if self.priorities.of(v) < mine]
            cores = host.cores + sum(v.on[number] * v.each.cores for v in below)
            memory = host.memory_mib + sum(v.on[number] * v.each.memory_mib for v in below)
            count = min(left, _room(cores, memory, lease))
            if count > 0:
                on[number], lower[number] = count, below
                left -= count
            if not left:
                break
        if left:
            return False
        for number, count in on.items():
            # The lowest priority first, and among equals the latest start.
            for victim in sorted(
                lower[number], key=lambda v: (self.priorities.of(v), -v.start_s, -v.order)
            ):
                host = self._hosts[number]
                if _room(host.cores, host.memory_mib, lease) >= count:
                    break
                if victim.id in self._leases:
                    self._put_off(victim, lease)
        lease.on = on
        return True

    def _put_off(self, victim: Lease, by: Lease) -> None:
        """A best-effort lease waits again; an immediate one cannot, and has failed."""
        if victim.type == "immediate":
            reason = f"preempted by lease {by.id}: an immediate lease cannot wait"
            self._actions.append(Kill(victim.id, reason))
        else:
            self._actions.append(Preempt(victim.id, f"{by.type} lease {by.id}"))
            victim.remaining_s -= self._now_s - victim.start_s
            self._waiting[victim.id] = victim
        del self._leases[victim.id]
        self._leave(victim)
        self._wake_now()

    def _start(self, lease: Lease) -> None:
        self._waiting.pop(lease.id, None)
        self._leases[lease.id] = lease
        for number, count in lease.on.items():
            host = self._hosts[number]
            host.cores -= count * lease.each.cores
            host.memory_mib -= count * lease.each.memory_mib
            host.running[lease.id] = lease
        lease.start_s = self._now_s
        end_s = self._now_s + lease.remaining_s
        placement = Placement(self._root, tuple(sorted(lease.on.items())))
        if lease.began:
            on = Migrate(
                lease.id, placement, "there is room", reserve_until_s=end_s, kill_at_end=True
            )
            self._actions.append(on)
            return
        lease.began = True
        rate_bps = lease.request.bandwidth_bps
        self._actions.append(Start(lease.id, placement, rate_bps, end_s, kill_at_end=True))

    def _leave(self, lease: Lease) -> None:
        for number, count in lease.on.items():
            host = self._hosts[number]
            host.cores += count * lease.each.cores
            host.memory_mib += count * lease.each.memory_mib
            del host.running[lease.id]
        lease.on = {}
        self._freed = True

    def _wake_now(self) -> None:
        if self._woken_s != self._now_s:
            self._woken_s = self._now_s
            self._actions.append(Wake(self._now_s))


def _room(cores: int, memory_mib: int, lease: Lease) -> int:
    """Number of a lease's VMs that fit."""
    fit = cores // lease.each.cores
    return min(fit, memory_mib // lease.each.memory_mib) if lease.each.memory_mib else fit


@dataclass(frozen=True)
class PriorityParameters(Priorities):
    depth: int = parameter(DEPTH, "waiting leases that are looked at", limits=(1.0, 1_000_000.0))


POLICIES = (
    PolicyKind(
        "priority",
        "leases: the highest priority first, lower ones preempted as often as it takes",
        lambda _, given: Priority(given, given.depth),
        PriorityParameters,
        leases=True,
    ),
)
