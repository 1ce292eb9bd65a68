"""Processor time of FCFS + AdaBa over 1,000 jobs on the fat-tree of 54 servers × 8
slots, with engine and ledger.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from statistics import median

from bench.samples import Result
from jobs.request import JobRequest
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.record.metrics import Tally
from testbed.schedulers.registry import build_policy
from topologies.fat_tree import Network, fat_tree

GBIT = 10**9
N_JOBS = 1000
LOAD = 0.5
TARGET_S = 1.0
SIZES = (1, 2, 4, 8, 8, 16, 32, 64, 100)


def run(quick: bool) -> list[Result]:
    """Rows of FCFS in both interpretations of the network, and of BgMBF, which
    has no target.
    """
    repeats = 11
    untargeted = 3
    if quick:
        repeats = 3
        untargeted = 1
    return [
        _judged(_row("fcfs", "tree", repeats)),
        _judged(_row("fcfs", "pooled", repeats)),
        _row("bgmbf", "pooled", untargeted),
    ]


def _judged(row: Result) -> Result:
    return replace(
        row,
        target=f"median at most {TARGET_S:g} s",
        meets=median(row.samples) <= TARGET_S,
    )


def workload(seed: int) -> list[JobRequest]:
    """Jobs with sizes as in parallel logs, exponential running times, and
    bandwidths as in the paper.

    Arrivals are Poisson. They last as long as all work needs on ``LOAD`` of the
    slots.
    """
    rng = random.Random(seed)  # noqa: S311 - no secret
    shapes = []
    for _ in range(N_JOBS):
        n_vms = rng.choice(SIZES)
        duration_s = 1.0 + rng.expovariate(1 / 3600)
        shapes.append((n_vms, duration_s))
    work_s = sum(n_vms * duration_s for n_vms, duration_s in shapes)
    span_s = work_s / (54 * 8 * LOAD)
    at_s = 0.0
    jobs = []
    for number, (n_vms, duration_s) in enumerate(shapes):
        at_s += rng.expovariate(N_JOBS / span_s)
        jobs.append(
            JobRequest(
                id=f"j{number}",
                submit_s=at_s,
                n_vms=n_vms,
                bandwidth_bps=_bandwidth_bps(rng, n_vms),
                duration_s=duration_s,
            )
        )
    return jobs


def _bandwidth_bps(rng: random.Random, n_vms: int) -> int:
    """Normal around 55 % of the most that so many VMs may have."""
    most_bps = min(54 * GBIT / n_vms, 455e6)
    bps = rng.gauss(0.55 * most_bps, 0.11 * most_bps)
    return int(min(max(bps, 0.1 * most_bps), most_bps))


def _row(policy: str, network: Network, repeats: int) -> Result:
    """Processor time of each run, without a target."""
    datacentre = fat_tree(6, GBIT, 8, network)
    jobs = workload(1)
    samples: list[float] = []
    tally = Tally()
    for _ in range(repeats):
        tally = Tally()
        start = time.process_time()
        Engine(
            datacentre=datacentre,
            jobs=jobs,
            policy=build_policy(policy, embedder("adaba"), {}),
            backend=SimulatedBackend(),
            sink=tally,
        ).run()
        samples.append(time.process_time() - start)
    summary = tally.summary()
    return Result(
        f"{policy} + adaba, {network}, {N_JOBS} jobs",
        "s",
        samples=tuple(samples),
        extra={
            "jobs_per_s": round(N_JOBS / median(samples)),
            "finished": summary.finished,
            "rejected": summary.rejected,
            "wait_mean_s": summary.wait_mean_s,
        },
    )
