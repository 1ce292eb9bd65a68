"""MBFCBS at size: 100,000 leases on 1,000 hosts, and the cost per lease by
hosts: table and plot.

The whole run is measured (drawing the leases is not): policy, independent
check, ledger, simulator. For the growth every cluster gets the same leases a
host, so that all are equally loaded; the policy's own time per lease stands
beside the whole run's. Python's garbage collector walks over the objects of the
whole program, wherever it is triggered: its passes inside the policy are
measured in every decision and stand apart. Processor time of this process; of
two runs the shorter, for what others do to its caches only adds.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.samples import Result
from jobs.request import JobRequest
from jobs.workload.lwf import requests_of
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.engine.engine import Engine
from testbed.events import Event, JobEnded, JobPreempted
from testbed.schedulers.actions import Action, PolicyEvent
from testbed.schedulers.mbfcbs import Mbfcbs
from testbed.schedulers.policy import View
from testbed.spec.generated_sections import SyntheticLeases
from topologies.flat import flat

FIGURE = (
    Path(__file__).parents[1] / "docs" / "figures" / "mbfcbs-growth.png"
)
CORES, MEMORY_MIB, LOAD = 6, 11_520, 1.2
TARGET_S = 60.0
SIZES = (62, 125, 250, 500, 1_000, 2_000, 4_000, 8_000)
LEASES_A_HOST, REPEATS = 15, 2
EVERY = 8
WHOLE, COLLECTOR = "whole_run_us_per_lease", "collector_us_per_lease"


class _Collector:
    """The time that the collector of garbage takes while it is watched: a
    callback of ``gc``.
    """

    def __init__(self) -> None:
        self.watched = False
        self.cpu_s = 0.0
        self._began_s = 0.0

    def __call__(self, phase: str, _: dict[str, Any]) -> None:
        if not self.watched:
            return
        if phase == "start":
            self._began_s = time.process_time()
        else:
            self.cpu_s += time.process_time() - self._began_s


class _Timed:
    """MBFCBS with a stopwatch around every eighth decision: reading the clock
    takes its time.
    """

    name = Mbfcbs.name

    def __init__(self) -> None:
        self._policy = Mbfcbs()
        self._decisions = 0
        self._measured_s = 0.0
        self._clock_s = _clock_s()
        self.collector = _Collector()

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        self._decisions += 1
        self.collector.watched = True
        if self._decisions % EVERY:
            actions = self._policy.decide(view, event)
        else:
            began_s, collector_s = time.process_time(), self.collector.cpu_s
            actions = self._policy.decide(view, event)
            self._measured_s += (
                time.process_time() - began_s - self._clock_s
            )
            self._measured_s -= self.collector.cpu_s - collector_s
        self.collector.watched = False
        return actions

    @property
    def cpu_s(self) -> float:
        """Of all decisions, without the collector."""
        return EVERY * self._measured_s


def _clock_s() -> float:
    """Difference between two calls of the clock in a row."""
    times = [time.process_time() for _ in range(2001)]
    return median(b - a for a, b in pairwise(times))


class _Count:
    """An event sink that remembers how leases ended."""

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.preempted = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, JobEnded):
            self.outcomes[event.outcome] = (
                self.outcomes.get(event.outcome, 0) + 1
            )
        self.preempted += isinstance(event, JobPreempted)


def leases(hosts: int, count: int) -> tuple[JobRequest, ...]:
    """The mixed generator's leases at ``LOAD``."""
    mix = SyntheticLeases(kind="leases", jobs=count, load=LOAD)
    return requests_of(mix.draw(1, hosts * CORES))


class Played(NamedTuple):
    """Seconds of the whole run, of the policy in it, of the collector in the
    policy; the ends.
    """

    whole_s: float
    policy_s: float
    collector_s: float
    ends: _Count


def play(hosts: int, jobs: tuple[JobRequest, ...]) -> Played:
    policy, count = _Timed(), _Count()
    engine = Engine(
        datacentre=flat(hosts, CORES, MEMORY_MIB),
        jobs=jobs,
        policy=policy,
        backend=SimulatedBackend(),
        sink=count,
    )
    # What was left by drawing the leases is not to be collected in the
    # run's time.
    gc.collect()
    gc.callbacks.append(policy.collector)
    began_s = time.process_time()
    try:
        engine.run()
    finally:
        gc.callbacks.remove(policy.collector)
    return Played(
        time.process_time() - began_s,
        policy.cpu_s,
        policy.collector.cpu_s,
        count,
    )


