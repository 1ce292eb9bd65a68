"""Plots of reproduced figures: means with their intervals, published values
beside them.

A published relation to another series is drawn from the mean that we have of
that one, and named above its panel. In a live figure solid lines were measured
and broken ones simulated.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from reproductions.grid_quantities import Measure
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
    Relation,
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
# The share of a plot's width that a letter of a tick's label takes.
LETTER_SHARE = 0.022
# With more places on the x axis matplotlib chooses the ticks.
MOST_TICKS = 12
PUBLISHED = "published (large, hollow)"

NAMED = "published"
# The label of published values in a panel: the legend names them once.
UNNAMED = "_published"
# The line of published limits.
DASHES = (0, (5, 1.5, 1, 1.5))
MOST_PERCENT = 100.0
# A published value so many times above all of ours is named, and not drawn:
# it would press ours together.
FAR = 1.4
KEY_SIZE = 8
KEY_LETTERS = 66
"""The longest line above a panel."""
KEY_PAD = 5.0
KEY_LINE = 11.0
"""Points that a panel's title is raised by the lines below it: once, and for
each line.
"""

# Widths that the legend's columns are computed from: matplotlib knows those
# of texts only when it has drawn them.
LETTERS_PER_INCH = 12
HANDLE_LETTERS = 8
X_LABEL_LETTERS = 55
"""The longest line below a plot."""
TITLE_LETTERS = 100
"""The longest line above a figure."""


def pictures(done: Reproduced) -> dict[str, bytes]:
    """``svg`` and ``png`` of all panels side by side, two in a row."""
    panels = done.figure.panels
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
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


def _shown(done: Reproduced, panel: Panel) -> Sequence[str]:
    """The series in a panel."""
    return panel.shown or done.figure.series


def _means(
    done: Reproduced, measure: Measure, series: str
) -> tuple[list[float], list[float]]:
    """A series' means along x, and half the widths of their intervals; 0 for
    one seed, which has no interval.
    """
    means = []
    half_widths = []
    for x in done.figure.xs:
        estimate = done.estimate(measure, series, x)
        means.append(estimate.mean)
        half_widths.append(estimate.half_width or 0.0)
    return means, half_widths


def _published_of(panel: Panel, series: str) -> list[tuple[float, float]]:
    """The published values of a series: x and y."""
    values = []
    for (name, x), y in panel.published.items():
        if name == series:
            values.append((x, y))
    return values


def _plot(axes: Axes, done: Reproduced, panel: Panel) -> None:
    """Plots a measure along x."""
    figure = done.figure
    for series in _shown(done, panel):
        style = _style(done, panel, series)
        colour = _colour(style)
        marker = _marker(style)
        means, half_widths = _means(done, panel.measure, series)
        axes.errorbar(
            figure.xs,
            means,
            yerr=half_widths,
            label=_label(done, panel, series),
            color=colour,
            marker=marker,
            linestyle=LINES[style.line % len(LINES)],
            markersize=5,
            linewidth=1.4,
            capsize=3,
        )
        _plot_published(
            axes,
            _published_of(panel, series),
            colour=colour,
            marker=marker,
        )
    # Relations start from our means: they come last.
    _plot_relations(axes, done, panel)
    if panel.limits is not None:
        axes.set_ylim(panel.limits)
    elif panel.logarithmic:
        _logarithmic(axes)
    elif not _below_zero(done, panel):
        # From zero, with room above: values near each other would stand on
        # the axes' edge.
        axes.set_ylim(0.0, 1.04 * axes.get_ylim()[1])
    _plain_numbers(axes)
    _head(axes, panel)
    if len(figure.xs) <= MOST_TICKS:
        axes.set_xticks(figure.xs, _tick_labels(figure.xs))
    axes.set_xlabel(textwrap.fill(figure.x_label, X_LABEL_LETTERS))


def _by_series(axes: Axes, done: Reproduced, panel: Panel) -> None:
    """Plots a measure of every series, one below the other, where there is one x
    alone.
    """
    figure = done.figure
    x = figure.xs[0]
    shown = _shown(done, panel)
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
                axes,
                [(published, row)],
                colour=COLOURS[0],
                marker=MARKERS[0],
            )
    axes.set_yticks(range(len(shown)), shown)
    # The first series is the uppermost.
    axes.invert_yaxis()
    if not _below_zero(done, panel):
        axes.set_xlim(left=0.0)
    axes.set_title(_heading(panel))
    axes.set_xlabel(f"at {x:g} {figure.x_label}")


def _tick_labels(xs: Sequence[float]) -> list[str]:
    """Labels of values; a line lower where one would touch the label before
    it.
    """
    span = max(xs) - min(xs)
    labels = []
    # The last label of each line: its place, and half its width.
    lines: list[tuple[float, float]] = []
    for x in xs:
        label = f"{x:g}"
        half_width = LETTER_SHARE * len(label) / 2
        # The uppermost line whose last label leaves room for this one.
        line = 0
        while line < len(lines):
            last_x, last_half_width = lines[line]
            if abs(x - last_x) >= (last_half_width + half_width) * span:
                break
            line += 1
        lines[line : line + 1] = [(x, half_width)]
        labels.append("\n" * line + label)
    return labels


def _style(done: Reproduced, panel: Panel, series: str) -> SeriesStyle:
    """The style of a series in a panel."""
    place = _shown(done, panel).index(series)
    by_place = SeriesStyle(colour=place, line=0, label=series)
    return done.figure.styles.get(series, by_place)


def _label(done: Reproduced, panel: Panel, series: str) -> str:
    """The name of a series in a panel, whose title has what all have in
    common.
    """
    label = _style(done, panel, series).label
    return label.removesuffix(f", {panel.subject}")


def _colour(style: SeriesStyle) -> str:
    return COLOURS[style.colour % len(COLOURS)]


def _marker(style: SeriesStyle) -> str:
    return MARKERS[style.colour % len(MARKERS)]


def _logarithmic(axes: Axes) -> None:
    """Gives axes a logarithmic y axis, with numbers as people write them."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log", nonpositive="clip")
    low, high = axes.get_ylim()
    steps: tuple[float, ...] = (1.0, 2.0, 5.0)
    if high > 1e3 * low:
        # Over three decades those between powers of ten would crowd.
        steps = (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=steps))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _plain_numbers(axes: Axes) -> None:
    """Writes the y axis' numbers in full, without an exponent above the axis."""
    from matplotlib.ticker import StrMethodFormatter

    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))


