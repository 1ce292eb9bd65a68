"""Feitelson-style jobs: powers of two, running times that grow with size, repeated runs.

After the model of "Packing Schemes for Gang Scheduling" (Feitelson, 1996) as the CMBF paper uses it
(Section 5.2). Its hand-tailored tables are not at hand; what stands in for them are the parameters
here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jobs.workload.distributions import Floats, choose, stream
from jobs.workload.parallel_jobs import Calibration, ParallelJobs, in_order

_NAME = "feitelson"


@dataclass(frozen=True)
class FeitelsonStyle:
    """The model's parameters.

    A size n of 1 … ``largest`` has the weight n^-``size_exponent``, times ``power_of_two`` where
    it is one above 1, times ``serial`` where it is 1. Running times are hyper-exponential: a long
    one, ``long_over_short`` times as long on average, with a probability that rises with size
    from ``long_at_one`` to ``long_at_largest``; both are scaled so that the mean is
    ``mean_run_s``. A job is run r times, r of weight r^-``repeat_exponent`` up to
    ``most_repeats``, each submitted when the one before would end had it started at once. First
    runs arrive by a Poisson process.
    """

    jobs: int = 20_000
    largest: int = 256
    size_exponent: float = 1.0
    power_of_two: float = 10.0
    serial: float = 3.0
    mean_run_s: float = 2500.0
    long_over_short: float = 7.0
    long_at_one: float = 0.05
    long_at_largest: float = 0.25
    repeat_exponent: float = 2.5
    most_repeats: int = 1000

    @cached_property
    def sizes(self) -> Floats:
        return np.arange(1, self.largest + 1, dtype=np.float64)

    @cached_property
    def size_shares(self) -> Floats:
        """The probability of each size."""
        n = np.arange(1, self.largest + 1)
        weights = self.sizes**-self.size_exponent
        weights[(n & (n - 1)) == 0] *= self.power_of_two
        weights[0] = self.serial
        shares: Floats = weights / weights.sum()
        return shares

    @cached_property
    def short_s(self) -> float:
        """The mean of short running times, from ``mean_run_s``."""
        return self.mean_run_s / float(self.size_shares @ self._stretch)

    @property
    def _stretch(self) -> Floats:
        """Mean running time by size, in mean short ones."""
        return 1.0 + self._long(self.sizes) * (self.long_over_short - 1.0)

    def _long(self, n: Floats) -> Floats:
        rise = (n - 1.0) / max(1, self.largest - 1)
        return self.long_at_one + (self.long_at_largest - self.long_at_one) * rise

    @property
    def mean_repeats(self) -> float:
        r = np.arange(1, self.most_repeats + 1, dtype=np.float64)
        weights = r**-self.repeat_exponent
        return float((r * weights).sum() / weights.sum())

    @property
    def mean_work_s(self) -> float:
        """E[n·t] of a job."""
        return self.short_s * float(self.size_shares @ (self.sizes * self._stretch))

    def draw(self, seed: int, slots: int, load: float) -> ParallelJobs:
        """The jobs at a natural load of about ``load``.

        Groups are drawn for as long before 0 s as after it, so that repeated runs are as frequent
        at the beginning as later on.
        """
        gap_s = self.mean_work_s * self.mean_repeats / (load * slots)
        half_s = 1.1 * gap_s * self.jobs / self.mean_repeats
        while True:
            submit_s, sizes, run_s = self._runs(seed, gap_s, half_s)
            inside = submit_s >= 0
            if int(inside.sum()) >= self.jobs:
                rows = (submit_s[inside], sizes[inside].astype(np.int64), run_s[inside])
                return in_order(*rows, self.jobs)
            half_s *= 1.5

    def _runs(self, seed: int, gap_s: float, half_s: float) -> tuple[Floats, Floats, Floats]:
        """All runs of groups that begin within ``half_s`` of 0 s."""
        expected = 2 * half_s / gap_s
        count = int(expected + 6 * np.sqrt(expected)) + 16
        begin_s = -half_s + gap_s * np.cumsum(
            stream(seed, _NAME, "gap").standard_exponential(count)
        )
        begin_s = begin_s[begin_s < half_s]
        groups = len(begin_s)
        sizes = choose(seed, (_NAME, "size"), self.sizes, self.size_shares, groups)
        long = stream(seed, _NAME, "long").random(groups) < self._long(sizes)
        run_s = self.short_s * np.where(long, self.long_over_short, 1.0)
        run_s = np.maximum(run_s * stream(seed, _NAME, "run").standard_exponential(groups), 1.0)
        r = np.arange(1, self.most_repeats + 1, dtype=np.float64)
        times = choose(seed, (_NAME, "repeats"), r, r**-self.repeat_exponent, groups).astype(int)
        which = np.repeat(np.arange(groups), times)
        turn = np.arange(len(which)) - np.repeat(np.cumsum(times) - times, times)
        return begin_s[which] + turn * run_s[which], sizes[which], run_s[which]

    def calibration(self, jobs: ParallelJobs) -> tuple[Calibration, ...]:
        """The metrics that the distributions were set to, and those of these jobs."""
        n = np.arange(1, self.largest + 1)
        powers = (n & (n - 1)) == 0
        got = jobs.processes
        return (
            Calibration("mean running time", self.mean_run_s, float(jobs.run_s.mean()), "s"),
            Calibration("mean size", float(self.size_shares @ self.sizes), float(got.mean())),
            Calibration(
                "share of serial jobs", float(self.size_shares[0]), float((got == 1).mean())
            ),
            Calibration(
                "share below 20 processes",
                float(self.size_shares[n < 20].sum()),
                float((got < 20).mean()),
            ),
            Calibration(
                "share of sizes that are powers of two",
                float(self.size_shares[powers].sum()),
                float(((got & (got - 1)) == 0).mean()),
            ),
        )
