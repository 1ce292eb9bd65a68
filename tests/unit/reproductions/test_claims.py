"""Claims that are reproduced, not reproduced, or inconclusive."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from reproductions.claim_checks import (
    LEVEL,
    Band,
    Check,
    Claim,
    chances,
    combined,
    holm,
    judge_family,
)
from reproductions.claim_ledger import read
from reproductions.figure_tables import claims_table, to_markdown
from reproductions.grid_quantities import (
    LEVELS,
    BetweenGains,
    Change,
    Difference,
    Gain,
    GainGrowth,
    Grid,
    Largest,
    LeastStep,
    Level,
    LogRatio,
    Measure,
    ShareOf,
    Spread,
    Step,
    known,
)
from reproductions.published_figure import Reproduced
from tests.support.made_claims import more
from tests.support.made_figures import YIELD, figure, grid

Series = list[tuple[float, ...]]
THREE_SEEDS = (
    # rule, then series a and b by place and seed: yes, no, undecided
    pytest.param(
        "{quantity: level, measure: yield, of: a, at: 0, low: 75, high: 85}",
        ([(80.0, 81.0, 82.0)], []),
        ([(60.0, 61.0, 62.0)], []),
        ([(84.0, 85.0, 86.0)], []),
        id="level",
    ),
    pytest.param(
        "{quantity: difference, measure: yield, of: a, than: b, at: 0, above: 0}",
        ([(50.0, 90.0, 70.0)], [(49.0, 88.9, 69.1)]),
        ([(49.0, 88.9, 69.1)], [(50.0, 90.0, 70.0)]),
        ([(50.0, 60.0, 70.0)], [(52.0, 55.0, 69.0)]),
        id="difference",
    ),
    pytest.param(
        "{quantity: gain, measure: yield, of: a, than: b, at: 0, above: 0, below: 15}",
        ([(11.0, 11.1, 10.9)], [(10.0, 10.0, 10.0)]),
        ([(9.0, 9.1, 9.05)], [(10.0, 10.0, 10.0)]),
        ([(10.0, 11.0, 10.2)], [(10.0, 10.0, 10.0)]),
        id="gain",
    ),
    pytest.param(
        "{quantity: log-ratio, measure: yield, of: a, than: b, at: 0, within_factor: 1.1}",
        ([(10.1, 10.0, 9.9)], [(10.0, 10.1, 10.0)]),
        ([(9.2, 9.3, 9.1)], [(93.3, 93.0, 92.0)]),
        ([(10.0, 11.5, 10.9)], [(10.0, 10.0, 10.0)]),
        id="log-ratio",
    ),
    pytest.param(
        "{quantity: change, measure: yield, of: a, from: 0, to: 1, above: 0}",
        ([(10.0, 11.0, 12.0), (20.0, 21.5, 22.0)], []),
        ([(20.0, 21.5, 22.0), (10.0, 11.0, 12.0)], []),
        ([(10.0, 11.0, 12.0), (9.0, 12.0, 12.5)], []),
        id="change",
    ),
    pytest.param(
        "{quantity: relative-change, measure: yield, of: a, from: 0, to: 1, low: -6, high: 6}",
        ([(50.0, 51.0, 52.0), (49.0, 50.0, 51.2)], []),
        ([(50.0, 51.0, 52.0), (40.0, 41.0, 42.2)], []),
        ([(50.0, 51.0, 52.0), (47.0, 48.0, 50.2)], []),
        id="relative-change",
    ),
    pytest.param(
        "{quantity: gain-growth, measure: yield, of: a, than: b, from: 0, to: 1, above: 0}",
        (
            [(11.0, 11.1, 11.2), (15.0, 15.1, 15.3)],
            [(10.0, 10.0, 10.0), (10.0, 10.0, 10.0)],
        ),
        (
            [(15.0, 15.1, 15.3), (11.0, 11.1, 11.2)],
            [(10.0, 10.0, 10.0), (10.0, 10.0, 10.0)],
        ),
        (
            [(11.0, 11.1, 11.2), (10.0, 12.0, 11.5)],
            [(10.0, 10.0, 10.0), (10.0, 10.0, 10.0)],
        ),
        id="gain-growth",
    ),
    pytest.param(
        "{quantity: gain-growth-by-step, measure: yield, of: a, than: b, along: [0, 1], low: -1}",
        (
            [(11.0, 11.1, 11.2), (15.0, 15.1, 15.3)],
            [(10.0, 10.0, 10.0), (10.0, 10.0, 10.0)],
        ),
        (
            [(15.0, 15.1, 15.3), (11.0, 11.1, 11.2)],
            [(10.0, 10.0, 10.0), (10.0, 10.0, 10.0)],
        ),
        (
            [(11.0, 11.1, 11.2), (10.0, 12.0, 11.5)],
            [(10.0, 10.0, 10.0), (10.0, 10.0, 10.0)],
        ),
        id="gain-growth-by-step",
    ),
    pytest.param(
        "{quantity: slope-change, measure: yield, of: a, from: 0, via: 1, to: 2, high: -50}",
        ([(90.0, 91.0, 92.0), (50.0, 51.0, 52.0), (40.0, 41.0, 42.5)], []),
        ([(90.0, 91.0, 92.0), (50.0, 51.0, 52.0), (10.0, 11.0, 12.5)], []),
        ([(90.0, 91.0, 92.0), (50.0, 51.0, 52.0), (40.0, 21.0, 32.5)], []),
        id="slope-change",
    ),
    pytest.param(
        "{quantity: spread, measure: yield, of: a, along: [0, 1], high: 2}",
        ([(50.0, 51.0, 52.0), (50.5, 51.4, 52.6)], []),
        ([(50.0, 51.0, 52.0), (60.0, 61.4, 62.6)], []),
        ([(50.0, 51.0, 52.0), (52.5, 51.4, 54.6)], []),
        id="spread",
    ),
    pytest.param(
        "{quantity: least-rise, measure: yield, of: a, along: [0, 1], low: -1}",
        ([(50.0, 51.0, 52.0), (55.0, 56.4, 57.1)], []),
        ([(55.0, 56.4, 57.1), (50.0, 51.0, 52.0)], []),
        ([(50.0, 51.0, 52.0), (49.0, 50.9, 50.1)], []),
        id="least-rise",
    ),
    pytest.param(
        "{quantity: least-fall, measure: yield, of: a, along: [0, 1], low: -1}",
        ([(55.0, 56.4, 57.1), (50.0, 51.0, 52.0)], []),
        ([(50.0, 51.0, 52.0), (55.0, 56.4, 57.1)], []),
        ([(49.0, 50.9, 50.1), (50.0, 51.0, 52.0)], []),
        id="least-fall",
    ),
    pytest.param(
        "{quantity: between, measure: yield, minus: yield, of: a, at: 0, low: -5, high: 5}",
        ([(50.0, 51.0, 52.0)], []),
        None,
        None,
        id="between",
    ),
    pytest.param(
        "{quantity: between-gains, measure: yield, minus: yield, of: a, than: b, at: 0, "
        "low: -5, high: 5}",
        ([(50.0, 51.0, 52.0)], [(40.0, 41.0, 42.0)]),
        None,
        None,
        id="between-gains",
    ),
    pytest.param(
        "{quantity: share, exceeding: 20, among: [{quantity: level, measure: yield, of: a, "
        "at: [0, 1]}], above: 50}",
        ([(21.0, 22.0, 23.0), (31.0, 32.0, 33.0)], []),
        ([(21.0, 22.0, 23.0), (1.0, 2.0, 3.0)], []),
        ([(21.0, 22.0, 23.0), (1.0, 32.0, 3.0)], []),
        id="share",
    ),
    pytest.param(
        "{quantity: largest, among: [{quantity: level, measure: yield, of: a, at: [0, 1]}], "
        "low: 85, high: 115}",
        ([(21.0, 22.0, 23.0), (99.0, 101.0, 103.0)], []),
        ([(21.0, 22.0, 23.0), (60.0, 59.4, 61.0)], []),
        ([(21.0, 22.0, 23.0), (80.0, 99.0, 88.0)], []),
        id="largest",
    ),
)


def by_rule(rule: str, status: str = "free") -> Claim:
    """A claim as a file of the ledger has it."""
    text = (
        "figure: made\nwhere: nowhere\nseeds: 3\nclaims:\n"
        f"- claim: made\n  published: made\n  status: {status}\n  rule: [{rule}]\n"
    )
    (claim,) = read(text.encode(), "made", {"yield": YIELD}).claims
    return claim


@pytest.mark.parametrize(("rule", "yes", "no", "undecided"), THREE_SEEDS)
def test_every_rule_says_yes_and_no_and_cannot_say(
    rule: str,
    yes: tuple[Series, Series],
    no: tuple[Series, Series] | None,
    undecided: tuple[Series, Series] | None,
) -> None:
    for values, verdict in (
        (yes, "reproduced"),
        (no, "not reproduced"),
        (undecided, "inconclusive"),
    ):
        if values is not None:
            found = grid(a=values[0], b=values[1])
            # Of identical values three seeds decide own checks alone.
            claim = by_rule(rule, "own check")
            assert claim.judge(found).verdict == verdict


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        ((0.52, 0.53, 0.51), "reproduced"),
        ((0.30, 0.31, 0.33), "not reproduced"),
        ((0.45, 0.56, 0.44), "inconclusive"),
    ],
)
def test_two_measures_of_a_run_within_points(
    other: tuple[float, ...], verdict: str
) -> None:
    text = (
        "figure: made\nwhere: nowhere\nseeds: 3\nclaims:\n"
        "- claim: made\n  published: ours\n  status: own check\n"
        "  rule: [{quantity: between, measure: yield, minus: other, of: a, "
        "at: 0, low: -5, high: 5}]\n"
    )
    measures = {
        "yield": YIELD,
        "other": type(YIELD)("other", "other", "%", 100.0),
    }
    (claim,) = read(text.encode(), "made", measures).claims
    runs = tuple({"yield": 0.52, "other": value} for value in other)
    assert claim.judge(Grid({("a", 0.0): runs})).verdict == verdict


def _of_fidelity(levels: tuple[float, ...]) -> Grid:
    """Series a at 80 %, with a seed for each level, and series b from 70 % on,
    all ``ok``. An invalid run has no yield.
    """
    of_a = []
    of_b = []
    for place, level in enumerate(levels):
        measured = math.nan if level == LEVELS["invalid"] else 0.8
        of_a.append({"yield": measured, "fidelity": level})
        of_b.append({"yield": 0.7 + place / 100, "fidelity": 0.0})
    runs = {("a", 0.0): tuple(of_a), ("b", 0.0): tuple(of_b)}
    return Grid(runs)


def test_a_check_leaves_out_the_seed_of_an_invalid_run() -> None:
    grid = _of_fidelity((0.0, 2.0, 1.0, 0.0))
    difference = Difference(YIELD, "a", "b", 0.0)
    assert difference.values(grid)[1] is None
    assert known(difference.values(grid)) == pytest.approx((10, 8, 7))
    # The other series alone needs no run of this one.
    of_b = Level(YIELD, "b", 0.0)
    assert of_b.values(grid) == pytest.approx((70, 71, 72, 73))
    largest = Largest(YIELD, (difference, of_b))
    assert known(largest.values(grid)) == pytest.approx((70, 72, 73))


def test_a_value_that_is_missing_in_a_valid_run_is_not_left_out() -> None:
    grid = _of_fidelity((0.0, 0.0, 0.0))
    grid.runs["a", 0.0][1]["yield"] = math.nan  # type: ignore[index]
    claim = by_rule(
        "{quantity: level, measure: yield, of: a, at: 0, low: 75, high: 85}"
    )
    assert claim.judge(grid).verdict == "inconclusive"


def test_a_claim_needs_as_many_seeds_as_if_no_run_were_invalid() -> None:
    claim = by_rule(
        "{quantity: difference, measure: yield, of: a, than: b, at: 0, above: 0}"
    )
    four = _of_fidelity((0.0, 2.0, 0.0, 0.0))
    assert claim.judge(four, needed=3).verdict == "reproduced"
    assert claim.judge(four, needed=3).seeds == 3
    assert claim.judge(four, needed=4).verdict == "inconclusive"
    none = _of_fidelity((2.0, 2.0, 2.0))
    assert claim.judge(none).verdict == "inconclusive"
    assert claim.judge(replace(none, exact=True)).verdict == "inconclusive"


@pytest.mark.parametrize("rule", [row.values[0] for row in THREE_SEEDS])
def test_one_seed_decides_nothing(rule: object) -> None:
    places = [(80.0,)] * 3
    judged = by_rule(str(rule)).judge(grid(a=places, b=places))
    assert judged.verdict == "inconclusive"
    assert judged.seeds == 1


def test_what_is_not_finite_decides_nothing() -> None:
    found = grid(a=[(50.0, 60.0)], b=[(0.0, 0.0)])
    gain = Check(Gain(YIELD, "a", "b", 0.0), Band(low=0.0))
    assert Claim("", "", (gain,)).judge(found).verdict == "inconclusive"
    missing = grid(a=[(math.nan, 60.0)])
    level = Check(Level(YIELD, "a", 0.0), Band(low=0.0))
    assert Claim("", "", (level,)).judge(missing).verdict == "inconclusive"


@pytest.mark.parametrize("rule", [row.values[0] for row in THREE_SEEDS])
@pytest.mark.parametrize("hole", [math.nan, math.inf, -math.inf])
def test_a_seed_without_a_part_decides_nothing(
    rule: object, hole: float
) -> None:
    claim = by_rule(str(rule))
    holed = grid(
        a=[(80.0, hole, 82.0), *[(80.0, 81.0, 82.0)] * 2],
        b=[(8.0, 8.0, 8.0)] * 3,
    )
    for check in claim.checks:
        values = check.quantity.values(holed)
        assert [math.isnan(v) for v in values] == [False, True, False]
    assert claim.judge(holed).verdict == "inconclusive"


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_hole_anywhere_on_a_curve_is_seen(place: int) -> None:
    # Minimum and maximum would keep or drop it by its place.
    points = [[50.0, 51.0], [52.0, 53.0], [54.0, 55.0]]
    points[place][0] = math.nan
    holed = grid(a=[tuple(seeds) for seeds in points])
    along = (0.0, 1.0, 2.0)
    levels = tuple(Level(YIELD, "a", x) for x in along)
    for quantity in (
        Spread(YIELD, "a", along),
        LeastStep(YIELD, "a", along),
        LeastStep(YIELD, "a", along, -1.0),
        Largest(YIELD, levels),
        ShareOf(YIELD, levels, 20.0),
    ):
        without, whole = quantity.values(holed)
        assert math.isnan(without)
        assert math.isfinite(whole)


def test_a_gain_over_nothing_is_no_scenario() -> None:
    # It is infinite, and would count as above every threshold.
    over_nothing = grid(a=[(30.0, 30.0)], b=[(0.0, 10.0)])
    gains = (Gain(YIELD, "a", "b", 0.0),)
    for quantity in (ShareOf(YIELD, gains, 20.0), Largest(YIELD, gains)):
        first, second = quantity.values(over_nothing)
        assert math.isnan(first)
        assert math.isfinite(second)


def test_equality_is_no_order() -> None:
    same = (10.0, 10.0, 10.0)
    above = Band(low=0.0, strictly=True)
    least = Band(low=0.0)
    zeros = (0.0, 0.0, 0.0)
    for values, band, side in (
        (zeros, above, "outside"),
        (zeros, least, "inside"),
        (same, above, "inside"),
    ):
        made = chances(values, band, exact=False, sampled=False)
        assert getattr(made, side) == 0.0
        sampled = chances(values, band, exact=False)
        assert getattr(sampled, side) == 2.0**-3


@pytest.mark.parametrize("seed_values", [10.0, 0.0])
def test_identical_values_are_no_certainty(seed_values: float) -> None:
    rule = "{quantity: level, measure: yield, of: a, at: 0, high: 20}"
    verdicts = {}
    for seeds in (3, 5, 6):
        alike = grid(a=[(seed_values,) * seeds])
        for status in ("free", "fitted", "own check"):
            judged = by_rule(rule, status).judge(alike)
            verdicts[status, seeds] = judged.verdict
        exact = Grid(alike.runs, exact=True)
        assert by_rule(rule).judge(exact).verdict == "reproduced"
    for status in ("free", "fitted"):
        assert verdicts[status, 3] == "inconclusive"
        # 2**-5 is above 2.5 %, 2**-6 below.
        assert verdicts[status, 5] == "inconclusive"
        assert verdicts[status, 6] == "reproduced"
    assert verdicts["own check", 3] == "reproduced"


def test_values_that_differ_by_their_digits_are_identical() -> None:
    # Differences of stored values, which have nine digits.
    rounded = (10.0, 10.0 + 2e-9, 10.0 - 2e-9)
    band = Band(high=20.0)
    assert chances(rounded, band, exact=False).inside == 2.0**-3
    outside = Band(low=20.0)
    assert chances(rounded, outside, exact=False).outside == 2.0**-3


def test_holm_rejects_in_turn_until_one_is_kept() -> None:
    family = [0.01, 0.04, 0.03, 0.005]
    most = holm(family, 0.05)
    assert [p <= most for p in family] == [True, False, False, True]
    assert holm([0.02], 0.05) == 0.05
    assert holm([0.2, 0.001], 0.05) == 0.05
    assert holm([0.2, 0.1, 0.04], 0.06) == pytest.approx(0.02)
    assert holm([], 0.05) == 0.05


def test_one_of_many_checks_must_miss_by_more_than_chance() -> None:
    # Of forty checks one misses as one of forty does by chance.
    missed = (-1.0, -9.0, -5.5)
    alone = chances(missed, Band(low=0.0), exact=False).outside
    assert alone > LEVEL / 40
    found = grid(a=[(5.0, 5.1, 5.2)] * 39 + [missed])
    checks = tuple(
        Check(Level(YIELD, "a", float(x)), Band(low=0.0)) for x in range(40)
    )
    assert Claim("", "", checks).judge(found).verdict == "inconclusive"
    clear = grid(a=[(5.0, 5.1, 5.2)] * 39 + [(-5.0, -5.001, -5.0005)])
    assert Claim("", "", checks).judge(clear).verdict == "not reproduced"


CLEAR, CLOSE = (5.0, 5.1, 5.2), (2.0, 3.0, 2.5)


def single(x: float, band: Band, status: str = "free") -> Claim:
    return Claim(
        f"at {x:g}", "", (Check(Level(YIELD, "a", x), band),), status
    )  # type: ignore[arg-type]


def test_claims_of_a_figure_are_a_family() -> None:
    above = Band(low=0.0)
    found = grid(a=[CLOSE] * 12)
    alone = single(0.0, above)
    assert alone.judge(found).verdict == "reproduced"
    # Nine claims that no value decides take part in the correction.
    wide = [single(float(x), Band(low=2.5)) for x in range(1, 10)]
    family = judge_family([alone, *wide], found, [2] * 10)
    assert {judged.verdict for judged in family} == {"inconclusive"}
    missed = grid(a=[(-2.0, -3.0, -2.5), *[CLOSE] * 9])
    assert alone.judge(missed).verdict == "not reproduced"
    family = judge_family([alone, *wide], missed, [2] * 10)
    assert family[0].verdict == "inconclusive"


def test_every_look_that_was_planned_costs_confidence() -> None:
    found = grid(a=[CLOSE])
    claim = single(0.0, Band(low=0.0))
    for stages, verdict in ((1, "reproduced"), (4, "inconclusive")):
        (judged,) = judge_family([claim], found, [2], stages)
        assert judged.verdict == verdict


def test_what_stands_beside_has_the_looks_of_its_claim() -> None:
    measured = grid(a=[CLOSE])
    claim = single(0.0, Band(low=0.0))
    both = replace(claim, beside=claim.checks)
    for stages, verdict in ((1, "reproduced"), (4, "inconclusive")):
        (judged,) = judge_family([both], measured, [2], stages)
        assert judged.beside is not None
        assert judged.beside.verdict == judged.verdict == verdict


def test_what_stands_beside_is_judged_alone_and_marked() -> None:
    direction = more(YIELD, "b", ("a",), [1.0])
    stated = figure(
        Claim("b is above a", "b > a", direction, beside=direction)
    )
    results = {
        run: run.run()
        for runs in stated.configurations(2, quick=False).values()
        for run in runs
    }
    done = Reproduced.of(stated, 2, results, quick=False)
    said = "Beside, judged alone (reproduced):<br>yield, b − a at 1: 50.0"
    assert said in claims_table(done)


def test_own_checks_are_no_part_of_the_family() -> None:
    own = [single(1.0, Band(low=1.1), "own check")] * 20
    stated = figure(single(1.0, Band(low=0.0)), *own)
    results = {
        run: run.run()
        for runs in stated.configurations(2, quick=False).values()
        for run in runs
    }
    done = Reproduced.of(stated, 2, results, quick=False)
    alone = Reproduced.of(
        figure(single(1.0, Band(low=0.0))), 2, results, quick=False
    )
    assert done.judged[0].verdict == alone.judged[0].verdict == "reproduced"
    assert len(done.judged) == 21


def test_a_conjunction_fails_with_its_weakest_part() -> None:
    assert combined(["reproduced", "reproduced"]) == "reproduced"
    assert combined(["reproduced", "inconclusive"]) == "inconclusive"
    assert (
        combined(["inconclusive", "not reproduced", "reproduced"])
        == "not reproduced"
    )


def test_where_nothing_is_random_one_value_says_all() -> None:
    found = grid(a=[(50.5,)], b=[(50.0,)])
    exact = Grid(found.runs, exact=True)
    check = Check(Difference(YIELD, "a", "b", 0.0), Band(0.4, 0.6))
    assert Claim("", "", (check,)).judge(exact).verdict == "reproduced"


def test_a_claim_that_fails_says_with_which_figures() -> None:
    found = grid(
        a=[(10.0, 11.0), (30.0, 31.0)], b=[(20.0, 21.001), (20.0, 21.0)]
    )
    judged = Claim(
        "a is above b", "a > b", more(YIELD, "a", ("b",), [0.0, 1.0])
    ).judge(found)
    assert judged.verdict == "not reproduced"
    assert judged.ours == "yield, a − b at 0: -10.0 ± 0.0 points"
    assert judged.claim.rule == "yield, a − b at 0, 1 above 0"


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
    assert LogRatio(YIELD, "a", "b", 0.0).values(found) == (
        pytest.approx(math.log(2.0)),
        math.inf,
    )
    assert LogRatio(YIELD, "b", "b", 0.0).values(found) == (0.0, 0.0)
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
    assert GainGrowth(
        measure=YIELD, series="a", other="b", start=0.0, end=1.0
    ).values(grid(a=[(2.0,), (3.0,)], b=[(1.0,)] * 2)) == (
        pytest.approx(100.0),
    )
    # Two seeds: a yields twice b's, then as much; and weighs half more, then less.
    runs = {
        ("a", 0.0): (
            {"yield": 4.0, "weight": 3.0},
            {"yield": 2.0, "weight": 1.0},
        ),
        ("b", 0.0): (
            {"yield": 2.0, "weight": 2.0},
            {"yield": 2.0, "weight": 2.0},
        ),
    }
    gains = BetweenGains(
        measure=YIELD,
        series="a",
        other="b",
        minus=Measure("weight", "weight"),
        x=0.0,
    )
    assert gains.values(Grid(runs)) == pytest.approx((50.0, 50.0))
    share = ShareOf(
        YIELD, (Level(YIELD, "a", 0.0), Level(YIELD, "a", 1.0)), 25.0
    )
    assert share.values(found) == pytest.approx((50.0, 50.0))


@pytest.mark.parametrize(
    ("band", "with_number"),
    [
        (Band(low=0.0), False),
        (Band(low=0.0, strictly=True), False),
        (Band(high=0.0), False),
        (Band(0.0, 0.0), False),
        (Band(-2.0, 2.0), True),
        (Band(0.0, 100.0), True),
        (Band(high=-50.0), True),
        (Band(low=15.0, strictly=True), True),
    ],
)
def test_a_number_is_a_limit_other_than_0(
    band: Band, with_number: bool
) -> None:
    direction = more(YIELD, "b", ("a",), [1.0])
    checks = (*direction, Check(Level(YIELD, "a", 1.0), band))
    assert Claim("", "", checks).states_number == with_number


@pytest.mark.parametrize(
    ("kind", "band", "with_number"),
    [
        (Step, Band(low=-1.0), False),
        (Step, Band(low=0.0, strictly=True), False),
        (Step, Band(high=1.0), False),
        (Step, Band(low=1.0), True),
        (Step, Band(-1.0, 1.0), True),
        (Change, Band(low=-1.0), True),
    ],
)
def test_a_curve_that_may_step_back_a_little_states_no_number(
    kind: type[Change], band: Band, with_number: bool
) -> None:
    step = kind(YIELD, "a", start=1.0, end=2.0)
    assert Check(step, band).states_number == with_number


@pytest.mark.parametrize("band", [Band(0.0, 1e9), Band(low=0.5)])
def test_a_smaller_size_decides_directions_and_no_numbers(
    band: Band,
) -> None:
    number = Claim("", "", (Check(Level(YIELD, "a", 1.0), band),))
    direction = Claim("", "", more(YIELD, "b", ("a",), [1.0]))
    stated = figure(number, direction)
    verdicts = {}
    for quick in (False, True):
        results = {
            run: run.run()
            for own in stated.configurations(2, quick=quick).values()
            for run in own
        }
        done = Reproduced.of(stated, 2, results, quick=quick)
        verdicts[quick] = [judged.verdict for judged in done.judged]
        assert done.withheld == int(quick)
    withheld = "1 of 2 claims have a limit other than 0 and are withheld"
    assert withheld in to_markdown(done)
    assert verdicts[False] == ["reproduced", "reproduced"]
    assert verdicts[True] == ["inconclusive", "reproduced"]


def test_fewer_seeds_than_the_rules_need_decide_nothing() -> None:
    claim = Claim("", "", more(YIELD, "a", ("b",), [0.0]))
    found = grid(a=[(50.0, 51.0, 52.0)], b=[(40.0, 41.0, 42.1)])
    assert claim.judge(found, 3).verdict == "reproduced"
    assert claim.judge(found, 5).verdict == "inconclusive"
