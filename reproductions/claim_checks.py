"""Published claims as data, and the rule by which each is judged.

A claim is one or more *checks*: a quantity computed from the grid seed by seed,
and the band it must lie in. Its 95 % confidence interval decides:

- the whole interval inside the band: *reproduced*;
- the whole interval outside: *not reproduced*;
- otherwise *inconclusive*.

One seed has no interval; in its place stands the quantity ± the check's
``resolution``. A claim is reproduced if all its checks are, not reproduced if
one is not, and otherwise inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reproductions.grid_quantities import (
    Change,
    Difference,
    Gain,
    Grid,
    LeastStep,
    Measure,
    Quantity,
    ShareOf,
    Spread,
)
from testbed.sweeps.intervals import Estimate, estimate

Verdict = Literal["reproduced", "not reproduced", "inconclusive"]


@dataclass(frozen=True)
class Band:
    """An interval from ``low`` to ``high``; with ``strictly`` the ends do not
    belong to it.
    """

    low: float = -math.inf
    high: float = math.inf
    strictly: bool = False

    def verdict(self, low: float, high: float) -> Verdict:
        """The verdict of an interval."""
        if self.strictly:
            inside = low > self.low and high < self.high
            outside = high <= self.low or low >= self.high
        else:
            inside = low >= self.low and high <= self.high
            outside = high < self.low or low > self.high
        return (
            "reproduced"
            if inside
            else "not reproduced"
            if outside
            else "inconclusive"
        )

    def __str__(self) -> str:
        if self.low == -math.inf:
            return f"{'below' if self.strictly else 'at most'} {_number(self.high)}"
        if self.high == math.inf:
            return f"{'above' if self.strictly else 'at least'} {_number(self.low)}"
        return f"{_number(self.low)} to {_number(self.high)}"


def _number(value: float) -> str:
    return f"{value:,.6g}"


POSITIVE = Band(low=0.0, strictly=True)
NEGATIVE = Band(high=0.0, strictly=True)


@dataclass(frozen=True)
class Check:
    """A quantity and its band. ``resolution``: half the interval in place of
    one seed's.
    """

    quantity: Quantity
    band: Band
    resolution: float = 1.0

    def judge(self, grid: Grid) -> Judged:
        """The verdict of the grid's values."""
        found = estimate(self.quantity.values(grid))
        half = found.half_width
        if half is None:
            half = 0.0 if grid.exact else self.resolution
        if math.isnan(found.mean):
            return Judged(self, found, "inconclusive")
        return Judged(
            self,
            found,
            self.band.verdict(found.mean - half, found.mean + half),
        )


@dataclass(frozen=True)
class Judged:
    """A check with the value found and its verdict."""

    check: Check
    found: Estimate
    verdict: Verdict

    @property
    def ours(self) -> str:
        return f"{self.found.show(self.check.quantity.digits)}{self.check.quantity.unit}"

    def __str__(self) -> str:
        return f"{self.check.quantity}: {self.ours} ({self.check.band})"


@dataclass(frozen=True)
class Claim:
    """A sentence or figure of a paper. ``published`` is the value or ordering
    it gives.

    ``interpretation`` is how an ambiguous sentence was taken; ``remark`` what
    is known of why it is not reproduced.
    """

    text: str
    published: str
    checks: tuple[Check, ...]
    interpretation: str = ""
    remark: str = ""

    def judge(self, grid: Grid) -> JudgedClaim:
        return JudgedClaim(
            self, tuple(check.judge(grid) for check in self.checks)
        )

    @property
    def rule(self) -> str:
        """The rule by which it is judged, in words."""
        rules: dict[str, list[str]] = {}
        for check in self.checks:
            rules.setdefault(
                f"{check.quantity.subject} # {check.band}", []
            ).append(check.quantity.place)
        return "; ".join(
            f"{rule.replace('#', f'at {_places(places)}')}"
            for rule, places in rules.items()
        )


@dataclass(frozen=True)
class JudgedClaim:
    """A claim and its judged checks."""

    claim: Claim
    checks: tuple[Judged, ...]

    @property
    def verdict(self) -> Verdict:
        return combined([judged.verdict for judged in self.checks])

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
    return (
        "reproduced"
        if all(v == "reproduced" for v in verdicts)
        else "inconclusive"
    )


# -- checks as papers need them ------------------------------------------------


def more(
    measure: Measure,
    series: str,
    others: Sequence[str],
    xs: Sequence[float],
    by: float = 0.0,
) -> tuple[Check, ...]:
    """``series`` has more than each of the others at every x, by more than
    ``by``.
    """
    band = Band(low=by, strictly=True)
    return tuple(
        Check(Difference(measure, series, o, x), band)
        for o in others
        for x in xs
    )


def alike(
    measure: Measure,
    series: str,
    other: str,
    xs: Sequence[float],
    within: float,
) -> tuple[Check, ...]:
    """Two series differ by at most ``within`` at every x."""
    band = Band(-within, within)
    return tuple(
        Check(Difference(measure, series, other, x), band, within / 2)
        for x in xs
    )


def rises(
    measure: Measure, series: str, xs: Sequence[float], slack: float = 1.0
) -> tuple[Check, ...]:
    """A series has more at the last x than at the first, and never loses over
    ``slack`` between.
    """
    return (
        Check(Change(measure, series, xs[0], xs[-1]), POSITIVE),
        Check(LeastStep(measure, series, tuple(xs)), Band(low=-slack)),
    )


def falls(
    measure: Measure, series: str, xs: Sequence[float], slack: float = 1.0
) -> tuple[Check, ...]:
    """The reverse of :func:`rises`."""
    return (
        Check(Change(measure, series, xs[0], xs[-1]), NEGATIVE),
        Check(
            LeastStep(measure, series, tuple(xs), -1.0), Band(low=-slack)
        ),
    )


def constant(
    measure: Measure, series: str, xs: Sequence[float], within: float
) -> tuple[Check, ...]:
    """A series hardly depends on x: its values differ by at most ``within``."""
    return (
        Check(
            Spread(measure, series, tuple(xs)),
            Band(high=within),
            within / 2,
        ),
    )


def about(
    quantity: Quantity, published: float, within: float
) -> tuple[Check, ...]:
    """A quantity is the published value ± ``within``."""
    return (
        Check(
            quantity,
            Band(published - within, published + within),
            within / 4,
        ),
    )


def gain_about(
    measure: Measure,
    series: str,
    other: str,
    x: float,
    published: float,
    within: float = 0.15,
) -> tuple[Check, ...]:
    """A published "+P %": the ratio of the two is the published one ± a share."""
    ratio = 1.0 + published / 100.0
    low, high = (
        100.0 * (ratio * (1.0 + sign * within) - 1.0)
        for sign in (-1.0, 1.0)
    )
    gain = Gain(measure, series, other, x)
    return (Check(gain, Band(low, high), 100.0 * ratio * within / 4),)


def mostly(
    quantities: Sequence[Quantity], above: float
) -> tuple[Check, ...]:
    """In most scenarios, that is in over half of them, a quantity is above a
    threshold.
    """
    return (
        Check(
            ShareOf(quantities[0].measure, tuple(quantities), above),
            Band(50.0, strictly=True),
            0.0,
        ),
    )
