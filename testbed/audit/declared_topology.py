"""The data centre of ``spec.resolved.json`` against the arrays of
``run_started``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, product
from typing import Any

from testbed.audit.history import Topology

_MOST_LEVELS = 40
Both = tuple[int, int]
"""Bit/s upward, and downward."""
Links = list[tuple[int, int, Both]]


def topology_faults(declared: Any, run: Topology) -> Iterator[str]:
    """Nodes, slots, memory and links that differ from the declared ones: the
    first of each.
    """
    try:
        due = _due(declared, run.n_nodes)
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
    ):
        # Whatever a damaged file may hold in place of a topology.
        yield "topology is not that of the run"
        return
    ran = _ran(run)
    for key, values in due.items():
        if values != ran[key]:
            yield f"topology: {_first_difference(key, ran[key], values)}"


def _ran(run: Topology) -> dict[str, Any]:
    capacities = zip(run.capacity_bps, run.capacity_down_bps, strict=True)
    return {
        "names": run.names,
        "roots": [tree["root"] for tree in run.all_trees],
        "slots": run.slots,
        "memory_mib": run.memory_mib,
        "links": list(zip(run.lower, run.upper, capacities, strict=True)),
    }


def _first_difference(key: str, ran: Any, due: Any) -> str:
    for at, (of_run, value) in enumerate(
        zip(ran or (), due or (), strict=False)
    ):
        if of_run != value:
            return f"{key}[{at}] is {value}, {of_run} in the run"
    return f"{key} are not as many as in the run"


def _due(declared: Any, n_nodes: int) -> dict[str, Any]:
    # Built here from the parameters: the audit shares no code with the
    # topologies' builders.
    if declared["kind"] == "custom":
        return _custom(declared)
    return _regular(declared, n_nodes)


def _custom(declared: Any) -> dict[str, Any]:
    servers = declared["servers"]
    # Servers first, as in the run's arrays.
    names = [server["name"] for server in servers]
    names += declared["switches"]
    number = {name: at for at, name in enumerate(names)}
    memory = None
    if any("memory_mib" in server for server in servers):
        memory = [server["memory_mib"] for server in servers]
    links = []
    for link in declared["links"]:
        lower = number[link["lower"]]
        upper = number[link["upper"]]
        links.append((lower, upper, _both(link["capacity_bps"])))
    return {
        "names": names,
        "roots": sorted(number[name] for name in declared["roots"]),
        "slots": [server["slots"] for server in servers],
        "memory_mib": memory,
        "links": links,
    }


def _regular(declared: Any, n_nodes: int) -> dict[str, Any]:
    """By the parameters of the kind; ValueError where they make another number
    of nodes.
    """
    links: Links = []
    # A flat cluster: all nodes but the root are servers.
    counts = [n_nodes - 1, 1]
    bps = list(map(_both, declared.get("link_bps", ())))
    if declared["kind"] == "tree":
        counts, links = _tree(declared["fanout"], bps, n_nodes)
    elif declared["kind"] == "fat-tree":
        half = declared["k"] // 2
        if declared["network"] == "pooled":
            counts, links = _pooled(half, bps, n_nodes)
        else:
            counts, links = _fat_tree(half, bps, n_nodes)
    slots = declared.get("slots_per_server", declared.get("slots"))
    return {
        "roots": list(range(n_nodes - counts[-1], n_nodes)),
        "links": links,
        "slots": _of_servers(slots, counts[0]),
        "memory_mib": _of_servers(declared.get("memory_mib"), counts[0]),
    }


def _pooled(
    half: int, bps: list[Both], n_nodes: int
) -> tuple[list[int], Links]:
    """Parallel links of a fat tree, pooled, make a tree of fat ones."""
    n_parallel = (half * half, half, 1)
    pooled = []
    for n, (up_bps, down_bps) in zip(n_parallel, bps, strict=True):
        pooled.append((n * up_bps, n * down_bps))
    return _tree([2 * half, half, half], pooled, n_nodes)


def _both(declared_bps: Any) -> Both:
    """A declared capacity: one of both directions, or one of either."""
    if isinstance(declared_bps, int):
        return declared_bps, declared_bps
    return declared_bps["up"], declared_bps["down"]


def _of_servers(value: Any, n_servers: int) -> Any:
    """A value per server, where one is declared for all."""
    if isinstance(value, int):
        return [value] * n_servers
    return value


def _firsts(counts: Sequence[int], n_nodes: int) -> list[int]:
    """The first node of each level, servers first."""
    if sum(counts) != n_nodes:
        raise ValueError("another number of nodes")
    return [0, *accumulate(counts)]


def _tree(
    fanout: list[int], bps: list[Both], n_nodes: int
) -> tuple[list[int], Links]:
    """Nodes by level and links by lower end: servers first."""
    # A damaged file may hold a list of any length.
    depth = min(len(fanout), _MOST_LEVELS)
    # A root, below it fanout[0] switches, below each of those fanout[1] …
    from_root = [1]
    for width in fanout[:depth]:
        from_root.append(from_root[-1] * width)
    counts = from_root[::-1]
    first = _firsts(counts, n_nodes)
    links: Links = []
    upwards = zip(reversed(fanout), reversed(bps), strict=True)
    for level, (width, both_bps) in enumerate(upwards):
        for child in range(counts[level]):
            lower = first[level] + child
            upper = first[level + 1] + child // width
            links.append((lower, upper, both_bps))
    return counts, links


def _fat_tree(
    half: int, bps: list[Both], n_nodes: int
) -> tuple[list[int], Links]:
    """Servers' links, edges' uplinks in their pod, then aggregation switches'
    to their cores.
    """
    # k pods of (k/2)² servers, k/2 edge and k/2 aggregation switches each;
    # (k/2)² cores.
    counts = [2 * half**3, 2 * half**2, 2 * half**2, half**2]
    _, edge, aggregation, core, _ = _firsts(counts, n_nodes)
    links: Links = []
    for server in range(counts[0]):
        links.append((server, edge + server // half, bps[2]))
    for number, port in product(range(counts[1]), range(half)):
        upper = aggregation + number // half * half + port
        links.append((edge + number, upper, bps[1]))
    # A pod's i-th aggregation switch reaches the i-th group of cores.
    for number, port in product(range(counts[1]), range(half)):
        upper = core + number % half * half + port
        links.append((aggregation + number, upper, bps[0]))
    return counts, links
