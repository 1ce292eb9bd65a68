"""How far JSA is from the optimum of Section III, on small random cases."""

from __future__ import annotations

import random
import time
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from jobs.demand import Transfer
from jobs.job_profile import Profile
from jobs.request import JobRequest
from reproductions.claims import Band, Check, Claim
from reproductions.figure import Figure, Panel
from reproductions.jsa.programme import SmallJob, best_reward
from reproductions.quantities import Level, Measure
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.schedulers.registry import build_policy
from topologies.datacentre import DataCentre
from topologies.tree import tree

JSA, SIMPLE, EDF = "JSA", "SimpleJSA", "EDF"
POLICIES = {JSA: "jsa", SIMPLE: "simple-jsa", EDF: "edf"}
CASES = 20

SHARE = Measure("share", "reward over the optimum's, mean", "%", 100.0)
WORST = Measure("worst", "the worst case", "%", 100.0)
BEST = Measure("best", "the best case", "%", 100.0)
OPTIMAL = Measure("optimal", "cases solved to the optimum", "%", 100.0)


def random_case(jobs: int, rng: random.Random) -> tuple[DataCentre, list[SmallJob]]:
    """Two racks of two or three machines, and jobs of up to eight VMs, all there at time 0."""
    machines, slots = rng.randint(2, 3), rng.randint(1, 3)
    datacentre = tree([2, machines], [rng.randint(2, 8), rng.randint(2, 8)], slots)
    made = []
    for _ in range(jobs):
        n_vms = rng.randint(1, min(8, 2 * machines * slots))
        times = sorted(rng.sample(range(1, 7), rng.randint(1, 3)), reverse=True)
        rates = sorted(rng.sample(range(1, 5), len(times)))
        due = min(10, max(1, round(times[len(times) // 2] * rng.uniform(1.0, 3.0))))
        options = tuple(zip(rates, times, strict=True))
        made.append(SmallJob(n_vms, options, due, float(rng.randint(100, 1000))))
    return datacentre, made


def reward_of(policy: str, datacentre: DataCentre, jobs: list[SmallJob]) -> float:
    """What a policy earns; slots of time are seconds."""
    requests = [_request(number, job) for number, job in enumerate(jobs)]
    due = {one.id: one for one in requests}
    earned = 0.0

    def sink(event: Any) -> None:
        nonlocal earned
        if getattr(event, "outcome", "") == "finished":
            job = due[event.job_id]
            earned += job.value if event.t <= (job.deadline_s or 0.0) + 1e-6 else 0.0

    built = build_policy(policy, embedder("oktopus"), {})
    Engine(datacentre, requests, built, SimulatedBackend(), sink).run()
    return earned


def _request(number: int, job: SmallJob) -> JobRequest:
    rate, took = job.options[len(job.options) // 2]
    return JobRequest(
        id=f"j{number:02}",
        submit_s=0.0,
        n_vms=job.n_vms,
        bandwidth_bps=rate,
        duration_s=float(took),
        deadline_s=float(job.due),
        value=job.value,
        demand=Transfer(profile=Profile(tuple((bps, float(slots)) for bps, slots in job.options))),
    )


@dataclass(frozen=True)
class OptimalityCell:
    """``cases`` random cases of ``jobs`` jobs, under a policy and at the optimum."""

    policy: str
    seed: int
    jobs: int
    cases: int = CASES

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cost(self) -> float:
        return float(self.cases * self.jobs**2)

    def run(self) -> dict[str, float]:
        """Cases in which nobody can be on time say nothing and are left out."""
        began_s = time.process_time()
        shares = []
        for case in range(self.cases):
            datacentre, jobs, best = _solved(self.seed, self.jobs, case)
            if best > 0:
                shares.append(reward_of(self.policy, datacentre, jobs) / best)
        shares = shares or [1.0]
        return {
            "cases": len(shares),
            "share": sum(shares) / len(shares),
            "worst": min(shares),
            "best": max(shares),
            "optimal": sum(share >= 1.0 - 1e-9 for share in shares) / len(shares),
            "cpu_s": time.process_time() - began_s,
        }


@cache
def _solved(seed: int, jobs: int, case: int) -> tuple[DataCentre, list[SmallJob], float]:
    """A case and its optimum, kept for the other policies that meet it in this process."""
    rng = random.Random(f"{seed}/{jobs}/{case}")  # noqa: S311 - no secret
    datacentre, made = random_case(jobs, rng)
    return datacentre, made, best_reward(datacentre, made)


JOBS = (3.0, 5.0, 7.0)


def _cell(series: str, x: float, seed: int, quick: bool) -> OptimalityCell:
    return OptimalityCell(POLICIES[series], seed, int(x), 6 if quick else CASES)


OPTIMALITY = Figure(
    name="jsa-optimality",
    title="Reward against the optimum of Section III's integer programme",
    source="JSA, Section III",
    x_label="jobs in a case",
    xs=JOBS,
    series=(JSA, SIMPLE, EDF),
    cell=_cell,
    panels=(Panel(SHARE), Panel(OPTIMAL)),
    claims=(
        Claim(
            "JSA never earns more than the optimum",
            "at most 100 %",
            tuple(Check(Level(BEST, JSA, x), Band(0.0, 100.0 + 1e-6), 0.0) for x in JOBS),
            reading="a check of both: the optimum by HiGHS, JSA by the engine",
        ),
    ),
    also=(WORST, BEST),
    printed=(SHARE, WORST, OPTIMAL),
    seeds=5,
    size=f"4 to 6 machines in 2 racks, {CASES} random cases a seed",
    quick_size="4 to 6 machines in 2 racks, 6 random cases a seed",
)