def _plot_published(
    axes: Axes,
    values: Sequence[tuple[float, float]],
    *,
    colour: str,
    marker: str,
    inside: str = "none",
) -> None:
    """Plots a paper's values for a series, large and hollow.

    ``values``: x and y; ``inside``: the colour within a mark.
    """
    if not values:
        return
    xs, ys = zip(*values, strict=True)
    axes.plot(
        xs,
        ys,
        linestyle="none",
        marker=marker,
        markersize=10,
        markerfacecolor=inside,
        markeredgecolor=colour,
        markeredgewidth=1.5,
        label=UNNAMED,
        clip_on=False,
        zorder=3,
    )


def _plot_relations(axes: Axes, done: Reproduced, panel: Panel) -> None:
    """Plots a panel's published relations and limits, and names them above it.

    A relation's mark has the shape of its series and the colour of the other.
    """
    shown = _shown(done, panel)
    groups: dict[object, list[Relation]] = {}
    for relation in panel.relations:
        series, _ = relation.point
        other, _ = relation.to
        if series in shown and other in shown:
            # Several series with the same relation to another are one mark.
            key = replace(relation, point=(other, 0.0), to=(other, 0.0))
            groups.setdefault(key, []).append(relation)
    # Taken before relations are drawn, which may extend the axis.
    most = _most(axes, panel)
    for relations in groups.values():
        _plot_related(
            axes=axes,
            done=done,
            panel=panel,
            relations=relations,
            most=most,
        )
    _plot_limits(axes, panel)


def _plot_limits(axes: Axes, panel: Panel) -> None:
    """Plots a panel's published limits as broken lines, and names them."""
    for limits in panel.limits_published:
        ends = [limits.high]
        between = f"at most {limits.high:g}"
        if limits.low is not None:
            ends = [limits.low, limits.high]
            between = f"{limits.low:g} to {limits.high:g}"
        label = f"{NAMED}: {between}{_unit(panel)}"
        for y in ends:
            axes.plot(
                [min(limits.xs), max(limits.xs)],
                [y, y],
                color=TEXT,
                linestyle=DASHES,
                linewidth=1.2,
                label=label,
            )
            # Both ends have the name once.
            label = UNNAMED


