"""The picture of a sweep: a panel a metric, the first key of numbers or
quantities along x, a line a combination; without such a key, names along x.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from testbed.report.metric_words import (
    MetricScale,
    MetricWords,
    metric_words,
)
from testbed.report.plot_files import COLOURS, file_figure, files
from testbed.report.plot_style import DASHES, MARKERS
from testbed.sweeps.sweep_conclusion import label_of, seeds_of
from testbed.units import number_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from testbed.spec.sweep_section import Axis
    from testbed.sweeps.intervals import Estimate
    from testbed.sweeps.sweep_plan import SweepPlan
    from testbed.sweeps.sweep_tables import TableRow

MOST_LINES = 14
MOST_NAMES = 40
LONGEST = 28
MARGIN = 0.03
"""Room beside the ends of an axis, as a share of it: points on them show whole."""
APART = 0.008
"""Distance of two lines' bars at one value, as a share of the axis, so that all
show.
"""


@dataclass(frozen=True)
class Line:
    """One combination of the keys that are not along x; ``looks`` number its
    colour and dashes.
    """

    label: str
    looks: tuple[int, int]
    xs: tuple[float, ...]
    estimates: tuple[tuple[Estimate, ...], ...]


def sweep_pictures(
    plan: SweepPlan,
    table: Sequence[TableRow],
) -> dict[str, bytes]:
    """The picture as ``svg`` and ``png``, the same bytes for the same table;
    none where no cell has a result.
    """
    estimates = chain.from_iterable(row.estimates for row in table)
    if not any(estimate.n for estimate in estimates):
        return {}
    with _empty(plan) as made:
        draw(made, plan, table)
        return files(made)


def sweep_figure(plan: SweepPlan, table: Sequence[TableRow]) -> Figure:
    """The picture as a figure, for a notebook."""
    with _empty(plan) as made:
        draw(made, plan, table)
    return made


def _empty(plan: SweepPlan) -> AbstractContextManager[Figure]:
    columns, rows = _grid(plan)
    return file_figure(max(6.5, 4.8 * columns), 3.1 * rows + 0.8)


def _grid(plan: SweepPlan) -> tuple[int, int]:
    columns = min(2, len(plan.metrics))
    return columns, -(-len(plan.metrics) // columns)


def draw(made: Figure, plan: SweepPlan, table: Sequence[TableRow]) -> None:
    """Draws a sweep's panels into an empty figure."""
    x = across(plan, table)
    lines = _lines(plan, table, x)
    columns, rows = _grid(plan)
    for panel in panels(plan, table):
        axes = made.add_subplot(rows, columns, panel.metric + 1)
        _panel(axes, lines[:MOST_LINES], x, panel)
        axes.set_title(panel.title)
    title = _title(plan, table, len(lines))
    # All panels have the same lines.
    handles, labels = made.axes[0].get_legend_handles_labels()
    made.legend(
        handles,
        labels,
        loc="outside upper left",
        ncols=min(4, max(1, len(labels))),
        # A title of the figure would lie on the legend.
        title=title,
        title_fontsize=11,
        alignment="left",
    )


def _title(plan: SweepPlan, table: Sequence[TableRow], n_lines: int) -> str:
    seeds = seeds_of(row.cells for row in table)
    title = (
        f"{plan.name}: means over {seeds}, bars: 95 % confidence interval"
    )
    left = n_lines - MOST_LINES
    if left > 0:
        title += f"; {number_of(left, 'more line')} in table.csv"
    return title


@dataclass(frozen=True)
class Panel:
    """A metric's y axis: its place among the metrics, its unit, what is possible
    at most, in the metric's own unit.
    """

    metric: int
    words: MetricWords
    scale: MetricScale

    @property
    def title(self) -> str:
        return self.scale.titled(self.words.heading)

    @property
    def least(self) -> float:
        return -math.inf if self.words.can_be_negative else 0.0

    @property
    def most(self) -> float:
        return 1.0 if self.words.kind == "share" else math.inf

    def ends(self, around: Estimate) -> tuple[float, float]:
        """The ends of an interval, cut at what is possible."""
        return around.within(self.least, self.most)

    def cuts(self, around: Estimate) -> bool:
        """True where a part of the interval is impossible."""
        half_width = around.half_width or 0.0
        whole = (around.mean - half_width, around.mean + half_width)
        return bool(around.n) and self.ends(around) != whole


def panels(plan: SweepPlan, table: Sequence[TableRow]) -> Iterator[Panel]:
    """The metrics' axes, each in the unit that fits its largest mean."""
    for index, metric in enumerate(plan.metrics):
        largest = 0.0
        for row in table:
            around = row.estimates[index]
            if around.n and math.isfinite(around.mean):
                largest = max(largest, around.mean)
        words = metric_words(metric)
        yield Panel(index, words, words.scale(largest))


def has_cut_intervals(plan: SweepPlan, table: Sequence[TableRow]) -> bool:
    """True where intervals are drawn shorter than the table has them."""
    for panel in panels(plan, table):
        if any(panel.cuts(row.estimates[panel.metric]) for row in table):
            return True
    return False


@dataclass(frozen=True)
class Across:
    """The x axis: its title, the places of keys along it, and what a row's x is.

    ``names``: of the places 0, 1, …; empty on an axis of numbers.
    """

    title: str
    keys: tuple[int, ...]
    x_of: Callable[[TableRow], float]
    names: tuple[str, ...] = ()


