"""One DCloud allocation at 8,000 servers and 32,000 VMs under the default load.

All points of the 11 × 11 grid, placement and DRU of each, the independent
capacity check and the booking in the ledger: every arrival of the default day.
"""

from __future__ import annotations

from bench.dcloud_setting import Setting, allocation_times
from bench.own_process import measured
from bench.samples import Result, summary
from testbed.embedding.base import embedder
from testbed.schedulers.dcloud import DCloud

MEAN_MS = 10.0
P99_MS = 25.0


def measure(hours: float) -> list[float]:
    """Milliseconds per arrival; compiling is over before the clock starts."""
    allocation_times(Setting(1_000, 1.0), DCloud(embedder("oktopus")))
    return [
        1e3 * s
        for s in allocation_times(
            Setting(hours=hours), DCloud(embedder("oktopus"))
        )
    ]


def run(quick: bool) -> list[Result]:
    """``quick`` plays the first two hours, which are less loaded."""
    samples = tuple(
        measured(measure, {"hours": 2.0 if quick else 24.0}).returned
    )
    figures = summary(samples)
    in_time = figures["mean"] <= MEAN_MS and figures["p99"] <= P99_MS
    target = f"mean at most {MEAN_MS:g} ms, p99 {P99_MS:g} ms"
    return [Result("one allocation", "ms", samples, target, in_time)]
