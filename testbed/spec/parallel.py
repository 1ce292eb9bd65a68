"""What workloads of parallel jobs have in common: load, bandwidth, VMs, CPU use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from jobs.demand import Pattern
from jobs.workload.hose_demand import CAP_BPS, MEAN_OF_MAX, HoseDemand, Rule
from jobs.workload.parallel import NoSpan, ParallelJobs, Requests
from testbed.spec.document import Document
from testbed.spec.problems import Path, Place
from testbed.spec.quantities import BANDWIDTH_SCHEMA, PositiveBandwidth, Share, SpecModel
from testbed.spec.topology import Site
from testbed.units import UnitError, human_bandwidth, human_duration, parse_bandwidth
from topologies.datacentre import DataCentre


def _cap(value: Any) -> int | None:
    if value == "none":
        return None
    try:
        return parse_bandwidth(value)
    except UnitError as error:
        message = f"{error}, or none"
        raise PydanticCustomError("quantity", "{message}", {"message": message}) from None


Cap = Annotated[
    int | None,
    PlainValidator(_cap),
    WithJsonSchema({"anyOf": [BANDWIDTH_SCHEMA, {"const": "none"}]}),
]


class BandwidthRule(SpecModel):
    """What each VM asks for, where the workload itself does not say."""

    rule: Rule = Field(
        "clip",
        description="clip: normal around 0.55 of Max_B, clipped to a tenth of it and the whole"
        " (default); printed: the paper's formula as it is printed, which always gives Max_B; mean:"
        " as clip for one size of job, scaled to exactly that mean",
    )
    max_b_cap: Cap = Field(
        CAP_BPS, description="the greatest Max_B, or none (default 455 Mbit/s: 250 on average)"
    )
    mean: PositiveBandwidth | None = Field(
        None, description="in place of max_b_cap: a cap of mean/0.55"
    )
    sigma: Share = Field(
        0.2, description="the standard deviation as a share of the mean (default 20 %)"
    )
    network: PositiveBandwidth | None = Field(
        None, description="the link of a server in Max_B (default: the data centre's)"
    )


class CpuRule(SpecModel):
    """The share of a node's CPU that each process uses; one-process jobs use all of it."""

    low: Share = Field(0.4, description="the least of a uniform law (default 40 %)")
    high: Share = Field(1.0, description="the greatest (default 100 %)")
    error: Share | None = Field(
        None,
        description="schedulers are told it with a uniform error of at most so much of a node"
        " (default: they are told the truth)",
    )
    told: Share | None = Field(
        None, description="schedulers know nothing of it: they are told this share of every process"
    )


class ParallelWorkload(SpecModel):
    """What workloads of parallel jobs have in common."""

    load: Annotated[float, Field(gt=0, le=1000)] | None = Field(
        None,
        description="system load: processors times running time over slots times the span of"
        " submissions; arrivals are stretched or squeezed to it",
    )
    processes_per_vm: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        1, description="processors of a job that one VM stands for (default 1)"
    )
    bandwidth: BandwidthRule | None = Field(
        None,
        description="how bandwidth is assigned (default: by the rule's defaults; none on a flat"
        " data centre)",
    )
    cpu: CpuRule | None = Field(
        None, description="how CPU use is drawn (default: every process uses all of its node's)"
    )
    pattern: Pattern = Field("ring", description="who sends to whom (default ring)")


@dataclass(frozen=True)
class Fitted:
    """The jobs as the data centre meets them, with what was done to them."""

    jobs: Requests
    facts: Mapping[str, Any]
    notes: tuple[str, ...]


def fitted(
    document: Document,
    path: Path,
    section: ParallelWorkload,
    jobs: ParallelJobs,
    site: Site,
    seed: int,
) -> Fitted | None:
    """Jobs in VMs, at the load, with bandwidth and CPU use; None where that cannot be."""
    before = len(document.problems)
    if not len(jobs):
        document.report(path, "not one of its jobs can be scheduled")
    if (
        section.bandwidth is not None
        and site.datacentre is not None
        and not site.datacentre.n_links
    ):
        message = "a flat data centre has no links: leave it out"
        document.report((*path, "bandwidth"), message, at_key=True)
    if section.cpu is not None and not 0 < section.cpu.low <= section.cpu.high:
        document.report((*path, "cpu"), "low must be above 0 and not above high")
    if section.cpu is not None and section.cpu.told is not None:
        if section.cpu.error is not None:
            document.report((*path, "cpu", "told"), "error says what they are told: remove one")
        if section.cpu.told == 0:
            document.report((*path, "cpu", "told"), "must be above 0")
    _check_rule(document, path, section.bandwidth)
    if len(document.problems) > before or site.datacentre is None:
        return None
    jobs = jobs.in_vms(section.processes_per_vm)
    slots = site.datacentre.total_slots
    try:
        natural: float | None = jobs.load(slots)
    except NoSpan as objection:
        if section.load is not None:
            document.report((*path, "load"), f"{objection}, which nothing can stretch")
            return None
        natural = None
    scaled = jobs.from_zero() if section.load is None else jobs.at_load(section.load, slots)
    demand = _demand(section, site.datacentre)
    if demand is not None:
        scaled = replace(scaled, bandwidth_bps=demand.draw(seed, scaled.processes))
    if section.cpu is not None:
        scaled = _with_cpu(scaled, section.cpu, seed)
    facts = _facts(scaled, slots, natural, section, demand)
    return Fitted(Requests(scaled, pattern=section.pattern), facts, tuple(_sentences(facts)))


