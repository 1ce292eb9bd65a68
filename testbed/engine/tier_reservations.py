"""Reservations in each tier of the nodes; every placement is checked first.

The foreground has the slots and the links. The background has as many slots again and no links:
its VMs run on what CPU the foreground leaves (CMBF, Section 4.2), so nothing in it may reserve
bandwidth.

A tier without links in which everything is held from now on until it is given back needs no
calendar: :class:`SlotCounters` are enough. The first thing that they cannot represent (a
reservation with an end, a question about the future, a look at the ledger) makes the tier a
:class:`~testbed.reservation.ledger.Ledger` for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from jobs.request import JobRequest
from testbed.embedding.check import Free, check_placement
from testbed.embedding.placement import ONE_SLOT, Placement, Residual, VmSize
from testbed.errors import RunFailed
from testbed.reservation.ledger import Ledger, LedgerBroken
from testbed.schedulers.actions import Tier
from topologies.datacentre import DataCentre


class SlotCounters:
    """Slots held from now on until they are given back, on servers without links."""

    def __init__(self, datacentre: DataCentre) -> None:
        self.free: list[int] = datacentre.slots.tolist()
        self.held: dict[str, tuple[Placement, int]] = {}
        self._datacentre = datacentre
        self._roots = {tree.root for tree in datacentre.trees}

    def reserve(self, job_id: str, n_vms: int, placement: Placement, rate_bps: int) -> bool:
        """Check and hold a placement; False, changing nothing, where anything is wrong with it."""
        vms_on, processes = placement.vms_on, placement.processes
        if placement.root not in self._roots or job_id in self.held:
            return False
        free, before, placed, fits = self.free, -1, 0, False
        try:
            for server, count in vms_on:
                left = free[server] - count
                if left < 0 or count < 1 or server <= before:
                    break
                free[server] = left
                before = server
                placed += count
            else:
                fits = placed == n_vms
        except IndexError:
            pass  # There is no such server.
        if not fits or (processes and sorted(processes) != list(range(n_vms))):
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
        """Recounts free slots from the placements held; raises LedgerBroken on a difference."""
        free = self._datacentre.slots.tolist()
        for placement, _ in self.held.values():
            for server, count in placement.vms_on:
                free[server] -= count
        if free != self.free or min(free, default=0) < 0:
            raise LedgerBroken("what is free is not what the jobs leave")


class SingleSlotCounters(SlotCounters):
    """The same where every server has one slot, as all clusters of whole nodes do: held or free."""

    def reserve(self, job_id: str, n_vms: int, placement: Placement, rate_bps: int) -> bool:
        vms_on, processes = placement.vms_on, placement.processes
        if placement.root not in self._roots or job_id in self.held or len(vms_on) != n_vms:
            return False
        free, before, fits = self.free, -1, False
        try:
            for server, count in vms_on:
                if count != 1 or server <= before or not free[server]:
                    break
                free[server] = 0
                before = server
            else:
                fits = True
        except IndexError:
            pass  # There is no such server.
        if not fits or (processes and sorted(processes) != list(range(n_vms))):
            self._free_up_to(vms_on, before)
            return False
        self.held[job_id] = (placement, rate_bps)
        return True

    def _free_up_to(self, vms_on: tuple[tuple[int, int], ...], last: int) -> None:
        """Undo a placement's VMs up to the one on a server; -1: nothing was held yet."""
        for server, _ in vms_on if last >= 0 else ():
            self.free[server] = 1
            if server == last:
                return

    def release(self, job_id: str) -> None:
        free = self.free
        for server, _ in self.held.pop(job_id)[0].vms_on:
            free[server] = 1


