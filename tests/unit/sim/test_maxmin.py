"""Water-filling against its definition and against the textbook's slow version."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.backends.sim.maxmin import max_min_rates

Problem = tuple[list[float], list[list[tuple[int, float]]], list[float]]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Capacities, for every unit its (link, weight) entries, and its cap."""
    n_links = draw(st.integers(1, 5))
    capacity = draw(st.lists(st.integers(0, 20).map(float), min_size=n_links, max_size=n_links))
    unit = st.dictionaries(
        st.integers(0, n_links - 1), st.sampled_from([1.0, 0.5, 2.0, 3.0]), max_size=n_links
    )
    units = [sorted(d.items()) for d in draw(st.lists(unit, min_size=1, max_size=8))]
    caps = draw(st.lists(st.integers(1, 12).map(float), min_size=len(units), max_size=len(units)))
    return capacity, units, caps


def solve(problem: Problem, *, compile_loops: bool = True) -> np.ndarray:
    capacity, units, caps = problem
    return max_min_rates(
        np.array(capacity),
        np.concatenate(([0], np.cumsum([len(its) for its in units]))).astype(np.int64),
        np.array([link for its in units for link, _ in its], dtype=np.int64),
        np.array([w for its in units for _, w in its], dtype=np.float64),
        np.array(caps),
        compile_loops=compile_loops,
    )


def slowly(problem: Problem) -> list[float]:
    """Raise all rates together; whoever hits a cap or a full link stays there."""
    capacity, units, caps = problem
    rate: dict[int, float] = {}
    left = list(capacity)
    while len(rate) < len(units):
        active = [u for u in range(len(units)) if u not in rate]
        load = [
            sum(w for u in active for link, w in units[u] if link == k) for k in range(len(left))
        ]
        level = min(caps[u] for u in active)
        for k, weight in enumerate(load):
            if weight > 0:
                level = min(level, max(0.0, left[k]) / weight)
        stuck = [
            u
            for u in active
            if caps[u] <= level
            or any(max(0.0, left[k]) / load[k] <= level * (1 + 1e-12) for k, _ in units[u])
        ]
        for u in stuck:
            rate[u] = level
            for k, weight in units[u]:
                left[k] -= weight * level
    return [rate[u] for u in range(len(units))]


@settings(max_examples=400, deadline=None)
@given(problem=problems())
def test_agrees_with_the_slow_version(problem: Problem) -> None:
    found = solve(problem, compile_loops=False)
    assert found == pytest.approx(slowly(problem), rel=1e-9, abs=1e-9)
    assert solve(problem).tolist() == found.tolist()


@settings(max_examples=400, deadline=None)
@given(problem=problems())
def test_nobody_can_have_more_without_taking_from_somebody_no_faster(problem: Problem) -> None:
    capacity, units, caps = problem
    rates = solve(problem)
    used = [
        sum(w * rates[u] for u, its in enumerate(units) for link, w in its if link == k)
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
                rates[v] <= rates[u] + 1e-9 for v, others in enumerate(units) if k in dict(others)
            )
        ]
        assert rates[u] >= caps[u] - 1e-9 or bottlenecks


def test_the_textbook_example() -> None:
    # Two links of 10: one unit over both, two over the first, one over the second.
    rates = solve(
        ([10.0, 10.0], [[(0, 1.0), (1, 1.0)], [(0, 1.0)], [(0, 1.0)], [(1, 1.0)]], [99.0] * 4)
    )
    assert rates == pytest.approx([10 / 3, 10 / 3, 10 / 3, 20 / 3])


def test_units_without_a_link_get_their_cap() -> None:
    assert solve(([1.0], [[], [(0, 1.0)]], [7.0, 9.0])).tolist() == [7.0, 1.0]
