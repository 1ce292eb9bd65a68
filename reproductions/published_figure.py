"""A published figure as data: what is swept, for whom, what is measured, what is claimed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from reproductions.cell import Cell, Measures
from reproductions.claims import Claim, JudgedClaim
from reproductions.quantities import Grid, Measure
from reproductions.statistics import Estimate, estimate

Point = tuple[str, float]
"""A series and an x."""


@dataclass(frozen=True)
class Panel:
    """One of a figure's plots: a measure, and the values that the paper's text gives for it.

    ``drawn``: the series in the picture, by default all, and ``subject`` what these have in
    common. ``limits``: the ends of the y axis.
    """

    measure: Measure
    published: Mapping[Point, float] = field(default_factory=dict)
    drawn: tuple[str, ...] = ()
    limits: tuple[float, float] | None = None
    subject: str = ""


@dataclass(frozen=True)
class Look:
    """How a series is drawn: number of its colour and mark, and of its line; name in legends."""

    colour: int
    line: int
    label: str


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """What a published figure shows and what its paper says of it, however its points come about.

    Series go by their labels. ``exact``: nothing random is in it, so that one seed says all.
    ``size`` and ``quick_size`` say in words what is run. ``also``: measures that are written down
    and not drawn; ``printed``: those whose values the command shows beside the claims. ``seeds``:
    how many runs are meant where nobody says (in full size). ``looks``: how series are drawn, by
    default each in a colour of its own.
    """

    name: str
    title: str
    source: str
    x_label: str
    xs: tuple[float, ...]
    series: tuple[str, ...]
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...]
    also: tuple[Measure, ...] = ()
    printed: tuple[Measure, ...] = ()
    size: str = ""
    quick_size: str = ""
    exact: bool = False
    seeds: int = 3
    looks: Mapping[str, Look] = field(default_factory=dict)

    @property
    def tables(self) -> tuple[Panel, ...]:
        """Everything that is written down, each measure once: what is drawn, then what is not."""
        shown: dict[str, Panel] = {}
        for panel in (*self.panels, *(Panel(measure) for measure in self.also)):
            shown.setdefault(panel.measure.name, panel)
        return tuple(shown.values())

    @property
    def points(self) -> tuple[Point, ...]:
        return tuple((series, x) for x in self.xs for series in self.series)


@dataclass(frozen=True, kw_only=True)
class Figure(Exhibit):
    """A simulated one. ``cell(series, x, seed, quick)`` is the run behind one point."""

    cell: Callable[[str, float, int, bool], Cell]

    def cells(self, seeds: int, *, quick: bool) -> dict[Point, tuple[Cell, ...]]:
        """The cells behind every point, one for each of the seeds 1 … ``seeds``."""
        used = range(1, (1 if self.exact else seeds) + 1)
        return {
            (series, x): tuple(self.cell(series, x, seed, quick) for seed in used)
            for series, x in self.points
        }


@dataclass(frozen=True)
class Reproduced:
    """A figure with everything its cells came to."""

    figure: Exhibit
    seeds: int
    quick: bool
    grid: Grid

    @classmethod
    def of(
        cls, figure: Figure, seeds: int, results: Mapping[Cell, Measures], *, quick: bool
    ) -> Reproduced:
        cells = figure.cells(seeds, quick=quick)
        runs = {point: tuple(results[cell] for cell in own) for point, own in cells.items()}
        n = 1 if figure.exact else seeds
        return cls(figure, n, quick, Grid(runs, figure.exact))

    def estimate(self, measure: Measure, series: str, x: float) -> Estimate:
        return estimate(self.grid.values(measure, series, x))

    @property
    def judged(self) -> tuple[JudgedClaim, ...]:
        return tuple(claim.judge(self.grid) for claim in self.figure.claims)

    @property
    def cpu_s(self) -> float:
        """Processor time of all its cells, where they measure it as ``cpu_s``."""
        return sum(run.get("cpu_s", 0.0) for own in self.grid.runs.values() for run in own)
