"""Properties of every embedder, and the papers' own examples."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.embedding.check import check_placement
from testbed.embedding.counts import Counts
from testbed.embedding.exact import Exact
from testbed.embedding.oktopus import Oktopus, published
from testbed.embedding.placement import (
    Embedder,
    Placement,
    Refusal,
    Residual,
    empty_residual,
    hose_bps,
    tree_of,
)
from tests.unit.embedding.oracles import (
    Case,
    brute_force,
    cost_of,
    tiny_case,
)
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.flat import flat
from topologies.tree import tree

GBIT = 10**9
MBIT = 10**6
EMBEDDERS = [Oktopus(), Exact(), Exact("vmplace", lowest=True)]
every_embedder = pytest.mark.parametrize(
    "embedder", EMBEDDERS, ids=lambda e: e.name
)
seeds = st.integers(0, 2**32)


def embed(embedder: Embedder, case: Case) -> Placement | Refusal:
    return embedder.embed(
        case.datacentre, case.residual, case.n_vms, case.rate_bps
    )


def without(
    dc: DataCentre, residual: Residual, placement: Placement, rate_bps: int
) -> Residual:
    """The residual after a placement."""
    slots, bps = residual.free_slots.copy(), residual.free_bps.copy()
    for server, count in placement.vms_on:
        slots[server] -= count
    for link, need in hose_bps(
        tree_of(dc, placement.root), placement, rate_bps
    ).items():
        bps[link] -= need
    return Residual(slots, bps)


# ------------------------------------------------------------------------ examples from papers


def counter_example() -> Case:
    """Two servers with (slots, free bit/s) of (3, 4) and (4, 2) below one switch; ⟨6, 1⟩."""
    dc = tree([2], 4, [3, 4])
    return Case(
        dc, Residual(np.array([3, 4]), np.array([4, 4, 2, 2])), 6, 1
    )


def test_the_published_greedy_over_commits() -> None:
    case = counter_example()
    counts = Counts(case.datacentre, case.residual, 6, 1)
    _, greedy, sound = next(published(counts))
    assert (greedy, sound) == (Placement(2, ((0, 3), (1, 3))), False)
    assert check_placement(
        case.datacentre, case.residual, greedy, 6, 1
    ) == [
        "server 1 -> core 0: 3 bit/s asked (3 VMs | 3 VMs), 2 bit/s free",
        "core 0 -> server 1: 3 bit/s asked (3 VMs | 3 VMs), 2 bit/s free",
    ]


@every_embedder
def test_ours_finds_the_placement_that_the_greedy_missed(
    embedder: Embedder,
) -> None:
    assert embed(embedder, counter_example()) == Placement(
        2, ((0, 2), (1, 4))
    )


def test_the_repair_stays_in_the_subtree_that_the_greedy_chose() -> None:
    # Rack 0 is the counter-example; rack 1 holds 5 + 1, which reserves less.
    dc = tree([2, 2], 4, [3, 4, 5, 1])
    free_bps = np.array(dc.directed_capacity_bps)
    free_bps[[2, 3]] = 2
    residual = Residual(np.array(dc.slots), free_bps)
    assert Oktopus().embed(dc, residual, 6, 1) == Placement(
        6, ((0, 2), (1, 4))
    )
    assert Exact().embed(dc, residual, 6, 1) == Placement(
        6, ((2, 5), (3, 1))
    )


@every_embedder
def test_dcloud_figure_1(embedder: Embedder) -> None:
    dc = tree([6], GBIT, 4)
    spread = embedder.embed(dc, empty_residual(dc), 6, GBIT)
    assert spread == Placement(6, tuple((server, 1) for server in range(6)))
    packed = embedder.embed(dc, empty_residual(dc), 6, GBIT // 2)
    assert packed == Placement(6, ((0, 4), (1, 2)))
    assert hose_bps(dc.trees[0], packed, GBIT // 2) == dict.fromkeys(
        range(4), GBIT
    )


@every_embedder
@pytest.mark.parametrize("rate_mbps", [750, 600, 450, 300, 150])
def test_the_bandwidth_scaling_example_fits_two_jobs_at_once(
    embedder: Embedder, rate_mbps: int
) -> None:
    dc = tree([4, 2, 2], GBIT, 2)
    rate_bps = rate_mbps * MBIT
    residual = empty_residual(dc)
    for n_vms in (4, 3):
        answer = embedder.embed(dc, residual, n_vms, rate_bps)
        assert isinstance(answer, Placement)
        assert check_placement(dc, residual, answer, n_vms, rate_bps) == []
        residual = without(dc, residual, answer, rate_bps)
    assert residual.free_slots.sum() == 25


# ------------------------------------------------------------------------------- invariants


@pytest.mark.slow
@given(seeds)
@every_embedder
def test_filling_a_data_centre_never_over_commits(
    embedder: Embedder, seed: int
) -> None:
    rng = random.Random(seed)
    dc = rng.choice(
        [
            tree([2, 2, 3], [20, 10, 10], 3),
            fat_tree(4, 10, 2),
            tree([4, 4], 10, 4),
        ]
    )
    residual = empty_residual(dc)
    for _ in range(12):
        n_vms, rate_bps = rng.randint(1, 9), rng.randint(0, 6)
        answer = embedder.embed(dc, residual, n_vms, rate_bps)
        if isinstance(answer, Placement):
            assert (
                check_placement(dc, residual, answer, n_vms, rate_bps) == []
            )
            residual = without(dc, residual, answer, rate_bps)
    assert residual.free_slots.min() >= 0
    assert residual.free_bps.min() >= 0


@given(seeds, st.integers(2, 1000))
@every_embedder
def test_scaling_all_bandwidths_changes_nothing(
    embedder: Embedder, seed: int, factor: int
) -> None:
    case = tiny_case(random.Random(seed))
    scaled = Residual(
        case.residual.free_slots, case.residual.free_bps * factor
    )
    again = Case(
        case.datacentre, scaled, case.n_vms, case.rate_bps * factor
    )
    before, after = embed(embedder, case), embed(embedder, again)
    if isinstance(before, Placement):
        assert after == before
    else:
        assert isinstance(after, Refusal)


@pytest.mark.slow
@given(seeds)
@every_embedder
def test_renaming_servers_changes_no_decision(
    embedder: Embedder, seed: int
) -> None:
    rng = random.Random(seed)
    fanout = [rng.randint(1, 3) for _ in range(rng.randint(1, 3))]
    dc = tree(fanout, 10, 1)
    slots = np.array([rng.randint(0, 4) for _ in range(dc.n_servers)])
    bps = np.array([rng.randint(0, 8) for _ in range(2 * dc.n_links)])
    renamed = permuted(rng, dc, fanout)
    new_slots = slots[renamed[: dc.n_servers]]
    new_bps = bps.reshape(-1, 2)[renamed[: dc.n_links]].reshape(-1)
    for n_vms in range(1, int(slots.sum()) + 1):
        case = Case(dc, Residual(slots, bps), n_vms, 2)
        again = Case(dc, Residual(new_slots, new_bps), n_vms, 2)
        before, after = embed(embedder, case), embed(embedder, again)
        assert isinstance(before, Placement) == isinstance(after, Placement)
        if embedder.name == "exact" and isinstance(before, Placement):
            assert isinstance(after, Placement)
            assert cost_of(dc, before, 2) == cost_of(dc, after, 2)


def permuted(
    rng: random.Random, dc: DataCentre, fanout: list[int]
) -> list[int]:
    """Old node for every new one, after shuffling the children of every switch."""
    (only,) = dc.trees
    old_of = {only.root: only.root}
    level = [only.root]
    while level:
        below = []
        for new in level:
            children = np.flatnonzero(only.parent == old_of[new]).tolist()
            rng.shuffle(children)
            new_children = np.flatnonzero(only.parent == new).tolist()
            for new_child, old_child in zip(
                new_children, children, strict=True
            ):
                old_of[new_child] = old_child
                below.append(new_child)
        level = below
    assert len(old_of) == dc.n_nodes
    assert len(fanout) == dc.n_levels - 1
    return [old_of[node] for node in range(dc.n_nodes)]


@given(seeds)
@every_embedder
def test_the_same_question_has_the_same_answer(
    embedder: Embedder, seed: int
) -> None:
    case = tiny_case(random.Random(seed))
    slots, bps = (
        case.residual.free_slots.copy(),
        case.residual.free_bps.copy(),
    )
    assert embed(embedder, case) == embed(embedder, case)
    assert np.array_equal(case.residual.free_slots, slots)
    assert np.array_equal(case.residual.free_bps, bps)


# --------------------------------------------------------------------------- order of choices


@every_embedder
def test_the_lowest_subtree_is_taken(embedder: Embedder) -> None:
    dc = tree([2, 2, 2], GBIT, 2)
    residual = empty_residual(dc)
    for n_vms, lowest in ((2, 0), (4, 8), (8, 12), (16, 14)):
        answer = embedder.embed(dc, residual, n_vms, MBIT)
        assert isinstance(answer, Placement)
        common = next(
            node
            for node in range(dc.n_nodes)
            if all(
                node in dc.trees[0].path_to_root(s)
                for s, _ in answer.vms_on
            )
        )
        assert common == lowest


def test_exact_prefers_less_bandwidth_to_a_lower_subtree() -> None:
    # Rack 0 holds 5 VMs on one server and nothing else; rack 1 has six servers of one slot. 5 + 1
    # across the racks reserves 1 on four links; inside rack 1 it would be 1 on six links.
    dc = tree([2, 6], 10, [5, *[0] * 5, *[1] * 6])
    residual = empty_residual(dc)
    oktopus, exact, vmplace = (
        e.embed(dc, residual, 6, 1) for e in EMBEDDERS
    )
    assert (
        oktopus
        == vmplace
        == Placement(14, tuple((server, 1) for server in range(6, 12)))
    )
    assert exact == Placement(14, ((0, 5), (6, 1)))
    assert isinstance(oktopus, Placement)
    assert isinstance(exact, Placement)
    assert (cost_of(dc, oktopus, 1), cost_of(dc, exact, 1)) == (12, 8)
    assert brute_force(Case(dc, residual, 6, 1)) == 8


@every_embedder
def test_a_fat_tree_is_pinned_to_the_first_core_with_room(
    embedder: Embedder,
) -> None:
    dc = fat_tree(4, 10, 1)
    residual = empty_residual(dc)
    roots = []
    for _ in range(4):
        answer = embedder.embed(dc, residual, 3, 5)
        assert isinstance(answer, Placement)
        roots.append(answer.root)
        residual = without(dc, residual, answer, 5)
    assert roots == [32, 32, 32, 32]
    # Pods 0 and 1 lose the links to the first core's group: only the second group's cores remain.
    bps = empty_residual(dc).free_bps.copy()
    for link in range(dc.n_links):
        if dc.link_upper[link] in {24, 26, 28, 30}:
            bps[2 * link] = bps[2 * link + 1] = 0
    answer = embedder.embed(dc, Residual(np.array(dc.slots), bps), 8, 1)
    assert isinstance(answer, Placement)
    assert answer.root == 34


@every_embedder
def test_a_core_without_links_is_passed_over(embedder: Embedder) -> None:
    dc = fat_tree(4, 10, 1)
    bps = empty_residual(dc).free_bps.copy()
    bps[
        [
            2 * link
            for link in range(dc.n_links)
            if dc.link_upper[link] in {32, 33}
        ]
    ] = 0
    answer = embedder.embed(dc, Residual(np.array(dc.slots), bps), 16, 1)
    assert isinstance(answer, Placement)
    assert answer.root == 34


@every_embedder
def test_flat_clusters_know_no_bandwidth(embedder: Embedder) -> None:
    dc = flat(4, [2, 3, 3, 2])
    answer = embedder.embed(dc, empty_residual(dc), 7, 10**12)
    assert isinstance(answer, Placement)
    assert answer.root == 4
    assert answer.n_vms == 7
    assert embedder.embed(dc, empty_residual(dc), 3, 1) == Placement(
        4, ((1, 3),)
    )


@every_embedder
def test_rate_zero_needs_slots_alone(embedder: Embedder) -> None:
    dc = tree([2, 2], 1, 2)
    no_links = Residual(
        np.array(dc.slots), np.zeros(2 * dc.n_links, dtype=np.int64)
    )
    answer = embedder.embed(dc, no_links, 8, 0)
    assert answer == Placement(6, ((0, 2), (1, 2), (2, 2), (3, 2)))
    assert embedder.embed(dc, no_links, 3, 0) == Placement(
        6, ((0, 2), (1, 1))
    )


# -------------------------------------------------------------------------------- refusals


@every_embedder
def test_reasons_name_what_binds(embedder: Embedder) -> None:
    dc = tree([4, 2, 2], GBIT, 2)
    residual = empty_residual(dc)

    def reason(n_vms: int, rate_bps: int, free: Residual = residual) -> str:
        answer = embedder.embed(dc, free, n_vms, rate_bps)
        assert isinstance(answer, Refusal)
        return answer.reason

    assert reason(40, MBIT) == "not enough slots: 40 asked, 32 free"
    assert reason(3, 1500 * MBIT) == (
        "1.50 Gbit/s per VM is above every server's NIC (1 Gbit/s), and no server has 3 slots free"
        " (the most is 2)"
    )
    assert (
        reason(8, 600 * MBIT)
        == "aggregation 0 -> core 0: 1.20 Gbit/s asked, 1 Gbit/s free"
    )
    slots = np.zeros(16, dtype=np.int64)
    slots[[12, 0]] = 2
    bps = residual.free_bps.copy()
    bps[2 * 22 + 1] = 412 * MBIT
    assert reason(4, 350 * MBIT, Residual(slots, bps)) == (
        "aggregation 3 -> rack 6: 700 Mbit/s asked, 412 Mbit/s free"
    )


@given(seeds)
@every_embedder
def test_a_refusal_that_names_a_link_asks_more_than_is_free(
    embedder: Embedder, seed: int
) -> None:
    case = tiny_case(random.Random(seed))
    answer = embed(embedder, case)
    if isinstance(answer, Placement):
        return
    slots = int(case.residual.free_slots.sum())
    if case.n_vms > slots:
        assert (
            answer.reason
            == f"not enough slots: {case.n_vms} asked, {slots} free"
        )
    elif " -> " in answer.reason:
        words = answer.reason.rsplit(": ", 1)[1].split()
        assert int(words[0]) > int(words[3])
    else:
        assert "above every server's NIC" in answer.reason
