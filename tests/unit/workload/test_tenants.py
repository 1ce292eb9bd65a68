"""Synthetic workloads: reproducible, common random numbers, the distributions they follow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.workload.distributions import NormalDistribution, stream
from jobs.workload.tenants import (
    HOUR_S,
    INTERPRETATIONS,
    Tenants,
    day_and_night,
    interpretation,
)
from tests.support.examples import examples


def true_mean(normal: NormalDistribution) -> float:
    """The mean of what a normal distribution's draws give."""
    mean, sigma, low = normal.mean, normal.sigma, normal.low
    if sigma == 0:
        return max(mean, low)
    a = (low - mean) / sigma
    density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    above = 0.5 * math.erfc(a / math.sqrt(2))
    if normal.rule == "redraw":
        return mean + sigma * density / above
    return low * (1 - above) + mean * above + sigma * density


def test_streams_are_told_apart_by_seed_and_name() -> None:
    def first(*name: str | int) -> float:
        return float(stream(*name).random())  # type: ignore[arg-type]

    assert first(1, "a") == first(1, "a")
    assert (
        len(
            {
                first(1, "a"),
                first(2, "a"),
                first(1, "b"),
                first(1, "a", 0),
                first(1, "a/1"),
            }
        )
        == 5
    )


@examples(100)
@given(
    mean=st.floats(1, 100),
    spread=st.floats(0, 3),
    rule=st.sampled_from(["redraw", "clamp"]),
    count=st.integers(0, 50),
)
def test_draws_respect_their_floor_and_their_prefix(
    mean: float, spread: float, rule: str, count: int
) -> None:
    normal = NormalDistribution(mean, spread * mean, 1.0, rule)  # type: ignore[arg-type]
    many = normal.draw(7, "x", 60)
    assert np.all(many >= 1.0)
    assert np.array_equal(normal.draw(7, "x", count), many[:count])


@pytest.mark.parametrize("rule", ["redraw", "clamp"])
@pytest.mark.parametrize(
    ("mean", "sigma"), [(10.0, 20.0), (10.0, 2.0), (0.0, 3.0), (5.0, 0.0)]
)
def test_the_stated_mean_is_the_mean_of_the_draws(
    rule: str, mean: float, sigma: float
) -> None:
    normal = NormalDistribution(mean, sigma, 1.0, rule)  # type: ignore[arg-type]
    values = normal.draw(3, "x", 200_000)
    assert values.mean() == pytest.approx(
        true_mean(normal), abs=5 * (sigma + 0.01) / math.sqrt(2e5)
    )


def test_redrawing_keeps_what_was_good_and_replaces_the_rest() -> None:
    clamped = NormalDistribution(1.0, 2.0, 1.0, "clamp").draw(5, "x", 1000)
    redrawn = NormalDistribution(1.0, 2.0, 1.0).draw(5, "x", 1000)
    good = clamped > 1.0
    assert np.array_equal(clamped[good], redrawn[good])
    assert np.all(redrawn[~good] != 1.0)


def test_means_and_rates_share_their_random_numbers() -> None:
    few = interpretation(deadline_ratio=5.0).requests(
        day_and_night(9, 40.0), 9
    )
    many = interpretation(deadline_ratio=5.0).requests(
        day_and_night(9, 160.0), 9
    )
    assert [j.n_vms for j in few] == [j.n_vms for j in many][: len(few)]
    assert [j.duration_s for j in few] == [j.duration_s for j in many][
        : len(few)
    ]
    by_day = [j.submit_s for j in few if j.submit_s < 12 * HOUR_S]
    assert by_day == pytest.approx(
        [4 * j.submit_s for j in many][: len(by_day)]
    )
    wide = interpretation(bandwidth=500e6).requests(
        day_and_night(9, 40.0), 9
    )
    assert [j.n_vms for j in few] == [j.n_vms for j in wide]


