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
from itertools import starmap
from statistics import fmean, stdev
from typing import Literal

from reproductions.grid_quantities import Grid, Quantity, Values, known
from testbed.sweeps.intervals import CONFIDENCE, Estimate, estimate

Verdict = Literal["reproduced", "not reproduced", "inconclusive"]
Status = Literal["free", "fitted", "own check"]
STATUSES: tuple[Status, ...] = ("free", "fitted", "own check")
"""``free``: the paper's, and nothing here was chosen by it. ``fitted``: the
paper's, and it took part in choosing an interpretation. ``own check``: of this
project alone.
"""
# Probability of a wrong verdict on one side.
LEVEL = (1.0 - CONFIDENCE) / 2.0


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
        for limit in (self.low, self.high):
            if math.isfinite(limit) and limit != 0:
                return True
        return False

    @property
    def is_slack(self) -> bool:
        """True where it limits only how far below 0 a value may be, or only how
        far above.
        """
        if self.high == math.inf:
            return self.low <= 0
        return self.low == -math.inf and self.high >= 0

    def __str__(self) -> str:
        below = "below" if self.strictly else "at most"
        above = "above" if self.strictly else "at least"
        if self.low == -math.inf:
            return f"{below} {_number(self.high)}"
        if self.high == math.inf:
            return f"{above} {_number(self.low)}"
        return f"{_number(self.low)} to {_number(self.high)}"


def _number(value: float) -> str:
    return f"{value:,.4g}"


# One seed has no interval.
LEAST_SEEDS = 2


@dataclass(frozen=True)
class Chances:
    """The probabilities of so clear a result inside the band were the mean
    outside, and of one outside were it inside.
    """

    inside: float
    outside: float


UNDECIDED = Chances(1.0, 1.0)


# Values that differ by no more than this share of their mean are identical:
# nine digits of each are stored.
ROUNDING = 1e-7


def chances(
    values: Values,
    band: Band,
    *,
    exact: bool,
    needed: int = LEAST_SEEDS,
    sampled: bool = True,
) -> Chances:
    """Student's t of values by seed against a band's ends.

    ``exact``: nothing is random, so that one value is enough. Values that are
    not finite decide nothing, nor do fewer seeds than are ``needed``.
    ``sampled``: as in :func:`chances_of`.
    """
    # What is not a number must not become a verdict.
    if not values or not all(map(math.isfinite, values)):
        return UNDECIDED
    if len(values) < max(needed, LEAST_SEEDS) and not exact:
        return UNDECIDED
    deviation = 0.0
    if len(values) > 1:
        deviation = stdev(values)
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
    """Student's t of as many values as ``seeds``, of this mean and standard
    deviation.

    ``sampled``: the claim is about more runs than were made, so that identical
    values leave the chance that a sign test of as many leaves.
    """
    least = 0.0
    if sampled:
        least = 2.0**-seeds
    # Without a deviation t is infinite, however few the values are.
    if deviation == 0.0 or (sampled and _identical(mean, deviation)):
        if band.holds(mean):
            return Chances(inside=least, outside=1.0)
        return Chances(inside=1.0, outside=least)
    # How far the mean is within each end, in standard errors.
    error = deviation / math.sqrt(seeds)
    above_low = _tail((mean - band.low) / error, seeds - 1)
    below_high = _tail((band.high - mean) / error, seeds - 1)
    # Inside takes both ends, so that the less certain one decides; outside
    # takes one of them.
    return Chances(
        inside=max(above_low, below_high),
        outside=min(1.0 - above_low, 1.0 - below_high),
    )


def _identical(mean: float, deviation: float) -> bool:
    """True where values differ by no more than the rounding of their digits."""
    return deviation <= ROUNDING * abs(mean)


def _tail(t: float, freedom: int) -> float:
    """The share of Student's distribution above t."""
    # Imported here: commands that judge nothing do not load scipy.
    from scipy.stats import t as student

    return float(student.sf(t, freedom))


def holm(probabilities: Sequence[float], level: float) -> float:
    """The largest probability at which a hypothesis of the family is rejected,
    all together at ``level`` (Holm 1979).
    """
    # Each rejection leaves one hypothesis less to share the level.
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

    @property
    def states_number(self) -> bool:
        """True where it says more than a direction."""
        # That a curve rises, but for small steps back, is a direction.
        if self.quantity.is_step and self.band.is_slack:
            return False
        return self.band.states_number


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
        quantity = self.check.quantity
        return f"{self.found.show(quantity.digits)}{quantity.unit}"

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
        """True where a check says more than a direction."""
        return any(check.states_number for check in self.checks)

    @property
    def rule(self) -> str:
        """The rule by which it is judged, in words."""
        return rule_of(self.checks)


