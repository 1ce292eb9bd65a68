"""Common parts of DCloud's simulated figures: sizes, series, measures, and the
run of a point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from reproductions.configuration import RunConfiguration, Variant, settings
from reproductions.extractors import DAY_METRICS
from reproductions.grid_quantities import Measure
from reproductions.interpretations import (
    DCLOUD as DCLOUD_INTERPRETATION,
)
from reproductions.interpretations import Parameters
from reproductions.published_figure import Panel

DCLOUD = "DCloud"
TS = "DCloud-TS"
BS = "DCloud-BS"
VC = "VC"
BL = "BL"
# The testbed's policies by series of the paper.
POLICIES = {
    DCLOUD: "dcloud",
    TS: "dcloud-ts",
    BS: "dcloud-bs",
    VC: "vc",
    BL: "bl",
}
# The series of most figures.
THREE = (DCLOUD, VC, BL)
# About the processor time that a simulation of 8,000 servers takes per job.
SECONDS_A_JOB = {
    DCLOUD: 0.0055,
    TS: 0.0055,
    BS: 0.0055,
    VC: 0.0003,
    BL: 0.006,
}

SUCCESS = Measure("success", "jobs within deadline", "%", factor=100.0)
VM_WORK = Measure(
    "vm_use", "VM use by all work, over 24 hours", "%", factor=100.0
)
LINK_WORK = Measure(
    "link_use",
    "server link use by all work, over 24 hours",
    "%",
    factor=100.0,
)
REVENUE = Measure("revenue", "revenue", "k$", factor=1e-3, digits=2)
SLOWEST = Measure(
    "allocation_max_s", "slowest allocation", "ms", factor=1e3
)
VM_USE = Measure(
    "vm_use_day", "VM use within the first 24 hours", "%", factor=100.0
)
LINK_USE = Measure(
    "link_use_day",
    "server link use within the first 24 hours",
    "%",
    factor=100.0,
)
TRAFFIC = Measure(
    "traffic_day",
    "traffic among VMs within the first 24 hours, of the servers' links",
    "%",
    factor=100.0,
)
UNDISTURBED = Measure(
    "undisturbed", "jobs that ran in their stated time", "%", factor=100.0
)
REJECTED = Measure("rejected", "jobs turned away", digits=0)
CPU = Measure("cpu_s", "processor time of a run", "s")
ALSO = (VM_WORK, LINK_WORK, TRAFFIC, UNDISTURBED, SLOWEST, CPU)
"""Measures that a figure's table has beside its plots."""


@dataclass(frozen=True)
class Size:
    """A data centre, and the jobs that it is simulated with.

    ``fanout``: children of a node by level, from the root down.
    ``mean_vms`` of a job is proportional to the slots of a rack, and
    ``jobs_share``, the share of the published number of jobs, to the slots
    divided by ``mean_vms``. So the load, and the racks that a job spreads over,
    are those of the paper. ``words``: a description for people.
    """

    fanout: tuple[int, int, int]
    mean_vms: float
    jobs_share: float
    words: str


FULL = Size(
    (20, 20, 20),
    mean_vms=120.0,
    jobs_share=1.0,
    words="8,000 servers, 32,000 VM slots, 120 VMs a job on average",
)
QUICK = Size(
    (4, 10, 10),
    mean_vms=60.0,
    jobs_share=0.1,
    words=(
        "400 servers, 1,600 VM slots, 60 VMs a job on average, a tenth of "
        "the jobs"
    ),
)
# Jobs that arrive per hour of the day, for 8,000 servers; fewer by night.
PER_HOUR = 160.0
# Hours at the day's rate of arrivals that bring as many jobs as 24 hours:
# half of those are night, with a fifth of the rate.
DAY_AND_NIGHT = 24 * 0.6


def configuration(
    series: str,
    seed: int,
    *,
    quick: bool,
    per_hour: float = PER_HOUR,
    batch: float = 0.0,
    splits: tuple[float, float] = (4.0, 2.0),
    parameters: Parameters | None = None,
    workload: Mapping[str, object] | None = None,
) -> RunConfiguration:
    """The run of a series and a seed, with the values that a figure varies.

    Jobs arrive at the rate ``per_hour``, or ``batch`` of them at once; both
    numbers are for 8,000 servers. ``splits``: oversubscription of the racks' and
    of the aggregation switches. ``workload``: other values of that section.
    """
    # Later values replace earlier ones: a figure's those of the
    # interpretation.
    size = QUICK if quick else FULL
    values = {
        **DCLOUD_INTERPRETATION.workload,
        "vms.mean": size.mean_vms,
        **(workload or {}),
    }
    if batch:
        file = "dcloud/dcloud-batch.yaml"
        jobs: float = round(batch * size.jobs_share)
        values["jobs"] = jobs
    else:
        file = "dcloud/dcloud-day.yaml"
        values["per_hour"] = per_hour * size.jobs_share
        jobs = per_hour * size.jobs_share * DAY_AND_NIGHT
    racks, aggregation = splits
    topology = (
        # Both from the root down.
        ("topology.fanout", str(list(size.fanout))),
        ("topology.oversubscription", f"[{aggregation:g}, {racks:g}]"),
    )
    entry = DCLOUD_INTERPRETATION.entry(POLICIES[series], parameters)
    variant = Variant(file, entry, (*topology, *settings(**values)))
    # A simulation's time grows with the jobs, and with the servers that
    # each of them is placed among.
    servers = math.prod(size.fanout)
    cost = jobs * servers / 8000 * SECONDS_A_JOB[series]
    return RunConfiguration(variant, seed, DAY_METRICS, weight=cost)


def arriving(
    series: str, per_hour: float, seed: int, quick: bool
) -> RunConfiguration:
    """The run of a series at so many jobs an hour by day."""
    return configuration(series, seed, quick=quick, per_hour=per_hour)


def panels() -> tuple[Panel, ...]:
    """The four plots of all figures but one."""
    measures = (SUCCESS, VM_USE, LINK_USE, REVENUE)
    return tuple(map(Panel, measures))
