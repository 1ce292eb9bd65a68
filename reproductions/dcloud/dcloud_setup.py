"""DCloud's simulations in common: sizes, series, measures, and the run behind a
point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reproductions.configuration import RunConfiguration, Variant, settings
from reproductions.extractors import DAY_METRICS
from reproductions.grid_quantities import Measure
from reproductions.interpretations import (
    DCLOUD as DCLOUD_INTERPRETATION,
)
from reproductions.interpretations import Parameters
from reproductions.published_figure import Panel, Point

DCLOUD, TS, BS, VC, BL = "DCloud", "DCloud-TS", "DCloud-BS", "VC", "BL"
POLICIES = {
    DCLOUD: "dcloud",
    TS: "dcloud-ts",
    BS: "dcloud-bs",
    VC: "vc",
    BL: "bl",
}
THREE = (DCLOUD, VC, BL)
SECONDS_A_JOB = {BL: 0.006, VC: 0.0003}
"""Processor time of a job in 8,000 servers, about; 5.5 ms for the variants of
DCloud.
"""

SUCCESS = Measure("success", "jobs within deadline", "%", 100.0)
VM_USE = Measure("vm_use", "VM use", "%", 100.0)
LINK_USE = Measure("link_use", "server link use", "%", 100.0)
REVENUE = Measure("revenue", "revenue", "k$", 1e-3, 2)
SLOWEST = Measure("allocation_max_s", "slowest allocation", "ms", 1e3, 1)
VM_DAY = Measure(
    "vm_use_day", "VM use within the first 24 hours", "%", 100.0
)
LINK_DAY = Measure(
    "link_use_day", "server link use within the first 24 hours", "%", 100.0
)
TRAFFIC = Measure(
    "traffic_day",
    "traffic among VMs within the first 24 hours, of the servers' links",
    "%",
    100.0,
)
UNDISTURBED = Measure(
    "undisturbed", "jobs that ran in their stated time", "%", 100.0
)
CPU = Measure("cpu_s", "processor time of a run", "s", 1.0, 1)
ALSO = (VM_DAY, LINK_DAY, TRAFFIC, UNDISTURBED, SLOWEST, CPU)


@dataclass(frozen=True)
class Size:
    """A data centre, the mean job in it, and its share of the published number
    of jobs.

    Jobs grow and shrink with the racks, and their number with the slots over
    the job's size, so that the load and the way jobs spread over racks stay
    what they are.
    """

    fanout: tuple[int, int, int]
    vms: float
    jobs: float
    words: str


FULL = Size(
    (20, 20, 20),
    120.0,
    1.0,
    "8,000 servers, 32,000 VM slots, 120 VMs a job on average",
)
QUICK = Size(
    (4, 10, 10),
    60.0,
    0.1,
    "400 servers, 1,600 VM slots, 60 VMs a job on average, a tenth of the jobs",
)
PER_HOUR = 160.0
DAY_AND_NIGHT = 24 * 0.6
"""Hours of arrivals at the day's rate that a day and its night amount to."""


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
    """The default run of a series with what a figure sweeps in it.

    ``per_hour`` and ``batch`` are for 8,000 servers; ``splits`` the racks' and
    the aggregation switches' oversubscription; ``workload`` values by key of
    that section.
    """
    size = QUICK if quick else FULL
    jobs = round(batch * size.jobs)
    values = {
        **DCLOUD_INTERPRETATION.workload,
        "vms.mean": size.vms,
        **(workload or {}),
    }
    values |= (
        {"jobs": jobs} if batch else {"per_hour": per_hour * size.jobs}
    )
    racks, aggregation = splits
    topology = (
        ("topology.fanout", str(list(size.fanout))),
        ("topology.oversubscription", f"[{aggregation:g}, {racks:g}]"),
    )
    entry = DCLOUD_INTERPRETATION.entry(POLICIES[series], parameters)
    variant = Variant(
        "dcloud/dcloud-batch.yaml" if batch else "dcloud/dcloud-day.yaml",
        entry,
        (*topology, *settings(**values)),
    )
    servers = size.fanout[0] * size.fanout[1] * size.fanout[2]
    count = jobs if batch else per_hour * size.jobs * DAY_AND_NIGHT
    cost = count * servers / 8000 * SECONDS_A_JOB.get(series, 0.0055)
    return RunConfiguration(variant, seed, DAY_METRICS, cost)


def panels(
    published: Mapping[Measure, Mapping[Point, float]] | None = None,
) -> tuple[Panel, ...]:
    """The four plots that all but one of the figures have, with what the text
    says of them.
    """
    known = published or {}
    return tuple(
        Panel(m, known.get(m, {}))
        for m in (SUCCESS, VM_USE, LINK_USE, REVENUE)
    )
