"""One DCloud allocation at 8,000 servers and 32,000 VMs under the default load.

A sample is an arrival of the default day. It comprises all points of the
11 × 11 grid, placement and DRU of each, the independent capacity check and the
booking in the ledger.
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
    """Milliseconds that each arrival of the first ``hours`` took."""
    # A small setting first, in which Numba compiles what the samples time.
    small = Setting(servers=1_000, hours=1.0)
    allocation_times(small, DCloud(embedder("oktopus")))
    times_s = allocation_times(
        Setting(hours=hours), DCloud(embedder("oktopus"))
    )
    return [1e3 * time_s for time_s in times_s]


def run(quick: bool) -> list[Result]:
    """The benchmark's row. ``quick`` plays the first two hours, which are less
    loaded than the rest of the day.
    """
    hours = 24.0
    if quick:
        hours = 2.0
    samples_ms = tuple(measured(measure, {"hours": hours}).returned)
    figures = summary(samples_ms)
    in_time = figures["mean"] <= MEAN_MS and figures["p99"] <= P99_MS
    return [
        Result(
            name="one allocation",
            unit="ms",
            samples=samples_ms,
            target=f"mean at most {MEAN_MS:g} ms, p99 {P99_MS:g} ms",
            meets=in_time,
        )
    ]
