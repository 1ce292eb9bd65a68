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
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

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

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIGURE = (
    Path(__file__).parents[1] / "docs" / "figures" / "mbfcbs-growth.png"
)
CORES = 6
MEMORY_MIB = 11_520
LOAD = 1.2
TARGET_S = 60.0
SIZES = (62, 125, 250, 500, 1_000, 2_000, 4_000, 8_000)
QUICK_SIZES = (62, 125, 250, 500, 1_000)
LEASES_A_HOST = 15
REPEATS = 2
EVERY = 8
WHOLE = "whole_run_us_per_lease"
COLLECTOR = "collector_us_per_lease"


class _Collector:
    """Callback of ``gc`` that adds up the collector's time while it is watched."""

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
    """MBFCBS with every eighth decision timed, as reading the clock takes time
    itself.
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
            collector_s = self.collector.cpu_s
            began_s = time.process_time()
            actions = self._policy.decide(view, event)
            self._measured_s += (
                time.process_time() - began_s - self._clock_s
            )
            # Its passes stand apart: they walk over the whole program.
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
        self.outcomes: Counter[str] = Counter()
        self.preempted = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, JobEnded):
            self.outcomes[event.outcome] += 1
        elif isinstance(event, JobPreempted):
            self.preempted += 1


def leases(hosts: int, count: int) -> tuple[JobRequest, ...]:
    """The mixed generator's leases at ``LOAD``."""
    mix = SyntheticLeases(kind="leases", jobs=count, load=LOAD)
    return requests_of(mix.draw(1, hosts * CORES))


class Played(NamedTuple):
    """Seconds of the whole run, of the policy in it, and of the collector in
    the policy; and how leases ended.
    """

    whole_s: float
    policy_s: float
    collector_s: float
    ends: _Count


def play(hosts: int, jobs: tuple[JobRequest, ...]) -> Played:
    policy = _Timed()
    ends = _Count()
    engine = Engine(
        datacentre=flat(hosts, CORES, MEMORY_MIB),
        jobs=jobs,
        policy=policy,
        backend=SimulatedBackend(),
        sink=ends,
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
        whole_s=time.process_time() - began_s,
        policy_s=policy.cpu_s,
        collector_s=policy.collector.cpu_s,
        ends=ends,
    )


def run(quick: bool) -> list[Result]:
    """The large run, then a row for each cluster. ``quick``: a tenth of the
    leases, smaller clusters.
    """
    # Once before: imports, compiled code.
    play(50, leases(50, 500))
    if quick:
        large = _large(1_000, 10_000)
        growth = _growth(QUICK_SIZES)
        return [large, *growth.values(), *_verdicts(growth)]
    large = _large(1_000, 100_000)
    large = replace(
        large,
        target=f"<= {TARGET_S:g} s",
        meets=max(large.samples) <= TARGET_S,
    )
    growth = _growth(SIZES)
    _plot(growth)
    return [large, *growth.values(), *_verdicts(growth)]


def _large(hosts: int, count: int) -> Result:
    """The whole run of one cluster, without a target."""
    played = play(hosts, leases(hosts, count))
    return Result(
        f"{count:,} leases on {hosts:,} hosts",
        "s",
        samples=(played.whole_s,),
        extra={
            "policy_s": round(played.policy_s, 2),
            "policy_us_per_lease": _us_per_lease(played.policy_s, count),
            COLLECTOR: _us_per_lease(played.collector_s, count),
            **played.ends.outcomes,
            "preemptions": played.ends.preempted,
        },
    )


def _us_per_lease(took_s: float, count: int) -> float:
    return round(1e6 * took_s / count, 1)


def _growth(sizes: Sequence[int]) -> dict[int, Result]:
    """A row a cluster, by its number of hosts."""
    rows = {}
    for hosts in sizes:
        count = LEASES_A_HOST * hosts
        jobs = leases(hosts, count)
        runs = [play(hosts, jobs) for _ in range(REPEATS)]
        whole_s = min(run.whole_s for run in runs)
        policy_s = min(run.policy_s for run in runs)
        collector_s = min(run.collector_s for run in runs)
        rows[hosts] = Result(
            f"policy, per lease, {hosts:,} hosts",
            "us",
            (1e6 * policy_s / count,),
            extra={
                COLLECTOR: _us_per_lease(collector_s, count),
                WHOLE: _us_per_lease(whole_s, count),
            },
        )
    return rows


def _verdicts(rows: Mapping[int, Result]) -> list[Result]:
    """The growth of the policy, alone and with the collector, and of the whole
    run.
    """
    policy = {}
    with_collector = {}
    whole = {}
    for hosts, row in rows.items():
        policy[hosts] = row.samples[0]
        with_collector[hosts] = row.samples[0] + row.extra[COLLECTOR]
        whole[hosts] = row.extra[WHOLE]
    return [
        _verdict("policy", policy),
        _verdict("policy, collector", with_collector),
        _verdict("whole run", whole),
    ]


def _verdict(of: str, cost_us: Mapping[int, float]) -> Result:
    """Growth of the cost per lease from the smallest to the largest cluster,
    against that of log2(hosts).
    """
    first = min(cost_us)
    last = max(cost_us)
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
    hosts = np.array(list(rows))
    policy = [row.samples[0] for row in rows.values()]
    whole = [row.extra[WHOLE] for row in rows.values()]
    axes.plot(hosts, policy, marker="o", label="MBFCBS")
    axes.plot(hosts, whole, marker="s", label="whole run")
    axes.plot(
        hosts,
        policy[0] * np.log2(hosts) / np.log2(hosts[0]),
        linestyle="--",
        color="#888888",
        label="log₂ of the hosts",
    )
    _decorate(axes, rows)
    FIGURE.parent.mkdir(exist_ok=True)
    drawn.savefig(FIGURE, dpi=110)


def _decorate(axes: Axes, hosts: Iterable[int]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(list(hosts), [f"{n:,}" for n in hosts])
    axes.minorticks_off()
    axes.set_ylim(0)
    axes.set_xlabel("hosts, equally loaded")
    axes.set_ylabel("per lease [µs of processor time]")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
