"""Plots of reproduced figures: means with their intervals, published values
beside them.

In a live figure solid lines were measured and broken ones simulated.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from reproductions.live_figure import (
    SIMULATED,
    Curves,
    LiveFigure,
    Outcome,
    simulated,
)
from reproductions.published_figure import (
    Panel,
    Point,
    Reproduced,
    SeriesStyle,
)
from testbed.report.plot_files import COLOURS, NEUTRAL, file_figure, files
from testbed.report.plot_style import MARKERS, PAPER, TEXT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

LINES = ("-", "--", ":")
BACKENDS = ("live", "simulated")
Line = Literal["-", "--"]
BACKEND_LINES: tuple[Line, Line] = ("-", "--")
BAR = 0.4
LETTER_SHARE = 0.022
"""The share of a plot's width that a letter of a tick's label takes."""
PUBLISHED = "published (large, hollow)"

LETTERS_PER_INCH = 12
X_LABEL_LETTERS = 55
"""The longest line below a plot."""


def pictures(done: Reproduced) -> dict[str, bytes]:
    """``svg`` and ``png`` of all panels side by side, two in a row."""
    panels = done.figure.panels
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with file_figure(max(8.0, 5.0 * columns), 3.2 * rows + 1.1) as made:
        for index, panel in enumerate(panels, 1):
            axes = made.add_subplot(rows, columns, index)
            if len(done.figure.xs) == 1:
                _by_series(axes, done, panel)
                # A row of panels has the names of its series once.
                is_first_in_row = (index - 1) % columns == 0
                axes.tick_params(labelleft=is_first_in_row)
            else:
                _plot(axes, done, panel)
        _title(made, done)
        return files(made)


def _plot(axes: Axes, done: Reproduced, panel: Panel) -> None:
    figure = done.figure
    for index, series in enumerate(panel.shown or figure.series):
        style = figure.styles.get(series, SeriesStyle(index, 0, series))
        colour, marker = (
            COLOURS[style.colour % len(COLOURS)],
            MARKERS[style.colour % len(MARKERS)],
        )
        found = [done.estimate(panel.measure, series, x) for x in figure.xs]
        axes.errorbar(
            figure.xs,
            [one.mean for one in found],
            yerr=[one.half_width or 0.0 for one in found],
            label=style.label,
            color=colour,
            marker=marker,
            linestyle=LINES[style.line % len(LINES)],
            markersize=5,
            linewidth=1.4,
            capsize=3,
        )
        values = [
            (x, y)
            for (name, x), y in panel.published.items()
            if name == series
        ]
        _plot_published(axes, values, colour, marker)
    if panel.limits is not None:
        axes.set_ylim(panel.limits)
    elif not _below_zero(done, panel):
        # From zero, with room above: values near each other would stand on the
        # axes' edge.
        axes.set_ylim(0.0, 1.04 * axes.get_ylim()[1])
    axes.set_title(_heading(panel))
    if len(figure.xs) <= 12:
        axes.set_xticks(figure.xs, _tick_labels(figure.xs))
    axes.set_xlabel(textwrap.fill(figure.x_label, X_LABEL_LETTERS))


def _by_series(axes: Axes, done: Reproduced, panel: Panel) -> None:
    """Plots a measure of every series, one below the other, where there is one x
    alone.
    """
    figure = done.figure
    x = figure.xs[0]
    shown = panel.shown or figure.series
    for row, series in enumerate(shown):
        estimate = done.estimate(panel.measure, series, x)
        axes.errorbar(
            [estimate.mean],
            [row],
            xerr=[estimate.half_width or 0.0],
            color=COLOURS[0],
            marker=MARKERS[0],
            markersize=5,
            linewidth=1.4,
            capsize=3,
        )
        published = panel.published.get((series, x))
        if published is not None:
            _plot_published(
                axes, [(published, row)], COLOURS[0], MARKERS[0]
            )
    axes.set_yticks(range(len(shown)), shown)
    axes.invert_yaxis()
    if not _below_zero(done, panel):
        axes.set_xlim(left=0.0)
    axes.set_title(_heading(panel))
    axes.set_xlabel(f"at {x:g} {figure.x_label}")


def _tick_labels(xs: Sequence[float]) -> list[str]:
    """Labels of values; empty where one would touch the label before it."""
    span = max(xs) - min(xs)
    labels = []
    last_x = math.inf
    last_half_width = 0.0
    for x in xs:
        label = f"{x:g}"
        half_width = LETTER_SHARE * len(label) / 2
        if abs(x - last_x) >= (last_half_width + half_width) * span:
            labels.append(label)
            last_x = x
            last_half_width = half_width
        else:
            labels.append("")
    return labels


def _plot_published(
    axes: Axes,
    values: Sequence[tuple[float, float]],
    colour: str,
    marker: str,
) -> None:
    """Plots a paper's values for a series, large and hollow."""
    if values:
        axes.plot(
            [x for x, _ in values],
            [y for _, y in values],
            linestyle="none",
            marker=marker,
            markersize=10,
            markerfacecolor="none",
            markeredgecolor=colour,
            markeredgewidth=1.5,
            clip_on=False,
        )


