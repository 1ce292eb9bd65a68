"""Workloads of trace files: ``swf`` and ``lwf`` logs, and ``swim``, elastic jobs of a Hadoop trace.

The published traces on this machine are found here too, and checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from jobs.demand import Pattern
from jobs.request import JobRequest
from jobs.workload.distributions import Sample
from jobs.workload.elastic import ElasticJobs
from jobs.workload.lwf import Lwf, read_lwf
from jobs.workload.swf import NEEDED, JobsOfLog, Swf, ZeroRun, jobs_of, read_swf
from jobs.workload.swim import Swim, read_swim
from jobs.workload.traces import (
    PROBLEM_LIMIT,
    PUBLISHED,
    CutOff,
    PublishedTrace,
    TraceErrors,
    checksum,
    published,
)
from testbed.spec.document import Location, Place, Problem, find_file
from testbed.spec.unit_types import Duration, PositiveBandwidth, PositiveDuration
from testbed.spec.workload_section import (
    NO_JOBS,
    JobPlaces,
    LeaseWorkload,
    LoadContext,
    LoadedWorkload,
    ParallelWorkload,
    WorkloadSection,
    fitted,
)
from testbed.units import human_bandwidth, human_duration

MAX_LEASES = 200_000

T = TypeVar("T")
Number = Annotated[float, Field(ge=0, le=1e9)]
Ends = Annotated[list[Number], Field(min_length=2, max_length=2)]


class TraceWorkload(WorkloadSection):
    """A workload of a trace file."""

    path: Annotated[str, Field(min_length=1)] = Field(
        description="the trace, plain or gzip; looked for beside this file, along TESTBED_DATA, in"
        " the cache"
    )
    lenient: bool = Field(
        default=False,
        description="leave out what cannot be read, and count it (default: stop)",
    )

    def read(self, here: Location, reader: Callable[[FilePath], T]) -> tuple[T, FilePath] | None:
        """The trace and its file; where there is none, or it has errors, they are reported."""
        name: str | None = self["path"]
        found = None if name is None else find_file(name, here.document.folder)
        if name is not None and found is None:
            trace = published(name)
            origin = f"; its origin: {trace.origin}" if trace is not None else ""
            missing = f"there is no file {name!r} beside this one, along TESTBED_DATA or in the"
            here.report(f"{missing} cache{origin}", "path")
        if found is None:
            return None
        try:
            return reader(found), found
        except (TraceErrors, OSError) as error:
            self._report(here / "path", found, error)
            return None

    def _report(self, here: Location, found: FilePath, error: TraceErrors | OSError) -> None:
        """Reports lines with their own places, or the file as a whole."""
        if isinstance(error, OSError):
            here.report(f"{str(found)!r} cannot be read: {error.strerror}")
            return
        here.document.problems.extend(
            Problem(Place(str(found), p.line, p.column), "", p.message) for p in error.problems
        )
        shown = f", the first {PROBLEM_LIMIT} are named" if error.found > PROBLEM_LIMIT else ""
        # Where the file itself is cut off, empty or of another form there is little else to read.
        offered = error.lines_alone and not self.lenient
        hint = "; lenient: true (or --lenient) leaves them out" if offered else ""
        what = "1 line" if error.found == 1 else f"{error.found:,} lines"
        if error.found == 1 and not error.lines_alone:
            what = "the trace"
        here.report(f"{what} cannot be read{shown}{hint}")

    def provenance(self, found: FilePath) -> dict[str, Any]:
        """The file, its checksum, and the published trace of its name."""
        trace = published(self.path)
        try:
            sha256 = checksum(found)
        except CutOff:  # a damaged archive, read leniently as far as it goes
            sha256 = ""
        return {
            "kind": self.kind,
            "path": self.path,
            "file": str(found),
            "sha256": sha256,
            "origin": None if trace is None else trace.origin,
            "is_the_published_file": None if trace is None else trace.sha256 == sha256,
        }


# ------------------------------------------------------------------ swf


class SwfWorkload(TraceWorkload, ParallelWorkload):
    """The jobs of a log in the Standard Workload Format."""

    kind: Literal["swf"]
    first: Annotated[int, Field(ge=1, le=100_000_000)] | None = Field(
        None, description="only so many records from its beginning (default all)"
    )
    zero_run_time: ZeroRun = Field(
        "raise",
        description="what becomes of records that ran for 0 s: raise them to 1 s (default) or skip",
    )
    shortest: Duration | None = Field(
        None, description="records that ran for less are left out (default: none)"
    )
    longest: PositiveDuration | None = Field(
        None, description="records that ran for more are left out (default: none)"
    )

    def loaded(self, here: Location, context: LoadContext) -> LoadedWorkload:
        def reader(path: FilePath) -> Swf:
            return read_swf(path, first=self.first, lenient=self.lenient, names=NEEDED)

        read = self.read(here, reader)
        if read is None or not here.is_sound():
            return NO_JOBS
        log, found = read
        if self.longest is not None and self.longest < (self.shortest or 0.0):
            here.report("is below 'shortest': no record is left", "longest")
            return NO_JOBS
        longest_s = math.inf if self.longest is None else self.longest
        taken = jobs_of(log, self.zero_run_time, self.shortest or 0.0, longest_s)
        fit = fitted(self, here, taken.jobs, context)
        if fit is None:
            return NO_JOBS
        facts = {**self._facts(log, taken, found), **fit.facts}
        notes = (*_log_notes(facts), *fit.notes)
        return LoadedWorkload(fit.jobs, JobPlaces(fit.jobs, str(log.path)), (), facts, notes)

    def _facts(self, log: Swf, taken: JobsOfLog, found: FilePath) -> dict[str, Any]:
        """The provenance of the jobs, and what was left out."""
        return {
            **self.provenance(found),
            "header": {key: list(values) for key, values in log.header.items()},
            "first": self.first,
            "records": len(log.records),
            "lenient": self.lenient,
            "lines_left_out": log.skipped,
            "examples": [f"line {p.line}: {p.message}" for p in log.examples],
            "zero_run_time": self.zero_run_time,
            "shortest_s": self.shortest,
            "longest_s": self.longest,
            "skipped": dict(taken.skipped),
            "repaired": dict(taken.repaired),
        }


def _log_notes(facts: Mapping[str, Any]) -> list[str]:
    out = [f"{facts['path']}: {facts['records']:,} records from {facts['file']}"]
    if facts["is_the_published_file"] is False:
        out.append("its checksum is not that of the published log of this name")
    if facts["lines_left_out"]:
        first = facts["examples"][0]
        out.append(f"{facts['lines_left_out']:,} lines left out, the first: {first}")
    out += [f"skipped {count:,}: {reason}" for reason, count in facts["skipped"].items()]
    out += [f"in {count:,}: {what}" for what, count in facts["repaired"].items()]
    return out


# ------------------------------------------------------------------ lwf


class LwfWorkload(TraceWorkload, LeaseWorkload):
    """Leases of a lease workload file, XML or one a line."""

    kind: Literal["lwf"]
    first: Annotated[int, Field(ge=1, le=MAX_LEASES)] | None = Field(
        None, description="only so many leases from its beginning (default all)"
    )

    def loaded(self, here: Location, context: LoadContext) -> LoadedWorkload:
        del context  # leases are as large as the file says

        def reader(path: FilePath) -> Lwf:
            return read_lwf(path, lenient=self.lenient)

        read = self.read(here, reader)
        if read is None or not here.is_sound():
            return NO_JOBS
        file, found = read
        leases = file.leases[: self.first]
        facts = {
            **self.model_dump(),
            **self.provenance(found),
            "lines_left_out": file.skipped,
            "examples": [f"line {p.line}: {p.message}" for p in file.examples],
        }
        places = {lease.name: Place(str(found), lease.line, 1) for lease in leases}
        return self.of_leases(leases, places, facts)


# ------------------------------------------------------------------ swim


class SwimWorkload(TraceWorkload):
    """Jobs of a Hadoop trace with deadlines, rewards and a speed-up by bandwidth (JSA)."""

    kind: Literal["swim"]
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
        20.0, description="running time of a job whatever its bytes (default 20 s)"
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
    pattern: Pattern = Field("all-to-all", description="communication pattern (default all-to-all)")

    def loaded(self, here: Location, context: LoadContext) -> LoadedWorkload:
        recipe = self._recipe(here, context)

        def reader(path: FilePath) -> Swim:
            return read_swim(path, lenient=self.lenient)

        read = self.read(here, reader)
        if recipe is None or read is None or not here.is_sound():
            return NO_JOBS
        trace, found = read
        try:
            jobs, sample = recipe.requests(trace, context.seed)
        except ValueError as objection:
            here.report(str(objection), "jobs")
            return NO_JOBS
        facts = {**self.provenance(found), **_swim_facts(recipe, trace, jobs, sample)}
        return LoadedWorkload(jobs, _places(jobs, trace), (), facts, tuple(_swim_notes(facts)))

    def _recipe(self, here: Location, context: LoadContext) -> ElasticJobs | None:
        """The parameters of the jobs; None where the keys that could be read contradict."""

        def given(key: str) -> Any:
            return self[key] if self.is_readable(key) else type(self).model_fields[key].default

        datacentre = context.datacentre
        known = datacentre is not None and context.topology.links_known and datacentre.n_links
        recipe = ElasticJobs(
            count=given("jobs"),
            vms=None if given("vms") == "as-is" else given("vms"),
            largest=given("largest"),
            batches=given("batches"),
            spacing_s=given("spacing"),
            start_s=given("start_up"),
            vm_bytes_per_s=given("vm_rate") / 8,
            bandwidth_bps=float(given("bandwidth")),
            least_bps=float(given("least_bandwidth")),
            link_bps=int(datacentre.nic_bps.max()) if datacentre is not None and known else 10**9,
            value=tuple(given("reward")),
            deadline=tuple(given("deadline_factor")),
            speedup=tuple(given("speedup")),
            pattern=given("pattern"),
        )
        objections = recipe.objections()
        for name, message in objections:
            here.report(message, _KEYS.get(name, name))
        return None if objections else recipe


_KEYS = {"value": "reward", "deadline": "deadline_factor"}
"""The keys of the file where a field of :class:`ElasticJobs` has another name."""


def _places(jobs: tuple[JobRequest, ...], trace: Swim) -> Mapping[str, Place]:
    line = {job.name: job.line for job in trace.jobs}
    # A job taken again bears a number after its name.
    return {
        job.id: Place(str(trace.path), line.get(job.id) or line[job.id.rpartition("-")[0]], 1)
        for job in jobs
    }


def _swim_facts(
    recipe: ElasticJobs, trace: Swim, jobs: tuple[JobRequest, ...], sample: Sample
) -> dict[str, Any]:
    return {
        "lines_left_out": trace.skipped,
        "trace_jobs": len(trace.jobs),
        "jobs": len(jobs),
        "mean_vms": sample.mean,
        "large_jobs": sample.large,
        "taken_again": sample.again,
        "mean_run_s": sum(job.duration_s for job in jobs) / len(jobs),
        "mean_bandwidth_bps": sum(job.bandwidth_bps for job in jobs) / len(jobs),
        "parameters": asdict(recipe),
    }


def _swim_notes(facts: Mapping[str, Any]) -> list[str]:
    given = facts["parameters"]
    out = [f"{facts['path']}: {facts['trace_jobs']:,} jobs from {facts['file']}"]
    if facts["is_the_published_file"] is False:
        out.append("its checksum is not that of the published trace of this name")
    if facts["lines_left_out"]:
        out.append(f"{facts['lines_left_out']:,} lines left out")
    how = "a plain sample"
    if given["vms"] is not None:
        how = f"a stratified sample, {facts['large_jobs']:,} of them of {given['vms']:g} or more"
    again = f", {facts['taken_again']:,} of them again" if facts["taken_again"] else ""
    out.append(
        f"{facts['jobs']:,} jobs of {facts['mean_vms']:.1f} VMs on average ({how}{again}) in"
        f" {given['batches']} batches {human_duration(given['spacing_s'])} apart;"
        f" {human_duration(facts['mean_run_s'])} at"
        f" {human_bandwidth(facts['mean_bandwidth_bps'])} on average"
    )
    return out


# ------------------------------------------------------------------ published traces


@dataclass(frozen=True)
class FoundTrace:
    """A published trace and the file here that bears its name, if there is one."""

    trace: PublishedTrace
    path: FilePath | None

    def to_json(self) -> dict[str, Any]:
        names = ("name", "format", "what", "jobs", "origin", "sha256", "thanks")
        known = {name: getattr(self.trace, name) for name in names}
        return {**known, "path": None if self.path is None else str(self.path)}


@dataclass(frozen=True)
class CheckedTrace:
    """A file that was read; ``problem`` is None where it is the published one, whole."""

    found: FoundTrace
    sha256: str | None = None
    jobs: int | None = None
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            **self.found.to_json(),
            "found_sha256": self.sha256,
            "found_jobs": self.jobs,
            "problem": self.problem,
        }


def look_for(beside: FilePath) -> list[FoundTrace]:
    """Every published trace, found or not."""
    return [FoundTrace(trace, _file_of(trace, beside)) for trace in PUBLISHED]


def _file_of(trace: PublishedTrace, beside: FilePath) -> FilePath | None:
    """Packed or not, under the name that experiments use."""
    names = (trace.name, trace.name.removesuffix(".gz"))
    return next((path for name in names if (path := find_file(name, beside)) is not None), None)


def checked(found: FoundTrace) -> CheckedTrace:
    """Read the file whole and compare its checksum and its number of jobs."""
    if found.path is None:
        return CheckedTrace(found, problem="not found")
    try:
        sum_ = checksum(found.path)
        jobs = _count(found.path, found.trace.format)
    except (CutOff, TraceErrors, OSError) as error:
        return CheckedTrace(found, problem=str(error))
    problem = None
    if sum_ != found.trace.sha256:
        problem = f"its checksum is {sum_}, not the published {found.trace.sha256}"
    elif jobs != found.trace.jobs:
        problem = f"has {jobs:,} jobs, not {found.trace.jobs:,}"
    return CheckedTrace(found, sum_, jobs, problem)


def _count(path: FilePath, format_: str) -> int:
    if format_ == "swf":
        return len(read_swf(path).records)
    return len(read_swim(path).jobs) if format_ == "swim" else len(read_lwf(path).leases)
