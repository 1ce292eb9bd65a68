"""Measured over ideal time of reserved transfers across five switches."""

from __future__ import annotations

from bench.live_network import five_switches, network, pair, transfer
from bench.samples import Result

RATES_MBPS = (5, 10, 20, 50, 100, 200, 400, 600, 800, 950)
DURATION_S = 3.0
WITHIN = 0.01


def run(quick: bool) -> list[Result]:
    """Single transfers of 3 s from 5 to 950 Mbit/s, then four of 100 Mbit/s at
    once.
    """
    repeats = 1 if quick else 3
    results = []
    with network(five_switches(1_000_000_000, 4)) as emulation:
        for mbps in RATES_MBPS:
            tenant = pair(emulation, 1, 0, mbps * 1_000_000)
            emulation.admit(tenant)
            runs = [
                transfer(emulation, [tenant], DURATION_S)[0]
                for _ in range(repeats)
            ]
            emulation.dismiss(tenant)
            again = sum(result.retransmits for result in runs)
            results.append(
                _row(
                    f"single {mbps} Mbit/s",
                    [result.ratio for result in runs],
                    again,
                )
            )
        four = [pair(emulation, i + 1, i, 100_000_000) for i in range(4)]
        for tenant in four:
            emulation.admit(tenant)
        runs = [
            result
            for _ in range(repeats)
            for result in transfer(emulation, four, DURATION_S)
        ]
        again = sum(result.retransmits for result in runs)
        results.append(
            _row(
                "four at once, 100 Mbit/s",
                [result.ratio for result in runs],
                again,
            )
        )
    return results


def _row(name: str, ratios: list[float], retransmits: int) -> Result:
    meets = all(abs(ratio - 1) <= WITHIN for ratio in ratios)
    extra = {"retransmits": retransmits}
    return Result(
        name,
        "ratio",
        samples=tuple(ratios),
        target="every one within 1 % of 1",
        meets=meets,
        extra=extra,
    )
