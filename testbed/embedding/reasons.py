"""Why a hose does not fit, in words: the binding constraint of the tree that comes nearest."""

from __future__ import annotations

import numpy as np

from testbed.embedding.counts import edge_counts, link_counts
from testbed.embedding.placement import Refusal, Residual
from testbed.units import human_bandwidth
from topologies.datacentre import DataCentre, IntArray


def refusal(datacentre: DataCentre, residual: Residual, n_vms: int, rate_bps: int) -> Refusal:
    """The reason for a hose that fits nowhere.

    Too few slots are named first, then a rate that no server's links can carry, then the link that
    shuts out the most VMs in the tree with room for the most.
    """
    free = int(residual.free_slots.sum())
    if free < n_vms:
        return Refusal(f"not enough slots: {n_vms} asked, {free} free")
    widest = int(datacentre.nic_bps.max(initial=0))
    if rate_bps > widest and datacentre.n_links:
        roomiest = int(residual.free_slots.max())
        return Refusal(
            f"{human_bandwidth(rate_bps)} per VM is above every server's NIC"
            f" ({human_bandwidth(widest)}), and no server has {n_vms} slots free"
            f" (the most is {roomiest})"
        )
    return Refusal(_tightest_link(datacentre, residual, n_vms, rate_bps))


def _tightest_link(datacentre: DataCentre, residual: Residual, n_vms: int, rate_bps: int) -> str:
    per_link = link_counts(residual, n_vms, rate_bps)
    offered = _offered(datacentre, residual, per_link, n_vms)
    roots = np.array([tree.root for tree in datacentre.trees])
    best = int(np.argmax(offered[roots]))
    tree = datacentre.trees[best]
    root_name = datacentre.names[tree.root]
    nodes = np.flatnonzero(tree.uplink >= 0)
    links = tree.uplink[nodes]
    taken = _through(offered[nodes], per_link[links], n_vms)
    shut_out = np.minimum(offered[nodes], n_vms) - taken
    missing = n_vms - int(offered[tree.root])
    if missing <= 0:
        raise ValueError(f"⟨{n_vms}, {rate_bps}⟩ fits below {root_name}: there is no reason")
    # Of links that shut out equally many, the one nearest the root concerns the most servers.
    worst = int(np.argmax(shut_out * datacentre.n_levels + datacentre.level[nodes]))
    if shut_out[worst] <= 0:
        return f"not enough slots below {root_name}: {n_vms} asked, {offered[tree.root]} free"
    wanted = int(taken[worst]) + min(missing, int(shut_out[worst]))
    asked_bps = min(wanted, n_vms - wanted) * rate_bps
    link = int(links[worst])
    directed = 2 * link + int(residual.free_bps[2 * link + 1] < residual.free_bps[2 * link])
    return (
        f"{datacentre.link_name(directed)}: {human_bandwidth(asked_bps)} asked,"
        f" {human_bandwidth(int(residual.free_bps[directed]))} free"
    )


def _offered(
    datacentre: DataCentre, residual: Residual, per_link: IntArray, n_vms: int
) -> IntArray:
    """VMs that every node can hold below it, links inside it counted."""
    offered = np.zeros(datacentre.n_nodes, dtype=np.int64)
    offered[: datacentre.n_servers] = residual.free_slots
    for layer in datacentre.layers:
        a = edge_counts(layer, per_link, n_vms)
        taken = _through(offered[layer.child_index], a, n_vms)
        offered[layer.switch_index] = np.add.reduceat(taken, layer.segments)
    return offered


def _through(offered: IntArray, a: IntArray, n_vms: int) -> IntArray:
    """The largest count of those offered that an uplink lets through."""
    return np.where(offered >= n_vms - a, np.minimum(offered, n_vms), np.minimum(offered, a))
