"""``workload: {kind: ladder}``: one application at a ladder of bandwidths, for its profile.

``testbed profile`` runs such a file and writes the application's profile. At every bandwidth it
does the same work, and asks for just what it is given (docs/decisions/0460).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Annotated, Literal

from pydantic import Field

from jobs.demand import Pattern
from jobs.job_profile import RATIOS
from jobs.request import JobRequest
from testbed.embedding.base import embedder, embedder_names
from testbed.embedding.placement import Refusal, empty_residual
from testbed.spec.document import Document
from testbed.spec.job_list import DemandStep, JobEntry, Word, check_entry, requests, suffixes
from testbed.spec.problems import Path
from testbed.spec.profile import Profiles
from testbed.spec.quantities import (
    Name,
    PositiveBandwidth,
    PositiveDuration,
    Share,
    SpecModel,
)
from testbed.spec.reading import partial, read_model
from testbed.spec.sourced import Ladder, Workload
from testbed.spec.topology import Site
from testbed.units import format_bandwidth, human_bandwidth

_NO_LINKS = (
    "a flat data centre has no links, so there is no bandwidth to try: give it some (topology:"
    " {kind: tree, ...})"
)
REPETITIONS = 3
TOLERANCE = 0.02


class LadderApplication(SpecModel):
    """The application whose profile is wanted."""

    id: Name = Field(description="its name; the jobs are called ID-750-1 (in Mbit/s, by run)")
    vms: Annotated[int, Field(ge=2, le=1_000_000)] = Field(description="how many VMs it needs")
    bandwidth: PositiveBandwidth = Field(
        description="per VM: with 'duration' it says how much is moved, and it is what the"
        " default ladder is made of"
    )
    duration: PositiveDuration = Field(description="its running time at that bandwidth, as 6 s")
    kind: Literal["transfer", "demand"] | None = Field(
        None,
        description="transfer: limited by the network (default); demand: limited by the curve"
        " in 'demand' too (default where there is one)",
    )
    pattern: Pattern | None = Field(None, description="who sends to whom (default ring)")
    demand: Annotated[list[DemandStep], Field(min_length=1, max_length=1000)] | None = Field(
        None, description="the demand curve c(x): steps up to 100 % of the progress"
    )
    cpu: Share | None = Field(None, description="the share of a core that each VM burns")
    command: Annotated[list[Word], Field(min_length=1, max_length=100)] | None = Field(
        None,
        description="a real application: each VM runs this, as its rank; words that begin with ./"
        " are files beside this one",
    )


class LadderWorkload(SpecModel):
    """One application, run at one bandwidth after another."""

    kind: Literal["ladder"]
    application: LadderApplication = Field(description="whose profile is wanted")
    bandwidths: Annotated[list[PositiveBandwidth], Field(min_length=1, max_length=100)] | None = (
        Field(
            None,
            description="per VM, to run it at (default: 0.2, 0.4 … 2 times the application's, as"
            " far as the data centre can give it)",
        )
    )
    repetitions: Annotated[int, Field(ge=1, le=100)] = Field(
        REPETITIONS, description=f"how often at each; the median counts (default {REPETITIONS})"
    )
    tolerance: Share = Field(
        TOLERANCE,
        description="a time that is longer by no more than this counts as equal when the"
        " no-elongation threshold is found (default 2 %)",
    )


def read_ladder(document: Document, path: Path, site: Site, placed_by: str) -> Workload:
    """The application's runs: rounds over the ladder, from the fastest down, one at a time."""
    before = len(document.problems)
    section = read_model(LadderWorkload, document, path)
    inside = document.at(path)
    here: Path = (*path, "application")
    if isinstance(inside, dict) and isinstance(inside.get("application"), dict):
        check_entry(document, here, partial(LadderApplication, document, here), site)
    if site.datacentre is not None and site.datacentre.kind == "flat":
        document.report((*path, "kind"), _NO_LINKS)
    if section is None or len(document.problems) > before:
        return Workload()
    entry = JobEntry.model_construct(
        **{name: getattr(section.application, name) for name in LadderApplication.model_fields}
    )
    beside = FilePath(document.place(()).source).parent
    (request,) = requests(entry, {}, beside, Profiles(beside))
    request = replace(request, application=request.id)
    rungs, notes = _rungs(document, path, section, request, site, placed_by)
    if len(document.problems) > before:
        return Workload()
    jobs = _runs(request, rungs, section.repetitions)
    return Workload(
        jobs,
        {job.id: document.place(here) for job in jobs},
        (request.id,),
        notes=notes,
        ladder=Ladder(
            request.id,
            rungs,
            section.repetitions,
            section.tolerance,
            not request.demand.own_program,
        ),
    )


