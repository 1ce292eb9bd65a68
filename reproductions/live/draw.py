"""A live figure as a picture: solid lines were measured, broken ones simulated."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from reproductions.draw import (
    COLOURS,
    LETTERS_PER_INCH,
    MARKERS,
    STYLE,
    draw_published,
    heading,
    published_handle,
    saved,
)
from reproductions.figure import Panel, Point, Reproduced
from reproductions.live.figure import Curves, LiveFigure, Outcome
from reproductions.live.measures import SIMULATED, simulated

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WORLDS = ("live", "simulated")
Line = Literal["-", "--"]
LINES: tuple[Line, Line] = ("-", "--")
BAR = 0.4


def pictures(
    done: Reproduced, figure: LiveFigure, outcomes: Mapping[Point, tuple[Outcome, ...]]
) -> dict[str, bytes]:
    """``svg`` and ``png``: curves, then measures, two panels in a row."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [p for p in figure.panels if not p.measure.name.endswith(SIMULATED)]
    n = len(figure.curves) + len(panels)
    columns = min(2, n)
    rows = -(-n // columns)
    with mpl.rc_context(STYLE):
        made = Figure(figsize=(max(8.0, 5.0 * columns), 3.2 * rows + 1.1), layout="constrained")
        FigureCanvasAgg(made)
        for index, curves in enumerate(figure.curves, 1):
            _lines(made.add_subplot(rows, columns, index), figure, curves, outcomes)
        for index, panel in enumerate(panels, 1 + len(figure.curves)):
            axes = made.add_subplot(rows, columns, index)
            _bars(axes, done, panel) if len(figure.xs) == 1 else _points(axes, done, panel)
            _name(axes, panel)
        _explain(made, done, figure)
        return {"svg": saved(made, "svg"), "png": saved(made, "png")}


def _lines(
    axes: Axes,
    figure: LiveFigure,
    curves: Curves,
    outcomes: Mapping[Point, tuple[Outcome, ...]],
) -> None:
    for index, series in enumerate(figure.series):
        outcome = outcomes[series, curves.x][0]
        for run, line in zip((outcome.live, outcome.simulated), LINES, strict=True):
            points = curves.curve(run)
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                drawstyle="steps-post",
                color=COLOURS[index % len(COLOURS)],
                linestyle=line,
                linewidth=1.4 if line == "-" else 1.0,
            )
    axes.set_title(curves.title)
    axes.set_xlabel(curves.x_label)
    axes.set_ylim(bottom=0.0)
    if curves.limits is not None:
        axes.set_xlim(curves.limits)


def _points(axes: Axes, done: Reproduced, panel: Panel) -> None:
    """A measure along x."""
    figure = done.figure
    for index, series in enumerate(panel.drawn or figure.series):
        colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
        for measure, line in zip((panel.measure, simulated(panel.measure)), LINES, strict=True):
            found = [done.estimate(measure, series, x) for x in figure.xs]
            axes.errorbar(
                figure.xs,
                [one.mean for one in found],
                yerr=[one.half_width or 0.0 for one in found],
                color=colour,
                linestyle=line,
                marker=marker,
                markersize=5,
                markerfacecolor=colour if line == "-" else "white",
                linewidth=1.4,
                capsize=3,
            )
        said = [(x, y) for (name, x), y in panel.published.items() if name == series]
        draw_published(axes, said, colour, marker)
    axes.set_xticks(figure.xs, [f"{x:g}" for x in figure.xs])
    axes.set_xlabel(figure.x_label)


def _bars(axes: Axes, done: Reproduced, panel: Panel) -> None:
    """A measure of every series where there is one x alone."""
    figure = done.figure
    x = figure.xs[0]
    shown = panel.drawn or figure.series
    for index, series in enumerate(shown):
        colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
        pair = (panel.measure, simulated(panel.measure))
        for side, measure in zip((-BAR / 2, BAR / 2), pair, strict=True):
            found = done.estimate(measure, series, x)
            axes.bar(
                index + side,
                found.mean,
                BAR * 0.95,
                yerr=found.half_width,
                color=colour if side < 0 else "white",
                edgecolor=colour,
                linestyle="-" if side < 0 else "--",
            )
        said = panel.published.get((series, x))
        draw_published(axes, [] if said is None else [(index - BAR / 2, said)], colour, marker)
    axes.set_xticks(range(len(shown)), shown)


def _name(axes: Axes, panel: Panel) -> None:
    axes.set_title(heading(panel))
    if panel.limits is not None:
        axes.set_ylim(panel.limits)
    else:
        axes.set_ylim(bottom=0.0)


def _explain(made: Figure, done: Reproduced, figure: LiveFigure) -> None:
    """Title and one legend: who by colour, which world by line."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=COLOURS[index % len(COLOURS)], label=series)
        for index, series in enumerate(figure.series)
    ]
    handles += [
        Line2D([], [], color="#555555", linestyle=LINES[index], label=world)
        for index, world in enumerate(WORLDS)
    ]
    if any(panel.published for panel in figure.panels):
        handles.append(published_handle())
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = int(made.get_figwidth() * LETTERS_PER_INCH / (longest + 8))
    made.legend(handles=handles, loc="outside lower center", ncols=max(1, columns))
    size = ", quick size" if done.quick else ""
    many = f"; mean of {done.seeds} seeds, 95 % intervals" if done.seeds > 1 else ""
    title = f"{figure.source}{size}: {figure.title}, live{many}"
    made.suptitle(textwrap.fill(title, 100), x=0.01, ha="left", fontsize=11)