def _unit(panel: Panel) -> str:
    """The unit after a number; empty where the measure has none."""
    if not panel.measure.unit:
        return ""
    return f" {panel.measure.unit}"


def _most(axes: Axes, panel: Panel) -> float:
    """The largest published value that a panel shows."""
    if panel.measure.unit == "%":
        return MOST_PERCENT
    return FAR * axes.get_ylim()[1]


def _plot_related(
    *,
    axes: Axes,
    done: Reproduced,
    panel: Panel,
    relations: Sequence[Relation],
    most: float,
) -> None:
    """Plots relations of a series to another one by the same amount."""
    first = relations[0]
    style = _style(done, panel, first.point[0])
    colour = _colour(_style(done, panel, first.to[0]))
    drawn = {}
    far = {}
    for relation in relations:
        _, x = relation.point
        base = done.estimate(panel.measure, *relation.to).mean
        y = relation.value(base)
        if y <= most:
            drawn[x] = y
        else:
            far[x] = f"{y:,.0f}"
    name = f"{NAMED} {_named(relations, panel, done)}"
    if far:
        name += f" (not drawn: {', '.join(far.values())}{_unit(panel)})"
    # A limit is a line without marks, a value a mark without a line.
    line: Any = "none"
    marker = _marker(style)
    if first.at_most:
        line = DASHES
        marker = "none"
    axes.plot(
        list(drawn),
        list(drawn.values()),
        linestyle=line,
        linewidth=1.2,
        color=colour,
        marker=marker,
        markersize=10,
        markerfacecolor="none",
        markeredgecolor=colour,
        markeredgewidth=1.5,
        label=name,
        zorder=3,
        # Without a point, a mark that is not clipped would have no extent,
        # and the layout none.
        clip_on=not drawn,
    )


def _named(
    relations: Sequence[Relation], panel: Panel, done: Reproduced
) -> str:
    """A relation in words, as ``for DCloud at 80 to 250: VC + 40 points``."""
    first = relations[0]
    other = _label(done, panel, first.to[0])
    if first.to[1] != first.point[1]:
        other = f"{other} at {first.to[1]:g}"
    sign = "+" if first.amount > 0 else "−"
    words = f"{other} {sign} {abs(first.amount):,.10g}"
    if first.relative and first.amount > 0 and first.amount % 100 == 0:
        # Papers write "three times", not "200 % more".
        words = f"{1 + first.amount / 100:g} × {other}"
    elif first.relative:
        words += " %"
    elif panel.measure.unit == "%":
        words += " points"
    else:
        words += _unit(panel)
    if first.at_most:
        words = f"at most {words}"
    series = dict.fromkeys(relation.point[0] for relation in relations)
    names = ", ".join(_label(done, panel, name) for name in series)
    xs = list(dict.fromkeys(relation.point[1] for relation in relations))
    place = f"{xs[0]:g}" if len(xs) == 1 else f"{xs[0]:g} to {xs[-1]:g}"
    return f"for {names} at {place}: {words}"


def _head(axes: Axes, panel: Panel) -> None:
    """A panel's title, and below it the names of what is published.

    Above the panel they hide nothing.
    """
    handles = []
    labels = []
    lines = 0
    for handle, label in _legend_entries(axes):
        if label.startswith(NAMED):
            text = textwrap.fill(label, KEY_LETTERS)
            handles.append(handle)
            labels.append(text)
            lines += 1 + text.count("\n")
    pad = 6.0
    if lines:
        pad += KEY_PAD + KEY_LINE * lines
        legend = axes.legend(
            handles,
            labels,
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            borderaxespad=0.2,
            borderpad=0.0,
            labelspacing=0.25,
            handlelength=1.8,
            fontsize=KEY_SIZE,
            markerscale=0.7,
        )
        # The title's distance leaves it room; its width needs none.
        legend.set_in_layout(False)
    axes.set_title(_heading(panel), pad=pad)


