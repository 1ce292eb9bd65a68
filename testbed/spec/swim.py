"""``workload: {kind: swim}``: elastic jobs in batches, out of a Hadoop trace in SWIM's format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import Field

from jobs.demand import Pattern
from jobs.request import JobRequest
from jobs.workload.elastic import ElasticJobs
from jobs.workload.known import published
from jobs.workload.lines import CutOff, TraceErrors, checksum
from jobs.workload.strata import Sample
from jobs.workload.swim import Swim, read_swim
from testbed.spec.document import Document
from testbed.spec.problems import Path, Place
from testbed.spec.quantities import Duration, PositiveBandwidth, PositiveDuration, SpecModel
from testbed.spec.reading import partial, read_model
from testbed.spec.sourced import Workload
from testbed.spec.topology import Site
from testbed.spec.trace_file import find_trace, report_trace
from testbed.units import human_bandwidth, human_duration

Number = Annotated[float, Field(ge=0, le=1e9)]
Ends = Annotated[list[Number], Field(min_length=2, max_length=2)]


class SwimWorkload(SpecModel):
    """Jobs of a Hadoop trace with deadlines, rewards and a speed-up by bandwidth (JSA)."""

    kind: Literal["swim"]
    path: Annotated[str, Field(min_length=1)] = Field(
        description="the trace, plain or gzip; looked for beside this file, along TESTBED_DATA, in"
        " the cache"
    )
    jobs: Annotated[int, Field(ge=1, le=100_000)] = Field(
        2500, description="how many jobs are taken (default 2500)"
    )
    vms: Annotated[float, Field(ge=1, le=1e6)] | Literal["as-is"] = Field(
        25.0,
        description="VMs per job on average, by stratified sampling (default 25); as-is: a plain"
        " sample",
    )
    largest: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        100, description="jobs with more VMs are left out (default 100)"
    )
    batches: Annotated[int, Field(ge=1, le=100_000)] = Field(
        5, description="in how many batches they arrive (default 5)"
    )
    spacing: Duration = Field(30.0, description="between two batches (default 30 s)")
    start_up: PositiveDuration = Field(
        20.0, description="what a job takes beside its bytes (default 20 s)"
    )
    vm_rate: PositiveBandwidth = Field(
        80_000_000, description="how fast one VM works through its bytes (default 80 Mbit/s)"
    )
    bandwidth: PositiveBandwidth = Field(
        200_000_000, description="B̄ on average, uniform from 0 (default 200 Mbit/s)"
    )
    least_bandwidth: PositiveBandwidth = Field(
        1_000_000, description="B̄ is no less than that (default 1 Mbit/s)"
    )
    reward: Ends = Field([100.0, 1000.0], description="uniform (default [100, 1000])")
    deadline_factor: Ends = Field(
        [2.0, 7.0], description="deadline over running time at B̄, uniform (default [2, 7])"
    )
    speedup: Ends = Field([0.0, 0.14], description="α, uniform (default [0, 0.14])")
    pattern: Pattern = Field("all-to-all", description="who sends to whom (default all-to-all)")
    lenient: bool = Field(
        default=False,
        description="leave out lines that cannot be read, and count them (default: stop)",
    )


_KEYS = {
    "batches": "batches",
    "vms": "vms",
    "value": "reward",
    "deadline": "deadline_factor",
    "speedup": "speedup",
}


def read_swim_workload(
    document: Document, path: Path, site: Site, seed: int, beside: FilePath
) -> Workload:
    """The jobs of a trace; what is wrong with the section or the trace goes to the document."""
    section = read_model(SwimWorkload, document, path)
    known = partial(SwimWorkload, document, path)
    law = _law(document, path, known, site)
    name = known.get("path")
    found = None if name is None else find_trace(document, (*path, "path"), name, beside)
    trace = None if found is None else _read(document, path, known, found)
    if section is None or law is None or found is None or trace is None:
        return Workload(applications=())
    try:
        jobs, sample = law.requests(trace, seed)
    except ValueError as objection:
        document.report((*path, "jobs"), str(objection))
        return Workload(applications=())
    facts = _facts(section, law, trace, found, jobs, sample)
    return Workload(jobs, _places(jobs, trace), (), facts, tuple(_sentences(facts)))


def _law(
    document: Document, path: Path, known: Mapping[str, Any], site: Site
) -> ElasticJobs | None:
    """What the keys that could be read ask for; None where they contradict each other."""
    given = {key: field.default for key, field in SwimWorkload.model_fields.items()} | dict(known)
    links = site.datacentre is not None and site.links_known and site.datacentre.n_links > 0
    link_bps = int(site.datacentre.nic_bps.max()) if links and site.datacentre else 10**9
    arguments: dict[str, Any] = {
        "count": given["jobs"],
        "vms": None if given["vms"] == "as-is" else given["vms"],
        "largest": given["largest"],
        "batches": given["batches"],
        "spacing_s": given["spacing"],
        "start_s": given["start_up"],
        "vm_bytes_per_s": given["vm_rate"] / 8,
        "bandwidth_bps": float(given["bandwidth"]),
        "least_bps": float(given["least_bandwidth"]),
        "link_bps": link_bps,
        "value": tuple(given["reward"]),
        "deadline": tuple(given["deadline_factor"]),
        "speedup": tuple(given["speedup"]),
        "pattern": given["pattern"],
    }
    law = ElasticJobs(**arguments)
    wrong = law.objections()
    for name, message in wrong:
        document.report((*path, _KEYS[name]), message)
    return None if wrong else law


def _read(document: Document, path: Path, known: Mapping[str, Any], found: FilePath) -> Swim | None:
    lenient = bool(known.get("lenient", False))
    try:
        return read_swim(found, lenient=lenient)
    except (TraceErrors, OSError) as error:
        report_trace(document, (*path, "path"), found, error, lenient=lenient)
        return None


def _places(jobs: tuple[JobRequest, ...], trace: Swim) -> Mapping[str, Place]:
    line = {job.name: job.line for job in trace.jobs}
    # A job taken again bears a number after its name.
    return {
        job.id: Place(str(trace.path), line.get(job.id) or line[job.id.rpartition("-")[0]], 1)
        for job in jobs
    }


def _facts(
    section: SwimWorkload,
    law: ElasticJobs,
    trace: Swim,
    found: FilePath,
    jobs: tuple[JobRequest, ...],
    sample: Sample,
) -> dict[str, Any]:
    """Where the jobs come from, and how they were made."""
    known = published(section.path)
    try:
        sha256 = checksum(found)
    except CutOff:
        sha256 = ""
    return {
        "kind": "swim",
        "path": section.path,
        "file": str(found),
        "sha256": sha256,
        "origin": None if known is None else known.origin,
        "is_the_published_file": None if known is None else known.sha256 == sha256,
        "lines_left_out": trace.skipped,
        "trace_jobs": len(trace.jobs),
        "jobs": len(jobs),
        "mean_vms": sample.mean,
        "large_jobs": sample.large,
        "taken_again": sample.again,
        "mean_run_s": sum(job.duration_s for job in jobs) / len(jobs),
        "mean_bandwidth_bps": sum(job.bandwidth_bps for job in jobs) / len(jobs),
        "laws": asdict(law),
    }


def _sentences(facts: Mapping[str, Any]) -> list[str]:
    laws = facts["laws"]
    out = [f"{facts['path']}: {facts['trace_jobs']:,} jobs from {facts['file']}"]
    if facts["is_the_published_file"] is False:
        out.append("its checksum is not that of the published trace of this name")
    if facts["lines_left_out"]:
        out.append(f"{facts['lines_left_out']:,} lines left out")
    how = "a plain sample"
    if laws["vms"] is not None:
        how = f"a stratified sample, {facts['large_jobs']:,} of them of {laws['vms']:g} or more"
    again = f", {facts['taken_again']:,} of them again" if facts["taken_again"] else ""
    out.append(
        f"{facts['jobs']:,} jobs of {facts['mean_vms']:.1f} VMs on average ({how}{again}) in"
        f" {laws['batches']} batches {human_duration(laws['spacing_s'])} apart;"
        f" {human_duration(facts['mean_run_s'])} at"
        f" {human_bandwidth(facts['mean_bandwidth_bps'])} on average"
    )
    return out