def across(plan: SweepPlan, table: Sequence[TableRow]) -> Across:
    """The first key of numbers or quantities; else the names of all keys but
    the policy, or of policies where nothing else varies.
    """
    for place, swept in enumerate(plan.combined):
        axis = swept.axis
        if axis is not None:
            return Across(axis.title, (place,), partial(_x, axis, place))
    # Policies are told apart by colour: they stand along x only where
    # nothing else varies.
    columns = plan.combined_columns
    keys = tuple(at for at, name in enumerate(columns) if name != "policy")
    keys = keys or tuple(range(len(columns)))
    numbers: dict[str, int] = {}
    for row in table:
        numbers.setdefault(_name(_of(row, keys)), len(numbers))
    return Across(
        ", ".join(columns[at] for at in keys),
        keys,
        lambda row: numbers[_name(_of(row, keys))],
        tuple(numbers),
    )


def _x(axis: Axis, place: int, row: TableRow) -> float:
    return axis.places[row.values[place]]


def _of(row: TableRow, keys: Sequence[int]) -> tuple[Any, ...]:
    return tuple(row.values[at] for at in keys)


def _lines(
    plan: SweepPlan, table: Sequence[TableRow], x: Across
) -> list[Line]:
    """Points by the values of the keys that are not along x: a colour a policy,
    or a value of the first of them.
    """
    columns = plan.combined_columns
    rest = [at for at in range(len(columns)) if at not in x.keys]
    by_colour = [at for at in rest if columns[at] == "policy"] or rest[:1]
    by_dashes = [at for at in rest if at not in by_colour]
    names = [columns[at] for at in rest]
    colours: dict[Any, int] = {}
    dashes: dict[Any, int] = {}
    lines = []
    for values, rows in _grouped(table, rest).items():
        # Numbers in the order in which their values first occur.
        colour = colours.setdefault(_of(rows[0], by_colour), len(colours))
        dash = dashes.setdefault(_of(rows[0], by_dashes), len(dashes))
        line = Line(
            label=label_of(names, values),
            looks=(colour, dash),
            xs=tuple(map(x.x_of, rows)),
            estimates=tuple(row.estimates for row in rows),
        )
        lines.append(line)
    return lines


def _grouped(
    table: Sequence[TableRow], keys: Sequence[int]
) -> dict[tuple[Any, ...], list[TableRow]]:
    """Rows by the values of some keys."""
    grouped: dict[tuple[Any, ...], list[TableRow]] = {}
    for row in table:
        grouped.setdefault(_of(row, keys), []).append(row)
    return grouped


def _name(values: Sequence[Any]) -> str:
    text = ", ".join(map(str, values)) or "all"
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 1]}…"


@dataclass
class _Bars:
    """Means and their intervals, in the unit of the axis."""

    places: list[float] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    below: list[float] = field(default_factory=list)
    above: list[float] = field(default_factory=list)


def _bars(line: Line, panel: Panel) -> _Bars:
    bars = _Bars()
    size = panel.scale.size
    for place, estimates in zip(line.xs, line.estimates, strict=True):
        around = estimates[panel.metric]
        # Where all cells failed there is no mean.
        if around.n:
            low, high = panel.ends(around)
            bars.places.append(place)
            bars.means.append(around.mean / size)
            bars.below.append((around.mean - low) / size)
            bars.above.append((high - around.mean) / size)
    return bars


def _draw_line(
    axes: Axes, line: Line, x: Across, panel: Panel, aside: float
) -> None:
    """Draws the means and their intervals of one combination."""
    bars = _bars(line, panel)
    # A line between names would tell of values between them.
    shown = slice(MOST_NAMES if x.names else None)
    colour, dashes = line.looks
    axes.errorbar(
        [place + aside for place in bars.places[shown]],
        bars.means[shown],
        yerr=[bars.below[shown], bars.above[shown]],
        label=line.label,
        color=COLOURS[colour % len(COLOURS)],
        marker=MARKERS[colour % len(MARKERS)],
        linestyle="none" if x.names else DASHES[dashes % len(DASHES)],
        markersize=5,
        linewidth=1.4,
        capsize=3,
    )


def _has_values(lines: Sequence[Line], metric: int) -> bool:
    for line in lines:
        for estimates in line.estimates:
            if estimates[metric].n:
                return True
    return False


def _panel(
    axes: Axes, lines: Sequence[Line], x: Across, panel: Panel
) -> None:
    every = list(chain.from_iterable(line.xs for line in lines))
    apart = APART * (max(every) - min(every)) if every else 0.0
    for number, line in enumerate(lines):
        # Lines side by side around the place, so that bars do not hide bars.
        aside = (number - (len(lines) - 1) / 2) * apart
        _draw_line(axes, line, x, panel, aside)
    axes.set_xlabel(x.title)
    if _has_values(lines, panel.metric):
        _set_ends(axes, panel)
    else:
        # Its scale would be of nothing.
        axes.set_yticks([])
        axes.text(
            0.5, 0.5, "no values", transform=axes.transAxes, ha="center"
        )
    if x.names:
        names = x.names[:MOST_NAMES]
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right")


def _set_ends(axes: Axes, panel: Panel) -> None:
    """Shares from 0 to 100 %; times and counts from 0."""
    if panel.words.kind == "share":
        most = max(100.0, axes.dataLim.y1)
    elif panel.words.kind == "number":
        return
    else:
        most = axes.get_ylim()[1]
    axes.set_ylim(-MARGIN * most, (1 + MARGIN) * most)
