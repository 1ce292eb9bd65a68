"""Exact hose embedding: feasible iff any placement is, with the least reserved
bandwidth.

The argument, for a hose ⟨N, B⟩ on a data centre whose servers are all equally
deep. Call a node *heavy* when more than N/2 of the VMs are below it, otherwise
*light*.

- A link above x VMs carries min(x, N-x) = x - max(0, 2x-N) times B. Summed over one level that is
  N minus (2x-N) of that level's heavy node, if it has one; at most one node of a level is heavy.
  So the reserved bandwidth depends on the *chain* of heavy nodes alone, not on where the other
  VMs are.
- Light nodes may hold any count from 0 to p = min(a, ⌊N/2⌋, sum of their children's p).
- For a given chain every count on it is best as large as it can be: what the lowest one holds, and
  then, going up, what the chain's child holds plus all that its light siblings can.

Every chain is grown from its lowest node upward, all chains of a level at once,
until it holds N. Uneven data centres, where servers differ in depth, go through
a dynamic programme over (node, count) (:func:`least_bandwidth_uneven`).

VMplace (JSA, Section IV, after TIVC by Xie et al., SIGCOMM 2012) is the same
programme, which stops at the first level on which some subtree holds all VMs:
the level comes first there, and the reserved bandwidth decides among the
subtrees and placements of that level.
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

# Far above any sum of link costs, far below where two of them would overflow.
_NEVER = np.int64(2**60)


@dataclass(eq=False)
class Exact:
    """The placement with the least reserved bandwidth, summed over all directed
    links.

    Finds one exactly when there is one. ``lowest``: the level of the VMs'
    lowest common node comes before the bandwidth. Among placements that reserve
    equally much: the one whose VMs' lowest common switch (or only server) is on
    the lowest level, then the one with the smallest id there; then, going down,
    the heavy part goes to the child where it was found first and the rest to
    servers in order of id. Residuals that differ by direction count with the
    smaller one.
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
    """The placement that :class:`Exact` describes; None where there is none."""
    # On one server no link is used at all: nothing can reserve less.
    alone = on_one_server(datacentre, residual, n_vms)
    if alone is not None:
        return alone
    if not datacentre.uniform_depth:
        return least_bandwidth_uneven(
            datacentre, residual, n_vms, rate_bps, lowest=lowest
        )
    servers = np.arange(datacentre.n_servers)
    trail = _Trail([], [_begin(servers, residual.free_slots, n_vms)])
    counts = Counts(datacentre, residual, n_vms, rate_bps)
    best = _search(counts, trail, lowest=lowest)
    if best is None:
        return None
    return _place(datacentre, n_vms, best, trail)


class _Chains(NamedTuple):
    """Chains of heavy nodes, by their highest node so far; one entry a chain in
    every array.

    ``held`` VMs are below ``node``; ``saved`` sums 2x-N over the chain's nodes
    below ``node``. ``before`` is the chain of the level below that this one
    prolongs and ``edge`` the edge from there, both -1 where the chain begins at
    ``node``.
    """

    node: IntArray
    held: IntArray
    saved: IntArray
    before: IntArray
    edge: IntArray

    def only(self, chosen: IntArray) -> _Chains:
        return _Chains(*(array[chosen] for array in self))


class _Trail(NamedTuple):
    """Trail of the bottom-up search for the way down, per level.

    ``light[h]`` is the light count of every edge into level h + 1,
    ``chains[h]`` the chains that continue from level h.
    """

    light: list[IntArray]
    chains: list[_Chains]


class _Found(NamedTuple):
    """A chain that holds everything: its last step, and where it stands in its
    level's chains.
    """

    level: int
    node: int
    before: int
    edge: int


