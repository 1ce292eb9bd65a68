"""``summary.json`` and ``spec.resolved.json`` against the events.

The rules of verdicts are those of docs/experiment-files.md. Their words are not
compared; a complaint only has to be about its subject.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from marshal import dumps
from typing import Any

from pydantic import ValidationError

from testbed import events
from testbed.audit.declared_topology import topology_faults
from testbed.audit.history import (
    Findings,
    History,
    Place,
    about,
    once,
    parsed,
)
from testbed.expectations import Expectation
from testbed.record.folder import RESOLVED, SUMMARY
from testbed.record.metrics import JobRow
from testbed.record.verdicts import (
    EXPECTATION,
    Verdict,
    Verdicts,
    applicable,
    by_reservation,
    decisive_verdicts,
    other_complaints,
    verdicts_of,
)

_SUMMARY: Place = (SUMMARY, None)
_RESOLVED: Place = (RESOLVED, None)
_SHOWN_CHARS = 160
BY_VALUE = 2
"""The format of :mod:`marshal` that does not depend on who shares a value."""

Block = Mapping[str, Any]


@once
def stored_summary(history: History) -> dict[str, Any] | str:
    """``summary.json``, or its fault."""
    return parsed(history.folder / SUMMARY)


def summary(history: History) -> Findings:
    """Every figure of the summary; the verdicts have a check of their own."""
    stored = stored_summary(history)
    if isinstance(stored, str):
        yield _SUMMARY, stored
        return
    for wrong in _summary_faults(history, stored):
        yield _SUMMARY, wrong


_USES = ("vm_utilisation", "link_utilisation")


def _summary_faults(history: History, stored: Block) -> Iterator[str]:
    due = _summary_due(history)
    for key, value in due.items():
        if key not in stored:
            yield f"lacks {key}"
        elif not same(stored[key], value):
            yield f"{key} is {_short(stored[key])}, by the events {_short(value)}"
    wall_s = stored.get("wall_s")
    if "wall_s" not in stored:
        yield "lacks wall_s"
    elif wall_s is not None and not _is_duration(wall_s):
        yield f"wall_s is {_short(wall_s)}, which is no duration"
    for key in stored:
        if key not in (*due, *_USES, "wall_s", "expectations"):
            yield f"{key!r} is none of the summary's keys"


def _summary_due(history: History) -> dict[str, Any]:
    file = history.file
    made = file.summary()
    # As it comes back from the file: lists in place of tuples.
    due: dict[str, Any] = json.loads(json.dumps(made.to_json()))
    del due["wall_s"]
    if any(life.hold for life in file.tally.lives.jobs.values()):
        # Something runs at the end: that is a finding of its own, and no mean
        # is due.
        for key in _USES:
            del due[key]
    return due


def _is_duration(value: Any) -> bool:
    return is_number(value) and 0 <= value < math.inf


def is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    # JSON's integers may be longer than any number that is computed with.
    return isinstance(value, float) or abs(value) < 1 << 1000


def same(stored: Any, value: Any) -> bool:
    """True for equal JSON values, sums of floats but for their rounding."""
    if isinstance(value, list) and isinstance(stored, list):
        # Lists are compared as objects with numbers for keys: lengths and
        # members in one step.
        return same(dict(enumerate(stored)), dict(enumerate(value)))
    if isinstance(value, dict) and isinstance(stored, dict):
        if stored.keys() != value.keys():
            return False
        return all(same(stored[key], value[key]) for key in value)
    if isinstance(value, float) and is_number(stored):
        return math.isclose(stored, value, rel_tol=1e-9, abs_tol=1e-9)
    # In Python a truth equals a number.
    of_a_kind = isinstance(stored, bool) == isinstance(value, bool)
    return of_a_kind and bool(stored == value)


def _short(value: object) -> str:
    text = str(value)
    if len(text) <= _SHOWN_CHARS:
        return text
    return f"{text[:_SHOWN_CHARS]}…"


# -- the resolved experiment


def experiment(history: History) -> Findings:
    """Name, seed and policy are the run's, and jobs that it lists are those
    that came.
    """
    spec = history.resolved
    if isinstance(spec, str):
        yield _RESOLVED, spec
        return
    started = history.started
    for key, ran in (
        ("name", started.run),
        ("seed", started.seed),
        ("policy", started.policy),
    ):
        if spec.get(key) != ran:
            named = spec.get(key)
            yield _RESOLVED, f"{key} is {named!r}, that of the run {ran!r}"
    for wrong in topology_faults(spec.get("topology"), history.topology):
        yield _RESOLVED, wrong
    yield from _listed_jobs(history, spec.get("jobs"))


def _listed_jobs(history: History, listed: Any) -> Findings:
    if not isinstance(listed, list) or not all(
        isinstance(job, dict) for job in listed
    ):
        yield _RESOLVED, "jobs is not a list of jobs"
    elif listed:
        # An empty list: a trace or a model decides, and is not repeated there.
        yield from _jobs(
            history, {str(job.get("id")): job for job in listed}
        )


def foreign_flows(history: History) -> Findings:
    """A note says whose the flows are of a live run under another controller."""
    app = _controller_app(history)
    notes = history.of_kind(events.FidelityNoted)
    if not any(app in note.reason for note in notes):
        message = (
            f"the flows are those of {app}, and no note on fidelity says so"
        )
        yield _RESOLVED, message


def needs_foreign_flows(history: History) -> str | None:
    """The need for flows of another controller than the testbed's."""
    if history.started.backend == "live" and _controller_app(history):
        return None
    return "no controller but the testbed's"


