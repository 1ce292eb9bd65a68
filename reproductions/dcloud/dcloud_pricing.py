"""DCloud's pricing (Sections III.E and VI): price and outcome of a strategic
tenant's requests.

The tenant's application produces up to 250 Mbit/s on each of 120 VMs, takes an
hour at that, and its result is of use until d. What it asks for is its
strategy; what happens then is simulated in an otherwise empty data centre, with
profiles as Eq. 1 gives them for the bandwidth asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

from jobs.demand import DemandCurve
from jobs.request import JobRequest
from jobs.workload.tenants import HOUR_S
from reproductions.claim_checks import NEGATIVE, Band, Check, Claim, more
from reproductions.configuration import Variant, measured
from reproductions.extractors import BILL_METRICS
from reproductions.grid_quantities import (
    Change,
    Difference,
    Level,
    Measure,
    Measures,
)
from reproductions.published_figure import Figure, Panel
from testbed.schedulers.charging import request_price
from testbed.spec.experiment import Experiment

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
    return (
        replace(
            truth,
            b_bps=int(b_bps),
            p_s=truth.d_s,
            true_s=truth.true_s * times,
        ),
    )


def _half_bandwidth(truth: Asked) -> tuple[Asked, ...]:
    return (
        replace(
            truth,
            b_bps=truth.b_bps // 2,
            p_s=2 * truth.p_s,
            true_s=2 * truth.true_s,
        ),
    )


STRATEGIES: dict[str, Strategy] = {
    "the truth": lambda truth: (truth,),
    "20 % more VMs": lambda truth: (replace(truth, n=truth.n * 6 // 5),),
    "20 % more bandwidth": lambda truth: (
        replace(truth, b_bps=truth.b_bps * 6 // 5),
    ),
    "half the bandwidth": _half_bandwidth,
    "the least bandwidth (p = d)": _smallest_bandwidth,
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
    """A strategy at a deadline of ``ratio`` times the duration, beside the
    truth.
    """

    strategy: str
    ratio: float
    policy: str = "dcloud"
    gamma: float = 0.12

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cost(self) -> float:
        return 0.1

    def run(self) -> Measures:
        """``price`` in dollars for all that was asked; ``done`` is 1 if it all
        ended by d.

        ``over_truth``: the price as a share above what the truth costs.
        ``discount``: the price over that of the truth without any discount.
        """
        truth = Asked(
            N_VMS, MOST_BPS, SHORTEST_S, self.ratio * SHORTEST_S, SHORTEST_S
        )
        file = Variant(
            "dcloud/dcloud-pricing.yaml",
            f"{{name: {self.policy}, gamma: {self.gamma}}}",
        )
        experiment = file.experiment()

        def bill(asked: tuple[Asked, ...]) -> Measures:
            return measured(
                replace(experiment, jobs=_jobs(asked, truth.d_s)),
                BILL_METRICS,
            )

        asked, honest = (
            bill(STRATEGIES[self.strategy](truth)),
            bill((truth,)),
        )
        undiscounted = request_price(
            truth.n, truth.b_bps, truth.p_s, truth.d_s, discounts=False
        )
        return {
            "price": asked["price"],
            "done": float(asked["end_s"] <= truth.d_s * (1 + SLACK)),
            "over_truth": asked["price"] / honest["price"] - 1.0,
            "discount": asked["price"] / undiscounted,
        }


@cache
def _experiment(policy: str) -> Experiment:
    """The file under a policy, read once for all strategies."""
    return Variant("dcloud/dcloud-pricing.yaml", policy).experiment()


def _jobs(
    asked: tuple[Asked, ...], wanted_by_s: float
) -> tuple[JobRequest, ...]:
    """The requests as jobs in place of the file's one.

    Parts in time follow each other: each has its share of d, and arrives when
    that of the one before is over. Set here and not in the file, which refuses
    d < p.
    """
    in_turn = sum(part.d_s for part in asked) <= wanted_by_s * (1 + SLACK)
    return tuple(
        JobRequest(
            id=f"part-{k}",
            submit_s=part.d_s * k if in_turn else 0.0,
            n_vms=part.n,
            bandwidth_bps=part.b_bps,
            duration_s=part.p_s,
            deadline_s=part.d_s,
            demand=APPLICATION,
            true_duration_s=part.true_s,
        )
        for k, part in enumerate(asked)
    )


# -- the table and its claims --------------------------------------------------

RATIOS = (1.0, 2.0, 5.0, 10.0, 20.0)
ROOM = RATIOS[1:]
TRUTH = "the truth"
ALLOCATIONS = {"sliding alone": "dcloud-ts", "scaling alone": "dcloud-bs"}
"""The truth again, allocated in another way."""

PRICE = Measure("price", "price of what is asked for", "$", 1.0, 2)
OVER = Measure("over_truth", "paid above what the truth costs", "%", 100.0)
DONE = Measure("done", "done by the true deadline (1: yes)", "", 1.0, 0)
DISCOUNT = Measure(
    "discount", "price over the price without discount", "", 1.0, 3
)

SHOWN = (
    "half the bandwidth",
    "20 % more VMs",
    "20 % longer",
    "20 % more bandwidth",
    "no room (d = p)",
    "10 % shorter",
)


def _paid(strategy: str, ratio: float, seed: int, quick: bool) -> Bargain:
    del seed, quick
    if strategy in ALLOCATIONS:
        return Bargain(TRUTH, ratio, ALLOCATIONS[strategy])
    return Bargain(strategy, ratio)


def _never(strategy: str) -> tuple[Check, ...]:
    return tuple(
        Check(Level(DONE, strategy, x), Band(0.0, 0.0)) for x in ROOM
    )


def _always(strategy: str) -> tuple[Check, ...]:
    return tuple(
        Check(Level(DONE, strategy, x), Band(1.0, 1.0)) for x in ROOM
    )


CHARGING = Figure(
    name="dcloud-charging",
    title="What would a strategic tenant pay?",
    source="DCloud, Sections III.E and VI",
    x_label="true deadline over true duration, d/p",
    xs=RATIOS,
    series=(*STRATEGIES, *ALLOCATIONS),
    configuration=_paid,
    panels=(Panel(OVER, shown=SHOWN, limits=(-15.0, 65.0)),),
    claims=(
        Claim(
            "Requirement 1: the price does not depend on what is allocated",
            "equal",
            tuple(
                Check(Difference(PRICE, way, TRUTH, x), Band(0.0, 0.0))
                for way in ALLOCATIONS
                for x in RATIOS
            ),
            interpretation="the same request under DCloud, DCloud-TS and DCloud-BS",
        ),
        Claim(
            "Requirement 2: asking for more VMs or bandwidth than are needed costs more",
            "more",
            more(PRICE, "20 % more VMs", (TRUTH,), RATIOS)
            + more(PRICE, "20 % more bandwidth", (TRUTH,), RATIOS),
        ),
        Claim(
            "Requirement 2: overstating the duration costs more",
            "more",
            more(PRICE, "20 % longer", (TRUTH,), ROOM),
        ),
        Claim(
            "Requirement 2: a shorter deadline than the true one costs more",
            "more",
            more(PRICE, "no room (d = p)", (TRUTH,), ROOM),
        ),
        Claim(
            "Requirement 3: a profile taken at a small bandwidth costs more",
            "more",
            more(PRICE, "half the bandwidth", (TRUTH,), ROOM)
            + more(PRICE, "the least bandwidth (p = d)", (TRUTH,), ROOM),
            interpretation="where p ≤ d still holds",
        ),
        Claim(
            "The longer a tenant can wait, the less the job costs",
            "falls",
            tuple(
                Check(Change(PRICE, TRUTH, a, b), NEGATIVE)
                for a, b in pairwise(RATIOS)
            ),
        ),
        Claim(
            "The discount at d = p and at d = 10 p",
            "1 and 0.959",
            (
                Check(Level(DISCOUNT, TRUTH, 1.0), Band(1.0, 1.0)),
                Check(Level(DISCOUNT, TRUTH, 10.0), Band(0.9585, 0.9595)),
            ),
        ),
        Claim(
            "Understating the duration within the relax index γ is done, and cheaper",
            "possible",
            (
                *_always("10 % shorter"),
                *(
                    Check(
                        Difference(PRICE, "10 % shorter", TRUTH, x),
                        NEGATIVE,
                    )
                    for x in ROOM
                ),
            ),
            interpretation="Section VI grants it: γ is a service that tenants may exploit",
        ),
        Claim(
            "Understating it beyond γ: killed when the reservation ends",
            "not done",
            _never("20 % shorter"),
        ),
        Claim(
            "Splitting the job saves nothing",
            "(ours)",
            tuple(
                Check(Difference(PRICE, way, TRUTH, x), Band(-1e-6, 1e-6))
                for way in (
                    "two jobs of half the VMs",
                    "two jobs of half the time",
                )
                for x in RATIOS
            ),
            interpretation="not in the paper: the price is linear in n, and in p at equal d/p",
        ),
    ),
    size="one job of 120 VMs at 250 Mbit/s for 1 h, 1,000 servers",
    quick_size="one job of 120 VMs at 250 Mbit/s for 1 h, 1,000 servers",
    exact=True,
    also=(DONE, PRICE, DISCOUNT),
    printed=(OVER, DONE),
)
