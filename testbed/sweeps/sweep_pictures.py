"""The picture of a sweep: a panel a metric, the first numeric key along x, a
line a combination.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.report.plot_files import COLOURS, file_figure, files
from testbed.report.plot_style import DASHES, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from testbed.sweeps.intervals import Estimate
    from testbed.sweeps.sweep_plan import SweepPlan
    from testbed.sweeps.sweep_tables import TableRow

MOST_LINES = 14
MOST_NAMES = 40
LONGEST = 28
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
    xs: tuple[Any, ...]
    found: tuple[tuple[Estimate, ...], ...]


def sweep_pictures(
    plan: SweepPlan, table: Sequence[TableRow]
) -> dict[str, bytes]:
    """The picture as ``svg`` and ``png``, the same bytes for the same table."""
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
    place = x_key(plan)
    lines = _lines(plan, table, place)
    columns, rows = _grid(plan)
    for index, metric in enumerate(plan.metrics):
        axes = made.add_subplot(rows, columns, index + 1)
        _panel(axes, plan, lines[:MOST_LINES], place, index)
        axes.set_title(metric)
    handles, labels = made.axes[0].get_legend_handles_labels()
    if any(labels):
        made.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=min(4, len(labels)),
        )
    left = len(lines) - MOST_LINES
    more = f"; {left} more lines in table.csv" if left > 0 else ""
    made.suptitle(
        f"{plan.name}: means, 95 % confidence intervals{more}",
        x=0.01,
        ha="left",
        size=11,
    )


def x_key(plan: SweepPlan) -> int | None:
    """The place of the first numeric key among the combined; None where there
    is none.
    """
    return next(
        (i for i, one in enumerate(plan.combined) if one.is_numeric), None
    )


def _lines(
    plan: SweepPlan, table: Sequence[TableRow], place: int | None
) -> list[Line]:
    """Points by the values of all other keys; without a numeric key, one line
    through all.
    """
    grouped: dict[tuple[tuple[str, Any], ...], list[TableRow]] = {}
    for row in table:
        rest: tuple[tuple[str, Any], ...] = ()
        if place is not None:
            pairs = tuple(zip(plan.columns, row.values, strict=False))
            rest = (*pairs[:place], *pairs[place + 1 :])
        grouped.setdefault(rest, []).append(row)
    firsts, others = dict[Any, int](), dict[Any, int]()
    lines = []
    for rest, rows in grouped.items():
        values = dict(rest)
        leading = next(iter(values), "")
        first = values.pop("policy" if "policy" in values else leading, "")
        second = tuple(values.values())
        looks = (
            firsts.setdefault(first, len(firsts)),
            others.setdefault(second, len(others)),
        )
        xs = tuple(
            _name(row.values) if place is None else row.values[place]
            for row in rows
        )
        found = tuple(row.estimates for row in rows)
        lines.append(Line(_label(rest), looks, xs, found))
    return lines


def _label(rest: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(
        str(value) if name == "policy" else f"{name} {value}"
        for name, value in rest
    )


def _name(values: Sequence[Any]) -> str:
    text = ", ".join(map(str, values)) or "all"
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 1]}…"


def _panel(
    axes: Axes,
    plan: SweepPlan,
    lines: Sequence[Line],
    place: int | None,
    metric: int,
) -> None:
    every = [x for line in lines for x in line.xs] if place is not None else []
    apart = APART * (max(every) - min(every)) if every else 0.0
    for number, line in enumerate(lines):
        aside = (number - (len(lines) - 1) / 2) * apart
        points = [
            (
                x + aside if aside else x,
                one[metric].mean,
                one[metric].half_width or 0.0,
            )
            for x, one in zip(line.xs, line.found, strict=True)
            if one[metric].n
        ]
        if place is None:
            points = points[:MOST_NAMES]
        colour, dashes = line.looks
        axes.errorbar(
            [x for x, _, _ in points],
            [mean for _, mean, _ in points],
            yerr=[half for _, _, half in points],
            label=line.label,
            color=COLOURS[colour % len(COLOURS)],
            marker=MARKERS[colour % len(MARKERS)],
            linestyle="none" if place is None else DASHES[dashes % len(DASHES)],
            markersize=5,
            linewidth=1.4,
            capsize=3,
        )
    if place is not None:
        axes.set_xlabel(plan.combined[place].key)
    elif plan.combined:
        axes.tick_params(axis="x", rotation=30)
