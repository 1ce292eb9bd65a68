"""A policy's place among the testbed's own, on three workloads; all policies play
the same jobs.

Each run is a task of the sweeps' executor on this machine's processors; a value
of the tables is the mean over the seeds, with a 95 % interval where there are
several.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from testbed.errors import RunFailed
from testbed.play.playing import play, simulated
from testbed.policy_trials.policy_cases import Case, Entry
from testbed.policy_trials.timed_policy import TimedPolicy
from testbed.record.metrics import Tally
from testbed.schedulers.policy import PolicyKind
from testbed.schedulers.registry import own_policies
from testbed.spec.experiment import PolicySpec
from testbed.spec.experiment_file import parse_experiment
from testbed.sweeps.cluster import executor
from testbed.sweeps.intervals import Estimate, estimate
from testbed.sweeps.tasks import Context, FileRef, Outcome

MOST_DECISIONS = 200_000
"""A run of a few hundred jobs that makes more does not end."""
SEEDS = (1, 2, 3, 4, 5)
QUICK_SEEDS = (1,)
NO_RIVALS = ("scripted",)
"""Policies that decide nothing themselves."""


@dataclass(frozen=True)
class Workload:
    """One of the three workloads: its name in words, and its case but for the
    seed.
    """

    says: str
    case: Case


_LINKS = ["4 Gbit/s", "2 Gbit/s", "1 Gbit/s"]
_TREE = {
    "kind": "tree",
    "fanout": [3, 4, 4],
    "links": _LINKS,
    "slots_per_server": 4,
}
_FAT_TREE = {
    "kind": "fat-tree",
    "k": 4,
    "links": "1 Gbit/s",
    "slots_per_server": 4,
}
_HOSES = {
    "vms": {"mean": 12, "sigma": 6},
    "bandwidth": {"mean": "200 Mbit/s", "sigma": "80 Mbit/s"},
}
_CLUSTER = {
    "kind": "flat",
    "nodes": 10,
    "slots_per_server": 6,
    "memory_per_server": "11520 MiB",
}


def _on_nodes(
    says: str, nodes: int, kind: str, **workload: Any
) -> Workload:
    flat = {"kind": "flat", "nodes": nodes}
    return Workload(
        says, Case(kind, flat, {"kind": kind, "jobs": 300, **workload})
    )


def _leases(says: str, name: str, **workload: Any) -> Workload:
    return Workload(
        says,
        Case(name, _CLUSTER, {"kind": "leases", "jobs": 200, **workload}),
    )


HOSES = (
    Workload(
        "tenants with deadlines on a tree, as in DCloud",
        Case(
            "tenants",
            _TREE,
            {"kind": "poisson", "per_hour": 20, "hours": "8 h", **_HOSES},
        ),
    ),
    Workload(
        "parallel jobs of Feitelson's model on a fat-tree",
        Case(
            "parallel",
            _FAT_TREE,
            {"kind": "feitelson", "jobs": 150, "largest": 32, "load": 1.6},
        ),
    ),
    Workload(
        "a batch with deadlines on a tree",
        Case("batch", _TREE, {"kind": "batch", "jobs": 60, **_HOSES}),
    ),
)
NODES = (
    _on_nodes(
        "parallel jobs of Feitelson's model on nodes",
        64,
        "feitelson",
        largest=64,
        load=0.8,
    ),
    _on_nodes(
        "parallel jobs of Jann's model on nodes",
        64,
        "jann",
        largest=64,
        load=0.8,
    ),
    _on_nodes(
        "short and long jobs of uniform sizes on nodes",
        32,
        "exponential",
        mean_vms=8,
        load=0.9,
    ),
)
LEASES = (
    _leases("leases of the main mix", "main", mix="main", load=0.8),
    _leases(
        "as many leases of each type, more than there is room for",
        "equal",
        mix="equal",
        load=1.2,
    ),
    _leases(
        "best-effort leases alone",
        "best-effort",
        advance="0 %",
        immediate="0 %",
        load=1.0,
    ),
)


def workloads_of(
    kind: PolicyKind, families: Sequence[str]
) -> tuple[Workload, ...]:
    """The three workloads for a policy that plays those families of cases."""
    if kind.leases:
        return LEASES
    if "tree" in families:
        return HOSES
    return NODES


# -- runs ----------------------------------------------------------------------

OF_SUMMARY = (
    "finished",
    "success_rate",
    "wait_mean_s",
    "bounded_slowdown_mean",
    "vm_utilisation",
)
METRICS = (*OF_SUMMARY, "makespan_s", "decision_ms")


@dataclass(frozen=True)
class StandingTask:
    """A run of the tables, for an executor; ``text`` is an experiment of one
    policy.
    """

    key: str
    text: str
    live = False

    @property
    def files(self) -> Mapping[str, FileRef]:
        return {}

    def run(self, context: Context) -> Mapping[str, Any]:
        """Simulates it. Raises RunFailed with the policy's fault; its row says
        so.
        """
        del context  # it reads no file
        experiment = parse_experiment(self.text, Path("policy check"))
        [policy] = experiment.policies
        tally = Tally()
        decided_s = list[float]()
        try:
            play(
                experiment,
                policy,
                simulated(experiment, policy),
                sink=tally,
                around=lambda built: TimedPolicy(
                    built, decided_s, MOST_DECISIONS
                ),
            )
        except Exception as error:
            raise RunFailed(str(error) or type(error).__name__) from error
        summary = tally.summary()
        result = {
            "started": any(row.start_s is not None for row in tally.rows()),
            "makespan_s": summary.span_s,
            "decision_ms": 1e3 * mean(decided_s) if decided_s else None,
        }
        for name in OF_SUMMARY:
            result[name] = getattr(summary, name)
        return {"result": result}


@dataclass(frozen=True)
class Row:
    """A policy's line of a table; ``own``: it is the policy under check."""

    policy: str
    own: bool
    metrics: Mapping[str, Estimate | None]
    failed: str | None = None

    def to_json(self) -> dict[str, Any]:
        metrics: dict[str, Any] = {}
        for name, value in self.metrics.items():
            metrics[name] = None
            if value is not None:
                metrics[name] = {
                    "mean": value.mean,
                    "half": value.half_width,
                }
        return {**vars(self), "metrics": metrics}