def _controller_app(history: History) -> str:
    section = history.stated("controller")
    if not isinstance(section, dict):
        return ""
    return str(section.get("app") or section.get("remote", ""))


def _jobs(history: History, listed: dict[str, dict[str, Any]]) -> Findings:
    """Jobs are submitted as specified; with ``after``, and live, possibly later."""
    submitted: set[str] = set()
    for event in history.of_kind(events.JobSubmitted):
        job_id = str(event.job["id"])
        submitted.add(job_id)
        if job_id not in listed:
            yield event, f"{job_id} is none of the jobs of {RESOLVED}"
        for wrong in _otherwise(event.job, listed.get(job_id, {})):
            yield event, f"{job_id}{wrong}"
    if history.status == "completed":
        end = history.of_kind(events.RunEnded)[-1]
        for job_id in listed:
            came = job_id in submitted
            if not came and not _waits_for_ever(history, listed, job_id):
                yield end, f"{job_id} of {RESOLVED} never came"


def _waits_for_ever(
    history: History, listed: Mapping[str, Block], job_id: str
) -> bool:
    """True for a job that follows one which never left, itself or by others.

    A job that its policy never started is ``unfinished`` when the run ends.
    """
    followed: set[str] = set()
    while job_id not in followed:
        # In a damaged file jobs may follow each other in a circle.
        followed.add(job_id)
        job_id = str(listed.get(job_id, {}).get("after"))
        if job_id in history.jobs:
            ended = history.jobs[job_id].first(events.JobEnded)
            return ended is not None and ended.outcome == "unfinished"
    return False


def _otherwise(submitted: Block, listed: Block) -> Iterator[str]:
    for key, asked in listed.items():
        if key == "submit_s" and is_number(asked):
            submit_s = submitted[key]
            if not about(asked, submit_s):
                yield f" comes at {submit_s:.6g} s, in {RESOLVED} at {asked:.6g} s"
        elif key not in submitted or submitted[key] != asked:
            yield f": {key} is {submitted.get(key)!r}, in {RESOLVED} {asked!r}"


@once
def expected(history: History) -> Expectation | None:
    """The ``expect`` block of the resolved experiment; None where unknown."""
    block = history.stated("expect")
    if not isinstance(block, dict) or "applications" not in block:
        # Without it the block is of no version whose rules are known here.
        return None
    # Earlier folders have no bounds on live times, and accept any fidelity.
    stated = {
        "late_above": None,
        "early_below": None,
        "fidelity": None,
        **block,
    }
    try:
        return EXPECTATION.validate_python(stated)
    except ValidationError:
        return None


# -- the verdicts of summary.json


_FROM_TABLE = (
    "ratio",
    "requested_bps",
    "granted_bps",
    "estimate_s",
    "measured_s",
)
_ROW = {"job_id", "application", *_FROM_TABLE, "verdict", "why"}
_BLOCK = {"met", "complaints", "rows"}


def verdicts(history: History) -> Findings:
    """Every job has its verdict, every violation its cause; ``met`` sums up."""
    stored = stored_summary(history)
    expect = expected(history)
    block = stored.get("expectations") if isinstance(stored, dict) else None
    if not isinstance(block, dict) or not _is_block(block):
        yield _SUMMARY, "expectations is missing or damaged"
    elif expect is None:
        yield _RESOLVED, "has no expect: verdicts cannot be passed again"
    else:
        for wrong in _verdict_faults(history, expect, block):
            yield _SUMMARY, wrong


