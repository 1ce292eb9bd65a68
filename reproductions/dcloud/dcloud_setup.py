"""What DCloud's figures have in common: sizes, series, measures, and the cell behind a point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reproductions.dcloud.cell import DCloudCell
from reproductions.figure import Panel, Point
from reproductions.quantities import Measure

DCLOUD, TS, BS, VC, BL = "DCloud", "DCloud-TS", "DCloud-BS", "VC", "BL"
POLICIES = {DCLOUD: "dcloud", TS: "dcloud-ts", BS: "dcloud-bs", VC: "vc", BL: "bl"}
THREE = (DCLOUD, VC, BL)

SUCCESS = Measure("success", "jobs within deadline", "%", 100.0)
VM_USE = Measure("vm_use", "VM use", "%", 100.0)
LINK_USE = Measure("link_use", "server link use", "%", 100.0)
REVENUE = Measure("revenue", "revenue", "k$", 1e-3, 2)
SLOWEST = Measure("allocation_max_s", "slowest allocation", "ms", 1e3, 1)
VM_DAY = Measure("vm_use_day", "VM use within the first 24 hours", "%", 100.0)
LINK_DAY = Measure("link_use_day", "server link use within the first 24 hours", "%", 100.0)
UNDISTURBED = Measure("undisturbed", "jobs that ran in their stated time", "%", 100.0)
CPU = Measure("cpu_s", "processor time of a run", "s", 1.0, 1)
ALSO = (VM_DAY, LINK_DAY, UNDISTURBED, SLOWEST, CPU)

BL_LEVEL = (
    "the published BL misses far more deadlines than fair sharing can make it miss (decision 0314)"
)
WORK_AFTER = "work after the 24 hours counts, and scaled jobs hold VMs longer (decision 0311)"
SCARCE = "with 50 Mbit/s per VM hardly any link is scarce; Figure 7 says so too (decision 0314)"


@dataclass(frozen=True)
class Size:
    """A data centre, the mean job in it, and its share of the published number of jobs.

    Jobs grow and shrink with the racks, and their number with the slots over the job's size, so
    that the load and the way jobs spread over racks stay what they are.
    """

    fanout: tuple[int, int, int]
    vms: float
    jobs: float
    words: str


FULL = Size((20, 20, 20), 120.0, 1.0, "8,000 servers, 32,000 VM slots, 120 VMs a job on average")
QUICK = Size(
    (4, 10, 10),
    60.0,
    0.1,
    "400 servers, 1,600 VM slots, 60 VMs a job on average, a tenth of the jobs",
)


def cell(series: str, seed: int, *, quick: bool) -> DCloudCell:
    """The default cell of a series; a figure replaces in it what it sweeps."""
    size = QUICK if quick else FULL
    return DCloudCell(
        policy=POLICIES[series],
        seed=seed,
        fanout=size.fanout,
        vms=size.vms,
        per_hour=DCloudCell.per_hour * size.jobs,
    )


def jobs_share(*, quick: bool) -> float:
    """What to multiply a published number of jobs by."""
    return (QUICK if quick else FULL).jobs


def panels(published: Mapping[Measure, Mapping[Point, float]] | None = None) -> tuple[Panel, ...]:
    """The four plots that all but one of the figures have, with what the text says of them."""
    known = published or {}
    return tuple(Panel(m, known.get(m, {})) for m in (SUCCESS, VM_USE, LINK_USE, REVENUE))
