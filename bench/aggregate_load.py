"""The largest reserved load across five switches at which every job stays
within 1 %.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.live_network import (
    five_switches,
    network,
    pair,
    repeated_transfers,
)
from bench.samples import Result
from testbed.backends.emu.emulation import Emulation

LINK_BPS = 2_000_000_000
TOTALS_MBPS = (400, 600, 700, 800, 850, 900, 1000, 1200)
JOBS = 4
DURATION_S = 3.0
WITHIN = 0.01
TARGET_MBPS = 800


def run(quick: bool) -> list[Result]:
    """Four equal transfers at each load in turn, and the largest load at which
    all of them stay within 1 %.
    """
    repeats = 3
    if quick:
        repeats = 1
    largest = 0
    has_missed = False
    rows = []
    with network(five_switches(LINK_BPS, JOBS)) as emulation:
        for total in TOTALS_MBPS:
            ratios = ratios_at(emulation, total, repeats)
            name = f"{JOBS} jobs, {total} Mbit/s in total"
            rows.append(Result(name, "ratio", ratios))
            # The largest counts only if all below it were exact too.
            has_missed = has_missed or not exact(ratios)
            if not has_missed:
                largest = total
    meets = largest >= TARGET_MBPS
    rows.append(
        Result(
            "largest exact load",
            "Mbit/s",
            samples=(largest,),
            target=f"above {TARGET_MBPS}",
            meets=meets,
        )
    )
    return rows


def ratios_at(
    emulation: Emulation, total_mbps: int, repeats: int
) -> tuple[float, ...]:
    """Measured over ideal time of each of the equal transfers."""
    rate_bps = total_mbps * 1_000_000 // JOBS
    # All over the same five switches, each in a slot of its own.
    tenants = []
    for slot in range(JOBS):
        tenants.append(pair(emulation, slot + 1, slot, rate_bps))
    transfers = repeated_transfers(emulation, tenants, DURATION_S, repeats)
    return tuple(sent.ratio for sent in transfers)


def exact(ratios: Sequence[float]) -> bool:
    """Every transfer took its ideal time, give or take 1 %."""
    return all(abs(ratio - 1) <= WITHIN for ratio in ratios)
