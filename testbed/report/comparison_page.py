"""Two runs beside each other as cells of text, and as a page with their pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from testbed.record.comparison import JobPair, PolicyComparison
from testbed.record.metrics import Spread
from testbed.record.reading import RecordedRun
from testbed.report import labels
from testbed.report.page import rendered
from testbed.report.picture_files import picture_files, picture_folder
from testbed.report.pictures import Picture, jobs_picture
from testbed.report.plot_style import svg
from testbed.units import human_duration, human_share

_COUNT, _NUMBER = "{:,}".format, "{:,.2f}".format
_METRICS: tuple[tuple[str, Callable[[Any], str]], ...] = (
    ("finished", _COUNT),
    ("rejected", _COUNT),
    ("killed", _COUNT),
    ("met_deadline", _COUNT),
    ("success_rate", human_share),
    ("vm_utilisation", human_share),
    ("link_utilisation", human_share),
    ("wait_mean_s", human_duration),
    ("response_mean_s", human_duration),
    ("slowdown_mean", _NUMBER),
    ("bounded_slowdown_mean", _NUMBER),
    ("preemptions", _COUNT),
    ("migrations", _COUNT),
    ("revenue", _NUMBER),
)
"""Rows of the table: names as in ``summary.json``, and their form."""
_JOBS = (
    "Jobs, the most different first; last, the second run less the first"
)
_CAPTIONS = {
    "gantt": "a lane per job, thin while it waits, hatched while it is booked, filled while it"
    " runs; the upright stroke is the estimated end, a diamond the deadline, a cross marks a job"
    " that did not finish.",
    "occupancy": "VM slots in use by application, and how many jobs waited.",
}
SIDES = "first", "second"
"""Names of both runs' files."""
JOB_COLUMNS = "running time", "end"
"""Of a job, after its times in both runs: how far the second differs."""


def metric_cells(comparison: PolicyComparison) -> Iterator[list[str]]:
    """A metric's name and its value in both runs."""
    summaries = comparison.summaries
    for field, shown in _METRICS:
        text = labels.or_dash(shown)
        yield [field, *(text(getattr(s, field)) for s in summaries)]
    yield [
        "estimate_ratio",
        *(_ratio(summary.estimate_ratio) for summary in summaries),
    ]
    # Only jobs of iperf3 have one.
    if any(summary.iperf3_ratio for summary in summaries):
        yield [
            "iperf3_ratio",
            *(_received(summary.iperf3_ratio) for summary in summaries),
        ]
    yield [
        "fidelity",
        *(summary.fidelity.verdict or "–" for summary in summaries),
    ]


def _ratio(ratio: Spread | None) -> str:
    if ratio is None:
        return "–"
    return f"{ratio.median:.4f} (p95 {ratio.p95:.4f})"


def _received(ratio: Spread | None) -> str:
    if ratio is None:
        return "–"
    # The other end than of a time's ratio: a rate is bad where it is small.
    return f"{ratio.median:.4f} (least {ratio.min:.4f})"


def most_different(
    comparison: PolicyComparison, count: int
) -> list[JobPair]:
    """Jobs whose outcomes differ, then those whose ends are furthest apart."""

    def order(pair: JobPair) -> tuple[bool, float, str]:
        away = abs(pair.later_s or 0.0)
        # False sorts before true: other outcomes first.
        return (len(set(pair.outcomes)) == 1, -away, pair.job_id)

    return sorted(comparison.jobs, key=order)[:count]


def job_cells(pair: JobPair) -> list[str]:
    """A job's name, its times in both runs, :data:`JOB_COLUMNS`."""
    cells = [pair.job_id]
    for outcome, start_s, end_s in zip(
        pair.outcomes, pair.start_s, pair.end_s, strict=True
    ):
        cells.append(_times(outcome, start_s, end_s))
    cells.append(
        labels.or_dash("{:+.2%}".format)(pair.completion_difference)
    )
    cells.append(labels.or_dash("{:+.2f} s".format)(pair.later_s))
    return cells


def _times(outcome: str, start_s: float | None, end_s: float | None) -> str:
    """``10.00 to 60.00 s``; for a job that did not finish, its outcome too."""
    if start_s is None or end_s is None:
        return outcome
    times = f"{start_s:.2f} to {end_s:.2f} s"
    if outcome == "finished":
        return times
    return f"{outcome}, {times}"


def comparison_page(
    compared: Sequence[tuple[PolicyComparison, RecordedRun, RecordedRun]],
    n_jobs: int,
) -> str:
    """The page of runs compared, policy by policy, as HTML.

    ``n_jobs`` of each are listed, the most different first.
    """
    sections = []
    for number, (comparison, *runs) in enumerate(compared):
        names = comparison.names
        jobs = list(map(job_cells, most_different(comparison, n_jobs)))
        tables = [
            (
                "Metrics, as in summary.json",
                ("metric", *names),
                list(metric_cells(comparison)),
            ),
            (_JOBS, ("job", *names, *JOB_COLUMNS), jobs),
        ]
        drawn = _drawn(comparison, runs, number)
        sections.append((names, comparison.sentences(), drawn, tables))
    title = compared[0][1].summary.name
    return rendered("comparison", title=title, sections=sections)


def _drawn(
    comparison: PolicyComparison,
    runs: Sequence[RecordedRun],
    number: int,
) -> list[tuple[str, Markup, str]]:
    """The jobs' picture of each run: its words, its SVG, its caption.

    ``number``: of the pair, which keeps the pictures' ids apart.
    """
    drawn = []
    pictures = run_pictures(comparison, runs)
    for side, name, picture in zip(
        SIDES, comparison.names, pictures, strict=True
    ):
        if picture is not None:
            caption = f"{name}: {_CAPTIONS[picture.kind]}"
            text = svg(picture.draw(), f"{side}-{number}")
            inline = Markup(text)  # noqa: S704 - drawn here
            drawn.append((picture.alt, inline, caption))
    return drawn


def run_pictures(
    comparison: PolicyComparison, runs: Sequence[RecordedRun]
) -> list[Picture | None]:
    """The jobs' picture of each run; None of a run without jobs.

    Both over the longer span: a second is as wide in both.
    """
    span_s = max(summary.span_s for summary in comparison.summaries)
    pictures: list[Picture | None] = []
    for run in runs:
        picture = None
        if run.rows:
            picture = jobs_picture(run, span_s=span_s)
        pictures.append(picture)
    return pictures


def write_comparison_pictures(
    compared: Sequence[tuple[PolicyComparison, RecordedRun, RecordedRun]],
    to: Path,
) -> list[Path]:
    """Writes the pictures of runs compared into a folder, which is made; the
    files.

    Names begin with the number of the pair where there are several policies.
    Raises BadInput where the folder cannot be made.
    """
    folder = picture_folder(to)
    files: list[Path] = []
    for number, (comparison, *runs) in enumerate(compared, 1):
        prefix = f"{number}-" if len(compared) > 1 else ""
        pictures = run_pictures(comparison, runs)
        for side, picture in zip(SIDES, pictures, strict=True):
            if picture is not None:
                name = f"{prefix}{side}-{picture.kind}"
                files += picture_files(folder, name, picture)
    return files
