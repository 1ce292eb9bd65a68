"""Servers over time: which job's VMs had their slots, in which CPU tier, and why
they left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.foreign_text import plain_text
from testbed.record.job_lives import FOREGROUND
from testbed.record.metrics import JobRow
from testbed.record.server_use import UseEnd
from testbed.report.gantt import (
    HATCHED,
    application_name,
    legend_key,
    series_labels,
    series_of_applications,
    shortened,
)
from testbed.report.plot_style import (
    BAD,
    MUTED,
    SERIES,
    TEXT,
    figure,
    series_colour,
    time_axis,
)
from testbed.report.server_rows import ServerLanes, SlotRows
from testbed.units import number_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LANE_IN = 0.24
"""A server's share of the picture's height, in inches."""
LANE = 0.84
"""Height of a server's rows together; the rest parts it from the next one."""
_MARKS: Mapping[UseEnd, tuple[str, str, str]] = {
    "preempted": ("v", BAD, "preempted"),
    "moved": (">", TEXT, "moved away"),
    "failed": ("X", BAD, "stopped by a failure"),
}


def servers_figure(
    shown: ServerLanes,
    names: Sequence[str],
    rows: Sequence[JobRow],
    span_s: float,
) -> Figure:
    """A lane per server with a row per slot that was used at once."""
    named, series_of = _colours(rows)
    n_servers = len(shown.lanes)
    with figure(9.4, 1.6 + LANE_IN * n_servers) as made:
        axes = made.add_subplot()
        unit_s = time_axis(axes, span_s * 1.02)
        for lane, (placed, n_rows) in enumerate(shown.lanes.values()):
            for part in placed:
                colour = series_colour(series_of.get(part.use.job_id, 0))
                _bar(
                    axes=axes,
                    part=part,
                    lane=lane,
                    n_rows=n_rows,
                    unit_s=unit_s,
                    colour=colour,
                )
        early = _early_ends(shown, unit_s)
        for end, (xs, ys) in early.items():
            marker, colour, _ = _MARKS[end]
            axes.plot(
                xs,
                ys,
                marker,
                color=colour,
                markersize=5,
                linestyle="none",
                clip_on=False,
            )
        axes.set_yticks(
            range(n_servers),
            [_name(names, server) for server in shown.lanes],
        )
        axes.set_ylim(n_servers - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        _legend(axes, named, shown, early)
        return made


def _colours(
    rows: Sequence[JobRow],
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The number of each series by its name, and by the jobs in it.

    Each of few jobs is a series; of many each application.
    """
    if len(rows) <= len(SERIES):
        of_jobs = {row.job_id: index for index, row in enumerate(rows)}
        return of_jobs, of_jobs
    index_of = series_of_applications(rows)
    of_jobs = {row.job_id: index_of[application_name(row)] for row in rows}
    return index_of, of_jobs


def _name(names: Sequence[str], server: int) -> str:
    if 0 <= server < len(names):
        return shortened(names[server])
    return f"server {server}"


def _bar(
    axes: Axes,
    part: SlotRows,
    lane: int,
    n_rows: int,
    unit_s: float,
    colour: str,
) -> None:
    """Draws a job's slots of a server; a background job's are hatched."""
    use = part.use
    looks: dict[str, Any] = {"color": colour}
    if use.tier != FOREGROUND:
        looks = {"edgecolor": colour, **HATCHED}
    row = LANE / n_rows
    top = lane - LANE / 2 + part.first * row
    height = part.n_rows * row * 0.92
    begin = use.start_s / unit_s
    axes.barh(
        top,
        (use.end_s - use.start_s) / unit_s,
        left=begin,
        height=height,
        align="edge",
        **looks,
    )
    # Separates a job from the job before it, which may have the same colour.
    axes.plot(
        [begin, begin], [top, top + height], color=TEXT, linewidth=0.8
    )


def _early_ends(
    shown: ServerLanes, unit_s: float
) -> dict[UseEnd, tuple[list[float], list[float]]]:
    """Places where VMs left before their job's end, x and y, by the reason."""
    places: dict[UseEnd, tuple[list[float], list[float]]] = {}
    for lane, (placed, n_rows) in enumerate(shown.lanes.values()):
        for part in placed:
            if part.use.end in _MARKS:
                xs, ys = places.setdefault(part.use.end, ([], []))
                xs.append(part.use.end_s / unit_s)
                middle = part.first + part.n_rows / 2
                ys.append(lane - LANE / 2 + middle * LANE / n_rows)
    return places


def _legend(
    axes: Axes,
    index_of: Mapping[str, int],
    shown: ServerLanes,
    early: Iterable[UseEnd],
) -> None:
    from matplotlib.patches import Patch

    handles: list[Any] = []
    for index, name in enumerate(series_labels(index_of)):
        label = shortened(name)
        handles.append(Patch(color=series_colour(index), label=label))
    if any(use.tier != FOREGROUND for use in shown.uses):
        label = "in the background tier"
        handles.append(Patch(edgecolor=MUTED, label=label, **HATCHED))
    for end in early:
        handles.append(legend_key(*_MARKS[end], size=6))
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=5
    )


def servers_alt(shown: ServerLanes, names: Sequence[str]) -> str:
    """The picture in words: a sentence a server."""
    sentences = []
    for server, (placed, n_rows) in shown.lanes.items():
        jobs = {plain_text(part.use.job_id): None for part in placed}
        early = Counter(part.use.end for part in placed)
        sentence = (
            f"{_name(names, server)} had VMs of"
            f" {number_of(len(jobs), 'job')}, in"
            f" {number_of(n_rows, 'VM slot')} at most"
        )
        for end, (_, _, label) in _MARKS.items():
            if early[end]:
                sentence += f", {early[end]} {label}"
        sentences.append(f"{sentence}.")
    return " ".join(sentences)