def test_a_day_brings_five_times_the_night() -> None:
    day, night = [], []
    for seed in range(200):
        times = day_and_night(seed, 160.0)
        assert np.all(np.diff(times) >= 0)
        assert times[0] >= 0
        assert times[-1] < 24 * HOUR_S
        day.append(int(np.sum(times < 12 * HOUR_S)))
        night.append(len(times) - day[-1])
    assert np.mean(day) == pytest.approx(
        1920, abs=5 * math.sqrt(1920 / 200)
    )
    assert np.var(day) == pytest.approx(1920, rel=0.4)
    assert np.mean(night) == pytest.approx(
        384, abs=5 * math.sqrt(384 / 200)
    )


def test_a_span_that_ends_by_day_and_a_night_without_arrivals() -> None:
    times = day_and_night(1, 100.0, night_factor=0.0, span_s=30 * HOUR_S)
    assert not np.any((times > 12 * HOUR_S) & (times < 24 * HOUR_S))
    assert np.any(times > 24 * HOUR_S)
    assert len(day_and_night(1, 0.0)) == 0


@pytest.mark.slow
def test_reading_g_asks_for_about_twice_the_product_of_its_means() -> None:
    tenants = interpretation()
    assert true_mean(tenants.vms) * true_mean(
        tenants.duration
    ) == pytest.approx(2.06 * 120 * HOUR_S, rel=0.005)
    jobs = [
        j
        for seed in range(20)
        for j in tenants.requests(day_and_night(seed, 160.0), seed)
    ]
    assert np.mean([j.n_vms * j.duration_s for j in jobs]) == pytest.approx(
        2.06 * 120 * HOUR_S, rel=0.02
    )
    assert all(j.n_vms >= 1 and j.duration_s >= 60.0 for j in jobs)
    assert all(
        j.deadline_s is not None and j.deadline_s >= j.duration_s
        for j in jobs
    )


def test_a_ratio_clamped_to_one_leaves_no_room_at_all() -> None:
    tenants = Tenants(
        NormalDistribution(5, 1, 1),
        NormalDistribution(1e6, 0, 1),
        NormalDistribution(60, 30, 60),
        NormalDistribution(1.0, 0.447, 1.0, "clamp"),
    )
    jobs = tenants.requests(np.zeros(500), 1)
    tight = [j for j in jobs if j.deadline_s == j.duration_s]
    assert len(tight) == pytest.approx(250, abs=60)
    assert all(j.submit_s == 0.0 for j in jobs)


def test_ids_sort_by_arrival() -> None:
    jobs = interpretation().requests(day_and_night(4, 160.0), 4)
    assert [j.id for j in jobs] == sorted(j.id for j in jobs)
    assert jobs[0].id == "job-00000"


def test_profiling_errors_change_the_true_duration_alone() -> None:
    plain = interpretation().requests(np.zeros(300), 2)
    from dataclasses import replace

    wrong = replace(interpretation(), profiling_error=(-0.2, 0.3)).requests(
        np.zeros(300), 2
    )
    for a, b in zip(plain, wrong, strict=True):
        assert a == replace(b, true_duration_s=None)
        assert b.true_duration_s is not None
        assert -0.2 <= b.true_duration_s / b.duration_s - 1 <= 0.3
    errors = [
        b.true_duration_s / b.duration_s - 1
        for b in wrong
        if b.true_duration_s
    ]
    assert min(errors) < -0.15
    assert max(errors) > 0.25


def test_the_literal_reading_is_far_wider() -> None:
    assert true_mean(interpretation("literal").vms) > 4 * 120
    assert set(INTERPRETATIONS) == {"G", "literal", "literal-clamped"}


def test_a_mean_that_hardly_ever_reaches_the_floor_is_refused() -> None:
    with pytest.raises(ValueError, match="hardly ever reaches 100"):
        NormalDistribution(1.0, 1.0, 100.0)
