"""Outcome of a run in sentences: its jobs, their times, its expectations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import mode

from testbed.expectations import ApplicationExpectation, Band, Expectation
from testbed.record.conclusion import Results
from testbed.record.failure_times import Outage
from testbed.record.job_history import kind_of_reason
from testbed.record.metrics import LIVE, JobRow, Summary
from testbed.report.failure_bands import clause
from testbed.report.gantt import shortened
from testbed.report.labels import ratio_text, reason_text
from testbed.units import number_of

MAX_REASON = 90
"""Characters of a reason in a sentence."""
MAX_FAILURES = 2
"""Failures that a sentence names; of more it has their numbers."""
MAX_APPLICATIONS = 3
"""Applications whose bounds a sentence has."""
EQUAL = "1.0000"


def outcome_clause(results: Results) -> str:
    """Numbers of jobs by their outcome, and times against the estimates."""
    jobs = _jobs_clause(results.summary, results.rows)
    times = _times_clause(results.summary)
    return "; ".join(filter(None, (jobs, times)))


def _jobs_clause(summary: Summary, rows: Sequence[JobRow]) -> str:
    n = summary.jobs
    if n == 0:
        return "no job was submitted"
    jobs = number_of(n, "job")
    parts = [f"{summary.finished:,} of {jobs} finished"]
    if summary.finished == n:
        parts = [f"all {jobs} finished" if n > 1 else "the job finished"]
    for outcome, singular, plural in (
        ("rejected", "was rejected", "were rejected"),
        ("killed", "was killed", "were killed"),
        ("unfinished", "had not ended", "had not ended"),
    ):
        count = getattr(summary, outcome)
        if count:
            verb = singular if count == 1 else plural
            parts.append(f"{count:,} {verb}{_reason(rows, outcome)}")
    return ", ".join(parts)


def _reason(rows: Sequence[JobRow], outcome: str) -> str:
    """The commonest reason of an outcome, in brackets; nothing without one."""
    reasons = [
        row.reason for row in rows if row.outcome == outcome and row.reason
    ]
    if not reasons:
        return ""
    kinds = list(map(kind_of_reason, reasons))
    commonest = mode(kinds)
    example = reasons[kinds.index(commonest)]
    # Its first part: further parts are about other attempts.
    text = shortened(reason_text(example.split("; ")[0]), MAX_REASON)
    if len(set(reasons)) == 1:
        return f" ({text})"
    how_often = "most often " if len(set(kinds)) > 1 else ""
    return f" ({how_often}such as: {text})"


def _times_clause(summary: Summary) -> str:
    """The range of measured over estimated time; nothing of no finished job."""
    if not summary.finished:
        return ""
    ratio = summary.estimate_ratio
    if ratio is None:
        return "none of them had an estimate"
    least = ratio_text(ratio.min)
    most = ratio_text(ratio.max)
    times = "simulated times"
    if summary.backend == LIVE:
        times = "measured times"
    if least == most == EQUAL:
        return f"{times} equal the estimates"
    if least == most:
        return f"{times} are {least} times the estimates"
    return f"{times} are {least} to {most} times the estimates"


def failures_clause(failures: Sequence[Outage]) -> str:
    """Links and servers that were lost, and restarts; empty without any."""
    if len(failures) <= MAX_FAILURES:
        return ", ".join(map(clause, failures))
    counts = []
    for kind, count in Counter(part.kind for part in failures).items():
        thing, event = kind.split()
        several = "switches" if thing == "switch" else ""
        counts.append(f"{number_of(count, thing, several)} {event}")
    text = ", ".join(counts)
    lasting = [part for part in failures if part.lasting]
    if lasting:
        n_back = sum(part.restored for part in lasting)
        text += f"; {n_back} of {len(lasting)} lost parts came back"
    return text


def stated_bounds(expect: Expectation) -> str:
    """The bounds of a file on measured over estimated time; empty without any."""
    bounds = []
    band = expect.estimate_ratio
    if band is not None:
        bounds.append(str(band))
    stated = []
    for name, expectation in expect.applications.items():
        text = _application_bounds(expectation)
        if text:
            stated.append(f"{shortened(name)} {text}")
    bounds += stated[:MAX_APPLICATIONS]
    n_left = len(stated) - MAX_APPLICATIONS
    if n_left > 0:
        bounds.append(number_of(n_left, "more application"))
    if band is not None and not stated and None in (band.min, band.max):
        bounds.append("the only bound")
    return ", ".join(bounds)


def _application_bounds(expectation: ApplicationExpectation) -> str:
    texts = []
    if expectation.estimate_ratio is not None:
        texts.append(str(expectation.estimate_ratio))
    if expectation.scaled_down_below is not None:
        below = f"below {expectation.scaled_down_below:g} when scaled down"
        texts.append(below)
    return " and ".join(texts)


def reservation_bounds(expect: Expectation) -> str:
    """The bounds on a live job for which the file states none."""
    return str(Band(expect.early_below, expect.late_above))


def kept_clause(results: Results) -> str:
    """The bounds of the judged jobs, all of which kept to them."""
    judged = results.verdicts.judged
    jobs = f"all {len(judged):,} jobs"
    if len(judged) == 1:
        jobs = "the one job"
    if len(judged) < results.summary.jobs:
        jobs += " judged"
    kinds = {row.verdict for row in judged}
    of_reservations = reservation_bounds(results.expect)
    if kinds == {"held"}:
        return (
            f"{jobs} kept to the bounds of live reservations"
            f" (measured/estimate {of_reservations})"
        )
    bounds = stated_bounds(results.expect)
    if "held" in kinds:
        bounds += f"; others {of_reservations}"
    return (
        f"{jobs} kept to what the file expects (measured/estimate {bounds})"
    )
