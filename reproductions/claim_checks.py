"""Published claims as data, and the rule by which each is judged.

A claim is one or more *checks*: a quantity computed from the grid seed by seed,
and the band it must lie in. Seeds alone give an interval: one seed decides
nothing. With Student's t over seeds, 2.5 % on either side:

- *reproduced*: every check's whole interval is inside its band, with Holm's
  correction for the number of claims of the figure;
- *not reproduced*: some check's interval is outside, with Holm's correction for
  the number of checks of the figure;
- otherwise *inconclusive*.

The paper's claims of a figure are one family; each own check is a family of its
own, and so is what is shown beside a claim. Where seeds were added until the
claims were decided, the level is divided by the number of times that were
planned to look.

Values that are identical in all n seeds leave a claim of the paper a chance of
2**-n, that of a sign test, where anything is random: the next seed may differ.
Own checks are about the runs that were made, and have no next seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Literal

from reproductions.grid_quantities import Grid, Quantity, Values
from testbed.sweeps.intervals import CONFIDENCE, Estimate, estimate

Verdict = Literal["reproduced", "not reproduced", "inconclusive"]
Status = Literal["free", "fitted", "own check"]
STATUSES: tuple[Status, ...] = ("free", "fitted", "own check")
"""``free``: the paper's, and nothing here was chosen by it. ``fitted``: the
paper's, and it took part in choosing an interpretation. ``own check``: of this
project alone.
"""
LEVEL = (1.0 - CONFIDENCE) / 2.0
"""Probability of a wrong verdict on one side."""


@dataclass(frozen=True)
class Band:
    """An interval from ``low`` to ``high``; with ``strictly`` the ends do not
    belong to it.
    """

    low: float = -math.inf
    high: float = math.inf
    strictly: bool = False

    def holds(self, value: float) -> bool:
        """True where a value that is known exactly lies in the band."""
        if self.strictly:
            return self.low < value < self.high
        return self.low <= value <= self.high

    @property
    def states_number(self) -> bool:
        """True where a limit is other than 0: more than a direction."""
        limits = (self.low, self.high)
        return any(math.isfinite(limit) and limit != 0 for limit in limits)

    def __str__(self) -> str:
        if self.low == -math.inf:
            return f"{'below' if self.strictly else 'at most'} {_number(self.high)}"
        if self.high == math.inf:
            return f"{'above' if self.strictly else 'at least'} {_number(self.low)}"
        return f"{_number(self.low)} to {_number(self.high)}"


def _number(value: float) -> str:
    return f"{value:,.4g}"


LEAST_SEEDS = 2
"""One seed has no interval."""


@dataclass(frozen=True)
class Chances:
    """The probabilities of so clear a result inside the band were the mean
    outside, and of one outside were it inside.
    """

    inside: float
    outside: float


UNDECIDED = Chances(1.0, 1.0)


ROUNDING = 1e-7
"""Values that differ by no more than this share of their mean are identical:
nine digits of each are stored.
"""


def chances(
    values: Values,
    band: Band,
    *,
    exact: bool,
    needed: int = LEAST_SEEDS,
    sampled: bool = True,
) -> Chances:
    """Student's t of values by seed against a band's ends.

    ``exact``: nothing is random, so that one value says all. Values that are
    not finite decide nothing, nor do fewer seeds than are ``needed``.
    ``sampled``: as in :func:`chances_of`.
    """
    if not all(map(math.isfinite, values)):
        return UNDECIDED
    if len(values) < max(needed, LEAST_SEEDS) and not exact:
        return UNDECIDED
    deviation = stdev(values) if len(values) > 1 else 0.0
    return chances_of(
        fmean(values),
        deviation,
        len(values),
        band,
        sampled=sampled and not exact,
    )


def chances_of(
    mean: float,
    deviation: float,
    seeds: int,
    band: Band,
    *,
    sampled: bool = True,
) -> Chances:
    """Student's t of so many values with this mean and deviation.

    ``sampled``: the claim is about more runs than were made, so that identical
    values leave the chance that a sign test of as many leaves.
    """
    least = 2.0**-seeds if sampled else 0.0
    if deviation == 0.0 or (sampled and _identical(mean, deviation)):
        if band.holds(mean):
            return Chances(inside=least, outside=1.0)
        return Chances(inside=1.0, outside=least)
    error = deviation / math.sqrt(seeds)
    above_low = _tail((mean - band.low) / error, seeds - 1)
    below_high = _tail((band.high - mean) / error, seeds - 1)
    return Chances(
        inside=max(above_low, below_high),
        outside=min(1.0 - above_low, 1.0 - below_high),
    )


def _identical(mean: float, deviation: float) -> bool:
    """True where values differ by the rounding of their digits alone."""
    return deviation <= ROUNDING * abs(mean)


def _tail(t: float, freedom: int) -> float:
    """The share of Student's distribution above t."""
    from scipy.stats import t as student

    return float(student.sf(t, freedom))


