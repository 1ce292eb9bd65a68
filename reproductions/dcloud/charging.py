"""DCloud's charging (Sections III.E and VI): what would a strategic tenant pay?

The tenant's application produces up to 250 Mbit/s on each of 120 VMs, takes an hour at that, and
its result is of use until d. What it asks for is its strategy; what happens then is simulated in an
otherwise empty data centre, with profiles as Eq. 1 gives them for the bandwidth asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from jobs.demand import DemandCurve
from jobs.request import JobRequest
from jobs.workload.tenants import HOUR_S
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.schedulers.charging import no_discount, request_price
from testbed.schedulers.registry import build_policy
from topologies.tree import tree

GBPS = 10**9
N_VMS, MOST_BPS, SHORTEST_S = 120, 250_000_000, HOUR_S
APPLICATION = DemandCurve(((1.0, MOST_BPS),))
SLACK = 1e-9


@dataclass(frozen=True)
class Asked:
    """A request ⟨n, b, p, d⟩ and how long the job truly takes at b."""

    n: int
    b_bps: int
    p_s: float
    d_s: float
    true_s: float


Strategy = Callable[[Asked], tuple[Asked, ...]]


def _smallest_bandwidth(truth: Asked) -> tuple[Asked, ...]:
    times = truth.d_s / truth.p_s
    b_bps = -(-truth.b_bps * truth.p_s // truth.d_s)
    return (replace(truth, b_bps=int(b_bps), p_s=truth.d_s, true_s=truth.true_s * times),)


def _half_bandwidth(truth: Asked) -> tuple[Asked, ...]:
    return (replace(truth, b_bps=truth.b_bps // 2, p_s=2 * truth.p_s, true_s=2 * truth.true_s),)


STRATEGIES: dict[str, Strategy] = {
    "the truth": lambda truth: (truth,),
    "20 % more VMs": lambda truth: (replace(truth, n=truth.n * 6 // 5),),
    "20 % more bandwidth": lambda truth: (replace(truth, b_bps=truth.b_bps * 6 // 5),),
    "half the bandwidth": _half_bandwidth,
    "the least bandwidth (p = d)": _smallest_bandwidth,
    "20 % longer": lambda truth: (replace(truth, p_s=min(1.2 * truth.p_s, truth.d_s)),),
    "10 % shorter": lambda truth: (replace(truth, p_s=0.9 * truth.p_s),),
    "20 % shorter": lambda truth: (replace(truth, p_s=0.8 * truth.p_s),),
    "no room (d = p)": lambda truth: (replace(truth, d_s=truth.p_s),),
    "a deadline twice as late": lambda truth: (replace(truth, d_s=2 * truth.d_s),),
    "two jobs of half the VMs": lambda truth: (replace(truth, n=truth.n // 2),) * 2,
    "two jobs of half the time": lambda truth: (
        (replace(truth, p_s=truth.p_s / 2, d_s=truth.d_s / 2, true_s=truth.true_s / 2),) * 2
    ),
}


@dataclass(frozen=True)
class ChargingCell:
    """A strategy at a deadline of ``ratio`` times the duration."""

    strategy: str
    ratio: float
    policy: str = "dcloud"
    gamma: float = 0.12

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cost(self) -> float:
        return 0.1

    def run(self) -> dict[str, float]:
        """``price`` in dollars for all that was asked; ``done`` is 1 if it all ended by d.

        ``over_truth``: the price as a share above what the truth costs. ``discount``: the price
        over that of the truth without any discount.
        """
        truth = Asked(N_VMS, MOST_BPS, SHORTEST_S, self.ratio * SHORTEST_S, SHORTEST_S)
        price, done = self._outcome(STRATEGIES[self.strategy](truth), truth.d_s)
        honest, _ = self._outcome((truth,), truth.d_s)
        undiscounted = request_price(
            truth.n, truth.b_bps, truth.p_s, truth.d_s, discount=no_discount
        )
        return {
            "price": price,
            "done": float(done),
            "over_truth": price / honest - 1.0,
            "discount": price / undiscounted,
        }

    def _outcome(self, asked: tuple[Asked, ...], wanted_by_s: float) -> tuple[float, bool]:
        """What is paid, and whether everything is there in time. Parts in time follow each other:
        each has its share of d, and arrives when that of the one before is over.
        """
        in_turn = sum(part.d_s for part in asked) <= wanted_by_s * (1 + SLACK)
        arrivals = [part.d_s * k if in_turn else 0.0 for k, part in enumerate(asked)]
        jobs = tuple(
            JobRequest(
                id=f"part-{k}",
                submit_s=at_s,
                n_vms=part.n,
                bandwidth_bps=part.b_bps,
                duration_s=part.p_s,
                deadline_s=part.d_s,
                demand=APPLICATION,
                true_duration_s=part.true_s,
            )
            for k, (part, at_s) in enumerate(zip(asked, arrivals, strict=True))
        )
        ended: list[events.JobEnded] = []

        def watch(event: events.Event) -> None:
            if isinstance(event, events.JobEnded):
                ended.append(event)

        datacentre = tree([10, 10, 10], GBPS, 4, [2.0, 4.0])
        policy = build_policy(self.policy, embedder("oktopus"), {"gamma": self.gamma})
        Engine(datacentre, jobs, policy, SimulatedBackend(datacentre), watch).run()
        price = sum(float(event.detail.get("price", 0.0)) for event in ended)
        in_time = all(
            event.outcome == "finished" and event.t <= wanted_by_s * (1 + SLACK) for event in ended
        )
        return price, in_time and len(ended) == len(jobs)
