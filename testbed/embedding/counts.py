"""Counts of VMs on subtrees, level by level in numpy, and the reasons that
follow from them.

A link with residual R lets a hose ⟨N, B⟩ have X VMs below it when X ≤ a or X ≥
N-a, a = ⌊R/B⌋. An *edge* is a switch together with one of its children (see
:class:`topologies.datacentre.Layer`); arrays over edges have the shape of
``layer.child``. Where a hose fits nowhere, the reason is the binding constraint
of the tree that comes nearest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.embedding.placement import Placement, Refusal, Residual
from testbed.units import human_bandwidth
from topologies.datacentre import DataCentre, IntArray, Layer


def link_counts(residual: Residual, n_vms: int, rate_bps: int) -> IntArray:
    """Gives a = min(N, ⌊R/B⌋) of every link, R the smaller of its two
    directions; N at rate 0.
    """
    if rate_bps == 0:
        return np.full(len(residual.free_bps) // 2, n_vms, dtype=np.int64)
    # A hose carries as much in both directions, so that the smaller
    # residual is what counts (decision 06).
    free = np.minimum(residual.free_bps[0::2], residual.free_bps[1::2])
    np.floor_divide(free, rate_bps, out=free)
    np.minimum(free, n_vms, out=free)
    return np.maximum(free, 0, out=free)


def edge_counts(layer: Layer, per_link: IntArray, n_vms: int) -> IntArray:
    """:func:`link_counts` of every edge of a layer; N where there is no link."""
    if not layer.linked:
        return np.full(len(layer.child), n_vms, dtype=np.int64)
    return per_link[layer.link_index]


@dataclass(eq=False)
class Counts:
    """Counts of VMs that fit below every node, by Oktopus' recurrence, one
    layer at a time.

    - ``below[v]``: VMs that fit below node v, as far as the links below v go.
    - ``most[h][e]``: those of them that the uplink of layer h's edge e lets
      pass.
    - ``allowed[h][e]``: that edge's a; ``per_link[l]``: link l's.

    The recurrence takes only the largest count of each child, which is enough
    to tell whether a subtree can hold the hose.
    """

    datacentre: DataCentre
    residual: Residual
    n_vms: int
    rate_bps: int

    def __post_init__(self) -> None:
        self.below = np.zeros(self.datacentre.n_nodes, dtype=np.int64)
        self.below[: self.datacentre.n_servers] = self.residual.free_slots
        self.most: list[IntArray] = []
        self.allowed: list[IntArray] = []
        self.per_link = link_counts(
            self.residual, self.n_vms, self.rate_bps
        )

    def bottom_up(self) -> Iterator[tuple[Layer, IntArray]]:
        """Bottom-up pass over the layers not yet counted; yields each with its
        switches' totals.
        """
        for layer in self.datacentre.layers[len(self.most) :]:
            a = edge_counts(layer, self.per_link, self.n_vms)
            below = self.below[layer.child_index]
            most = np.minimum(below, a)
            # Where at least N-a fit below a link, at most a are left outside:
            # all below it pass.
            passes_all = below >= self.n_vms - a
            if passes_all.any():
                np.copyto(
                    most, np.minimum(below, self.n_vms), where=passes_all
                )
            total = np.add.reduceat(most, layer.segments)
            self.below[layer.switch_index] = total
            self.most.append(most)
            self.allowed.append(a)
            yield layer, total

    def candidates(self) -> Iterator[int]:
        """The switches below which the counts let the hose fit, lowest level
        first, then by id.
        """
        for layer, total in self.bottom_up():
            yield from layer.switches[total >= self.n_vms].tolist()


def edges_up(layer: Layer, nodes: IntArray) -> tuple[IntArray, IntArray]:
    """Every edge of a layer above some nodes: for each, the position of its child
    in ``nodes``, and the edge.
    """
    index = layer.child_index
    if isinstance(index, slice):
        inside = np.flatnonzero(
            (nodes >= index.start) & (nodes < index.stop)
        )
        return inside, nodes[inside] - index.start
    low = np.searchsorted(layer.children_sorted, nodes, side="left")
    high = np.searchsorted(layer.children_sorted, nodes, side="right")
    width = high - low
    ends = np.cumsum(width)
    # The ranges from low to high stand one after the other. Each is shifted
    # from the place where it begins there to its own start.
    shift = np.repeat(low - (ends - width), width)
    at = np.arange(len(shift)) + shift
    positions = np.repeat(np.arange(len(nodes)), width)
    return positions, layer.edges_by_child[at]


def deal(room: IntArray, amount: int) -> IntArray:
    """Deals an amount to places in their order, each up to its ``room``;
    returns what each gets.
    """
    before = np.cumsum(room) - room
    dealt: IntArray = np.minimum(room, np.maximum(amount - before, 0))
    return dealt


def share_out(
    layer: Layer, switches: IntArray, amounts: IntArray, room: IntArray
) -> tuple[IntArray, IntArray]:
    """Deals each switch's amount to its children in order of id, each up to its
    edge's ``room``.

    Returns the edges that get any, and how many; O(edges of these switches).
    """
    # Most calls are for one switch: without the bookkeeping of several.
    if len(switches) == 1:
        at = layer.position(int(switches[0]))
        first_edge = int(layer.start[at])
        rooms = room[first_edge : int(layer.start[at + 1])]
        dealt = deal(rooms, int(amounts[0]))
        some = np.flatnonzero(dealt)
        return some + first_edge, dealt[some]
    positions = np.searchsorted(layer.switches, switches)
    low = layer.start[positions]
    width = layer.start[positions + 1] - low
    ends = np.cumsum(width)
    edges = np.arange(ends[-1]) + np.repeat(low - (ends - width), width)
    rooms = room[edges]
    before = np.cumsum(rooms) - rooms
    # One cumulative sum over all children; each switch's begins where the
    # one before has ended.
    before -= np.repeat(before[ends - width], width)
    dealt = np.minimum(
        rooms, np.maximum(np.repeat(amounts, width) - before, 0)
    )
    some = np.flatnonzero(dealt)
    return edges[some], dealt[some]


def placement_below(
    datacentre: DataCentre, node: int, servers: IntArray, counts: IntArray
) -> Placement:
    """The placement with all VMs below ``node``, pinned to the first tree that
    holds it.
    """
    pairs = zip(servers.tolist(), counts.tolist(), strict=True)
    return Placement(int(datacentre.first_root[node]), tuple(sorted(pairs)))


def on_one_server(
    datacentre: DataCentre, residual: Residual, n_vms: int
) -> Placement | None:
    """The first server with slots for all VMs, which need no link then; None
    without one.
    """
    enough = residual.free_slots >= n_vms
    if not enough.any():
        return None
    server = int(enough.argmax())
    return Placement(int(datacentre.first_root[server]), ((server, n_vms),))


def servers_below(
    datacentre: DataCentre, switch: int
) -> npt.NDArray[np.bool_]:
    """Servers that hang below a switch, as a mask of shape ``(n_servers,)``."""
    inside = np.zeros(datacentre.n_nodes, dtype=np.bool_)
    inside[switch] = True
    for layer in reversed(datacentre.layers):
        inside[layer.child[inside[layer.switches][layer.owner]]] = True
    return inside[: datacentre.n_servers]


# -- why a hose does not fit ---------------------------------------------------


def reason_of_no_room(counts: Counts) -> Refusal:
    """The reason for a hose that an embedder placed nowhere, put together when
    it is read.

    Too few slots are named first, then a rate that no server's links can carry,
    then the link that shuts out the most VMs in the tree that could hold the
    most; or that an incomplete embedder missed what there is.
    """
    return Refusal(lambda: _reason(counts))


def _reason(counts: Counts) -> str:
    datacentre = counts.datacentre
    slots = counts.residual.free_slots
    n_vms = counts.n_vms
    if (free := int(slots.sum())) < n_vms:
        return f"not enough slots: {n_vms} asked, {free} free"
    for _ in counts.bottom_up():
        pass
    fits = [int(counts.below[tree.root]) for tree in datacentre.trees]
    if max(fits) >= n_vms:
        return (
            "filling servers in this embedder's order overloads a link wherever it is tried"
            f" ({n_vms} VMs; placements do exist)"
        )
    widest = int(datacentre.nic_bps.max(initial=0))
    if counts.rate_bps > widest and datacentre.n_links:
        return (
            f"{human_bandwidth(counts.rate_bps)} per VM is above every server's NIC"
            f" ({human_bandwidth(widest)}), and no server has {n_vms} slots free"
            f" (the most is {int(slots.max())})"
        )
    return _tightest_link(counts, fits)


def _tightest_link(counts: Counts, fits: list[int]) -> str:
    datacentre = counts.datacentre
    n_vms = counts.n_vms
    best = int(np.argmax(fits))
    tree_name = datacentre.names[datacentre.trees[best].root]
    missing = n_vms - fits[best]
    shut_out, passed, link = _most_shut_out(counts, best)
    if shut_out == 0:
        return f"not enough slots below {tree_name}: {n_vms} asked, {fits[best]} free"
    # What the link would have to let through for the hose to fit, as far as
    # the servers below it have slots for more.
    wanted = passed + min(missing, shut_out)
    asked_bps = min(wanted, n_vms - wanted) * counts.rate_bps
    up_bps, down_bps = counts.residual.free_bps[
        2 * link : 2 * link + 2
    ].tolist()
    directed = 2 * link + int(down_bps < up_bps)
    return (
        f"{datacentre.link_name(directed)}: {human_bandwidth(asked_bps)} asked,"
        f" {human_bandwidth(min(up_bps, down_bps))} free"
    )


def _most_shut_out(counts: Counts, tree: int) -> tuple[int, int, int]:
    """The link of a tree with the most VMs that fit below it but do not pass
    it.

    Returns how many, how many do pass, and the link. Of equals the one nearest
    the root, which concerns the most servers; of those the one of the lowest
    child.
    """
    trees = counts.datacentre.trees
    worst_of_all = (0, 0, -1)
    # From the root down, replaced only by a larger number: of equals the
    # link nearest the root stays.
    for layer, most in zip(
        reversed(counts.datacentre.layers),
        reversed(counts.most),
        strict=True,
    ):
        shut_out = (
            np.minimum(counts.below[layer.child_index], counts.n_vms) - most
        )
        if len(trees) > 1:
            above = trees[tree].parent[layer.child_index]
            shut_out[above != layer.switches[layer.owner]] = 0
        worst = int(np.argmax(shut_out))
        if shut_out[worst] > worst_of_all[0]:
            worst_of_all = (
                int(shut_out[worst]),
                int(most[worst]),
                int(layer.link[worst]),
            )
    return worst_of_all
