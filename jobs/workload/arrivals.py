"""When jobs arrive: a Poisson process with a day and a night, or all at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from jobs.workload.streams import stream

HOUR_S = 3600.0


@dataclass(frozen=True)
class DayAndNight:
    """Poisson arrivals: ``per_hour`` by day, ``night_factor`` times that by night, in turns.

    Days and nights last ``half_s`` each, beginning with a day, over ``span_s`` in all (DCloud,
    Section IV.A: 12 h of λ, 12 h of λ/5).
    """

    per_hour: float
    night_factor: float = 0.2
    span_s: float = 24 * HOUR_S
    half_s: float = 12 * HOUR_S

    def __post_init__(self) -> None:
        for name, value in (("per_hour", self.per_hour), ("night_factor", self.night_factor)):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is finite and at least 0, not {value}")
        if not (math.isfinite(self.span_s) and self.span_s > 0 and self.half_s > 0):
            raise ValueError("the span and the length of a day are finite and above 0 s")

    def times_s(self, seed: int, name: str = "arrivals") -> npt.NDArray[np.float64]:
        """Arrival times in ``[0, span_s)``, rising.

        A process of rate 1 with its time warped, so that all rates share their random numbers.
        """
        starts, expected = self._phases()
        total = float(expected[-1])
        rng = stream(seed, name)
        gaps = rng.standard_exponential(max(16, int(total + 8 * math.sqrt(total) + 8)))
        clock = np.cumsum(gaps)
        while clock[-1] < total:
            clock = np.concatenate((clock, clock[-1] + np.cumsum(rng.standard_exponential(64))))
        times: npt.NDArray[np.float64] = np.interp(clock[clock < total], expected, starts)
        return times[times < self.span_s]

    def _phases(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Where phases begin (and the last one ends), and arrivals expected by then."""
        starts = np.append(np.arange(0.0, self.span_s, self.half_s), self.span_s)
        factor = np.where(np.arange(len(starts) - 1) % 2 == 0, 1.0, self.night_factor)
        per_s = self.per_hour / HOUR_S * factor
        return starts, np.concatenate(([0.0], np.cumsum(per_s * np.diff(starts))))


@dataclass(frozen=True)
class Batch:
    """``count`` jobs at once, at time 0 (DCloud, Section IV.E)."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"a batch has at least 0 jobs, not {self.count}")

    def times_s(self, seed: int, name: str = "arrivals") -> npt.NDArray[np.float64]:
        """``count`` zeros."""
        del seed, name
        return np.zeros(self.count)
