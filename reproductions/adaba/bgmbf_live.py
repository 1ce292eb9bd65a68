"""BgMBF with AdaBa live: jobs of a real log, which move their bytes on a
fat-tree.
"""

from __future__ import annotations

import math

from reproductions.configuration import Variant, settings
from reproductions.grid_quantities import Measure, Measures
from reproductions.live_figure import (
    BESIDE,
    FIDELITY,
    MEDIAN,
    P95,
    WORST,
    Curve,
    Curves,
    LiveFigure,
    simulated,
    slots_in_use,
)
from reproductions.published_figure import Panel
from testbed.record.reading import RecordedRun

BGMBF = "BgMBF"
SDF = "BgMBF-SDF"
FCFS = "FCFS"
POLICIES = {
    BGMBF: "{name: bgmbf, migration_cost: 3 min}",
    SDF: "{name: bgmbf-sdf, migration_cost: 3 min}",
    FCFS: "fcfs",
}
SERIES = tuple(POLICIES)
# The system load, which the experiment file sets.
X = 1.4
XS = (X,)
HOUR_S = 3600.0

WAITING = Measure(
    "queued_s", "mean waiting", "h", factor=1 / HOUR_S, digits=2
)
SLOWDOWN = Measure("slowdown", "mean bounded slowdown", digits=2)
SUSPENDED = Measure("suspended", "preemptions", digits=0)


def measures(run: RecordedRun) -> Measures:
    """Waiting, slowdown, and preemptions."""
    summary = run.summary
    return {
        WAITING.name: _number(summary.queued_mean_s),
        SLOWDOWN.name: _number(summary.bounded_slowdown_mean),
        SUSPENDED.name: float(summary.preemptions),
    }


def _number(mean: float | None) -> float:
    """Not-a-number where there is nothing to average."""
    if mean is None:
        return math.nan
    return mean


def slots_by_hour(run: RecordedRun) -> Curve:
    """The percentage of VM slots in use, over hours."""
    return [
        (at_s / HOUR_S, 100.0 * share) for at_s, share in slots_in_use(run)
    ]


def _variant(series: str, x: float, quick: bool) -> Variant:  # noqa: ARG001 - one load
    first_jobs = settings(first=150) if quick else ()
    return Variant("adaba/bgmbf-live.yaml", POLICIES[series], first_jobs)


KTH_LIVE = LiveFigure(
    name="bgmbf-kth",
    title="Jobs of the KTH log on a live fat-tree",
    source="BgMBF, Figs. 6 and 7",
    x_label="system load",
    xs=XS,
    series=SERIES,
    variant=_variant,
    own=measures,
    curves=(Curves("VM slots in use [%]", "time [h]", slots_by_hour, X),),
    panels=(
        Panel(WAITING),
        Panel(SLOWDOWN),
        Panel(SUSPENDED),
        Panel(simulated(WAITING)),
        Panel(simulated(SLOWDOWN)),
        Panel(simulated(SUSPENDED)),
    ),
    also=BESIDE,
    printed=(
        WAITING,
        simulated(WAITING),
        SUSPENDED,
        simulated(SUSPENDED),
        MEDIAN,
        P95,
        WORST,
        FIDELITY,
    ),
    size=(
        "fat-tree of 16 servers of one VM slot, AdaBa; 36 jobs of 40 minutes"
        " to six hours, an hour in 7.5 s, live"
    ),
    quick_size="the same with the first jobs alone",
    reduced=(
        "16 servers of one VM slot in place of 54 of 8, parallel links that are"
        " not added up, a load of 1.4, and 36 jobs of a log of 28,476."
    ),
    seeds=1,
)
