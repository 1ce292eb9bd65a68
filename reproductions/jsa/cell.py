"""One simulated run of JSA's evaluation: what goes in, what is measured, and the run."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jobs.request import JobRequest
from jobs.workload.elastic import ElasticJobs
from jobs.workload.swim import Swim, read_swim
from jobs.workload.traces import published
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.errors import MachineCannot
from testbed.schedulers.policy import SharingModel
from testbed.schedulers.registry import build_policy
from testbed.spec.document import find_file
from topologies.datacentre import DataCentre
from topologies.tree import tree

TRACE = "FB-2009_samples_24_times_1hr_0.tsv.gz"
GBPS = 10**9
LATE_SLACK = 1e-9


@dataclass(frozen=True)
class JsaCell:
    """A point of Figure 4's grid, for one policy and one seed.

    The defaults are the paper's (Section V.A) with decision 0435's. ``late`` and ``queue`` are the
    baselines' readings (decision 0433), ``place`` their embedder.
    """

    policy: str
    seed: int
    jobs: int = 2500
    vms: float = 25.0
    deadline_high: float = 7.0
    alpha: float | None = None
    bandwidth_bps: float = 200e6
    spacing_s: float = 30.0
    fanout: tuple[int, int, int] = (2, 20, 40)
    late: str = "drop"
    queue: str = "skip"
    place: str = "oktopus"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cost(self) -> float:
        """About its seconds of processor time."""
        dearer = 2.0 if self.policy == "ps-p" else 1.0
        return 3.0 * dearer * self.jobs / 2500

    def run(self) -> dict[str, float]:
        """Play the batches under the policy and measure."""
        began_s = time.process_time()
        datacentre, jobs = self.data_centre(), self.requests()
        policy = build_policy(self.policy, embedder(self.place), self._parameters())
        sharing = SharingModel("lockstep", weights="proximate")
        reward = Reward(jobs)
        backend = SimulatedBackend(datacentre, sharing, self.seed)
        Engine(datacentre, jobs, policy, backend, reward).run()
        return {**reward.measures(), "cpu_s": time.process_time() - began_s}

    def _parameters(self) -> dict[str, Any]:
        fixed = self.policy not in ("jsa", "simple-jsa")
        return {"late": self.late, "queue": self.queue} if fixed else {}

    def data_centre(self) -> DataCentre:
        """Racks of 40 machines with 4 slots; 5:1 at the racks and 5:1 above them."""
        _, racks, machines = self.fanout
        rack_bps = machines * GBPS // 5
        return tree(list(self.fanout), [racks * rack_bps // 5, rack_bps, GBPS], 4)

    def requests(self) -> tuple[JobRequest, ...]:
        """The jobs: the same for every policy."""
        alpha = (0.0, 0.14) if self.alpha is None else (self.alpha, self.alpha)
        law = ElasticJobs(
            count=self.jobs,
            vms=self.vms,
            spacing_s=self.spacing_s,
            bandwidth_bps=self.bandwidth_bps,
            link_bps=GBPS,
            deadline=(2.0, self.deadline_high),
            speedup=alpha,
        )
        return law.requests(trace(), self.seed)[0]


class Reward:
    """An event sink: the share of all rewards that belongs to jobs on time."""

    def __init__(self, jobs: Iterable[JobRequest]) -> None:
        self._jobs = {job.id: job for job in jobs}
        self._got = 0.0
        self._met = 0
        self._waited_s = 0.0
        self._ran_s = 0.0
        self._started = 0

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.JobStarted):
            self._started += 1
            self._waited_s += event.t - self._jobs[event.job_id].submit_s
        elif isinstance(event, events.JobEnded) and event.outcome == "finished":
            job = self._jobs[event.job_id]
            due_s = job.deadline_at_s
            self._ran_s += event.measured_s or 0.0
            if due_s is None or event.t <= due_s + LATE_SLACK * max(1.0, due_s):
                self._got += job.value
                self._met += 1

    def measures(self) -> dict[str, float]:
        """``reward``: the system reward ratio (Section V.B); ``met``: of jobs, unweighted."""
        total = sum(job.value for job in self._jobs.values())
        started = max(1, self._started)
        return {
            "jobs": len(self._jobs),
            "reward": self._got / total if total else 0.0,
            "met": self._met / max(1, len(self._jobs)),
            "wait_s": self._waited_s / started,
            "ran_s": self._ran_s / started,
        }


@cache
def trace() -> Swim:
    """The Facebook sample, wherever it is. Raises MachineCannot where it is not."""
    path = find_file(TRACE, Path.cwd())
    if path is None:
        known = published(TRACE)
        origin = known.origin if known is not None else "a public archive"
        raise MachineCannot(
            f"there is no {TRACE} here, along TESTBED_DATA or in the cache",
            f"it is public: {origin}; testbed data check tells whether a copy is the right one",
        )
    return read_swim(path)
