"""Jann-style jobs: hyper-Erlang arrivals and running times for each class of sizes.

After "Modeling of Workload in MPPs" (Jann and others, 1997) as the CMBF paper uses it (5.2).
The fitted tables are not at hand; what stands in for them are the parameters here, among them the
three facts the paper tells: 40 % serial jobs, 86 % below 20 processes, 11,250 s on average.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jobs.workload.distributions import Floats, Ints, stream
from jobs.workload.parallel_jobs import Calibration, ParallelJobs, in_order

_NAME = "jann"
SMALL = 20


@dataclass(frozen=True)
class HyperErlang:
    """Two Erlang branches of common order with balanced means, by mean and squared variation.

    ``cv2`` is the variance over the squared mean: at least 1/order.
    """

    mean: float
    cv2: float
    order: int = 1

    def __post_init__(self) -> None:
        if self.order < 1 or self.cv2 * self.order < 1 - 1e-9 or not self.mean > 0:
            raise ValueError(
                f"a hyper-Erlang distribution of order {self.order} has a squared coefficient of"
                f" variation of at least {1 / max(1, self.order):g}, not {self.cv2:g}"
            )

    def draw(self, seed: int, name: str, count: int) -> Floats:
        """``count`` values; value k depends on seed, name and k alone."""
        ratio = max(1.0, (1.0 + self.cv2) * self.order / (self.order + 1.0))
        first = 0.5 * (1.0 + math.sqrt((ratio - 1.0) / ratio))
        scale = self.mean / self.order / 2.0
        branch = stream(seed, _NAME, name, "branch").random(count) < first
        unit = stream(seed, _NAME, name).standard_gamma(self.order, count)
        out: Floats = unit * np.where(branch, scale / first, scale / (1.0 - first))
        return out


@dataclass(frozen=True)
class JannStyle:
    """The model's parameters.

    Classes are 1, 2, 3–4, 5–8 … up to ``largest``; their shares fall by ``decay`` from one to the
    next, such that exactly ``serial`` of the jobs have one process and ``below_20`` fewer than 20.
    ``power_of_two`` of a class have its greatest size, the others any of it. Mean running times
    grow by ``growth`` from class to class around ``mean_run_s``.
    """

    jobs: int = 10_000
    largest: int = 256
    serial: float = 0.40
    below_20: float = 0.86
    decay: float = 0.75
    power_of_two: float = 0.6
    mean_run_s: float = 11_250.0
    growth: float = 1.0
    run_cv2: float = 2.5
    arrival_cv2: float = 2.0
    order: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.serial < self.below_20 < 1 or self.largest < 2 * SMALL:
            raise ValueError(
                "serial lies above 0 and below below_20, that below 1, and largest is 40 at least"
            )
        HyperErlang(self.mean_run_s, self.run_cv2, self.order)
        HyperErlang(1.0, self.arrival_cv2, self.order)

    @cached_property
    def classes(self) -> tuple[tuple[int, int], ...]:
        """Least and greatest size of each class."""
        out, low = [(1, 1)], 2
        while low <= self.largest:
            high = min(1 << (low - 1).bit_length(), self.largest)
            out.append((low, high))
            low = high + 1
        return tuple(out)

    @cached_property
    def shares(self) -> Floats:
        """The share of each class."""
        weights = np.array([self.decay**k for k in range(len(self.classes))])
        small = np.array([high < SMALL for _, high in self.classes])
        small[0] = False
        large = np.array([high >= SMALL for _, high in self.classes])
        weights[small] /= weights[small].sum()
        weights[large] /= weights[large].sum()
        below = sum(w * self._below(k) for k, w in enumerate(weights) if large[k])
        above = (1.0 - self.below_20) / (1.0 - below)
        shares = np.where(large, weights * above, weights * (1.0 - self.serial - above))
        shares[0] = self.serial
        if (shares <= 0).any():
            raise ValueError("serial and below_20 leave no room for jobs of 2 to 16 processes")
        out: Floats = shares
        return out

    def _below(self, k: int) -> float:
        """The share of a class that has fewer than 20 processes."""
        low, high = self.classes[k]
        any_size = max(0, min(high, SMALL - 1) - low + 1) / (high - low + 1)
        return (1.0 - self.power_of_two) * any_size + self.power_of_two * (high < SMALL)

    @cached_property
    def run_means_s(self) -> Floats:
        """Mean running time of each class."""
        growth = self.growth ** np.arange(len(self.classes), dtype=np.float64)
        out: Floats = growth * self.mean_run_s / float(self.shares @ growth)
        return out

    @property
    def size_means(self) -> Floats:
        """Mean size of each class."""
        return np.array(
            [
                self.power_of_two * high + (1.0 - self.power_of_two) * (low + high) / 2
                for low, high in self.classes
            ]
        )

    def draw(self, seed: int, slots: int, load: float) -> ParallelJobs:
        """The jobs at a natural load of about ``load``: a renewal process for each class."""
        work_s = float(self.shares @ (self.size_means * self.run_means_s))
        gap_s = work_s / (load * slots)
        classes = [self._class(seed, k, gap_s) for k in range(len(self.classes))]
        submit_s, sizes, run_s = (np.concatenate(columns) for columns in zip(*classes, strict=True))
        return in_order(submit_s, sizes, run_s, self.jobs)

    def _class(self, seed: int, k: int, gap_s: float) -> tuple[Floats, Ints, Floats]:
        """So many jobs of one class that its arrivals surely outlast the wanted jobs."""
        low, high = self.classes[k]
        expected = self.jobs * self.shares[k]
        spread = math.sqrt(expected * max(1.0, self.arrival_cv2))
        count = min(self.jobs, int(expected + 8 * spread) + 16)
        arrivals = HyperErlang(gap_s / self.shares[k], self.arrival_cv2, self.order)
        running = HyperErlang(self.run_means_s[k], self.run_cv2, self.order)
        whole = stream(seed, _NAME, f"whole {k}").random(count) < self.power_of_two
        any_size = stream(seed, _NAME, f"size {k}").integers(low, high, count, endpoint=True)
        return (
            np.cumsum(arrivals.draw(seed, f"gap {k}", count)),
            np.where(whole, high, any_size).astype(np.int64),
            running.draw(seed, f"run {k}", count),
        )

    def calibration(self, jobs: ParallelJobs) -> tuple[Calibration, ...]:
        """The metrics that the distributions were set to, and those of these jobs."""
        got, run_s = jobs.processes, jobs.run_s
        mean_s = float(run_s.mean())
        squares = float(self.shares @ self.run_means_s**2) * (1.0 + self.run_cv2)
        return (
            Calibration("mean running time", self.mean_run_s, mean_s, "s"),
            Calibration("share of serial jobs", self.serial, float((got == 1).mean())),
            Calibration("share below 20 processes", self.below_20, float((got < SMALL).mean())),
            Calibration("mean size", float(self.shares @ self.size_means), float(got.mean())),
            Calibration(
                "squared variation of running times",
                squares / self.mean_run_s**2 - 1.0,
                float(run_s.var()) / mean_s**2,
            ),
        )