def _published_handle() -> Line2D:
    """The legend's handle for a paper's values."""
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="none", marker="o", markersize=10, markerfacecolor="none",
                  markeredgecolor=NEUTRAL, markeredgewidth=1.5, label=PUBLISHED)  # fmt: skip


def _heading(panel: Panel) -> str:
    """A panel's title: its subject, the measure, its unit."""
    measure = panel.measure
    about = (
        f"{panel.subject}: {measure.label}"
        if panel.subject
        else measure.label
    )
    return f"{about} [{measure.unit}]" if measure.unit else about


def _below_zero(done: Reproduced, panel: Panel) -> bool:
    return any(
        done.estimate(panel.measure, s, x).mean < 0
        for s, x in done.figure.points
        if s in (panel.shown or done.figure.series)
    )


def _title(made: Figure, done: Reproduced) -> None:
    """Title and one legend for all panels."""
    figure = done.figure
    shown: dict[str, Any] = {}
    for axes in made.axes:
        for handle, label in zip(
            *axes.get_legend_handles_labels(), strict=True
        ):
            shown.setdefault(label, handle)
    labels, handles = list(shown), list(shown.values())
    if any(panel.published for panel in figure.panels):
        handles.append(_published_handle())
        labels.append(PUBLISHED)
    longest = max(map(len, labels), default=0)
    columns = int(made.get_figwidth() * LETTERS_PER_INCH / (longest + 8))
    made.legend(
        handles, labels, loc="outside lower center", ncols=max(1, columns)
    )
    size = ", quick size" if done.quick else ""
    many = (
        ""
        if figure.exact
        else f"; mean of {done.seeds} seeds, 95 % intervals"
    )
    if done.seeds == 1:
        many = "" if figure.exact else "; one seed"
    title = f"{figure.source}{size}: {figure.title}{many}"
    made.suptitle(textwrap.fill(title, 100), x=0.01, ha="left", fontsize=11)


# -- live figures --------------------------------------------------------------


def live_pictures(
    done: Reproduced,
    figure: LiveFigure,
    outcomes: Mapping[Point, tuple[Outcome, ...]],
) -> dict[str, bytes]:
    """``svg`` and ``png``: curves, then measures, two panels in a row."""
    panels = [
        p for p in figure.panels if not p.measure.name.endswith(SIMULATED)
    ]
    n = len(figure.curves) + len(panels)
    columns = min(2, n)
    rows = -(-n // columns)
    with file_figure(max(8.0, 5.0 * columns), 3.2 * rows + 1.1) as made:
        for index, curves in enumerate(figure.curves, 1):
            _step_curves(
                made.add_subplot(rows, columns, index),
                figure,
                curves,
                outcomes,
            )
        for index, panel in enumerate(panels, 1 + len(figure.curves)):
            axes = made.add_subplot(rows, columns, index)
            _bars(axes, done, panel) if len(figure.xs) == 1 else _along_x(
                axes, done, panel
            )
            _finish_axes(axes, done, panel)
        _live_title(made, done, figure)
        return files(made)


def _step_curves(
    axes: Axes,
    figure: LiveFigure,
    curves: Curves,
    outcomes: Mapping[Point, tuple[Outcome, ...]],
) -> None:
    for index, series in enumerate(figure.series):
        outcome = outcomes[series, curves.x][0]
        for run, line in zip(
            (outcome.live, outcome.simulated), BACKEND_LINES, strict=True
        ):
            points = curves.curve(run)
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                drawstyle="steps-post",
                color=COLOURS[index % len(COLOURS)],
                linestyle=line,
                linewidth=1.4 if line == "-" else 1.0,
            )
    first = outcomes[figure.series[0], curves.x]
    title = curves.title
    if len(first) > 1:
        # Panels beside it show means.
        title += f", seed {first[0].live.summary.seed}"
    axes.set_title(title)
    axes.set_xlabel(curves.x_label)
    axes.set_ylim(bottom=0.0)
    if curves.limits is not None:
        axes.set_xlim(curves.limits)


