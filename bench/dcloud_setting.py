"""DCloud's default simulation (Section IV.A): the setting that its benchmarks
measure in.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.request import JobRequest
from jobs.workload.tenants import day_and_night, interpretation
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.engine.engine import Engine
from testbed.schedulers.actions import Action, Arrived, PolicyEvent
from testbed.schedulers.policy import Policy, View
from topologies.datacentre import DataCentre
from topologies.tree import tree

GIGA = 10**9
SLOTS = 4
PER_HOUR = 160.0
SEED = 1

CENTRES = {
    1_000: (10, 10, 10),
    8_000: (20, 20, 20),
    27_000: (30, 30, 30),
    64_000: (40, 40, 40),
    100_000: (50, 50, 40),
}
"""Fan-outs, from the core down, by number of servers."""


@dataclass(frozen=True)
class Setting:
    """A data centre, and the first ``hours`` of a day of arrivals in it.

    ``per_hour`` jobs arrive per 8,000 servers, so that every size is equally
    loaded.
    """

    servers: int = 8_000
    hours: float = 24.0
    per_hour: float = PER_HOUR
    seed: int = SEED

    def datacentre(self) -> DataCentre:
        """4:1 at the ToR and 2:1 at the aggregation switches, as in the paper's
        20 × 20 × 20.
        """
        aggregation, racks, servers = CENTRES[self.servers]
        tor_bps = servers * GIGA // 4
        return tree(
            [aggregation, racks, servers],
            [racks * tor_bps // 2, tor_bps, GIGA],
            SLOTS,
        )

    def jobs(self) -> tuple[JobRequest, ...]:
        """Reading G of the paper's workload."""
        rate = self.per_hour * self.servers / 8_000
        times = day_and_night(self.seed, rate, span_s=3600.0 * self.hours)
        return interpretation().requests(times, self.seed)


class Watched:
    """A policy whose decisions on arrivals are timed, what the engine does with
    them included.

    ``took_s`` holds, per arrival, its time and the seconds from the question
    until the engine has checked the placement, booked it in the ledger and
    notified the backend.
    """

    def __init__(self, policy: Policy) -> None:
        self.name = policy.name
        self._policy = policy
        self.took_s: list[tuple[float, float]] = []

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if not isinstance(event, Arrived):
            return self._policy.decide(view, event)
        began = time.perf_counter()
        return _UntilDone(
            self._policy.decide(view, event), self, view.now_s, began
        )


class _UntilDone(list[Action]):
    """Actions; carrying out the last one stops the clock."""

    def __init__(
        self,
        actions: list[Action],
        watched: Watched,
        now_s: float,
        began: float,
    ) -> None:
        super().__init__(actions)
        self._watched = watched
        self._now_s = now_s
        self._began = began

    def __iter__(self) -> Iterator[Action]:
        yield from super().__iter__()
        self._watched.took_s.append(
            (self._now_s, time.perf_counter() - self._began)
        )


def allocation_times(
    setting: Setting, policy: Policy, since_hours: float = 0.0
) -> list[float]:
    """Seconds that each arrival from ``since_hours`` on took, over the whole
    run.
    """
    watched = Watched(policy)
    Engine(
        datacentre=setting.datacentre(),
        jobs=setting.jobs(),
        policy=watched,
        backend=SimulatedBackend(),
        sink=lambda _: None,
    ).run()
    times_s = []
    for at_s, took_s in watched.took_s:
        if at_s >= 3600.0 * since_hours:
            times_s.append(took_s)
    return times_s
