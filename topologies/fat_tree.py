"""Fat-trees: k pods of k/2 edge and k/2 aggregation switches below (k/2)^2 cores.

After Al-Fares et al., "A scalable, commodity data center network architecture" (2008). Below any
one core there is exactly one tree to all servers; a tenant is pinned to one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from topologies.arguments import MAX_NODES, Problems, at_least, capacities, slot_array
from topologies.datacentre import DataCentre, IntArray, TopologyError, Tree, frozen_array

# Parents and uplinks of every core's tree: 150 MB.
_MAX_TREE_ENTRIES = 10_000_000


def fat_tree(
    k: int, link_bps: int | Sequence[int], slots_per_server: int | Sequence[int]
) -> DataCentre:
    """The fat-tree of k-port switches: k^3/4 servers, k even and at least 2.

    ``link_bps``: one capacity, or three from the top down (core, aggregation, server links).

    Numbering: servers, edges, aggregation switches pod by pod, then cores. Core ``c`` stands above
    the aggregation switch ``c // (k/2)`` of every pod, so the cores of one group share everything
    below their aggregation switches. ``trees`` has one tree per core, in order of the cores.
    Raises TopologyError with all problems at once.
    """
    problems: Problems = []
    if at_least(problems, ("k",), k, 2, "the number of ports"):
        if k % 2:
            problems.append(
                (("k",), f"a fat-tree's switches have an even number of ports, not {k}")
            )
        elif (k // 2) ** 2 * (k**3 // 4 + 5 * k * k // 4) > _MAX_TREE_ENTRIES or k**3 > MAX_NODES:
            problems.append((("k",), f"k = {k} is more than is supported; at most 42"))
    n_servers = None if problems else int(k) ** 3 // 4
    per_level = capacities(problems, link_bps, 3)
    slots = slot_array(problems, slots_per_server, n_servers, "slots_per_server")
    if problems:
        raise TopologyError(problems)
    k = int(k)
    half = k // 2
    counts = [k**3 // 4, k * half, k * half, half * half]
    first = np.concatenate(([0], np.cumsum(counts)))
    n_links = [counts[0], counts[1] * half, counts[2] * half]
    level = frozen_array(np.repeat(np.arange(4), counts))
    lower, upper = _links(half, counts, first)
    return DataCentre(
        kind="fat-tree",
        names=tuple(
            f"{noun} {i}"
            for noun, n in zip(("server", "edge", "aggregation", "core"), counts, strict=True)
            for i in range(n)
        ),
        level=level,
        slots=frozen_array(slots),
        link_lower=frozen_array(lower),
        link_upper=frozen_array(upper),
        link_capacity_bps=frozen_array(np.repeat(per_level[::-1], n_links)),
        trees=tuple(_tree_of_core(core, half, counts, first, level) for core in range(counts[3])),
        parameters={
            "k": k,
            "link_bps": per_level,
            "slots_per_server": int(slots[0]) if len(set(slots.tolist())) == 1 else slots.tolist(),
        },
    )


def _links(half: int, counts: list[int], first: IntArray) -> tuple[IntArray, IntArray]:
    """Lower and upper ends: the servers' links, then the edges' uplinks, then the aggregations'."""
    server = np.arange(counts[0])
    edge = np.repeat(np.arange(counts[1]), half)
    within = np.tile(np.arange(half), counts[1])
    # The aggregation switches of an edge are those of its pod; the cores of an aggregation switch
    # are the group that bears its number within the pod.
    lower = (server, first[1] + edge, first[2] + edge)
    upper = (
        first[1] + server // half,
        first[2] + edge // half * half + within,
        first[3] + edge % half * half + within,
    )
    return np.concatenate(lower), np.concatenate(upper)


def _tree_of_core(
    core: int, half: int, counts: list[int], first: IntArray, level: IntArray
) -> Tree:
    group, within = divmod(core, half)
    parent = np.full(len(level), -1, dtype=np.int64)
    uplink = np.full(len(level), -1, dtype=np.int64)
    server, edge = np.arange(counts[0]), np.arange(counts[1])
    parent[: first[1]] = first[1] + server // half
    uplink[: first[1]] = server
    parent[first[1] : first[2]] = first[2] + edge // half * half + group
    uplink[first[1] : first[2]] = counts[0] + edge * half + group
    aggregation = np.arange(2 * half) * half + group
    parent[first[2] + aggregation] = first[3] + core
    uplink[first[2] + aggregation] = counts[0] + counts[1] * half + aggregation * half + within
    return Tree(
        root=int(first[3]) + core,
        parent=frozen_array(parent),
        uplink=frozen_array(uplink),
        level=level,
    )
