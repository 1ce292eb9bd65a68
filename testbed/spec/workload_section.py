"""Loaded ``workload`` sections, and the sections of parallel jobs and of leases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from jobs.demand import Pattern
from jobs.request import JobRequest
from jobs.workload.lwf import LEASE_KINDS, LeaseRecord, requests_of
from jobs.workload.parallel_jobs import (
    CAP_BPS,
    MEAN_OF_MAX,
    HoseDemand,
    HoseRule,
    NoSpan,
    ParallelJobs,
    Requests,
)
from testbed.plugins import PluginUse
from testbed.spec.document import Location
from testbed.spec.experiment import BandwidthSweep
from testbed.spec.size_limits import within
from testbed.spec.topology_section import LoadContext
from testbed.spec.unit_types import (
    BandwidthCap,
    Duration,
    PositiveBandwidth,
    Share,
)
from testbed.spec.validation import Section, SpecModel
from testbed.units import (
    human_bandwidth,
    human_duration,
    number_of,
)
from topologies.datacentre import DataCentre


@dataclass(frozen=True, eq=False)
class LoadedWorkload:
    """The jobs of a ``workload`` section.

    ``jobs`` are empty where the section has problems; those of a trace are made
    when they are accessed. ``applications`` are the jobs' applications; None
    where one of them could not be read. ``facts`` is the provenance of a
    trace's or a model's jobs, for JSON, ``notes`` the same in sentences;
    ``facts`` are empty where the file lists the jobs. ``sweep`` is set where
    the jobs are the runs of a profile measurement. ``plugins`` made the jobs or
    their demands.
    """

    jobs: Sequence[JobRequest] = ()
    applications: tuple[str, ...] | None = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sweep: BandwidthSweep | None = None
    plugins: tuple[PluginUse, ...] = ()


NO_JOBS = LoadedWorkload()


class WorkloadSection(Section):
    """A kind of workload."""

    kind: str

    def loaded(
        self, location: Location, context: LoadContext
    ) -> LoadedWorkload:
        """The jobs, in order of submission or of the file; problems are
        reported.
        """
        raise NotImplementedError


# ------------------------------------------------------------------ parallel jobs


class BandwidthRule(SpecModel):
    """The bandwidth that each VM requests, unless the workload states it.

    Max_B: see :class:`HoseDemand`.
    """

    rule: HoseRule = "clip"
    """clip: normal around 0.55 of Max_B, clipped to between Max_B/10 and
    Max_B (default); printed: the paper's formula as it is printed, which
    always gives Max_B; mean: as clip with one Max_B for all jobs, scaled
    to a mean of exactly ``mean``
    """
    # Without the cap the rule gives means above 10 Gbit/s on logs for which
    # AdaBa's Table 1 has 250 Mbit/s (decision 27).
    max_b_cap: BandwidthCap = CAP_BPS
    """the greatest Max_B, or none (default 455 Mbit/s: 250 on average)"""
    mean: PositiveBandwidth | None = None
    """in place of max_b_cap: a cap of mean/0.55"""
    sigma: Share = 0.2
    """the standard deviation as a share of the mean (default 20 %)"""
    network: PositiveBandwidth | None = None
    """the link of a server in Max_B (default: the data centre's)"""


class CpuRule(SpecModel):
    """The share of a node's CPU that each process uses; one-process jobs use
    all of it.
    """

    low: Share = 0.4
    """the least of a uniform distribution (default 40 %)"""
    high: Share = 1.0
    """the greatest (default 100 %)"""
    error: Share | None = None
    """schedulers are told the true share with a uniform error of at most
    this much (default: without one)
    """
    told: Share | None = None
    """schedulers are told this share of every process in place of the
    true one
    """


class ParallelWorkload(WorkloadSection):
    """A workload of parallel jobs: load, bandwidth, VMs and CPU use."""

    load: Annotated[float, Field(gt=0, le=1000)] | None = None
    """system load: processors times running time over slots times the
    span of submissions; arrivals are stretched or squeezed to it
    """
    processes_per_vm: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """processors of a job that one VM stands for (default 1)"""
    bandwidth: BandwidthRule | None = None
    """how bandwidth is assigned (default: by the rule's defaults; none
    on a flat data centre)
    """
    cpu: CpuRule | None = None
    """the CPU use of processes (default: every process uses all of its
    node's)
    """
    pattern: Pattern = "ring"
    """communication pattern (default ring)"""

    def fitted(
        self,
        location: Location,
        context: LoadContext,
        *,
        jobs: ParallelJobs,
        origin: Mapping[str, Any],
        notes: Sequence[str],
    ) -> LoadedWorkload:
        """The jobs in VMs, at the load, with bandwidth and CPU use; none, and
        reported, where that is impossible.

        ``origin`` is the provenance of the jobs, ``notes`` the same in
        sentences.
        """
        datacentre = context.datacentre
        if not len(jobs):
            why = "; ".join(notes)
            location.report(f"not one of its jobs can be scheduled: {why}")
        self._check(location, datacentre)
        if datacentre is None or not location.is_sound():
            return NO_JOBS
        jobs = jobs.in_vms(self.processes_per_vm)
        slots = datacentre.total_slots
        natural_load: float | None = None
        # Jobs that all arrive at once have no load: they are kept as they are
        # unless the section asks for a load.
        try:
            natural_load = jobs.load(slots)
        except NoSpan as objection:
            if self.load is not None:
                location.report(
                    f"{objection}, which nothing can stretch", "load"
                )
                return NO_JOBS
        scaled = jobs.from_zero()
        if self.load is not None:
            # Distances between arrivals are multiplied: order and bursts stay.
            scaled = jobs.at_load(self.load, slots)
        # After scaling: a low load stretches the arrivals.
        if not self._countable(location, scaled):
            return NO_JOBS
        hose = self._hose_demand(datacentre)
        if hose is not None:
            scaled = replace(
                scaled,
                bandwidth_bps=hose.draw(context.seed, scaled.processes),
            )
        if self.cpu is not None:
            scaled = _with_cpu(scaled, self.cpu, context.seed)
        facts = self._job_facts(scaled, slots, natural_load, hose)
        # Requests are made from the columns when they are accessed.
        requests = Requests(scaled, pattern=self.pattern)
        return LoadedWorkload(
            requests,
            facts={**origin, **facts},
            notes=(*notes, *_sentences(facts)),
        )

    def _check(
        self,
        location: Location,
        datacentre: DataCentre | None,
    ) -> None:
        rule = self.bandwidth
        if (
            rule is not None
            and datacentre is not None
            and not datacentre.n_links
        ):
            location.report(
                "a flat data centre has no links: leave it out",
                "bandwidth",
                at_key=True,
            )
        if self.cpu is not None:
            _check_cpu(location / "cpu", self.cpu)
        if rule is not None and rule.rule == "mean" and rule.mean is None:
            location.report("the rule mean needs a mean", "bandwidth")

    def _countable(self, location: Location, jobs: ParallelJobs) -> bool:
        """True unless arrivals last too long, or too many processes have a CPU use
        of their own.
        """
        spans = within(
            location / "load",
            jobs.span_s,
            "seconds of arrivals",
            "take a higher load",
        )
        processes = 0
        if self.cpu is not None:
            processes = int(jobs.processes.sum(dtype=np.int64))
        # Both are checked, so that both are reported.
        counts = within(
            location / "cpu",
            processes,
            "processes with a CPU use of their own",
            "take fewer jobs, smaller ones, or more processes_per_vm",
        )
        return spans and counts

    def _hose_demand(self, datacentre: DataCentre) -> HoseDemand | None:
        """The rule that draws bandwidth; None without links."""
        if datacentre.n_links == 0:
            return None
        rule = self.bandwidth or BandwidthRule()
        cap = rule.max_b_cap
        # The rule draws around 0.55 of Max_B, so that the cap sets the mean.
        if rule.mean is not None:
            cap = round(rule.mean / MEAN_OF_MAX)
        link = rule.network or int(datacentre.nic_bps.max())
        return HoseDemand(
            link_bps=link,
            servers=datacentre.n_servers,
            cap_bps=cap,
            sigma=rule.sigma,
            rule=rule.rule,
            mean_bps=rule.mean,
        )

    def _job_facts(
        self,
        jobs: ParallelJobs,
        slots: int,
        natural: float | None,
        demand: HoseDemand | None,
    ) -> dict[str, Any]:
        wide = int((jobs.processes > slots).sum())
        bandwidth = None
        if demand is not None:
            mean_bps = float(np.mean(jobs.bandwidth_bps))
            bandwidth = {**asdict(demand), "mean_bps": mean_bps}
        return {
            "jobs": len(jobs),
            "mean_run_s": float(jobs.run_s.mean()),
            "mean_vms": float(jobs.processes.mean()),
            "most_vms": int(jobs.processes.max()),
            "wider_than_the_data_centre": wide,
            "processes_per_vm": self.processes_per_vm,
            "slots": slots,
            "natural_load": natural,
            "load": natural if self.load is None else self.load,
            "span_s": jobs.span_s,
            "bandwidth": bandwidth,
            "cpu": None if self.cpu is None else self.cpu.model_dump(),
            "pattern": self.pattern,
        }


def _check_cpu(location: Location, rule: CpuRule) -> None:
    if not 0 < rule.low <= rule.high:
        location.report("low must be above 0 and not above high")
    if rule.told is not None and rule.error is not None:
        location.report("error says what they are told: remove one", "told")
    if rule.told == 0:
        location.report("must be above 0", "told")


def _with_cpu(jobs: ParallelJobs, rule: CpuRule, seed: int) -> ParallelJobs:
    jobs = jobs.with_cpu_use(rule.low, rule.high, seed)
    if rule.told is not None:
        return jobs.with_cpu_stated(rule.told)
    if rule.error is None:
        return jobs
    return jobs.with_cpu_error(rule.error, seed)


def _sentences(facts: Mapping[str, Any]) -> Iterator[str]:
    jobs = number_of(facts["jobs"], "job")
    most_vms = number_of(facts["most_vms"], "VM")
    yield (
        f"{jobs} of {facts['mean_vms']:.1f} VMs and"
        f" {human_duration(facts['mean_run_s'])} on average, {most_vms} at most"
    )
    if facts["natural_load"] is not None:
        yield _load_sentence(facts)
    if facts["bandwidth"] is not None:
        mean = human_bandwidth(facts["bandwidth"]["mean_bps"])
        yield f"bandwidth by the rule '{facts['bandwidth']['rule']}', {mean} per VM on average"
    if facts["wider_than_the_data_centre"]:
        wider = number_of(
            facts["wider_than_the_data_centre"], "job has", "jobs have"
        )
        yield f"{wider} more VMs than there are slots"


def _load_sentence(facts: Mapping[str, Any]) -> str:
    slots = number_of(facts["slots"], "slot")
    sentence = f"load on {slots} {facts['natural_load']:.3f}"
    change = facts["natural_load"] / facts["load"]
    if change != 1:
        sentence += f", arrivals' distances times {change:.4g} for {facts['load']:g}"
    return sentence


# ------------------------------------------------------------------ leases


class LeaseWorkload(WorkloadSection):
    """A workload of leases."""

    memory: bool = Field(default=True)
    """whether leases ask for memory too (default true)"""
    margin: Duration | None = None
    """each lease is booked for so much more than its duration: its VMs
    take a moment to start and to end (default 0 s)
    """

    def of_leases(
        self,
        leases: Sequence[LeaseRecord],
        facts: Mapping[str, Any],
    ) -> LoadedWorkload:
        """The leases as jobs, with their number, types and work as facts."""
        kinds = Counter(lease.kind for lease in leases)
        asked_s = sum(lease.duration_s for lease in leases)
        work = sum(
            lease.nodes * lease.cores * lease.duration_s for lease in leases
        )
        facts = {
            **facts,
            "jobs": len(leases),
            "types": {kind: kinds[kind] for kind in LEASE_KINDS},
            "mean_duration_s": asked_s / len(leases),
            "core_hours": work / 3600.0,
        }
        jobs = requests_of(
            leases, memory=self.memory, margin_s=self.margin or 0.0
        )
        return LoadedWorkload(jobs, facts=facts, notes=_lease_notes(facts))


def _lease_notes(facts: Mapping[str, Any]) -> tuple[str, ...]:
    types = ", ".join(
        f"{count:,} {kind}" for kind, count in facts["types"].items()
    )
    notes = [
        f"{number_of(facts['jobs'], 'lease')} ({types}), {facts['core_hours']:,.0f} core hours"
    ]
    if facts.get("lines_left_out"):
        notes.append(
            f"{facts['lines_left_out']:,} left out, the first: {facts['examples'][0]}"
        )
    notes.extend(facts.get("remarks", ()))
    if facts.get("is_the_published_file") is False:
        notes.append(
            "its checksum is not that of the published file of this name"
        )
    return tuple(notes)