def at_bandwidth(request: JobRequest, bandwidth_bps: int) -> JobRequest:
    """The same work asked for at another bandwidth, with the time that the model gives it there.

    A transfer moves the same bytes, faster too; a curve's work is the same by DCloud's Eq. 1; of a
    command nothing is known, so that p·b/b' stands, and p where there is more bandwidth.
    """
    time_s = request.demand.profiled_s(request, bandwidth_bps)
    return replace(request, bandwidth_bps=bandwidth_bps, duration_s=time_s)


def _runs(
    request: JobRequest, rungs_bps: Sequence[int], repetitions: int
) -> tuple[JobRequest, ...]:
    """Round after round, so that what changes on the machine meanwhile spreads over all rungs."""
    runs: list[JobRequest] = []
    falling = sorted(rungs_bps, reverse=True)
    names = suffixes(falling)
    for number in range(1, repetitions + 1):
        for rung_bps, name in zip(falling, names, strict=True):
            runs.append(
                replace(
                    at_bandwidth(request, rung_bps),
                    id=f"{request.id}-{name}-{number}",
                    after=runs[-1].id if runs else None,
                )
            )
    return tuple(runs)


def _rungs(
    document: Document,
    path: Path,
    section: LadderWorkload,
    request: JobRequest,
    site: Site,
    placed_by: str,
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The bandwidths, rising, and what there is to say about them; all of them can be had."""
    if section.bandwidths is not None:
        for index, rung_bps in enumerate(section.bandwidths):
            where = (*path, "bandwidths", index)
            if rung_bps in section.bandwidths[:index]:
                document.report(where, f"{format_bandwidth(rung_bps)} stands there twice")
            reason = _refusal(request, rung_bps, site, placed_by)
            if reason is not None:
                document.report(where, _cannot(request, rung_bps, reason))
        return tuple(sorted(section.bandwidths)), ()
    wished = tuple(max(1, round(ratio * request.bandwidth_bps)) for ratio in RATIOS)
    for index, rung_bps in enumerate(wished):
        reason = _refusal(request, rung_bps, site, placed_by)
        if reason is None:
            continue
        if not index:
            document.report((*path, "application"), _cannot(request, rung_bps, reason))
        left = f"the ladder ends at {human_bandwidth(wished[index - 1])}: {reason}"
        return wished[:index], (left,)
    return wished, ()


def _cannot(request: JobRequest, rung_bps: int, reason: str) -> str:
    asked = f"{request.n_vms} VMs at {format_bandwidth(rung_bps)}"
    return f"{asked} do not fit even in the empty data centre: {reason}"


def _refusal(request: JobRequest, rung_bps: int, site: Site, placed_by: str) -> str | None:
    """Why the application cannot have that bandwidth here; None where it can, or nobody knows."""
    centre = site.datacentre
    if centre is None or not (site.slots_known and site.links_known):
        return None
    if placed_by not in embedder_names():
        return None
    answer = embedder(placed_by).embed(
        centre, empty_residual(centre), request.n_vms, rung_bps, largest_bps=rung_bps
    )
    return answer.reason if isinstance(answer, Refusal) else None
