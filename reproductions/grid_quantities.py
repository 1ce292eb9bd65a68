"""Quantities that claims are about: numbers computed from a figure's grid, one
per seed.

Comparisons are made within each seed, where all series met the same requests
(common random numbers), so that the interval around them is that of paired
differences.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import ClassVar

Measures = Mapping[str, float]
"""The values measured in one run, by name, in plain units (shares, seconds,
dollars).
"""

Values = tuple[float, ...]
BySeed = tuple[float | None, ...]
"""One value per seed; None where a live run that it needs was invalid: the seed
is left out.
"""
LEVELS = {"ok": 0.0, "suspect": 1.0, "invalid": 2.0}
"""Verdicts on a live run's fidelity, as values of the measure ``fidelity``."""


@dataclass(frozen=True)
class Measure:
    """A measure of runs as people read it: ``factor`` times the run's value, in
    ``unit``.
    """

    name: str
    label: str
    unit: str = ""
    factor: float = 1.0
    digits: int = 1

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True)
class Grid:
    """The measures of all runs of a figure, by series and x, in the order of
    seeds.

    ``exact``: nothing random is in it, so that one seed is enough.
    """

    runs: Mapping[tuple[str, float], tuple[Measures, ...]]
    exact: bool = False

    @property
    def has_invalid(self) -> bool:
        """True where some live run was invalid."""
        return any(map(is_invalid, chain.from_iterable(self.runs.values())))

    def values(self, measure: Measure, series: str, x: float) -> BySeed:
        """One value per seed, in the measure's unit."""
        values: list[float | None] = []
        for run in self.runs[series, x]:
            value = run[measure.name]
            # What was simulated or audited has a value all the same.
            if is_invalid(run) and math.isnan(value):
                values.append(None)
            else:
                values.append(value * measure.factor)
        return tuple(values)


def is_invalid(run: Measures) -> bool:
    """True for an invalid live run."""
    return run.get("fidelity") == LEVELS["invalid"]


def known(values: BySeed) -> Values:
    """The values of the seeds that are not left out."""
    return tuple(value for value in values if value is not None)


@dataclass(frozen=True)
class Quantity(ABC):
    """A number per seed. ``subject`` names it without its ``place`` on the x
    axis.
    """

    measure: Measure
    is_step: ClassVar[bool] = False
    """True of steps of a curve, of which small ones may go the other way."""

    def values(self, grid: Grid) -> BySeed:
        """One value per seed; not-a-number where a part of it is not finite."""
        values: list[float | None] = []
        for row in self.parts(grid):
            parts = known(row)
            if len(parts) < len(row):
                values.append(None)
            # A comparison with not-a-number is false, and min and max keep
            # or drop it by its place.
            elif all(map(math.isfinite, parts)):
                values.append(self.of_parts(parts))
            else:
                values.append(math.nan)
        return tuple(values)

    @abstractmethod
    def parts(self, grid: Grid) -> Iterator[BySeed]:
        """The numbers that it is computed from, seed by seed."""

    @abstractmethod
    def of_parts(self, row: Values) -> float:
        """Its value from the parts of a seed, all of them finite."""

    @property
    @abstractmethod
    def subject(self) -> str: ...

    @property
    @abstractmethod
    def place(self) -> str: ...

    @property
    def unit(self) -> str:
        return _after_number(self.measure)

    @property
    def digits(self) -> int:
        return self.measure.digits

    def __str__(self) -> str:
        return f"{self.subject} at {self.place}"


def _after_number(measure: Measure) -> str:
    """The unit behind a number; empty where there is none."""
    if not measure.unit:
        return ""
    return f" {measure.unit}"


def _points(measure: Measure) -> str:
    """The unit of a difference: shares differ by percentage points."""
    if measure.unit == "%":
        return " points"
    return _after_number(measure)


@dataclass(frozen=True)
class Level(Quantity):
    """The measure itself."""

    series: str
    x: float

    def parts(self, grid: Grid) -> Iterator[BySeed]:
        return zip(grid.values(self.measure, self.series, self.x))

    def of_parts(self, row: Values) -> float:
        return row[0]

    @property
    def subject(self) -> str:
        return f"{self.measure} of {self.series}"

    @property
    def place(self) -> str:
        return f"{self.x:g}"


@dataclass(frozen=True)
class _Pair(Quantity):
    """Two series at the same x."""

    series: str
    other: str
    x: float

    def parts(self, grid: Grid) -> Iterator[BySeed]:
        return zip(
            grid.values(self.measure, self.series, self.x),
            grid.values(self.measure, self.other, self.x),
            strict=True,
        )

    @property
    def place(self) -> str:
        return f"{self.x:g}"


@dataclass(frozen=True)
class Difference(_Pair):
    """The difference of two series at the same x."""

    def of_parts(self, row: Values) -> float:
        return row[0] - row[1]

    @property
    def unit(self) -> str:
        return _points(self.measure)

    @property
    def subject(self) -> str:
        return f"{self.measure}, {self.series} − {self.other}"


