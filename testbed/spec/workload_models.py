"""Parallel jobs of published workload models: ``feitelson``, ``jann`` and
``exponential``.

The first two are those of "Packing Schemes for Gang Scheduling" (Feitelson,
1996) and "Modeling of Workload in MPPs" (Jann and others, 1997) as the CMBF
paper uses them (Section 5.2). The keys of the sections replace their fitted
tables, which are not available.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from jobs.workload.distributions import Floats, Ints, choose, stream
from jobs.workload.parallel_jobs import ParallelJobs, in_order
from testbed.spec.document import Location
from testbed.spec.size_limits import LIMITS
from testbed.spec.topology_section import LoadContext
from testbed.spec.unit_types import Duration, PositiveDuration, Share
from testbed.spec.workload_section import (
    NO_JOBS,
    CpuRule,
    LoadedWorkload,
    ParallelWorkload,
)
from testbed.units import human_duration

SMALL = 20
"""Jobs of fewer processes are small."""

Jobs = Annotated[int, Field(ge=2, le=LIMITS["jobs of a model"])]
Largest = Annotated[int, Field(ge=1, le=65_536)]
Factor = Annotated[float, Field(gt=0, le=1e6)]
Order = Annotated[int, Field(ge=1, le=100)]


@dataclass(frozen=True)
class Calibration:
    """A metric of a model: its value in the distribution (``wanted``), and that
    of the drawn jobs (``found``).
    """

    what: str
    wanted: float
    found: float
    unit: str = ""

    def __str__(self) -> str:
        """``calibration: mean running time 2,500 s wanted, 2,431 s drawn (-2.8
        %)``.
        """
        error_percent = 0.0
        if self.wanted:
            error_percent = (self.found / self.wanted - 1.0) * 100
        return (
            f"calibration: {self.what} {self._shown(self.wanted)} wanted,"
            f" {self._shown(self.found)} drawn ({error_percent:+.1f} %)"
        )

    def _shown(self, value: float) -> str:
        if self.unit == "s":
            return human_duration(value)
        return f"{value:.4g}"


def _mean_run_time(wanted_s: float, jobs: ParallelJobs) -> Calibration:
    return Calibration(
        "mean running time", wanted_s, float(jobs.run_s.mean()), "s"
    )


def _small_shares(
    serial: float, below_20: float, sizes: npt.NDArray[np.int32]
) -> tuple[Calibration, Calibration]:
    """Shares of jobs of one process, and of fewer than 20."""
    return (
        Calibration(
            "share of serial jobs", serial, float((sizes == 1).mean())
        ),
        Calibration(
            "share below 20 processes",
            below_20,
            float((sizes < SMALL).mean()),
        ),
    )


class ModelWorkload(ParallelWorkload):
    """Jobs of a workload model."""

    load: Annotated[float, Field(gt=0, le=1000)] = 0.7
    """system load, as for every kind of parallel jobs (default 0.7)"""
    cpu: CpuRule = CpuRule()
    """the CPU use of processes (default 40 % to 100 % of a node)"""
    overestimate: Annotated[float, Field(ge=1, le=1e6)] | None = None
    """users state their running time times a factor, uniform from 1 to
    this (default: the running time)
    """

    def draw(self, seed: int, slots: int, load: float) -> ParallelJobs:
        """Jobs with about the system load ``load`` on ``slots`` slots.

        Raises ValueError where the parameters fit no distribution.
        """
        raise NotImplementedError

    def calibration(self, jobs: ParallelJobs) -> tuple[Calibration, ...]:
        """The model's metrics, in its distributions and of these jobs."""
        raise NotImplementedError

    def loaded(
        self, location: Location, context: LoadContext
    ) -> LoadedWorkload:
        if not location.is_sound() or context.datacentre is None:
            return NO_JOBS
        try:
            jobs = self.draw(
                context.seed, context.datacentre.total_slots, self.load
            )
        except ValueError as objection:
            location.report(str(objection))
            return NO_JOBS
        calibration = self.calibration(jobs)
        if self.overestimate is not None:
            jobs = jobs.overestimated(self.overestimate, context.seed)
        # ``fitted`` adds the keys that all kinds of parallel jobs have.
        common = set(ParallelWorkload.model_fields) - {"kind"}
        return self.fitted(
            location,
            context,
            jobs=jobs,
            origin={
                **self.model_dump(exclude=common),
                "calibration": list(map(asdict, calibration)),
            },
            notes=(
                f"{self.kind.capitalize()}-style jobs",
                *map(str, calibration),
            ),
        )


