"""Whether what an experiment expects of its results came true: decides exit code 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from testbed.results.metrics import Fidelity
from testbed.results.rows import JobRow
from testbed.results.shape import require_all
from testbed.spec.expectation import ApplicationExpectation, Band, Expectation

__all__ = [
    "Answer",
    "ApplicationExpectation",
    "Band",
    "Expectation",
    "Verdict",
    "Verdicts",
    "evaluate",
    "verdicts_from_json",
]

Answer = Literal["ok", "outside", "open"]
"""``open``: nothing was expected of this job."""


@dataclass(frozen=True)
class Verdict:
    """One job against what was expected of it; ``why`` says it in words."""

    job_id: str
    application: str
    requested_bps: int
    granted_bps: int | None
    estimate_s: float | None
    measured_s: float | None
    ratio: float | None
    verdict: Answer
    why: str


@dataclass(frozen=True)
class Verdicts:
    """All of them, and what else was expected. ``met`` decides the exit code."""

    rows: tuple[Verdict, ...]
    complaints: tuple[str, ...]

    @property
    def met(self) -> bool:
        return not self.complaints

    @property
    def judged(self) -> bool:
        """Whether anything was expected of any job."""
        return any(row.verdict != "open" for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """The ``expectations`` of ``summary.json``."""
        return {
            "met": self.met,
            "complaints": list(self.complaints),
            "rows": [asdict(row) for row in self.rows],
        }


def verdicts_from_json(record: Mapping[str, Any]) -> Verdicts:
    """The inverse of :meth:`Verdicts.to_json`; raises ValueError where it is not one."""
    require_all("expectations", record, _VERDICTS_FIELDS)
    rows = tuple(_verdict_from_json(row) for row in record["rows"])
    return Verdicts(rows, tuple(record["complaints"]))


_VERDICTS_FIELDS = {"rows": "list[dict[str, Any]]", "complaints": "list[str]"}
_VERDICT_FIELDS = {f.name: "str" if f.type == "Answer" else str(f.type) for f in fields(Verdict)}


def _verdict_from_json(record: Mapping[str, Any]) -> Verdict:
    require_all("expectations.rows", record, _VERDICT_FIELDS)
    if record["verdict"] not in get_args(Answer):
        raise ValueError(f"expectations.rows: verdict is {record['verdict']!r}")
    return Verdict(**{name: record[name] for name in _VERDICT_FIELDS})


def evaluate(expect: Expectation, rows: Iterable[JobRow], fidelity: Fidelity) -> Verdicts:
    """Every job against the band that applies to it; then fidelity, then names that match nothing.

    A job that was to be judged and has no measured time is outside: silence proves nothing. Only
    what a policy rejected stays open, unless its application is named or the policy is a script,
    and what it started without a promise: a best-effort job has no estimate to be held against.
    """
    rows = tuple(rows)
    judged = tuple(_judge(expect, row) for row in rows)
    complaints = [f"{v.job_id}: {v.why}" for v in judged if v.verdict == "outside"]
    complaints += _fidelity_complaints(expect, fidelity)
    complaints += _unmatched(expect, judged)
    promised = not any(_best_effort(row) for row in rows)
    if promised and expect.estimate_ratio and all(v.verdict == "open" for v in judged):
        complaints.append("an estimate ratio is expected, but no job came to have one")
    return Verdicts(judged, tuple(complaints))


def _judge(expect: Expectation, row: JobRow) -> Verdict:
    own = expect.applications.get(row.application or "")
    band = own.estimate_ratio if own and own.estimate_ratio else expect.estimate_ratio
    below = own.scaled_down_below if own else None
    # A policy may reject; a script, and an application named in the file, were to run.
    must_run = own is not None or row.policy == "scripted"
    if row.outcome == "rejected" and not must_run:
        answer, why = _open(f"rejected: {row.reason}")
    elif _best_effort(row) and not must_run:
        answer, why = _open("best effort: nothing was promised")
    else:
        answer, why = _answer(row, band, below)
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
    """Started on a network without reservations (BL, PS-P)."""
    return row.start_s is not None and row.estimate_s is None


def _open(why: str) -> tuple[Answer, str]:
    return "open", why


def _answer(row: JobRow, band: Band | None, below: float | None) -> tuple[Answer, str]:
    scaled_down = row.granted_bps is not None and row.granted_bps < row.requested_bps
    if band is None and (below is None or not (scaled_down or row.granted_bps is None)):
        return _open("nothing expected")
    if row.ratio is None:
        reason = f" ({row.reason})" if row.reason else ""
        return "outside", f"no measured time: {row.outcome}{reason}"
    if band is not None and not band.holds(row.ratio):
        return "outside", f"measured/estimate {row.ratio:.4f}, expected {band}"
    if below is None or not scaled_down:
        return "ok", f"{band}, as expected"
    if row.ratio >= below:
        expected = f"expected below {below:g} when scaled down"
        return "outside", f"measured/estimate {row.ratio:.4f}, {expected}"
    return "ok", f"below {below:g}, as expected when scaled down"


_BADNESS = {"ok": 0, "suspect": 1}
_WORST = 2


def _fidelity_complaints(expect: Expectation, fidelity: Fidelity) -> list[str]:
    if expect.fidelity is None or fidelity.verdict is None:
        return []
    badness, accepted = (_BADNESS.get(v, _WORST) for v in (fidelity.verdict, expect.fidelity))
    if badness <= accepted:
        return []
    reasons = "; ".join(fidelity.reasons) or "no reason given"
    return [f"fidelity is {fidelity.verdict}, expected {expect.fidelity}: {reasons}"]


def _unmatched(expect: Expectation, judged: Sequence[Verdict]) -> list[str]:
    """An expectation about an application that never ran must not pass in silence."""
    seen = {v.application for v in judged}
    return [
        f"application {name!r} is expected, but no job has that name"
        for name in expect.applications
        if name not in seen
    ]
