"""The simulated runs behind AdaBa's and BgMBF's figures: what goes in, and what is measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jobs.request import JobRequest
from jobs.workload.parallel_jobs import CAP_BPS, HoseDemand
from reproductions.adaba.workloads import LOGS, Demand, Log, Sizes, drawn, from_log
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.results.metrics import Tally
from testbed.results.tables import topology_record
from testbed.schedulers.registry import build_policy
from topologies.datacentre import DataCentre
from topologies.fat_tree import Network, fat_tree

GBPS = 10**9
K = 6
SLOTS = 8
RESTORING_S = 20.0
"""What a migration takes by the paper's argument (Section 5.3.2)."""


@dataclass(frozen=True)
class DrawnCell:
    """Acceptance of random jobs without a queue (Fig. 4)."""

    embedder: str
    seed: int
    mean_bps: float
    jobs: int = 1000
    mean_vms: int = 8
    load: float = 0.5
    sizes: Sizes = "uniform"
    demand: Demand = "normal"
    network: Network = "pooled"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cost(self) -> float:
        return self.jobs * (2.0 if self.embedder == "greedy" else 1.0)

    def run(self) -> dict[str, float]:
        """Play the jobs as they come: placed at once or refused."""
        datacentre = fat_tree(K, GBPS, SLOTS, self.network)
        jobs = drawn(
            self.jobs,
            self.mean_bps,
            self.mean_vms,
            self.load,
            datacentre.total_slots,
            self.sizes,
            self.demand,
            self.seed,
        )
        return _played(datacentre, jobs, "vc", self.embedder, {})


@dataclass(frozen=True)
class LogsCell:
    """Both logs under one policy at one load (Figs. 5 to 8); measures begin with the log's name.

    The seed draws the jobs' bandwidths; the logs' jobs are always the same.
    """

    policy: str
    embedder: str
    seed: int
    load: float
    jobs: int = 1000
    cap_bps: int | None = CAP_BPS
    evict: str = "all"
    migration_cost_s: float = 0.0
    network: Network = "pooled"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cost(self) -> float:
        dear = {"bgmbf": 8.0, "bgmbf-sdf": 8.0}.get(self.policy, 1.0)
        return self.jobs * dear * self.load * (2.0 if self.embedder == "greedy" else 1.0)

    def run(self) -> dict[str, float]:
        """Play both logs."""
        out: dict[str, float] = {"cpu_s": 0.0}
        for log in LOGS:
            for name, value in self.of(log).items():
                if name == "cpu_s":
                    out["cpu_s"] += value
                else:
                    out[f"{log}_{name}"] = value
        return out

    def of(self, log: Log) -> dict[str, float]:
        """One log's measures."""
        datacentre = fat_tree(K, GBPS, SLOTS, self.network)
        demand = HoseDemand(GBPS, datacentre.n_servers, self.cap_bps)
        jobs = from_log(log, self.jobs, self.load, datacentre.total_slots, demand, self.seed)
        return _played(datacentre, jobs, self.policy, self.embedder, self._parameters())

    def _parameters(self) -> dict[str, Any]:
        if not self.policy.startswith("bgmbf"):
            return {}
        return {"evict": self.evict, "migration_cost": self.migration_cost_s}


def _played(
    datacentre: DataCentre,
    jobs: Sequence[JobRequest],
    policy: str,
    embed: str,
    parameters: dict[str, Any],
) -> dict[str, float]:
    """One run's measures; a mean over nothing is NaN."""
    began_s = time.process_time()
    tally = Tally()
    tally(events.RunStarted(0.0, "", policy, "sim", 0, topology_record(datacentre)))
    built = build_policy(policy, embedder(embed), parameters)
    Engine(datacentre, jobs, built, SimulatedBackend(), tally).run()
    came_to = tally.summary()
    if came_to.unfinished or came_to.killed:
        raise AssertionError(f"{came_to.unfinished} unfinished and {came_to.killed} killed jobs")
    figures = {
        "acceptance": came_to.acceptance_rate,
        "wait_s": came_to.wait_mean_s,
        "queued_s": came_to.queued_mean_s,
        "response_s": came_to.response_mean_s,
        "slowdown": came_to.bounded_slowdown_mean,
        "utilisation": came_to.vm_utilisation,
        "restoring_share": _share(RESTORING_S * came_to.migrations, came_to.queued_mean_s),
    }
    return {
        **{name: float("nan") if value is None else value for name, value in figures.items()},
        "preemptions": float(came_to.preemptions),
        "migrations": float(came_to.migrations),
        "cpu_s": time.process_time() - began_s,
    }


def _share(part: float, whole: float | None) -> float | None:
    return part / whole if whole else 0.0 if part == 0 else None
