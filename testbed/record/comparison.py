"""Two runs of the same jobs beside each other: their decisions, their jobs'
ends, their metrics.

A *decision* is what a policy did to a job, without the time at which it did it:
rejected, reserved (where, at what rate), started, rescaled, preempted, resumed,
migrated, moved to the other tier, killed. Runs on two backends differ in times
by what the backend adds, so decisions are compared in order, and times job by
job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from operator import attrgetter
from pathlib import Path
from typing import Any

from testbed import events
from testbed.errors import BadInput
from testbed.record.folder import is_a_runs
from testbed.record.metrics import (
    LIVE,
    JobRow,
    Spread,
    Summary,
    present,
    spread,
)
from testbed.record.reading import RecordedRun, policy_folders, policy_of


@dataclass(frozen=True)
class Decision:
    """One thing done to one job. ``what`` holds everything but the time."""

    at_s: float
    job_id: str
    name: str
    what: tuple[tuple[str, Any], ...]

    @property
    def same_as(self) -> tuple[object, ...]:
        return self.job_id, self.name, self.what

    def to_json(self) -> dict[str, Any]:
        known = {
            "t": self.at_s,
            "job_id": self.job_id,
            "decision": self.name,
        }
        return {**known, **dict(self.what)}


@dataclass(frozen=True)
class Difference:
    """The first place, counted from 1, in which the runs' decisions differ.

    ``first`` or ``second`` is None where that run has no more decisions.
    """

    place: int
    first: Decision | None
    second: Decision | None

    def to_json(self) -> dict[str, Any]:
        return {
            "place": self.place,
            "first": self.first and self.first.to_json(),
            "second": self.second and self.second.to_json(),
        }


@dataclass(frozen=True)
class JobPair:
    """One job in both runs. ``completion_difference``: (second - first) / first
    running time; ``later_s``: end in the second less end in the first.
    """

    job_id: str
    outcomes: tuple[str, str]
    start_s: tuple[float | None, float | None]
    measured_s: tuple[float | None, float | None]
    end_s: tuple[float | None, float | None]
    completion_difference: float | None
    later_s: float | None

    @property
    def accepted_differs(self) -> bool:
        """True for a job that was rejected in one of the runs alone."""
        first, second = self.outcomes
        return (first == "rejected") != (second == "rejected")


@dataclass(frozen=True)
class PolicyComparison:
    """Everything :func:`compare_runs` finds.

    ``only_in``: jobs that one of the runs does not know. ``other_requests``:
    names of jobs that ask for something else in the second run. ``moved``: where
    the decisions are the same, the one whose times differ most, in both runs.
    """

    names: tuple[str, ...]
    summaries: tuple[Summary, Summary]
    n_decisions: tuple[int, int]
    difference: Difference | None
    jobs: tuple[JobPair, ...]
    only_in: tuple[tuple[str, ...], tuple[str, ...]]
    completion: Spread | None
    accepted_differ: tuple[str, ...]
    other_requests: tuple[str, ...] = ()
    moved: tuple[Decision, Decision] | None = None

    def both(self, metric: str) -> tuple[Any, Any]:
        """A metric of both runs, by its name in ``summary.json``."""
        first, second = self.summaries
        return getattr(first, metric), getattr(second, metric)

    @property
    def success_points(self) -> float | None:
        """Second success rate less the first, in percentage points."""
        first, second = (summary.success_rate for summary in self.summaries)
        if first is None or second is None:
            return None
        return 100 * (second - first)

    @property
    def same_decisions(self) -> bool:
        return self.difference is None

    def to_json(self) -> dict[str, Any]:
        first, second = (summary.to_json() for summary in self.summaries)
        metrics = {key: [first[key], second[key]] for key in first}
        apart = {key: metrics.pop(key) for key in _APART}
        difference = self.difference
        completion = self.completion
        return {
            "runs": list(self.names),
            "decisions": list(self.n_decisions),
            "same_decisions": self.same_decisions,
            "first_difference": difference and difference.to_json(),
            "accepted_differ": list(self.accepted_differ),
            "only_in": list(map(list, self.only_in)),
            "other_requests": list(self.other_requests),
            "success_points": self.success_points,
            "completion_difference": completion and asdict(completion),
            "jobs": list(map(asdict, self.jobs)),
            "metrics": metrics,
            **apart,
        }


SAME_TIME_S = 0.005
"""Times that are printed alike, in hundredths of a second, are the same."""
_APART = ("estimate_ratio", "iperf3_ratio", "fidelity")
"""Keys of a summary that are no single number."""


def _most_moved(
    first: Sequence[Decision],
    second: Sequence[Decision],
) -> tuple[Decision, Decision] | None:
    """The same decision in both, where its times differ most; None where none
    does by more than sums of floats do.
    """
    pairs = zip(first, second, strict=True)
    most = max(pairs, key=_apart_s, default=None)
    if most is not None and _apart_s(most) > SAME_TIME_S:
        return most
    return None


def _apart_s(pair: tuple[Decision, Decision]) -> float:
    return abs(pair[0].at_s - pair[1].at_s)


def decisions(history: Iterable[events.Event]) -> list[Decision]:
    """Decisions in order. The end of a job that ended by itself is none."""
    return list(filter(None, map(_decision, history)))


_KEPT: dict[type[events.Event], tuple[str, ...]] = {
    events.JobReserved: ("rate_bps", "root", "vms_on", "tier"),
    events.JobStarted: ("rate_bps", "tier"),
    events.JobRescaled: ("rate_bps",),
    events.JobShortened: (),
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
    # Lists become tuples, so that decisions can be compared as a whole.
    record = event.to_json()
    what = tuple((key, _plain(record[key])) for key in kept)
    return Decision(
        event.t,
        record["job_id"],
        event.name.removeprefix("job_"),
        what,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return value


def first_difference(
    first: Sequence[Decision],
    second: Sequence[Decision],
) -> Difference | None:
    """The first place at which two sequences differ; None without one. O(n)."""
    pairs = zip_longest(first, second)
    for place, (of_first, of_second) in enumerate(pairs, 1):
        if (
            of_first is None
            or of_second is None
            or of_first.same_as != of_second.same_as
        ):
            return Difference(place, of_first, of_second)
    return None


def compare_runs(
    first: RecordedRun, second: RecordedRun
) -> PolicyComparison:
    """Two runs of the same jobs on different backends or by different policies."""
    of_first = decisions(first.file.events)
    of_second = decisions(second.file.events)
    first_rows = {row.job_id: row for row in first.rows}
    second_rows = {row.job_id: row for row in second.rows}
    is_live = LIVE in (first.started.backend, second.started.backend)
    pairs = []
    other_requests = []
    for job_id, row in first_rows.items():
        if job_id in second_rows:
            other = second_rows[job_id]
            pairs.append(_pair(row, other))
            if _asks_other(row, other, is_live=is_live):
                other_requests.append(job_id)
    apart = present(pair.completion_difference for pair in pairs)
    difference = first_difference(of_first, of_second)
    # Decisions that are the same may be made at other times.
    moved = None
    if difference is None:
        moved = _most_moved(of_first, of_second)
    return PolicyComparison(
        names=_names(first, second),
        summaries=(first.summary, second.summary),
        n_decisions=(len(of_first), len(of_second)),
        difference=difference,
        jobs=tuple(pairs),
        only_in=(
            _without(first_rows, second_rows),
            _without(second_rows, first_rows),
        ),
        completion=spread(map(abs, apart)),
        accepted_differ=tuple(
            pair.job_id for pair in pairs if pair.accepted_differs
        ),
        other_requests=tuple(other_requests),
        moved=moved,
    )


def _asks_other(first: JobRow, second: JobRow, *, is_live: bool) -> bool:
    """True where a name stands for two different jobs."""
    if _request(first) != _request(second):
        return True
    # A live run submits a job when its clock says so.
    return (
        not is_live and abs(first.submit_s - second.submit_s) > SAME_TIME_S
    )


_request = attrgetter(
    "kind", "n_vms", "requested_bps", "duration_s", "deadline_s"
)


def _names(first: RecordedRun, second: RecordedRun) -> tuple[str, str]:
    """Policy and backend of each; of two alike the seeds too, or the folders."""
    if _name(first) != _name(second) or first.path == second.path:
        return _name(first), _name(second)
    details = zip(_details(first), _details(second), strict=True)
    for of_first, of_second in details:
        if of_first != of_second:
            return _name(first, of_first), _name(second, of_second)
    return _name(first), _name(second)


_BACKENDS = {"sim": "simulated", "replay": "replayed"}


def _name(run: RecordedRun, detail: str = "") -> str:
    """``vc (simulated)``, ``vc (live, seed 3)``."""
    backend = run.started.backend
    kind = _BACKENDS.get(backend, backend)
    if detail:
        kind += f", {detail}"
    return f"{run.started.policy} ({kind})"


def _details(run: RecordedRun) -> tuple[str, str, str]:
    """A run's seed, the name of its folder, and its path.

    The path is that of the policy's folder. It alone tells apart runs that
    began in the same second, in two folders.
    """
    path = str(run.path)
    name = run.path.name
    if not is_a_runs(name):
        name = run.path.parent.name or path
    return f"seed {run.started.seed}", name, path


def _without(
    jobs: Iterable[str], others: Collection[str]
) -> tuple[str, ...]:
    return tuple(job_id for job_id in jobs if job_id not in others)


def _pair(first: JobRow, second: JobRow) -> JobPair:
    difference = None
    # A time until a kill says nothing of the work.
    finished = first.outcome == second.outcome == "finished"
    if finished and first.measured_s and second.measured_s:
        difference = (
            second.measured_s - first.measured_s
        ) / first.measured_s
    later_s = None
    if finished and first.end_s is not None and second.end_s is not None:
        later_s = second.end_s - first.end_s
    return JobPair(
        first.job_id,
        outcomes=(first.outcome, second.outcome),
        start_s=(first.start_s, second.start_s),
        measured_s=(first.measured_s, second.measured_s),
        end_s=(first.end_s, second.end_s),
        completion_difference=difference,
        later_s=later_s,
    )


# -- folders of several policies


def paired_folders(first: Path, second: Path) -> list[tuple[Path, Path]]:
    """The folders to compare: those of one policy each, or of the policies both
    have.
    """
    of_first = policy_folders(first)
    of_second = policy_folders(second)
    # With one policy on each side there is no doubt what is meant, whatever
    # they are called.
    if len(of_first) == len(of_second) == 1:
        return [(of_first[0], of_second[0])]
    left = _by_policy(of_second)
    pairs: list[tuple[Path, Path]] = []
    for policy, paths in _by_policy(of_first).items():
        # A policy that stands in both files twice is compared in order.
        pairs += zip(paths, left.get(policy, []), strict=False)
    if not pairs:
        raise BadInput(
            f"{first} and {second} have no policy in common",
            f"name one policy's folder of each, as {of_first[0]} {of_second[0]}",
        )
    return pairs


def _by_policy(folders: list[Path]) -> dict[str, list[Path]]:
    """Folders by the policy that ran; without those that were killed before
    their first line.
    """
    by_policy: dict[str, list[Path]] = {}
    for folder in folders:
        policy = policy_of(folder)
        if policy is not None:
            by_policy.setdefault(policy, []).append(folder)
    return by_policy
