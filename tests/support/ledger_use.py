"""Capacity in use by a ledger's reservations at an instant: all less what is free."""

from __future__ import annotations

import math

from testbed.embedding.placement import Residual
from testbed.reservation.ledger import Ledger


def in_use(ledger: Ledger, at_s: float) -> Residual:
    """Slots, bit/s and MiB in use, in the form of a residual."""
    datacentre = ledger.datacentre
    free = ledger.residual(at_s, math.nextafter(at_s, math.inf))
    memory = None
    if (
        free.free_memory_mib is not None
        and datacentre.memory_mib is not None
    ):
        memory = datacentre.memory_mib - free.free_memory_mib
    return Residual(
        datacentre.slots - free.free_slots,
        datacentre.directed_capacity_bps - free.free_bps,
        memory,
    )
