"""JSA's rewards against the optimum of Section III's mixed-integer programme,
on small cases.

The paper's variables, with products taken apart: z[j,i,t] says that job j
starts in slot t with its option i, which only counts when it ends by its
deadline (Eqs. 1, 2, 4, 5, 10). VMs of a job are alike, so that p[j,i,m] becomes
the number x[j,m] of its VMs on machine m (Eqs. 3, 6). A job that is not on time
earns nothing and need not run at all: Eq. 4's "=" becomes "≤". The bandwidth of
a link in a slot is at least B·min(X, N-X) while the job runs (Eqs. 8, 9), by a
binary that says which of the two sides is taken, and a constant that switches
the constraint off.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np

from jobs.demand import Transfer
from jobs.job_profile import Profile
from jobs.request import JobRequest
from reproductions.grid_quantities import Measure
from reproductions.interpretations import JSA as INTERPRETATION
from reproductions.published_figure import Figure, Panel
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.schedulers.registry import build_policy
from topologies.datacentre import DataCentre
from topologies.tree import tree


@dataclass(frozen=True)
class SmallJob:
    """A job in slots of time: ``options`` are (bandwidth, slots), it must end
    by slot ``due``.
    """

    n_vms: int
    options: tuple[tuple[int, int], ...]
    due: int
    value: float


def best_reward(
    datacentre: DataCentre,
    jobs: Sequence[SmallJob],
    limit_s: float = 1800.0,
) -> float:
    """The greatest reward that any schedule has, by HiGHS. RuntimeError where
    it gives up.
    """
    programme = _Programme(datacentre, jobs)
    return programme.solve(limit_s)


class _Programme:
    """Columns and rows as they are gathered; one tree, its first."""

    def __init__(
        self, datacentre: DataCentre, jobs: Sequence[SmallJob]
    ) -> None:
        self._reward: list[float] = []
        self._high: list[float] = []
        self._rows: list[dict[int, float]] = []
        self._most: list[float] = []
        self._least: list[float] = []
        self._horizon = max((job.due for job in jobs), default=0)
        self._slots: list[list[dict[int, float]]] = [
            [{} for _ in range(self._horizon)]
            for _ in range(datacentre.n_servers)
        ]
        self._links: dict[int, list[dict[int, float]]] = {}
        self._dc = datacentre
        for job in jobs:
            self._add(job)
        for server, slots in enumerate(self._slots):
            for row in slots:
                self._at_most(row, float(datacentre.slots[server]))
        for link, times in self._links.items():
            for row in times:
                self._at_most(
                    row, float(datacentre.link_capacity_bps[link])
                )

    def solve(self, limit_s: float) -> float:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_array

        if not self._reward:
            return 0.0
        entries = [
            (r, c, v)
            for r, row in enumerate(self._rows)
            for c, v in row.items()
        ]
        rows, columns, values = (
            np.array(part) for part in zip(*entries, strict=True)
        )
        shape = (len(self._rows), len(self._reward))
        matrix = coo_array((values, (rows, columns)), shape=shape).tocsr()
        found = milp(
            -np.array(self._reward),
            constraints=LinearConstraint(
                matrix, np.array(self._least), np.array(self._most)
            ),
            integrality=np.ones(len(self._reward)),
            bounds=Bounds(0, np.array(self._high)),
            options={"time_limit": limit_s, "mip_rel_gap": 0.0},
        )
        if found.status != 0:
            raise RuntimeError(f"HiGHS: {found.message}")
        return float(-found.fun)

    def _add(self, job: SmallJob) -> None:
        starts = {
            (option, at): self._column(1.0, job.value)
            for option, (_, took) in enumerate(job.options)
            for at in range(job.due - took + 1)
        }
        if not starts:
            return
        self._at_most(dict.fromkeys(starts.values(), 1.0), 1.0)
        on = [
            self._column(float(job.n_vms))
            for _ in range(self._dc.n_servers)
        ]
        self._rows.append(dict.fromkeys(on, 1.0))
        self._least.append(float(job.n_vms))
        self._most.append(float(job.n_vms))
        running = [
            {
                option: [
                    column
                    for (chosen, start), column in starts.items()
                    if chosen == option and start <= now < start + took
                ]
                for option, (_, took) in enumerate(job.options)
            }
            for now in range(self._horizon)
        ]
        self._hold_slots(job, on, running)
        self._hold_links(job, on, running)

    def _hold_slots(
        self,
        job: SmallJob,
        on: list[int],
        running: list[dict[int, list[int]]],
    ) -> None:
        for server, placed in enumerate(on):
            for now, by_option in enumerate(running):
                active = [
                    column
                    for columns in by_option.values()
                    for column in columns
                ]
                if active:
                    held = self._column(float(job.n_vms))
                    # held ≥ placed - N·(1 - runs)
                    row = {placed: 1.0, held: -1.0} | dict.fromkeys(
                        active, float(job.n_vms)
                    )
                    self._at_most(row, float(job.n_vms))
                    self._slots[server][now][held] = 1.0

    def _hold_links(
        self,
        job: SmallJob,
        on: list[int],
        running: list[dict[int, list[int]]],
    ) -> None:
        n = float(job.n_vms)
        for link, below in self._below().items():
            crossing, far = self._column(n), self._column(1.0)
            # crossing ≥ X where the near side is taken, ≥ N - X where the far
            # one is.
            self._at_most(
                {crossing: -1.0, far: -n} | {on[s]: 1.0 for s in below}, 0.0
            )
            self._at_most(
                {crossing: -1.0, far: n} | {on[s]: -1.0 for s in below}, 0.0
            )
            times = self._links.setdefault(
                link, [{} for _ in range(self._horizon)]
            )
            for now, by_option in enumerate(running):
                if not any(by_option.values()):
                    continue
                widest = n * job.options[-1][0]
                held = self._column(widest)
                for option, columns in by_option.items():
                    if columns:
                        rate = float(job.options[option][0])
                        row = {crossing: rate, held: -1.0} | dict.fromkeys(
                            columns, n * rate
                        )
                        self._at_most(row, n * rate)
                times[now][held] = 1.0

    def _below(self) -> dict[int, list[int]]:
        """Link -> the servers below it."""
        tree = self._dc.trees[0]
        found: dict[int, list[int]] = {}
        for server in range(self._dc.n_servers):
            for node in tree.path_to_root(server):
                link = int(tree.uplink[node])
                if link >= 0:
                    found.setdefault(link, []).append(server)
        return found

    def _column(self, high: float, reward: float = 0.0) -> int:
        self._reward.append(reward)
        self._high.append(high)
        return len(self._reward) - 1

    def _at_most(self, row: dict[int, float], most: float) -> None:
        if row:
            self._rows.append(row)
            self._least.append(-np.inf)
            self._most.append(most)


# -- random cases, and the figure ----------------------------------------------

JSA, SIMPLE, EDF = "JSA", "SimpleJSA", "EDF"
POLICIES = {JSA: "jsa", SIMPLE: "simple-jsa", EDF: "edf"}
CASES = 20

SHARE = Measure(
    "share", "reward over the optimum's, mean", unit="%", factor=100.0
)
WORST = Measure("worst", "the worst case", unit="%", factor=100.0)
BEST = Measure("best", "the best case", unit="%", factor=100.0)
OPTIMAL = Measure(
    "optimal", "cases solved to the optimum", unit="%", factor=100.0
)


def random_case(
    jobs: int, rng: random.Random
) -> tuple[DataCentre, list[SmallJob]]:
    """Two racks of two or three machines, and jobs of up to eight VMs, all
    there at time 0.
    """
    machines, slots = rng.randint(2, 3), rng.randint(1, 3)
    datacentre = tree(
        [2, machines], [rng.randint(2, 8), rng.randint(2, 8)], slots
    )
    made = []
    for _ in range(jobs):
        n_vms = rng.randint(1, min(8, 2 * machines * slots))
        times = sorted(
            rng.sample(range(1, 7), rng.randint(1, 3)), reverse=True
        )
        rates = sorted(rng.sample(range(1, 5), len(times)))
        due = min(
            10,
            max(1, round(times[len(times) // 2] * rng.uniform(1.0, 3.0))),
        )
        options = tuple(zip(rates, times, strict=True))
        made.append(
            SmallJob(n_vms, options, due, float(rng.randint(100, 1000)))
        )
    return datacentre, made


def reward_of(
    policy: str, datacentre: DataCentre, jobs: list[SmallJob]
) -> float:
    """The reward that a policy earns; slots of time are seconds."""
    requests = [_request(number, job) for number, job in enumerate(jobs)]
    due = {one.id: one for one in requests}
    earned = 0.0

    def sink(event: Any) -> None:
        nonlocal earned
        if getattr(event, "outcome", "") == "finished":
            job = due[event.job_id]
            earned += (
                job.value
                if event.t <= (job.deadline_s or 0.0) + 1e-6
                else 0.0
            )

    parameters = INTERPRETATION.policies.get(policy, {})
    built = build_policy(policy, embedder("oktopus"), parameters)
    Engine(
        datacentre=datacentre,
        jobs=requests,
        policy=built,
        backend=SimulatedBackend(),
        sink=sink,
    ).run()
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
        demand=Transfer(
            profile=Profile(
                tuple((bps, float(slots)) for bps, slots in job.options)
            )
        ),
    )


@dataclass(frozen=True)
class OptimalityCases:
    """``cases`` random cases of ``jobs`` jobs, under a policy and at the
    optimum.
    """

    policy: str
    seed: int
    jobs: int
    cases: int = CASES

    @property
    def entry(self) -> str:
        """The policy with the interpretation's parameters."""
        return INTERPRETATION.entry(self.policy)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cost(self) -> float:
        return float(self.cases * self.jobs**2)

    def run(self) -> dict[str, float]:
        """Compares both; cases in which no job can be on time are left out."""
        began_s = time.process_time()
        shares = []
        for case in range(self.cases):
            datacentre, jobs, best = _solved(self.seed, self.jobs, case)
            if best > 0:
                shares.append(
                    reward_of(self.policy, datacentre, jobs) / best
                )
        shares = shares or [1.0]
        return {
            "cases": len(shares),
            "share": sum(shares) / len(shares),
            "worst": min(shares),
            "best": max(shares),
            "optimal": sum(share >= 1.0 - 1e-9 for share in shares)
            / len(shares),
            "cpu_s": time.process_time() - began_s,
        }


