"""DRU by its definition, over the whole data centre: what the differences are tested against."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from testbed.reservation.ledger import footprint
from testbed.schedulers.dru import AdmissionOffer, FloatArray, Utilisation
from topologies.datacentre import IntArray


def _children(of: Utilisation) -> tuple[FloatArray, ...]:
    """Number of children of every switch of a layer, per layer."""
    return tuple(
        np.diff(layer.start).astype(np.float64)
        for layer in of.datacentre.layers
    )


def _own(of: Utilisation, used: IntArray) -> tuple[FloatArray, FloatArray]:
    """Utilisation of the servers' slots, and of every node's uplinks, from the objects' use."""
    dc = of.datacentre
    slots = used[: dc.n_servers] / of.slots
    carried = np.bincount(
        dc.link_lower,
        used[dc.n_servers : dc.n_servers + dc.n_links],
        minlength=dc.n_nodes,
    )
    return slots, carried / of.uplink_bps


def node_dru(
    of: Utilisation, used: IntArray
) -> tuple[FloatArray, FloatArray]:
    """DRU of every node at an instant, and the mean over its children (0 for servers)."""
    dc = of.datacentre
    slots, uplink = _own(of, used)
    mean = np.zeros(dc.n_nodes)
    dru = uplink
    dru[: dc.n_servers] = np.maximum(slots, uplink[: dc.n_servers])
    for layer, count in zip(dc.layers, _children(of), strict=True):
        total = np.add.reduceat(dru[layer.child_index], layer.segments)
        mean[layer.switch_index] = total / count
        dru[layer.switch_index] = np.maximum(
            mean[layer.switch_index], dru[layer.switch_index]
        )
    return dru, mean


def _by_level(of: Utilisation, dru: FloatArray) -> FloatArray:
    """U at an instant: sums by level, highest first."""
    return np.array([float(dru[group].sum()) for group in of.levels])


def integral(
    utilisation: Utilisation,
    reservations: Iterable[AdmissionOffer],
    start_s: float,
    end_s: float,
) -> FloatArray:
    """U in ``[start_s, end_s)`` by full integration over the whole data centre; shape (levels,)."""
    dc = utilisation.datacentre
    held = list(reservations)
    marks = (
        {start_s, end_s}
        | {c.start_s for c in held}
        | {c.end_s for c in held}
    )
    times = sorted(t for t in marks if start_s <= t <= end_s)
    total = np.zeros(len(utilisation.levels))
    for since_s, until_s in pairwise(times):
        used = np.zeros(dc.n_servers + dc.n_links, dtype=np.int64)
        for candidate in held:
            if candidate.start_s <= since_s < candidate.end_s:
                taken = footprint(
                    dc, candidate.placement, candidate.rate_bps
                )
                used[taken.objects] += taken.amounts
        dru, _ = node_dru(utilisation, used)
        total += _by_level(utilisation, dru) * (until_s - since_s)
    return total
