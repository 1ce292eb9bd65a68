"""Why a hose does not fit, in words: the binding constraint of the tree that comes nearest."""

from __future__ import annotations

import numpy as np

from testbed.embedding.counts import Counts
from testbed.embedding.placement import Refusal
from testbed.units import human_bandwidth


def refusal(counts: Counts) -> Refusal:
    """The reason for a hose that fits nowhere.

    Too few slots are named first, then a rate that no server's links can carry, then the link that
    shuts out the most VMs in the tree that could hold the most. Put together when it is read.
    """
    return Refusal(lambda: _reason(counts))


def missed(counts: Counts) -> Refusal:
    """The reason for a hose that an incomplete embedder placed nowhere, though it may fit.

    :func:`refusal`'s where it fits nowhere. Put together when it is read.
    """
    return Refusal(lambda: _missed(counts))


def _missed(counts: Counts) -> str:
    for _ in counts.climb():
        pass
    if max(counts.below[tree.root] for tree in counts.datacentre.trees) < counts.n_vms:
        return _reason(counts)
    return (
        "filling servers in this embedder's order overloads a link wherever it is tried"
        f" ({counts.n_vms} VMs; placements do exist)"
    )


def _reason(counts: Counts) -> str:
    datacentre, slots = counts.datacentre, counts.residual.free_slots
    free = int(slots.sum())
    if free < counts.n_vms:
        return f"not enough slots: {counts.n_vms} asked, {free} free"
    widest = int(datacentre.nic_bps.max(initial=0))
    if counts.rate_bps > widest and datacentre.n_links:
        return (
            f"{human_bandwidth(counts.rate_bps)} per VM is above every server's NIC"
            f" ({human_bandwidth(widest)}), and no server has {counts.n_vms} slots free"
            f" (the most is {int(slots.max())})"
        )
    return _tightest_link(counts)


def _tightest_link(counts: Counts) -> str:
    for _ in counts.climb():
        pass
    datacentre, n_vms = counts.datacentre, counts.n_vms
    fits = [int(counts.below[tree.root]) for tree in datacentre.trees]
    best = int(np.argmax(fits))
    tree_name = datacentre.names[datacentre.trees[best].root]
    missing = n_vms - fits[best]
    if missing <= 0:
        raise ValueError(f"⟨{n_vms}, {counts.rate_bps}⟩ fits below {tree_name}: nothing to explain")
    shut_out, passed, link = _most_shut_out(counts, best)
    if shut_out == 0:
        return f"not enough slots below {tree_name}: {n_vms} asked, {fits[best]} free"
    wanted = passed + min(missing, shut_out)
    asked_bps = min(wanted, n_vms - wanted) * counts.rate_bps
    up_bps, down_bps = counts.residual.free_bps[2 * link : 2 * link + 2].tolist()
    directed = 2 * link + int(down_bps < up_bps)
    return (
        f"{datacentre.link_name(directed)}: {human_bandwidth(asked_bps)} asked,"
        f" {human_bandwidth(min(up_bps, down_bps))} free"
    )


def _most_shut_out(counts: Counts, tree: int) -> tuple[int, int, int]:
    """The link of a tree with the most VMs that fit below it but do not pass it.

    Returns how many, how many do pass, and the link. Of equals the one nearest the root, which
    concerns the most servers; of those the one of the lowest child.
    """
    trees = counts.datacentre.trees
    found = (0, 0, -1)
    for layer, most in zip(reversed(counts.datacentre.layers), reversed(counts.most), strict=True):
        shut_out = np.minimum(counts.below[layer.child_index], counts.n_vms) - most
        if len(trees) > 1:
            above = trees[tree].parent[layer.child_index]
            shut_out[above != layer.switches[layer.owner]] = 0
        worst = int(np.argmax(shut_out))
        if shut_out[worst] > found[0]:
            found = (int(shut_out[worst]), int(most[worst]), int(layer.link[worst]))
    return found
