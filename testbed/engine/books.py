"""What is booked in each tier of the nodes: one set of books a tier, every placement checked first.

The foreground has the slots and the links. The background has as many slots again and no links:
its VMs run on what CPU the foreground leaves (CMBF, Section 4.2), so nothing in it may reserve
bandwidth.

A tier without links in which everything is held from now on until further notice needs no
calendar: :class:`OpenEnded` counts slots and nothing else. The first thing that it cannot tell (a
reservation with an end, a question about the future, a look at the ledger) makes it a
:class:`~testbed.reservation.ledger.Ledger` for good.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from testbed.embedding.check import check_placement
from testbed.embedding.placement import ONE_SLOT, Placement, Residual, VmSize
from testbed.errors import RunFailed
from testbed.reservation.ledger import Ledger, LedgerBroken
from testbed.schedulers.actions import Tier
from topologies.datacentre import DataCentre


class OpenEnded:
    """Slots held from now on until they are given back, on servers without links."""

    def __init__(self, datacentre: DataCentre) -> None:
        self.free: list[int] = datacentre.slots.tolist()
        self.held: dict[str, tuple[Placement, int]] = {}
        self._datacentre = datacentre
        self._roots = {tree.root for tree in datacentre.trees}

    def book(self, job_id: str, n_vms: int, placement: Placement, rate_bps: int) -> bool:
        """Check and hold a placement; False, changing nothing, where anything is wrong with it."""
        free, before, placed = self.free, -1, 0
        vms_on, processes = placement.vms_on, placement.processes
        if placement.root not in self._roots or job_id in self.held:
            return False
        for server, count in vms_on:
            if server <= before or server >= len(free) or not 0 < count <= free[server]:
                self._put_back(vms_on, placed)
                return False
            before = server
            placed += count
            free[server] -= count
        if placed != n_vms or (processes and sorted(processes) != list(range(n_vms))):
            self._put_back(vms_on, placed)
            return False
        self.held[job_id] = (placement, rate_bps)
        return True

    def _put_back(self, vms_on: tuple[tuple[int, int], ...], placed: int) -> None:
        """Undo the first so many of a placement's VMs."""
        for server, count in vms_on:
            if not placed:
                return
            self.free[server] += count
            placed -= count

    def release(self, job_id: str) -> None:
        free = self.free
        for server, count in self.held.pop(job_id)[0].vms_on:
            free[server] += count

    def residual(self) -> Residual:
        links = len(self._datacentre.directed_capacity_bps)
        return Residual(np.array(self.free, dtype=np.int64), np.zeros(links, dtype=np.int64))

    def check(self) -> None:
        """Count again from who holds what; LedgerBroken where that is not what is free."""
        free = self._datacentre.slots.tolist()
        for placement, _ in self.held.values():
            for server, count in placement.vms_on:
                free[server] -= count
        if free != self.free or min(free, default=0) < 0:
            raise LedgerBroken("what is free is not what the jobs leave")


class TierBooks:
    """One tier's books: open-ended while that will do, a ledger from then on."""

    def __init__(self, datacentre: DataCentre) -> None:
        self._datacentre = datacentre
        limited = len(datacentre.link_capacity_bps) or datacentre.memory_mib is not None
        self._open: OpenEnded | None = None if limited else OpenEnded(datacentre)
        self._ledger = Ledger(datacentre) if limited else None

    @property
    def open_ended(self) -> OpenEnded | None:
        """The books while they are but a count of slots."""
        return self._open

    @property
    def calendar(self) -> Ledger | None:
        """The ledger, where there is one already."""
        return self._ledger

    def ledger(self, now_s: float) -> Ledger:
        """Everything as a ledger, from now on."""
        if self._ledger is None:
            ledger = Ledger(self._datacentre)
            ledger.forget_before(now_s)
            for job_id, (placement, rate_bps) in self._open.held.items() if self._open else ():
                ledger.reserve(job_id, placement, rate_bps, now_s, None)
            self._ledger, self._open = ledger, None
        return self._ledger

    def residual(self, now_s: float, start_s: float, end_s: float | None) -> Residual:
        if self._open is not None and start_s == now_s:
            return self._open.residual()
        return self.ledger(now_s).residual(start_s, end_s)

    def book(
        self,
        job_id: str,
        n_vms: int,
        placement: Placement,
        rate_bps: int,
        now_s: float,
        start_s: float,
        end_s: float | None,
        size: VmSize,
    ) -> None:
        """Check a placement independently, then reserve it. Raises RunFailed where it is wrong."""
        plain = self._open
        if plain is not None and end_s is None and start_s == now_s and size == ONE_SLOT:
            if plain.book(job_id, n_vms, placement, rate_bps):
                return
            residual = plain.residual()
        else:
            residual = self.residual(now_s, start_s, end_s)
        wrong = check_placement(self._datacentre, residual, placement, n_vms, rate_bps, size)
        if wrong:
            raise RunFailed("; ".join(wrong))
        self.ledger(now_s).reserve(job_id, placement, rate_bps, start_s, end_s, size)

    def release(self, job_id: str, at_s: float) -> None:
        if self._open is not None:
            self._open.release(job_id)
        elif self._ledger is not None:
            self._ledger.release(job_id, at_s)

    def shorten(self, job_id: str, now_s: float, end_s: float) -> None:
        self.ledger(now_s).shorten(job_id, end_s)

    def forget_before(self, now_s: float) -> None:
        if self._ledger is not None:
            self._ledger.forget_before(now_s)

    def holders(self) -> Iterable[str]:
        if self._open is not None:
            return self._open.held
        return self._ledger.holdings() if self._ledger is not None else ()

    def check(self) -> None:
        if self._open is not None:
            self._open.check()
        elif self._ledger is not None:
            self._ledger.check()


