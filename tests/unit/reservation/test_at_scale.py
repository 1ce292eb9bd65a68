"""The ledger of 100,000 servers: reserve, release early, window maxima, residuals, ``check()``.

What it says is compared with sums over a plain list, at every object that was ever reserved; all
others must be as free as on the first day.
"""

from __future__ import annotations

import random

import pytest

from testbed.embedding.placement import Placement, hose_bps
from testbed.reservation.ledger import Ledger, OverCommit
from tests.support.loops import BOTH_FORMS, loops
from topologies.datacentre import DataCentre
from topologies.tree import tree

GIGA = 10**9
JOBS = 60

Piece = tuple[float, float, dict[int, int], dict[int, int]]
"""From, until, slots by server, bit/s by directed link."""


@pytest.fixture(scope="module")
def large() -> DataCentre:
    return tree([50, 50, 40], [200 * GIGA, 10 * GIGA, GIGA], 4)


def drawn(
    rng: random.Random, dc: DataCentre
) -> tuple[Placement, int, float, float]:
    """A job on a run of servers somewhere, so that many overlap."""
    first = rng.choice([0, 39_950, 99_700]) + rng.randrange(200)
    servers = range(first, first + rng.randint(1, 90))
    placement = Placement(
        dc.trees[0].root, tuple((s, rng.randint(1, 2)) for s in servers)
    )
    start_s = float(rng.randrange(100))
    return (
        placement,
        rng.randrange(10**7, 10**8),
        start_s,
        start_s + rng.randint(1, 60),
    )


def most_used(
    pieces: dict[str, Piece], since_s: float, until_s: float
) -> tuple[dict, dict]:
    """By object, the most that is in use at any instant of the window."""
    slots: dict[int, int] = {}
    bps: dict[int, int] = {}
    starts = {p[0] for p in pieces.values()}
    for at_s in sorted(
        {since_s, *(t for t in starts if since_s < t < until_s)}
    ):
        for most, which in ((slots, 2), (bps, 3)):
            now: dict[int, int] = {}
            for piece in pieces.values():
                if piece[0] <= at_s < piece[1]:
                    for key, amount in piece[which].items():
                        now[key] = now.get(key, 0) + amount
            for key, amount in now.items():
                most[key] = max(most.get(key, 0), amount)
    return slots, bps


def compare(
    ledger: Ledger, pieces: dict[str, Piece], since_s: float, until_s: float
) -> None:
    dc = ledger.datacentre
    slots, bps = most_used(pieces, since_s, until_s)
    free_slots, free_bps = dc.slots.copy(), dc.directed_capacity_bps.copy()
    free_slots[list(slots)] -= list(slots.values())
    free_bps[list(bps)] -= list(bps.values())
    found = ledger.residual(since_s, until_s)
    assert (found.free_slots == free_slots).all()
    assert (found.free_bps == free_bps).all()


@pytest.mark.slow
@BOTH_FORMS
def test_a_hundred_thousand_servers(
    large: DataCentre, *, machine_code: bool
) -> None:
    with loops(machine_code=machine_code):
        reserves_and_releases(large)


def reserves_and_releases(large: DataCentre) -> None:
    rng = random.Random(5)
    ledger = Ledger(large)
    pieces: dict[str, Piece] = {}
    refused = 0
    for k in range(JOBS):
        placement, rate, start_s, end_s = drawn(rng, large)
        need = hose_bps(large.trees[0], placement, rate)
        slots, bps = most_used(pieces, start_s, end_s)
        fits = all(
            slots.get(s, 0) + n <= 4 for s, n in placement.vms_on
        ) and all(
            bps.get(link, 0) + n <= large.directed_capacity_bps[link]
            for link, n in need.items()
        )
        if not fits:
            refused += 1
            with pytest.raises(OverCommit):
                ledger.reserve(f"j{k}", placement, rate, start_s, end_s)
            continue
        ledger.reserve(f"j{k}", placement, rate, start_s, end_s)
        pieces[f"j{k}"] = (start_s, end_s, dict(placement.vms_on), need)
    assert refused > 3
    assert len(pieces) > 20
    ledger.check()
    compare(ledger, pieces, 0.0, 200.0)
    for job_id in sorted(pieces)[::2]:
        start_s, end_s, slots, need = pieces.pop(job_id)
        early_s = (start_s + end_s) / 2
        ledger.release(job_id, early_s)
        pieces[f"{job_id}, over"] = (start_s, early_s, slots, need)
    ledger.check()
    for since_s, until_s in (
        (0.0, 30.0),
        (20.0, 90.0),
        (50.0, 51.0),
        (0.0, 200.0),
    ):
        compare(ledger, pieces, since_s, until_s)
    for job_id in sorted(ledger.holdings()):
        ledger.release(job_id, 0.0)
    assert (
        ledger.residual(130.0, None).free_bps == large.directed_capacity_bps
    ).all()