def _legend_entries(axes: Axes) -> Iterable[tuple[Any, str]]:
    """Each mark or line in axes with its label."""
    handles, labels = axes.get_legend_handles_labels()
    return zip(handles, labels, strict=True)


def _names_published(made: Figure) -> bool:
    """True where a panel has values that the legend names."""
    for axes in made.axes:
        for line in axes.lines:
            # Limits have the same label, and no mark.
            if line.get_label() == UNNAMED and line.get_marker() != "None":
                return True
    return False


def _published_handle() -> Line2D:
    """The legend's handle for a paper's values."""
    from matplotlib.lines import Line2D

    return Line2D(
        [],
        [],
        linestyle="none",
        marker="o",
        markersize=10,
        markerfacecolor="none",
        markeredgecolor=NEUTRAL,
        markeredgewidth=1.5,
        label=PUBLISHED,
    )


def _heading(panel: Panel) -> str:
    """A panel's title: its subject, the measure, its unit."""
    measure = panel.measure
    heading = measure.label
    if panel.subject:
        heading = f"{panel.subject}: {heading}"
    if measure.unit:
        heading = f"{heading} [{measure.unit}]"
    return heading


def _below_zero(done: Reproduced, panel: Panel) -> bool:
    """True where a mean of a panel is negative."""
    for series in _shown(done, panel):
        means, _ = _means(done, panel.measure, series)
        if any(mean < 0 for mean in means):
            return True
    return False


def _title(made: Figure, done: Reproduced) -> None:
    """Title and one legend for all panels."""
    figure = done.figure
    shown: dict[str, Any] = {}
    for axes in made.axes:
        for handle, label in _legend_entries(axes):
            # A series is named once, and relations are named at their
            # panel.
            if not label.startswith(NAMED):
                shown.setdefault(label, handle)
    labels = list(shown)
    handles = list(shown.values())
    if _names_published(made):
        handles.append(_published_handle())
        labels.append(PUBLISHED)
    made.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=_columns(made, labels),
    )
    runs = ""
    if not figure.exact:
        runs = "; one seed" if done.seeds == 1 else _mean_of(done)
    _suptitle(made, done, f"{figure.title}{runs}")


def _mean_of(done: Reproduced) -> str:
    """The end of a title where there are intervals."""
    text = f"; mean of {done.seeds} seeds"
    if done.grid.has_invalid:
        text += ", without invalid runs"
    return f"{text}, 95\u00a0% intervals"


def _suptitle(made: Figure, done: Reproduced, title: str) -> None:
    """Sets a figure's title behind its source and size."""
    size = ", quick size" if done.quick else ""
    text = f"{done.figure.source}{size}: {title}"
    lines = textwrap.fill(text, TITLE_LETTERS)
    made.suptitle(lines, x=0.01, ha="left", fontsize=11)


def _columns(made: Figure, labels: Sequence[str]) -> int:
    """The legend's columns: one row where all names fit into it."""
    room = made.get_figwidth() * LETTERS_PER_INCH
    widths = [len(label) + HANDLE_LETTERS for label in labels]
    if sum(widths) <= room:
        return max(1, len(widths))
    return max(1, int(room / max(widths)))


# -- live figures --------------------------------------------------------------


def live_pictures(
    done: Reproduced,
    figure: LiveFigure,
    outcomes: Mapping[Point, tuple[Outcome, ...]],
) -> dict[str, bytes]:
    """``svg`` and ``png``: curves, then measures, two panels in a row."""
    panels = []
    for panel in figure.panels:
        # Simulated values are drawn beside the measured ones.
        if not panel.measure.name.endswith(SIMULATED):
            panels.append(panel)
    n = len(figure.curves) + len(panels)
    columns = min(2, n)
    rows = math.ceil(n / columns)
    with file_figure(max(8.0, 5.0 * columns), 3.2 * rows + 1.1) as made:
        for index, curves in enumerate(figure.curves, 1):
            axes = made.add_subplot(rows, columns, index)
            _step_curves(axes, figure, curves, outcomes)
        for index, panel in enumerate(panels, 1 + len(figure.curves)):
            axes = made.add_subplot(rows, columns, index)
            if len(figure.xs) == 1:
                _bars(axes, done, panel)
            else:
                _along_x(axes, done, panel)
            _finish_axes(axes, done, panel)
        _live_title(made, done, figure)
        return files(made)


