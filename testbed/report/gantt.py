"""Jobs over time: a lane per job, or the VM slots in use where jobs are many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed import events
from testbed.report.failure_bands import Outage, draw
from testbed.report.plot_style import (
    BAD,
    MUTED,
    SERIES,
    TEXT,
    figure,
    series_colour,
    time_axis,
)
from testbed.results.metrics import JobRow
from testbed.results.tables import shares

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LANES = 60
POINTS = 600
_ENDS = {
    "finished": ("|", TEXT),
    "rejected": ("x", BAD),
    "killed": ("X", BAD),
    "unfinished": (">", MUTED),
}
_HATCHED: Any = {"facecolor": "none", "hatch": "////", "linewidth": 0.8}
_PALE: Any = {"alpha": 0.3, "linewidth": 0}


@dataclass(frozen=True)
class Span:
    """A stretch of a job's life: ``waiting``, ``reserved`` (booked, not started), ``running`` or
    ``cut`` (it holds its nodes, and a lost link keeps it from running).
    """

    job_id: str
    phase: str
    start_s: float
    end_s: float


_PHASES: dict[type[events.Event], str | None] = {
    events.JobReserved: "reserved",
    **dict.fromkeys((events.JobStarted, events.JobResumed, events.JobMigrated), "running"),
    events.JobReconnected: "running",
    events.JobCut: "cut",
    **dict.fromkeys((events.JobPreempted, events.JobRequeued), "waiting"),
    events.JobEnded: None,
}


def spans(stream: Iterable[events.Event]) -> list[Span]:
    """All stretches of all jobs, in order of their ends; what is open ends with the stream."""
    since: dict[str, tuple[str, float]] = {}
    out: list[Span] = []
    now_s = 0.0

    def turn(job_id: str, phase: str | None) -> None:
        before = since.pop(job_id, None)
        if before is not None and now_s > before[1]:
            out.append(Span(job_id, before[0], before[1], now_s))
        if phase is not None:
            since[job_id] = (phase, now_s)

    for event in stream:
        now_s = event.t
        if isinstance(event, events.JobSubmitted):
            turn(str(event.job["id"]), "waiting")
        elif type(event) in _PHASES:
            turn(getattr(event, "job_id", ""), _PHASES[type(event)])
    for job_id in list(since):
        turn(job_id, None)
    return out


def colours(rows: Sequence[JobRow]) -> dict[str, int]:
    """Application to series number, in order of first submission; the others share the last one."""
    names = list(dict.fromkeys(row.application or row.kind for row in rows))
    return {name: min(index, 5) for index, name in enumerate(names)}


def gantt_figure(
    rows: Sequence[JobRow],
    all_spans: Sequence[Span],
    span_s: float,
    failed: Sequence[Outage] = (),
) -> Figure:
    """A lane per job: waiting, reserved, running; the estimated end, the deadline, the outcome."""
    index_of = colours(rows)
    if len(index_of) <= len(SERIES):
        rows = sorted(rows, key=lambda row: index_of[row.application or row.kind])
    lanes = {row.job_id: (lane, row.application or row.kind) for lane, row in enumerate(rows)}
    with figure(9.4, 1.5 + 0.27 * len(rows)) as made:
        axes = made.add_subplot()
        unit_s = time_axis(axes, span_s * 1.02)
        for span in _of_known(all_spans, rows):
            lane, application = lanes[span.job_id]
            colour = series_colour(index_of[application])
            width, left = (span.end_s - span.start_s) / unit_s, span.start_s / unit_s
            looks: dict[str, Any] = {
                "running": {"height": 0.62, "color": colour},
                "cut": {"height": 0.62, "color": colour, **_PALE},
                "reserved": {"height": 0.62, "edgecolor": colour, **_HATCHED},
                "waiting": {"height": 0.12, "color": MUTED},
            }
            axes.barh(lane, width, left=left, **looks[span.phase])
        draw(axes, failed, unit_s)
        _marks(axes, rows, unit_s)
        axes.set_yticks(range(len(rows)), [_short(row.job_id) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        _legend(axes, index_of, cut=any(span.phase == "cut" for span in all_spans))
        return made


def _of_known(all_spans: Sequence[Span], rows: Sequence[JobRow]) -> list[Span]:
    """Jobs that were submitted; a damaged folder holds others, which the audit reports."""
    known = {row.job_id for row in rows}
    return [span for span in all_spans if span.job_id in known]


def _marks(axes: Axes, rows: Sequence[JobRow], unit_s: float) -> None:
    for lane, row in enumerate(rows):
        if row.start_s is not None and row.estimate_s is not None:
            estimated = (row.start_s + row.estimate_s) / unit_s
            axes.plot([estimated, estimated], [lane - 0.42, lane + 0.42], color=TEXT, linewidth=1.6)
        if row.deadline_s is not None:
            due = (row.submit_s + row.deadline_s) / unit_s
            if due <= axes.get_xlim()[1]:
                axes.plot(due, lane, "d", markersize=5, color=MUTED)
        if row.outcome != "finished" and row.end_s is not None:
            marker, colour = _ENDS.get(row.outcome, _ENDS["unfinished"])
            ended = min(row.end_s / unit_s, axes.get_xlim()[1])  # events may be out of order
            axes.plot(ended, lane, marker, markersize=7, color=colour, clip_on=False)


def _legend(axes: Axes, index_of: dict[str, int], *, cut: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(color=series_colour(index), label=f"{_short(name)} runs")
        for name, index in list(index_of.items())[:6]
    ]
    stroke: Any = {"marker": "|", "markersize": 9, "linestyle": "none", "label": "estimated end"}
    handles += [
        Patch(edgecolor=MUTED, label="reserved", **_HATCHED),
        Line2D([], [], color=MUTED, linewidth=2, label="waits"),
        Line2D([], [], color=TEXT, **stroke),
        *([Patch(color=series_colour(0), label="cut off", **_PALE)] if cut else []),
        *axes.get_legend_handles_labels()[0],
    ]
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=5)


def _short(text: str, length: int = 28) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def occupancy_figure(
    rows: Sequence[JobRow],
    all_spans: Sequence[Span],
    total_slots: int,
    span_s: float,
    failed: Sequence[Outage] = (),
) -> Figure:
    """VM slots in use by application, and jobs waiting, as means over six hundred intervals."""
    index_of = colours(rows)
    step_s = span_s / POINTS if span_s > 0 else 1.0
    use, waiting = _means(rows, _of_known(all_spans, rows), index_of, step_s)
    anyone_waits = max(waiting) > 0
    labels = ["" for _ in use]
    for name, index in index_of.items():
        labels[index] = _short(name) if not labels[index] else "others"
    with figure(9.4, 4.6 if anyone_waits else 3.4) as made:
        if anyone_waits:
            above, below = made.subplots(2, 1, sharex=True, height_ratios=[2.2, 1])
        else:
            above = below = made.subplots()
        unit_s = time_axis(below, span_s)
        xs = [(i + 0.5) * step_s / unit_s for i in range(POINTS)]
        colour = [series_colour(i) for i in range(len(use))]
        above.stackplot(xs, use, labels=labels, colors=colour, alpha=0.85, linewidth=0)
        _full(above, total_slots)
        draw(above, failed, unit_s)
        above.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=6)
        if anyone_waits:
            below.fill_between(xs, waiting, color=MUTED, alpha=0.5, step="mid", linewidth=0)
            below.set(ylabel="jobs waiting", ylim=(0, max(waiting) * 1.1))
        return made


def _means(
    rows: Sequence[JobRow], known: Sequence[Span], index_of: dict[str, int], step_s: float
) -> tuple[list[list[float]], list[float]]:
    """Slots in use by each colour, and jobs waiting."""
    row_of = {row.job_id: row for row in rows}
    use = [[0.0] * POINTS for _ in range(max(index_of.values(), default=0) + 1)]
    waiting = [0.0] * POINTS
    for span in known:
        row, series, amount = row_of[span.job_id], waiting, 1.0
        if span.phase in ("running", "cut"):
            series, amount = use[index_of[row.application or row.kind]], row.n_vms
        for i, inside_s in shares(span.start_s, span.end_s, step_s, POINTS):
            series[i] += amount * inside_s / step_s
    return use, waiting


def _full(axes: Axes, total_slots: int) -> None:
    """Where every slot would be taken."""
    axes.axhline(total_slots, color=TEXT, linewidth=1.2, linestyle=(0, (5, 2)))
    near: Any = {"xy": (0, total_slots), "xytext": (4, 3), "textcoords": "offset points"}
    axes.annotate(f"{total_slots:,} slots", color=MUTED, fontsize=9, **near)
    axes.set(ylim=(0, total_slots * 1.12), ylabel="VM slots in use")


def gantt_alt(rows: Sequence[JobRow], all_spans: Sequence[Span] = ()) -> str:
    """The picture in words, a sentence a job; times when it was cut."""
    message = []
    for row in rows:
        start = "did not start" if row.start_s is None else f"started at {row.start_s:.1f} s"
        end = "" if row.end_s is None else f" at {row.end_s:.1f} s"
        message.append(
            f"{row.job_id} was submitted at {row.submit_s:.1f} s, {start}, {row.outcome}{end}."
        )
    message += [
        f"{span.job_id} was cut off from {span.start_s:.1f} s to {span.end_s:.1f} s."
        for span in all_spans
        if span.phase == "cut"
    ]
    return " ".join(message)
