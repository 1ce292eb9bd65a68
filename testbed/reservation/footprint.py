"""What a placed hose takes, as flat arrays: slots of servers and bit/s of links in one numbering.

*Objects* are everything that can run out: object ``s`` is server ``s`` (its slots), object
``n_servers + l`` is link ``l``, object ``n_servers + n_links + s`` is the memory of server ``s``
where the data centre says how much there is. A hose loads both directions of a link alike and both
have the link's full capacity, so one number a link is exact for both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from testbed.embedding.placement import ONE_SLOT, Placement, VmSize, tree_of
from topologies.datacentre import DataCentre, IntArray, Tree


@dataclass(frozen=True, eq=False)
class Footprint:
    """``amounts[k]`` (above 0) of object ``objects[k]``; objects by number, each once."""

    objects: IntArray
    amounts: IntArray


def capacities(datacentre: DataCentre) -> IntArray:
    """Capacity of every object: slots, bit/s, and MiB where memory counts."""
    kinds = [datacentre.slots, datacentre.link_capacity_bps]
    if datacentre.memory_mib is not None:
        kinds.append(datacentre.memory_mib)
    return np.concatenate(kinds)


def footprint(
    datacentre: DataCentre, placement: Placement, rate_bps: int, size: VmSize = ONE_SLOT
) -> Footprint:
    """Slots, memory, and min(X, N-X)·B on every link with X of the N VMs below it.

    Raises KeyError when no tree has the placement's root, ValueError when a server is not in it.
    """
    tree = tree_of(datacentre, placement.root)
    pairs = np.array(placement.vms_on, dtype=np.int64).reshape(-1, 2)
    servers, counts = pairs[:, 0], pairs[:, 1]
    total = int(counts.sum())
    objects, amounts = [servers], [counts * size.slots]
    if datacentre.memory_mib is not None and size.memory_mib:
        objects.append(servers + datacentre.n_servers + datacentre.n_links)
        amounts.append(counts * size.memory_mib)
    if not datacentre.n_links:
        _require_below(datacentre, tree, servers)
        return Footprint(np.concatenate(objects), np.concatenate(amounts))
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
        _require_below(datacentre, tree, low)
        rising = parents >= 0
        nodes, below = _together(
            np.concatenate((nodes[~here], parents[rising])),
            np.concatenate((below[~here], at_low[rising])),
        )
    everything = np.concatenate(objects)
    order = np.argsort(everything, kind="stable")
    return Footprint(everything[order], np.concatenate(amounts)[order])


def concerned(datacentre: DataCentre, placement: Placement) -> IntArray:
    """Every object that a placement could take of: its servers, and all links above them.

    Of one that is wrong those that there are: what is wrong with it is for others to say.
    """
    named = [server for server, _ in placement.vms_on if 0 <= server < datacentre.n_servers]
    servers = np.array(named, dtype=np.int64)
    objects = [servers]
    if datacentre.memory_mib is not None:
        objects.append(servers + datacentre.n_servers + datacentre.n_links)
    tree = datacentre.tree_by_root.get(placement.root)
    if datacentre.n_links and tree is not None:
        nodes = servers
        while len(nodes := np.unique(nodes[nodes != tree.root])):
            links = tree.uplink[nodes]
            objects.append(links[links >= 0] + datacentre.n_servers)
            nodes = tree.parent[nodes]
            nodes = nodes[nodes >= 0]
    return np.concatenate(objects)


def _require_below(datacentre: DataCentre, tree: Tree, nodes: IntArray) -> None:
    stray = nodes[(tree.parent[nodes] < 0) & (nodes != tree.root)]
    if len(stray):
        names = datacentre.names
        raise ValueError(f"{names[int(stray[0])]} is not below {names[tree.root]}")


def _together(nodes: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Counts summed by node, nodes by number."""
    if not len(nodes):
        return nodes, counts
    order = np.argsort(nodes, kind="stable")
    nodes, counts = nodes[order], counts[order]
    first = np.flatnonzero(np.concatenate(([True], nodes[1:] != nodes[:-1])))
    return nodes[first], np.add.reduceat(counts, first)
