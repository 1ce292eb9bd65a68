"""Claims that are reproduced, not reproduced, or inconclusive."""

from __future__ import annotations

import math

import pytest

from reproductions.claim_checks import (
    Band,
    Check,
    Claim,
    about,
    alike,
    combined,
    constant,
    falls,
    gain_about,
    more,
    mostly,
    rises,
)
from reproductions.grid_quantities import (
    Change,
    Difference,
    Gain,
    GainGrowth,
    Grid,
    LeastStep,
    Level,
    ShareOf,
    Spread,
)
from tests.support.made_figures import YIELD, grid


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((10.0, 12.0), "reproduced"),
        ((9.9, 12.0), "inconclusive"),
        ((8.0, 25.0), "inconclusive"),
        ((3.0, 9.9), "not reproduced"),
        ((3.0, 10.0), "inconclusive"),
        ((20.1, 30.0), "not reproduced"),
    ],
)
def test_an_interval_within_across_or_outside_a_band(
    interval: tuple[float, float], verdict: str
) -> None:
    assert Band(10.0, 20.0).verdict(*interval) == verdict


def test_equality_is_no_order() -> None:
    above = Band(low=0.0, strictly=True)
    assert above.verdict(0.0, 0.0) == "not reproduced"
    assert above.verdict(0.0, 1.0) == "inconclusive"
    assert above.verdict(0.1, 1.0) == "reproduced"
    assert Band(0.0, 0.0).verdict(0.0, 0.0) == "reproduced"


def test_a_conjunction_fails_with_its_weakest_part() -> None:
    assert combined(["reproduced", "reproduced"]) == "reproduced"
    assert combined(["reproduced", "inconclusive"]) == "inconclusive"
    assert (
        combined(["inconclusive", "not reproduced", "reproduced"])
        == "not reproduced"
    )


def test_paired_differences_decide_where_means_overlap() -> None:
    # The seeds differ by 40, the series within each seed by about 1.
    found = grid(a=[(50.0, 90.0, 70.0)], b=[(49.0, 88.9, 69.1)])
    assert (
        Claim("", "", more(YIELD, "a", ("b",), [0.0])).judge(found).verdict
        == "reproduced"
    )
    assert (
        Claim("", "", more(YIELD, "b", ("a",), [0.0])).judge(found).verdict
        == "not reproduced"
    )


def test_scattered_differences_are_inconclusive() -> None:
    found = grid(a=[(50.0, 60.0, 70.0)], b=[(52.0, 55.0, 69.0)])
    assert (
        Claim("", "", more(YIELD, "a", ("b",), [0.0])).judge(found).verdict
        == "inconclusive"
    )


def test_one_seed_is_trusted_as_far_as_the_resolution() -> None:
    check = Check(
        Difference(YIELD, "a", "b", 0.0),
        Band(low=0.0, strictly=True),
        resolution=1.0,
    )
    assert (
        check.judge(grid(a=[(50.5,)], b=[(50.0,)])).verdict
        == "inconclusive"
    )
    assert (
        check.judge(grid(a=[(52.0,)], b=[(50.0,)])).verdict == "reproduced"
    )
    assert (
        check.judge(grid(a=[(48.0,)], b=[(50.0,)])).verdict
        == "not reproduced"
    )


def test_where_nothing_is_random_one_value_says_all() -> None:
    found = grid(a=[(50.5,)], b=[(50.0,)])
    exact = Grid(found.runs, exact=True)
    assert Check(Difference(YIELD, "a", "b", 0.0), Band(0.4, 0.6)).judge(
        exact
    ).verdict == ("reproduced")


def test_a_claim_that_fails_says_with_which_figures() -> None:
    found = grid(
        a=[(10.0, 11.0), (30.0, 31.0)], b=[(20.0, 21.0), (20.0, 21.0)]
    )
    judged = Claim(
        "a is above b", "a > b", more(YIELD, "a", ("b",), [0.0, 1.0])
    ).judge(found)
    assert judged.verdict == "not reproduced"
    assert judged.ours == "yield, a − b at 0: -10.0 ± 0.0 points"
    assert judged.claim.rule == "yield, a − b at 0, 1 above 0"


