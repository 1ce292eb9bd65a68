import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.embedding.check import check_placement
from testbed.embedding.placement import Placement, Residual, empty_residual
from tests.unit.embedding.oracles import reserved_bps, tiny_case
from topologies.fat_tree import fat_tree
from topologies.tree import tree

DC = tree([2, 2, 2], 10, 3)
ROOT = 14


def found(
    placement: Placement, n_vms: int, rate_bps: int, residual: Residual
) -> str:
    return "; ".join(
        check_placement(DC, residual, placement, n_vms, rate_bps)
    )


def test_a_good_placement_has_no_problems() -> None:
    assert (
        found(
            Placement(ROOT, ((0, 3), (1, 3), (4, 1))),
            7,
            1,
            empty_residual(DC),
        )
        == ""
    )


@pytest.mark.parametrize(
    ("placement", "n_vms", "message"),
    [
        (Placement(13, ((0, 1),)), 1, "no tree has root 13"),
        (Placement(ROOT, ((0, 4),)), 4, "server 0: 4 slots asked, 3 free"),
        (
            Placement(ROOT, ((8, 1),)),
            1,
            "node 8 is no server; 0 VMs placed, 1 asked",
        ),
        (
            Placement(ROOT, ((-1, 1),)),
            1,
            "node -1 is no server; 0 VMs placed, 1 asked",
        ),
        (Placement(ROOT, ((0, 1), (1, 1))), 3, "2 VMs placed, 3 asked"),
        (Placement(ROOT, ((0, 0), (1, 3))), 3, "server 0: 0 VMs"),
        (
            Placement(ROOT, ((1, 1), (0, 1))),
            2,
            "server 0 is out of order or named twice",
        ),
        (
            Placement(ROOT, ((1, 2), (1, 2))),
            4,
            "server 1 is out of order or named twice",
        ),
    ],
)
def test_what_is_no_placement(
    placement: Placement, n_vms: int, message: str
) -> None:
    assert found(placement, n_vms, 1, empty_residual(DC)) == message


def test_every_link_on_the_way_is_looked_at() -> None:
    placement = Placement(ROOT, ((0, 2), (7, 2)))
    for link in (0, 8, 12, 13, 11, 7):
        for direction in (0, 1):
            bps = np.array(DC.directed_capacity_bps)
            bps[2 * link + direction] = 3
            residual = Residual(np.array(DC.slots), bps)
            name = DC.link_name(2 * link + direction)
            expected = (
                f"{name}: 4 bit/s asked (2 VMs | 2 VMs), 3 bit/s free"
            )
            assert found(placement, 4, 2, residual) == expected


def test_links_with_all_vms_on_one_side_carry_nothing() -> None:
    bps = np.zeros(2 * DC.n_links, dtype=np.int64)
    bps[[0, 1, 2, 3]] = 10
    residual = Residual(np.array(DC.slots), bps)
    assert found(Placement(ROOT, ((0, 3), (1, 3))), 6, 1, residual) == ""
    assert found(Placement(ROOT, ((5, 3),)), 3, 10**9, residual) == ""


def test_a_pinned_tree_is_what_counts() -> None:
    dc = fat_tree(4, 10, 1)
    bps = np.array(dc.directed_capacity_bps)
    at_first_core = [
        link for link in range(dc.n_links) if dc.link_upper[link] == 32
    ]
    bps[[2 * link for link in at_first_core]] = 0
    residual = Residual(np.array(dc.slots), bps)
    across = ((0, 1), (15, 1))
    assert (
        len(check_placement(dc, residual, Placement(32, across), 2, 1)) == 2
    )
    assert check_placement(dc, residual, Placement(33, across), 2, 1) == []


@given(st.integers(0, 2**32))
def test_it_agrees_with_the_definition_on_random_placements(
    seed: int,
) -> None:
    rng = random.Random(seed)
    case = tiny_case(rng)
    tree_at = rng.choice(case.datacentre.trees)
    counts = {
        server: rng.randint(1, int(slots))
        for server, slots in enumerate(case.residual.free_slots.tolist())
        if slots and rng.random() < 0.5
    }
    n_vms = sum(counts.values())
    placement = Placement(tree_at.root, tuple(sorted(counts.items())))
    need = reserved_bps(tree_at, counts, n_vms, case.rate_bps)
    free = case.residual.free_bps
    over = [
        d
        for link, bps in need.items()
        for d in (2 * link, 2 * link + 1)
        if bps > free[d]
    ]
    problems = check_placement(
        case.datacentre, case.residual, placement, n_vms, case.rate_bps
    )
    names = sorted(case.datacentre.link_name(directed) for directed in over)
    assert sorted(problem.split(": ")[0] for problem in problems) == names
