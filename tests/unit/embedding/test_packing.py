"""AdaBa, best fit, first fit, greedy: the paper's examples, its search, no over-commitment."""

import gc
import random
import weakref
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.embedding.base import embedder
from testbed.embedding.check import check_placement
from testbed.embedding.exact import least_bandwidth
from testbed.embedding.packing import subtree, weight
from testbed.embedding.placement import (
    Embedder,
    Placement,
    Refusal,
    Residual,
    empty_residual,
    hose_bps,
    tree_of,
)
from tests.support.examples import examples
from tests.unit.embedding.oracles import Case, tiny_case
from tests.unit.embedding.printed_search import (
    fullest,
    heaviest,
    in_sequence,
    printed_search,
)
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.flat import flat
from topologies.tree import tree

MBIT = 10**6
GBIT = 10**9
EMBEDDERS = [
    embedder(name) for name in ("adaba", "best-fit", "first-fit", "greedy")
]
ADABA, BEST_FIT, FIRST_FIT, GREEDY = EMBEDDERS
every_embedder = pytest.mark.parametrize(
    "embedder", EMBEDDERS, ids=lambda e: e.name
)
seeds = st.integers(0, 2**32)


def take(
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


# ---------------------------------------------------------------------------- the paper's examples


def test_equation_7_of_figure_2() -> None:
    best = [
        max(
            range(1, 9),
            key=lambda a, b=rate: weight(a, 8, b * MBIT, 800 * MBIT),
        )  # type: ignore[misc]
        for rate in range(10, 711, 100)
    ]
    assert best == [1, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("rate_mbps", [1, 100, 333, 800])
def test_the_weight_is_twice_largest_times_equation_7(
    rate_mbps: int,
) -> None:
    for a in range(9):
        printed = -0.5 * a**2 + 8 * rate_mbps / 800 * a
        assert weight(a, 8, rate_mbps, 800) == pytest.approx(
            2 * 800 * printed
        )


def figure_3() -> tuple[DataCentre, Residual]:
    """Six servers of two slots on links of 100 Mbit/s, every other one half in use.

    The drawing is lost; this state has all that the text tells of it. Red has a VM on servers 0
    and 2 at 50 Mbit/s; green has one on server 4.
    """
    dc = tree([6], 100 * MBIT, 2)
    bps = np.array(dc.directed_capacity_bps)
    bps[[0, 1, 4, 5]] -= 50 * MBIT
    return dc, Residual(np.array([1, 2, 1, 2, 1, 2]), bps)


@pytest.mark.parametrize(
    ("embedder", "idle", "fit"),
    [(ADABA, 3, 3), (BEST_FIT, 3, 3), (GREEDY, 1, 2), (FIRST_FIT, 2, 2)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_figure_3(embedder: Embedder, idle: int, fit: int) -> None:
    dc, residual = figure_3()
    largest_bps = 50 * MBIT
    answer = embedder.embed(
        dc, residual, 3, 10 * MBIT, largest_bps=largest_bps
    )
    assert isinstance(answer, Placement)
    residual = take(dc, residual, answer, 10 * MBIT)
    assert int(np.count_nonzero(residual.free_slots == 2)) == idle
    accepted = 0
    for _ in range(3):
        answer = embedder.embed(
            dc, residual, 2, 60 * MBIT, largest_bps=largest_bps
        )
        largest_bps = 60 * MBIT
        if isinstance(answer, Placement):
            assert check_placement(dc, residual, answer, 2, 60 * MBIT) == []
            residual = take(dc, residual, answer, 60 * MBIT)
            accepted += 1
    assert accepted == fit


def test_a_request_is_weighed_against_the_largest_so_far() -> None:
    # Free slots 2, 5, 8: a small request fills the gap, one as large as any goes to the idle one.
    dc = tree([3], GBIT, 8)
    residual = Residual(
        np.array([2, 5, 8]), np.array(dc.directed_capacity_bps)
    )

    def chosen(rate_mbps: int, largest_mbps: int) -> int:
        answer = ADABA.embed(
            dc,
            residual,
            2,
            rate_mbps * MBIT,
            largest_bps=largest_mbps * MBIT,
        )
        assert isinstance(answer, Placement)
        ((server, _),) = answer.vms_on
        return server

    assert [chosen(rate, 800) for rate in (10, 500, 800)] == [0, 1, 2]
    # Line 1: a request above all earlier ones is the largest itself; and so is the first one.
    assert chosen(900, 800) == chosen(10, 0) == 2


# --------------------------------------------------------------------------- the printed search


@given(seeds)
@examples(60)
def test_the_placement_is_that_of_the_printed_search(seed: int) -> None:
    rng = random.Random(seed)
    case = tiny_case(rng)
    dc, residual, n, rate_bps = (
        case.datacentre,
        case.residual,
        case.n_vms,
        case.rate_bps,
    )
    largest_bps = max(rate_bps, rng.randint(0, 9))
    orders = {
        ADABA: heaviest(int(dc.slots.max()), rate_bps, largest_bps),
        BEST_FIT: fullest,
        FIRST_FIT: in_sequence,
    }
    for packer, order in orders.items():
        answer = packer.embed(
            dc, residual, n, rate_bps, largest_bps=largest_bps
        )
        expected = printed_search(dc, residual, n, rate_bps, order)
        assert (
            answer if isinstance(answer, Placement) else None
        ) == expected


@given(seeds)
@examples(25)
def test_the_printed_search_on_fat_trees_in_both_interpretations(
    seed: int,
) -> None:
    rng = random.Random(seed)
    dc = fat_tree(4, 10, 3, rng.choice(["tree", "pooled"]))
    residual = worn(rng, dc, rng.randint(0, 12))
    n, rate_bps = rng.randint(2, 20), rng.randint(0, 12)
    answer = ADABA.embed(dc, residual, n, rate_bps, largest_bps=12)
    expected = printed_search(
        dc, residual, n, rate_bps, heaviest(3, rate_bps, 12)
    )
    assert (answer if isinstance(answer, Placement) else None) == expected


def worn(rng: random.Random, dc: DataCentre, jobs: int) -> Residual:
    """A data centre with some tenants in it."""
    residual = empty_residual(dc)
    for _ in range(jobs):
        n, rate_bps = rng.randint(1, 8), rng.randint(0, 8)
        answer = rng.choice(EMBEDDERS).embed(
            dc, residual, n, rate_bps, largest_bps=8
        )
        if isinstance(answer, Placement):
            residual = take(dc, residual, answer, rate_bps)
    return residual


def test_greedy_takes_the_server_that_loads_its_fullest_link_least() -> (
    None
):
    dc = tree([3], 100, 1)
    bps = np.array(dc.directed_capacity_bps)
    bps[[0, 1]] = 60
    bps[[2, 3]] = 90
    residual = Residual(np.array(dc.slots), bps)
    # Occupied already: 40 %, 10 %, 0 %.
    assert GREEDY.embed(dc, residual, 2, 10) == Placement(
        3, ((1, 1), (2, 1))
    )


def test_greedy_looks_at_the_whole_path() -> None:
    # Server 0 is free but its rack's uplink is at 80 %; server 2's link is at 50 %.
    dc = tree([2, 2], 100, 1)
    bps = np.array(dc.directed_capacity_bps)
    bps[[8, 9]] = 20
    bps[[4, 5]] = 50
    residual = Residual(np.array([1, 0, 1, 1]), bps)
    # Below the core; two VMs fit in rack 1 alone, so three are asked for.
    answer = GREEDY.embed(dc, residual, 3, 10)
    assert answer == Placement(6, ((0, 1), (2, 1), (3, 1)))


# ------------------------------------------------------------------------------------ invariants


@given(seeds)
@examples(30)
@every_embedder
def test_filling_a_data_centre_never_over_commits(
    embedder: Embedder, seed: int
) -> None:
    rng = random.Random(seed)
    dc = rng.choice(
        [
            tree([2, 2, 3], [20, 10, 10], 3),
            fat_tree(4, 10, 2),
            fat_tree(4, 10, 2, "pooled"),
            tree([4, 4], 10, 4),
        ]
    )
    residual = empty_residual(dc)
    largest_bps = 0
    for _ in range(12):
        n_vms, rate_bps = rng.randint(1, 9), rng.randint(0, 6)
        answer = embedder.embed(
            dc, residual, n_vms, rate_bps, largest_bps=largest_bps
        )
        largest_bps = max(largest_bps, rate_bps)
        if isinstance(answer, Placement):
            assert (
                check_placement(dc, residual, answer, n_vms, rate_bps) == []
            )
            residual = take(dc, residual, answer, rate_bps)
    assert residual.free_slots.min() >= 0
    assert residual.free_bps.min() >= 0


@given(seeds)
@examples(40)
@every_embedder
def test_a_placement_is_sound_and_a_refusal_says_whether_any_exists(
    embedder: Embedder, seed: int
) -> None:
    case = tiny_case(random.Random(seed))
    question = (case.datacentre, case.residual, case.n_vms, case.rate_bps)
    answer = embedder.embed(*question)
    exists = least_bandwidth(*question) is not None
    if isinstance(answer, Placement):
        assert exists
        assert (
            check_placement(
                case.datacentre, case.residual, answer, *question[2:]
            )
            == []
        )
    else:
        assert exists == ("placements do exist" in answer.reason)


@given(seeds, st.integers(2, 1000))
@examples(25)
@every_embedder
def test_scaling_all_bandwidths_changes_nothing(
    embedder: Embedder, seed: int, factor: int
) -> None:
    # Residuals below capacities that both grow: a link's occupation stays as it was.
    rng = random.Random(seed)
    shape: Sequence[int] = [2, 3]
    small, large = tree(shape, 8, 3), tree(shape, 8 * factor, 3)
    bps = np.array([rng.randint(0, 8) for _ in range(2 * small.n_links)])
    slots = np.array([rng.randint(0, 3) for _ in range(small.n_servers)])
    n, rate_bps = rng.randint(1, 8), rng.randint(1, 5)
    before = embedder.embed(
        small, Residual(slots, bps), n, rate_bps, largest_bps=5
    )
    after = embedder.embed(
        large,
        Residual(slots, bps * factor),
        n,
        rate_bps * factor,
        largest_bps=5 * factor,
    )
    assert isinstance(before, Refusal) == isinstance(after, Refusal)
    if isinstance(before, Placement):
        assert after == before


@every_embedder
def test_nothing_that_is_handed_in_is_changed(embedder: Embedder) -> None:
    case = tiny_case(random.Random(5))
    slots, bps = (
        case.residual.free_slots.copy(),
        case.residual.free_bps.copy(),
    )
    found = [
        embedder.embed(
            case.datacentre, case.residual, case.n_vms, case.rate_bps
        )
        for _ in range(2)
    ]
    assert found[0] == found[1]
    assert np.array_equal(case.residual.free_slots, slots)
    assert np.array_equal(case.residual.free_bps, bps)


@pytest.mark.slow
@pytest.mark.parametrize("k", [4, 8, 16])
@every_embedder
def test_fat_trees_up_to_16_ports(embedder: Embedder, k: int) -> None:
    dc = fat_tree(k, GBIT, 2)
    residual = empty_residual(dc)
    for n_vms in (2, k, k * k // 2, k**3 // 4):
        answer = embedder.embed(
            dc, residual, n_vms, 2 * MBIT, largest_bps=GBIT
        )
        assert isinstance(answer, Placement)
        assert check_placement(dc, residual, answer, n_vms, 2 * MBIT) == []
        residual = take(dc, residual, answer, 2 * MBIT)


@every_embedder
def test_every_core_is_tried(embedder: Embedder) -> None:
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
    answer = embedder.embed(dc, empty_residual(dc), 10, 10**12)
    assert answer == Placement(4, ((0, 2), (1, 3), (2, 3), (3, 2)))


@every_embedder
def test_reasons_name_what_binds(embedder: Embedder) -> None:
    dc = tree([4, 2, 2], GBIT, 2)
    found = [
        embedder.embed(dc, empty_residual(dc), n, rate)
        for n, rate in ((40, 1), (8, 600 * MBIT))
    ]
    assert found == [
        Refusal("not enough slots: 40 asked, 32 free"),
        Refusal(
            "aggregation 0 -> core 0: 1.20 Gbit/s asked, 1 Gbit/s free"
        ),
    ]


def test_a_search_in_order_may_miss_a_placement_and_says_so() -> None:
    # Slots 3 and 4, links of 4 and 2: in sequence 3 + 2, and the sixth VM has no place; 2 + 4 has.
    dc = tree([2], 4, [3, 4])
    case = Case(
        dc, Residual(np.array([3, 4]), np.array([4, 4, 2, 2])), 6, 1
    )
    question = (case.datacentre, case.residual, case.n_vms, case.rate_bps)
    missed = FIRST_FIT.embed(*question)
    assert isinstance(missed, Refusal)
    assert "placements do exist" in missed.reason
    assert least_bandwidth(*question) == Placement(2, ((0, 2), (1, 4)))


@pytest.mark.slow
def test_what_is_kept_of_a_data_centre_goes_with_it() -> None:
    dc = tree([2], 4, 1)
    ADABA.embed(dc, empty_residual(dc), 2, 1)
    gone = weakref.ref(dc)
    assert subtree(dc, 2) is subtree(dc, 2)
    del dc
    gc.collect()
    assert gone() is None