def test_a_published_value_with_its_tolerance() -> None:
    found = grid(a=[(80.0, 81.0, 82.0)])
    level = Level(YIELD, "a", 0.0)
    assert (
        Claim("", "", about(level, 80.0, 5.0)).judge(found).verdict
        == "reproduced"
    )
    assert (
        Claim("", "", about(level, 60.0, 5.0)).judge(found).verdict
        == "not reproduced"
    )
    assert (
        Claim("", "", about(level, 77.0, 5.0)).judge(found).verdict
        == "inconclusive"
    )


def test_a_published_gain_is_held_against_the_ratio() -> None:
    found = grid(a=[(30.0, 30.3)], b=[(10.0, 10.1)])
    assert Claim("", "", gain_about(YIELD, "a", "b", 0.0, 190.0)).judge(
        found
    ).verdict == ("reproduced")
    assert (
        Claim("", "", gain_about(YIELD, "a", "b", 0.0, 100.0))
        .judge(found)
        .verdict
        == "not reproduced"
    )


def test_rising_falling_constant() -> None:
    found = grid(
        a=[(10.0,), (30.0,), (29.5,), (50.0,)],
        b=[(10.0,), (30.0,), (20.0,), (50.0,)],
    )
    xs = (0.0, 1.0, 2.0, 3.0)
    exact = Grid(found.runs, exact=True)
    assert (
        Claim("", "", rises(YIELD, "a", xs)).judge(exact).verdict
        == "reproduced"
    )
    assert (
        Claim("", "", rises(YIELD, "b", xs)).judge(exact).verdict
        == "not reproduced"
    )
    assert (
        Claim("", "", falls(YIELD, "a", xs)).judge(exact).verdict
        == "not reproduced"
    )
    assert (
        Claim("", "", constant(YIELD, "a", xs, 40.0)).judge(exact).verdict
        == "reproduced"
    )
    assert (
        Claim("", "", constant(YIELD, "a", xs, 39.0)).judge(exact).verdict
        == "not reproduced"
    )
    assert (
        Claim("", "", alike(YIELD, "a", "b", xs[:2], 0.0))
        .judge(exact)
        .verdict
        == "reproduced"
    )


def test_most_scenarios_are_more_than_half() -> None:
    found = Grid(
        grid(a=[(9.0,), (9.0,)], b=[(1.0,), (9.0,)]).runs, exact=True
    )
    gains = [Gain(YIELD, "a", "b", x) for x in (0.0, 1.0)]
    assert (
        Claim("", "", mostly(gains, 50.0)).judge(found).verdict
        == "not reproduced"
    )
    assert (
        Claim("", "", mostly(gains[:1], 50.0)).judge(found).verdict
        == "reproduced"
    )


def test_quantities_by_hand() -> None:
    found = grid(
        a=[(10.0, 20.0), (40.0, 30.0)], b=[(5.0, 0.0), (20.0, 0.0)]
    )
    assert Level(YIELD, "a", 1.0).values(found) == pytest.approx(
        (40.0, 30.0)
    )
    assert Difference(YIELD, "a", "b", 0.0).values(found) == pytest.approx(
        (5.0, 20.0)
    )
    assert Gain(YIELD, "a", "b", 0.0).values(found) == (
        pytest.approx(100.0),
        math.inf,
    )
    assert Gain(YIELD, "b", "b", 0.0).values(found) == pytest.approx(
        (0.0, 0.0)
    )
    assert Change(YIELD, "a", 0.0, 1.0).values(found) == pytest.approx(
        (30.0, 10.0)
    )
    assert Change(YIELD, "a", 0.0, 1.0, relative=True).values(
        found
    ) == pytest.approx((300, 50))
    assert Spread(YIELD, "a", (0.0, 1.0)).values(found) == pytest.approx(
        (30.0, 10.0)
    )
    assert LeastStep(YIELD, "a", (0.0, 1.0), -1.0).values(
        found
    ) == pytest.approx((-30.0, -10.0))
    assert GainGrowth(YIELD, "a", "b", 0.0, 1.0).values(
        grid(a=[(2.0,), (3.0,)], b=[(1.0,)] * 2)
    ) == (pytest.approx(100.0),)
    share = ShareOf(
        YIELD, (Level(YIELD, "a", 0.0), Level(YIELD, "a", 1.0)), 25.0
    )
    assert share.values(found) == pytest.approx((50.0, 50.0))
