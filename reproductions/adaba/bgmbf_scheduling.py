"""BgMBF's Figures 6 to 8: waiting, slowdown and migrations under five
schedulers.
"""

from __future__ import annotations

from reproductions.adaba.adaba_setup import (
    CPU,
    FULL,
    LOGS,
    QUICK,
    Log,
    both_logs,
    jobs_of,
)
from reproductions.configuration import Together
from reproductions.grid_quantities import Measure
from reproductions.published_figure import Figure, Panel

FCFS, SBF, SDF, BGMBF, BGMBF_SDF = (
    "FCFS",
    "SBF",
    "SDF",
    "BgMBF",
    "BgMBF-SDF",
)
POLICIES = {
    FCFS: "fcfs",
    SBF: "sbf",
    SDF: "sdf",
    BGMBF: "bgmbf",
    BGMBF_SDF: "bgmbf-sdf",
}
FIVE = tuple(POLICIES)
LOADS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)

HOURS = 1 / 3600


def waiting(log: Log) -> Measure:
    """Mean waiting in a log."""
    return log.measure("queued_s", "mean waiting", "h", HOURS, 2)


def _slowdown(log: Log) -> Measure:
    return log.measure("slowdown", "mean bounded slowdown")


def migrations(log: Log) -> Measure:
    """Migrations in a log."""
    return log.measure("migrations", "migrations", digits=0)


def _restoring(log: Log) -> Measure:
    return log.measure(
        "restoring_share",
        "20 s a migration over the mean waiting",
        "%",
        100.0,
        0,
    )


ALSO = tuple(
    measure
    for log in LOGS
    for measure in (
        log.measure(
            "wait_s", "mean waiting before the first start", "h", HOURS, 2
        ),
        log.measure(
            "response_s", "mean time from arrival to end", "h", HOURS, 2
        ),
        log.measure("acceptance", "accepted jobs", "%", 100.0),
        log.measure("preemptions", "preemptions", digits=0),
        log.measure("utilisation", "VM use", "%", 100.0),
    )
)


def _logs(series: str, load: float, seed: int, quick: bool) -> Together:
    return both_logs(
        POLICIES[series], "adaba", seed, load, jobs=jobs_of(quick=quick)
    )


FIGURE_6 = Figure(
    name="bgmbf-fig6",
    title="Waiting under five schedulers",
    source="BgMBF, Fig. 6",
    x_label="system load",
    xs=LOADS,
    series=FIVE,
    configuration=_logs,
    panels=tuple(Panel(waiting(log)) for log in LOGS),
    also=(*ALSO, CPU),
    size=FULL,
    quick_size=QUICK,
)

FIGURE_7 = Figure(
    name="bgmbf-fig7",
    title="Bounded slowdown under five schedulers",
    source="BgMBF, Fig. 7",
    x_label="system load",
    xs=LOADS,
    series=FIVE,
    configuration=_logs,
    panels=tuple(Panel(_slowdown(log)) for log in LOGS),
    also=(CPU,),
    size=FULL,
    quick_size=QUICK,
)


FIGURE_8 = Figure(
    name="bgmbf-fig8",
    title="Migrations of BgMBF and BgMBF-SDF",
    source="BgMBF, Fig. 8",
    x_label="system load",
    xs=LOADS,
    series=(BGMBF, BGMBF_SDF),
    configuration=_logs,
    panels=tuple(Panel(migrations(log)) for log in LOGS),
    also=(*(_restoring(log) for log in LOGS), *ALSO, CPU),
    size=FULL,
    quick_size=QUICK,
)
