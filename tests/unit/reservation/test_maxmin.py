"""Water-filling against its definition and against the textbook's slow version."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from testbed.reservation.maxmin import even_rates, max_min_rates
from tests.support.examples import examples
from tests.support.loops import fill_vectors, loops

Rates = Callable[..., np.ndarray]
Problem = tuple[list[float], list[list[tuple[int, float]]], list[float]]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Capacities, for every unit its (link, weight) entries, and its cap."""
    n_links = draw(st.integers(1, 5))
    capacity = draw(
        st.lists(
            st.integers(0, 20).map(float),
            min_size=n_links,
            max_size=n_links,
        )
    )
    unit = st.dictionaries(
        st.integers(0, n_links - 1),
        st.sampled_from([1.0, 0.5, 2.0, 3.0]),
        max_size=n_links,
    )
    units = [
        sorted(d.items())
        for d in draw(st.lists(unit, min_size=1, max_size=8))
    ]
    caps = draw(
        st.lists(
            st.integers(1, 12).map(float),
            min_size=len(units),
            max_size=len(units),
        )
    )
    return capacity, units, caps


def solve(problem: Problem, rates_of: Rates = max_min_rates) -> np.ndarray:
    capacity, units, caps = problem
    return rates_of(
        np.array(capacity),
        np.concatenate(
            ([0], np.cumsum([len(its) for its in units]))
        ).astype(np.int64),
        np.array(
            [link for its in units for link, _ in its], dtype=np.int64
        ),
        np.array([w for its in units for _, w in its], dtype=np.float64),
        np.array(caps),
    )


def slowly(problem: Problem) -> list[float]:
    """Raise all rates together; whoever hits a cap or a full link stays there."""
    capacity, units, caps = problem
    rate: dict[int, float] = {}
    left = list(capacity)
    while len(rate) < len(units):
        active = [u for u in range(len(units)) if u not in rate]
        load = [
            sum(w for u in active for link, w in units[u] if link == k)
            for k in range(len(left))
        ]
        level = min(caps[u] for u in active)
        for k, weight in enumerate(load):
            if weight > 0:
                level = min(level, max(0.0, left[k]) / weight)
        stuck = [
            u
            for u in active
            if caps[u] <= level
            or any(
                max(0.0, left[k]) / load[k] <= level * (1 + 1e-12)
                for k, _ in units[u]
            )
        ]
        for u in stuck:
            rate[u] = level
            for k, weight in units[u]:
                left[k] -= weight * level
    return [rate[u] for u in range(len(units))]


@pytest.mark.slow
@examples(400)
@given(problem=problems())
def test_agrees_with_the_slow_version(problem: Problem) -> None:
    found = solve(problem, fill_vectors)
    assert found == pytest.approx(slowly(problem), rel=1e-9, abs=1e-9)
    with loops(machine_code=False):
        assert solve(problem).tolist() == found.tolist()
    with loops(machine_code=True):
        assert solve(problem).tolist() == found.tolist()


def by_linear_programmes(problem: Problem) -> list[float]:
    """The definition, by HiGHS: raise the least rate as far as it goes, fix whom that holds, again.

    Who is held is told by another programme each: nobody whose own rate could still be raised.
    """
    capacity, units, caps = problem
    n = len(units)
    rows = np.zeros((len(capacity), n))
    for u, its in enumerate(units):
        for link, weight in its:
            rows[link, u] += weight
    fixed: dict[int, float] = {}
    while len(fixed) < n:
        active = [u for u in range(n) if u not in fixed]
        low = [
            (fixed[u], fixed[u]) if u in fixed else (0.0, caps[u])
            for u in range(n)
        ]
        # The last variable is the least rate of those that are not fixed.
        at_least = np.zeros((len(active), n + 1))
        at_least[range(len(active)), active] = -1.0
        at_least[:, n] = 1.0
        found = linprog(
            np.append(np.zeros(n), -1.0),
            np.vstack(
                (np.hstack((rows, np.zeros((len(rows), 1)))), at_least)
            ),
            np.append(capacity, np.zeros(len(active))),
            bounds=[*low, (0.0, None)],
        )
        level = float(found.x[n])
        floor = [
            (fixed[u],) * 2 if u in fixed else (level - 1e-9, caps[u])
            for u in range(n)
        ]
        for u in active:
            most = linprog(
                -np.eye(n)[u], rows, np.add(capacity, 1e-7), bounds=floor
            )
            if -most.fun <= level + 1e-5:
                fixed[u] = level
    return [fixed[u] for u in range(n)]


@pytest.mark.slow
@examples(25)
@given(problem=problems())
def test_agrees_with_linear_programmes(problem: Problem) -> None:
    assert solve(problem).tolist() == pytest.approx(
        by_linear_programmes(problem), abs=1e-4
    )


@pytest.mark.slow
@examples(400)
@given(problem=problems())
def test_nobody_can_have_more_without_taking_from_somebody_no_faster(
    problem: Problem,
) -> None:
    capacity, units, caps = problem
    rates = solve(problem)
    used = [
        sum(
            w * rates[u]
            for u, its in enumerate(units)
            for link, w in its
            if link == k
        )
        for k in range(len(capacity))
    ]
    for k, amount in enumerate(used):
        assert amount <= capacity[k] + 1e-9
    for u, its in enumerate(units):
        assert rates[u] <= caps[u]
        bottlenecks = [
            k
            for k, _ in its
            if used[k] >= capacity[k] - 1e-9
            and all(
                rates[v] <= rates[u] + 1e-9
                for v, others in enumerate(units)
                if k in dict(others)
            )
        ]
        assert rates[u] >= caps[u] - 1e-9 or bottlenecks


def test_the_textbook_example() -> None:
    # Two links of 10: one unit over both, two over the first, one over the second.
    rates = solve(
        (
            [10.0, 10.0],
            [[(0, 1.0), (1, 1.0)], [(0, 1.0)], [(0, 1.0)], [(1, 1.0)]],
            [99.0] * 4,
        )
    )
    assert rates == pytest.approx([10 / 3, 10 / 3, 10 / 3, 20 / 3])


def test_units_without_a_link_get_their_cap() -> None:
    assert solve(([1.0], [[], [(0, 1.0)]], [7.0, 9.0])).tolist() == [
        7.0,
        1.0,
    ]


def test_an_even_share_is_the_capacity_over_the_flows() -> None:
    # Three units on link 0, one of them on link 1 too, which is its own.
    problem: Problem = (
        [12.0, 2.0],
        [[(0, 1.0)], [(0, 1.0), (1, 1.0)], [(0, 1.0)], []],
        [3.0, 9.0, 9.0, 5.0],
    )
    # Of the shares of 4 the first unit's cap and the second's link waste some.
    assert solve(problem, even_rates).tolist() == [3.0, 2.0, 4.0, 5.0]
    assert solve(problem).tolist() == [3.0, 2.0, 7.0, 5.0]


@pytest.mark.slow
@given(problems())
@examples(50)
def test_even_shares_are_within_capacity_and_caps(
    problem: Problem,
) -> None:
    capacity, units, caps = problem
    rates = solve(problem, even_rates)
    assert np.all(rates <= np.array(caps) + 1e-9)
    for link, most in enumerate(capacity):
        used = sum(
            weight * rates[u]
            for u, its in enumerate(units)
            for at, weight in its
            if at == link
        )
        assert used <= most + 1e-9