def _verdict_faults(
    history: History, expect: Expectation, block: Block
) -> Iterator[str]:
    due = verdicts_of(history.file, expect, history.claims)
    # As bytes with types: a truth equals a number in Python, and not in JSON.
    stored = dumps(dict(block), BY_VALUE)
    if stored == dumps(due.to_json(), BY_VALUE):
        return
    verdict_of = {verdict.job_id: verdict for verdict in due.rows}
    yield from _matched(block["rows"], verdict_of)
    for row in block["rows"]:
        if row["job_id"] in verdict_of:
            yield from _row_faults(row, verdict_of[row["job_id"]])
    decisive = sorted(
        decisive_verdicts(expect),
        key=("outside", "late", "early", "killed").index,
    )
    outside = [
        f"{row['job_id']}: {row['why']}"
        for row in block["rows"]
        if row["verdict"] in decisive
    ]
    subjects = _subjects_due(history, expect, due)
    yield from _complaint_faults(block["complaints"], outside, subjects)
    yield from _met_faults(block, due, decisive)


def _subjects_due(
    history: History, expect: Expectation, due: Verdicts
) -> list[str]:
    """The subjects of complaints that are not about single jobs."""
    fidelity = history.file.tally.fidelity()
    complaints = other_complaints(
        applicable(expect, fidelity),
        due.rows,
        history.file.rows,
        fidelity,
    )
    return [complaint.subject for complaint in complaints]


def _met_faults(
    block: Block, due: Verdicts, decisive: Sequence[str]
) -> Iterator[str]:
    # `is`: the number 1 is no truth in JSON.
    stated = block["met"]
    n_complaints = len(block["complaints"])
    if stated is not (n_complaints == 0):
        yield f"expectations.met is {stated}, with {n_complaints} complaints"
    n_bad = sum(verdict.verdict in decisive for verdict in due.rows)
    if stated is True and n_bad:
        bad = " or ".join(decisive)
        yield f"expectations.met is True, by the events {n_bad} jobs are {bad}"


def _is_block(block: Block) -> bool:
    rows = block.get("rows")
    complaints = block.get("complaints")
    if block.keys() != _BLOCK:
        return False
    if not isinstance(rows, list) or not isinstance(complaints, list):
        return False
    if not all(isinstance(text, str) for text in complaints):
        return False
    return all(map(_is_row, rows))


def _is_row(row: object) -> bool:
    if not isinstance(row, dict) or row.keys() != _ROW:
        return False
    return isinstance(row["job_id"], str)


def _matched(
    rows: Sequence[Block], verdict_of: Mapping[str, Verdict]
) -> Iterator[str]:
    """One row a job, one job a row."""
    times = Counter(row["job_id"] for row in rows)
    for job_id, n in times.items():
        if job_id not in verdict_of:
            yield f"a verdict on {job_id!r}, never submitted"
        elif n > 1:
            yield f"{n} verdicts on {job_id}"
    for job_id in verdict_of:
        if job_id not in times:
            yield f"no verdict on {job_id}"


def _row_faults(row: Block, due: Verdict) -> Iterator[str]:
    job_id = due.job_id
    for key in _FROM_TABLE:
        value = getattr(due, key)
        if not same(row[key], value):
            at = "at" if key == "ratio" else f"with {key}"
            yield f"{job_id}: judged {at} {row[key]}, by the events {value}"
    application = row["application"]
    if application != due.application:
        yield f"{job_id}: judged as {application!r}, it is of {due.application!r}"
    answer = row["verdict"]
    if answer != due.verdict:
        yield f"{job_id}: the verdict is {answer!r}, by the events {due.verdict!r}"
    if not isinstance(row["why"], str) or not row["why"]:
        yield f"{job_id}: a verdict without a reason"


def _complaint_faults(
    stored: Sequence[str], outside: Sequence[str], subjects: Sequence[str]
) -> Iterator[str]:
    """Those on jobs, word for word as their rows have it, then the others."""
    on_jobs = stored[: len(outside)]
    others = stored[len(outside) :]
    for message, row in zip(on_jobs, outside, strict=False):
        if message != row:
            yield f"complains {message!r}, the row says {row!r}"
    for message, subject in zip(others, subjects, strict=False):
        if subject not in message:
            yield f"complains {message!r}, it is to be about {subject}"
    due = len(outside) + len(subjects)
    if len(stored) != due:
        yield f"complains of {len(stored)} things, there are {due}"


def work_conserving(history: History) -> Findings:
    """No job whose reservation was to be kept is late.

    Bandwidth that is lent only makes it end earlier. A file that accepts an
    invalid emulation accepts late jobs.
    """
    expect = expected(history)
    if expect is None or expect.fidelity == "invalid":
        return
    for row in history.file.rows:
        if by_reservation(expect, row)[0] == "late":
            yield _late(history, row)


def _late(history: History, row: JobRow) -> tuple[Place, str]:
    ended = history.jobs[row.job_id].all(events.JobEnded)[-1]
    return (
        ended,
        f"{row.job_id}: measured/estimate {row.ratio:.4f}, its reservation was lent",
    )
