"""Exact hose embedding: finds a placement whenever there is one, and the one
with the least reserved bandwidth.

The argument, for a hose ⟨N, B⟩ on a data centre whose servers are equally deep.
A link with residual R lets x VMs be below it if x ≤ a or x ≥ N-a, where a =
⌊R/B⌋. A node is *heavy* if more than N/2 of the VMs are below it, otherwise
*light*.

- A link above x VMs carries min(x, N-x) = x - max(0, 2x-N) times B. At most one
  node of a level is heavy. So the links of a level carry N·B together, less
  (2x-N)·B if there is a heavy node, with x VMs. The reserved bandwidth depends
  only on the *chain* of heavy nodes, not on the places of the other VMs.
- A light node can hold any count from 0 to p = min(a, ⌊N/2⌋, sum of its
  children's p), or min(a, ⌊N/2⌋, free slots) for a server.
- On a given chain the largest counts are best. The lowest node holds as much as
  fits below it; each higher node holds the count of its heavy child and the p
  of all its light children.

The search goes up level by level, with all chains of a level at once, until a
chain holds N. Uneven data centres, where servers differ in depth, need a
dynamic programme over (node, count): :func:`least_bandwidth_uneven`.

VMplace (JSA, Section IV, after TIVC by Xie et al., SIGCOMM 2012) is the same
search, ended at the first level on which some subtree holds all VMs. It takes
the placement with the least reserved bandwidth on that level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from testbed.embedding.counts import (
    Counts,
    edge_counts,
    edges_up,
    link_counts,
    on_one_server,
    placement_below,
    reason_of_no_room,
    share_out,
)
from testbed.embedding.placement import Placement, Refusal, Residual
from topologies.datacentre import DataCentre, IntArray, Layer

# The cost of what does not fit: above any sum of link costs, and small enough
# that the sum of two does not overflow.
_INFINITE = np.int64(2**60)


@dataclass(eq=False)
class Exact:
    """The placement with the least reserved bandwidth, summed over all directed
    links; found whenever any placement fits.

    ``lowest``: the VMs' lowest common node is on the lowest possible level, and
    the bandwidth is the least for that level.

    Placements that reserve equally much are compared by their VMs' lowest common
    node: the lowest level first, then the smallest id. Below it the chain that
    was found first is taken, and the other VMs go to servers in order of id. Of
    a link's two residuals the smaller one counts.
    """

    name: str = "exact"
    lowest: bool = False

    def embed(
        self,
        datacentre: DataCentre,
        residual: Residual,
        n_vms: int,
        rate_bps: int,
        *,
        largest_bps: int = 0,  # noqa: ARG002
    ) -> Placement | Refusal:
        placement = least_bandwidth(
            datacentre, residual, n_vms, rate_bps, lowest=self.lowest
        )
        if placement is not None:
            return placement
        return reason_of_no_room(
            Counts(datacentre, residual, n_vms, rate_bps)
        )


def least_bandwidth(
    datacentre: DataCentre,
    residual: Residual,
    n_vms: int,
    rate_bps: int,
    *,
    lowest: bool = False,
) -> Placement | None:
    """The placement that :class:`Exact` describes; None if none fits."""
    # A placement on one server uses no link: none can reserve less.
    alone = on_one_server(datacentre, residual, n_vms)
    if alone is not None:
        return alone
    if not datacentre.uniform_depth:
        return least_bandwidth_uneven(
            datacentre, residual, n_vms, rate_bps, lowest=lowest
        )
    servers = np.arange(datacentre.n_servers)
    trail = _Trail([], [_new_chains(servers, residual.free_slots, n_vms)])
    counts = Counts(datacentre, residual, n_vms, rate_bps)
    best = _search(counts, trail, lowest=lowest)
    if best is None:
        return None
    return _place(datacentre, n_vms, best, trail)


class _Chains(NamedTuple):
    """Chains of heavy nodes up to one level; every array has an entry per chain.

    ``node``: the chain's node on this level. ``held``: the VMs below it.
    ``saved``: the sum of 2x-N over the chain's lower nodes. ``lower``: the rest
    of the chain, by its position among the chains of the level below;
    ``edge``: the edge from there. Both are -1 if the chain begins at ``node``.
    """

    node: IntArray
    held: IntArray
    saved: IntArray
    lower: IntArray
    edge: IntArray

    def subset(self, chosen: IntArray) -> _Chains:
        """The chains at the positions ``chosen``."""
        return _Chains(*(array[chosen] for array in self))


class _Trail(NamedTuple):
    """Record of the bottom-up search, from which the VMs are placed downward.

    ``light[h]``: the most VMs that the light child of every edge between levels
    h and h + 1 can hold. ``chains[h]``: the chains that may continue above
    level h.
    """

    light: list[IntArray]
    chains: list[_Chains]


class _CompleteChain(NamedTuple):
    """The highest node of a chain that holds all N VMs; ``lower`` and ``edge``
    as in :class:`_Chains`.
    """

    level: int
    node: int
    lower: int
    edge: int


def _new_chains(nodes: IntArray, below: IntArray, n_vms: int) -> _Chains:
    """Chains that begin at those ``nodes`` below which more than half the VMs
    fit; ``below`` is how many do.
    """
    at = np.flatnonzero(below > n_vms // 2)
    nothing_lower = np.full(len(at), -1)
    return _Chains(
        node=nodes[at],
        held=np.minimum(below[at], n_vms),
        saved=np.zeros(len(at), np.int64),
        lower=nothing_lower,
        edge=nothing_lower,
    )


def _search(
    counts: Counts, trail: _Trail, *, lowest: bool
) -> _CompleteChain | None:
    """The cheapest chain that holds all VMs; None if there is none.

    Goes up until no higher level can be cheaper, and extends ``trail``. On
    entry ``counts`` has the counts of servers and links; those of switches are
    replaced by the sums of their children's p.
    """
    datacentre = counts.datacentre
    n_vms = counts.n_vms
    below = counts.below
    # The cost of a level without a heavy node, in units of B. Without links or
    # at rate 0 all placements cost nothing.
    level_cost = n_vms if counts.rate_bps and datacentre.n_links else 0
    best: _CompleteChain | None = None
    least = 0
    for layer in datacentre.layers:
        a = edge_counts(layer, counts.per_link, n_vms)
        room = np.minimum(below[layer.child_index], a)
        # Now the p of each child, as if all were light: heavy ones are in
        # chains.
        np.minimum(room, n_vms // 2, out=room)
        total = np.add.reduceat(room, layer.segments)
        below[layer.switch_index] = total
        trail.light.append(room)
        grown = _grow(
            layer, trail.chains[-1], n_vms, a=a, room=room, total=total
        )
        complete = np.flatnonzero(grown.held == n_vms)
        if len(complete):
            cost = np.zeros_like(complete)
            if level_cost:
                cost = layer.level * level_cost - grown.saved[complete]
            # Of equal costs the node with the smallest id.
            first = np.lexsort((grown.node[complete], cost))[0]
            if best is None or cost[first] < least:
                least = int(cost[first])
                at = int(complete[first])
                best = _CompleteChain(
                    layer.level,
                    int(grown.node[at]),
                    int(grown.lower[at]),
                    int(grown.edge[at]),
                )
        partial = grown.subset(np.flatnonzero(grown.held < n_vms))
        trail.chains.append(partial)
        # A higher level adds its cost; it can still be cheaper if a chain saves
        # more than that.
        if best is not None and (
            lowest
            or least
            <= _least_above(layer.level, partial, n_vms, level_cost)
        ):
            break
    return best


def _least_above(
    level: int, partial: _Chains, n_vms: int, level_cost: int
) -> int:
    """A lower bound on the cost of placements whose lowest common switch is
    above ``level``; ``partial`` are the chains that continue there.
    """
    if not level_cost:
        return 0
    could_save = partial.saved + 2 * partial.held - n_vms
    most_saved = int(could_save.max(initial=0))
    return (level + 1) * n_vms - most_saved


def _grow(
    layer: Layer,
    chains: _Chains,
    n_vms: int,
    *,
    a: IntArray,
    room: IntArray,
    total: IntArray,
) -> _Chains:
    """The chains at a layer's switches: ``chains`` of the level below that can
    continue, and new ones.

    Per edge, ``a`` is the link's limit and ``room`` the child's p; ``total`` is
    the sum of p per switch.
    """
    fresh = _new_chains(layer.switches, total, n_vms)
    if not len(chains.node):
        return fresh
    chain, edge = edges_up(layer, chains.node)
    # A heavy child's link allows its x VMs if x ≥ N - a, which x ≤ a implies.
    through = np.flatnonzero(chains.held[chain] >= n_vms - a[edge])
    chain = chain[through]
    edge = edge[through]
    held = chains.held[chain]
    owner = layer.owner[edge]
    continued = _Chains(
        node=layer.switches[owner],
        held=np.minimum(n_vms, held + total[owner] - room[edge]),
        saved=chains.saved[chain] + 2 * held - n_vms,
        lower=chain,
        edge=edge,
    )
    columns = zip(continued, fresh, strict=True)
    grown = _Chains(*map(np.concatenate, columns))
    if layer.shared:
        return _undominated(grown)
    return grown


def _undominated(chains: _Chains) -> _Chains:
    """The chains without those that another chain at the same node equals or
    exceeds in both ``held`` and ``saved``; of equal ones the first stays.

    In a multi-rooted data centre every chain continues along many uplinks:
    without this their number would grow from level to level.
    """
    if not len(chains.node):
        return chains
    order = np.lexsort((-chains.saved, -chains.held, chains.node))
    node = chains.node[order]
    saved = chains.saved[order]
    # Sorted by falling ``held`` within a node: a chain is kept if it saves more
    # than all chains of the node before it.
    begins = np.concatenate(([0], node[1:] != node[:-1]))
    group = np.cumsum(begins)
    # One running maximum for all nodes: a node's savings are lifted above those
    # of the nodes before it.
    span = int(saved.max()) + 2
    lifted = saved + group * span
    best_so_far = np.maximum.accumulate(lifted)
    best_before = np.concatenate(([-1], best_so_far[:-1]))
    keep = lifted > np.maximum(best_before, group * span - 1)
    return chains.subset(np.sort(order[keep]))


def _place(
    datacentre: DataCentre, n_vms: int, best: _CompleteChain, trail: _Trail
) -> Placement:
    """Places the VMs downward from ``best``: the chain's nodes get what they
    hold, and light children, by id, the rest.
    """
    nodes = np.array([best.node])
    amounts = np.array([n_vms])
    lower = best.lower
    edge = best.edge
    for level in range(best.level - 1, -1, -1):
        layer = datacentre.layers[level]
        room = trail.light[level]
        chains = trail.chains[level]
        held = 0
        if lower >= 0:
            # The chain's node is the last of ``nodes``. Its heavy child's part
            # is set aside, and the light children share the rest.
            held = int(chains.held[lower])
            amounts[-1] -= held
            room[edge] = 0
        edges, amounts = share_out(layer, nodes, amounts, room)
        nodes = layer.child[edges]
        if lower >= 0:
            nodes = np.append(nodes, layer.child[edge])
            amounts = np.append(amounts, held)
            edge = int(chains.edge[lower])
            lower = int(chains.lower[lower])
    return placement_below(datacentre, best.node, nodes, amounts)


# -- servers of different depth: a dynamic programme over (node, count) --------


class _Table(NamedTuple):
    """The least costs of VMs below a node; built child by child for a switch.

    ``cost[x]``: the least cost of x VMs. ``steps``: pairs ``(child, split)``;
    of x VMs below this child and the children before it, ``split[x]`` are below
    this child.
    """

    cost: IntArray
    steps: tuple[tuple[int, IntArray], ...]


def least_bandwidth_uneven(
    datacentre: DataCentre,
    residual: Residual,
    n_vms: int,
    rate_bps: int,
    *,
    lowest: bool = False,
) -> Placement | None:
    """:func:`least_bandwidth` on several servers that may differ in depth.

    Costs are in units of the rate B: a link with x VMs below it costs min(x,
    N-x) in each direction. O(nodes · N²) in numpy, for custom data centres of
    some thousand nodes. Among equal costs the last child of a switch takes as
    few VMs as possible, then the last but one, and so on.
    """
    # Without links or at rate 0 all placements cost nothing.
    vm_cost = 1 if rate_bps and datacentre.n_links else 0
    per_link = link_counts(residual, n_vms, rate_bps)
    slots = np.minimum(residual.free_slots, n_vms)
    tables = {}
    for server, count in enumerate(slots.tolist()):
        tables[server] = _Table(np.zeros(count + 1, np.int64), ())
    best = -1
    best_cost = int(_INFINITE)
    for layer in datacentre.layers:
        passing = edge_counts(layer, per_link, n_vms).tolist()
        for at, switch in enumerate(layer.switches.tolist()):
            table = _Table(np.zeros(1, np.int64), ())
            for edge in range(layer.start[at], layer.start[at + 1]):
                child = int(layer.child[edge])
                child_cost = _cost_with_uplink(
                    tables[child].cost, passing[edge], n_vms, vm_cost
                )
                table = _with_child(table, child, child_cost, n_vms)
            tables[switch] = table
            cost = table.cost
            if len(cost) > n_vms and cost[n_vms] < best_cost:
                best = switch
                best_cost = int(cost[n_vms])
        # Only now: the cheapest switch of the whole level is wanted.
        if lowest and best >= 0:
            break
    if best < 0:
        return None
    count_of = _counts_by_server(tables, best, n_vms)
    servers = np.array(list(count_of.keys()))
    counts = np.array(list(count_of.values()))
    return placement_below(datacentre, best, servers, counts)


def _cost_with_uplink(
    cost: IntArray, a: int, n_vms: int, vm_cost: int
) -> IntArray:
    """The cost of x VMs below a node and on its uplink, by x; infinite where the
    uplink's ``a`` does not allow x.
    """
    x = np.arange(len(cost))
    crossing = np.minimum(x, n_vms - x)
    total = np.where(crossing <= a, cost + vm_cost * crossing, _INFINITE)
    return np.asarray(np.minimum(total, _INFINITE))


def _with_child(
    table: _Table, child: int, child_cost: IntArray, n_vms: int
) -> _Table:
    """A switch's table with one more child, by min-plus convolution."""
    # A table ends with the most VMs that fit: its length is one more.
    size = min(n_vms, len(table.cost) + len(child_cost) - 2) + 1
    cost = np.full(size, _INFINITE)
    split = np.zeros(size, dtype=np.int64)
    for taken in range(min(len(child_cost), size)):
        if child_cost[taken] >= _INFINITE:
            continue
        # The child takes ``taken`` VMs, the children before it 0, 1, …
        n_counts = min(len(table.cost), size - taken)
        sums = table.cost[:n_counts] + child_cost[taken]
        window = cost[taken : taken + n_counts]
        better = sums < window
        window[better] = sums[better]
        split[taken : taken + n_counts][better] = taken
    steps = (*table.steps, (child, split))
    return _Table(np.minimum(cost, _INFINITE), steps)


def _counts_by_server(
    tables: dict[int, _Table], switch: int, n_vms: int
) -> dict[int, int]:
    """VMs by server in the cheapest placement of ``n_vms`` below a switch."""
    counts: dict[int, int] = {}
    waiting = [(switch, n_vms)]
    while waiting:
        node, amount = waiting.pop()
        # Only servers have no steps.
        if amount and not tables[node].steps:
            counts[node] = amount
        for child, split in reversed(tables[node].steps):
            taken = int(split[amount])
            waiting.append((child, taken))
            amount -= taken
    return counts


VMPLACE = Exact("vmplace", lowest=True)

EMBEDDERS = (Exact(), VMPLACE)
