"""Processor time of FCFS + AdaBa over 1,000 jobs on the fat-tree of 54 servers × 8
slots, with engine and ledger.
"""

from __future__ import annotations

import random
import time
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
    repeats = 3 if quick else 11
    rows = [
        _row("fcfs", network, repeats) for network in ("tree", "pooled")
    ]
    return [*rows, _row("bgmbf", "pooled", 1 if quick else 3)]


def workload(seed: int) -> list[JobRequest]:
    """Jobs with sizes as in parallel logs, exponential running times, and
    bandwidths as in the paper.

    Arrivals are Poisson. They last as long as all work needs on ``LOAD`` of the
    slots.
    """
    rng = random.Random(seed)  # noqa: S311
    shapes = [
        (rng.choice(SIZES), 1.0 + rng.expovariate(1 / 3600))
        for _ in range(N_JOBS)
    ]
    span_s = sum(n * duration_s for n, duration_s in shapes) / (
        54 * 8 * LOAD
    )
    at_s, jobs = 0.0, []
    for number, (n, duration_s) in enumerate(shapes):
        at_s += rng.expovariate(N_JOBS / span_s)
        most_bps = min(54 * GBIT / n, 455e6)
        bps = rng.gauss(0.55 * most_bps, 0.11 * most_bps)
        bps = min(max(bps, 0.1 * most_bps), most_bps)
        jobs.append(
            JobRequest(
                id=f"j{number}",
                submit_s=at_s,
                n_vms=n,
                bandwidth_bps=int(bps),
                duration_s=duration_s,
            )
        )
    return jobs


def _row(policy: str, network: Network, repeats: int) -> Result:
    datacentre, jobs = fat_tree(6, GBIT, 8, network), workload(1)
    samples: list[float] = []
    tally = Tally()
    for _ in range(repeats):
        tally = Tally()
        start = time.process_time()
        built = build_policy(policy, embedder("adaba"), {})
        Engine(
            datacentre=datacentre,
            jobs=jobs,
            policy=built,
            backend=SimulatedBackend(),
            sink=tally,
        ).run()
        samples.append(time.process_time() - start)
    summary = tally.summary()
    median_s = median(samples)
    return Result(
        f"{policy} + adaba, {network}, {N_JOBS} jobs",
        "s",
        samples=tuple(samples),
        target=f"median at most {TARGET_S:g} s" if policy == "fcfs" else "",
        meets=median_s <= TARGET_S if policy == "fcfs" else None,
        extra={
            "jobs_per_s": round(N_JOBS / median_s),
            "finished": summary.finished,
            "rejected": summary.rejected,
            "wait_mean_s": summary.wait_mean_s,
        },
    )
