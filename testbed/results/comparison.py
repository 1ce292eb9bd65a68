"""Two runs of the same jobs beside each other: their decisions, their jobs' ends, their metrics.

A *decision* is what a policy did to a job, without the time at which it did it: rejected, reserved
(where, at what rate), started, rescaled, preempted, resumed, migrated, moved to the other tier,
killed. Runs on two backends differ in times by what the backend adds, so decisions are compared in
order, and times job by job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from testbed import events
from testbed.errors import BadInput
from testbed.results.metrics import JobRow, Spread, Summary, spread
from testbed.results.reading import Run, policy_folders, policy_of


@dataclass(frozen=True)
class Decision:
    """One thing done to one job. ``what`` holds everything but the time."""

    at_s: float
    job_id: str
    name: str
    what: tuple[tuple[str, Any], ...]

    @property
    def same_as(self) -> tuple[object, ...]:
        return (self.job_id, self.name, self.what)

    def __str__(self) -> str:
        what = ", ".join(f"{key} {value}" for key, value in self.what)
        return f"{self.job_id} {self.name}" + (f" ({what})" if what else "")

    def to_json(self) -> dict[str, Any]:
        known = {"t": self.at_s, "job_id": self.job_id, "decision": self.name}
        return {**known, **dict(self.what)}


@dataclass(frozen=True)
class Difference:
    """The first place, counted from 1, in which the runs' decisions differ; None: it has none."""

    place: int
    first: Decision | None
    second: Decision | None


@dataclass(frozen=True)
class JobPair:
    """One job in both runs. ``completion_difference``: (second - first) / first running time."""

    job_id: str
    outcomes: tuple[str, str]
    measured_s: tuple[float | None, float | None]
    end_s: tuple[float | None, float | None]
    completion_difference: float | None


@dataclass(frozen=True)
class Comparison:
    """Everything :func:`compare` finds. ``only_in``: jobs that one of the runs does not know."""

    names: tuple[str, ...]
    summaries: tuple[Summary, Summary]
    n_decisions: tuple[int, int]
    difference: Difference | None
    jobs: tuple[JobPair, ...]
    only_in: tuple[tuple[str, ...], tuple[str, ...]]
    completion: Spread | None
    accepted_differ: tuple[str, ...]

    @property
    def success_points(self) -> float | None:
        """Second success rate less the first, in percentage points."""
        one, two = (summary.success_rate for summary in self.summaries)
        return None if one is None or two is None else 100 * (two - one)

    @property
    def same_decisions(self) -> bool:
        return self.difference is None

    def sentences(self) -> list[str]:
        """Equal decisions or the first difference, and how far results are apart."""
        one, two = self.n_decisions
        part = self.difference
        if part is None:
            lines = [f"all {one} decisions are the same"]
        else:
            lines = [f"decision {part.place} (of {one} and {two}) is the first that differs:"]
            for name, decision in zip(self.names, (part.first, part.second), strict=True):
                message = (
                    "none any more" if decision is None else f"{decision.at_s:.2f} s: {decision}"
                )
                lines.append(f"  {name}: {message}")
        if self.accepted_differ:
            lines.append(f"rejected in one run alone: {', '.join(self.accepted_differ)}")
        for name, alone in zip(self.names, self.only_in, strict=True):
            if alone:
                lines.append(f"only in {name}: {', '.join(alone)}")
        if self.completion is not None:
            median, most = self.completion.median, self.completion.max
            lines.append(f"completion times differ by {median:.2%} (median), {most:.2%} at most")
        if self.success_points is not None:
            lines.append(f"success rates differ by {self.success_points:+.1f} points")
        return lines

    def to_json(self) -> dict[str, Any]:
        found = self.difference
        both = [summary.to_json() for summary in self.summaries]
        metrics = {key: [own[key] for own in both] for key in both[0]}
        apart = {key: metrics.pop(key) for key in ("estimate_ratio", "iperf3_ratio", "fidelity")}
        return {
            "runs": list(self.names),
            "decisions": list(self.n_decisions),
            "same_decisions": self.same_decisions,
            "first_difference": found
            and {
                "place": found.place,
                "first": found.first and found.first.to_json(),
                "second": found.second and found.second.to_json(),
            },
            "accepted_differ": list(self.accepted_differ),
            "only_in": [list(names) for names in self.only_in],
            "success_points": self.success_points,
            "completion_difference": self.completion and asdict(self.completion),
            "jobs": [asdict(pair) for pair in self.jobs],
            "metrics": metrics,
            **apart,
        }


