"""One simulated run of MBFCBS's evaluation: what goes in, what is measured, and the run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jobs.demand import LeaseType
from jobs.request import JobRequest
from jobs.workload.leases import SIZES, LeaseMix, requests_of
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.schedulers.mbfcbs import GREEDY, Mbfcbs
from testbed.schedulers.policy import Policy
from testbed.schedulers.registry import build_policy
from topologies.flat import flat

TYPES: dict[str, LeaseType] = {"ar": "advance", "im": "immediate", "be": "best-effort"}
GREEDY_NAME = "greedy"


@dataclass(frozen=True)
class LeaseCell:
    """A point of the evaluation's grid, for one policy and one seed.

    ``policy`` is a name of the registry, or ``greedy`` for Haizea's default (decision 0444).
    ``load`` is that of all leases: who sweeps their number in a span that stays the same raises it
    with them (decision 0445).
    """

    policy: str
    seed: int
    leases: int
    hosts: int = 50
    cores: int = 6
    advance: float = 0.2
    immediate: float = 0.4
    sizes: tuple[str, ...] = tuple(SIZES)
    memory: bool = True
    mean_duration_h: float = 1.0
    mean_lead_h: float = 2.0
    load: float = 1.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cost(self) -> float:
        """About its milliseconds of processor time."""
        return 0.8 * self.leases + 20.0

    def run(self) -> dict[str, float]:
        """Play the leases under the policy and measure (decision 0443)."""
        began_s = time.process_time()
        memory_mib = 1920 * self.cores if self.memory else None
        jobs = self.requests()
        meter = LeaseMeter(jobs, self.hosts * self.cores)
        backend = SimulatedBackend()
        centre = flat(self.hosts, self.cores, memory_mib)
        Engine(centre, jobs, self._policy(), backend, meter).run()
        return {**meter.measures(), "cpu_s": time.process_time() - began_s}

    def requests(self) -> tuple[JobRequest, ...]:
        """The leases: the same for every policy."""
        mix = LeaseMix(
            self.leases,
            self.advance,
            self.immediate,
            self.sizes,
            3600.0 * self.mean_duration_h,
            3600.0 * self.mean_lead_h,
        )
        drawn = mix.draw(self.seed, self.hosts * self.cores, self.load)
        return requests_of(drawn, memory=self.memory)

    def _policy(self) -> Policy:
        if self.policy == GREEDY_NAME:
            return Mbfcbs(GREEDY)
        return build_policy(self.policy, embedder("oktopus"), {})


class LeaseMeter:
    """An event sink: successes by type, core time, the last end, times to completion."""

    def __init__(self, jobs: Sequence[JobRequest], cores: int) -> None:
        self._jobs = {job.id: job for job in jobs}
        self._cores = cores
        self._arrivals_end_s = max((job.submit_s for job in jobs), default=0.0)
        self._since: dict[str, float] = {}
        self._finished: dict[str, float] = {}
        self._rejected = self._killed = self._preempted = 0
        self._core_s = self._core_early_s = 0.0

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.JobStarted() | events.JobMigrated() | events.JobResumed():
                self._leave(event.job_id, event.t)
                self._since[event.job_id] = event.t
            case events.JobPreempted():
                self._preempted += 1
                self._leave(event.job_id, event.t)
            case events.JobEnded():
                self._leave(event.job_id, event.t)
                if event.outcome == "finished":
                    self._finished[event.job_id] = event.t
                self._rejected += event.outcome == "rejected"
                self._killed += event.outcome == "killed"
            case _:
                pass

    def _leave(self, job_id: str, at_s: float) -> None:
        since_s = self._since.pop(job_id, None)
        if since_s is None:
            return
        job, early_s = self._jobs[job_id], self._arrivals_end_s
        cores = job.demand.cores * job.n_vms
        self._core_s += cores * (at_s - since_s)
        self._core_early_s += cores * (min(at_s, early_s) - min(since_s, early_s))

    def measures(self) -> dict[str, float]:
        """Shares of leases, of core time; times in hours."""
        makespan_s = max(self._finished.values(), default=0.0)
        count = len(self._jobs)
        waits = [
            end_s - (job.submit_s if job.demand.wanted_s is None else job.demand.wanted_s)
            for job_id, end_s in self._finished.items()
            for job in (self._jobs[job_id],)
        ]
        return {
            "leases": count,
            "accepted": count - self._rejected - self._killed,
            "success": len(self._finished) / count,
            **{f"success_{short}": self._success(kind) for short, kind in TYPES.items()},
            "preemptions": self._preempted,
            "use": self._core_s / (self._cores * makespan_s) if makespan_s else 0.0,
            "use_early": self._core_early_s / (self._cores * self._arrivals_end_s)
            if self._arrivals_end_s
            else 0.0,
            "makespan_h": makespan_s / 3600.0,
            "completion_h": sum(waits) / len(waits) / 3600.0 if waits else 0.0,
        }

    def _success(self, kind: LeaseType) -> float:
        """The share of a type's leases that succeeded; 1 where there are none."""
        mine = [job_id for job_id, job in self._jobs.items() if job.demand.lease_type == kind]
        return sum(job_id in self._finished for job_id in mine) / len(mine) if mine else 1.0