@dataclass(frozen=True)
class Standing:
    """One workload's table: best success rate first, then least slowdown.

    ``text``: the experiment of the policy under check, with one seed.
    """

    workload: str
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]
    text: str

    def to_json(self) -> dict[str, Any]:
        rows = [row.to_json() for row in self.rows]
        return {
            "workload": self.workload,
            "seeds": list(self.seeds),
            "rows": rows,
        }


def rivals(kind: PolicyKind) -> list[Entry]:
    """The testbed's own policies that may play what a policy of that kind
    plays.
    """
    return [
        {"name": name}
        for name, other in own_policies().items()
        if other.leases == kind.leases and name not in NO_RIVALS
    ]


@dataclass
class Contest:
    """All runs of the tables: of the policy under check, ``entry``, and its rivals."""

    entry: Entry
    spec: PolicySpec
    families: Sequence[str]
    seeds: tuple[int, ...] = SEEDS

    def __post_init__(self) -> None:
        plain = self.spec.plugin is None and not self.spec.parameters
        # A policy of the testbed's own without parameters would be its own
        # rival.
        others = [
            rival
            for rival in rivals(self.spec.kind)
            if not plain or rival != {"name": self.spec.name}
        ]
        self.workloads = workloads_of(self.spec.kind, self.families)
        self.entries = [self.entry, *others]
        self._outcomes: dict[str, Outcome] = {}

    @property
    def n_runs(self) -> int:
        return len(self.workloads) * len(self.entries) * len(self.seeds)

    def run(self, say: Callable[[str], None]) -> Iterator[None]:
        """Plays all runs on this machine's processors; yields as each one ends."""
        processors = len(os.sched_getaffinity(0))
        with executor(None, processors, say) as workers:
            for task, outcome in workers.results(self._tasks()):
                self._outcomes[task.key] = outcome
                yield

    def _tasks(self) -> Iterator[StandingTask]:
        for workload in self.workloads:
            for number, entry in enumerate(self.entries):
                for seed in self.seeds:
                    case = replace(workload.case, seed=seed)
                    key = _key(workload, number, seed)
                    yield StandingTask(key, case.text(entry))

    def tables(self) -> list[Standing]:
        """A table for each workload. To be called after :meth:`run` has ended."""
        return list(map(self._table, self.workloads))

    def _table(self, workload: Workload) -> Standing:
        rows = []
        for number, entry in enumerate(self.entries):
            keys = [_key(workload, number, seed) for seed in self.seeds]
            outcomes = [self._outcomes[key] for key in keys]
            is_subject = entry is self.entry
            name = self.spec.label if is_subject else str(entry["name"])
            # A workload is not for a rival that starts none of its jobs.
            if is_subject or any(map(_started, outcomes)):
                rows.append(_row(name, outcomes, is_subject=is_subject))
        rows.sort(key=_rank)
        text = workload.case.text(self.entry)
        return Standing(workload.says, self.seeds, tuple(rows), text)


def _key(workload: Workload, number: int, seed: int) -> str:
    # By number, as a policy with parameters may bear a rival's name.
    return f"{workload.case.name}, policy {number}, seed {seed}"


def _started(outcome: Outcome) -> bool:
    return outcome.result is None or bool(outcome.result["started"])


def _row(
    policy: str, outcomes: Sequence[Outcome], *, is_subject: bool
) -> Row:
    failures = []
    results = []
    for outcome in outcomes:
        if outcome.result is None:
            failures.append(outcome.error.message)
        else:
            results.append(outcome.result)
    metrics: dict[str, Estimate | None] = {}
    for name in METRICS:
        values = [result[name] for result in results]
        # Of all seeds or none: a mean of fewer would be over other jobs
        # than the rivals'.
        whole = not failures and None not in values
        metrics[name] = estimate(values) if whole else None
    reason = failures[0] if failures else None
    return Row(policy, is_subject, metrics, reason)


def _rank(row: Row) -> tuple[float, float, str]:
    # Those without a mean stand last.
    success = row.metrics["success_rate"]
    slowdown = row.metrics["bounded_slowdown_mean"]
    return (
        math.inf if success is None else -success.mean,
        math.inf if slowdown is None else slowdown.mean,
        row.policy,
    )
