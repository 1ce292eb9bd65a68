"""Oracles of the embedders: all placements of tiny trees, and CP-SAT on larger ones.

Both speak of the least reserved bandwidth in bit/s over all directed links and all trees, or None
where no placement fits. They know the data centre's plain arrays and the hose model alone.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import numpy as np

from testbed.embedding.placement import Placement, Residual
from topologies.custom import custom
from topologies.datacentre import DataCentre, Tree
from topologies.fat_tree import fat_tree
from topologies.flat import flat
from topologies.tree import tree


@dataclass(frozen=True, eq=False)
class Case:
    """One question to an embedder."""

    datacentre: DataCentre
    residual: Residual
    n_vms: int
    rate_bps: int


def reserved_bps(
    tree: Tree, counts: dict[int, int], n_vms: int, rate_bps: int
) -> dict[int, int]:
    """Link -> bit/s in each direction, for VMs per server."""
    below: dict[int, int] = {}
    for server, count in counts.items():
        node = server
        while node != tree.root:
            link = int(tree.uplink[node])
            below[link] = below.get(link, 0) + count
            node = int(tree.parent[node])
    return {
        link: min(x, n_vms - x) * rate_bps
        for link, x in below.items()
        if link >= 0 and x < n_vms
    }


def cost_of(
    datacentre: DataCentre, placement: Placement, rate_bps: int
) -> int:
    """Bandwidth that a placement reserves, both directions of all links."""
    (pinned,) = (
        tree for tree in datacentre.trees if tree.root == placement.root
    )
    n_vms = sum(count for _, count in placement.vms_on)
    return 2 * sum(
        reserved_bps(
            pinned, dict(placement.vms_on), n_vms, rate_bps
        ).values()
    )


def brute_force(case: Case) -> int | None:
    """Tries every placement in every tree."""
    costs = [
        c for tree in case.datacentre.trees for c in _costs_in(case, tree)
    ]
    return min(costs, default=None)


def _costs_in(case: Case, tree: Tree) -> list[int]:
    free = case.residual.free_bps
    held = frozenset(tree.members.tolist())
    servers = range(case.datacentre.n_servers)
    choices = [
        range(int(case.residual.free_slots[s]) + 1 if s in held else 1)
        for s in servers
    ]
    costs = []
    for counts in itertools.product(*choices):
        if sum(counts) != case.n_vms:
            continue
        placed = {s: count for s, count in enumerate(counts) if count}
        need = reserved_bps(tree, placed, case.n_vms, case.rate_bps)
        if all(
            bps <= free[2 * k] and bps <= free[2 * k + 1]
            for k, bps in need.items()
        ):
            costs.append(2 * sum(need.values()))
    return costs


def cp_sat(case: Case) -> int | None:
    """The optimum over all trees, by constraint programming."""
    costs = [_cp_sat_in(case, tree) for tree in case.datacentre.trees]
    return min((cost for cost in costs if cost is not None), default=None)


def _cp_sat_in(case: Case, tree: Tree) -> int | None:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    n = case.n_vms
    below: dict[int, list[cp_model.IntVar]] = {}
    placed = []
    for server in range(case.datacentre.n_servers):
        if server != tree.root and tree.parent[server] < 0:
            continue
        count = model.new_int_var(
            0, min(n, int(case.residual.free_slots[server])), f"x{server}"
        )
        placed.append(count)
        node = server
        while node != tree.root:
            below.setdefault(node, []).append(count)
            node = int(tree.parent[node])
    model.add(sum(placed) == n)
    costs = []
    for node, counts in sorted(below.items()):
        link = int(tree.uplink[node])
        if link < 0:
            continue
        crossing = model.new_int_var(0, n, f"m{node}")
        model.add_min_equality(crossing, [sum(counts), n - sum(counts)])
        free = min(case.residual.free_bps[2 * link : 2 * link + 2].tolist())
        model.add(crossing * case.rate_bps <= free)
        costs.append(crossing)
    if case.rate_bps:
        model.minimize(sum(costs))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    assert status == cp_model.OPTIMAL
    return 2 * round(solver.objective_value) * case.rate_bps


# ----------------------------------------------------------------------------- random cases


def tiny_case(rng: random.Random) -> Case:
    """Small enough to try every placement: trees, fat-trees, flat and uneven custom ones."""
    while True:
        datacentre = _tiny_datacentre(rng)
        most = 5 if datacentre.n_servers <= 6 else 2
        case = _random_case(rng, datacentre, most_slots=most, most_bps=8)
        if (
            np.prod(np.minimum(case.residual.free_slots, case.n_vms) + 1.0)
            <= 20_000
        ):
            return case


def _tiny_datacentre(rng: random.Random) -> DataCentre:
    match rng.randrange(8):
        case 0:
            return fat_tree(2, 10, 1)
        case 1:
            return fat_tree(4, 10, 1)
        case 2:
            return flat(rng.randint(1, 5), 3)
        case 3 | 4:
            return uneven(rng, rng.randint(1, 4), rng.randint(2, 6))
        case _:
            return tree(
                [rng.randint(1, 3) for _ in range(rng.randint(1, 3))], 10, 1
            )


def middle_case(rng: random.Random) -> Case:
    """Too large to try every placement, small enough for CP-SAT to prove the optimum."""
    match rng.randrange(3):
        case 0:
            datacentre = tree(
                [rng.randint(2, 3) for _ in range(rng.randint(2, 3))], 10, 1
            )
        case 1:
            datacentre = fat_tree(4, 10, 1)
        case _:
            datacentre = uneven(rng, rng.randint(3, 8), rng.randint(6, 20))
    return _random_case(
        rng, datacentre, most_slots=rng.choice([2, 4, 12]), most_bps=30
    )


def uneven(
    rng: random.Random, n_switches: int, n_servers: int
) -> DataCentre:
    """A random tree of switches with servers at any of them."""
    switches = [f"w{i}" for i in range(n_switches)]
    uplinks = [
        (f"w{i}", f"w{rng.randrange(i)}") for i in range(1, n_switches)
    ]
    uppers = [upper for _, upper in uplinks]
    homes = [switch for switch in switches if switch not in uppers]
    homes += [rng.choice(switches) for _ in range(n_servers - len(homes))]
    uplinks += [(f"s{i}", home) for i, home in enumerate(homes)]
    return custom(
        {
            "servers": [
                {"name": f"s{i}", "slots": 1} for i in range(len(homes))
            ],
            "switches": switches,
            "links": [
                {"lower": a, "upper": b, "capacity": 10} for a, b in uplinks
            ],
        }
    )


def _random_case(
    rng: random.Random,
    datacentre: DataCentre,
    *,
    most_slots: int,
    most_bps: int,
) -> Case:
    """Slots that are often few and sometimes many on one server; links unlike in each direction."""
    slots = [
        0 if rng.random() < 0.2 else rng.randint(0, most_slots)
        for _ in range(datacentre.n_servers)
    ]
    slots[rng.randrange(len(slots))] += rng.choice([0, 0, 0, most_slots])
    ceiling = rng.choice([2, most_bps // 2, most_bps])
    free_bps = [
        rng.randint(0, ceiling) for _ in range(2 * datacentre.n_links)
    ]
    residual = Residual(np.array(slots), np.array(free_bps, dtype=np.int64))
    n_vms = rng.randint(
        1, max(1, round(sum(slots) * rng.choice([0.3, 0.7, 1.1])))
    )
    return Case(datacentre, residual, n_vms, rng.choice([0, 1, 1, 2, 3, 5]))
