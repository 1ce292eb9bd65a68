"""A published figure as data: its sweep, series, measures and claims."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from reproductions.claim_checks import (
    Claim,
    JudgedClaim,
    judge_family,
)
from reproductions.grid_quantities import Grid, Measure, Measures
from testbed.sweeps.intervals import Estimate, estimate

RESULTS = "results.json"
PICTURE = "figure"
"""Files of a reproduced figure's folder, the latter without its suffix."""

Point = tuple[str, float]
"""A series and an x."""


class Configuration(Protocol):
    """One computation behind a point of a figure, for one series and one seed.

    An implementation is a frozen dataclass of plain values, so that it can be
    hashed, pickled and written down. ``run`` is pure but for stopwatches: equal
    configurations give equal results.
    """

    def run(self) -> Measures:
        """Computes the measures, always under the same names."""
        ...

    def cost(self) -> float:
        """An estimate of the computing time, in a unit that a figure's
        configurations share.
        """
        ...

    def to_json(self) -> dict[str, Any]:
        """Everything that the result depends on but the sources."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class Relation:
    """A published relation of a point to another one: the value of the first
    exceeds that of the second by ``amount``, which is in percent of the second
    where it is ``relative``; with ``at_most`` by no more than that.
    """

    point: Point
    to: Point
    amount: float
    relative: bool = False
    at_most: bool = False

    def value(self, base: float) -> float:
        """The published value where the other point has the value ``base``."""
        if self.relative:
            return base * (1.0 + self.amount / 100.0)
        return base + self.amount


@dataclass(frozen=True)
class Limits:
    """Published limits of a measure along several x; there may be no lower
    one.
    """

    xs: tuple[float, ...]
    low: float | None
    high: float


@dataclass(frozen=True)
class Panel:
    """One of a figure's plots: a measure, and the values that the paper's text
    gives for it, as numbers, ``relations`` to others and ``limits_published``.

    ``shown``: the series in the picture, by default all, and ``subject`` what
    these have in common. ``limits``: the ends of the y axis, which is
    ``logarithmic`` where series lie orders of magnitude apart.
    """

    measure: Measure
    published: Mapping[Point, float] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    limits: tuple[float, float] | None = None
    subject: str = ""
    logarithmic: bool = False
    relations: tuple[Relation, ...] = ()
    limits_published: tuple[Limits, ...] = ()


@dataclass(frozen=True)
class SeriesStyle:
    """A series' number of colour and mark, its number of line, and its name in
    legends.
    """

    colour: int
    line: int
    label: str


def digest_of_played(played: Sequence[Any]) -> str:
    """The beginning of the SHA-256 of what a figure's runs play."""
    text = json.dumps(played, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class AnyFigure:
    """A published figure and its paper's claims, however its points come about.

    Series go by their labels. ``claims`` are the ledger's, whose file has the
    digest ``ledger``; ``where``: the section of the paper that they stand in,
    ``needed``: the seeds without which they decide nothing.
    ``exact``: nothing random is in it, so that one seed says all. ``size`` and
    ``quick_size``: what is run, in words. ``also``: measures that are written
    down and not plotted; ``printed``: those whose values the command shows
    beside the claims. ``seeds``: the default number of runs in full size,
    ``first_seed``: the seed of the first; live figures count repetitions, of
    which the first has the seed of its experiment file. ``styles`` of series:
    by default each has a colour of its own.
    """

    name: str
    title: str
    source: str
    x_label: str
    xs: tuple[float, ...]
    series: tuple[str, ...]
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...] = ()
    ledger: str = ""
    where: str = ""
    needed: int = 1
    also: tuple[Measure, ...] = ()
    printed: tuple[Measure, ...] = ()
    size: str = ""
    quick_size: str = ""
    exact: bool = False
    seeds: int = 3
    first_seed: int = 1
    styles: Mapping[str, SeriesStyle] = field(default_factory=dict)

    def played(self, *, quick: bool) -> list[Any]:
        """All that a seed's runs play, as values of JSON."""
        raise NotImplementedError

    def played_digest(self, *, quick: bool = False) -> str:
        """The beginning of the SHA-256 of what is played: results name it, and
        with another one they were taken under another interpretation.
        """
        return digest_of_played(self.played(quick=quick))

    @property
    def section(self) -> str:
        """Its name among the sections of pages and the files of the ledger."""
        return self.name

    @property
    def tables(self) -> tuple[Panel, ...]:
        """Everything that is written down, each measure once: the plotted ones
        first.
        """
        shown: dict[str, Panel] = {}
        for panel in (*self.panels, *map(Panel, self.also)):
            shown.setdefault(panel.measure.name, panel)
        return tuple(shown.values())

    @property
    def points(self) -> tuple[Point, ...]:
        return tuple((series, x) for x in self.xs for series in self.series)