@cache
def _solved(
    seed: int, jobs: int, case: int
) -> tuple[DataCentre, list[SmallJob], float]:
    """A case and its optimum, kept for the other policies that meet it in this
    process.
    """
    rng = random.Random(f"{seed}/{jobs}/{case}")  # noqa: S311 - no secret
    datacentre, made = random_case(jobs, rng)
    return datacentre, made, best_reward(datacentre, made)


JOBS = (3.0, 5.0, 7.0)


def _cases(
    series: str, x: float, seed: int, quick: bool
) -> OptimalityCases:
    return OptimalityCases(
        POLICIES[series], seed, int(x), 6 if quick else CASES
    )


OPTIMALITY = Figure(
    name="jsa-optimality",
    title="Reward against the optimum of Section III's integer programme",
    source="JSA, Section III",
    x_label="jobs in a case",
    xs=JOBS,
    series=(JSA, SIMPLE, EDF),
    configuration=_cases,
    panels=(Panel(SHARE), Panel(OPTIMAL)),
    also=(WORST, BEST),
    printed=(SHARE, WORST, OPTIMAL),
    seeds=5,
    size=f"4 to 6 machines in 2 racks, {CASES} random cases a seed",
    quick_size="4 to 6 machines in 2 racks, 6 random cases a seed",
)