class FeitelsonWorkload(ModelWorkload):
    """Jobs after Feitelson's model of 1996."""

    kind: Literal["feitelson"]
    jobs: Jobs = 20_000
    """how many (default 20,000)"""
    largest: Largest = 256
    """the greatest size (default 256)"""
    # With 1 over n, 82 % of the jobs have fewer than 20 processes; sizes
    # are to be wider than Jann's, which have 86 % there (decision 28).
    size_exponent: Annotated[float, Field(ge=0, le=10)] = 1.0
    """a size n has the weight n to the power of minus this (default 1)"""
    power_of_two: Factor = 10.0
    """the factor of that weight where n is a power of two above 1 (default
    10)
    """
    serial: Factor = 3.0
    """the factor of that weight where n is 1 (default 3)"""
    mean_run_time: PositiveDuration = 2500.0
    """the mean to which running times are scaled (default 2500 s)"""
    long_over_short: Annotated[float, Field(ge=1, le=1e6)] = 7.0
    """mean of long running times over that of short ones (default 7)"""
    long_at_one: Share = 0.05
    """the share of long ones at size 1 (default 5 %)"""
    long_at_largest: Share = 0.25
    """the share of long ones at the greatest size (default 25 %)"""
    repeat_exponent: Annotated[float, Field(ge=0, le=10)] = 2.5
    """a job is run r times with the weight r to the power of minus this
    (default 2.5)
    """
    most_repeats: Annotated[int, Field(ge=1, le=10_000)] = 1000
    """a job is run so many times at most (default 1000)"""

    @cached_property
    def sizes(self) -> Floats:
        return np.arange(1, self.largest + 1, dtype=np.float64)

    @cached_property
    def size_shares(self) -> Floats:
        """The probability of each size."""
        n = np.arange(1, self.largest + 1)
        weights = self.sizes**-self.size_exponent
        weights[_is_power_of_two(n)] *= self.power_of_two
        # Size 1 has another factor, which is its weight: 1 to any power is 1.
        weights[0] = self.serial
        shares: Floats = weights / weights.sum()
        return shares

    @cached_property
    def short_s(self) -> float:
        """The mean of short running times, from ``mean_run_time``."""
        return self.mean_run_time / float(self.size_shares @ self._stretch)

    @property
    def _stretch(self) -> Floats:
        """Mean running time of each size over the mean of short ones."""
        shares = self._long_shares(self.sizes)
        return 1.0 + shares * (self.long_over_short - 1.0)

    def _long_shares(self, n: Floats) -> Floats:
        """Shares of long running times at sizes ``n``: linear from 1 to the
        greatest size.
        """
        # Without a division by 0 where 1 is the greatest size.
        rise = (n - 1.0) / max(1, self.largest - 1)
        return (
            self.long_at_one
            + (self.long_at_largest - self.long_at_one) * rise
        )

    @property
    def _repeats(self) -> tuple[Floats, Floats]:
        """Numbers of runs that a job may have, and their weights."""
        r = np.arange(1, self.most_repeats + 1, dtype=np.float64)
        return r, r**-self.repeat_exponent

    @property
    def mean_repeats(self) -> float:
        """Runs of a job on average."""
        r, weights = self._repeats
        return float((r * weights).sum() / weights.sum())

    @property
    def mean_work_s(self) -> float:
        """Mean of a run's size times its running time."""
        return self.short_s * float(
            self.size_shares @ (self.sizes * self._stretch)
        )

    def draw(self, seed: int, slots: int, load: float) -> ParallelJobs:
        """Runs in groups: a group is a job that is run once or several times.

        Groups begin before 0 s too, so that repeated runs are as frequent at
        the beginning as later. A run is submitted when the one before would end
        if it started at its submission.
        """
        # In the mean time between groups the loaded slots do one group's work.
        gap_s = self.mean_work_s * self.mean_repeats / (load * slots)
        # A tenth longer than is needed on average.
        half_s = 1.1 * gap_s * self.jobs / self.mean_repeats
        while True:
            submit_s, sizes, run_s = self._runs(seed, gap_s, half_s)
            inside = submit_s >= 0
            if int(inside.sum()) >= self.jobs:
                return in_order(
                    submit_s[inside],
                    sizes[inside].astype(np.int64),
                    run_s[inside],
                    self.jobs,
                )
            # Too few runs, since numbers of repeats have a heavy tail.
            half_s *= 1.5

    def _runs(
        self, seed: int, gap_s: float, half_s: float
    ) -> tuple[Floats, Floats, Floats]:
        """Submission times, sizes and running times of all runs whose groups
        begin within ``half_s`` of 0 s.
        """
        begin_s = self._begins_s(seed, gap_s, half_s)
        groups = len(begin_s)
        sizes = choose(
            seed,
            (self.kind, "size"),
            values=self.sizes,
            weights=self.size_shares,
            count=groups,
        )
        run_s = self._run_times_s(seed, sizes)
        counts = choose(
            seed, (self.kind, "repeats"), *self._repeats, groups
        )
        repeats = counts.astype(int)
        # An entry a run: its group, and how many runs of it come before.
        group = np.repeat(np.arange(groups), repeats)
        first_of_group = np.cumsum(repeats) - repeats
        before = np.arange(len(group)) - first_of_group[group]
        submit_s = begin_s[group] + before * run_s[group]
        return submit_s, sizes[group], run_s[group]

    def _begins_s(self, seed: int, gap_s: float, half_s: float) -> Floats:
        """Poisson arrivals of groups from -``half_s`` to ``half_s``."""
        expected = 2 * half_s / gap_s
        # Six standard deviations more than are expected.
        count = int(expected + 6 * np.sqrt(expected)) + 16
        gaps = stream(seed, self.kind, "gap").standard_exponential(count)
        begin_s = -half_s + gap_s * np.cumsum(gaps)
        return begin_s[begin_s < half_s]

    def _run_times_s(self, seed: int, sizes: Floats) -> Floats:
        """Running times of groups of these sizes, of 1 s at least: short and
        long exponential ones, mixed by size.
        """
        groups = len(sizes)
        chances = stream(seed, self.kind, "long").random(groups)
        is_long = chances < self._long_shares(sizes)
        mean_s = self.short_s * np.where(is_long, self.long_over_short, 1.0)
        units = stream(seed, self.kind, "run").standard_exponential(groups)
        return np.maximum(mean_s * units, 1.0)

    def calibration(self, jobs: ParallelJobs) -> tuple[Calibration, ...]:
        n = np.arange(1, self.largest + 1)
        sizes = jobs.processes
        return (
            _mean_run_time(self.mean_run_time, jobs),
            Calibration(
                "mean size",
                float(self.size_shares @ self.sizes),
                float(sizes.mean()),
            ),
            *_small_shares(
                float(self.size_shares[0]),
                float(self.size_shares[n < SMALL].sum()),
                sizes,
            ),
            Calibration(
                "share of sizes that are powers of two",
                float(self.size_shares[_is_power_of_two(n)].sum()),
                float(_is_power_of_two(sizes).mean()),
            ),
        )


