"""DCloud's pricing (Sections III.E and VI): price and outcome of a strategic
tenant's requests.

The tenant's application produces up to 250 Mbit/s on each of 120 VMs. At that
bandwidth it takes an hour; its result is of use until d. The tenant's strategy
decides which requests it makes. They are simulated in an otherwise empty data
centre, with the profiles that Eq. 1 gives for their bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from jobs.demand import DemandCurve
from jobs.request import JobRequest
from jobs.workload.tenants import HOUR_S
from reproductions.configuration import Variant, measured
from reproductions.extractors import BILL_METRICS
from reproductions.grid_quantities import Measure, Measures
from reproductions.published_figure import Figure, Panel
from testbed.schedulers.charging import request_price

N_VMS = 120
MOST_BPS = 250_000_000
SHORTEST_S = HOUR_S
APPLICATION = DemandCurve(((1.0, MOST_BPS),))
# A time later than d by less than this share of d is rounding.
SLACK = 1e-9


@dataclass(frozen=True)
class Asked:
    """A request ⟨n, b, p, d⟩, and the time that the job truly takes at b."""

    n: int
    b_bps: int
    p_s: float
    d_s: float
    true_s: float


# Requests that a tenant makes in place of the true one.
Strategy = Callable[[Asked], tuple[Asked, ...]]


def _slower(truth: Asked, times: float) -> Asked:
    """The truth at as much less bandwidth as takes ``times`` as long."""
    return replace(
        truth,
        b_bps=math.ceil(truth.b_bps / times),
        p_s=times * truth.p_s,
        true_s=times * truth.true_s,
    )


STRATEGIES: dict[str, Strategy] = {
    "the truth": lambda truth: (truth,),
    "20 % more VMs": lambda truth: (replace(truth, n=truth.n * 6 // 5),),
    "20 % more bandwidth": lambda truth: (
        replace(truth, b_bps=truth.b_bps * 6 // 5),
    ),
    "half the bandwidth": lambda truth: (_slower(truth, 2),),
    "the least bandwidth (p = d)": lambda truth: (
        _slower(truth, truth.d_s / truth.p_s),
    ),
    "20 % longer": lambda truth: (
        replace(truth, p_s=min(1.2 * truth.p_s, truth.d_s)),
    ),
    "10 % shorter": lambda truth: (replace(truth, p_s=0.9 * truth.p_s),),
    "20 % shorter": lambda truth: (replace(truth, p_s=0.8 * truth.p_s),),
    "no room (d = p)": lambda truth: (replace(truth, d_s=truth.p_s),),
    "a deadline twice as late": lambda truth: (
        replace(truth, d_s=2 * truth.d_s),
    ),
    "two jobs of half the VMs": lambda truth: (
        (replace(truth, n=truth.n // 2),) * 2
    ),
    "two jobs of half the time": lambda truth: (
        (
            replace(
                truth,
                p_s=truth.p_s / 2,
                d_s=truth.d_s / 2,
                true_s=truth.true_s / 2,
            ),
        )
        * 2
    ),
}


@dataclass(frozen=True)
class Bargain:
    """A strategy, compared with the truth; ``ratio`` is the true d/p.

    The data centre allocates by ``policy``.
    """

    strategy: str
    ratio: float
    policy: str = "dcloud"

    @property
    def variant(self) -> Variant:
        return Variant(
            "dcloud/dcloud-pricing.yaml",
            f"{{name: {self.policy}, gamma: 0.12}}",
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), **self.variant.to_json()}

    def cost(self) -> float:
        return 0.1

    def run(self) -> Measures:
        """``price`` in dollars of all requests; ``done`` is 1 if all their jobs
        ended by d.

        ``over_truth``: the share by which the price exceeds the true request's.
        ``discount``: the price over that of the true request without discount.
        """
        truth = Asked(
            n=N_VMS,
            b_bps=MOST_BPS,
            p_s=SHORTEST_S,
            d_s=self.ratio * SHORTEST_S,
            true_s=SHORTEST_S,
        )
        experiment = self.variant.experiment()

        def bill(asked: tuple[Asked, ...]) -> Measures:
            return measured(
                replace(experiment, jobs=_jobs(asked, truth.d_s)),
                BILL_METRICS,
            )

        # Both by the same policy, each in a data centre of its own.
        asked = bill(STRATEGIES[self.strategy](truth))
        honest = bill((truth,))
        undiscounted = request_price(
            truth.n, truth.b_bps, truth.p_s, truth.d_s, discounts=False
        )
        return {
            "price": asked["price"],
            "done": float(asked["end_s"] <= truth.d_s * (1 + SLACK)),
            "over_truth": asked["price"] / honest["price"] - 1.0,
            "discount": asked["price"] / undiscounted,
        }


def _jobs(
    asked: tuple[Asked, ...], wanted_by_s: float
) -> tuple[JobRequest, ...]:
    """The requests as jobs, which replace the experiment file's job.

    Jobs whose deadlines together are within ``wanted_by_s`` follow each other:
    a job arrives at the deadline of the job before it. Jobs of other strategies
    arrive at once. They are not written in the file because it refuses d < p.
    """
    # One after the other where the tenant's own deadline leaves the time.
    in_turn = sum(part.d_s for part in asked) <= wanted_by_s * (1 + SLACK)
    jobs = []
    for number, part in enumerate(asked):
        job = JobRequest(
            id=f"part-{number}",
            submit_s=part.d_s * number if in_turn else 0.0,
            n_vms=part.n,
            bandwidth_bps=part.b_bps,
            duration_s=part.p_s,
            deadline_s=part.d_s,
            demand=APPLICATION,
            true_duration_s=part.true_s,
        )
        jobs.append(job)
    return tuple(jobs)


# -- the table and its claims --------------------------------------------------

RATIOS = (1.0, 2.0, 5.0, 10.0, 20.0)
TRUTH = "the truth"
ALLOCATIONS = {"sliding alone": "dcloud-ts", "scaling alone": "dcloud-bs"}
"""Policies that allocate the true request in another way."""

PRICE = Measure("price", "price of what is asked for", unit="$", digits=2)
OVER = Measure(
    "over_truth", "paid above what the truth costs", unit="%", factor=100.0
)
DONE = Measure("done", "done by the true deadline (1: yes)", digits=0)
DISCOUNT = Measure(
    "discount", "price over the price without discount", digits=3
)

SHOWN = (
    "half the bandwidth",
    "20 % more VMs",
    "20 % longer",
    "20 % more bandwidth",
    "no room (d = p)",
    "10 % shorter",
)


def _bargain(
    strategy: str, ratio: float, seed: int, quick: bool
) -> Bargain:
    del seed, quick  # nothing is drawn, and the tenant is alone
    if strategy in ALLOCATIONS:
        return Bargain(TRUTH, ratio, ALLOCATIONS[strategy])
    return Bargain(strategy, ratio)


CHARGING = Figure(
    name="dcloud-charging",
    title="What would a strategic tenant pay?",
    source="DCloud, Sections III.E and VI",
    x_label="true deadline over true duration, d/p",
    xs=RATIOS,
    series=(*STRATEGIES, *ALLOCATIONS),
    configuration=_bargain,
    panels=(Panel(OVER, shown=SHOWN, limits=(-15.0, 65.0)),),
    size="one job of 120 VMs at 250 Mbit/s for 1 h, 1,000 servers",
    quick_size="one job of 120 VMs at 250 Mbit/s for 1 h, 1,000 servers",
    exact=True,
    also=(DONE, PRICE, DISCOUNT),
    printed=(OVER, DONE),
)
