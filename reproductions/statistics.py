"""Means with their 95 % confidence intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over ``n`` seeds and half the width of its interval; None with one seed."""

    mean: float
    half_width: float | None
    n: int

    def show(self, digits: int = 1) -> str:
        """``79.3 ± 0.4``; a dash where there is no number."""
        if math.isnan(self.mean):
            return "–"
        if math.isinf(self.mean):
            return "∞" if self.mean > 0 else "-∞"
        text = f"{self.mean:,.{digits}f}"
        return text if self.half_width is None else f"{text} ± {self.half_width:,.{digits}f}"


def estimate(values: Sequence[float]) -> Estimate:
    """Student's interval around the mean of independent values.

    Of paired differences it is the paired t interval: policies that met the same requests differ
    far less than their means vary from seed to seed.
    """
    if not values:
        return Estimate(math.nan, None, 0)
    endless = [value for value in values if not math.isfinite(value)]
    if endless:
        # A ratio to nothing, for one: no interval around it.
        return Estimate(endless[0], None, len(values))
    if len(values) == 1:
        return Estimate(values[0], None, 1)
    from scipy.stats import t

    quantile = float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1))
    return Estimate(fmean(values), quantile * stdev(values) / math.sqrt(len(values)), len(values))
