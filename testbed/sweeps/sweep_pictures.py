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
NAMES_WIDTH = 0.8
"""Room for all lines' bars at one name; names are 1 apart."""


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
    with _empty(plan) as picture:
        draw(picture, plan, table)
        return files(picture)


def sweep_figure(plan: SweepPlan, table: Sequence[TableRow]) -> Figure:
    """The picture as a figure, for a notebook."""
    with _empty(plan) as picture:
        draw(picture, plan, table)
    return picture


def _empty(plan: SweepPlan) -> AbstractContextManager[Figure]:
    columns, rows = _grid(plan)
    return file_figure(max(6.5, 4.8 * columns), 3.1 * rows + 0.8)


def _grid(plan: SweepPlan) -> tuple[int, int]:
    columns = min(2, len(plan.metrics))
    return columns, -(-len(plan.metrics) // columns)


def draw(
    picture: Figure, plan: SweepPlan, table: Sequence[TableRow]
) -> None:
    """Draws a sweep's panels into an empty figure."""
    x = across(plan, table)
    lines = _lines(plan, table, x)
    columns, rows = _grid(plan)
    for panel in panels(plan, table):
        axes = picture.add_subplot(rows, columns, panel.metric_index + 1)
        _draw_panel(axes, lines[:MOST_LINES], x, panel)
        axes.set_title(panel.title)
    title = _title(plan, table, len(lines), len(x.names))
    # All panels have the same lines.
    handles, labels = picture.axes[0].get_legend_handles_labels()
    picture.legend(
        handles,
        labels,
        loc="outside upper left",
        ncols=min(4, max(1, len(labels))),
        # A title of the figure would lie on the legend.
        title=title,
        title_fontsize=11,
        alignment="left",
    )


def _title(
    plan: SweepPlan, table: Sequence[TableRow], n_lines: int, n_names: int
) -> str:
    seeds = seeds_of(row.cells for row in table)
    title = (
        f"{plan.name}: means over {seeds}, bars: 95 % confidence interval"
    )
    lines_left = n_lines - MOST_LINES
    if lines_left > 0:
        title += f"; {number_of(lines_left, 'more line')} in table.csv"
    names_left = n_names - MOST_NAMES
    if names_left > 0:
        title += f"; {number_of(names_left, 'more name')} in table.csv"
    return title


@dataclass(frozen=True)
class Panel:
    """A metric's y axis.

    ``metric_index``: its place among the metrics.
    """

    metric_index: int
    words: MetricWords
    scale: MetricScale

    @property
    def title(self) -> str:
        return self.scale.titled(self.words.heading)

    def ends(self, estimate: Estimate) -> tuple[float, float]:
        """The ends of an interval, cut at what is possible."""
        least = -math.inf if self.words.can_be_negative else 0.0
        most = 1.0 if self.words.kind == "share" else math.inf
        return estimate.within(least, most)

    def cuts(self, estimate: Estimate) -> bool:
        """True where a part of the interval is impossible."""
        half_width = estimate.half_width or 0.0
        whole = (estimate.mean - half_width, estimate.mean + half_width)
        return bool(estimate.n) and self.ends(estimate) != whole


def panels(plan: SweepPlan, table: Sequence[TableRow]) -> Iterator[Panel]:
    """The metrics' axes, each in the unit that fits its largest mean."""
    for index, metric in enumerate(plan.metrics):
        largest = 0.0
        for row in table:
            estimate = row.estimates[index]
            if estimate.n and math.isfinite(estimate.mean):
                largest = max(largest, estimate.mean)
        words = metric_words(metric)
        yield Panel(index, words, words.scale(largest))


def has_cut_intervals(plan: SweepPlan, table: Sequence[TableRow]) -> bool:
    """True where intervals are drawn shorter than the table has them."""
    for panel in panels(plan, table):
        index = panel.metric_index
        if any(panel.cuts(row.estimates[index]) for row in table):
            return True
    return False


@dataclass(frozen=True)
class Across:
    """The x axis.

    ``keys``: indices of the swept keys along it. ``x_of`` gives a row's x.
    ``names``: labels of x = 0, 1, …; empty on an axis of numbers.
    """

    title: str
    keys: tuple[int, ...]
    x_of: Callable[[TableRow], float]
    names: tuple[str, ...] = ()


def across(plan: SweepPlan, table: Sequence[TableRow]) -> Across:
    """Returns the x axis: the first key of numbers or quantities.

    Without one, it has names: the values of all keys but the policy, or the
    policies where nothing else varies.
    """
    for index, swept in enumerate(plan.combined):
        axis = swept.axis
        if axis is not None:
            return Across(axis.title, (index,), partial(_x, axis, index))
    # Policies differ by colour: they stand along x only where nothing else
    # varies.
    columns = plan.combined_columns
    keys = tuple(
        index for index, name in enumerate(columns) if name != "policy"
    )
    keys = keys or tuple(range(len(columns)))
    return across_names(plan, table, keys)


def across_names(
    plan: SweepPlan, table: Sequence[TableRow], keys: tuple[int, ...]
) -> Across:
    """The x axis with a name for each combination of the ``keys``' values."""
    columns = plan.combined_columns
    # By values, not by names: long names are cut, and may then be the same.
    places: dict[tuple[Any, ...], int] = {}
    for row in table:
        places.setdefault(_values(row, keys), len(places))
    return Across(
        title=", ".join(columns[index] for index in keys),
        keys=keys,
        x_of=lambda row: places[_values(row, keys)],
        names=tuple(map(_name, places)),
    )


def _x(axis: Axis, index: int, row: TableRow) -> float:
    return axis.places[row.values[index]]


def _values(row: TableRow, keys: Sequence[int]) -> tuple[Any, ...]:
    return tuple(row.values[index] for index in keys)


def _lines(
    plan: SweepPlan, table: Sequence[TableRow], x: Across
) -> list[Line]:
    """Returns a line for each combination of the keys that are not along x.

    The policy chooses its colour, or, without one, the first of these keys.
    The others choose its dashes.
    """
    columns = plan.combined_columns
    rest = [index for index in range(len(columns)) if index not in x.keys]
    by_colour = [index for index in rest if columns[index] == "policy"]
    by_colour = by_colour or rest[:1]
    by_dashes = [index for index in rest if index not in by_colour]
    names = [columns[index] for index in rest]
    colours: dict[Any, int] = {}
    dashes: dict[Any, int] = {}
    lines = []
    for values, rows in _grouped(table, rest).items():
        # Numbers in the order in which their values first occur.
        colour = colours.setdefault(
            _values(rows[0], by_colour), len(colours)
        )
        dash = dashes.setdefault(_values(rows[0], by_dashes), len(dashes))
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
        grouped.setdefault(_values(row, keys), []).append(row)
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


def _bars(line: Line, x: Across, panel: Panel) -> _Bars:
    bars = _Bars()
    size = panel.scale.size
    for place, estimates in zip(line.xs, line.estimates, strict=True):
        # Places beyond the last name that is shown are not drawn.
        if x.names and place >= MOST_NAMES:
            continue
        estimate = estimates[panel.metric_index]
        # Where all cells failed there is no mean.
        if estimate.n:
            low, high = panel.ends(estimate)
            bars.places.append(place)
            bars.means.append(estimate.mean / size)
            bars.below.append((estimate.mean - low) / size)
            bars.above.append((high - estimate.mean) / size)
    return bars


def _draw_line(
    axes: Axes, line: Line, x: Across, panel: Panel, *, aside: float
) -> None:
    """Draws the means and their intervals of one combination."""
    bars = _bars(line, x, panel)
    colour, dashes = line.looks
    axes.errorbar(
        [place + aside for place in bars.places],
        bars.means,
        yerr=[bars.below, bars.above],
        label=line.label,
        color=COLOURS[colour % len(COLOURS)],
        marker=MARKERS[colour % len(MARKERS)],
        # Nothing lies between two names: their points are not joined.
        linestyle="none" if x.names else DASHES[dashes % len(DASHES)],
        markersize=5,
        linewidth=1.4,
        capsize=3,
    )


def _has_values(lines: Sequence[Line], metric_index: int) -> bool:
    for line in lines:
        for estimates in line.estimates:
            if estimates[metric_index].n:
                return True
    return False


def _draw_panel(
    axes: Axes, lines: Sequence[Line], x: Across, panel: Panel
) -> None:
    xs = list(chain.from_iterable(line.xs for line in lines))
    apart = 0.0
    if xs:
        # Lines at a single place would hide each other.
        span = (max(xs) - min(xs)) or abs(xs[0]) or 1.0
        apart = APART * span
    if x.names:
        # All lines of a name stay nearer to it than to the next one.
        apart = min(apart, NAMES_WIDTH / max(1, len(lines)))
    for number, line in enumerate(lines):
        # Lines side by side around the place, so that bars do not hide bars.
        aside = (number - (len(lines) - 1) / 2) * apart
        _draw_line(axes, line, x, panel, aside=aside)
    axes.set_xlabel(x.title)
    if _has_values(lines, panel.metric_index):
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
    """Sets the y axis: shares show 0 to 100 %, times and counts begin at 0.

    Any other number keeps the ends that matplotlib chose.
    """
    if panel.words.kind == "share":
        most = max(100.0, axes.dataLim.y1)
    elif panel.words.kind == "number":
        return
    else:
        most = axes.get_ylim()[1]
    axes.set_ylim(-MARGIN * most, (1 + MARGIN) * most)