class TierReservations:
    """One tier's reservations: open-ended while that will do, a ledger from then on."""

    def __init__(self, datacentre: DataCentre, begin_calendar: Callable[[], None]) -> None:
        self._datacentre = datacentre
        self._begin_calendar = begin_calendar
        limited = len(datacentre.link_capacity_bps) or datacentre.memory_mib is not None
        # One of the two: counters while they will do, then a ledger.
        self.counters: SlotCounters | None = None
        self._ledger: Ledger | None = None
        if limited:
            self._ledger = Ledger(datacentre)
            begin_calendar()
        elif (datacentre.slots == 1).all():
            self.counters = SingleSlotCounters(datacentre)
        else:
            self.counters = SlotCounters(datacentre)

    def ledger(self, now_s: float) -> Ledger:
        """Everything as a ledger, from now on."""
        if self._ledger is None:
            ledger = Ledger(self._datacentre)
            ledger.forget_before(now_s)
            for job_id, (placement, rate_bps) in (
                self.counters.held.items() if self.counters else ()
            ):
                ledger.reserve(job_id, placement, rate_bps, now_s, None)
            self._ledger, self.counters = ledger, None
            self._begin_calendar()
        return self._ledger

    def residual(self, now_s: float, start_s: float, end_s: float | None) -> Residual:
        if self.counters is not None and start_s == now_s:
            return self.counters.residual()
        return self.ledger(now_s).residual(start_s, end_s)

    def _free_at(
        self, placement: Placement, now_s: float, start_s: float, end_s: float | None
    ) -> Free:
        if self.counters is not None and start_s == now_s:
            return self.counters.residual()
        return self.ledger(now_s).free_at(placement, start_s, end_s)

    def reserve(
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
        plain = self.counters
        countable = end_s is None and start_s == now_s and size == ONE_SLOT
        if plain is not None and countable and plain.reserve(job_id, n_vms, placement, rate_bps):
            return
        free = self._free_at(placement, now_s, start_s, end_s)
        wrong = check_placement(self._datacentre, free, placement, n_vms, rate_bps, size)
        if wrong:
            raise RunFailed("; ".join(wrong))
        self.ledger(now_s).reserve(job_id, placement, rate_bps, start_s, end_s, size)

    def release(self, job_id: str, at_s: float) -> None:
        if self.counters is not None:
            self.counters.release(job_id)
        elif self._ledger is not None:
            self._ledger.release(job_id, at_s)

    def shorten(self, job_id: str, now_s: float, end_s: float) -> None:
        self.ledger(now_s).shorten(job_id, end_s)

    def forget_before(self, now_s: float) -> None:
        if self._ledger is not None:
            self._ledger.forget_before(now_s)

    def holders(self) -> Iterable[str]:
        if self.counters is not None:
            return self.counters.held
        return self._ledger.holdings() if self._ledger is not None else ()

    def check(self) -> None:
        if self.counters is not None:
            self.counters.check()
        elif self._ledger is not None:
            self._ledger.check()


class Reservations:
    """Reservations of both tiers; each holding is in exactly one of them.

    ``policy`` is whose placements are booked, for messages; ``now_s`` is kept by the engine.
    """

    def __init__(self, datacentre: DataCentre, policy: str) -> None:
        self._datacentre = datacentre
        self._policy = policy
        self.now_s = 0.0
        # True where any tier has a ledger, whose past is to be forgotten.
        self.dated = False
        self._foreground = TierReservations(datacentre, self._begin_calendar)
        self._background: TierReservations | None = None

    def _begin_calendar(self) -> None:
        self.dated = True

    @property
    def foreground(self) -> Ledger:
        """The foreground's ledger."""
        return self._foreground.ledger(self.now_s)

    @property
    def background(self) -> Ledger:
        """The background's ledger."""
        return self._of("background").ledger(self.now_s)

    def _of(self, tier: Tier) -> TierReservations:
        if tier == "foreground":
            return self._foreground
        if self._background is None:
            self._background = TierReservations(self._datacentre, self._begin_calendar)
            self._background.forget_before(self.now_s)
        return self._background

    def residual(self, start_s: float, end_s: float | None, tier: Tier) -> Residual:
        """The least that is free in a tier at any instant of ``[start_s, end_s)``."""
        return self._of(tier).residual(self.now_s, start_s, end_s)

    def reserve(
        self,
        job: JobRequest,
        placement: Placement,
        rate_bps: int,
        tier: Tier,
        start_s: float,
        end_s: float | None,
    ) -> None:
        """Check a placement independently, then reserve it. Raises RunFailed where it is wrong."""
        job_id, n_vms, size = job.id, job.n_vms, ONE_SLOT
        demand = job.demand
        if demand.cores != 1 or demand.memory_mib:
            size = VmSize(demand.cores, demand.memory_mib)
        elif end_s is None and start_s == self.now_s and tier == "foreground":
            # The common case of long traces, in as few steps as it takes.
            counters = self._foreground.counters
            if counters is not None and counters.reserve(job_id, n_vms, placement, rate_bps):
                return
        if tier == "background" and rate_bps:
            raise RunFailed(
                f"policy {self._policy}, job {job_id}: {rate_bps} bit/s asked in the background,"
                " which has no links"
            )
        one = self._foreground if tier == "foreground" else self._of(tier)
        try:
            one.reserve(job_id, n_vms, placement, rate_bps, self.now_s, start_s, end_s, size)
        except RunFailed as error:
            raise RunFailed(f"policy {self._policy}, job {job_id}, {tier}: {error}") from None

    def release(self, job_id: str, tier: Tier, at_s: float) -> None:
        """Free what is left of a job's reservation."""
        counters = self._foreground.counters
        if counters is not None and tier == "foreground":
            counters.release(job_id)
        else:
            self._of(tier).release(job_id, at_s)

    def shorten(self, job_id: str, tier: Tier, end_s: float) -> None:
        """A job's reservation ends at ``end_s``, before it would have."""
        self._of(tier).shorten(job_id, self.now_s, end_s)

    def forget_past(self) -> None:
        """Drops what lies before now, which is not read or changed again."""
        self._foreground.forget_before(self.now_s)
        if self._background is not None:
            self._background.forget_before(self.now_s)

    def check(self) -> None:
        """Recomputes both tiers from their holdings; a job in both is an error."""
        self._foreground.check()
        if self._background is not None:
            self._background.check()
            both = set(self._foreground.holders()) & set(self._background.holders())
            if both:
                raise RunFailed(f"jobs hold nodes in both tiers: {', '.join(sorted(both))}")
