"""The largest reserved load across five switches at which every job stays
within 1 %.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.live_network import five_switches, network, pair, transfer
from bench.samples import Result
from testbed.backends.emu.emulation import Emulation

LINK_BPS = 2_000_000_000
TOTALS_MBPS = (400, 600, 700, 800, 850, 900, 1000, 1200)
JOBS = 4
DURATION_S = 3.0
WITHIN = 0.01
TARGET_MBPS = 800


def run(quick: bool) -> list[Result]:
    """Four equal transfers, more and more of them in total, until one misses by
    over 1 %.
    """
    repeats = 1 if quick else 3
    largest = 0
    rows = []
    with network(five_switches(LINK_BPS, JOBS)) as emulation:
        for total in TOTALS_MBPS:
            ratios = ratios_at(emulation, total, repeats)
            rows.append(
                Result(
                    f"{JOBS} jobs, {total} Mbit/s in total", "ratio", ratios
                )
            )
            if exact(ratios) and largest == _previous(total):
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
    tenants = [pair(emulation, i + 1, i, rate_bps) for i in range(JOBS)]
    for tenant in tenants:
        emulation.admit(tenant)
    ratios = [
        result.ratio
        for _ in range(repeats)
        for result in transfer(emulation, tenants, DURATION_S)
    ]
    for tenant in tenants:
        emulation.dismiss(tenant)
    return tuple(ratios)


def exact(ratios: Sequence[float]) -> bool:
    """Every transfer took its ideal time, give or take 1 %."""
    return all(abs(ratio - 1) <= WITHIN for ratio in ratios)


def _previous(total: int) -> int:
    """The load before ``total``: the largest counts only if all below it were
    exact too.
    """
    position = TOTALS_MBPS.index(total)
    return TOTALS_MBPS[position - 1] if position else 0
