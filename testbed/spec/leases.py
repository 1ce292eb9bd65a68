"""``workload: {kind: leases}`` and ``{kind: lwf}``: leases, drawn or from a lease workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import Field

from jobs.workload.known import published
from jobs.workload.leases import SIZES, LeaseMix, Mix, requests_of
from jobs.workload.lines import CutOff, TraceErrors, checksum
from jobs.workload.lwf import Lease, Lwf, read_lwf
from testbed.spec.document import Document
from testbed.spec.problems import Path, Place
from testbed.spec.quantities import Duration, PositiveDuration, Share, SpecModel
from testbed.spec.reading import partial, read_model
from testbed.spec.sourced import Workload
from testbed.spec.topology import Site
from testbed.spec.trace_file import find_trace, report_trace

MAX_LEASES = 200_000

Size = Literal["small", "medium", "large", "x-large"]


class LeaseWorkload(SpecModel):
    """What workloads of leases have in common."""

    memory: bool = Field(
        default=True, description="whether leases ask for memory too (default true)"
    )
    margin: Duration | None = Field(
        None,
        description="each lease is booked for so much more than its duration: its VMs take a"
        " moment to start and to end (default 0 s)",
    )


class DrawnLeases(LeaseWorkload):
    """Leases drawn as in MBFCBS's evaluation."""

    kind: Literal["leases"]
    jobs: Annotated[int, Field(ge=1, le=MAX_LEASES)] = Field(
        1000, description="how many (default 1,000)"
    )
    mix: Mix = Field(
        "main",
        description="main: 20 % advance reservations, the other two types alike (default);"
        " equal: all three alike",
    )
    advance: Share | None = Field(
        None, description="the share of advance reservations, in place of the mix's"
    )
    immediate: Share | None = Field(
        None, description="the share of immediate leases, in place of the mix's"
    )
    sizes: Annotated[list[Size], Field(min_length=1, max_length=100)] | None = Field(
        None, description="the VM types, all as likely (default: each of the four once)"
    )
    mean_duration: PositiveDuration = Field(
        3600.0, description="of an exponential law (default 1 h)"
    )
    shortest: PositiveDuration = Field(60.0, description="no lease lasts less (default 1 min)")
    mean_lead: Duration = Field(
        7200.0,
        description="how far ahead advance reservations are booked, on average (default 2 h)",
    )
    load: Annotated[float, Field(gt=0, le=1000)] = Field(
        1.0, description="cores times duration over slots times the span of arrivals (default 1)"
    )


class LwfWorkload(LeaseWorkload):
    """Leases of a lease workload file, XML or one a line."""

    kind: Literal["lwf"]
    path: Annotated[str, Field(min_length=1)] = Field(
        description="the file, plain or gzip; looked for beside this one, along TESTBED_DATA, in"
        " the cache"
    )
    first: Annotated[int, Field(ge=1, le=MAX_LEASES)] | None = Field(
        None, description="only so many leases from its beginning (default all)"
    )
    lenient: bool = Field(
        default=False,
        description="leave out leases that cannot be read, and count them (default: stop)",
    )


def read_drawn_leases(document: Document, path: Path, site: Site, seed: int) -> Workload:
    """The leases of kind ``leases``."""
    section = read_model(DrawnLeases, document, path)
    if section is None or site.datacentre is None:
        return Workload(applications=())
    third = 1.0 / 3.0
    advance, immediate = (third, third) if section.mix == "equal" else (0.2, 0.4)
    advance = advance if section.advance is None else section.advance
    immediate = immediate if section.immediate is None else section.immediate
    if advance + immediate > 1.0 + 1e-9:
        document.report(path, "advance and immediate together are more than 100 %")
        return Workload(applications=())
    mix = LeaseMix(
        section.jobs,
        advance,
        immediate,
        tuple(section.sizes or SIZES),
        section.mean_duration,
        section.mean_lead,
        section.shortest,
    )
    leases = mix.draw(seed, site.datacentre.total_slots, section.load)
    facts = {
        **section.model_dump(exclude={"sizes"}),
        "advance": advance,
        "immediate": immediate,
        "sizes": list(mix.sizes),
        **_counted(leases),
    }
    place = document.place(path)
    jobs = requests_of(leases, memory=section.memory, margin_s=section.margin or 0.0)
    return Workload(jobs, dict.fromkeys((job.id for job in jobs), place), (), facts, _notes(facts))


def read_lwf_workload(document: Document, path: Path, beside: FilePath) -> Workload:
    """The leases of a file; what is wrong with it goes to the document."""
    section = read_model(LwfWorkload, document, path)
    name = partial(LwfWorkload, document, path).get("path")
    found = None if name is None else find_trace(document, (*path, "path"), name, beside)
    if section is None or found is None:
        return Workload(applications=())
    file: Lwf | None = None
    sha256 = ""
    try:
        file = read_lwf(found, lenient=section.lenient)
        sha256 = checksum(found)
    except (TraceErrors, OSError) as error:
        report_trace(document, (*path, "path"), found, error, lenient=section.lenient)
    except CutOff:
        pass  # a damaged archive, read leniently as far as it goes
    if file is None:
        return Workload(applications=())
    leases = file.leases[: section.first]
    trace = published(section.path)
    facts = {
        **section.model_dump(),
        "file": str(found),
        "sha256": sha256,
        "origin": None if trace is None else trace.origin,
        "is_the_published_file": None if trace is None else trace.sha256 == sha256,
        "lines_left_out": file.skipped,
        "examples": [f"line {p.line}: {p.message}" for p in file.examples],
        **_counted(leases),
    }
    jobs = requests_of(leases, memory=section.memory, margin_s=section.margin or 0.0)
    places = {lease.name: Place(str(found), lease.line, 1) for lease in leases}
    return Workload(jobs, places, (), facts, _notes(facts))


def _counted(leases: Sequence[Lease]) -> dict[str, Any]:
    kinds = Counter(lease.kind for lease in leases)
    work = sum(lease.nodes * lease.cores * lease.duration_s for lease in leases)
    return {
        "jobs": len(leases),
        "types": {kind: kinds[kind] for kind in ("AR", "IM", "BE")},
        "mean_duration_s": sum(lease.duration_s for lease in leases) / len(leases),
        "core_hours": work / 3600.0,
    }


def _notes(facts: Mapping[str, Any]) -> tuple[str, ...]:
    types = ", ".join(f"{count:,} {kind}" for kind, count in facts["types"].items())
    said = [f"{facts['jobs']:,} leases ({types}), {facts['core_hours']:,.0f} core hours"]
    if facts.get("lines_left_out"):
        said.append(f"{facts['lines_left_out']:,} left out, the first: {facts['examples'][0]}")
    if facts.get("is_the_published_file") is False:
        said.append("its checksum is not that of the published file of this name")
    return tuple(said)
