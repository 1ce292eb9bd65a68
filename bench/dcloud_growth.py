"""Growth of DCloud's allocation time with the data centre and with the load:
table and plot.

Both with Numba where it is installed. Every size is loaded alike (the default's
160 arrivals an hour per 8,000 servers) for ``SIZE_HOURS``; the other series
varies the arrivals at 8,000 servers, for ``LOAD_HOURS``. The last hour is
measured. Without ``--quick`` the plot goes to ``FIGURE``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.dcloud_setting import (
    CENTRES,
    PER_HOUR,
    Setting,
    allocation_times,
)
from bench.own_process import measured
from bench.samples import Result, summary
from testbed.embedding.base import embedder
from testbed.schedulers.dcloud import DCloud

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIGURE = (
    Path(__file__).parents[1] / "docs" / "figures" / "dcloud-growth.png"
)
LOADS_PER_HOUR = (20.0, 40.0, 80.0, 120.0, 160.0, 200.0, 250.0)
SIZE_HOURS = 3.0
LOAD_HOURS = 6.0
QUICK_HOURS = 1.5
QUICK_SIZES = (1_000, 8_000)
QUICK_LOADS_PER_HOUR = (20.0, 120.0, 250.0)
FIGURES = {"p99": "^", "mean": "o", "median": "s"}
"""Curves of the plot, and their markers."""


def measure(servers: int, per_hour: float, hours: float) -> list[float]:
    """Milliseconds per arrival of the last hour."""
    # A small setting first, in which Numba compiles what the samples time.
    allocation_times(Setting(1_000, 0.5), DCloud(embedder("oktopus")))
    setting = Setting(servers, hours, per_hour)
    took_s = allocation_times(
        setting, DCloud(embedder("oktopus")), hours - 1.0
    )
    return [1e3 * s for s in took_s]


def run(quick: bool) -> list[Result]:
    """A row for each size and each load; ``quick`` leaves out large sizes and
    most of the time.
    """
    if quick:
        by_size = _sizes(QUICK_SIZES, QUICK_HOURS)
        by_load = _loads(QUICK_LOADS_PER_HOUR, QUICK_HOURS)
    else:
        by_size = _sizes(CENTRES, SIZE_HOURS)
        by_load = _loads(LOADS_PER_HOUR, LOAD_HOURS)
        _plot(by_size, by_load)
    return [*by_size.values(), *by_load.values()]


def _sizes(sizes: Iterable[int], hours: float) -> dict[int, Result]:
    rows = {}
    for servers in sizes:
        name = f"{servers:,} servers"
        rows[servers] = _row(name, servers, PER_HOUR, hours)
    return rows


def _loads(loads: Iterable[float], hours: float) -> dict[float, Result]:
    rows = {}
    for per_hour in loads:
        name = f"{per_hour:g} jobs an hour"
        rows[per_hour] = _row(name, 8_000, per_hour, hours)
    return rows


def _row(name: str, servers: int, per_hour: float, hours: float) -> Result:
    arguments = {"servers": servers, "per_hour": per_hour, "hours": hours}
    return Result(name, "ms", tuple(measured(measure, arguments).returned))


def _plot(by_size: dict[int, Result], by_load: dict[float, Result]) -> None:
    """Median, mean and p99; logarithmic for the size, from 0 for the load."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(8, 3.2), layout="constrained")
    FigureCanvasAgg(drawn)
    left, right = drawn.subplots(1, 2)
    _curves(left, by_size)
    _curves(right, by_load)
    _label_sizes(left, by_size)
    right.set_xlabel("jobs per hour at 8,000 servers")
    right.set_xlim(0)
    right.set_ylim(0)
    right.legend(frameon=False)
    FIGURE.parent.mkdir(exist_ok=True)
    drawn.savefig(FIGURE, dpi=110)


def _curves(axes: Axes, rows: Mapping[Any, Result]) -> None:
    figures = [summary(row.samples) for row in rows.values()]
    for key, marker in FIGURES.items():
        values = [figure[key] for figure in figures]
        axes.plot(list(rows), values, marker=marker, label=key, lw=1.4)
    axes.set_ylabel("one allocation [ms]")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _label_sizes(axes: Axes, sizes: Iterable[int]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    # Its label would touch its neighbour's on the logarithmic axis.
    ticks = [n for n in sizes if n != 64_000]
    axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axes.set_yticks(
        [1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"]
    )
    axes.minorticks_off()
    axes.set_xlabel("servers, equally loaded")
