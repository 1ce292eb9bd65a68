"""Means over seeds with their confidence intervals, and the rule for the number
of seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev

CONFIDENCE = 0.95
ROUNDING = 1e-9
"""Share of a value below which sums of floats differ."""


@dataclass(frozen=True)
class Estimate:
    """The mean of ``n`` values, and half the width of its confidence interval.

    ``half_width`` is None if there is no interval: for fewer than two values,
    or one that is not finite.
    """

    mean: float
    half_width: float | None
    n: int

    def scaled(self, factor: float) -> Estimate:
        """The estimate in another unit; ``factor`` is positive."""
        half_width = self.half_width
        if half_width is not None:
            half_width *= factor
        return Estimate(self.mean * factor, half_width, self.n)

    def within(self, least: float, most: float) -> tuple[float, float]:
        """The ends of the interval for a picture: it is cut at ``least`` and
        ``most``, the limits of the metric, and always contains the mean.
        """
        half_width = self.half_width or 0.0
        low = max(least, self.mean - half_width)
        high = min(most, self.mean + half_width)
        # The mean is drawn even if it is beyond the limits.
        return min(low, self.mean), max(high, self.mean)

    def is_apart(self, other: Estimate) -> bool:
        """True if both have intervals, and the intervals do not overlap."""
        if self.half_width is None or other.half_width is None:
            return False
        distance = abs(self.mean - other.mean)
        return distance > self.half_width + other.half_width

    def show(self, digits: int = 1) -> str:
        """Text as ``79.3 ± 0.4``; a dash for a mean that is not a number."""
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
    """The mean of independent values with Student's t interval; None is left
    out.

    For differences of pairs it is the paired t interval. It suits policies that
    met the same requests: they differ far less than each one's values vary from
    seed to seed.
    """
    known = [value for value in values if value is not None]
    n = len(known)
    if not known:
        return Estimate(math.nan, None, 0)
    for value in known:
        if not math.isfinite(value):
            # Such as a ratio to zero: there is no interval around it.
            return Estimate(value, None, n)
    if n == 1:
        return Estimate(known[0], None, 1)
    half_width = _quantile(n) * stdev(known) / math.sqrt(n)
    return Estimate(fmean(known), half_width, n)


@cache
def _quantile(n: int) -> float:
    """Half the width of the interval of n values, in standard errors.

    It is the value of Student's t with n - 1 degrees of freedom that is
    exceeded with probability (1 - CONFIDENCE) / 2.
    """
    from scipy.stats import t

    return float(t.ppf((1 + CONFIDENCE) / 2, n - 1))


@dataclass(frozen=True)
class Stop:
    """A rule for the number of seeds.

    Seeds are enough if the half width of the metric's confidence interval is at
    most the share ``interval`` of its mean.

    - ``metric``: name of the metric; empty: each metric that is shown.
    - ``least``: the fewest seeds.
    """

    interval: float
    metric: str = ""
    least: int = 3

    def needed(
        self, columns: Sequence[Sequence[float | None]]
    ) -> int | None:
        """The least number of seeds that is enough, counted from the first
        seed; None if all seeds are not enough.

        ``columns`` has a column for each metric: its values in the order of the
        seeds, None where a run has no value.
        """
        # The least number and not all seeds: the result must not depend on how
        # many seeds ran ahead.
        n_seeds = min(map(len, columns), default=0)
        for n in range(self.least, n_seeds + 1):
            if all(self._is_enough(column[:n]) for column in columns):
                return n
        return None

    def _is_enough(self, values: Sequence[float | None]) -> bool:
        overall = estimate(values)
        if overall.half_width is None:
            return False
        return overall.half_width <= self.interval * abs(overall.mean)
