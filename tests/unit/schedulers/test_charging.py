"""The three requirements of DCloud's charging (Section III.E), and its worked figures."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.request import SERVICE_TAG, JobRequest
from testbed.schedulers.charging import (
    deadline_discount,
    job_price,
    request_price,
    service_price,
)

HOUR_S = 3600.0
counts = st.integers(1, 10_000)
bandwidths = st.floats(1e3, 1e11)
durations = st.floats(1.0, 1e7)
ratios = st.floats(1.0, 1e3)
more = st.floats(1.001, 100.0)


def test_the_discount_of_the_paper() -> None:
    assert deadline_discount(1.0) == 1.0
    assert round(deadline_discount(10.0), 3) == 0.959


def test_a_small_vm_for_an_hour() -> None:
    assert request_price(1, 0, HOUR_S, HOUR_S) == pytest.approx(0.085)
    assert request_price(2, 1e9, HOUR_S, None) == pytest.approx(2 * 0.373)
    assert request_price(120, 250e6, HOUR_S, 10 * HOUR_S) == pytest.approx(
        (0.288 * 0.25 + 0.085) * 120 * math.log10(9.1)
    )


def test_a_deadline_before_the_stated_end_matters_to_discounts_alone() -> (
    None
):
    """A job may be stated too long, and end before it."""
    with pytest.raises(ValueError, match="shorter than duration"):
        request_price(1, 0, HOUR_S, HOUR_S / 2)
    price = request_price(1, 0, HOUR_S, HOUR_S / 2, discounts=False)
    assert price == request_price(1, 0, HOUR_S, None)


@given(n=counts, b=bandwidths, p=durations, r=ratios, by=more)
def test_more_than_is_needed_costs_more(
    n: int, b: float, p: float, r: float, by: float
) -> None:
    d = p * r
    price = request_price(n, b, p, d)
    assert request_price(n + 1, b, p, d) > price
    assert request_price(n, b * by, p, d) > price
    assert request_price(n, b, p, d * by) < price
    longer = min(p * by, d)
    if longer > p * 1.0001:
        assert request_price(n, b, longer, d) > price


@given(
    n=counts,
    b_max=bandwidths,
    p_min=durations,
    r=ratios,
    factor=st.floats(1.0001, 100.0),
)
def test_the_true_profile_is_the_cheapest(
    n: int, b_max: float, p_min: float, r: float, factor: float
) -> None:
    d = p_min * r
    truth = request_price(n, b_max, p_min, d)
    # Above b_s the application runs no faster; below it, p = Q/b.
    assert request_price(n, b_max * factor, p_min, d) > truth
    if p_min * factor <= d:
        assert request_price(n, b_max / factor, p_min * factor, d) > truth


@given(n=counts, b=bandwidths, p=durations, r=ratios)
def test_the_price_is_the_request_s_alone(
    n: int, b: float, p: float, r: float
) -> None:
    job = JobRequest("j", 0.0, n, int(b), p, p * r)
    assert job_price(job, 1.0, discounts=True) == job_price(
        job, 9.0, discounts=True
    )
    assert job_price(job, 1.0, discounts=True) <= job_price(
        job, 1.0, discounts=False
    )
    assert job_price(job, 1.0, discounts=False) == service_price(
        n, int(b), p
    )


def test_a_service_pays_for_as_long_as_it_ran() -> None:
    service = JobRequest(
        "s", 0.0, 3, 10**9, HOUR_S, HOUR_S, tags=(SERVICE_TAG,)
    )
    assert job_price(service, 2 * HOUR_S, discounts=True) == pytest.approx(
        6 * 0.373
    )
    assert service_price(2, 0, HOUR_S) == pytest.approx(0.17)


def test_a_deadline_below_the_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter than duration"):
        request_price(1, 1.0, 10.0, 9.0)
