"""Fat-trees: k pods of k/2 edge and k/2 aggregation switches below (k/2)^2
cores.

After Al-Fares et al., "A scalable, commodity data center network architecture"
(2008). There are two interpretations of their capacity. *tree*: below each core
there is exactly one tree to all servers, and a tenant is pinned to one core.
*pooled*: parallel links between two layers count as one link with their total
capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from topologies.datacentre import (
    MAX_LINK_BPS,
    MAX_NODES,
    MAX_TREE_ENTRIES,
    Capacity,
    DataCentre,
    IntArray,
    Problems,
    TopologyError,
    Tree,
    both_directions,
    capacities,
    capacity_of,
    check_at_least,
    directed_array,
    frozen_array,
    make_tree,
    one_or_all,
    slot_array,
)
from topologies.tree import tree, tree_names

Network = Literal["tree", "pooled"]
NETWORKS: tuple[Network, ...] = get_args(Network)


def fat_tree(
    k: int,
    link_bps: Capacity | Sequence[Capacity],
    slots_per_server: int | Sequence[int],
    network: Network = "tree",
) -> DataCentre:
    """The fat-tree of k-port switches: k^3/4 servers, k even and at least 2.

    ``link_bps``: capacity of single links: one, or three from the top down
    (core, aggregation, servers).

    Numbering: servers, edge switches, aggregation switches pod by pod, cores.
    Core ``c`` is above aggregation switch ``c // (k/2)`` of every pod, so cores
    of the same group share all that is below these switches. ``trees``: one per
    core, in order.

    ``network="pooled"`` is a single tree: servers, edges, one aggregation node
    per pod in place of k/2 switches, and one core node. An edge's uplink has
    the capacity of k/2 links, a pod's that of (k/2)^2. Raises TopologyError
    with all problems.
    """
    problems = Problems()
    _check_ports(problems, k)
    n_servers = None if problems else int(k) ** 3 // 4
    per_level = capacities(problems, link_bps, 3)
    slots = slot_array(
        problems, slots_per_server, n_servers, "slots_per_server"
    )
    _check_network(problems, network, k, per_level)
    if problems:
        raise TopologyError(problems)
    parameters: dict[str, object] = {
        "k": int(k),
        "link_bps": per_level,
        "slots_per_server": one_or_all(slots),
        "network": network,
    }
    half = int(k) // 2
    if network == "pooled":
        return _pooled(half, per_level, slots.tolist(), parameters)
    return _of_trees(half, per_level, slots, parameters)


def _check_ports(problems: Problems, k: int) -> None:
    if not check_at_least(
        problems, ("k",), k, "the number of ports", least=2
    ):
        return
    if k % 2:
        problems.report(
            f"a fat-tree's switches have an even number of ports, not {k}",
            "k",
        )
        return
    # Each of the (k/2)² trees has arrays over all nodes.
    n_trees = (k // 2) ** 2
    n_nodes = k**3 // 4 + 5 * k * k // 4
    if n_trees * n_nodes > MAX_TREE_ENTRIES or k**3 > MAX_NODES:
        problems.report(
            f"k = {k} is more than is supported; at most 42", "k"
        )


def _check_network(
    problems: Problems,
    network: str,
    k: int,
    per_level: Sequence[Capacity],
) -> None:
    if network not in NETWORKS:
        problems.report(
            f"must be one of {', '.join(NETWORKS)}, not {network!r}",
            "network",
        )
    elif network == "pooled" and not problems:
        most = int(directed_array(_pooled_bps(k // 2, per_level)).max())
        if most > MAX_LINK_BPS:
            problems.report(
                f"pooled links of {most} bit/s are above 1000 Tbit/s",
                "link_bps",
            )


def _of_trees(
    half: int,
    per_level: Sequence[Capacity],
    slots: IntArray,
    parameters: dict[str, object],
) -> DataCentre:
    """The fat-tree with a tree below each core."""
    k = 2 * half
    counts = [k**3 // 4, k * half, k * half, half * half]
    # Number of the first node of each level, from the servers up.
    first = np.concatenate(([0], np.cumsum(counts)))
    n_links = [counts[0], counts[1] * half, counts[2] * half]
    level = frozen_array(np.repeat(np.arange(4), counts))
    lower, upper = _links(half, counts, first)
    # Levels are given from the top down, links numbered from the bottom up.
    level_bps = directed_array(per_level[::-1]).reshape(-1, 2)
    return DataCentre(
        kind="fat-tree",
        names=_edges_for_racks(tree_names(counts)),
        level=level,
        slots=frozen_array(slots),
        link_lower=frozen_array(lower),
        link_upper=frozen_array(upper),
        directed_capacity_bps=frozen_array(
            np.repeat(level_bps, n_links, axis=0).ravel()
        ),
        trees=tuple(
            _tree_of_core(
                core,
                half=half,
                first=first,
                lower=lower,
                upper=upper,
                level=level,
            )
            for core in range(counts[3])
        ),
        parameters=parameters,
    )


def _pooled_bps(half: int, per_level: Sequence[Capacity]) -> list[Capacity]:
    """Total capacities of parallel links, from the top down."""
    pooled = []
    for capacity, n_links in zip(
        per_level, (half * half, half, 1), strict=True
    ):
        up_bps, down_bps = both_directions(capacity)
        pooled.append(capacity_of(n_links * up_bps, n_links * down_bps))
    return pooled


def _pooled(
    half: int,
    per_level: list[Capacity],
    slots: list[int],
    parameters: dict[str, object],
) -> DataCentre:
    """The fat-tree as a tree whose links stand for all parallel ones."""
    # Below the one core are 2·half pods of half edge switches with half servers
    # each.
    regular = tree(
        [2 * half, half, half], _pooled_bps(half, per_level), slots
    )
    return replace(
        regular,
        kind="fat-tree",
        names=_edges_for_racks(regular.names),
        parameters=parameters,
    )


def _edges_for_racks(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.replace("rack ", "edge ") for name in names)


def _links(
    half: int, counts: list[int], first: IntArray
) -> tuple[IntArray, IntArray]:
    """Lower and upper ends of all links.

    First those of servers, then of edge switches, then of aggregation switches.
    """
    server = np.arange(counts[0])
    edge = np.repeat(np.arange(counts[1]), half)
    within = np.tile(np.arange(half), counts[1])
    # An edge switch has a link to each aggregation switch of its pod. The i-th
    # aggregation switch of a pod has one to each core of group i.
    lower = (server, first[1] + edge, first[2] + edge)
    upper = (
        first[1] + server // half,
        first[2] + edge // half * half + within,
        first[3] + edge % half * half + within,
    )
    return np.concatenate(lower), np.concatenate(upper)


def _tree_of_core(
    core: int,
    *,
    half: int,
    first: IntArray,
    lower: IntArray,
    upper: IntArray,
    level: IntArray,
) -> Tree:
    """The tree below a core: all servers' links, and the uplinks to that core."""
    root = int(first[3]) + core
    group = core // half
    # In each pod the aggregation switch of the core's group leads to the core.
    to_edge = upper < first[2]
    to_aggregation = ~to_edge & (upper < first[3])
    in_group = (upper - first[2]) % half == group
    # The trees of all cores are the same below the edge switches.
    leads = to_edge | (to_aggregation & in_group) | (upper == root)
    return make_tree(
        root=root,
        level=level,
        nodes=lower[leads],
        parents=upper[leads],
        links=np.flatnonzero(leads),
    )
