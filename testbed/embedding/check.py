"""Independent capacity check of a placement.

It walks the data centre's links itself and shares no code with embedders, so
that it cannot share their mistakes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from testbed.embedding.placement import (
    ONE_SLOT,
    Placement,
    Residual,
    VmSize,
)
from topologies.datacentre import DataCentre, Tree


def check_placement(
    datacentre: DataCentre,
    residual: Residual,
    placement: Placement,
    n_vms: int,
    rate_bps: int,
    size: VmSize = ONE_SLOT,
) -> list[str]:
    """All problems of a placement of the request ⟨n, b⟩; empty if it fits.

    Each server needs slots and memory of ``size`` for each of its VMs. All
    servers must be below the placement's root. Each directed link with X of the
    VMs on one side needs min(X, n-X)·b of free bandwidth.
    """
    tree = datacentre.tree_by_root.get(placement.root)
    if tree is None:
        return [f"no tree has root {placement.root}"]
    # Paths are followed only from servers that exist.
    problems = _check_servers(
        datacentre, residual, placement, n_vms=n_vms, size=size
    )
    if problems:
        return problems
    below: Counter[int] = Counter()
    problems += _count_below(datacentre, tree, placement, below)
    if problems:
        return problems
    for node, inside in sorted(below.items()):
        outside = n_vms - inside
        asked = min(inside, outside) * rate_bps
        link = int(tree.uplink[node])
        for direction in (2 * link, 2 * link + 1):
            free = int(residual.free_bps[direction])
            # What carries nothing may be full beyond its capacity.
            if asked > 0 and asked > free:
                problems.append(
                    f"{datacentre.link_name(direction)}: {asked} bit/s asked"
                    f" ({inside} VMs | {outside} VMs), {free} bit/s free"
                )
    return problems


def _check_servers(
    datacentre: DataCentre,
    residual: Residual,
    placement: Placement,
    *,
    n_vms: int,
    size: VmSize,
) -> list[str]:
    problems = []
    before = -1
    placed = 0
    for server, count in placement.vms_on:
        if not 0 <= server < datacentre.n_servers:
            problems.append(f"node {server} is no server")
            continue
        name = datacentre.names[server]
        if server <= before:
            problems.append(f"{name} is out of order or named twice")
        if count < 1:
            problems.append(f"{name}: {count} VMs")
        asked = count * size.slots
        free = int(residual.free_slots[server])
        if asked > free:
            problems.append(f"{name}: {asked} slots asked, {free} free")
        if residual.free_memory_mib is not None:
            asked = count * size.memory_mib
            free = int(residual.free_memory_mib[server])
            if asked > free:
                problems.append(
                    f"{name}: {asked} MiB asked, {free} MiB free"
                )
        before = server
        placed += count
    if placed != n_vms:
        problems.append(f"{placed} VMs placed, {n_vms} asked")
    processes = placement.processes
    if processes and sorted(processes) != list(range(n_vms)):
        problems.append(
            f"its processes are not 0 to {n_vms - 1}, each once"
        )
    return problems


def _count_below(
    datacentre: DataCentre,
    tree: Tree,
    placement: Placement,
    below: Counter[int],
) -> Iterator[str]:
    """Walks from each server to the root, adding its VMs to ``below``: the
    number of VMs below the uplink of each node.

    Yields the problem of each path that has one.
    """
    names = datacentre.names
    for server, count in placement.vms_on:
        node = server
        while node != tree.root:
            link = int(tree.uplink[node])
            above = int(tree.parent[node])
            if above < 0:
                yield f"{names[server]} is not below {names[tree.root]}"
                break
            if link >= 0:
                lower = datacentre.link_lower[link]
                upper = datacentre.link_upper[link]
                if (lower, upper) != (node, above):
                    yield (
                        f"link {link} does not join {names[node]}"
                        f" and {names[above]}"
                    )
                    break
                below[node] += count
            node = above
