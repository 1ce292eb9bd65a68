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
from itertools import chain
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
from testbed.events import Event, JobEnded
from testbed.schedulers.registry import build_policy
from topologies.datacentre import DataCentre
from topologies.tree import tree


@dataclass(frozen=True)
class SmallJob:
    """A job in slots of time. ``options`` are pairs of a bandwidth and a number
    of slots, the least bandwidth first; it must end by slot ``due``.
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
    it finds none within ``limit_s``.
    """
    programme = _Programme(datacentre, jobs)
    return programme.solve(limit_s)


class _Programme:
    """Columns and rows of the integer programme of Section III, for the first
    tree of a data centre.
    """

    def __init__(
        self, datacentre: DataCentre, jobs: Sequence[SmallJob]
    ) -> None:
        self._reward: list[float] = []
        self._high: list[float] = []
        self._rows: list[dict[int, float]] = []
        self._most: list[float] = []
        self._least: list[float] = []
        self._horizon = max((job.due for job in jobs), default=0)
        # What jobs hold of each server and each link, a row a slot of time:
        # columns and their factors.
        self._slots: list[list[dict[int, float]]] = []
        for _ in range(datacentre.n_servers):
            self._slots.append(self._empty_rows())
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

    def _empty_rows(self) -> list[dict[int, float]]:
        """A row without columns for each slot of time."""
        return [{} for _ in range(self._horizon)]

    def solve(self, limit_s: float) -> float:
        """The greatest reward. RuntimeError where HiGHS finds none in time."""
        # Imported here: only this figure needs them.
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_array

        # Without a start in time there is no column, and nothing is earned.
        if not self._reward:
            return 0.0
        rows: list[int] = []
        columns: list[int] = []
        values: list[float] = []
        for number, row in enumerate(self._rows):
            rows += [number] * len(row)
            columns += row
            values += row.values()
        shape = (len(self._rows), len(self._reward))
        matrix = coo_array((values, (rows, columns)), shape=shape).tocsr()
        # HiGHS minimises.
        optimum = milp(
            -np.array(self._reward),
            constraints=LinearConstraint(
                matrix, np.array(self._least), np.array(self._most)
            ),
            integrality=np.ones(len(self._reward)),
            bounds=Bounds(0, np.array(self._high)),
            options={"time_limit": limit_s, "mip_rel_gap": 0.0},
        )
        if optimum.status != 0:
            raise RuntimeError(f"HiGHS: {optimum.message}")
        return float(-optimum.fun)

    def _add(self, job: SmallJob) -> None:
        """Adds the columns and rows of a job: its starts, its VMs by server, and
        what it holds of servers and links.
        """
        # Columns of z[j,i,t], by option and slot of the start.
        starts = {}
        for option, (_, took) in enumerate(job.options):
            for start in range(job.due - took + 1):
                starts[option, start] = self._column(1.0, job.value)
        if not starts:
            return
        # It starts once, or not at all.
        self._at_most(dict.fromkeys(starts.values(), 1.0), 1.0)
        # Columns of x[j,m], by server; their sum is all of its VMs.
        n_vms = float(job.n_vms)
        on = [self._column(n_vms) for _ in range(self._dc.n_servers)]
        self._rows.append(dict.fromkeys(on, 1.0))
        self._least.append(n_vms)
        self._most.append(n_vms)
        # By slot of time and option: the starts with which it runs then.
        running: list[dict[int, list[int]]] = []
        for now in range(self._horizon):
            by_option: dict[int, list[int]] = {}
            for option in range(len(job.options)):
                by_option[option] = []
            for (option, start), column in starts.items():
                _, took = job.options[option]
                if start <= now < start + took:
                    by_option[option].append(column)
            running.append(by_option)
        self._hold_slots(job, on, running)
        self._hold_links(job, on, running)

    def _hold_slots(
        self,
        job: SmallJob,
        on: list[int],
        running: list[dict[int, list[int]]],
    ) -> None:
        """Adds the slots of servers that a job holds while it runs.

        ``on``: its VMs' columns by server; ``running``: the starts with which it
        runs, by slot of time and option.
        """
        n_vms = float(job.n_vms)
        for server, placed in enumerate(on):
            for now, by_option in enumerate(running):
                active = list(chain.from_iterable(by_option.values()))
                if active:
                    held = self._column(n_vms)
                    # held ≥ placed - N·(1 - runs)
                    row = {placed: 1.0, held: -1.0}
                    row.update(dict.fromkeys(active, n_vms))
                    self._at_most(row, n_vms)
                    self._slots[server][now][held] = 1.0

    def _hold_links(
        self,
        job: SmallJob,
        on: list[int],
        running: list[dict[int, list[int]]],
    ) -> None:
        """Adds the bandwidth of links that a job holds while it runs; parameters
        as in :meth:`_hold_slots`.
        """
        n = float(job.n_vms)
        for link, below in self._below().items():
            crossing = self._column(n)
            far = self._column(1.0)
            # crossing ≥ X where the near side is taken, ≥ N - X where the
            # far one is.
            near_side = {crossing: -1.0, far: -n}
            far_side = {crossing: -1.0, far: n}
            for server in below:
                near_side[on[server]] = 1.0
                far_side[on[server]] = -1.0
            self._at_most(near_side, 0.0)
            self._at_most(far_side, 0.0)
            times = self._links.setdefault(link, self._empty_rows())
            for now, by_option in enumerate(running):
                if not any(by_option.values()):
                    continue
                widest = n * job.options[-1][0]
                held = self._column(widest)
                for option, columns in by_option.items():
                    if columns:
                        rate = float(job.options[option][0])
                        # held ≥ rate·(crossing - N·(1 - runs))
                        row = {crossing: rate, held: -1.0}
                        row.update(dict.fromkeys(columns, n * rate))
                        self._at_most(row, n * rate)
                times[now][held] = 1.0

    def _below(self) -> dict[int, list[int]]:
        """The servers below each link."""
        tree = self._dc.trees[0]
        servers_below: dict[int, list[int]] = {}
        for server in range(self._dc.n_servers):
            for node in tree.path_to_root(server):
                link = int(tree.uplink[node])
                if link >= 0:
                    servers_below.setdefault(link, []).append(server)
        return servers_below

    def _column(self, high: float, reward: float = 0.0) -> int:
        """The number of a new column, whose values are 0 to ``high``."""
        self._reward.append(reward)
        self._high.append(high)
        return len(self._reward) - 1

    def _at_most(self, row: dict[int, float], most: float) -> None:
        """Adds a row: the sum of columns times factors is at most ``most``."""
        if row:
            self._rows.append(row)
            self._least.append(-np.inf)
            self._most.append(most)