class Books:
    """Both tiers; who holds what is in exactly one of them."""

    def __init__(self, datacentre: DataCentre) -> None:
        self._datacentre = datacentre
        self._now_s = 0.0
        self._front = TierBooks(datacentre)
        self._behind: TierBooks | None = None

    @property
    def foreground(self) -> Ledger:
        """The foreground's ledger."""
        return self._front.ledger(self._now_s)

    @property
    def background(self) -> Ledger:
        """The background's ledger."""
        return self._of("background").ledger(self._now_s)

    def _of(self, tier: Tier) -> TierBooks:
        if tier == "foreground":
            return self._front
        if self._behind is None:
            self._behind = TierBooks(self._datacentre)
            self._behind.forget_before(self._now_s)
        return self._behind

    def residual(self, start_s: float, end_s: float | None, tier: Tier) -> Residual:
        """The least that is free in a tier at any instant of ``[start_s, end_s)``."""
        return self._of(tier).residual(self._now_s, start_s, end_s)

    def book(
        self,
        job_id: str,
        n_vms: int,
        placement: Placement,
        rate_bps: int,
        tier: Tier,
        start_s: float,
        end_s: float | None,
        size: VmSize = ONE_SLOT,
    ) -> None:
        """Check a placement independently, then reserve it. Raises RunFailed where it is wrong."""
        if end_s is None and size is ONE_SLOT and tier == "foreground":
            # The common case of long traces, in as few steps as it takes.
            count = self._front.open_ended if start_s == self._now_s else None
            if count is not None and count.book(job_id, n_vms, placement, rate_bps):
                return
        if tier == "background" and rate_bps:
            raise RunFailed(
                f"job {job_id}: {rate_bps} bit/s asked in the background, which has no links"
            )
        books = self._front if tier == "foreground" else self._of(tier)
        try:
            books.book(job_id, n_vms, placement, rate_bps, self._now_s, start_s, end_s, size)
        except RunFailed as error:
            raise RunFailed(f"job {job_id}, {tier}: {error}") from None

    def release(self, job_id: str, tier: Tier, at_s: float) -> None:
        """Free what is left of a job's reservation."""
        count = self._front.open_ended
        if count is not None and tier == "foreground":
            count.release(job_id)
        else:
            self._of(tier).release(job_id, at_s)

    def shorten(self, job_id: str, tier: Tier, end_s: float) -> None:
        """A job's reservation ends at ``end_s``, before it would have."""
        self._of(tier).shorten(job_id, self._now_s, end_s)

    def advance(self, now_s: float) -> None:
        """It is ``now_s``; nothing before it will be asked about or changed again."""
        self._now_s = now_s
        if self._front.calendar is not None:
            self._front.calendar.forget_before(now_s)
        if self._behind is not None:
            self._behind.forget_before(now_s)

    def check(self) -> None:
        """Derive both tiers anew from who holds what; who is in both is an error."""
        self._front.check()
        if self._behind is not None:
            self._behind.check()
            both = set(self._front.holders()) & set(self._behind.holders())
            if both:
                raise RunFailed(f"jobs hold nodes in both tiers: {', '.join(sorted(both))}")