def _step_curves(
    axes: Axes,
    figure: LiveFigure,
    curves: Curves,
    outcomes: Mapping[Point, tuple[Outcome, ...]],
) -> None:
    """Plots a step function of every series, of both backends, in the first
    repetition.
    """
    for index, series in enumerate(figure.series):
        outcome = outcomes[series, curves.x][0]
        runs = (outcome.live, outcome.simulated)
        for run, line in zip(runs, BACKEND_LINES, strict=True):
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
    """Plots a measure along x, live and simulated."""
    figure = done.figure
    pair = (panel.measure, simulated(panel.measure))
    for series in _shown(done, panel):
        style = _style(done, panel, series)
        colour = _colour(style)
        marker = _marker(style)
        for measure, line in zip(pair, BACKEND_LINES, strict=True):
            means, half_widths = _means(done, measure, series)
            axes.errorbar(
                figure.xs,
                means,
                yerr=half_widths,
                color=colour,
                linestyle=line,
                marker=marker,
                markersize=5,
                markerfacecolor=colour if line == "-" else PAPER,
                linewidth=1.4,
                capsize=3,
            )
        _plot_published(
            axes,
            _published_of(panel, series),
            colour=colour,
            marker=marker,
        )
    _plot_relations(axes, done, panel)
    axes.set_xticks(figure.xs, _tick_labels(figure.xs))
    axes.set_xlabel(textwrap.fill(figure.x_label, X_LABEL_LETTERS))


def _bars(axes: Axes, done: Reproduced, panel: Panel) -> None:
    """Plots a measure of every series where there is one x alone."""
    x = done.figure.xs[0]
    shown = _shown(done, panel)
    pair = (panel.measure, simulated(panel.measure))
    sides = (-BAR / 2, BAR / 2)
    for index, series in enumerate(shown):
        style = _style(done, panel, series)
        colour = _colour(style)
        marker = _marker(style)
        # Measured bars are full, simulated ones hollow.
        fills = (colour, PAPER)
        for side, measure, fill, line in zip(
            sides, pair, fills, BACKEND_LINES, strict=True
        ):
            estimate = done.estimate(measure, series, x)
            axes.bar(
                index + side,
                estimate.mean,
                BAR * 0.95,
                yerr=estimate.half_width,
                color=fill,
                edgecolor=colour,
                linestyle=line,
                linewidth=1.4,
                ecolor=TEXT,
                capsize=3,
            )
        value = panel.published.get((series, x))
        if value is not None:
            # In the bar's own colour it would be lost in the bar.
            place = (index - BAR / 2, value)
            _plot_published(
                axes=axes,
                values=[place],
                colour=TEXT,
                marker=marker,
                inside=PAPER,
            )
    axes.set_xticks(range(len(shown)), shown)


def _finish_axes(axes: Axes, done: Reproduced, panel: Panel) -> None:
    if panel.limits is not None:
        axes.set_ylim(panel.limits)
    elif not _below_zero(done, panel):
        axes.set_ylim(bottom=0.0)
    _plain_numbers(axes)
    _head(axes, panel)


def _live_title(made: Figure, done: Reproduced, figure: LiveFigure) -> None:
    """Sets title and one legend: series by colour, backends by line."""
    from matplotlib.lines import Line2D

    handles = []
    for index, series in enumerate(figure.series):
        colour = COLOURS[index % len(COLOURS)]
        handles.append(Line2D([], [], color=colour, label=series))
    for backend, line in zip(BACKENDS, BACKEND_LINES, strict=True):
        handle = Line2D(
            [], [], color=NEUTRAL, linestyle=line, label=backend
        )
        handles.append(handle)
    if _names_published(made):
        handles.append(_published_handle())
    labels = [str(handle.get_label()) for handle in handles]
    made.legend(
        handles=handles,
        loc="outside lower center",
        ncols=_columns(made, labels),
    )
    runs = _mean_of(done) if done.seeds > 1 else ""
    _suptitle(made, done, f"{figure.title}, live{runs}")