def rule_of(checks: Sequence[Check]) -> str:
    """Checks in words, those of one quantity and band together."""
    return "; ".join(rule_parts(checks))


def rule_parts(checks: Sequence[Check]) -> list[str]:
    """Checks in words, a text for those of one quantity and band."""
    places_of: dict[tuple[str, str], list[str]] = {}
    for check in checks:
        rule = (check.quantity.subject, str(check.band))
        places_of.setdefault(rule, []).append(check.quantity.place)
    texts = []
    for (subject, band), places in places_of.items():
        texts.append(f"{subject} at {', '.join(places)} {band}")
    return texts


@dataclass(frozen=True)
class _Tested:
    """The checks of a claim with their values by seed and their chances."""

    checks: tuple[Check, ...]
    values: tuple[Values, ...]
    chances: tuple[Chances, ...]

    @classmethod
    def of(cls, claim: Claim, grid: Grid, needed: int) -> _Tested:
        values = []
        of_checks = []
        for check in claim.checks:
            by_seed = known(check.quantity.values(grid))
            of_check = chances(
                by_seed,
                check.band,
                exact=grid.exact,
                needed=needed,
                sampled=claim.sampled,
            )
            values.append(by_seed)
            of_checks.append(of_check)
        return cls(claim.checks, tuple(values), tuple(of_checks))

    @property
    def inside(self) -> float:
        """The chance of the conjunction: that of its weakest check."""
        return max((chance.inside for chance in self.chances), default=1.0)

    def judged(self, inside: float, outside: float) -> tuple[Judged, ...]:
        """The checks with their verdicts; chances up to ``inside`` and
        ``outside`` decide.
        """
        rows = zip(self.checks, self.values, self.chances, strict=True)
        judged = []
        for check, by_seed, chance in rows:
            verdict = _verdict(chance, inside, outside)
            judged.append(Judged(check, estimate(by_seed), verdict))
        return tuple(judged)


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
    tested = []
    # A claim is reproduced as a whole, so that the claims share that level.
    # Any check refutes its claim, so that all checks share the other.
    chances_inside = []
    chances_outside = []
    for claim, seeds in zip(claims, needed, strict=True):
        of_claim = _Tested.of(claim, grid, seeds)
        tested.append(of_claim)
        chances_inside.append(of_claim.inside)
        for of_check in of_claim.chances:
            chances_outside.append(of_check.outside)
    level = LEVEL / stages
    inside = holm(chances_inside, level)
    outside = holm(chances_outside, level)
    judged = []
    for claim, seeds, of_claim in zip(claims, needed, tested, strict=True):
        # Judged alone, so that it makes no verdict of the family stricter.
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
        # Of a claim that is not reproduced most checks may well hold.
        if self.verdict == "reproduced":
            return self.checks
        verdict = self.verdict
        return tuple(
            judged for judged in self.checks if judged.verdict == verdict
        )

    @property
    def ours(self) -> str:
        """Our values; those of the deciding checks alone where not all are
        reproduced.
        """
        return "; ".join(self.ours_parts)

    @property
    def ours_parts(self) -> list[str]:
        """As ``ours``, a text for each quantity."""
        by_subject: dict[str, list[Judged]] = {}
        for judged in self.deciding:
            subject = judged.check.quantity.subject
            by_subject.setdefault(subject, []).append(judged)
        return list(starmap(_values, by_subject.items()))


def _values(subject: str, own: Sequence[Judged]) -> str:
    """A subject's value, or the least and the greatest of several."""
    places = ", ".join(judged.check.quantity.place for judged in own)
    if len(own) == 1:
        return f"{subject} at {places}: {own[0].ours}"
    ordered = sorted(own, key=lambda judged: judged.found.mean)
    return f"{subject} at {places}: {ordered[0].ours} … {ordered[-1].ours}"


def combined(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of a conjunction."""
    if "not reproduced" in verdicts:
        return "not reproduced"
    if "inconclusive" in verdicts:
        return "inconclusive"
    return "reproduced"
