"""The data centre of ``spec.resolved.json`` against the arrays of ``run_started``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, product
from typing import Any

from testbed.results.audit.history import Topology

_MOST_LEVELS = 40
Links = list[tuple[int, int, int]]


def topology_faults(declared: Any, run: Topology) -> Iterator[str]:
    """Nodes, slots, memory and links that differ from the declared ones: the first of each."""
    ran = {
        "names": run.names,
        "roots": [tree["root"] for tree in run.all_trees],
        "slots": run.slots,
        "memory_mib": run.memory_mib,
        "links": list(zip(run.lower, run.upper, run.capacity_bps, strict=True)),
    }
    try:
        due = _custom(declared) if declared["kind"] == "custom" else _regular(declared, run.n_nodes)
    except (LookupError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        yield "topology is not that of the run"
        return
    for key, values in due.items():
        pairs = enumerate(zip(ran[key] or (), values or (), strict=False))
        first = next(
            (f"{key}[{at}] is {b}, {a} in the run" for at, (a, b) in pairs if a != b), None
        )
        if values != ran[key]:
            yield f"topology: {first or f'{key} are not as many as in the run'}"


def _custom(declared: Any) -> dict[str, Any]:
    names = [*(server["name"] for server in declared["servers"]), *declared["switches"]]
    number = {name: at for at, name in enumerate(names)}
    return {
        "names": names,
        "roots": sorted(number[name] for name in declared["roots"]),
        "slots": [server["slots"] for server in declared["servers"]],
        "memory_mib": [server["memory_mib"] for server in declared["servers"]]
        if any("memory_mib" in server for server in declared["servers"])
        else None,
        "links": [
            (number[link["lower"]], number[link["upper"]], link["capacity_bps"])
            for link in declared["links"]
        ],
    }


def _regular(declared: Any, n_nodes: int) -> dict[str, Any]:
    """By the parameters of the kind; ValueError where they make another number of nodes."""
    links: Links = []
    counts, slots = [n_nodes - 1, 1], declared.get("slots_per_server", declared.get("slots"))
    if declared["kind"] == "tree":
        counts, links = _tree(declared["fanout"], declared["link_bps"], n_nodes)
    elif declared["kind"] == "fat-tree":
        half, bps = declared["k"] // 2, declared["link_bps"]
        if declared["network"] == "pooled":
            parallel = [half * half * bps[0], half * bps[1], bps[2]]
            counts, links = _tree([2 * half, half, half], parallel, n_nodes)
        else:
            counts, links = _fat_tree(half, bps, n_nodes)
    each = {"slots": slots, "memory_mib": declared.get("memory_mib")}
    return {
        "roots": list(range(n_nodes - counts[-1], n_nodes)),
        "links": links,
        **{key: [one] * counts[0] if isinstance(one, int) else one for key, one in each.items()},
    }


def _firsts(counts: Sequence[int], n_nodes: int) -> list[int]:
    """The first node of each level, servers first."""
    if sum(counts) != n_nodes:
        raise ValueError("another number of nodes")
    return [0, *accumulate(counts)]


def _tree(fanout: list[int], bps: list[int], n_nodes: int) -> tuple[list[int], Links]:
    """Nodes by level and links by lower end: servers first."""
    counts = [math.prod(fanout[:k]) for k in range(min(len(fanout), _MOST_LEVELS), -1, -1)]
    first = _firsts(counts, n_nodes)
    levels = enumerate(zip(fanout[::-1], bps[::-1], strict=True))
    return counts, [
        (first[k] + child, first[k + 1] + child // width, own_bps)
        for k, (width, own_bps) in levels
        for child in range(counts[k])
    ]


def _fat_tree(half: int, bps: list[int], n_nodes: int) -> tuple[list[int], Links]:
    """Servers' links, edges' uplinks in their pod, then aggregation switches' to their cores."""
    counts = [2 * half**3, 2 * half**2, 2 * half**2, half**2]
    _, edge, aggregation, core, _ = _firsts(counts, n_nodes)
    ports = list(product(range(counts[1]), range(half)))
    return counts, [
        *((server, edge + server // half, bps[2]) for server in range(counts[0])),
        *((edge + e, aggregation + e // half * half + port, bps[1]) for e, port in ports),
        *((aggregation + a, core + a % half * half + port, bps[0]) for a, port in ports),
    ]
