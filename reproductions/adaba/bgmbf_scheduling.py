"""BgMBF's Figures 6 to 8: waiting, slowdown and migrations under five
schedulers.
"""

from __future__ import annotations

from functools import partial

from reproductions.adaba.adaba_setup import (
    CPU,
    FULL,
    KTH,
    LOGS,
    NASA,
    QUICK,
    Log,
    both_logs,
    jobs_of,
)
from reproductions.configuration import Together
from reproductions.grid_quantities import Measure
from reproductions.published_figure import Figure, Panel

BGMBF = "BgMBF"
BGMBF_SDF = "BgMBF-SDF"
# Schedulers as the paper names them -> policies.
POLICIES = {
    "FCFS": "fcfs",
    "SBF": "sbf",
    "SDF": "sdf",
    BGMBF: "bgmbf",
    BGMBF_SDF: "bgmbf-sdf",
}
SERIES = tuple(POLICIES)
LOADS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


def _in_hours(log: Log, name: str, label: str) -> Measure:
    """A measure that runs have in seconds, shown in hours."""
    return log.measure(name, label, unit="h", factor=1 / 3600, digits=2)


def waiting(log: Log) -> Measure:
    """Mean waiting in a log, restarts included."""
    return _in_hours(log, "queued_s", "mean waiting")


def slowdown(log: Log) -> Measure:
    """Mean bounded slowdown in a log."""
    return log.measure("slowdown", "mean bounded slowdown")


def migrations(log: Log) -> Measure:
    """Number of migrations in a log."""
    return log.measure("migrations", "migrations", digits=0)


def migrated_jobs(log: Log) -> Measure:
    """Number of jobs of a log that migrated."""
    return log.measure("migrated_jobs", "jobs that migrated", digits=0)


def vm_use(log: Log) -> Measure:
    """Use of the VM slots by a log's jobs."""
    return log.measure("utilisation", "VM use", "%", 100.0)


def _restoring(log: Log) -> Measure:
    """20 s for each migration, against the mean waiting.

    In the runs migrations take no time.
    """
    return log.measure(
        "restoring_share",
        "20 s a migration over the mean waiting",
        unit="%",
        factor=100.0,
        digits=0,
    )


def _beside_panels(log: Log) -> tuple[Measure, ...]:
    """Measures of a log that have no panel."""
    return (
        _in_hours(log, "wait_s", "mean waiting before the first start"),
        _in_hours(log, "response_s", "mean time from arrival to end"),
        log.measure("acceptance", "accepted jobs", "%", 100.0),
        _in_hours(log, "wide_queued_s", "mean waiting, larger bandwidths"),
        log.measure("preemptions", "preemptions", digits=0),
        migrated_jobs(log),
        vm_use(log),
    )


ALSO = (*_beside_panels(KTH), *_beside_panels(NASA), CPU)


def _logs(series: str, load: float, seed: int, quick: bool) -> Together:
    return both_logs(
        POLICIES[series], "adaba", seed, load, jobs=jobs_of(quick=quick)
    )


_by_load = partial(
    Figure,
    x_label="system load",
    xs=LOADS,
    configuration=_logs,
    size=FULL,
    quick_size=QUICK,
)

FIGURE_6 = _by_load(
    name="bgmbf-fig6",
    title="Waiting under five schedulers",
    source="BgMBF, Fig. 6",
    series=SERIES,
    panels=tuple(Panel(waiting(log), logarithmic=True) for log in LOGS),
    also=ALSO,
)

FIGURE_7 = _by_load(
    name="bgmbf-fig7",
    title="Bounded slowdown under five schedulers",
    source="BgMBF, Fig. 7",
    series=SERIES,
    panels=tuple(Panel(slowdown(log), logarithmic=True) for log in LOGS),
    also=(CPU,),
)

FIGURE_8 = _by_load(
    name="bgmbf-fig8",
    title="Migrations of BgMBF and BgMBF-SDF",
    source="BgMBF, Fig. 8",
    series=(BGMBF, BGMBF_SDF),
    panels=tuple(Panel(migrations(log)) for log in LOGS),
    also=(*map(_restoring, LOGS), *ALSO),
)
