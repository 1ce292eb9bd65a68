"""Oktopus' greedy embedding (Ballani et al., "Towards predictable datacenter networks", 2011).

``published`` is Algorithm 1 of that paper: the lowest subtree that can hold the hose, found by
counts alone, then filled greedily. The counts decide correctly *whether* a subtree fits, but the
greedy filling may over-commit a link (docs/decisions/0101). :class:`Oktopus` therefore checks what
the greedy did and, where it over-commits, places the hose correctly in the same subtree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.embedding.counts import edge_counts, link_counts, placement_below, share_out
from testbed.embedding.exact import least_bandwidth
from testbed.embedding.placement import Placement, Refusal, Residual
from testbed.embedding.reasons import refusal
from topologies.datacentre import DataCentre, IntArray


class Oktopus:
    """The published greedy, checked and repaired: never over-commits.

    Tries subtrees in the published order, lowest level first and by id within one; a subtree of a
    multi-rooted data centre is tried once, however many trees share it. Repairing means the
    placement with the least reserved bandwidth inside the subtree at hand.
    """

    name = "oktopus"

    def embed(
        self, datacentre: DataCentre, residual: Residual, n_vms: int, rate_bps: int
    ) -> Placement | Refusal:
        for found in _candidates(datacentre, residual, n_vms, rate_bps):
            if found.sound:
                return found.placement
            inside = _servers_below(datacentre, found.subtree)
            only_here = Residual(np.where(inside, residual.free_slots, 0), residual.free_bps)
            repaired = least_bandwidth(datacentre, only_here, n_vms, rate_bps)
            if repaired is not None:
                return repaired
        return refusal(datacentre, residual, n_vms, rate_bps)


def published(
    datacentre: DataCentre, residual: Residual, n_vms: int, rate_bps: int
) -> Placement | None:
    """Algorithm 1 as printed, over-committing where it does; None where no subtree fits."""
    found = next(_candidates(datacentre, residual, n_vms, rate_bps), None)
    return None if found is None else found.placement


def _servers_below(datacentre: DataCentre, subtree: int) -> npt.NDArray[np.bool_]:
    """Which servers hang below a switch, shape ``(n_servers,)``."""
    inside = np.zeros(datacentre.n_nodes, dtype=np.bool_)
    inside[subtree] = True
    for layer in reversed(datacentre.layers):
        inside[layer.child[inside[layer.switches][layer.owner]]] = True
    return inside[: datacentre.n_servers]


@dataclass(frozen=True)
class _Greedy:
    """What the greedy did in one subtree, and whether every link it used can carry it."""

    subtree: int
    placement: Placement
    sound: bool


def _candidates(
    datacentre: DataCentre, residual: Residual, n_vms: int, rate_bps: int
) -> Iterator[_Greedy]:
    """The greedy's placement in every subtree that the counts let through, lowest first."""
    slots = residual.free_slots
    if int(slots.max(initial=0)) >= n_vms:
        for server in np.flatnonzero(slots >= n_vms).tolist():
            alone = placement_below(datacentre, server, np.array([server]), np.array([n_vms]))
            yield _Greedy(server, alone, sound=True)
    per_link = link_counts(residual, n_vms, rate_bps)
    below = np.zeros(datacentre.n_nodes, dtype=np.int64)
    below[: datacentre.n_servers] = slots
    room: list[IntArray] = []
    allowed: list[IntArray] = []
    for layer in datacentre.layers:
        a = edge_counts(layer, per_link, n_vms)
        most = _most(below[layer.child_index], a, n_vms)
        total = np.add.reduceat(most, layer.segments)
        below[layer.switch_index] = total
        room.append(most)
        allowed.append(a)
        if int(total.max()) >= n_vms:
            for subtree in layer.switches[total >= n_vms].tolist():
                yield _allocate(datacentre, subtree, n_vms, room, allowed)


def _most(below: IntArray, a: IntArray, n_vms: int) -> IntArray:
    """The largest count that children may take: their slots, and what their uplinks let through."""
    most = np.minimum(below, a)
    whole = below >= n_vms - a
    if whole.any():
        np.copyto(most, np.minimum(below, n_vms), where=whole)
    return most


def _allocate(
    datacentre: DataCentre,
    subtree: int,
    n_vms: int,
    room: list[IntArray],
    allowed: list[IntArray],
) -> _Greedy:
    """Alloc of Algorithm 1: each child in turn takes as many as its count says, down to servers."""
    nodes, amounts = np.array([subtree]), np.array([n_vms])
    servers: list[IntArray] = []
    counts: list[IntArray] = []
    sound = True
    for layer, most, a in zip(
        reversed(datacentre.layers[: len(room)]), reversed(room), reversed(allowed), strict=True
    ):
        here = datacentre.level[nodes] == layer.level
        if not here.any():
            continue
        edges, dealt = share_out(layer, nodes[here], amounts[here], most)
        sound = sound and bool(np.all(np.minimum(dealt, n_vms - dealt) <= a[edges]))
        child = layer.child[edges]
        ends = child < datacentre.n_servers
        servers.append(child[ends])
        counts.append(dealt[ends])
        nodes = np.concatenate((nodes[~here], child[~ends]))
        amounts = np.concatenate((amounts[~here], dealt[~ends]))
    placement = placement_below(
        datacentre, subtree, np.concatenate(servers), np.concatenate(counts)
    )
    return _Greedy(subtree, placement, sound)
