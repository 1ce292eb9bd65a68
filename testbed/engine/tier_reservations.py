"""Reservations in each tier of the nodes; every placement is checked first.

The foreground has the slots and the links. The background has as many slots
again and no links: its VMs run on what CPU the foreground leaves (CMBF, Section
4.2), so nothing in it may reserve bandwidth.

In a data centre without links and memory sizes, a tier in which everything is
held from now on until it is given back needs no calendar: :class:`SlotCounters`
are enough. The first thing that
they cannot represent (a reservation with an end, a question about the future, a
look at the ledger) makes the tier a :class:`~testbed.reservation.ledger.Ledger`
for good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import numpy as np

from jobs.request import JobRequest
from testbed.embedding.check import check_placement
from testbed.embedding.placement import (
    ONE_SLOT,
    Placement,
    Residual,
    VmSize,
)
from testbed.engine.refusals import ActionRefused, refusing
from testbed.errors import RunFailed
from testbed.reservation.ledger import Ledger, LedgerBroken
from testbed.schedulers.actions import Tier
from topologies.datacentre import DataCentre


class SlotCounters:
    """Slots held from now on until they are given back, on servers without
    links.
    """

    def __init__(self, datacentre: DataCentre) -> None:
        self.free: list[int] = datacentre.slots.tolist()
        self.held: dict[str, tuple[Placement, int]] = {}
        self._datacentre = datacentre
        self._roots = {tree.root for tree in datacentre.trees}

    def reserve(
        self, job_id: str, n_vms: int, placement: Placement, rate_bps: int
    ) -> bool:
        """Checks and holds a placement; returns False, changing nothing, where anything
        is wrong with it.
        """
        if placement.root not in self._roots or job_id in self.held:
            return False
        processes = placement.processes
        try:
            fits = self._take(placement.vms_on, n_vms)
        except IndexError:
            fits = False  # There is no such server.
        if not fits or (
            processes and sorted(processes) != list(range(n_vms))
        ):
            # Some servers may have been taken before the fault was met.
            self.free = self._left()
            return False
        self.held[job_id] = (placement, rate_bps)
        return True

    def _take(
        self, vms_on: tuple[tuple[int, int], ...], n_vms: int
    ) -> bool:
        """Takes a placement's slots up to the first fault; True without one."""
        free = self.free
        before = -1
        placed = 0
        for server, count in vms_on:
            left = free[server] - count
            # Servers rise, which shows one that is named twice without a set.
            if left < 0 or count < 1 or server <= before:
                return False
            free[server] = left
            before = server
            placed += count
        return placed == n_vms

    def _left(self) -> list[int]:
        """Free slots, counted from the placements held."""
        free: list[int] = self._datacentre.slots.tolist()
        for placement, _ in self.held.values():
            for server, count in placement.vms_on:
                free[server] -= count
        return free

    def release(self, job_id: str) -> None:
        free = self.free
        for server, count in self.held.pop(job_id)[0].vms_on:
            free[server] += count

    def check(self) -> None:
        """Recounts free slots from the placements held; raises LedgerBroken on
        a difference.
        """
        if self.free != self._left() or min(self.free, default=0) < 0:
            raise LedgerBroken("what is free is not what the jobs leave")


class SingleSlotCounters(SlotCounters):
    """The same where every server has one slot, as all clusters of whole nodes
    do: held or free.
    """

    def _take(
        self, vms_on: tuple[tuple[int, int], ...], n_vms: int
    ) -> bool:
        free = self.free
        before = -1
        for server, count in vms_on:
            if count != 1 or server <= before or not free[server]:
                return False
            free[server] = 0
            before = server
        return len(vms_on) == n_vms

    def release(self, job_id: str) -> None:
        free = self.free
        for server, _ in self.held.pop(job_id)[0].vms_on:
            free[server] = 1


