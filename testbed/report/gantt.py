"""Pictures of jobs over time: a lane per job, or the slots that many jobs use."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.foreign_text import plain_text
from testbed.record.failure_times import Outage
from testbed.record.job_lives import Stretch
from testbed.record.link_rates import seconds_in_intervals
from testbed.record.metrics import JobRow
from testbed.report.failure_bands import band_labels, draw
from testbed.report.labels import seconds_text
from testbed.report.plot_style import (
    BAD,
    MUTED,
    SERIES,
    TEXT,
    figure,
    series_colour,
    time_axis,
)
from testbed.units import number_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# With more jobs the slots in use are drawn.
MAX_LANES = 60
# Intervals of the picture of the slots in use.
POINTS = 600
# Phases in which a job has its VM slots.
RUNNING = ("running", "cut")
OTHERS = "others"
"""The label of a series that several applications share."""
# Marker and colour by outcome.
_ENDS = {
    "rejected": ("x", BAD),
    "killed": ("X", BAD),
    "unfinished": (">", MUTED),
}
LINE_IN = 0.2
"""Height of a line of a legend, in inches."""
LEGEND_CHARACTERS = 96
"""Characters in a line of a legend."""
HATCHED: Any = {"facecolor": "none", "hatch": "////", "linewidth": 0.8}
_PALE: Any = {"alpha": 0.3, "linewidth": 0}


def series_of_applications(rows: Sequence[JobRow]) -> dict[str, int]:
    """The index of each application's series, in order of first submission.

    A series has a colour. If the colours are too few, the last is shared.
    """
    names = dict.fromkeys(map(application_name, rows))
    last = len(SERIES) - 1
    return {name: min(index, last) for index, name in enumerate(names)}


def series_labels(index_of: Mapping[str, int]) -> list[str]:
    """Label of each series: its name, or OTHERS where several share it."""
    labels = [""] * (max(index_of.values(), default=0) + 1)
    for name, index in index_of.items():
        labels[index] = OTHERS if labels[index] else name
    return labels


def gantt_figure(
    rows: Sequence[JobRow],
    all_spans: Sequence[Stretch],
    span_s: float,
    failed: Sequence[Outage] = (),
) -> Figure:
    """A lane per job with its phases (waiting, reserved, running), estimated
    end, deadline and outcome.

    ``span_s``: length of the time axis.
    """
    index_of = series_of_applications(rows)
    # Lanes are grouped by application if each has a colour to itself.
    if len(index_of) <= len(SERIES):
        rows = sorted(rows, key=lambda row: index_of[application_name(row)])
    lane_of = {row.job_id: lane for lane, row in enumerate(rows)}
    with figure(9.4, 1.5 + 0.27 * len(rows)) as made:
        axes = made.add_subplot()
        unit_s = time_axis(axes, span_s * 1.02)
        for span in all_spans:
            lane = lane_of[span.job_id]
            colour = series_colour(index_of[application_name(rows[lane])])
            axes.barh(
                lane,
                (span.end_s - span.start_s) / unit_s,
                left=span.start_s / unit_s,
                **_bar_style(span.phase, colour),
            )
        draw(axes, failed, unit_s, band_labels(failed))
        marks = _marks(axes, rows, unit_s)
        axes.set_yticks(
            range(len(rows)), [shortened(row.job_id) for row in rows]
        )
        # From large to small, so that the first job is on top.
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        handles = _handles(rows, all_spans, index_of)
        n_lines = _legend(axes, [*handles, *marks])
        # Further lines of the legend enlarge the picture, not shrink the lanes.
        made.set_figheight(made.get_figheight() + LINE_IN * (n_lines - 1))
        return made


def application_name(row: JobRow) -> str:
    """The name of a job's series: its application, or else its kind."""
    return row.application or row.kind


def _bar_style(phase: str, colour: str) -> dict[str, Any]:
    """Arguments of ``barh`` for a phase of a job."""
    if phase == "waiting":
        return {"height": 0.12, "color": MUTED}
    if phase == "reserved":
        return {"height": 0.62, "edgecolor": colour, **HATCHED}
    if phase == "cut":
        return {"height": 0.62, "color": colour, **_PALE}
    return {"height": 0.62, "color": colour}


