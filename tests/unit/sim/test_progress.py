"""Progress under Eq. 1 against integrating it in small steps."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.demand import Compute, DemandCurve
from jobs.request import JobRequest
from tests.support.examples import examples


def remaining_s(job: JobRequest, done: float, rate_bps: float) -> float:
    return job.demand.remaining_s(job, done, rate_bps)


def advanced(
    job: JobRequest, done: float, rate_bps: float, elapsed_s: float
) -> float:
    return job.demand.advanced(job, done, rate_bps, elapsed_s)


def demand_job(
    steps: tuple[tuple[float, int], ...], duration_s: float = 10.0
) -> JobRequest:
    return JobRequest(
        "d", 0.0, 2, 100, duration_s, demand=DemandCurve(steps)
    )


curves = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 300)),
    min_size=0,
    max_size=4,
    unique_by=lambda s: s[0],
).flatmap(
    lambda steps: st.integers(1, 300).map(
        lambda last: (*((x / 10, c) for x, c in sorted(steps)), (1.0, last))
    )
)
rates = st.integers(10, 300)


@pytest.mark.slow
@examples(200)
@given(steps=curves, rate=rates, done=st.floats(0.0, 1.0))
def test_remaining_is_the_integral(
    steps: tuple[tuple[float, int], ...], rate: int, done: float
) -> None:
    job = demand_job(steps)
    n = 2_000
    tau_s = job.duration_s / DemandCurve(steps).slowdown(100)
    width = (1.0 - done) / n
    total = 0.0
    for k in range(n):
        x = done + (k + 0.5) * width
        demand = next(c for end, c in steps if x <= end)
        total += width * tau_s * max(1.0, demand / rate)
    assert remaining_s(job, done, rate) == pytest.approx(
        total, rel=3e-2, abs=0.3
    )


@examples(300)
@given(steps=curves, first=rates, second=rates, share=st.floats(0.01, 0.99))
def test_what_is_done_and_what_remains_belong_together(
    steps: tuple[tuple[float, int], ...],
    first: int,
    second: int,
    share: float,
) -> None:
    job = demand_job(steps)
    elapsed_s = share * remaining_s(job, 0.0, first)
    done = advanced(job, 0.0, first, elapsed_s)
    assert 0.0 <= done <= 1.0
    assert remaining_s(job, done, first) == pytest.approx(
        (1 - share) * remaining_s(job, 0.0, first)
    )
    later_s = remaining_s(job, done, second)
    assert advanced(job, done, second, later_s) == pytest.approx(1.0)


@examples(100)
@given(steps=curves, rate=rates)
def test_from_the_start_it_is_the_model(
    steps: tuple[tuple[float, int], ...], rate: int
) -> None:
    job = demand_job(steps)
    assert remaining_s(job, 0.0, rate) == job.demand.duration_s(job, rate)


def test_a_transfer_advances_with_its_share() -> None:
    job = JobRequest("t", 0.0, 2, 100, 10.0)
    assert remaining_s(job, 0.0, 50) == 20.0
    assert advanced(job, 0.0, 50, 5.0) == 0.25
    assert remaining_s(job, 0.25, 100) == 7.5
    assert (
        remaining_s(job, 0.25, 400) == 7.5
    )  # more than was profiled speeds nothing up
    assert advanced(job, 0.9, 100, 100.0) == 1.0


def test_nothing_moves_without_bandwidth_but_what_needs_none() -> None:
    transfer = JobRequest("t", 0.0, 2, 100, 10.0)
    assert remaining_s(transfer, 0.5, 0) == math.inf
    assert advanced(transfer, 0.5, 0, 1000.0) == 0.5
    assert (
        remaining_s(
            JobRequest("c", 0.0, 2, 0, 10.0, demand=Compute()), 0.5, 0
        )
        == 5.0
    )
    ends_computing = demand_job(((0.5, 100), (1.0, 0)))
    assert remaining_s(ends_computing, 0.5, 0) == 5.0
    assert remaining_s(ends_computing, 0.4, 0) == math.inf
    assert advanced(ends_computing, 0.4, 0, 9.0) == 0.4
    assert advanced(ends_computing, 0.5, 0, 2.5) == 0.75


def test_the_true_duration_counts_not_the_stated_one() -> None:
    job = JobRequest("t", 0.0, 2, 100, 10.0, true_duration_s=12.0)
    assert remaining_s(job, 0.0, 50) == 24.0
