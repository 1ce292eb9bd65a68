"""The search for a rate that fits, on synthetic costs of a switch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from testbed.plan.fidelity import MOST_TESTS, fitting_rate
from tests.support.examples import examples

LIMIT = 0.9
Cost = Callable[[float], float]

truths = st.floats(0.003, 0.5)
fixed_parts = st.floats(0.0, 0.6)


def fixed_and_linear(truth: float, fixed: float) -> Cost:
    """Reaches the limit at ``truth``; ``fixed`` is the load of no traffic at all."""
    return lambda rate: fixed + (LIMIT - fixed) * rate / truth


def collapsing(truth: float, fixed: float, power: float) -> Cost:
    """Above a load of 1 the delivered share falls with the rate's power, and the load is its
    inverse.
    """
    linear = fixed_and_linear(truth, fixed)
    capacity = truth * (1 - fixed) / (LIMIT - fixed)
    return lambda rate: (
        linear(rate) if rate <= capacity else (rate / capacity) ** power
    )


def saturating(truth: float, fixed: float, most: float) -> Cost:
    """Above a load of 1 the load hardly rises: a poll takes whatever the processors leave."""
    linear = fixed_and_linear(truth, fixed)
    return lambda rate: min(most, linear(rate))


costs = st.one_of(
    st.builds(lambda truth: (truth, fixed_and_linear(truth, 0.0)), truths),
    st.builds(
        lambda truth, fixed: (truth, fixed_and_linear(truth, fixed)),
        truths,
        fixed_parts,
    ),
    st.builds(
        lambda truth, fixed, power: (
            truth,
            collapsing(truth, fixed, power),
        ),
        truths,
        fixed_parts,
        st.floats(1.0, 2.0),
    ),
    st.builds(
        lambda truth, fixed, most: (truth, saturating(truth, fixed, most)),
        truths,
        fixed_parts,
        st.floats(1.05, 1.6),
    ),
)


def searched(
    cost: Cost,
    start: float,
    most: float,
    least: float = 1e-5,
    *,
    largest: bool = True,
) -> tuple[float | None, dict[float, float]]:
    """The answer, and every tested rate with its load."""
    tested: dict[float, float] = {}

    def test(rate: float) -> float:
        assert rate not in tested
        assert least <= rate <= most
        tested[rate] = cost(rate)
        return tested[rate]

    found = fitting_rate(
        test, start=start, most=most, least=least, largest=largest
    )
    return found, tested


@pytest.mark.slow
@examples(400)
@given(costs, st.floats(1.0, 12.0))
def test_from_above_it_finds_a_tested_rate_close_below_the_truth(
    model: tuple[float, Cost], times: float
) -> None:
    truth, cost = model
    start = min(1.0, truth * times)
    found, tested = searched(cost, start, start)
    assert found is not None
    assert tested[found] <= LIMIT
    assert found >= 0.85 * min(truth, start)
    assert len(tested) <= MOST_TESTS


@examples(400)
@given(costs, st.floats(0.2, 12.0))
def test_from_anywhere_it_finds_a_tested_rate_of_one_at_most(
    model: tuple[float, Cost], times: float
) -> None:
    truth, cost = model
    found, tested = searched(cost, min(1.0, truth * times), 1.0)
    assert found is not None
    assert tested[found] <= LIMIT
    assert found >= 0.85 * truth
    assert len(tested) <= MOST_TESTS


@given(truths, st.floats(0.0, 0.99))
def test_a_first_rate_that_fits_is_the_answer_after_one_test(
    truth: float, share: float
) -> None:
    start = truth * share
    assume(start > 1e-4)
    assert searched(fixed_and_linear(truth, 0.5), start, start) == (
        start,
        {start: pytest.approx(0.5 + 0.4 * share)},
    )


@pytest.mark.slow
@given(
    st.lists(st.floats(0.0, 3.0), min_size=MOST_TESTS, max_size=MOST_TESTS)
)
def test_noise_costs_no_more_tests_and_never_makes_a_rate_fit(
    loads: list[float],
) -> None:
    noise = iter(loads)
    found, tested = searched(lambda _: next(noise), 0.1, 1.0, 0.001)
    assert found == max(
        (rate for rate, load in tested.items() if load <= LIMIT),
        default=None,
    )


def test_where_nothing_fits_it_goes_down_to_the_least_rate_and_stops() -> (
    None
):
    found, tested = searched(lambda _: 1.08, 0.2, 0.2, 0.005)
    assert found is None
    assert min(tested) == 0.005
    assert len(tested) <= MOST_TESTS


def test_the_plateau_of_a_polling_switch_is_crossed_within_the_tests() -> (
    None
):
    """As measured on k=4 with 96 VMs: 1.07 to 1.11 at rates from 0.1 down to 0.019."""
    found, tested = searched(saturating(0.006, 0.6, 1.08), 0.1, 0.1, 0.001)
    assert found is not None
    assert 0.0051 <= found <= 0.006
    assert len(tested) <= MOST_TESTS


@examples(400)
@given(costs, st.floats(1.0, 12.0))
def test_the_first_rate_that_fits_ends_a_search_that_is_not_for_the_largest(
    model: tuple[float, Cost], times: float
) -> None:
    truth, cost = model
    start = min(1.0, truth * times)
    found, tested = searched(cost, start, start, largest=False)
    fitting = [rate for rate, load in tested.items() if load <= LIMIT]
    assert fitting == [found] == [list(tested)[-1]]


def test_proposed_rates_have_two_figures() -> None:
    found, tested = searched(collapsing(0.0457, 0.3, 1.5), 1.0, 1.0)
    assert found is not None
    assert 0.039 <= found <= 0.0457
    assert all(
        len(f"{rate:g}".removeprefix("0.").lstrip("0")) <= 2
        for rate in tested
    )