@dataclass(frozen=True)
class Gain(_Pair):
    """The gain of one series over another in percent: 100·(a/b − 1)."""

    # A percentage has the same unit and digits whatever the measure has.

    def of_parts(self, row: Values) -> float:
        return percent_more(row[0], row[1])

    @property
    def unit(self) -> str:
        return " %"

    @property
    def digits(self) -> int:
        return 1

    @property
    def subject(self) -> str:
        return f"{self.measure}, {self.series} over {self.other}"


@dataclass(frozen=True)
class LogRatio(_Pair):
    """The logarithm of the ratio of two series at the same x; 0 where both are
    0.
    """

    # As far from 0 for a factor as for its inverse, so that a band of
    # factors is symmetric.

    def of_parts(self, row: Values) -> float:
        return log_ratio(row[0], row[1])

    @property
    def unit(self) -> str:
        return ""

    @property
    def digits(self) -> int:
        return 3

    @property
    def subject(self) -> str:
        return f"ln of {self.measure}, {self.series} over {self.other}"


@dataclass(frozen=True)
class Change(Quantity):
    """The change of a series from one x to another; ``relative``: in percent of
    the first.
    """

    series: str
    start: float
    end: float
    relative: bool = False

    def parts(self, grid: Grid) -> Iterator[BySeed]:
        return zip(
            grid.values(self.measure, self.series, self.end),
            grid.values(self.measure, self.series, self.start),
            strict=True,
        )

    def of_parts(self, row: Values) -> float:
        if self.relative:
            return percent_more(row[0], row[1])
        return row[0] - row[1]

    @property
    def unit(self) -> str:
        return " %" if self.relative else _points(self.measure)

    @property
    def digits(self) -> int:
        return 1 if self.relative else self.measure.digits

    @property
    def subject(self) -> str:
        return f"change in {self.measure} of {self.series}"

    @property
    def place(self) -> str:
        return f"{self.start:g} → {self.end:g}"


@dataclass(frozen=True)
class Step(Change):
    """The change of a curve between neighbouring places, one way or the other."""

    is_step: ClassVar[bool] = True


@dataclass(frozen=True)
class SlopeChange(Quantity):
    """The change of a series' slope at a place, in percent: -50 where it is half
    as steep behind it.
    """

    series: str
    start: float
    via: float
    end: float

    def parts(self, grid: Grid) -> Iterator[BySeed]:
        return zip(
            grid.values(self.measure, self.series, self.start),
            grid.values(self.measure, self.series, self.via),
            grid.values(self.measure, self.series, self.end),
            strict=True,
        )

    def of_parts(self, row: Values) -> float:
        start, via, end = row
        before = (via - start) / (self.via - self.start)
        behind = (end - via) / (self.end - self.via)
        return percent_more(behind, before)

    @property
    def unit(self) -> str:
        return " %"

    @property
    def digits(self) -> int:
        return 0

    @property
    def subject(self) -> str:
        return f"change of the slope of {self.measure} of {self.series}"

    @property
    def place(self) -> str:
        return f"{self.start:g} → {self.via:g} → {self.end:g}"


@dataclass(frozen=True)
class _TwoGains(Quantity):
    """The difference of two gains of one series over another, in points."""

    series: str
    other: str

    @property
    @abstractmethod
    def gains(self) -> tuple[Gain, Gain]:
        """The gain, and the one that is subtracted."""

    def parts(self, grid: Grid) -> Iterator[BySeed]:
        # Each gain is finite, or its seed is not-a-number.
        return _seed_by_seed(self.gains, grid)

    def of_parts(self, row: Values) -> float:
        return row[0] - row[1]

    @property
    def unit(self) -> str:
        return " points"

    @property
    def digits(self) -> int:
        return 1


@dataclass(frozen=True)
class GainGrowth(_TwoGains):
    """The growth of one series' gain over another from one x to another."""

    start: float
    end: float

    @property
    def gains(self) -> tuple[Gain, Gain]:
        after = Gain(self.measure, self.series, self.other, self.end)
        before = Gain(self.measure, self.series, self.other, self.start)
        return after, before

    @property
    def subject(self) -> str:
        return f"growth of the gain in {self.measure}, {self.series} over {self.other}"

    @property
    def place(self) -> str:
        return f"{self.start:g} → {self.end:g}"


@dataclass(frozen=True)
class GainStep(GainGrowth):
    """The growth of a gain between neighbouring places."""

    is_step: ClassVar[bool] = True


@dataclass(frozen=True)
class _Curve(Quantity):
    """A series along ``xs``."""

    series: str
    xs: tuple[float, ...]

    def parts(self, grid: Grid) -> Iterator[BySeed]:
        by_place = []
        for x in self.xs:
            by_place.append(grid.values(self.measure, self.series, x))
        # Seed by seed, all places of the curve.
        return zip(*by_place, strict=True)

    @property
    def unit(self) -> str:
        return _points(self.measure)

    @property
    def place(self) -> str:
        return f"{self.xs[0]:g} … {self.xs[-1]:g}"


