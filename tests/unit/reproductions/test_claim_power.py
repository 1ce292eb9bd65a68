"""The seeds that would decide a claim, against the judge itself on so many."""

from __future__ import annotations

import math
from statistics import fmean, stdev

import pytest

from reproductions.claim_checks import LEVEL, Band, Claim, chances
from reproductions.claim_power import (
    LAST_SOUGHT,
    Side,
    seeds_for,
    seeds_to_decide,
)
from reproductions.published_figure import Reproduced
from tests.support.made_claims import more
from tests.support.made_figures import YIELD, figure, grid


def alike(values: tuple[float, ...], n: int) -> tuple[float, ...]:
    """So many values with the mean and the deviation of these."""
    mean, deviation = fmean(values), stdev(values)
    distance = deviation
    if n % 2 == 0:
        distance *= math.sqrt((n - 1) / n)
    half = n // 2
    found = [mean - distance] * half + [mean + distance] * half
    return tuple(found + [mean] * (n % 2))


@pytest.mark.parametrize(
    ("band", "side"),
    [
        (Band(low=0.0, strictly=True), "inside"),
        (Band(low=-3.0, high=3.0), "inside"),
        (Band(low=1.5), "outside"),
        (Band(high=0.5), "outside"),
    ],
)
@pytest.mark.parametrize("level", [LEVEL, LEVEL / 20])
def test_so_many_seeds_decide_and_one_less_does_not(
    band: Band, side: Side, level: float
) -> None:
    values = (0.1, 1.0, 1.9, 0.4, 1.6)
    n = int(seeds_for(values, band, level, side))
    assert 2 < n < LAST_SOUGHT

    def decided(count: int) -> bool:
        found = chances(alike(values, count), band, exact=False)
        return getattr(found, side) <= level

    assert decided(n)
    assert not decided(n - 1)


def test_no_number_decides_what_lies_at_the_end_of_its_band() -> None:
    values = (0.9, 1.0, 1.1)
    for side in ("inside", "outside"):
        assert math.isinf(seeds_for(values, Band(low=1.0), LEVEL, side))


def test_what_does_not_vary_is_decided_at_once() -> None:
    same, band = (1.0, 1.0), Band(low=1.0)
    sure = seeds_for(same, band, LEVEL, "inside", sampled=False)
    assert sure == 2.0
    assert math.isinf(seeds_for(same, band, LEVEL, "outside"))


@pytest.mark.parametrize("level", [LEVEL, LEVEL / 20])
def test_identical_values_are_decided_by_as_many_as_the_judge_wants(
    level: float,
) -> None:
    band = Band(low=1.0)
    n = int(seeds_for((1.0, 1.0), band, level, "inside"))
    assert chances((1.0,) * n, band, exact=False).inside <= level
    assert chances((1.0,) * (n - 1), band, exact=False).inside > level


def test_an_undecided_claim_of_identical_values_has_its_seeds() -> None:
    claim = Claim("a is above b", "a > b", more(YIELD, "a", ["b"], [0]))
    same = grid(a=[(2.0, 2.0, 2.0)], b=[(1.0, 1.0, 1.0)])
    done = Reproduced(figure(claim), 3, quick=False, grid=same)
    assert seeds_to_decide(done) == {"a is above b": 6.0}


def test_undecided_claims_of_the_paper_are_told_their_seeds() -> None:
    undecided = Claim("a is above b", "a > b", more(YIELD, "a", ["b"], [0]))
    clear = Claim(
        "a is no less",
        "a > b − 9",
        more(measure=YIELD, series="a", others=["b"], xs=[0], by=-9),
    )
    own = Claim(
        "ours", "a > b", more(YIELD, "a", ["b"], [0]), status="own check"
    )
    values = grid(a=[(2.0, 3.0, 1.0)], b=[(1.0, 1.5, 1.5)])
    done = Reproduced(
        figure(undecided, clear, own), 3, quick=False, grid=values
    )
    found = seeds_to_decide(done)
    assert list(found) == ["a is above b"]
    differences = (1.0, 1.5, -0.5)
    band = undecided.checks[0].band
    assert found["a is above b"] == seeds_for(
        differences, band, LEVEL / 2, "inside"
    )


def test_of_a_single_seed_nothing_can_be_told() -> None:
    claim = Claim("a is above b", "a > b", more(YIELD, "a", ["b"], [0]))
    done = Reproduced(
        figure(claim), 1, quick=False, grid=grid(a=[(2.0,)], b=[(1.0,)])
    )
    (seeds,) = seeds_to_decide(done).values()
    assert math.isnan(seeds)