def _is_power_of_two(n: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    # A power of two has a single bit, 1 too.
    single: npt.NDArray[np.bool_] = (n & (n - 1)) == 0
    return single


@dataclass(frozen=True)
class HyperErlang:
    """A mixture of two Erlang distributions (branches) of one order, each of
    which contributes half of the mean.

    ``cv2``, the squared variation, is the variance over the squared mean: at
    least 1/order.
    """

    mean: float
    cv2: float
    order: int = 1

    def __post_init__(self) -> None:
        if self.cv2 * self.order < 1 - 1e-9:
            raise ValueError(
                f"a hyper-Erlang distribution of order {self.order} has a squared coefficient of"
                f" variation of at least {1 / self.order:g}, not {self.cv2:g}"
            )

    def draw(self, seed: int, name: str, count: int) -> Floats:
        """``count`` values; value k depends on seed, name and k alone."""
        # The branches' probabilities, p and 1 - p, follow from the squared
        # variation: ratio is 1 / (4 p (1 - p)), at least 1 but for rounding.
        ratio = max(1.0, (1.0 + self.cv2) * self.order / (self.order + 1.0))
        p = 0.5 * (1.0 + math.sqrt((ratio - 1.0) / ratio))
        scale = self.mean / self.order / 2.0
        is_first = stream(seed, "jann", name, "branch").random(count) < p
        unit = stream(seed, "jann", name).standard_gamma(self.order, count)
        values: Floats = unit * np.where(
            is_first, scale / p, scale / (1.0 - p)
        )
        return values


class JannWorkload(ModelWorkload):
    """Jobs after the model of Jann and others of 1997."""

    kind: Literal["jann"]
    jobs: Jobs = 10_000
    """how many (default 10,000)"""
    largest: Largest = 256
    """the greatest size (default 256)"""
    serial: Share = 0.40
    """the share of jobs of one process (default 40 %)"""
    below_20: Share = 0.86
    """the share of jobs of fewer than 20 processes (default 86 %)"""
    decay: Factor = 0.75
    """the share of a class of sizes (1, 2, 3 to 4, 5 to 8, ...) over that
    of the one before (default 0.75)
    """
    power_of_two: Share = 0.6
    """the share of a class that has its greatest size (default 60 %)"""
    mean_run_time: PositiveDuration = 11_250.0
    """the mean of running times (default 11250 s)"""
    growth: Factor = 1.0
    """mean running time of a class over that of the one before (default
    1)
    """
    run_cv2: Factor = 2.5
    """squared variation of running times in a class (default 2.5)"""
    arrival_cv2: Factor = 2.0
    """squared variation of distances between arrivals of a class
    (default 2)
    """
    order: Order = 1
    """the common order of the hyper-Erlang distributions (default 1)"""

    def _check_parameters(self) -> None:
        """Raises ValueError where the parameters fit no distribution."""
        if (
            not 0 < self.serial < self.below_20 < 1
            or self.largest < 2 * SMALL
        ):
            raise ValueError(
                "serial lies above 0 and below below_20, below_20 lies below 1,"
                " and largest is 40 at least"
            )
        HyperErlang(self.mean_run_time, self.run_cv2, self.order)
        HyperErlang(1.0, self.arrival_cv2, self.order)

    @cached_property
    def classes(self) -> tuple[tuple[int, int], ...]:
        """Least and greatest size of each class."""
        classes = [(1, 1)]
        low = 2
        # Each ends at a power of two, 2, 3 to 4, 5 to 8, …, but the last,
        # which ends at the greatest size.
        while low <= self.largest:
            high = min(1 << (low - 1).bit_length(), self.largest)
            classes.append((low, high))
            low = high + 1
        return tuple(classes)

    @cached_property
    def shares(self) -> Floats:
        """The share of each class."""
        weights = np.array(
            [self.decay**k for k in range(len(self.classes))]
        )
        small = np.array([high < SMALL for _, high in self.classes])
        # Serial jobs have a share of their own.
        small[0] = False
        large = np.array([high >= SMALL for _, high in self.classes])
        weights[small] /= weights[small].sum()
        weights[large] /= weights[large].sum()
        # The class from 17 to 32 has sizes on both sides of 20. ``below`` is
        # the share of small jobs among those of the large classes.
        below = sum(
            weight * self._share_below_20(k)
            for k, weight in enumerate(weights)
            if large[k]
        )
        large_share = (1.0 - self.below_20) / (1.0 - below)
        small_share = 1.0 - self.serial - large_share
        shares: Floats = weights * np.where(large, large_share, small_share)
        shares[0] = self.serial
        if (shares <= 0).any():
            raise ValueError(
                "serial and below_20 leave no room for jobs of 2 to 16 processes"
            )
        return shares

    def _share_below_20(self, k: int) -> float:
        """The share of a class that has fewer than 20 processes."""
        low, high = self.classes[k]
        n_sizes = high - low + 1
        n_small = max(0, min(high, SMALL - 1) - low + 1)
        of_any_size = (1.0 - self.power_of_two) * (n_small / n_sizes)
        # These jobs have the greatest size of the class.
        of_greatest = self.power_of_two if high < SMALL else 0.0
        return of_any_size + of_greatest

    @cached_property
    def run_means_s(self) -> Floats:
        """Mean running time of each class."""
        growth = self.growth ** np.arange(
            len(self.classes), dtype=np.float64
        )
        means: Floats = (
            growth * self.mean_run_time / float(self.shares @ growth)
        )
        return means

    @property
    def size_means(self) -> Floats:
        """Mean size of each class."""
        low, high = np.array(self.classes).T
        means: Floats = (
            self.power_of_two * high
            + (1.0 - self.power_of_two) * (low + high) / 2
        )
        return means

    def draw(self, seed: int, slots: int, load: float) -> ParallelJobs:
        """Jobs that arrive by a renewal process for each class."""
        self._check_parameters()
        work_s = float(self.shares @ (self.size_means * self.run_means_s))
        # The mean distance of arrivals of all jobs.
        gap_s = work_s / (load * slots)
        classes = [
            self._jobs_of_class(seed, k, gap_s)
            for k in range(len(self.classes))
        ]
        submit_s, sizes, run_s = map(
            np.concatenate, zip(*classes, strict=True)
        )
        return in_order(submit_s, sizes, run_s, self.jobs)

    def _jobs_of_class(
        self, seed: int, k: int, gap_s: float
    ) -> tuple[Floats, Ints, Floats]:
        """Submission times, sizes and running times of a class's jobs, for as
        long as all classes together need for enough jobs.
        """
        low, high = self.classes[k]
        expected = self.jobs * self.shares[k]
        # Eight standard deviations more than are expected.
        spread = math.sqrt(expected * max(1.0, self.arrival_cv2))
        count = min(self.jobs, int(expected + 8 * spread) + 16)
        arrivals = HyperErlang(
            gap_s / self.shares[k], self.arrival_cv2, self.order
        )
        running = HyperErlang(self.run_means_s[k], self.run_cv2, self.order)
        chances = stream(seed, self.kind, f"whole {k}").random(count)
        is_greatest = chances < self.power_of_two
        any_size = stream(seed, self.kind, f"size {k}").integers(
            low, high, count, endpoint=True
        )
        return (
            np.cumsum(arrivals.draw(seed, f"gap {k}", count)),
            np.where(is_greatest, high, any_size).astype(np.int64),
            running.draw(seed, f"run {k}", count),
        )

    def calibration(self, jobs: ParallelJobs) -> tuple[Calibration, ...]:
        sizes = jobs.processes
        run_s = jobs.run_s
        # The second moment of the mixture: a class's is mean² · (1 + cv²).
        squares = float(self.shares @ self.run_means_s**2) * (
            1.0 + self.run_cv2
        )
        return (
            _mean_run_time(self.mean_run_time, jobs),
            *_small_shares(self.serial, self.below_20, sizes),
            Calibration(
                "mean size",
                float(self.shares @ self.size_means),
                float(sizes.mean()),
            ),
            Calibration(
                "squared variation of running times",
                squares / self.mean_run_time**2 - 1.0,
                float(run_s.var()) / float(run_s.mean()) ** 2,
            ),
        )


class ExponentialWorkload(ModelWorkload):
    """Random jobs: Poisson arrivals, exponential running times, uniform sizes
    (AdaBa, Fig. 4).
    """

    kind: Literal["exponential"]
    cpu: CpuRule | None = None  # type: ignore[assignment]
    """the CPU use of processes (default: each uses all of its node's)"""
    jobs: Jobs = 1000
    """how many (default 1,000)"""
    mean_vms: Largest = 8
    """VMs per job on average, uniform from 1 to twice this less one
    (default 8)
    """
    mean_run_time: PositiveDuration = 3600.0
    """the mean of running times, which are exponential (default 1 h)"""
    shortest: Duration = 0.0
    """no job runs for less: the exponential part comes on top (default
    0 s)
    """

    def draw(self, seed: int, slots: int, load: float) -> ParallelJobs:  # noqa: ARG002
        """Jobs a second apart on average: the caller stretches the distances
        for the load.
        """
        if self.shortest >= self.mean_run_time:
            raise ValueError("shortest must be below mean_run_time")
        vms = stream(seed, "sizes").integers(
            1, 2 * self.mean_vms, self.jobs
        )
        run_s = stream(seed, "running times").exponential(
            self.mean_run_time - self.shortest, self.jobs
        )
        submit_s = np.cumsum(
            stream(seed, "arrivals").exponential(1.0, self.jobs)
        )
        return in_order(submit_s, vms, self.shortest + run_s, self.jobs)

    def calibration(self, jobs: ParallelJobs) -> tuple[Calibration, ...]:
        return (
            Calibration(
                "mean VMs", self.mean_vms, float(jobs.processes.mean())
            ),
            _mean_run_time(self.mean_run_time, jobs),
        )