@dataclass(frozen=True)
class Spread(_Curve):
    """The largest less the smallest value that a series has anywhere on ``xs``."""

    def of_parts(self, row: Values) -> float:
        return max(row) - min(row)

    @property
    def subject(self) -> str:
        return f"spread of {self.measure} of {self.series}"


@dataclass(frozen=True)
class LeastStep(_Curve):
    """The smallest change between neighbours on ``xs``: below 0 where a series
    ever falls. With ``sign`` -1 the smallest fall: below 0 where it ever rises.
    """

    is_step: ClassVar[bool] = True
    sign: float = 1.0

    def of_parts(self, row: Values) -> float:
        return min(self.sign * (b - a) for a, b in pairwise(row))

    @property
    def subject(self) -> str:
        way = "rise" if self.sign > 0 else "fall"
        return f"least {way} in {self.measure} of {self.series} between neighbours"


@dataclass(frozen=True)
class ShareOf(Quantity):
    """The share of scenarios in which a quantity exceeds ``threshold``, in
    percent.
    """

    scenarios: tuple[Quantity, ...]
    threshold: float

    def parts(self, grid: Grid) -> Iterator[BySeed]:
        return _seed_by_seed(self.scenarios, grid)

    def of_parts(self, row: Values) -> float:
        above = sum(value > self.threshold for value in row)
        return 100.0 * above / len(row)

    @property
    def unit(self) -> str:
        return " %"

    @property
    def digits(self) -> int:
        return 0

    @property
    def subject(self) -> str:
        first = self.scenarios[0]
        limit = f"{self.threshold:g}{first.unit}"
        return f"scenarios in which {first.subject} is above {limit}"

    @property
    def place(self) -> str:
        return f"{self.scenarios[0].place} … {self.scenarios[-1].place}"


@dataclass(frozen=True)
class BetweenMeasures(Quantity):
    """The difference of two measures of the same series at the same x."""

    other: Measure
    series: str
    x: float

    def parts(self, grid: Grid) -> Iterator[BySeed]:
        return zip(
            grid.values(self.measure, self.series, self.x),
            grid.values(self.other, self.series, self.x),
            strict=True,
        )

    def of_parts(self, row: Values) -> float:
        return row[0] - row[1]

    @property
    def unit(self) -> str:
        return _points(self.measure)

    @property
    def subject(self) -> str:
        return f"{self.measure} − {self.other}"

    @property
    def place(self) -> str:
        return f"{self.x:g}"


@dataclass(frozen=True)
class BetweenGains(_TwoGains):
    """The gain of one series over another in a measure, less their gain in
    another measure, ``minus``.
    """

    minus: Measure
    x: float

    @property
    def gains(self) -> tuple[Gain, Gain]:
        gain = Gain(self.measure, self.series, self.other, self.x)
        subtracted = Gain(self.minus, self.series, self.other, self.x)
        return gain, subtracted

    @property
    def subject(self) -> str:
        return f"gain in {self.measure} less that in {self.minus}, {self.series} over {self.other}"

    @property
    def place(self) -> str:
        return f"{self.x:g}"


@dataclass(frozen=True)
class Largest(Quantity):
    """The largest of several quantities, seed by seed."""

    of: tuple[Quantity, ...]

    def parts(self, grid: Grid) -> Iterator[BySeed]:
        return _seed_by_seed(self.of, grid)

    def of_parts(self, row: Values) -> float:
        return max(row)

    @property
    def unit(self) -> str:
        return self.of[0].unit

    @property
    def digits(self) -> int:
        return self.of[0].digits

    @property
    def subject(self) -> str:
        return f"the largest {self.of[0].subject}"

    @property
    def place(self) -> str:
        return f"{self.of[0].place} … {self.of[-1].place}"


def _seed_by_seed(
    quantities: Iterable[Quantity], grid: Grid
) -> Iterator[BySeed]:
    """The values of several quantities, those of one seed together."""
    by_quantity = [quantity.values(grid) for quantity in quantities]
    return zip(*by_quantity, strict=True)


def percent_more(a: float, b: float) -> float:
    """100·(a/b − 1); infinite where b alone is 0, and 0 where both are."""
    if a == b == 0:
        return 0.0
    if b == 0:
        return math.copysign(math.inf, a)
    return 100.0 * (a / b - 1.0)


def log_ratio(a: float, b: float) -> float:
    """ln(a/b); infinite where one of both is 0 or less, and 0 where they are
    equal.
    """
    if a == b:
        return 0.0
    if a <= 0 or b <= 0:
        return math.copysign(math.inf, a - b)
    return math.log(a / b)