def _check_rule(document: Document, path: Path, rule: BandwidthRule | None) -> None:
    if rule is not None and rule.rule == "mean" and rule.mean is None:
        document.report((*path, "bandwidth", "mean"), "is required by the rule mean")


def _with_cpu(jobs: ParallelJobs, rule: CpuRule, seed: int) -> ParallelJobs:
    jobs = jobs.with_cpu_use(rule.low, rule.high, seed)
    if rule.told is not None:
        return jobs.with_cpu_said_to_be(rule.told)
    return jobs if rule.error is None else jobs.with_cpu_told(rule.error, seed)


def _demand(section: ParallelWorkload, datacentre: DataCentre) -> HoseDemand | None:
    if datacentre.n_links == 0:
        return None
    rule = section.bandwidth or BandwidthRule()
    cap = rule.max_b_cap if rule.mean is None else round(rule.mean / MEAN_OF_MAX)
    link = rule.network or int(datacentre.nic_bps.max())
    return HoseDemand(link, datacentre.n_servers, cap, rule.sigma, rule.rule, rule.mean)


def _facts(
    jobs: ParallelJobs,
    slots: int,
    natural: float | None,
    section: ParallelWorkload,
    demand: HoseDemand | None,
) -> dict[str, Any]:
    wide = int((jobs.processes > slots).sum())
    return {
        "jobs": len(jobs),
        "mean_run_s": float(jobs.run_s.mean()),
        "mean_vms": float(jobs.processes.mean()),
        "most_vms": int(jobs.processes.max()),
        "wider_than_the_data_centre": wide,
        "processes_per_vm": section.processes_per_vm,
        "slots": slots,
        "natural_load": natural,
        "load": natural if section.load is None else section.load,
        "span_s": jobs.span_s,
        "bandwidth": None
        if demand is None
        else {**asdict(demand), "mean_bps": float(np.mean(jobs.bandwidth_bps))},
        "cpu": None if section.cpu is None else section.cpu.model_dump(),
        "pattern": section.pattern,
    }


def _sentences(facts: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"{facts['jobs']:,} jobs of {facts['mean_vms']:.1f} VMs and"
        f" {human_duration(facts['mean_run_s'])} on average, {facts['most_vms']:,} VMs at most"
    )
    if facts["natural_load"] is not None:
        change = facts["natural_load"] / facts["load"]
        stretched = f", arrivals' distances times {change:.4g} for {facts['load']:g}"
        yield (
            f"load on {facts['slots']:,} slots {facts['natural_load']:.3f}"
            f"{'' if change == 1 else stretched}"
        )
    if facts["bandwidth"] is not None:
        mean = human_bandwidth(facts["bandwidth"]["mean_bps"])
        yield f"bandwidth by the rule '{facts['bandwidth']['rule']}', {mean} per VM on average"
    if facts["wider_than_the_data_centre"]:
        yield f"{facts['wider_than_the_data_centre']:,} jobs have more VMs than there are slots"


class LinesOfJobs(Mapping[str, Place]):
    """Where each job is asked for, by its id, found when it is looked up.

    That is a line of a trace, or ``place`` for jobs that no line asks for.
    """

    def __init__(self, jobs: Requests, source: str, place: Place | None = None) -> None:
        self._jobs = jobs
        self._source = source
        self._place = place

    def __getitem__(self, job_id: str) -> Place:
        row = self._jobs.row_of(job_id)
        if row is None:
            raise KeyError(job_id)
        return self._place or Place(self._source, int(self._jobs.jobs.line[row]), 1)

    def __iter__(self) -> Iterator[str]:
        return (self._jobs.id_of(row) for row in range(len(self._jobs)))

    def __len__(self) -> int:
        return len(self._jobs)
