"""Published traces on this machine: where each is looked for, whether it is there, and whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.workload.known import PUBLISHED, PublishedTrace
from jobs.workload.lines import CutOff, TraceErrors, checksum
from jobs.workload.lwf import read_lwf
from jobs.workload.swf import read_swf
from jobs.workload.swim import read_swim
from testbed.spec.files import find_file


@dataclass(frozen=True)
class FoundTrace:
    """A published trace and the file here that bears its name, if there is one."""

    trace: PublishedTrace
    path: Path | None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.trace.name,
            "format": self.trace.format,
            "what": self.trace.what,
            "jobs": self.trace.jobs,
            "origin": self.trace.origin,
            "sha256": self.trace.sha256,
            "thanks": self.trace.thanks,
            "path": None if self.path is None else str(self.path),
        }


@dataclass(frozen=True)
class CheckedTrace:
    """What reading a file came to; ``problem`` is None where it is the published one, whole."""

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


def look_for(beside: Path) -> list[FoundTrace]:
    """Every published trace, found or not."""
    return [FoundTrace(trace, _file_of(trace, beside)) for trace in PUBLISHED]


def _file_of(trace: PublishedTrace, beside: Path) -> Path | None:
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


def _count(path: Path, format_: str) -> int:
    if format_ == "swf":
        return len(read_swf(path).records)
    return len(read_swim(path).jobs) if format_ == "swim" else len(read_lwf(path).leases)
