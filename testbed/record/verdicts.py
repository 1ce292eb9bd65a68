"""Verdicts on jobs by what the experiment expects and by their reservations.

They decide exit code 1. docs/experiment-files.md states the rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter

from testbed.events import Int, Number
from testbed.expectations import ApplicationExpectation, Expectation
from testbed.record import folder as run_files
from testbed.record.metrics import Fidelity, JobRow, Recording, severity
from testbed.record.reading import RecordedRun, claims_of
from testbed.record.stored_json import typed_record

Answer = Literal["ok", "outside", "held", "late", "early", "killed", "open"]
"""``ok`` and ``outside`` are by the file's ``expect``. ``held``, ``late``,
``early`` and ``killed`` are by a live job's reservation. ``open``: no rule
applies.
"""
BAD = frozenset[Answer]({"outside", "late", "early", "killed"})
MUST_START = "every-job-starts"
"""The claim of a policy that may reject no job."""

Judgement = tuple[Answer, str]
_NOTHING_STATED = ApplicationExpectation()


@dataclass(frozen=True)
class Verdict:
    """A job's result against its expectation or reservation, explained by ``why``."""

    job_id: str
    application: str
    requested_bps: Int
    granted_bps: Int | None
    estimate_s: Number | None
    measured_s: Number | None
    ratio: Number | None
    verdict: Answer
    why: str

    @property
    def bad(self) -> bool:
        return self.verdict in BAD


class Complaint(NamedTuple):
    """An unmet expectation of no single job; ``subject`` is part of the text."""

    subject: str
    text: str


@dataclass(frozen=True)
class Verdicts:
    """All of them, and what else was expected. ``met`` decides the exit code."""

    rows: tuple[Verdict, ...]
    complaints: tuple[str, ...]

    @property
    def met(self) -> bool:
        return not self.complaints

    @property
    def judged(self) -> tuple[Verdict, ...]:
        """Those that are not open."""
        return tuple(row for row in self.rows if row.verdict != "open")

    @property
    def bad(self) -> tuple[Verdict, ...]:
        """Those outside, late, early or killed, including any that the file accepts."""
        return tuple(row for row in self.rows if row.bad)

    def to_json(self) -> dict[str, Any]:
        """The ``expectations`` of ``summary.json``."""
        return {
            "met": self.met,
            "complaints": list(self.complaints),
            "rows": [dict(vars(row)) for row in self.rows],
        }


_VERDICTS = TypeAdapter(Verdicts)
EXPECTATION = TypeAdapter(Expectation)


def stored_verdicts(run: RecordedRun) -> Verdicts:
    """The verdicts of ``summary.json``.

    Those of an interrupted run follow from its resolved experiment.
    """
    stored = (run.stored_summary or {}).get("expectations")
    if isinstance(stored, dict):
        path = run.path / run_files.SUMMARY
        return typed_record(_VERDICTS, stored, path, "expectations")
    expect = stored_expectation(run)
    claims = claims_of(run.resolved)
    return evaluate(expect, run.rows, run.summary.fidelity, claims)


def stored_expectation(run: RecordedRun) -> Expectation:
    """The ``expect`` block of ``spec.resolved.json``; an empty one without it."""
    block = (run.resolved or {}).get("expect")
    if not isinstance(block, dict):
        return Expectation()
    path = run.path / run_files.RESOLVED
    # A policy's folder may leave the file to its run's folder above it.
    if not path.is_file():
        path = run.path.parent / run_files.RESOLVED
    return typed_record(EXPECTATION, block, path, "expect")


def evaluate(
    expect: Expectation,
    rows: Iterable[JobRow],
    fidelity: Fidelity,
    claims: Collection[str] = (),
) -> Verdicts:
    """Returns the verdicts on all jobs, and the complaints.

    A job that is rejected or without a reservation is open, unless the file
    names its application or every job must start. Any other job is judged
    by the file's bands, else by its reservation. Complaints about fidelity
    and about names that match nothing follow. A file that accepts
    ``invalid`` also accepts reservations that did not hold.
    """
    rows = tuple(rows)
    expect = applicable(expect, fidelity)
    all_start = MUST_START in claims
    judged = tuple(
        _verdict(expect, row, all_start=all_start) for row in rows
    )
    decisive = decisive_verdicts(expect)
    complaints = [
        f"{verdict.job_id}: {verdict.why}"
        for verdict in judged
        if verdict.verdict in decisive
    ]
    others = other_complaints(expect, judged, rows, fidelity)
    complaints += [complaint.text for complaint in others]
    return Verdicts(judged, tuple(complaints))


def verdicts_of(
    file: Recording, expect: Expectation, claims: Collection[str]
) -> Verdicts:
    """The verdicts on a recording's jobs, kept with it: tables and audit ask."""
    verdicts: Verdicts
    for asked, verdicts in file.judged:
        if asked == (expect, claims):
            return verdicts
    verdicts = evaluate(expect, file.rows, file.tally.fidelity(), claims)
    file.judged.append(((expect, claims), verdicts))
    return verdicts


def applicable(expect: Expectation, fidelity: Fidelity) -> Expectation:
    """The part of an expectation that applies: simulated times are the model's."""
    if fidelity.verdict is not None:
        return expect
    # The simulator's times are the model's own: they cannot be late.
    return replace(expect, late_above=None, early_below=None)


