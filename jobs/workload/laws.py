"""Normal laws with a floor, and what becomes of a draw below it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from jobs.workload.streams import stream

Rule = Literal["redraw", "clamp"]
RULES: tuple[Rule, ...] = get_args(Rule)

_MOST_ROUNDS = 10_000


@dataclass(frozen=True)
class Law:
    """A normal law. A draw below ``low`` is drawn again, or clamped to ``low``.

    Redrawing gives the normal law truncated at ``low``; its mean is above ``mean``
    (:meth:`true_mean`).
    """

    mean: float
    sigma: float
    low: float
    rule: Rule = "redraw"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and self.mean >= 0):
            raise ValueError(f"a mean is finite and at least 0, not {self.mean}")
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise ValueError(f"a standard deviation is finite and at least 0, not {self.sigma}")
        if self.rule not in RULES:
            raise ValueError(f"unknown rule {self.rule!r}: known are {', '.join(RULES)}")
        if self.rule == "redraw" and self.mean + 3 * self.sigma < self.low:
            raise ValueError(
                f"a mean of {self.mean:g} with deviation {self.sigma:g} hardly ever reaches "
                f"{self.low:g}: draws below that are drawn again"
            )

    def draw(self, seed: int, name: str, count: int) -> npt.NDArray[np.float64]:
        """``count`` values, shape ``(count,)``.

        Value k depends on seed, name and k alone: more values leave the first ones as they are,
        and the same normal numbers stand behind every mean and sigma (common random numbers).
        """
        values = self.mean + self.sigma * stream(seed, name, 0).standard_normal(count)
        if self.rule == "clamp":
            return np.maximum(values, self.low)
        round_ = 0
        while np.any(short := values < self.low):
            round_ += 1
            if round_ > _MOST_ROUNDS:
                raise ValueError(f"{name}: no draw of {self} reaches {self.low:g}")
            again = self.mean + self.sigma * stream(seed, name, round_).standard_normal(count)
            values[short] = again[short]
        return values

    def true_mean(self) -> float:
        """The mean of what :meth:`draw` gives."""
        if self.sigma == 0:
            return max(self.mean, self.low)
        a = (self.low - self.mean) / self.sigma
        density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
        above = 0.5 * math.erfc(a / math.sqrt(2))
        if self.rule == "redraw":
            return self.mean + self.sigma * density / above
        return self.low * (1 - above) + self.mean * above + self.sigma * density
