"""Two runs compared: rows of text, and a page with their pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

from markupsafe import Markup

from testbed.record.comparison import JobPair, PolicyComparison
from testbed.record.metrics import Fidelity, Spread
from testbed.record.reading import RecordedRun
from testbed.report import labels
from testbed.report.comparison_sentences import (
    NamedJobs,
    decision_sentences,
    details,
    difference,
    first_difference,
    has_same_jobs,
    headline,
    later_text,
    longer_text,
    named_jobs,
    short_names,
)
from testbed.report.metric_words import metric_words
from testbed.report.page import rendered
from testbed.report.picture_files import picture_files, picture_folder
from testbed.report.pictures import Picture, jobs_picture
from testbed.report.plot_style import svg
from testbed.units import human_duration, human_share

_COUNT = "{:,}".format
_NUMBER = "{:,.2f}".format
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
PICTURE_IN = 6.4
"""Width of a picture that has another beside it."""
_CAPTIONS = {
    "gantt": "A lane per job, thin while it waits, hatched while it is booked, filled while it"
    " runs; the upright stroke is the estimated end, a diamond the deadline, a cross marks a job"
    " that did not finish.",
    "occupancy": "VM slots in use by application; below them the jobs that waited, if any did.",
}
SIDES = ("first", "second")
"""Names of both runs' files."""


@dataclass(frozen=True)
class RunFigure:
    """A run's picture; ``alt``: its description in words."""

    name: str
    alt: str
    image: Markup
    caption: str


@dataclass(frozen=True)
class PageTable:
    """A table of a page."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class ComparedPair:
    """A part of a page of comparison: two runs, or two sweeps.

    ``headline`` stands in a box of that ``mood``; ``named``: jobs whose names
    are folded away; ``drawn``: the heading of the pictures.
    """

    names: Sequence[str]
    mood: str
    headline: Sequence[str]
    details: Sequence[str]
    named: Sequence[NamedJobs]
    figures: Sequence[RunFigure]
    tables: Sequence[PageTable]
    drawn: str = "The jobs over time"


def metric_cells(comparison: PolicyComparison) -> Iterator[list[str]]:
    """A metric's name and its value in both runs."""
    for field, shown in _METRICS:
        yield _cells(comparison, field, shown)
    yield _cells(comparison, "estimate_ratio", _ratio)
    # Only jobs of iperf3 have one.
    if any(comparison.both("iperf3_ratio")):
        yield _cells(comparison, "iperf3_ratio", _received)
    yield _cells(comparison, "fidelity", _verdict)


def _cells(
    comparison: PolicyComparison, field: str, shown: Callable[[Any], str]
) -> list[str]:
    return [field, *map(labels.or_dash(shown), comparison.both(field))]


def _ratio(ratio: Spread) -> str:
    return f"{ratio.median:.4f} (p95 {ratio.p95:.4f})"


def _received(ratio: Spread) -> str:
    # The other end than of a time's ratio: a rate is bad where it is small.
    return f"{ratio.median:.4f} (least {ratio.min:.4f})"


def _verdict(fidelity: Fidelity) -> str:
    return fidelity.verdict or "–"


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
    """A job's name, its times in both runs, how far the second differs."""
    sides = zip(pair.outcomes, pair.start_s, pair.end_s, strict=True)
    times = starmap(_times, sides)
    return [pair.job_id, *times, longer_text(pair), later_text(pair)]


def job_columns(comparison: PolicyComparison) -> tuple[str, ...]:
    """The headings of :func:`job_cells`."""
    second = short_names(comparison)[1]
    names = comparison.names
    return ("job", *names, f"ran with {second}", f"ended with {second}")


