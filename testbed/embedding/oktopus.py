"""Oktopus' greedy embedding (Ballani et al., "Towards predictable datacenter
networks", 2011).

:func:`published` is Algorithm 1 of that paper: the lowest subtree that can hold
the hose, found by counts alone, then filled greedily. The counts decide
correctly *whether* the hose fits in a subtree, but the greedy filling may over-commit a
link. :class:`Oktopus` therefore checks what the greedy did and, where it
over-commits, places the hose correctly in the same subtree.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from testbed.embedding.counts import (
    Counts,
    on_one_server,
    placement_below,
    reason_of_no_room,
    servers_below,
    share_out,
)
from testbed.embedding.exact import least_bandwidth
from testbed.embedding.placement import Placement, Refusal, Residual
from topologies.datacentre import DataCentre, IntArray


class Oktopus:
    """The published greedy, checked and repaired: never over-commits.

    Tries subtrees in the published order, lowest level first and by id within
    one; a subtree of a multi-rooted data centre is tried once, however many
    trees share it. Repairing means the placement with the least reserved
    bandwidth inside the subtree at hand.
    """

    name = "oktopus"

    def embed(
        self,
        datacentre: DataCentre,
        residual: Residual,
        n_vms: int,
        rate_bps: int,
        *,
        largest_bps: int = 0,  # noqa: ARG002
    ) -> Placement | Refusal:
        counts = Counts(datacentre, residual, n_vms, rate_bps)
        for subtree, placement, sound in published(counts):
            if sound:
                return placement
            # By the counts this subtree has a placement: its servers alone are
            # searched (decision 06).
            inside = servers_below(datacentre, subtree)
            only_here = Residual(
                np.where(inside, residual.free_slots, 0), residual.free_bps
            )
            repaired = least_bandwidth(
                datacentre, only_here, n_vms, rate_bps
            )
            if repaired is not None:
                return repaired
        return reason_of_no_room(counts)


def published(counts: Counts) -> Iterator[tuple[int, Placement, bool]]:
    """Placements by Algorithm 1, unchanged, in every subtree in which the hose
    fits by the counts, the lowest first.

    Yields the subtree, the placement, and whether every link that it uses can
    carry it.
    """
    alone = on_one_server(counts.datacentre, counts.residual, counts.n_vms)
    if alone is not None:
        ((server, _),) = alone.vms_on
        yield server, alone, True
    for subtree in counts.candidates():
        yield subtree, *_allocate(counts, subtree)


def _allocate(counts: Counts, subtree: int) -> tuple[Placement, bool]:
    """Alloc of Algorithm 1: each child in turn takes as many as its count says,
    down to servers.
    """
    datacentre = counts.datacentre
    n_vms = counts.n_vms
    nodes = np.array([subtree])
    amounts = np.array([n_vms])
    servers: list[IntArray] = []
    placed: list[IntArray] = []
    sound = True
    for height in range(len(counts.most) - 1, -1, -1):
        layer = datacentre.layers[height]
        most = counts.most[height]
        # In an uneven tree some nodes belong to a lower layer.
        here = datacentre.level[nodes] == layer.level
        if not here.any():
            continue
        edges, dealt = share_out(layer, nodes[here], amounts[here], most)
        # With X of N VMs below, a link carries min(X, N-X) times their rate.
        passing = np.minimum(dealt, n_vms - dealt)
        sound = sound and bool(
            np.all(passing <= counts.allowed[height][edges])
        )
        child = layer.child[edges]
        is_server = child < datacentre.n_servers
        servers.append(child[is_server])
        placed.append(dealt[is_server])
        nodes = np.concatenate((nodes[~here], child[~is_server]))
        amounts = np.concatenate((amounts[~here], dealt[~is_server]))
    return (
        placement_below(
            datacentre,
            subtree,
            np.concatenate(servers),
            np.concatenate(placed),
        ),
        sound,
    )


EMBEDDERS = (Oktopus(),)
