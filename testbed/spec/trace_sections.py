"""Workloads of trace files: ``swf`` and ``lwf`` logs; published traces on this
machine, and their check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from jobs.workload.lwf import read_lwf
from jobs.workload.packed_files import CutOff, checksum
from jobs.workload.swf import (
    NEEDED,
    JobsOfLog,
    Swf,
    ZeroRun,
    jobs_of,
    read_swf,
)
from jobs.workload.swim import read_swim
from jobs.workload.traces import (
    PROBLEM_LIMIT,
    PublishedTrace,
    TraceErrors,
    published,
    published_traces,
)
from testbed.spec.document import (
    Location,
    Place,
    Problem,
    file_at,
    find_file,
)
from testbed.spec.size_limits import LIMITS, within
from testbed.spec.topology_section import LoadContext
from testbed.spec.unit_types import Duration, PositiveDuration
from testbed.spec.workload_section import (
    NO_JOBS,
    LeaseWorkload,
    LoadedWorkload,
    ParallelWorkload,
    WorkloadSection,
)
from testbed.units import number_of

T = TypeVar("T")


class TraceWorkload(WorkloadSection):
    """A workload of a trace file."""

    path: Annotated[str, Field(min_length=1)]
    """the trace, plain, gzip, bzip2, xz or Zstandard; looked for beside
    this file, along TESTBED_DATA, in the cache
    """
    lenient: bool = Field(default=False)
    """leave out what cannot be read, and count it (default: stop)"""

    def read(
        self, location: Location, reader: Callable[..., T]
    ) -> tuple[T, FilePath] | None:
        """The trace and its file; None, and reported, where the file is missing or
        has errors.
        """
        if self["path"] is None:
            return None
        trace = published(self.path)
        # For the message about a missing file.
        origin = (
            f"; its origin: {trace.origin}" if trace is not None else ""
        )
        path = file_at(location / "path", self.path, origin)
        if path is None:
            return None
        try:
            return reader(path, lenient=self.lenient), path
        except (TraceErrors, OSError) as error:
            self._report(location / "path", path, error)
            return None

    def _report(
        self,
        location: Location,
        path: FilePath,
        error: TraceErrors | OSError,
    ) -> None:
        """Reports lines with their own places, or the file as a whole."""
        if isinstance(error, OSError):
            location.report(
                f"{str(path)!r} cannot be read: {error.strerror}"
            )
            return
        for problem in error.problems:
            place = Place(str(path), problem.line, problem.column)
            location.document.problems.append(
                Problem(place, "", problem.message)
            )
        what = number_of(error.total, "line")
        if error.total == 1 and not error.lines_alone:
            what = "the trace"
        sentence = f"{what} cannot be read"
        if error.total > PROBLEM_LIMIT:
            sentence += f", the first {PROBLEM_LIMIT} are named"
        # No other lines can be read of a file that is cut off, empty or of
        # another form.
        if error.lines_alone and not self.lenient:
            sentence += "; lenient: true (or --lenient) leaves them out"
        location.report(sentence)

    def provenance(self, path: FilePath) -> dict[str, Any]:
        """The file, its checksum, and the published trace of its name."""
        trace = published(self.path)
        try:
            sha256 = checksum(path)
        except CutOff:
            # A damaged archive that was read leniently has no checksum.
            sha256 = ""
        origin = None
        is_published = None
        if trace is not None:
            origin = trace.origin
            is_published = trace.sha256 == sha256
        return {
            "kind": self.kind,
            "path": self.path,
            "file": str(path),
            "sha256": sha256,
            "origin": origin,
            "is_the_published_file": is_published,
        }


# ------------------------------------------------------------------ swf


class SwfWorkload(TraceWorkload, ParallelWorkload):
    """The jobs of a log in the Standard Workload Format."""

    kind: Literal["swf"]
    first: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """only so many records from its beginning (default all)"""
    # With the records of 0 s KTH has the 28,476 jobs that papers count
    # (decision 27).
    zero_run_time: ZeroRun = "raise"
    """what becomes of records that ran for 0 s: raise them to 1 s
    (default) or skip
    """
    shortest: Duration | None = None
    """records that ran for less are left out (default: none)"""
    longest: PositiveDuration | None = None
    """records that ran for more are left out (default: none)"""

    def loaded(
        self, location: Location, context: LoadContext
    ) -> LoadedWorkload:
        read = self.read(
            location, partial(read_swf, first=self.first, names=NEEDED)
        )
        if read is None or not location.is_sound():
            return NO_JOBS
        log, path = read
        shortest_s = self.shortest or 0.0
        longest_s = math.inf if self.longest is None else self.longest
        if longest_s < shortest_s:
            location.report(
                "is below 'shortest': no record is left", "longest"
            )
            return NO_JOBS
        taken = jobs_of(log, self.zero_run_time, shortest_s, longest_s)
        facts = self._facts(log, taken, path)
        return self.fitted(
            location,
            context,
            jobs=taken.jobs,
            origin=facts,
            notes=_log_notes(facts),
        )

    def _facts(
        self, log: Swf, taken: JobsOfLog, path: FilePath
    ) -> dict[str, Any]:
        """The provenance of the jobs, and what was left out."""
        return {
            **self.provenance(path),
            "header": {
                key: list(values) for key, values in log.header.items()
            },
            "first": self.first,
            "records": len(log.records),
            "lenient": self.lenient,
            "lines_left_out": log.skipped,
            "examples": [
                f"line {p.line}: {p.message}" for p in log.examples
            ],
            "zero_run_time": self.zero_run_time,
            "shortest_s": self.shortest,
            "longest_s": self.longest,
            "remarks": list(log.remarks),
            "skipped": dict(taken.skipped),
            "repaired": dict(taken.repaired),
        }


def _log_notes(facts: Mapping[str, Any]) -> list[str]:
    out = [
        f"{facts['path']}: {number_of(facts['records'], 'record')} from {facts['file']}"
    ]
    if facts["is_the_published_file"] is False:
        out.append(
            "its checksum is not that of the published log of this name"
        )
    if facts["lines_left_out"]:
        first = facts["examples"][0]
        out.append(
            f"{number_of(facts['lines_left_out'], 'line')} left out, the first: {first}"
        )
    out.extend(facts["remarks"])
    for reason, count in facts["skipped"].items():
        out.append(f"skipped {count:,}: {reason}")
    for what, count in facts["repaired"].items():
        out.append(f"in {count:,}: {what}")
    return out


# ------------------------------------------------------------------ lwf


class LwfWorkload(TraceWorkload, LeaseWorkload):
    """Leases of a lease workload file, XML or one a line."""

    kind: Literal["lwf"]
    first: Annotated[int, Field(ge=1, le=LIMITS["leases"])] | None = None
    """only so many leases from its beginning (default all)"""

    def loaded(
        self, location: Location, context: LoadContext
    ) -> LoadedWorkload:
        del context  # leases are as large as the file says
        read = self.read(location, read_lwf)
        if read is None or not location.is_sound():
            return NO_JOBS
        file, path = read
        leases = file.jobs[: self.first]
        if not within(
            location / "path", len(leases), "leases", "say first: 200000"
        ):
            return NO_JOBS
        facts = {
            **self.model_dump(),
            **self.provenance(path),
            "lines_left_out": file.skipped,
            "remarks": list(file.remarks),
            "examples": [
                f"line {p.line}: {p.message}" for p in file.examples
            ],
        }
        return self.of_leases(leases, facts)


# ------------------------------------------------------------------ published traces


@dataclass(frozen=True)
class FoundTrace:
    """A published trace, and the local file of its name, if any.

    The other fields are results of :func:`verified_trace`; ``problem`` is None
    for the whole published file.
    """

    trace: PublishedTrace
    path: FilePath | None
    sha256: str | None = None
    jobs: int | None = None
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        names = (
            "name",
            "format",
            "what",
            "jobs",
            "origin",
            "sha256",
            "thanks",
        )
        known = {name: getattr(self.trace, name) for name in names}
        return {
            **known,
            "path": None if self.path is None else str(self.path),
        }

    @property
    def result(self) -> dict[str, Any]:
        """The outcome of the check, for JSON."""
        return {
            "found_sha256": self.sha256,
            "found_jobs": self.jobs,
            "problem": self.problem,
        }


def look_for(beside: FilePath) -> list[FoundTrace]:
    """Every published trace, found or not."""
    return [
        FoundTrace(trace, _file_of(trace, beside))
        for trace in published_traces()
    ]


def _file_of(trace: PublishedTrace, beside: FilePath) -> FilePath | None:
    """The file of a trace, packed or unpacked."""
    for name in (trace.name, trace.name.removesuffix(".gz")):
        path = find_file(name, beside)
        if path is not None:
            return path
    return None


def verified_trace(trace: FoundTrace) -> FoundTrace:
    """Reads the file whole and compares its checksum and its number of jobs."""
    if trace.path is None:
        return replace(trace, problem="not found")
    wanted = trace.trace
    try:
        sha256 = checksum(trace.path)
        jobs = _count(trace.path, wanted.format)
    except (CutOff, TraceErrors, OSError) as error:
        return replace(trace, problem=str(error))
    problem = None
    if sha256 != wanted.sha256:
        problem = (
            f"its checksum is {sha256}, not the published {wanted.sha256}"
        )
    elif jobs != wanted.jobs:
        problem = f"has {number_of(jobs, 'job')}, not {wanted.jobs:,}"
    return replace(trace, sha256=sha256, jobs=jobs, problem=problem)


def _count(path: FilePath, format_: str) -> int:
    if format_ == "swf":
        return len(read_swf(path).records)
    if format_ == "swim":
        return len(read_swim(path).jobs)
    return len(read_lwf(path).jobs)
