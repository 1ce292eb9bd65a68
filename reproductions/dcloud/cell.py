"""One simulated run of DCloud's evaluation: what goes in, what is measured, and the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from jobs.demand import Pattern
from jobs.request import JobRequest
from jobs.workload.distributions import Rule
from jobs.workload.tenants import HOUR_S, INTERPRETATIONS, Batch, DayAndNight, Tenants
from reproductions.dcloud.meter import Meter
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.schedulers.actions import Action, Arrived, PolicyEvent
from testbed.schedulers.policy import FlowDependency, Policy, SharingModel, View
from testbed.schedulers.registry import build_policy
from topologies.datacentre import DataCentre
from topologies.tree import tree

GBPS = 10**9


@dataclass(frozen=True)
class DCloudCell:
    """A point of the evaluation's grid, for one policy and one seed.

    The defaults are the paper's (Section IV.A) in the readings of decisions 0310 and 0401.
    ``oversubscription`` holds the racks' and the aggregation switches' ratios. ``batch`` jobs
    arrive at once if it is above 0, otherwise ``per_hour`` by day and a fifth of that by night.
    """

    policy: str
    seed: int
    gamma: float = 0.12
    fanout: tuple[int, ...] = (20, 20, 20)
    slots: int = 4
    nic_bps: int = GBPS
    oversubscription: tuple[float, float] = (4.0, 2.0)
    embedder: str = "oktopus"
    reading: str = "G"
    vms: float = 120.0
    bandwidth_bps: float = 250e6
    duration_s: float = HOUR_S
    ratio: float = 10.0
    ratio_rule: Rule = "redraw"
    pattern: Pattern = "permutation"
    coupling: FlowDependency = "slowest"
    per_hour: float = 160.0
    hours: float = 24.0
    batch: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cost(self) -> float:
        """About its seconds of processor time on the machine of docs/reproduction.md."""
        jobs = self.batch or self.per_hour * self.hours * 0.6
        size = self.fanout[0] * self.fanout[1] * self.fanout[2] / 8000
        return jobs * size * {"bl": 0.006, "vc": 0.0003}.get(self.policy, 0.0055)

    def run(self) -> dict[str, float]:
        """Play the cell's jobs under its policy and measure (see :class:`Meter`)."""
        began_s = time.process_time()
        datacentre, jobs = self.data_centre(), self.requests()
        policy = _Timed(build_policy(self.policy, embedder(self.embedder), self._parameters()))
        meter = Meter(datacentre, jobs)
        sharing = SharingModel(self.coupling)
        backend = SimulatedBackend(datacentre, sharing, self.seed, meter.carried)
        Engine(datacentre, jobs, policy, backend, meter).run()
        return {
            **meter.measures(),
            **policy.allocation_times(),
            "cpu_s": time.process_time() - began_s,
        }

    def _parameters(self) -> dict[str, Any]:
        if self.policy == "bl":
            return {"coupling": self.coupling}
        return {"gamma": self.gamma} if self.policy.startswith("dcloud") else {}

    def data_centre(self) -> DataCentre:
        """The tree; its uplinks follow from the ratios."""
        racks, aggregation = self.oversubscription
        return tree(list(self.fanout), self.nic_bps, self.slots, [aggregation, racks])

    def requests(self) -> tuple[JobRequest, ...]:
        """The jobs: the same for every policy."""
        drawn: Tenants = INTERPRETATIONS[self.reading](
            n=self.vms, b_bps=self.bandwidth_bps, p_s=self.duration_s, r=self.ratio
        )
        if self.ratio_rule != drawn.ratio.rule:
            drawn = replace(drawn, ratio=replace(drawn.ratio, rule=self.ratio_rule))
        drawn = replace(drawn, pattern=self.pattern)
        span_s = self.hours * HOUR_S
        arrivals = Batch(self.batch) if self.batch else DayAndNight(self.per_hour, span_s=span_s)
        return drawn.requests(arrivals, self.seed)


class _Timed:
    """A policy with a stopwatch around its answers to arrivals."""

    def __init__(self, policy: Policy) -> None:
        self.name = policy.name
        self._took_s: list[float] = []
        self._policy = policy
        price = getattr(policy, "price", None)
        self.price: Callable[[JobRequest, float], float] = price or (lambda _, __: 0.0)

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        began_s = time.thread_time()
        answer = self._policy.decide(view, event)
        if isinstance(event, Arrived):
            self._took_s.append(time.thread_time() - began_s)
        return answer

    def allocation_times(self) -> dict[str, float]:
        """Processor seconds per arrival."""
        ordered = sorted(self._took_s) or [0.0]
        return {
            "allocation_mean_s": sum(ordered) / len(ordered),
            "allocation_p99_s": ordered[int(0.99 * (len(ordered) - 1))],
            "allocation_max_s": ordered[-1],
        }
