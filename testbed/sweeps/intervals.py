"""Means of repetitions with their confidence intervals, and the rule by which
there are enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over ``n`` seeds and half the width of its interval; None with one
    seed.
    """

    mean: float
    half_width: float | None
    n: int

    def scaled(self, factor: float) -> Estimate:
        """The same in another unit; ``factor`` > 0."""
        half_width = self.half_width
        if half_width is not None:
            half_width *= factor
        return Estimate(self.mean * factor, half_width, self.n)

    def within(self, least: float, most: float) -> tuple[float, float]:
        """The ends of the interval, cut at what is possible."""
        half_width = self.half_width or 0.0
        low = max(least, self.mean - half_width)
        high = min(most, self.mean + half_width)
        # The mean itself is drawn wherever it is.
        return min(low, self.mean), max(high, self.mean)

    def is_apart(self, other: Estimate) -> bool:
        """True where both have an interval, and these do not overlap."""
        if self.half_width is None or other.half_width is None:
            return False
        distance = abs(self.mean - other.mean)
        return distance > self.half_width + other.half_width

    def show(self, digits: int = 1) -> str:
        """``79.3 ± 0.4``; a dash where there is no number."""
        if math.isnan(self.mean):
            return "–"
        if math.isinf(self.mean):
            if self.mean > 0:
                return "∞"
            return "-∞"
        text = f"{self.mean:,.{digits}f}"
        if self.half_width is None:
            return text
        return f"{text} ± {self.half_width:,.{digits}f}"


def estimate(values: Iterable[float | None]) -> Estimate:
    """Student's interval around the mean of independent values; None counts as
    no value.

    Of paired differences it is the paired t interval: policies that met the
    same requests differ far less than their means vary from seed to seed.
    """
    known = [value for value in values if value is not None]
    n = len(known)
    if not known:
        return Estimate(math.nan, None, 0)
    for value in known:
        if not math.isfinite(value):
            # A ratio to nothing, for one: no interval around it.
            return Estimate(value, None, n)
    if n == 1:
        return Estimate(known[0], None, 1)
    half_width = _quantile(n) * stdev(known) / math.sqrt(n)
    return Estimate(fmean(known), half_width, n)


@cache
def _quantile(n: int) -> float:
    """Student's t of n values that half of the rest of the confidence lies
    above.
    """
    from scipy.stats import t

    return float(t.ppf((1 + CONFIDENCE) / 2, n - 1))


@dataclass(frozen=True)
class Stop:
    """A rule: seeds are enough where the interval's half width is at most this
    share of the mean.

    ``metric`` empty: of each metric that is shown. ``least``: the fewest seeds.
    """

    interval: float
    metric: str = ""
    least: int = 3

    def needed(
        self, columns: Sequence[Sequence[float | None]]
    ) -> int | None:
        """The fewest first seeds that are enough; None where all of them are
        not.

        ``columns`` are the metrics' values in the order of the seeds; None
        where a run has none.
        """
        # The first number that will do, so that the same seeds count
        # however many ran ahead.
        seeds = min(map(len, columns), default=0)
        for count in range(self.least, seeds + 1):
            if all(self._holds(column[:count]) for column in columns):
                return count
        return None

    def _holds(self, values: Sequence[float | None]) -> bool:
        around = estimate(values)
        if around.half_width is None or not math.isfinite(around.mean):
            return False
        return around.half_width <= self.interval * abs(around.mean)
