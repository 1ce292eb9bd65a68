"""Means of repetitions with their confidence intervals, and the rule by which
there are enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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


def estimate(values: Sequence[float]) -> Estimate:
    """Student's interval around the mean of independent values.

    Of paired differences it is the paired t interval: policies that met the
    same requests differ far less than their means vary from seed to seed.
    """
    if not values:
        return Estimate(math.nan, None, 0)
    endless = [value for value in values if not math.isfinite(value)]
    if endless:
        # A ratio to nothing, for one: no interval around it.
        return Estimate(endless[0], None, len(values))
    if len(values) == 1:
        return Estimate(values[0], None, 1)
    half_width = _quantile(len(values)) * stdev(values) / math.sqrt(len(values))
    return Estimate(fmean(values), half_width, len(values))


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

    def needed(self, columns: Sequence[Sequence[float | None]]) -> int | None:
        """The fewest first seeds that are enough; None where all of them are
        not.

        ``columns`` are the metrics' values in the order of the seeds; None
        where a run has none.
        """
        seeds = min(map(len, columns), default=0)
        counts = range(self.least, seeds + 1)
        return next(
            (n for n in counts if all(self._holds(one[:n]) for one in columns)),
            None,
        )

    def _holds(self, values: Sequence[float | None]) -> bool:
        found = estimate([value for value in values if value is not None])
        if found.half_width is None or not math.isfinite(found.mean):
            return False
        return found.half_width <= self.interval * abs(found.mean)