# -- random cases, and the figure ----------------------------------------------

JSA = "JSA"
SIMPLE = "SimpleJSA"
EDF = "EDF"
POLICIES = {JSA: "jsa", SIMPLE: "simple-jsa", EDF: "edf"}
CASES = 20
QUICK_CASES = 6
ROUNDING_S = 1e-6
# A share of the optimum that falls short by less is rounding of HiGHS.
SLACK = 1e-9

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
    """Two racks of two or three machines, and jobs of up to eight VMs, which
    all arrive at time 0.
    """
    machines = rng.randint(2, 3)
    slots = rng.randint(1, 3)
    capacities = [rng.randint(2, 8), rng.randint(2, 8)]
    datacentre = tree([2, machines], capacities, slots)
    made = []
    for _ in range(jobs):
        n_vms = rng.randint(1, min(8, 2 * machines * slots))
        # With more bandwidth a job takes less time.
        times = rng.sample(range(1, 7), rng.randint(1, 3))
        times.sort(reverse=True)
        rates = sorted(rng.sample(range(1, 5), len(times)))
        options = tuple(zip(rates, times, strict=True))
        middle_time = times[len(times) // 2]
        due = round(middle_time * rng.uniform(1.0, 3.0))
        # The integer programme grows with the last deadline.
        due = min(10, max(1, due))
        value = float(rng.randint(100, 1000))
        made.append(SmallJob(n_vms, options, due, value))
    return datacentre, made


def reward_of(
    policy: str, datacentre: DataCentre, jobs: list[SmallJob]
) -> float:
    """The reward that a policy earns; slots of time are seconds."""
    requests = [_request(number, job) for number, job in enumerate(jobs)]
    request_of = {request.id: request for request in requests}
    earned = 0.0

    def sink(event: Event) -> None:
        nonlocal earned
        if isinstance(event, JobEnded) and event.outcome == "finished":
            request = request_of[event.job_id]
            # Ends are sums of rounded times.
            if event.t <= (request.deadline_s or 0.0) + ROUNDING_S:
                earned += request.value

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
    """A job as a policy gets it. It asks for its middle option; the profile has
    all of them.
    """
    rate, took = job.options[len(job.options) // 2]
    points = []
    for bps, slots in job.options:
        points.append((bps, float(slots)))
    return JobRequest(
        id=f"j{number:02}",
        submit_s=0.0,
        n_vms=job.n_vms,
        bandwidth_bps=rate,
        duration_s=float(took),
        deadline_s=float(job.due),
        value=job.value,
        demand=Transfer(profile=Profile(tuple(points))),
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
        # With the parameters, so that other ones are another run.
        return {**asdict(self), "entry": self.entry}

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
        # Where nothing can be earned, to earn nothing is optimal.
        shares = shares or [1.0]
        optimal = sum(share >= 1.0 - SLACK for share in shares)
        return {
            "cases": len(shares),
            "share": sum(shares) / len(shares),
            "worst": min(shares),
            "best": max(shares),
            "optimal": optimal / len(shares),
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
    cases = QUICK_CASES if quick else CASES
    return OptimalityCases(POLICIES[series], seed, int(x), cases)


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
    quick_size=(
        f"4 to 6 machines in 2 racks, {QUICK_CASES} random cases a seed"
    ),
)
