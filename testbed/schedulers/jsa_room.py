"""What is free while one round of scheduling goes on: the ``ResourceStatus`` of JSA's Algorithm 1.

A round places several jobs before the engine books the first of them, so it keeps its own account.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from testbed.embedding.placement import Placement, Residual, empty_residual
from testbed.reservation.ledger import footprint
from topologies.datacentre import DataCentre, IntArray

Find = Callable[[DataCentre, Residual, int, int], Placement | None]
"""An embedder without its reasons: where ⟨n, b⟩ goes, or None."""


@dataclass(frozen=True, eq=False)
class Held:
    """What a placed hose takes: ``crossing[k]`` = min(X, N-X) VMs on ``links[k]``, at any rate."""

    placement: Placement
    links: IntArray
    crossing: IntArray


class Room:
    """Slots and bandwidth that are free, shrinking as jobs are placed.

    ``complete`` says that ``find`` places ⟨n, b⟩ whenever that is possible. Feasibility is monotone
    in n and in b, so what failed once in a round spares it all hoses that ask for no less.
    """

    def __init__(
        self, datacentre: DataCentre, free: Residual, find: Find, *, complete: bool = True
    ) -> None:
        self.datacentre = datacentre
        self.free = Residual(free.free_slots.copy(), free.free_bps.copy())
        self.free_slots = int(free.free_slots.sum())
        self._find = find
        self.complete = complete
        self._failed: list[tuple[int, int]] = []

    @property
    def idle(self) -> bool:
        """Whether nobody holds a slot."""
        return self.free_slots == self.datacentre.total_slots

    def place(self, n_vms: int, rate_bps: int) -> Held | None:
        """Book ⟨n, b⟩ where the embedder puts it; None where it finds no place."""
        if n_vms > self.free_slots or self.hopeless(n_vms, rate_bps):
            return None
        placement = self._find(self.datacentre, self.free, n_vms, rate_bps)
        if placement is None:
            self._fail(n_vms, rate_bps)
            return None
        return self.book(placement, rate_bps)

    def book(self, placement: Placement, rate_bps: int) -> Held:
        """Take a placement's slots, and its bandwidth at ``rate_bps``."""
        taken = footprint(self.datacentre, placement, 1)
        servers = self.datacentre.n_servers
        split = int(np.searchsorted(taken.objects, servers))
        self.free.free_slots[taken.objects[:split]] -= taken.amounts[:split]
        self.free_slots -= placement.n_vms
        held = Held(placement, taken.objects[split:] - servers, taken.amounts[split:])
        self.take(held, rate_bps)
        return held

    def take(self, held: Held, more_bps: int) -> None:
        """Give a placed job ``more_bps`` per VM; below 0 it gives back."""
        amount = held.crossing * more_bps
        self.free.free_bps[2 * held.links] -= amount
        self.free.free_bps[2 * held.links + 1] -= amount

    def spare_bps(self, held: Held) -> int | None:
        """How much more per VM a placed job could have; None: no link bounds it."""
        if not len(held.links):
            return None
        up, down = self.free.free_bps[2 * held.links], self.free.free_bps[2 * held.links + 1]
        return int((np.minimum(up, down) // held.crossing).min())

    def hopeless(self, n_vms: int, rate_bps: int) -> bool:
        """Whether a hose that asks for no more than this one failed in this round already."""
        return any(n <= n_vms and b <= rate_bps for n, b in self._failed)

    def fits_when_empty(self, n_vms: int, rate_bps: int) -> bool:
        """Whether the idle data centre has a place for ⟨n, b⟩."""
        if n_vms > self.datacentre.total_slots:
            return False
        idle = empty_residual(self.datacentre)
        return self._find(self.datacentre, idle, n_vms, rate_bps) is not None

    def _fail(self, n_vms: int, rate_bps: int) -> None:
        if self.complete:
            kept = [(n, b) for n, b in self._failed if n < n_vms or b < rate_bps]
            self._failed = [*kept, (n_vms, rate_bps)]
