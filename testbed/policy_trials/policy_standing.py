"""A policy's place among the testbed's own: three workloads, the same jobs for
all of them.

Each run is simulated in one of a pool of processes; a cell of the tables is the
mean over the seeds, with a 95 % interval where there are several.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from jobs.python_child import isolated_spawn
from testbed.play.playing import play, simulated
from testbed.policy_trials.policy_cases import Case, Entry
from testbed.policy_trials.timed_policy import TimedPolicy
from testbed.record.metrics import Tally
from testbed.schedulers.policy import PolicyKind
from testbed.schedulers.registry import own_policies
from testbed.spec.experiment import PolicySpec
from testbed.spec.experiment_file import parse_experiment

MOST_DECISIONS = 200_000
"""Decisions in a run of a few hundred jobs."""
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


def _on_nodes(says: str, nodes: int, kind: str, **workload: Any) -> Workload:
    flat = {"kind": "flat", "nodes": nodes}
    return Workload(
        says, Case(kind, flat, {"kind": kind, "jobs": 300, **workload})
    )


def _leases(says: str, name: str, **workload: Any) -> Workload:
    return Workload(
        says, Case(name, _CLUSTER, {"kind": "leases", "jobs": 200, **workload})
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
    return HOSES if "tree" in families else NODES


# -- cells ---------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """The mean over the seeds; ``half`` is half the width of its 95 % interval."""

    mean: float
    half: float | None = None


def measured(values: Sequence[float | None]) -> Measured | None:
    """None where a seed gave no value."""
    found = [value for value in values if value is not None]
    if not found or len(found) < len(values):
        return None
    if len(found) == 1:
        return Measured(found[0])
    from scipy.special import stdtrit

    t = float(stdtrit(len(found) - 1, 0.975))
    return Measured(mean(found), t * stdev(found) / math.sqrt(len(found)))


@dataclass(frozen=True)
class Cell:
    """The metrics of one run, or why it ended."""

    finished: float | None = None
    success_rate: float | None = None
    wait_mean_s: float | None = None
    bounded_slowdown_mean: float | None = None
    vm_utilisation: float | None = None
    makespan_s: float | None = None
    decision_ms: float | None = None
    started: bool = True
    failed: str | None = None


METRICS = tuple(
    one.name for one in fields(Cell) if one.name not in ("started", "failed")
)


@dataclass(frozen=True)
class Row:
    """A policy's line of a table; ``own`` is that of the policy under check."""

    policy: str
    own: bool
    metrics: Mapping[str, Measured | None]
    failed: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Standing:
    """One workload's table: best success rate first, then least slowdown."""

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


def run_cell(text: str) -> Cell:
    """Simulates an experiment of one policy."""
    experiment = parse_experiment(text, Path("policy check"))
    [policy] = experiment.policies
    tally, decided_s = Tally(), list[float]()
    try:
        on = simulated(experiment, policy)
        play(
            experiment,
            policy,
            on,
            tally,
            lambda built: TimedPolicy(built, decided_s, MOST_DECISIONS),
        )
    except Exception as error:  # noqa: BLE001 - of the policy under check; its row says so
        return Cell(failed=str(error) or type(error).__name__)
    summary = tally.summary()
    return Cell(
        finished=summary.finished,
        success_rate=summary.success_rate,
        wait_mean_s=summary.wait_mean_s,
        bounded_slowdown_mean=summary.bounded_slowdown_mean,
        vm_utilisation=summary.vm_utilisation,
        makespan_s=summary.span_s,
        decision_ms=1e3 * mean(decided_s) if decided_s else None,
        started=any(row.start_s is not None for row in tally.rows()),
    )


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
    """All runs of the tables. :meth:`run` tells of each as it ends."""

    entry: Entry
    spec: PolicySpec
    families: Sequence[str]
    seeds: tuple[int, ...] = SEEDS

    def __post_init__(self) -> None:
        own = self.spec.plugin is None and not self.spec.parameters
        others = [
            one
            for one in rivals(self.spec.kind)
            if not own or one != {"name": self.spec.name}
        ]
        self.workloads = workloads_of(self.spec.kind, self.families)
        self.entries = [self.entry, *others]
        self._cells: dict[tuple[int, int, int], Cell] = {}

    @property
    def n_runs(self) -> int:
        return len(self.workloads) * len(self.entries) * len(self.seeds)

    def run(self) -> Iterator[None]:
        """Plays every cell on this machine's processors; yields once for each."""
        spawn = get_context("spawn")
        with (
            isolated_spawn(),
            ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool,
        ):
            wanted: dict[Future[Cell], tuple[int, int, int]] = {}
            for of, workload in enumerate(self.workloads):
                for who, entry in enumerate(self.entries):
                    for seed in self.seeds:
                        text = Case(
                            **{**vars(workload.case), "seed": seed}
                        ).text(entry)
                        wanted[pool.submit(run_cell, text)] = of, who, seed
            for future in as_completed(wanted):
                self._cells[wanted[future]] = future.result()
                yield

    def tables(self) -> list[Standing]:
        """The tables of all cells that there are."""
        return [
            self._table(of, workload)
            for of, workload in enumerate(self.workloads)
        ]

    def _table(self, of: int, workload: Workload) -> Standing:
        rows = []
        for who, entry in enumerate(self.entries):
            cells = [self._cells[of, who, seed] for seed in self.seeds]
            if who and not any(cell.started for cell in cells):
                continue  # it refuses all of them: they are not for it
            name = self.spec.label if not who else str(entry["name"])
            failed = next(
                (cell.failed for cell in cells if cell.failed is not None), None
            )
            values = {
                key: measured([getattr(cell, key) for cell in cells])
                for key in METRICS
            }
            rows.append(Row(name, not who, values, failed))
        rows.sort(key=_rank)
        return Standing(
            workload.says,
            self.seeds,
            tuple(rows),
            workload.case.text(self.entry),
        )


def _rank(row: Row) -> tuple[float, float, str]:
    success, slowdown = (
        row.metrics["success_rate"],
        row.metrics["bounded_slowdown_mean"],
    )
    return (
        math.inf if success is None else -success.mean,
        math.inf if slowdown is None else slowdown.mean,
        row.policy,
    )