def holm(probabilities: Sequence[float], level: float) -> float:
    """The largest probability at which a hypothesis of the family is rejected,
    all together at ``level`` (Holm 1979).
    """
    left = len(probabilities)
    for probability in sorted(probabilities):
        if probability > level / left:
            return level / left
        left -= 1
    return level


@dataclass(frozen=True)
class Check:
    """A quantity and its band."""

    quantity: Quantity
    band: Band


@dataclass(frozen=True)
class Judged:
    """A check with the value found, its probabilities and its verdict as one
    of its family.
    """

    check: Check
    found: Estimate
    verdict: Verdict

    @property
    def ours(self) -> str:
        return f"{self.found.show(self.check.quantity.digits)}{self.check.quantity.unit}"

    def __str__(self) -> str:
        return f"{self.check.quantity}: {self.ours} ({self.check.band})"


@dataclass(frozen=True)
class FormerRule:
    """A rule that the ledger had before, its verdict, and the reason for the
    new one.
    """

    rule: str
    verdict: str
    reason: str


@dataclass(frozen=True)
class Claim:
    """A sentence or figure of a paper. ``published`` is the value or ordering
    it gives.

    ``quote``: the paper's own words, and ``where`` they stand. ``interpretation``
    is how an ambiguous sentence was taken; ``cause`` what is known of why it is
    not reproduced, or the test that looked for it. ``headline``: one of the
    paper's main results. ``beside``: the same on another measure, shown, not
    counted, and judged alone. ``replaced``: its rules of before.
    """

    text: str
    published: str
    checks: tuple[Check, ...]
    status: Status = "free"
    quote: str = ""
    where: str = ""
    headline: bool = False
    interpretation: str = ""
    cause: str = ""
    beside: tuple[Check, ...] = ()
    replaced: tuple[FormerRule, ...] = ()

    def judge(
        self, grid: Grid, needed: int = LEAST_SEEDS, stages: int = 1
    ) -> JudgedClaim:
        """The verdict of a grid's values, as a family of its own; ``needed`` and
        ``stages`` as in :func:`judge_family`.
        """
        (alone,) = judge_family((self,), grid, (needed,), stages)
        return alone

    @property
    def sampled(self) -> bool:
        """True where it is about more runs than were made, as all of a paper's
        are. An own check is about these alone.
        """
        return self.status != "own check"

    @property
    def states_number(self) -> bool:
        """True where a check has a limit other than 0; without any, the rule
        is a direction.
        """
        return any(check.band.states_number for check in self.checks)

    @property
    def rule(self) -> str:
        """The rule by which it is judged, in words."""
        return rule_of(self.checks)


def rule_of(checks: Sequence[Check]) -> str:
    """Checks in words, those of one quantity and band together."""
    rules: dict[str, list[str]] = {}
    for check in checks:
        rules.setdefault(
            f"{check.quantity.subject} # {check.band}", []
        ).append(check.quantity.place)
    return "; ".join(
        f"{rule.replace('#', f'at {_places(places)}')}"
        for rule, places in rules.items()
    )


