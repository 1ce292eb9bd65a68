"""Job profiles: the published model, times between options, and profiles that were measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.demand import Transfer
from jobs.job_profile import (
    Profile,
    linear_profile,
    measured_profile,
    objections,
)
from jobs.request import JobRequest

MBIT = 10**6


def test_the_model_gives_the_measured_time_at_the_measured_bandwidth() -> (
    None
):
    profile = linear_profile(100 * MBIT, 60.0, 0.1)
    assert dict(profile.options)[100 * MBIT] == 60.0


def test_the_published_sweep_at_alpha_a_tenth() -> None:
    profile = linear_profile(100 * MBIT, 100.0, 0.1)
    assert [bps // MBIT for bps, _ in profile.options] == list(
        range(20, 201, 20)
    )
    assert [round(s, 6) for _, s in profile.options] == [
        140,
        130,
        120,
        110,
        100,
        90,
        80,
        70,
        60,
        50,
    ]


def test_without_speed_up_one_option_is_left_the_least() -> None:
    assert linear_profile(100 * MBIT, 60.0, 0.0).options == (
        (20 * MBIT, 60.0),
    )


@pytest.mark.parametrize("speedup", [-0.01, 0.2, 1.0])
def test_a_speed_up_that_makes_times_vanish_is_refused(
    speedup: float,
) -> None:
    with pytest.raises(ValueError, match="speed-up ratio"):
        linear_profile(100, 60.0, speedup)


@pytest.mark.parametrize("bandwidth_bps", [0, -1])
def test_a_profile_of_no_bandwidth_is_refused(bandwidth_bps: int) -> None:
    with pytest.raises(ValueError, match="at least 1 bit/s"):
        linear_profile(bandwidth_bps, 60.0, 0.1)


@given(st.floats(0.001, 0.199), st.integers(1, 50))
def test_the_model_holds_at_a_few_bits_a_second(
    speedup: float, bandwidth_bps: int
) -> None:
    options = linear_profile(bandwidth_bps, 60.0, speedup).options
    assert not objections(options)
    assert options[-1][0] <= 2 * bandwidth_bps


@given(
    st.floats(0.001, 0.199), st.integers(1000, 10**9), st.floats(0.0, 2.5)
)
def test_between_options_the_time_is_the_formulas(
    speedup: float, bandwidth_bps: int, ratio: float
) -> None:
    profile = linear_profile(bandwidth_bps, 60.0, speedup)
    least_bps, most_bps = profile.options[0][0], profile.threshold_bps
    rate = max(least_bps, min(most_bps, ratio * bandwidth_bps))
    expected = 60.0 * (1 - speedup * (rate / bandwidth_bps - 1) / 0.2)
    assert profile.duration_s(rate) == pytest.approx(expected, rel=1e-9)


def test_below_the_least_option_time_grows_as_a_transfers_does() -> None:
    profile = Profile(((100, 40.0), (200, 30.0)))
    assert profile.duration_s(50) == 80.0
    assert profile.duration_s(150) == 35.0
    assert profile.duration_s(10**9) == 30.0


@given(
    st.lists(
        st.tuples(st.integers(1, 99), st.integers(1, 99)),
        min_size=1,
        max_size=4,
    )
)
def test_a_profile_is_made_exactly_when_nothing_is_objected(
    options: list[tuple[int, float]],
) -> None:
    if objections(options):
        with pytest.raises(ValueError, match="option"):
            Profile(tuple(options))
    else:
        assert Profile(tuple(options)).threshold_bps == options[-1][0]


def test_a_measured_profile_ends_where_more_bandwidth_gains_nothing() -> (
    None
):
    points = [
        (100, 50.0),
        (200, 30.0),
        (300, 20.1),
        (400, 20.0),
        (500, 20.2),
    ]
    profile = measured_profile(points)
    assert profile.threshold_bps == 300
    assert profile.options == ((100, 50.0), (200, 30.0), (300, 20.1))


def test_a_largest_bandwidth_that_was_slower_is_the_threshold() -> None:
    profile = measured_profile([(100, 10.0), (200, 20.0)])
    assert profile.options == ((200, 20.0),)


def test_noise_among_slow_options_is_left_out() -> None:
    profile = measured_profile([(100, 50.0), (200, 51.0), (300, 20.0)])
    assert profile.options == ((200, 51.0), (300, 20.0))


def test_the_estimate_and_the_run_time_of_a_job_are_those_of_its_profile() -> (
    None
):
    profile = linear_profile(100, 60.0, 0.1)
    job = JobRequest(
        "a",
        0.0,
        2,
        100,
        60.0,
        true_duration_s=66.0,
        demand=Transfer(profile=profile),
    )
    assert job.demand.estimate_s(job, 200) == pytest.approx(30.0)
    assert job.demand.duration_s(job, 200) == pytest.approx(33.0)