def _begin(nodes: IntArray, below: IntArray, n_vms: int) -> _Chains:
    """The chains that begin at these nodes: those that more than half the VMs
    fit below.
    """
    at = np.flatnonzero(below > n_vms // 2)
    none = np.full(len(at), -1)
    return _Chains(
        node=nodes[at],
        held=np.minimum(below[at], n_vms),
        saved=np.zeros(len(at), np.int64),
        before=none,
        edge=none,
    )


def _search(
    counts: Counts, trail: _Trail, *, lowest: bool
) -> _Found | None:
    """Goes up until nothing above can be better, leaving its trail.

    ``counts`` are those of servers and links; those of switches become the
    light ones.
    """
    datacentre = counts.datacentre
    n_vms = counts.n_vms
    below = counts.below
    # What a level costs at most; without a network or at rate 0 everything
    # costs the same.
    unit = n_vms if counts.rate_bps and datacentre.n_links else 0
    best: _Found | None = None
    least = 0
    for layer in datacentre.layers:
        a = edge_counts(layer, counts.per_link, n_vms)
        room = np.minimum(below[layer.child_index], a)
        # At most one child holds more than half: its chain. All others are
        # light.
        np.minimum(room, n_vms // 2, out=room)
        total = np.add.reduceat(room, layer.segments)
        below[layer.switch_index] = total
        trail.light.append(room)
        grown = _grow(
            layer, trail.chains[-1], n_vms, a=a, room=room, total=total
        )
        whole = np.flatnonzero(grown.held == n_vms)
        if len(whole):
            cost = np.zeros_like(whole)
            if unit:
                cost = layer.level * unit - grown.saved[whole]
            # Of equal costs the node with the lowest number.
            first = np.lexsort((grown.node[whole], cost))[0]
            if best is None or cost[first] < least:
                least = int(cost[first])
                at = int(whole[first])
                best = _Found(
                    layer.level,
                    int(grown.node[at]),
                    int(grown.before[at]),
                    int(grown.edge[at]),
                )
        alive = grown.only(np.flatnonzero(grown.held < n_vms))
        trail.chains.append(alive)
        # A higher node needs more links below it; it can be better only if
        # a chain saves as much.
        if best is not None and (
            lowest or least <= _least_above(layer.level, alive, n_vms, unit)
        ):
            break
    return best


def _least_above(level: int, alive: _Chains, n_vms: int, unit: int) -> int:
    """A lower bound for every placement whose lowest common switch is above
    ``level``.
    """
    # Every placement costs the same then: the first one found is a best
    # one.
    if not unit:
        return 0
    could_save = alive.saved + 2 * alive.held - n_vms
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
    """The chains at this layer's switches: those from below, prolonged, and
    those that begin.
    """
    fresh = _begin(layer.switches, total, n_vms)
    if not len(chains.node):
        return fresh
    chain, edge = edges_up(layer, chains.node)
    # A heavy child passes with at least N - a below the link: few enough
    # are outside.
    through = np.flatnonzero(chains.held[chain] >= n_vms - a[edge])
    chain = chain[through]
    edge = edge[through]
    held = chains.held[chain]
    owner = layer.owner[edge]
    prolonged = _Chains(
        node=layer.switches[owner],
        held=np.minimum(n_vms, held + total[owner] - room[edge]),
        saved=chains.saved[chain] + 2 * held - n_vms,
        before=chain,
        edge=edge,
    )
    both = zip(prolonged, fresh, strict=True)
    grown = _Chains(*map(np.concatenate, both))
    if layer.shared:
        return _undominated(grown)
    return grown


def _undominated(chains: _Chains) -> _Chains:
    """Without chains that another one at the same node equals or beats in both
    held and saved.

    In a multi-rooted data centre every chain continues along many uplinks; this
    keeps them few.
    """
    if not len(chains.node):
        return chains
    order = np.lexsort((-chains.saved, -chains.held, chains.node))
    node = chains.node[order]
    saved = chains.saved[order]
    # Within a node, held falls: a chain is worth keeping if it saves more than
    # all before it.
    begins = np.concatenate(([0], node[1:] != node[:-1]))
    group = np.cumsum(begins)
    # One running maximum serves all nodes: each one's savings are lifted above
    # those of the nodes before it.
    span = int(saved.max()) + 2
    lifted = saved + group * span
    best_so_far = np.maximum.accumulate(lifted)
    best_before = np.concatenate(([-1], best_so_far[:-1]))
    keep = lifted > np.maximum(best_before, group * span - 1)
    return chains.only(np.sort(order[keep]))


def _place(
    datacentre: DataCentre, n_vms: int, best: _Found, trail: _Trail
) -> Placement:
    """Downward: the chain gets what it holds, light children by id share the
    rest.
    """
    nodes = np.array([best.node])
    amounts = np.array([n_vms])
    before = best.before
    edge = best.edge
    for level in range(best.level - 1, -1, -1):
        layer = datacentre.layers[level]
        room = trail.light[level]
        chains = trail.chains[level]
        held = 0
        if before >= 0:
            # The chain's node stands last; its heavy child takes its part
            # before the light ones, which share what is left.
            held = int(chains.held[before])
            amounts[-1] -= held
            room[edge] = 0
        edges, amounts = share_out(layer, nodes, amounts, room)
        nodes = layer.child[edges]
        if before >= 0:
            nodes = np.append(nodes, layer.child[edge])
            amounts = np.append(amounts, held)
            edge = int(chains.edge[before])
            before = int(chains.before[before])
    return placement_below(datacentre, best.node, nodes, amounts)


# -- servers of different depth: a dynamic programme over (node, count) --------


class _Table(NamedTuple):
    """``cost[x]``: the least cost of x VMs below a switch; ``steps``: how its
    children share them.

    A step is ``(child, split)``, ``split[x]`` being what the child takes of x
    VMs shared among it and the children before it.
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
    """:func:`least_bandwidth` of several servers, where servers differ in
    depth.

    Cost is counted in units of the rate B: a link with x VMs below it costs
    min(x, N-x) in each direction. Meant for custom data centres of some
    thousand nodes; O(nodes · N²) in numpy. Of equals a switch's children, by
    id, take as few as the least cost allows from the last one on.
    """
    weight = 1 if rate_bps and datacentre.n_links else 0
    per_link = link_counts(residual, n_vms, rate_bps)
    slots = np.minimum(residual.free_slots, n_vms)
    tables = {}
    for server, count in enumerate(slots.tolist()):
        tables[server] = _Table(np.zeros(count + 1, np.int64), ())
    best = -1
    best_cost = int(_NEVER)
    for layer in datacentre.layers:
        passing = edge_counts(layer, per_link, n_vms).tolist()
        for at, switch in enumerate(layer.switches.tolist()):
            table = _Table(np.zeros(1, np.int64), ())
            # Child after child: a table says what x VMs below a switch cost
            # at least.
            for edge in range(layer.start[at], layer.start[at + 1]):
                child = int(layer.child[edge])
                upward = _upward(
                    tables[child].cost, passing[edge], n_vms, weight
                )
                table = _with_child(table, child, upward, n_vms)
            tables[switch] = table
            cost = table.cost
            if len(cost) > n_vms and cost[n_vms] < best_cost:
                best = switch
                best_cost = int(cost[n_vms])
        # All switches of the level were looked at: the cheapest of them is
        # meant.
        if lowest and best >= 0:
            break
    if best < 0:
        return None
    count_of = _walk(tables, best, n_vms)
    servers = np.array(list(count_of.keys()))
    counts = np.array(list(count_of.values()))
    return placement_below(datacentre, best, servers, counts)


def _upward(below: IntArray, a: int, n_vms: int, weight: int) -> IntArray:
    """Costs of a subtree seen from above its uplink, which lets x ≤ a and x ≥
    N-a through.
    """
    x = np.arange(len(below))
    crossing = np.minimum(x, n_vms - x)
    cost = np.where(crossing <= a, below + weight * crossing, _NEVER)
    return np.asarray(np.minimum(cost, _NEVER))


def _with_child(
    table: _Table, child: int, upward: IntArray, n_vms: int
) -> _Table:
    """Min-plus convolution: one more child shares the VMs."""
    # A table's length is the most that its subtree holds, plus one.
    size = min(n_vms, len(table.cost) + len(upward) - 2) + 1
    cost = np.full(size, _NEVER)
    split = np.zeros(size, dtype=np.int64)
    for taken in range(min(len(upward), size)):
        # So many do not pass the link.
        if upward[taken] >= _NEVER:
            continue
        reach = min(len(table.cost), size - taken)
        offer = table.cost[:reach] + upward[taken]
        window = cost[taken : taken + reach]
        better = offer < window
        window[better] = offer[better]
        split[taken : taken + reach][better] = taken
    steps = (*table.steps, (child, split))
    return _Table(np.minimum(cost, _NEVER), steps)


def _walk(
    tables: dict[int, _Table], switch: int, n_vms: int
) -> dict[int, int]:
    """VMs by server, when a switch has so many."""
    counts: dict[int, int] = {}
    waiting = [(switch, n_vms)]
    while waiting:
        node, amount = waiting.pop()
        if amount and not tables[node].steps:
            counts[node] = amount
        for child, split in reversed(tables[node].steps):
            taken = int(split[amount])
            waiting.append((child, taken))
            amount -= taken
    return counts


VMPLACE = Exact("vmplace", lowest=True)

EMBEDDERS = (Exact(), VMPLACE)
