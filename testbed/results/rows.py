"""Lines of ``jobs.csv``, and what groups of them come to: all jobs of a run, or those of a class.

Every figure is defined in ``docs/run-folder.md``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import IO

SLOWDOWN_BOUND_S = 10.0
"""Γ of the bounded slowdown: shorter jobs count as this long (AdaBa/BgMBF, CMBF)."""

OUTCOMES = ("finished", "rejected", "killed", "unfinished")


@dataclass(frozen=True)
class JobRow:
    """One line of ``jobs.csv``; None is an empty field. Times are experiment seconds."""

    job_id: str
    policy: str
    kind: str
    submit_s: float
    start_s: float | None
    end_s: float | None
    outcome: str
    reason: str
    n_vms: int
    requested_bps: int
    granted_bps: int | None
    estimate_s: float | None
    measured_s: float | None
    deadline_s: float | None
    met_deadline: bool | None
    preemptions: int
    migrations: int
    value: float
    price: float
    application: str | None
    duration_s: float
    ratio: float | None
    job_class: str | None

    @property
    def wait_s(self) -> float | None:
        """From submission to the first start."""
        return None if self.start_s is None else self.start_s - self.submit_s

    @property
    def response_s(self) -> float | None:
        """From submission to the end, for finished jobs."""
        if self.outcome != "finished" or self.end_s is None:
            return None
        return self.end_s - self.submit_s

    @property
    def queued_s(self) -> float | None:
        """All waiting: the response but for the time on nodes, for finished jobs."""
        if self.response_s is None or self.measured_s is None:
            return None
        # Rounding of a sum of floats makes nobody wait less than nothing.
        return max(0.0, self.response_s - self.measured_s)

    @property
    def slowdown(self) -> float | None:
        """Response over running time, for finished jobs."""
        if self.response_s is None or not self.measured_s:
            return None
        return self.response_s / self.measured_s

    @property
    def bounded_slowdown(self) -> float | None:
        """Response over max(Γ, running time), for finished jobs."""
        if self.response_s is None or self.measured_s is None:
            return None
        return self.response_s / max(SLOWDOWN_BOUND_S, self.measured_s)


COLUMNS = (
    *(f.name for f in fields(JobRow)),
    "wait_s",
    "queued_s",
    "response_s",
    "slowdown",
    "bounded_slowdown",
)


@dataclass(frozen=True)
class Group:
    """What some jobs came to. None where there is nothing to average."""

    jobs: int
    finished: int
    rejected: int
    killed: int
    unfinished: int
    met_deadline: int
    success_rate: float | None
    acceptance_rate: float | None
    wait_mean_s: float | None
    queued_mean_s: float | None
    response_mean_s: float | None
    slowdown_mean: float | None
    bounded_slowdown_mean: float | None
    preemptions: int
    migrations: int


def group(rows: Sequence[JobRow]) -> Group:
    """One group of rows."""
    n = len(rows)
    count = {outcome: sum(r.outcome == outcome for r in rows) for outcome in OUTCOMES}
    good = sum(r.outcome == "finished" and r.met_deadline is not False for r in rows)
    return Group(
        jobs=n,
        **count,
        met_deadline=sum(r.met_deadline is True for r in rows),
        success_rate=good / n if n else None,
        acceptance_rate=1.0 - count["rejected"] / n if n else None,
        wait_mean_s=mean(r.wait_s for r in rows),
        queued_mean_s=mean(r.queued_s for r in rows),
        response_mean_s=mean(r.response_s for r in rows),
        slowdown_mean=mean(r.slowdown for r in rows),
        bounded_slowdown_mean=mean(r.bounded_slowdown for r in rows),
        preemptions=sum(r.preemptions for r in rows),
        migrations=sum(r.migrations for r in rows),
    )


def by_class(rows: Sequence[JobRow]) -> dict[str, Group]:
    """The jobs of each class that is named, classes by name; jobs without one are in none."""
    members: dict[str, list[JobRow]] = {}
    for row in rows:
        if row.job_class is not None:
            members.setdefault(row.job_class, []).append(row)
    return {name: group(own) for name, own in sorted(members.items())}


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that are there; None where there are none."""
    total, count = 0.0, 0
    for value in values:
        if value is not None:
            total += value
            count += 1
    return total / count if count else None


def write_jobs_csv(rows: Iterable[JobRow], file: IO[str]) -> None:
    """``jobs.csv``: a header, then a line per job; None is empty, truths ``true`` and ``false``."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_cell(getattr(row, column)) for column in COLUMNS])


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # The csv module does not quote a lone carriage return, and readers take it for a line end.
        return value.replace("\r\n", "\n").replace("\r", "\n")
    return repr(value) if isinstance(value, float) else value
