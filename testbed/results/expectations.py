"""What an experiment expects of its results, and whether it came true: decides exit code 1.

Plain values: the experiment file's ``expect`` block is turned into an :class:`Expectation` where
files are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from testbed.results.metrics import Fidelity, JobRow

Answer = Literal["ok", "outside", "open"]
"""``open``: nothing was expected of this job."""


@dataclass(frozen=True)
class Band:
    """A closed interval; None is no limit on that side."""

    min: float | None = None
    max: float | None = None

    def holds(self, value: float) -> bool:
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)

    def __str__(self) -> str:
        if self.min is not None and self.max is not None:
            return f"{self.min:g}–{self.max:g}"
        if self.min is not None:
            return f"at least {self.min:g}"
        return "anything" if self.max is None else f"at most {self.max:g}"


@dataclass(frozen=True)
class ApplicationExpectation:
    """What is expected of one application's jobs.

    ``estimate_ratio`` takes the place of the global band; ``scaled_down_below``: the ratio stays
    under this wherever less bandwidth was granted than asked for.
    """

    estimate_ratio: Band | None = None
    scaled_down_below: float | None = None


@dataclass(frozen=True)
class Expectation:
    """The ``expect`` block. ``fidelity``: the worst verdict that is still accepted; None: any."""

    estimate_ratio: Band | None = None
    applications: Mapping[str, ApplicationExpectation] = field(default_factory=dict)
    fidelity: Literal["ok", "suspect", "invalid"] | None = None

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Expectation:
        """From its ``dataclasses.asdict`` form, as ``spec.resolved.json`` holds it."""
        return cls(
            _band(record.get("estimate_ratio")),
            {
                name: ApplicationExpectation(
                    _band(own.get("estimate_ratio")), own.get("scaled_down_below")
                )
                for name, own in (record.get("applications") or {}).items()
            },
            record.get("fidelity"),
        )


def _band(record: Mapping[str, float | None] | None) -> Band | None:
    return None if record is None else Band(record.get("min"), record.get("max"))


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
    """The inverse of :meth:`Verdicts.to_json`; raises TypeError or KeyError where it is not one."""
    rows = tuple(Verdict(**row) for row in record["rows"])
    return Verdicts(rows, tuple(str(text) for text in record["complaints"]))


def evaluate(expect: Expectation, rows: Iterable[JobRow], fidelity: Fidelity) -> Verdicts:
    """Every job against the band that applies to it; then fidelity, then names that match nothing.

    A job that was to be judged and has no measured time is outside: silence proves nothing. Only
    what a policy rejected stays open, unless its application is named or the policy is a script.
    """
    judged = tuple(_judge(expect, row) for row in rows)
    complaints = [f"{v.job_id}: {v.why}" for v in judged if v.verdict == "outside"]
    complaints += _fidelity_complaints(expect, fidelity)
    complaints += _unmatched(expect, judged)
    if expect.estimate_ratio is not None and all(v.verdict == "open" for v in judged):
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


_ORDER = ("ok", "suspect", "invalid")


def _fidelity_complaints(expect: Expectation, fidelity: Fidelity) -> list[str]:
    if expect.fidelity is None or fidelity.verdict is None:
        return []
    if _ORDER.index(fidelity.verdict) <= _ORDER.index(expect.fidelity):
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
