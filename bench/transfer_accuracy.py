"""Measured over ideal time of reserved transfers across five switches."""

from __future__ import annotations

from collections.abc import Sequence

from bench.live_network import (
    Transfer,
    five_switches,
    network,
    pair,
    repeated_transfers,
)
from bench.samples import Result

RATES_MBPS = (5, 10, 20, 50, 100, 200, 400, 600, 800, 950)
DURATION_S = 3.0
WITHIN = 0.01


def run(quick: bool) -> list[Result]:
    """Single transfers of 3 s from 5 to 950 Mbit/s, then four of 100 Mbit/s at
    once.
    """
    repeats = 3
    if quick:
        repeats = 1
    results = []
    with network(five_switches(1_000_000_000, 4)) as emulation:
        for mbps in RATES_MBPS:
            tenants = [pair(emulation, 1, 0, mbps * 1_000_000)]
            transfers = repeated_transfers(
                emulation, tenants, DURATION_S, repeats
            )
            results.append(_row(f"single {mbps} Mbit/s", transfers))
        # Each has its own slot, and all share the four links between.
        four = []
        for slot in range(4):
            four.append(pair(emulation, slot + 1, slot, 100_000_000))
        transfers = repeated_transfers(emulation, four, DURATION_S, repeats)
        results.append(_row("four at once, 100 Mbit/s", transfers))
    return results


def _row(name: str, transfers: Sequence[Transfer]) -> Result:
    ratios = []
    retransmits = 0
    worst = 0.0
    for sent in transfers:
        ratios.append(sent.ratio)
        retransmits += sent.retransmits
        worst = max(worst, abs(sent.ratio - 1))
    return Result(
        name,
        "ratio",
        samples=tuple(ratios),
        target="every one within 1 % of 1",
        meets=worst <= WITHIN,
        extra={"retransmits": retransmits},
    )