def decisions(history: Iterable[events.Event]) -> list[Decision]:
    """Decisions in order. A job that ended by itself was not ended by a decision."""
    return [decided for decided in map(_decision, history) if decided is not None]


_KEPT: dict[type[events.Event], tuple[str, ...]] = {
    events.JobReserved: ("rate_bps", "root", "vms_on", "tier"),
    events.JobStarted: ("rate_bps", "tier"),
    events.JobRescaled: ("rate_bps",),
    events.JobPreempted: (),
    events.JobResumed: ("tier", "cost_s"),
    events.JobMigrated: ("root", "vms_on", "tier", "cost_s"),
    events.JobTierSwitched: ("tier",),
    events.JobRerooted: ("root",),
    events.JobCut: (),
    events.JobReconnected: (),
    events.JobRequeued: (),
}


def _decision(event: events.Event) -> Decision | None:
    if isinstance(event, events.JobEnded):
        # A kill by the policy or its reservation; a backend's own has a detail.
        decided = event.outcome == "killed" and not event.detail
        if event.outcome != "rejected" and not decided:
            return None
        return Decision(event.t, event.job_id, event.outcome, ())
    kept = _KEPT.get(type(event))
    if kept is None:
        return None
    record = event.to_json()
    what = tuple((key, _plain(record[key])) for key in kept)
    return Decision(event.t, record["job_id"], event.name.removeprefix("job_"), what)


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, list) else value


def first_difference(first: Sequence[Decision], second: Sequence[Decision]) -> Difference | None:
    """Where the two sequences part; None where they do not. O(n)."""
    for place, (one, two) in enumerate(zip_longest(first, second), 1):
        if one is None or two is None or one.same_as != two.same_as:
            return Difference(place, one, two)
    return None


def compare(first: Run, second: Run) -> Comparison:
    """Two runs of the same jobs on different backends or by different policies."""
    decided = [decisions(run.file.events) for run in (first, second)]
    rows = [{row.job_id: row for row in run.rows} for run in (first, second)]
    both = [job_id for job_id in rows[0] if job_id in rows[1]]
    pairs = tuple(_pair(rows[0][job_id], rows[1][job_id]) for job_id in both)
    away = [abs(p.completion_difference) for p in pairs if p.completion_difference is not None]
    return Comparison(
        names=tuple(f"{run.started.policy}, {run.started.backend}" for run in (first, second)),
        summaries=(first.summary, second.summary),
        n_decisions=(len(decided[0]), len(decided[1])),
        difference=first_difference(*decided),
        jobs=pairs,
        only_in=(_without(rows[0], rows[1]), _without(rows[1], rows[0])),
        completion=spread(away),
        accepted_differ=tuple(
            p.job_id for p in pairs if ("rejected" in p.outcomes) and len(set(p.outcomes)) == 2
        ),
    )


def _without(own: Iterable[str], others: Collection[str]) -> tuple[str, ...]:
    return tuple(job_id for job_id in own if job_id not in others)


def _pair(one: JobRow, two: JobRow) -> JobPair:
    difference = None
    if one.outcome == two.outcome == "finished" and one.measured_s and two.measured_s:
        difference = (two.measured_s - one.measured_s) / one.measured_s
    measured_s, end_s = (one.measured_s, two.measured_s), (one.end_s, two.end_s)
    return JobPair(one.job_id, (one.outcome, two.outcome), measured_s, end_s, difference)


# -- folders of several policies


def paired_folders(first: Path, second: Path) -> list[tuple[Path, Path]]:
    """The folders to compare: those of one policy each, or of the policies both have."""
    ones, twos = policy_folders(first), policy_folders(second)
    if len(ones) == len(twos) == 1:
        return [(ones[0], twos[0])]
    left = _by_policy(twos)
    pairs = [
        # A policy that stands in both files twice is compared in order.
        (path, left[policy].pop(0))
        for policy, own in _by_policy(ones).items()
        for path in own
        if left.get(policy)
    ]
    if not pairs:
        raise BadInput(
            f"{first} and {second} have no policy in common",
            f"name one policy's folder of each, as {ones[0]} {twos[0]}",
        )
    return pairs


def _by_policy(folders: list[Path]) -> dict[str, list[Path]]:
    """Folders by the policy that ran; without those that were killed before their first line."""
    found: dict[str, list[Path]] = {}
    for folder in folders:
        policy = policy_of(folder)
        if policy is not None:
            found.setdefault(policy, []).append(folder)
    return found