def _marks(axes: Axes, rows: Sequence[JobRow], unit_s: float) -> list[Any]:
    """Draws estimated ends, deadlines and outcomes; returns a legend key for
    each kind that is drawn.
    """
    shown: dict[str, Any] = {}
    axis_end = axes.get_xlim()[1]
    for lane, row in enumerate(rows):
        if row.start_s is not None and row.estimate_s is not None:
            estimated = (row.start_s + row.estimate_s) / unit_s
            # The axis is extended neither for this nor for a deadline: one days
            # after the end would leave the run little room.
            if estimated <= axis_end:
                axes.plot(
                    [estimated, estimated],
                    [lane - 0.42, lane + 0.42],
                    color=TEXT,
                    linewidth=1.6,
                )
                label = "estimated end"
                shown[label] = legend_key("|", TEXT, label, size=9)
        if row.deadline_s is not None:
            due = (row.submit_s + row.deadline_s) / unit_s
            if due <= axis_end:
                axes.plot(due, lane, "d", markersize=5, color=MUTED)
                shown["deadline"] = legend_key(
                    "d", MUTED, "deadline", size=7
                )
        if row.outcome != "finished" and row.end_s is not None:
            # If events are out of order, an end may lie beyond the axis. It
            # is then marked at the axis's edge.
            ended = min(row.end_s / unit_s, axis_end)
            shown[row.outcome] = _mark_end(axes, lane, ended, row.outcome)
    return list(shown.values())


def _mark_end(axes: Axes, lane: int, place: float, outcome: str) -> Any:
    """Marks the end of a job that did not finish; returns its legend key."""
    marker, colour = _ENDS.get(outcome, _ENDS["unfinished"])
    axes.plot(
        place, lane, marker, markersize=7, color=colour, clip_on=False
    )
    return legend_key(marker, colour, shortened(outcome), size=7)


def legend_key(marker: str, colour: str, label: str, size: float) -> Any:
    """A marker with a label, for a legend."""
    from matplotlib.lines import Line2D

    return Line2D(
        [],
        [],
        color=colour,
        marker=marker,
        markersize=size,
        linestyle="none",
        label=label,
    )