@dataclass(frozen=True, kw_only=True)
class Figure(AnyFigure):
    """A simulated figure. ``configuration(series, x, seed, quick)`` is the run
    behind a point.
    """

    configuration: Callable[[str, float, int, bool], Configuration]

    def played(self, *, quick: bool) -> list[Any]:
        # Of seed 1, whichever is the first: other seeds play the same.
        return [
            [series, x, self.configuration(series, x, 1, quick).to_json()]
            for series, x in self.points
        ]

    def configurations(
        self, seeds: int, *, quick: bool
    ) -> dict[Point, tuple[Configuration, ...]]:
        """The runs behind every point: one for each of so many seeds from
        ``first_seed`` on.
        """
        count = 1 if self.exact else seeds
        used = range(self.first_seed, self.first_seed + count)
        runs = {}
        for series, x in self.points:
            runs[series, x] = tuple(
                self.configuration(series, x, seed, quick) for seed in used
            )
        return runs


@dataclass(frozen=True)
class Reproduced:
    """A figure with the measures of all its runs.

    ``stages``: the numbers of seeds at which it was planned to look whether they
    are enough; empty where the number was fixed.
    """

    figure: AnyFigure
    seeds: int
    quick: bool
    grid: Grid
    stages: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        figure: Figure,
        seeds: int,
        results: Mapping[Configuration, Measures],
        *,
        quick: bool,
        stages: tuple[int, ...] = (),
    ) -> Reproduced:
        """The figure with the results of all its run configurations."""
        points = figure.configurations(seeds, quick=quick)
        runs = {}
        for point, of_point in points.items():
            runs[point] = tuple(map(results.__getitem__, of_point))
        return cls(
            figure=figure,
            seeds=1 if figure.exact else seeds,
            quick=quick,
            grid=Grid(runs, figure.exact),
            stages=stages,
        )

    def estimate(self, measure: Measure, series: str, x: float) -> Estimate:
        return estimate(self.grid.values(measure, series, x))

    @cached_property
    def judged(self) -> tuple[JudgedClaim, ...]:
        """Every claim with its verdict: the paper's as one family, each own
        check by itself.
        """
        papers = []
        needed = []
        for claim in self.figure.claims:
            if claim.status != "own check":
                papers.append(claim)
                needed.append(self._needed(claim))
        # A number of seeds that was fixed is a single stage.
        stages = max(1, len(self.stages))
        family = iter(judge_family(papers, self.grid, needed, stages))
        judged = []
        for claim in self.figure.claims:
            if claim.status == "own check":
                alone = claim.judge(self.grid, self._needed(claim), stages)
                judged.append(alone)
            else:
                judged.append(next(family))
        return tuple(judged)

    @property
    def decided(self) -> bool:
        """True where no claim of the paper is inconclusive."""
        for judged in self.judged:
            is_papers = judged.claim.status != "own check"
            if is_papers and judged.verdict == "inconclusive":
                return False
        return True

    @property
    def reduced(self) -> bool:
        """True where less was run than the figure has: rules with a limit
        other than 0 are not judged then, directions are.
        """
        return self.quick and self.figure.quick_size != self.figure.size

    @property
    def withheld(self) -> int:
        """The number of claims that its size cannot decide."""
        if not self.reduced:
            return 0
        return sum(claim.states_number for claim in self.figure.claims)

    def _needed(self, claim: Claim) -> int:
        """The seeds that a claim needs. Where the size is not the claim's own
        there are never enough.
        """
        # Numbers depend on the size, directions hardly do.
        if self.reduced and claim.states_number:
            return self.seeds + 1
        return self.figure.needed

    @property
    def cpu_s(self) -> float:
        """Processor time of all its runs, where they measure it as ``cpu_s``."""
        total_s = 0.0
        for runs in self.grid.runs.values():
            for run in runs:
                total_s += run.get("cpu_s", 0.0)
        return total_s
