"""What a placed hose takes, as flat arrays: slots of servers and bit/s of links in one numbering.

*Objects* are everything that can run out: object ``s`` is server ``s`` (its slots), object
``n_servers + l`` is link ``l``. A hose loads both directions of a link alike and both have the
link's full capacity, so one number a link is exact for both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from testbed.embedding.placement import Placement, tree_of
from topologies.datacentre import DataCentre, IntArray


@dataclass(frozen=True, eq=False)
class Footprint:
    """``amounts[k]`` (above 0) of object ``objects[k]``; objects by number, each once."""

    objects: IntArray
    amounts: IntArray


def capacities(datacentre: DataCentre) -> IntArray:
    """Capacity of every object, shape ``(n_servers + n_links,)``."""
    return np.concatenate((datacentre.slots, datacentre.link_capacity_bps))


def footprint(datacentre: DataCentre, placement: Placement, rate_bps: int) -> Footprint:
    """Slots and min(X, N-X)·B on every link with X of the N VMs below it.

    Raises KeyError when no tree has the placement's root, ValueError when a server is not in it.
    """
    tree = tree_of(datacentre, placement.root)
    pairs = np.array(placement.vms_on, dtype=np.int64).reshape(-1, 2)
    servers, counts = pairs[:, 0], pairs[:, 1]
    total = int(counts.sum())
    objects, amounts = [servers], [counts]
    nodes, below = servers, counts
    for level in range(datacentre.n_levels):
        # A switch stands above all its children: at its level all counts below it are in.
        here = tree.level[nodes] == level
        low, at_low = nodes[here], below[here]
        links, need = tree.uplink[low], np.minimum(at_low, total - at_low) * rate_bps
        used = (links >= 0) & (need > 0)
        objects.append(links[used] + datacentre.n_servers)
        amounts.append(need[used])
        parents = tree.parent[low]
        if np.any((parents < 0) & (low != tree.root)):
            stray = int(low[(parents < 0) & (low != tree.root)][0])
            names = datacentre.names
            raise ValueError(f"{names[stray]} is not below {names[tree.root]}")
        rising = parents >= 0
        nodes, below = _together(
            np.concatenate((nodes[~here], parents[rising])),
            np.concatenate((below[~here], at_low[rising])),
        )
    everything = np.concatenate(objects)
    order = np.argsort(everything, kind="stable")
    return Footprint(everything[order], np.concatenate(amounts)[order])


def _together(nodes: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Counts summed by node, nodes by number."""
    if not len(nodes):
        return nodes, counts
    order = np.argsort(nodes, kind="stable")
    nodes, counts = nodes[order], counts[order]
    first = np.flatnonzero(np.concatenate(([True], nodes[1:] != nodes[:-1])))
    return nodes[first], np.add.reduceat(counts, first)