def _times(outcome: str, start_s: float | None, end_s: float | None) -> str:
    """``10.00 s to 60.00 s``; for a job that did not finish, its outcome too."""
    if start_s is None or end_s is None:
        return outcome
    times = (
        f"{labels.seconds_text(start_s)} to {labels.seconds_text(end_s)}"
    )
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
        sections.append(_pair(comparison, runs, number, n_jobs))
    return rendered(
        "comparison",
        title=_title(compared[0][0], len(compared)),
        sub=_sub(compared[0][0], len(compared)),
        sections=sections,
    )


def _title(comparison: PolicyComparison, n_pairs: int) -> str:
    """``dcloud-fig11: vc and dcloud compared``."""
    experiments = " and ".join(dict.fromkeys(comparison.both("name")))
    if n_pairs > 1:
        return f"{experiments}: two runs compared, policy by policy"
    return (
        f"{experiments}: {' and '.join(short_names(comparison))} compared"
    )


def _sub(comparison: PolicyComparison, n_pairs: int) -> str:
    """The runs that are compared, and their seeds."""
    seeds = map(str, comparison.both("seed"))
    seed = " and ".join(dict.fromkeys(seeds))
    if n_pairs > 1:
        return f"A comparison of {n_pairs:,} policies, seed {seed}"
    names = " and ".join(comparison.names)
    return f"A comparison of two runs: {names}, seed {seed}"


def _pair(
    comparison: PolicyComparison,
    runs: Sequence[RecordedRun],
    number: int,
    n_jobs: int,
) -> ComparedPair:
    """The part of the page on one policy."""
    verdicts = {
        summary.fidelity.verdict for summary in comparison.summaries
    }
    sound = has_same_jobs(comparison) and verdicts <= {None, "ok"}
    return ComparedPair(
        names=comparison.names,
        mood="open" if sound else "doubt",
        headline=[*headline(comparison), first_difference(comparison)],
        details=[*decision_sentences(comparison), *details(comparison)],
        named=named_jobs(comparison),
        figures=_drawn(comparison, runs, number),
        tables=[
            PageTable(
                "Metrics of both runs, and who has more",
                (
                    "metric",
                    *comparison.names,
                    "difference",
                    "key in summary.json",
                ),
                list(_metric_rows(comparison)),
            ),
            PageTable(
                "Jobs, the most different first, from start to end",
                job_columns(comparison),
                list(map(job_cells, most_different(comparison, n_jobs))),
            ),
        ],
    )


def _metric_rows(comparison: PolicyComparison) -> Iterator[list[str]]:
    """Rows of a metric's words, both values, their difference, and its key."""
    numbers = {key for key, _ in _METRICS}
    for key, *values in metric_cells(comparison):
        words = metric_words(key).heading
        apart = difference(comparison, key) if key in numbers else ""
        yield [words, *values, apart, key]


def _drawn(
    comparison: PolicyComparison,
    runs: Sequence[RecordedRun],
    number: int,
) -> list[RunFigure]:
    """The jobs' picture of each run.

    ``number``: of the pair, which keeps the pictures' ids apart.
    """
    drawn = []
    pictures = run_pictures(comparison, runs)
    for side, name, picture in zip(
        SIDES, comparison.names, pictures, strict=True
    ):
        if picture is not None:
            made = picture.draw()
            made.set_figwidth(PICTURE_IN)
            image = Markup(svg(made, f"{side}-{number}"))  # noqa: S704 - drawn here
            caption = _CAPTIONS[picture.kind]
            drawn.append(RunFigure(name, picture.alt, image, caption))
    return drawn


def run_pictures(
    comparison: PolicyComparison, runs: Sequence[RecordedRun]
) -> list[Picture | None]:
    """The jobs' picture of each run; None of a run without jobs.

    Both over the longer span: a second is as wide in both.
    """
    span_s = max(comparison.both("span_s"))
    return [
        jobs_picture(run, span_s=span_s) if run.rows else None
        for run in runs
    ]


def write_comparison_pictures(
    compared: Sequence[tuple[PolicyComparison, RecordedRun, RecordedRun]],
    to: Path,
) -> list[Path]:
    """Writes the pictures of runs compared into a folder, which is made; their
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