def _along_x(axes: Axes, done: Reproduced, panel: Panel) -> None:
    """Plots a measure along x."""
    figure = done.figure
    for index, series in enumerate(panel.shown or figure.series):
        colour, marker = (
            COLOURS[index % len(COLOURS)],
            MARKERS[index % len(MARKERS)],
        )
        for measure, line in zip(
            (panel.measure, simulated(panel.measure)),
            BACKEND_LINES,
            strict=True,
        ):
            found = [done.estimate(measure, series, x) for x in figure.xs]
            axes.errorbar(
                figure.xs,
                [one.mean for one in found],
                yerr=[one.half_width or 0.0 for one in found],
                color=colour,
                linestyle=line,
                marker=marker,
                markersize=5,
                markerfacecolor=colour if line == "-" else PAPER,
                linewidth=1.4,
                capsize=3,
            )
        values = [
            (x, y)
            for (name, x), y in panel.published.items()
            if name == series
        ]
        _plot_published(axes, values, colour, marker)
    axes.set_xticks(figure.xs, _tick_labels(figure.xs))
    axes.set_xlabel(textwrap.fill(figure.x_label, X_LABEL_LETTERS))


def _bars(axes: Axes, done: Reproduced, panel: Panel) -> None:
    """Plots a measure of every series where there is one x alone."""
    figure = done.figure
    x = figure.xs[0]
    shown = panel.shown or figure.series
    for index, series in enumerate(shown):
        colour, marker = (
            COLOURS[index % len(COLOURS)],
            MARKERS[index % len(MARKERS)],
        )
        pair = (panel.measure, simulated(panel.measure))
        for side, measure in zip((-BAR / 2, BAR / 2), pair, strict=True):
            found = done.estimate(measure, series, x)
            axes.bar(
                index + side,
                found.mean,
                BAR * 0.95,
                yerr=found.half_width,
                color=colour if side < 0 else PAPER,
                edgecolor=colour,
                linestyle="-" if side < 0 else "--",
                linewidth=1.4,
                ecolor=TEXT,
                capsize=3,
            )
        values = panel.published.get((series, x))
        _plot_published(
            axes,
            [] if values is None else [(index - BAR / 2, values)],
            colour,
            marker,
        )
    axes.set_xticks(range(len(shown)), shown)


def _finish_axes(axes: Axes, done: Reproduced, panel: Panel) -> None:
    axes.set_title(_heading(panel))
    if panel.limits is not None:
        axes.set_ylim(panel.limits)
    elif not _below_zero(done, panel):
        axes.set_ylim(bottom=0.0)


def _live_title(made: Figure, done: Reproduced, figure: LiveFigure) -> None:
    """Sets title and one legend: series by colour, backends by line."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=COLOURS[index % len(COLOURS)], label=series)
        for index, series in enumerate(figure.series)
    ]
    handles += [
        Line2D(
            [],
            [],
            color=NEUTRAL,
            linestyle=BACKEND_LINES[index],
            label=backend,
        )
        for index, backend in enumerate(BACKENDS)
    ]
    if any(panel.published for panel in figure.panels):
        handles.append(_published_handle())
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = int(made.get_figwidth() * LETTERS_PER_INCH / (longest + 8))
    made.legend(
        handles=handles, loc="outside lower center", ncols=max(1, columns)
    )
    size = ", quick size" if done.quick else ""
    many = (
        f"; mean of {done.seeds} seeds, 95 % intervals"
        if done.seeds > 1
        else ""
    )
    title = f"{figure.source}{size}: {figure.title}, live{many}"
    made.suptitle(textwrap.fill(title, 100), x=0.01, ha="left", fontsize=11)
