"""``workload: {kind: swf}``: the log of a parallel machine in the Standard Workload Format."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import Field

from jobs.workload.known import published
from jobs.workload.lines import CutOff, TraceErrors, checksum
from jobs.workload.records import NEEDED, Taken, ZeroRun, jobs_of
from jobs.workload.swf import Swf, read_swf
from testbed.spec.document import Document
from testbed.spec.parallel import LinesOfJobs, ParallelWorkload, fitted
from testbed.spec.problems import Path
from testbed.spec.quantities import Duration, PositiveDuration
from testbed.spec.reading import partial, read_model
from testbed.spec.sourced import Workload
from testbed.spec.topology import Site
from testbed.spec.trace_file import find_trace, report_trace


class SwfWorkload(ParallelWorkload):
    """The jobs of a log in the Standard Workload Format."""

    kind: Literal["swf"]
    path: Annotated[str, Field(min_length=1)] = Field(
        description="the log, plain or gzip; looked for beside this file, along TESTBED_DATA, in"
        " the cache"
    )
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
    lenient: bool = Field(
        default=False,
        description="leave out lines that cannot be read, and count them (default: stop)",
    )


def read_swf_workload(
    document: Document, path: Path, site: Site, seed: int, beside: FilePath
) -> Workload:
    """The jobs of a log; what is wrong with the section or with the log goes to the document."""
    section = read_model(SwfWorkload, document, path)
    name = partial(SwfWorkload, document, path).get("path")
    found = None if name is None else find_trace(document, (*path, "path"), name, beside)
    log = None if section is None or found is None else _read(document, path, section, found)
    if section is None or log is None:
        return Workload(applications=())
    if section.longest is not None and section.longest < (section.shortest or 0.0):
        document.report((*path, "longest"), "is below 'shortest': no record is left")
        return Workload(applications=())
    longest_s = math.inf if section.longest is None else section.longest
    taken = jobs_of(log.records, section.zero_run_time, section.shortest or 0.0, longest_s)
    fit = fitted(document, path, section, taken.jobs, site, seed)
    if fit is None:
        return Workload(applications=())
    facts = {**_facts(section, log, taken), **fit.facts}
    notes = (*_sentences(facts), *fit.notes)
    places = LinesOfJobs(fit.jobs, str(log.records.path))
    return Workload(fit.jobs, places, (), facts, notes)


@dataclass(frozen=True)
class _Log:
    """A log with the checksum of what was read."""

    records: Swf
    sha256: str


def _read(document: Document, path: Path, section: SwfWorkload, found: FilePath) -> _Log | None:
    """The log; all that is wrong with it is reported with its own lines."""
    try:
        log = read_swf(found, first=section.first, lenient=section.lenient, names=NEEDED)
    except (TraceErrors, OSError) as error:
        report_trace(document, (*path, "path"), found, error, lenient=section.lenient)
        return None
    try:
        return _Log(log, checksum(found))
    except CutOff:
        return _Log(log, "")


def _facts(section: SwfWorkload, log: _Log, taken: Taken) -> dict[str, Any]:
    """Where the jobs come from, and what was left out."""
    trace = published(section.path)
    return {
        "kind": "swf",
        "path": section.path,
        "file": str(log.records.path),
        "sha256": log.sha256,
        "origin": None if trace is None else trace.origin,
        "is_the_published_file": None if trace is None else trace.sha256 == log.sha256,
        "header": {key: list(values) for key, values in log.records.header.items()},
        "first": section.first,
        "records": len(log.records.records),
        "lenient": section.lenient,
        "lines_left_out": log.records.skipped,
        "examples": [f"line {p.line}: {p.message}" for p in log.records.examples],
        "zero_run_time": section.zero_run_time,
        "shortest_s": section.shortest,
        "longest_s": section.longest,
        "skipped": dict(taken.skipped),
        "mended": dict(taken.mended),
    }


def _sentences(facts: Mapping[str, Any]) -> list[str]:
    out = [f"{facts['path']}: {facts['records']:,} records from {facts['file']}"]
    if facts["is_the_published_file"] is False:
        out.append("its checksum is not that of the published log of this name")
    if facts["lines_left_out"]:
        first = facts["examples"][0]
        out.append(f"{facts['lines_left_out']:,} lines left out, the first: {first}")
    out += [f"skipped {count:,}: {reason}" for reason, count in facts["skipped"].items()]
    out += [f"in {count:,}: {what}" for what, count in facts["mended"].items()]
    return out