@dataclass(frozen=True)
class _Tested:
    """The checks of a claim with their values by seed and their chances."""

    checks: tuple[Check, ...]
    values: tuple[Values, ...]
    chances: tuple[Chances, ...]

    @classmethod
    def of(cls, claim: Claim, grid: Grid, needed: int) -> _Tested:
        checks = claim.checks
        values = tuple(check.quantity.values(grid) for check in checks)
        of_checks = tuple(
            chances(
                by_seed,
                check.band,
                exact=grid.exact,
                needed=needed,
                sampled=claim.sampled,
            )
            for by_seed, check in zip(values, checks, strict=True)
        )
        return cls(checks, values, of_checks)

    @property
    def inside(self) -> float:
        """The chance of the conjunction: that of its weakest check."""
        return max((chance.inside for chance in self.chances), default=1.0)

    def judged(self, inside: float, outside: float) -> tuple[Judged, ...]:
        """The verdicts where chances of at most so much decide."""
        rows = zip(self.checks, self.values, self.chances, strict=True)
        return tuple(
            Judged(
                check, estimate(by_seed), _verdict(chance, inside, outside)
            )
            for check, by_seed, chance in rows
        )


def _verdict(chance: Chances, inside: float, outside: float) -> Verdict:
    if chance.inside <= inside:
        return "reproduced"
    if chance.outside <= outside:
        return "not reproduced"
    return "inconclusive"


def judge_family(
    claims: Sequence[Claim],
    grid: Grid,
    needed: Sequence[int],
    stages: int = 1,
) -> tuple[JudgedClaim, ...]:
    """The claims of a family with their verdicts, all together at the level.

    ``needed``: seeds without which a claim decides nothing; ``stages``: how often
    it was planned to look whether the seeds are enough.
    """
    tested = [
        _Tested.of(claim, grid, seeds)
        for claim, seeds in zip(claims, needed, strict=True)
    ]
    level = LEVEL / stages
    inside = holm([of_claim.inside for of_claim in tested], level)
    outside = holm(
        [
            chance.outside
            for of_claim in tested
            for chance in of_claim.chances
        ],
        level,
    )
    judged = []
    for claim, seeds, of_claim in zip(claims, needed, tested, strict=True):
        beside = None
        if claim.beside:
            other = replace(claim, checks=claim.beside, beside=())
            beside = other.judge(grid, seeds, stages)
        checks = of_claim.judged(inside, outside)
        judged.append(JudgedClaim(claim, checks, beside))
    return tuple(judged)


@dataclass(frozen=True)
class JudgedClaim:
    """A claim and its judged checks, and those beside them."""

    claim: Claim
    checks: tuple[Judged, ...]
    beside: JudgedClaim | None = None

    @property
    def verdict(self) -> Verdict:
        return combined([judged.verdict for judged in self.checks])

    @property
    def seeds(self) -> int:
        """The fewest seeds of its checks."""
        return min(judged.found.n for judged in self.checks)

    @property
    def deciding(self) -> tuple[Judged, ...]:
        """The checks that decide: all, or those that share the claim's verdict."""
        if self.verdict == "reproduced":
            return self.checks
        return tuple(
            judged
            for judged in self.checks
            if judged.verdict == self.verdict
        )

    @property
    def ours(self) -> str:
        """Our values; those of the deciding checks alone where not all are
        reproduced.
        """
        by_subject: dict[str, list[Judged]] = {}
        for judged in self.deciding:
            by_subject.setdefault(judged.check.quantity.subject, []).append(
                judged
            )
        return "; ".join(
            _values(subject, own) for subject, own in by_subject.items()
        )


def _values(subject: str, own: Sequence[Judged]) -> str:
    """One subject's values: one, or the least and the greatest of several."""
    places = _places([judged.check.quantity.place for judged in own])
    if len(own) == 1:
        return f"{subject} at {places}: {own[0].ours}"
    ordered = sorted(own, key=lambda judged: judged.found.mean)
    return f"{subject} at {places}: {ordered[0].ours} … {ordered[-1].ours}"


def _places(places: Sequence[str]) -> str:
    return ", ".join(places)


def combined(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of a conjunction."""
    if "not reproduced" in verdicts:
        return "not reproduced"
    if all(verdict == "reproduced" for verdict in verdicts):
        return "reproduced"
    return "inconclusive"
