"""The simulated runs behind CMBF's figures: what goes in, and what is measured."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from jobs.workload.feitelson import FeitelsonStyle
from jobs.workload.jann import JannStyle
from jobs.workload.parallel_jobs import ParallelJobs, Requests, WorkloadModel
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.schedulers.cmbf import MIGRATION_COST_S
from testbed.schedulers.registry import build_policy
from topologies.flat import flat

NODES = 320
SLOWDOWN_BOUND_S = 10.0

ModelName = Literal["feitelson", "jann"]
JOBS: dict[ModelName, int] = {"feitelson": 20_000, "jann": 10_000}


@dataclass(frozen=True)
class NodesCell:
    """One policy over jobs of one model at one load, on 320 nodes (Sections 5.1 and 5.2).

    ``cpu_low``: processes use from so much of a node's CPU up to all of it. ``cpu_error``: what
    schedulers are told of it is wrong by at most so much; None: they are told nothing. Of all
    policies AMCBF and CMCBF alone look at it.
    """

    model: ModelName
    policy: str
    seed: int
    load: float
    jobs: int
    cpu_low: float = 0.4
    cpu_error: float | None = 0.0
    migration_cost_s: float = MIGRATION_COST_S

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cost(self) -> float:
        tiers = 8.0 if self.policy in ("cmcbf", "amcbf") else 1.0
        return self.jobs * self.load * (4.0 if self.policy == "fcfs" else tiers)

    def workload(self) -> ParallelJobs:
        """The jobs: the same for every policy, and at every load but for their arrivals."""
        model: WorkloadModel = (
            FeitelsonStyle(jobs=self.jobs)
            if self.model == "feitelson"
            else JannStyle(jobs=self.jobs)
        )
        drawn = model.draw(self.seed, NODES, self.load).at_load(self.load, NODES)
        jobs = drawn.with_cpu_use(self.cpu_low, 1.0, self.seed)
        return jobs.with_cpu_told(self.cpu_error, self.seed) if self.cpu_error else jobs

    def run(self) -> dict[str, float]:
        """Play them all and measure."""
        began_s = time.process_time()
        machine = flat(NODES, 1)
        world = SimulatedBackend(machine, seed=self.seed)
        policy = build_policy(self.policy, embedder("first-fit"), self._parameters())
        seen = _Seen()
        Engine(machine, Requests(self.workload()), policy, world, seen).run()
        if seen.ended != self.jobs:
            raise AssertionError(f"{self.jobs - seen.ended} of {self.jobs} jobs did not finish")
        node_s = NODES * seen.span_s
        return {
            "response_s": seen.response_s / seen.ended,
            "slowdown": seen.slowdown / seen.ended,
            "migrations": seen.migrations / seen.ended,
            "utilisation": seen.work_s / node_s,
            "busy": world.cpu_s / node_s,
            "cpu_s": time.process_time() - began_s,
        }

    def _parameters(self) -> dict[str, Any]:
        if self.policy in ("fcfs", "easy"):
            return {}
        given: dict[str, Any] = {"migration_cost": self.migration_cost_s}
        if self.policy in ("cmcbf", "amcbf") and self.cpu_error is None:
            given["cpu"] = "unknown"
        return given


@dataclass
class _Seen:
    """Sums over a run's jobs. The bounded slowdown divides by max(Γ, t_e) (decision 0423)."""

    jobs: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    response_s: float = 0.0
    slowdown: float = 0.0
    work_s: float = 0.0
    span_s: float = 0.0
    ended: int = 0
    migrations: int = 0

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.JobSubmitted():
                job = event.job
                use = job["cpu_use"]
                cpus = sum(use) if isinstance(use, tuple | list) else use * job["n_vms"]
                self.jobs[str(job["id"])] = (event.t, job["duration_s"], cpus)
            case events.JobMigrated():
                self.migrations += 1
            case events.JobEnded(outcome="finished"):
                submit_s, runs_s, cpus = self.jobs.pop(event.job_id)
                stay_s = event.t - submit_s
                self.response_s += stay_s
                self.slowdown += stay_s / max(SLOWDOWN_BOUND_S, runs_s)
                self.work_s += runs_s * cpus
                self.ended += 1
                self.span_s = event.t
            case _:
                pass
