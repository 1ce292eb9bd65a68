"""What would a strategic tenant pay? The table and the claims of DCloud's Sections III.E and VI."""

from __future__ import annotations

from itertools import pairwise

from reproductions.claims import NEGATIVE, Band, Check, Claim, more
from reproductions.dcloud.charging import STRATEGIES, ChargingCell
from reproductions.figure import Figure, Panel
from reproductions.quantities import Change, Difference, Level, Measure

RATIOS = (1.0, 2.0, 5.0, 10.0, 20.0)
ROOM = RATIOS[1:]
TRUTH = "the truth"
ALLOCATIONS = {"sliding alone": "dcloud-ts", "scaling alone": "dcloud-bs"}
"""The truth again, allocated in another way."""

PRICE = Measure("price", "price of what is asked for", "$", 1.0, 2)
OVER = Measure("over_truth", "paid above what the truth costs", "%", 100.0)
DONE = Measure("done", "done by the true deadline (1: yes)", "", 1.0, 0)
DISCOUNT = Measure("discount", "price over the price without discount", "", 1.0, 3)

DRAWN = (
    "half the bandwidth",
    "20 % more VMs",
    "20 % longer",
    "20 % more bandwidth",
    "no room (d = p)",
    "10 % shorter",
)


def _paid(strategy: str, ratio: float, seed: int, quick: bool) -> ChargingCell:
    del seed, quick
    if strategy in ALLOCATIONS:
        return ChargingCell(TRUTH, ratio, ALLOCATIONS[strategy])
    return ChargingCell(strategy, ratio)


def _never(strategy: str) -> tuple[Check, ...]:
    return tuple(Check(Level(DONE, strategy, x), Band(0.0, 0.0)) for x in ROOM)


def _always(strategy: str) -> tuple[Check, ...]:
    return tuple(Check(Level(DONE, strategy, x), Band(1.0, 1.0)) for x in ROOM)


CHARGING = Figure(
    name="dcloud-charging",
    title="What would a strategic tenant pay?",
    source="DCloud, Sections III.E and VI",
    x_label="true deadline over true duration, d/p",
    xs=RATIOS,
    series=(*STRATEGIES, *ALLOCATIONS),
    cell=_paid,
    panels=(Panel(OVER, drawn=DRAWN, limits=(-15.0, 65.0)),),
    claims=(
        Claim(
            "Requirement 1: the price does not depend on what is allocated",
            "equal",
            tuple(
                Check(Difference(PRICE, way, TRUTH, x), Band(0.0, 0.0))
                for way in ALLOCATIONS
                for x in RATIOS
            ),
            reading="the same request under DCloud, DCloud-TS and DCloud-BS",
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
            reading="where p ≤ d still holds",
        ),
        Claim(
            "The longer a tenant can wait, the less the job costs",
            "falls",
            tuple(Check(Change(PRICE, TRUTH, a, b), NEGATIVE) for a, b in pairwise(RATIOS)),
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
                *(Check(Difference(PRICE, "10 % shorter", TRUTH, x), NEGATIVE) for x in ROOM),
            ),
            reading="Section VI grants it: γ is a service that speculative tenants may exploit",
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
                for way in ("two jobs of half the VMs", "two jobs of half the time")
                for x in RATIOS
            ),
            reading="not in the paper: the price is linear in n, and in p at equal d/p",
        ),
    ),
    size="one job of 120 VMs at 250 Mbit/s for 1 h, 1,000 servers",
    quick_size="one job of 120 VMs at 250 Mbit/s for 1 h, 1,000 servers",
    exact=True,
    also=(DONE, PRICE, DISCOUNT),
    printed=(OVER, DONE),
)