def _handles(
    rows: Sequence[JobRow],
    all_spans: Sequence[Stretch],
    index_of: dict[str, int],
) -> list[Any]:
    """Legend keys of the phases in the lanes, with one for each application that
    runs.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    row_of = {row.job_id: row for row in rows}
    phases = set()
    ran = set()
    for span in all_spans:
        if span.end_s > span.start_s:
            phases.add(span.phase)
            if span.phase in RUNNING:
                ran.add(index_of[application_name(row_of[span.job_id])])
    handles: list[Any] = []
    for index, name in enumerate(series_labels(index_of)):
        label = f"{shortened(name)} runs"
        if name == OTHERS:
            label = f"{OTHERS} run"
        if index in ran:
            handles.append(Patch(color=series_colour(index), label=label))
    if "reserved" in phases:
        handles.append(Patch(edgecolor=MUTED, label="reserved", **HATCHED))
    if "waiting" in phases:
        handles.append(
            Line2D([], [], color=MUTED, linewidth=2, label="waits")
        )
    if "cut" in phases:
        # The key explains paleness, so its colour does not matter.
        handles.append(
            Patch(color=series_colour(0), label="cut off", **_PALE)
        )
    return handles


def _legend(axes: Axes, handles: list[Any]) -> int:
    """Draws the legend above the lanes; returns its number of lines.

    It has ``handles`` and all labels in ``axes``, such as those of failures.
    """
    handles = handles + axes.get_legend_handles_labels()[0]
    if not handles:
        return 1
    longest = max(len(handle.get_label()) for handle in handles)
    # A key's symbol takes the room of 6 characters.
    columns = max(1, min(5, LEGEND_CHARACTERS // (longest + 6)))
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=columns,
    )
    return math.ceil(len(handles) / columns)


def shortened(text: str, length: int = 28) -> str:
    """A name of at most ``length`` characters, without control characters."""
    text = plain_text(text)
    if len(text) <= length:
        return text
    return f"{text[: length - 1]}…"


def occupancy_figure(
    rows: Sequence[JobRow],
    all_spans: Sequence[Stretch],
    total_slots: int,
    span_s: float,
    failed: Sequence[Outage] = (),
) -> Figure:
    """VM slots in use by application, and jobs waiting below them.

    Values are means over POINTS intervals of ``span_s``.
    """
    means = _means(rows, all_spans, span_s)
    most_waiting = max(means.waiting)
    labels = list(map(shortened, means.labels))
    with figure(9.4, 4.6 if most_waiting > 0 else 3.4) as made:
        if most_waiting > 0:
            above, below = made.subplots(
                2, 1, sharex=True, height_ratios=[2.2, 1]
            )
        else:
            above = below = made.subplots()
        unit_s = time_axis(below, span_s)
        xs = [time_s / unit_s for time_s in means.times_s]
        above.stackplot(
            xs,
            means.use,
            labels=labels,
            colors=list(map(series_colour, range(len(labels)))),
            alpha=0.85,
            linewidth=0,
        )
        _draw_slot_limit(above, total_slots)
        draw(above, failed, unit_s, band_labels(failed))
        _legend(above, [])
        if most_waiting > 0:
            below.fill_between(
                xs,
                means.waiting,
                color=MUTED,
                alpha=0.5,
                step="mid",
                linewidth=0,
            )
            below.set(ylabel="jobs waiting", ylim=(0, most_waiting * 1.1))
        return made


def occupancy_rows(
    rows: Sequence[JobRow], all_spans: Sequence[Stretch], span_s: float
) -> Iterator[Sequence[Any]]:
    """Rows of headings and values of :func:`occupancy_figure`."""
    means = _means(rows, all_spans, span_s)
    headings = [f"slots of {label}" for label in means.labels]
    yield ["time_s", *headings, "waiting"]
    yield from zip(means.times_s, *means.use, means.waiting, strict=True)


@dataclass(frozen=True)
class _Means:
    """Means over intervals with the middles ``times_s``.

    ``use``, ``(n_series, POINTS)``: VM slots in use by series.
    ``waiting``: number of jobs that wait or have a reservation.
    """

    times_s: list[float]
    labels: list[str]
    use: list[list[float]]
    waiting: list[float]


def _means(
    rows: Sequence[JobRow], all_spans: Sequence[Stretch], span_s: float
) -> _Means:
    index_of = series_of_applications(rows)
    labels = series_labels(index_of)
    step_s = span_s / POINTS if span_s > 0 else 1.0
    row_of = {row.job_id: row for row in rows}
    use = [[0.0] * POINTS for _ in labels]
    waiting = [0.0] * POINTS
    for span in all_spans:
        series = waiting
        amount = 1.0
        if span.phase in RUNNING:
            row = row_of[span.job_id]
            series = use[index_of[application_name(row)]]
            amount = row.n_vms
        # Means include every job. Values at the middles would miss a short
        # job between two of them.
        for i, inside_s in seconds_in_intervals(
            span.start_s, span.end_s, step_s, POINTS
        ):
            series[i] += amount * inside_s / step_s
    times_s = [(point + 0.5) * step_s for point in range(POINTS)]
    return _Means(times_s, labels, use, waiting)


def _draw_slot_limit(axes: Axes, total_slots: int) -> None:
    """Draws a line at the number of all VM slots."""
    axes.axhline(
        total_slots, color=TEXT, linewidth=1.2, linestyle=(0, (5, 2))
    )
    axes.annotate(
        number_of(total_slots, "VM slot"),
        color=MUTED,
        fontsize=9,
        xy=(0, total_slots),
        xytext=(4, 3),
        textcoords="offset points",
    )
    axes.set(ylim=(0, total_slots * 1.12), ylabel="VM slots in use")


def gantt_alt(
    rows: Sequence[JobRow], all_spans: Sequence[Stretch] = ()
) -> str:
    """Text for :func:`gantt_figure`: a sentence for each job, and for each time
    that a job was cut off from the network.
    """
    sentences = []
    for row in rows:
        start = "did not start"
        if row.start_s is not None:
            start = f"started at {seconds_text(row.start_s)}"
        end = row.outcome
        if row.end_s is not None:
            end = f"{end} at {seconds_text(row.end_s)}"
        sentences.append(
            f"{row.job_id} was submitted at {seconds_text(row.submit_s)}, {start}, {end}."
        )
    for span in all_spans:
        if span.phase == "cut":
            start = seconds_text(span.start_s)
            times = f"from {start} to {seconds_text(span.end_s)}"
            sentences.append(f"{span.job_id} was cut off {times}.")
    return " ".join(sentences)