def decisive_verdicts(expect: Expectation) -> Collection[str]:
    """The verdicts that are not accepted."""
    if expect.fidelity == "invalid":
        return {"outside"}
    return BAD


def other_complaints(
    expect: Expectation,
    judged: Sequence[Verdict],
    rows: Sequence[JobRow],
    fidelity: Fidelity,
) -> Iterator[Complaint]:
    """Complaints beside those on jobs, in their order."""
    noted = fidelity.verdict
    accepted = expect.fidelity
    if _worse(noted, accepted):
        reasons = "; ".join(fidelity.reasons) or "no reason given"
        subject = f"fidelity is {noted}"
        text = f"{subject}, accepted is at worst {accepted}: {reasons}"
        yield Complaint(subject, text)
    # An expectation about an application that never ran must not pass in
    # silence.
    ran = {verdict.application for verdict in judged}
    for name in expect.applications:
        if name not in ran:
            text = f"application {name!r} is expected, but no job has that name"
            yield Complaint(repr(name), text)
    # Best-effort jobs have no estimate, so that there is nothing to check.
    if not expect.estimate_ratio or any(map(_best_effort, rows)):
        return
    # The loss of every result must not turn into a pass (decision 21).
    if all(verdict.verdict == "open" for verdict in judged):
        yield Complaint(
            "no job",
            "`expect.estimate_ratio` is set, but no job finished,"
            " so there is no ratio to check.",
        )


def _worse(noted: str | None, accepted: str | None) -> bool:
    """True for a level of fidelity that is not accepted; None accepts any, and
    is that of a simulated run.
    """
    if noted is None or accepted is None:
        return False
    return severity(noted) > severity(accepted)


def _verdict(
    expect: Expectation, row: JobRow, *, all_start: bool
) -> Verdict:
    stated = expect.applications.get(row.application or "")
    judgement = None
    # A policy may reject; what a script starts, and an application named in the
    # file, were to run.
    if stated is None and not all_start:
        judgement = _by_policy(row)
    if judgement is None:
        judgement = _by_file(expect, stated or _NOTHING_STATED, row)
    if judgement is None:
        judgement = by_reservation(expect, row)
    answer, why = judgement
    return Verdict(
        job_id=row.job_id,
        application=row.application or row.job_id,
        requested_bps=row.requested_bps,
        granted_bps=row.granted_bps,
        estimate_s=row.estimate_s,
        measured_s=row.measured_s,
        ratio=row.ratio,
        verdict=answer,
        why=why,
    )


def _best_effort(row: JobRow) -> bool:
    """True for a job on a network without reservations (BL, PS-P)."""
    return row.start_s is not None and row.estimate_s is None


def _by_policy(row: JobRow) -> Judgement | None:
    """The judgement of a job that its policy need not start, or reserve for."""
    if row.outcome == "rejected":
        return "open", _outcome(row)
    if _best_effort(row):
        return "open", "best effort: no estimate"
    return None


def _by_file(
    expect: Expectation, stated: ApplicationExpectation, row: JobRow
) -> Judgement | None:
    """The judgement by the file; None where it states nothing of the job."""
    band = stated.estimate_ratio or expect.estimate_ratio
    # A job that has what it asked for, or more, was not scaled down.
    full = (
        row.granted_bps is not None and row.granted_bps >= row.requested_bps
    )
    below = None if full else stated.scaled_down_below
    if band is None and below is None:
        return None
    if row.ratio is None:
        return "outside", f"no measured time: {_outcome(row)}"
    bounds = []
    if band:
        bounds.append((band.holds(row.ratio), str(band)))
    if below:
        bounds.append(
            (row.ratio < below, f"below {below:g} when scaled down")
        )
    for holds, bound in bounds:
        if not holds:
            why = f"measured/estimate {row.ratio:.4f}, expected {bound}"
            return "outside", why
    return "ok", f"{bounds[-1][1]}, as expected"


def by_reservation(expect: Expectation, row: JobRow) -> Judgement:
    """The judgement of a job by its reservation.

    What was estimated at a rate that is kept takes about that time: one that
    ends clearly before has outrun its limit, or was cut short.
    """
    late_above = expect.late_above
    if late_above is None:
        return "open", "nothing expected"
    if row.estimate_s is None or row.exempt is not None:
        return "open", row.exempt or _outcome(row)
    if row.ratio is None:
        killed = row.outcome == "killed"
        return ("killed" if killed else "open"), _outcome(row)
    ratio = f"measured/estimate {row.ratio:.4f}"
    # 0 where the file sets no bound below: nothing is early then.
    least = expect.early_below or 0.0
    if row.ratio < least and not row.may_end_early:
        return "early", f"{ratio}, held is at least {least:g}"
    why = f"{ratio}, held is at most {late_above:g}"
    most = late_above
    if row.delay_s:
        # What each of its packets is late by is no fault of its reservation.
        most += row.delay_s / row.estimate_s
        why += f" and {row.delay_s:.3g} s by its links' delay"
    if row.possible_error:
        why += f"; {row.possible_error}"
    return ("late" if row.ratio > most else "held"), why


def _outcome(row: JobRow) -> str:
    if row.reason:
        return f"{row.outcome}: {row.reason}"
    return row.outcome
