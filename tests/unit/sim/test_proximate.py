"""Sharing by weights: against an independent solver, against the definition, and in the network."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from jobs.demand import Transfer
from jobs.request import JobRequest
from testbed.backends.sim.flow_sharing import SharedNetwork
from testbed.embedding.placement import Placement
from testbed.reservation.maxmin import FloatArray, max_min_rates
from testbed.schedulers.policy import SharingModel
from tests.support.loops import fill_vectors
from topologies.datacentre import DataCentre
from topologies.tree import tree

Entry = tuple[int, int, Fraction]
"""Link, weight, priority."""

Problem = tuple[list[int], list[list[Entry]], list[int]]


def random_problem(rng: random.Random, *, common: bool) -> Problem:
    """``common``: a unit counts for the same on all its links."""
    capacity = [rng.randint(1, 20) for _ in range(rng.randint(1, 5))]
    units = []
    for _ in range(rng.randint(1, 7)):
        links = [k for k in range(len(capacity)) if rng.random() < 0.5]
        own = Fraction(rng.randint(1, 5))
        units.append(
            [
                (
                    k,
                    rng.randint(1, 3),
                    own if common else Fraction(rng.randint(1, 5), 2),
                )
                for k in links
            ]
        )
    return capacity, units, [rng.randint(1, 12) for _ in units]


def solve(
    problem: Problem, rates_of: Callable[..., FloatArray] = max_min_rates
) -> list[float]:
    capacity, units, caps = problem
    flat = [entry for its in units for entry in its]
    rates: list[float] = rates_of(
        np.array(capacity, dtype=np.float64),
        np.concatenate(
            ([0], np.cumsum([len(its) for its in units]))
        ).astype(np.int64),
        np.array([link for link, _, _ in flat], dtype=np.int64),
        np.array([float(weight) for _, weight, _ in flat]),
        np.array(caps, dtype=np.float64),
        np.array([float(priority) for _, _, priority in flat]),
    ).tolist()
    return rates


def filled_together(problem: Problem) -> list[Fraction]:
    """Progressive filling: one level rises for all, a unit's rate is its priority times the level.

    For units that count for the same everywhere. Whoever is at its cap or on a full link stays.
    """
    capacity, units, caps = problem
    rate: dict[int, Fraction] = {
        u: Fraction(caps[u]) for u, its in enumerate(units) if not its
    }
    while len(rate) < len(units):
        rising = {
            u: units[u][0][2] for u in range(len(units)) if u not in rate
        }
        stops = [
            Fraction(caps[u]) / priority for u, priority in rising.items()
        ]
        full_at = {}
        for link, amount in enumerate(capacity):
            recomputed = sum(
                w * rate[u]
                for u in rate
                for k, w, _ in units[u]
                if k == link
            )
            speed = sum(
                w * rising[u]
                for u in rising
                for k, w, _ in units[u]
                if k == link
            )
            if speed:
                full_at[link] = (amount - recomputed) / speed
        level = min([*stops, *full_at.values()])
        full = {link for link, at in full_at.items() if at == level}
        for u, priority in rising.items():
            if caps[u] <= priority * level or any(
                k in full for k, _, _ in units[u]
            ):
                rate[u] = priority * level
    return [rate[u] for u in range(len(units))]


def one_after_another(problem: Problem) -> tuple[list[Fraction], bool]:
    """One unit, or the units of one link, at a time; and whether links ever held each other up."""
    capacity, units, caps = problem
    rate: dict[int, Fraction] = {
        u: Fraction(caps[u]) for u, its in enumerate(units) if not its
    }
    stuck = False
    while len(rate) < len(units):
        left = [u for u in range(len(units)) if u not in rate]
        share = {}
        for link, amount in enumerate(capacity):
            used = sum(
                w * rate[u]
                for u in rate
                for k, w, _ in units[u]
                if k == link
            )
            total = sum(
                w * p for u in left for k, w, p in units[u] if k == link
            )
            if total:
                share[link] = (amount - used) / total
        level = {u: min(p * share[k] for k, _, p in units[u]) for u in left}
        capped = [u for u in left if caps[u] <= level[u]]
        ripe = [
            [u for u in left if any(k == link for k, _, _ in units[u])]
            for link in sorted(share, reverse=True)
            if all(
                p * share[k] == level[u] <= caps[u]
                for u in left
                for k, _, p in units[u]
                if k == link
            )
        ]
        if capped:
            rate[capped[-1]] = Fraction(caps[capped[-1]])
        elif ripe:
            rate.update((u, level[u]) for u in ripe[0])
        else:
            least = min(left, key=lambda u: (level[u], u))
            rate[least], stuck = level[least], True
    return [rate[u] for u in range(len(units))], stuck


@pytest.mark.parametrize("seed", range(150))
def test_weighted_max_min_is_what_progressive_filling_comes_to(
    seed: int,
) -> None:
    problem = random_problem(random.Random(f"common {seed}"), common=True)
    expected = [float(rate) for rate in filled_together(problem)]
    assert solve(problem, fill_vectors) == pytest.approx(expected, rel=1e-9)


def test_with_a_priority_for_each_link_units_may_be_filled_in_any_order() -> (
    None
):
    held_up = 0
    for seed in range(300):
        problem = random_problem(random.Random(f"own {seed}"), common=False)
        expected, stuck = one_after_another(problem)
        held_up += stuck
        found = solve(problem, fill_vectors)
        assert found == pytest.approx(
            [float(rate) for rate in expected], rel=1e-9
        )
    assert 0 < held_up < 150


@pytest.mark.parametrize("seed", range(100))
def test_the_minimum_guarantees_are_kept_and_no_link_carries_too_much(
    seed: int,
) -> None:
    problem = random_problem(random.Random(f"least {seed}"), common=False)
    capacity, units, caps = problem
    rates = solve(problem)
    assert rates == solve(problem, fill_vectors)
    total = [
        sum(w * p for its in units for k, w, p in its if k == link)
        for link in range(len(capacity))
    ]
    for u, its in enumerate(units):
        guaranteed = min(
            [
                caps[u],
                *(float(p * capacity[k] / total[k]) for k, _, p in its),
            ]
        )
        assert rates[u] >= guaranteed * (1 - 1e-9)
    for link, amount in enumerate(capacity):
        used = sum(
            w * rates[u]
            for u, its in enumerate(units)
            for k, w, _ in its
            if k == link
        )
        assert used <= amount * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(100))
def test_a_limited_job_is_the_best_served_of_a_full_link(seed: int) -> None:
    """The bottleneck condition of weighted fair queueing, where links do not hold each other up."""
    problem = random_problem(random.Random(f"wfq {seed}"), common=False)
    capacity, units, caps = problem
    if one_after_another(problem)[1]:
        return
    rates = solve(problem)
    for u, its in enumerate(units):
        full = []
        for k, _, p in its:
            on_it = [
                (w, rates[v] / float(q), v)
                for v in range(len(units))
                for link, w, q in units[v]
                if link == k
            ]
            used = sum(w * rates[v] for w, _, v in on_it)
            best = max(served for _, served, _ in on_it)
            full.append(
                used >= capacity[k] * (1 - 1e-9)
                and rates[u] / float(p) >= best * (1 - 1e-9)
            )
        assert rates[u] >= caps[u] * (1 - 1e-9) or any(full)


# ------------------------------------------------------------------------------ in the network

TWO_RACKS = tree([2, 4], [100, 1000], 4)


def rates_of(
    dc: DataCentre,
    placed: dict[str, tuple[tuple[int, int], ...]],
    sharing: SharingModel,
) -> dict[str, float]:
    network = SharedNetwork(dc, sharing, 1)
    for name, vms_on in placed.items():
        n = sum(count for _, count in vms_on)
        job = JobRequest(
            name, 0.0, n, 900, 10.0, demand=Transfer(pattern="all-to-all")
        )
        network.join(job, Placement(dc.trees[0].root, vms_on))
    return network.recompute()


def test_a_job_gets_a_rack_uplink_in_proportion_to_its_vms_below() -> None:
    # Below rack 0: six VMs of a, two of b; 100 upward. PS-P: 75 and 25.
    placed = {"a": ((0, 3), (1, 3), (4, 4), (5, 2)), "b": ((2, 2), (6, 2))}
    found = rates_of(
        TWO_RACKS, placed, SharingModel("lockstep", weights="proximate")
    )
    # a's rate per VM b carries 6·6/11 of it across, b's 2·2/3.
    assert found["a"] * 36 / 11 == pytest.approx(75.0)
    assert found["b"] * 4 / 3 == pytest.approx(25.0)


def test_flows_one_by_one_come_to_the_same_where_all_are_alike() -> None:
    placed = {"a": ((0, 3), (1, 3), (4, 3), (5, 3)), "b": ((2, 2), (6, 2))}
    jobs = rates_of(
        TWO_RACKS, placed, SharingModel("lockstep", weights="proximate")
    )
    flows = rates_of(
        TWO_RACKS, placed, SharingModel("slowest", weights="proximate")
    )
    assert jobs == pytest.approx(flows)


def test_equal_weights_go_by_flows_instead() -> None:
    placed = {"a": ((0, 3), (1, 3), (4, 3), (5, 3)), "b": ((2, 2), (6, 2))}
    found = rates_of(TWO_RACKS, placed, SharingModel("slowest"))
    # 36 flows of a and 4 of b across: every flow has 2.5.
    assert found["a"] == pytest.approx(2.5 * 11)
    assert found["b"] == pytest.approx(2.5 * 3)