def run(quick: bool) -> list[Result]:
    """The large run, then a row a cluster; ``quick``: a tenth of the leases,
    smaller clusters.
    """
    # Once before: imports, compiled code.
    play(50, leases(50, 500))
    hosts, count = 1_000, 10_000 if quick else 100_000
    whole_s, policy_s, collector_s, ends = play(hosts, leases(hosts, count))
    large = Result(
        f"{count:,} leases on {hosts:,} hosts",
        "s",
        samples=(whole_s,),
        target=f"<= {TARGET_S:g} s" if not quick else "",
        meets=whole_s <= TARGET_S if not quick else None,
        extra={
            "policy_s": round(policy_s, 2),
            "policy_us_per_lease": round(1e6 * policy_s / count, 1),
            COLLECTOR: round(1e6 * collector_s / count, 1),
            **ends.outcomes,
            "preemptions": ends.preempted,
        },
    )
    rows = _growth([n for n in SIZES if not quick or n <= 1_000])
    if not quick:
        _plot(rows)
    whole = {n: row.extra[WHOLE] for n, row in rows.items()}
    policy = {n: row.samples[0] for n, row in rows.items()}
    with_collector = {
        n: policy[n] + row.extra[COLLECTOR] for n, row in rows.items()
    }
    return [
        large,
        *rows.values(),
        _verdict("policy", policy),
        _verdict("policy, collector", with_collector),
        _verdict("whole run", whole),
    ]


def _growth(sizes: list[int]) -> dict[int, Result]:
    rows = {}
    for hosts in sizes:
        count = LEASES_A_HOST * hosts
        jobs = leases(hosts, count)
        runs = [play(hosts, jobs) for _ in range(REPEATS)]
        whole_s, policy_s = (
            min(run.whole_s for run in runs),
            min(run.policy_s for run in runs),
        )
        collector_s = min(run.collector_s for run in runs)
        rows[hosts] = Result(
            f"policy, per lease, {hosts:,} hosts",
            "us",
            (1e6 * policy_s / count,),
            extra={
                COLLECTOR: round(1e6 * collector_s / count, 1),
                WHOLE: round(1e6 * whole_s / count, 1),
            },
        )
    return rows


def _verdict(of: str, cost_us: Mapping[int, float]) -> Result:
    """From the smallest to the largest: growth of the cost per lease over that
    of log2(hosts).
    """
    first, last = min(cost_us), max(cost_us)
    cost = cost_us[last] / cost_us[first]
    logarithm = math.log2(last) / math.log2(first)
    return Result(
        f"{of}: growth from {first:,} to {last:,} hosts",
        "x",
        samples=(cost,),
        target=f"<= {logarithm:.2f} (log2 of the hosts)",
        meets=cost <= logarithm,
    )


def _plot(rows: dict[int, Result]) -> None:
    """Cost per lease over hosts, and the logarithm through the first point."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(5.2, 3.2), layout="constrained")
    FigureCanvasAgg(drawn)
    axes = drawn.subplots()
    hosts = list(rows)
    policy = [rows[n].samples[0] for n in hosts]
    axes.plot(hosts, policy, marker="o", label="MBFCBS")
    whole = [rows[n].extra[WHOLE] for n in hosts]
    axes.plot(hosts, whole, marker="s", label="whole run")
    scaled = [policy[0] * math.log2(n) / math.log2(hosts[0]) for n in hosts]
    axes.plot(
        hosts,
        scaled,
        linestyle="--",
        color="#888888",
        label="log₂ of the hosts",
    )
    axes.set_xscale("log")
    axes.set_xticks(hosts, [f"{n:,}" for n in hosts])
    axes.minorticks_off()
    axes.set_ylim(0)
    axes.set_xlabel("hosts, equally loaded")
    axes.set_ylabel("per lease [µs of processor time]")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    FIGURE.parent.mkdir(exist_ok=True)
    drawn.savefig(FIGURE, dpi=110)
