"""Growth of DCloud's allocation time with the data centre and with the load:
table and plot.

Both with Numba where it is installed. Every size is loaded alike (the default's
160 arrivals an hour per 8,000 servers) for ``SIZE_HOURS``; the other series
varies the arrivals at 8,000 servers, for ``LOAD_HOURS``. The last hour is
measured. Without ``--quick`` the plot goes to ``FIGURE``.
"""

from __future__ import annotations

from pathlib import Path

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

FIGURE = (
    Path(__file__).parents[1] / "docs" / "figures" / "dcloud-growth.png"
)
LOADS_PER_HOUR = (20.0, 40.0, 80.0, 120.0, 160.0, 200.0, 250.0)
SIZE_HOURS, LOAD_HOURS = 3.0, 6.0

Figures = dict[str, float | int]


def measure(servers: int, per_hour: float, hours: float) -> list[float]:
    """Milliseconds per arrival of the last hour."""
    allocation_times(Setting(1_000, 0.5), DCloud(embedder("oktopus")))
    setting = Setting(servers, hours, per_hour)
    took_s = allocation_times(
        setting, DCloud(embedder("oktopus")), hours - 1.0
    )
    return [1e3 * s for s in took_s]


def run(quick: bool) -> list[Result]:
    """One row a size, one a load; ``quick`` leaves out the large sizes and most
    of the time.
    """
    sizes = [n for n in CENTRES if not quick or n <= 8_000]
    loads = LOADS_PER_HOUR[::3] if quick else LOADS_PER_HOUR
    size_hours, load_hours = (
        (1.5, 1.5) if quick else (SIZE_HOURS, LOAD_HOURS)
    )
    by_size = {
        n: _row(f"{n:,} servers", n, PER_HOUR, size_hours) for n in sizes
    }
    by_load = {
        n: _row(f"{n:g} jobs an hour", 8_000, n, load_hours) for n in loads
    }
    if not quick:
        _plot(
            {n: summary(row.samples) for n, row in by_size.items()},
            {n: summary(row.samples) for n, row in by_load.items()},
        )
    return [*by_size.values(), *by_load.values()]


def _row(name: str, servers: int, per_hour: float, hours: float) -> Result:
    arguments = {"servers": servers, "per_hour": per_hour, "hours": hours}
    return Result(name, "ms", tuple(measured(measure, arguments).returned))


def _plot(
    by_size: dict[int, Figures], by_load: dict[float, Figures]
) -> None:
    """Median, mean and p99; logarithmic for the size, from 0 for the load."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(8, 3.2), layout="constrained")
    FigureCanvasAgg(drawn)
    left, right = drawn.subplots(1, 2)
    for axes, rows in ((left, by_size), (right, by_load)):
        for key, marker in (("p99", "^"), ("mean", "o"), ("median", "s")):
            axes.plot(
                list(rows),
                [f[key] for f in rows.values()],
                marker=marker,
                label=key,
                lw=1.4,
            )
        axes.set_ylabel("one allocation [ms]")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    left.set_xscale("log")
    left.set_yscale("log")
    # Its label would touch its neighbour's on the logarithmic axis.
    ticks = [n for n in by_size if n != 64_000]
    left.set_xticks(ticks, [f"{n:,}" for n in ticks])
    left.set_yticks(
        [1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"]
    )
    left.minorticks_off()
    left.set_xlabel("servers, equally loaded")
    right.set_xlabel("jobs per hour at 8,000 servers")
    right.set_xlim(0)
    right.set_ylim(0)
    right.legend(frameon=False)
    FIGURE.parent.mkdir(exist_ok=True)
    drawn.savefig(FIGURE, dpi=110)
