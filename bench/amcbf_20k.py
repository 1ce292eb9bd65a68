"""CMCBF and AMCBF over 20,000 Feitelson-style jobs on 320 nodes: engine, books,
simulator.
"""

from __future__ import annotations

import time

from bench.samples import Result
from jobs.workload.parallel_jobs import ParallelJobs, Requests
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.engine.engine import Engine
from testbed.record.metrics import Tally
from testbed.schedulers.cmbf import Cmbf
from testbed.spec.workload_models import FeitelsonWorkload
from topologies.flat import flat

NODES = 320
JOBS = 20_000
QUICK_JOBS = 2_000
LOADS = (0.7, 0.9)
TARGET_S = 30.0


def run(quick: bool) -> list[Result]:
    """Seconds of processor time from the first request made to the last job's
    end.
    """
    count = JOBS
    repeats = 3
    if quick:
        count = QUICK_JOBS
        repeats = 1
    rows = []
    for load in LOADS:
        workload = FeitelsonWorkload(kind="feitelson", jobs=count)
        drawn = workload.draw(1, NODES, load).at_load(load, NODES)
        jobs = drawn.with_cpu_use(0.4, 1.0, 1)
        rows.append(_row("CMCBF", load, jobs, repeats))
        rows.append(_row("AMCBF", load, jobs, repeats))
    return rows


def _row(
    name: str, load: float, jobs: ParallelJobs, repeats: int
) -> Result:
    samples = []
    tally = Tally()
    for _ in range(repeats):
        tally = Tally()
        samples.append(_run_s(name, jobs, tally))
    summary = tally.summary()
    # A run that leaves jobs out is fast for want of work.
    if summary.finished != len(jobs):
        raise AssertionError(
            f"{len(jobs) - summary.finished} jobs never finished"
        )
    # The target is for the full number of jobs.
    meets = None
    if len(jobs) == JOBS:
        meets = max(samples) <= TARGET_S
    return Result(
        f"{name} at load {load:g}",
        "s",
        samples=tuple(samples),
        target=f"at most {TARGET_S:g} s for {JOBS:,} jobs",
        meets=meets,
        extra={
            "jobs": len(jobs),
            "migrations": summary.migrations,
            "mean response [s]": round(summary.response_mean_s or 0.0),
        },
    )


def _run_s(name: str, jobs: ParallelJobs, tally: Tally) -> float:
    """Processor time of one run, in s."""
    machine = flat(NODES, 1)
    began_s = time.process_time()
    Engine(
        datacentre=machine,
        jobs=Requests(jobs),
        policy=Cmbf(
            name.lower(), background=True, head_only=name == "AMCBF"
        ),
        backend=SimulatedBackend(machine, seed=1),
        sink=tally,
    ).run()
    return time.process_time() - began_s
