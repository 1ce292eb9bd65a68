"""Exact hose embedding where servers differ in depth: a dynamic programme over (node, count).

Cost is counted in units of the rate B: a link with x VMs below it costs min(x, N-x) in each
direction. Meant for custom data centres of some thousand nodes; O(nodes · N²) in numpy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from testbed.embedding.counts import link_counts, placement_below
from testbed.embedding.placement import Placement, Residual
from topologies.datacentre import DataCentre, IntArray

# Far above any sum of link costs, far below where two of them would overflow.
_NEVER = np.int64(2**60)


@dataclass(frozen=True, eq=False)
class _Table:
    """``cost[x]``: the least cost of x VMs below a switch; ``steps``: how its children share them.

    A step is ``(child, split)``, ``split[x]`` being what the child takes of x VMs shared among it
    and the children before it.
    """

    cost: IntArray
    steps: tuple[tuple[int, IntArray], ...]


def least_bandwidth_ragged(
    datacentre: DataCentre,
    residual: Residual,
    n_vms: int,
    rate_bps: int,
    *,
    lowest: bool = False,
) -> Placement | None:
    """The placement with the least reserved bandwidth; None where there is none.

    ``lowest``: of those whose lowest common node is on the lowest level that has any.

    Ties go to the lowest common node on the lowest level, then with the smallest id; a switch's
    children, by id, take as few as the least cost allows from the last one on.
    """
    n = n_vms
    weight = 1 if rate_bps and datacentre.n_links else 0
    per_link = link_counts(residual, n, rate_bps)
    slots = np.minimum(residual.free_slots, n)
    if int(slots.max(initial=0)) >= n:
        server = int(np.argmax(slots >= n))
        return placement_below(datacentre, server, np.array([server]), np.array([n]))
    tables: dict[int, _Table] = {}
    best, best_cost = -1, int(_NEVER)
    for layer in datacentre.layers:
        for at, switch in enumerate(layer.switches.tolist()):
            edges = range(int(layer.start[at]), int(layer.start[at + 1]))
            table = _Table(np.zeros(1, np.int64), ())
            for edge in edges:
                child, link = int(layer.child[edge]), int(layer.link[edge])
                below = tables[child].cost if child in tables else _server(int(slots[child]))
                upward = _upward(below, int(per_link[link]) if link >= 0 else n, n, weight)
                table = _with_child(table, child, upward, n)
            tables[switch] = table
            if len(table.cost) > n and int(table.cost[n]) < best_cost:
                best, best_cost = switch, int(table.cost[n])
        if lowest and best >= 0:
            break
    if best < 0:
        return None
    servers, counts = _walk(tables, best, n)
    return placement_below(datacentre, best, np.array(servers), np.array(counts))


def _server(slots: int) -> IntArray:
    return np.zeros(slots + 1, dtype=np.int64)


def _upward(below: IntArray, a: int, n_vms: int, weight: int) -> IntArray:
    """Costs of a subtree seen from above its uplink, which lets x ≤ a and x ≥ N-a through."""
    x = np.arange(len(below))
    crossing = np.minimum(x, n_vms - x)
    cost = np.where(crossing <= a, below + weight * crossing, _NEVER)
    return np.asarray(np.minimum(cost, _NEVER))


def _with_child(table: _Table, child: int, upward: IntArray, n_vms: int) -> _Table:
    """Min-plus convolution: one more child shares the VMs."""
    size = min(n_vms, len(table.cost) + len(upward) - 2) + 1
    cost = np.full(size, _NEVER)
    split = np.zeros(size, dtype=np.int64)
    for taken in range(min(len(upward), size)):
        if upward[taken] >= _NEVER:
            continue
        reach = min(len(table.cost), size - taken)
        offer = table.cost[:reach] + upward[taken]
        window = cost[taken : taken + reach]
        better = offer < window
        window[better] = offer[better]
        split[taken : taken + reach][better] = taken
    return _Table(np.minimum(cost, _NEVER), (*table.steps, (child, split)))


def _walk(tables: dict[int, _Table], switch: int, n_vms: int) -> tuple[list[int], list[int]]:
    servers: list[int] = []
    counts: list[int] = []
    waiting = [(switch, n_vms)]
    while waiting:
        node, amount = waiting.pop()
        if amount == 0:
            continue
        if node not in tables:
            servers.append(node)
            counts.append(amount)
            continue
        for child, split in reversed(tables[node].steps):
            taken = int(split[amount])
            waiting.append((child, taken))
            amount -= taken
    return servers, counts
