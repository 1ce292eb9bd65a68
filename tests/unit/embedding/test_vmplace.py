"""VMplace against CP-SAT, subtree by subtree."""

import random

import numpy as np
import pytest

from testbed.embedding.check import check_placement
from testbed.embedding.exact import Exact, least_bandwidth
from testbed.embedding.placement import Placement, Residual, empty_residual
from tests.unit.embedding.oracles import (
    Case,
    cost_of,
    cp_sat,
    middle_case,
    tiny_case,
)
from topologies.tree import tree


def servers_below(case: Case, switch: int) -> set[int]:
    """By walking up from every server, in every tree that holds the switch."""
    found = set()
    for pinned in case.datacentre.trees:
        for server in range(case.datacentre.n_servers):
            node = server
            while node >= 0 and node != switch:
                node = int(pinned.parent[node])
            if node == switch:
                found.add(server)
    return found


def inside(case: Case, switch: int) -> Case:
    """The same question with slots below one switch alone."""
    kept = servers_below(case, switch)
    free = [
        int(n) if s in kept else 0
        for s, n in enumerate(case.residual.free_slots)
    ]
    slots = np.array(free, dtype=np.int64)
    return Case(
        case.datacentre,
        Residual(slots, case.residual.free_bps),
        case.n_vms,
        case.rate_bps,
    )


def answer(case: Case) -> Placement | None:
    found = least_bandwidth(
        case.datacentre, case.residual, case.n_vms, case.rate_bps
    )
    if found is not None:
        wrong = check_placement(
            case.datacentre, case.residual, found, case.n_vms, case.rate_bps
        )
        assert wrong == []
    return found


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(6))
def test_a_placement_is_found_in_a_subtree_exactly_when_one_exists_there(
    batch: int,
) -> None:
    rng = random.Random(f"vmplace {batch}")
    yes = no = 0
    while yes < 2 or no < 2:
        case = middle_case(rng)
        switches = range(case.datacentre.n_servers, case.datacentre.n_nodes)
        here = inside(case, rng.choice(switches))
        exists = cp_sat(here) is not None
        assert (answer(here) is not None) == exists
        yes, no = yes + exists, no + (not exists)


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(4))
def test_the_subtree_is_on_the_lowest_level_that_has_a_placement(
    batch: int,
) -> None:
    rng = random.Random(f"lowest {batch}")
    for _ in range(25):
        case = tiny_case(rng)
        found = answer(case)
        whole = cp_sat(case)
        assert (found is None) == (whole is None)
        if found is None or len(found.vms_on) == 1:
            continue
        level = case.datacentre.level
        best: dict[int, int] = {}
        for switch in range(
            case.datacentre.n_servers, case.datacentre.n_nodes
        ):
            cost = cp_sat(inside(case, switch))
            if cost is not None:
                at = int(level[switch])
                best[at] = min(cost, best.get(at, cost))
        lowest = min(best)
        used = {server for server, _ in found.vms_on}
        assert any(
            used <= servers_below(case, switch)
            for switch in range(
                case.datacentre.n_servers, case.datacentre.n_nodes
            )
            if level[switch] == lowest
        )
        assert (
            cost_of(case.datacentre, found, case.rate_bps) == best[lowest]
        )


def test_a_rack_comes_before_a_cheaper_placement_across_racks() -> None:
    # Across the racks 5 + 1 reserves 1 on four links, inside rack 1 it is 1 on six links.
    dc = tree([2, 6], 10, [5, *[0] * 5, *[1] * 6])
    found = Exact("vmplace", lowest=True).embed(
        dc, empty_residual(dc), 6, 1
    )
    assert isinstance(found, Placement)
    assert found.vms_on == tuple((server, 1) for server in range(6, 12))