class Reservations:
    """Reservations of both tiers; each holding is in exactly one of them.

    ``now_s`` is kept by the engine. A tier has ``counters`` while they will do
    (else None), and from then on one of the ``ledgers``.
    """

    def __init__(self, datacentre: DataCentre) -> None:
        self._datacentre = datacentre
        self.now_s = 0.0
        self.ledgers: dict[Tier, Ledger] = {}
        self.counters: dict[Tier, SlotCounters | None] = {
            "foreground": None,
            "background": None,
        }
        # A link's rate, and memory, need the ledger from the start.
        if not datacentre.n_links and datacentre.memory_mib is None:
            kind = SlotCounters
            if (datacentre.slots == 1).all():
                kind = SingleSlotCounters
            for tier in self.counters:
                self.counters[tier] = kind(datacentre)

    def ledger(self, tier: Tier = "foreground") -> Ledger:
        """A tier's ledger, which replaces its counters for good."""
        if tier not in self.ledgers:
            self.ledgers[tier] = ledger = Ledger(self._datacentre)
            # A ledger that begins now holds nothing of the past, and
            # refuses questions about it.
            ledger.forget_before(self.now_s)
            counters = self.counters[tier]
            self.counters[tier] = None
            held = counters.held if counters else {}
            for job_id, (placement, rate_bps) in held.items():
                ledger.reserve(
                    job_id,
                    placement,
                    rate_bps,
                    start_s=self.now_s,
                    end_s=None,
                )
        return self.ledgers[tier]

    def residual(
        self, start_s: float, end_s: float | None, tier: Tier
    ) -> Residual:
        """The least that is free in a tier at any instant of ``[start_s,
        end_s)``.
        """
        counters = self.counters[tier]
        # Everything here is open-ended: what is free now is free for good.
        if counters is not None and start_s == self.now_s:
            links = np.zeros(0, dtype=np.int64)
            return Residual(np.array(counters.free, dtype=np.int64), links)
        return self.ledger(tier).residual(start_s, end_s)

    def reserve(
        self,
        job: JobRequest,
        placement: Placement,
        rate_bps: int,
        *,
        tier: Tier,
        start_s: float,
        end_s: float | None,
    ) -> None:
        """Checks a placement independently, then reserves it. Raises
        ActionRefused.
        """
        job_id = job.id
        n_vms = job.n_vms
        size = ONE_SLOT
        if rate_bps and tier == "background":
            raise ActionRefused(
                f"{rate_bps} bit/s asked in the background, which has no links"
            )
        demand = job.demand
        if demand.cores != 1 or demand.memory_mib:
            size = VmSize(demand.cores, demand.memory_mib)
        elif end_s is None and start_s == self.now_s:
            # The common case of long traces. Where the counters refuse, the
            # full check below finds the reason.
            counters = self.counters[tier]
            if counters is not None and counters.reserve(
                job_id, n_vms, placement, rate_bps
            ):
                return
        ledger = self.ledger(tier)
        with refusing():
            # Twice: by a check that shares no code with the embedders, and
            # by the ledger, which refuses to be over-committed (decision
            # 01).
            free = ledger.free_at(
                placement, rate_bps, start_s, end_s, size=size
            )
            wrong = check_placement(
                self._datacentre,
                free,
                placement,
                n_vms=n_vms,
                rate_bps=rate_bps,
                size=size,
            )
            if wrong:
                raise ActionRefused(f"{tier}: {'; '.join(wrong)}")
            ledger.reserve(
                job_id,
                placement,
                rate_bps,
                start_s=start_s,
                end_s=end_s,
                size=size,
            )

    def release(self, job_id: str, tier: Tier, at_s: float) -> None:
        """Free what is left of a job's reservation."""
        counters = self.counters[tier]
        if counters is not None:
            counters.release(job_id)
        else:
            self.ledger(tier).release(job_id, at_s)

    def set_lost(
        self, servers: Collection[int], links: Collection[int]
    ) -> None:
        """These, and no others, have nothing free from now on in either tier."""
        for tier in self.counters:
            self.ledger(tier).set_lost(servers, links)

    def forget_past(self) -> None:
        """Drops what lies before now, which is not read or changed again."""
        for ledger in self.ledgers.values():
            ledger.forget_before(self.now_s)

    def check(self) -> None:
        """Recomputes both tiers from their holdings; a job in both is an error."""
        holders: list[str] = []
        for counters in self.counters.values():
            if counters is not None:
                counters.check()
                holders += counters.held
        for ledger in self.ledgers.values():
            ledger.check()
            holders += ledger.holdings()
        counted = Counter(holders)
        both = sorted(job_id for job_id in counted if counted[job_id] > 1)
        if both:
            raise RunFailed(
                f"jobs hold nodes in both tiers: {', '.join(both)}"
            )
