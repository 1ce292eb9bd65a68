"""``workload: {kind: ladder}``: one application at rising bandwidths, for its
profile.

``testbed profile`` runs such a file and writes the application's profile. The
application does the same work at every bandwidth, and asks for the bandwidth
that it gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import Field

from jobs.demand import Pattern
from jobs.job_profile import RATIOS
from jobs.request import JobRequest
from testbed.embedding.base import embedder
from testbed.embedding.placement import Refusal, empty_residual
from testbed.spec.document import Location
from testbed.spec.experiment import BandwidthSweep
from testbed.spec.job_entries import (
    CommandWords,
    DemandCurve,
    EntryDemands,
    JobEntry,
    ProgramKeys,
    check_entry,
    launcher_notes,
    requests,
    suffixes,
)
from testbed.spec.topology_section import LoadContext
from testbed.spec.unit_types import (
    Name,
    PositiveBandwidth,
    PositiveDuration,
    Share,
)
from testbed.spec.validation import Section
from testbed.spec.workload_section import LoadedWorkload, WorkloadSection
from testbed.units import format_bandwidth, human_bandwidth

_NO_LINKS = (
    "a flat data centre has no links, so there is no bandwidth to try: give it some (topology:"
    " {kind: tree, ...})"
)
REPETITIONS = 3
TOLERANCE = 0.02


class SweepApplication(ProgramKeys):
    """The application whose profile is wanted."""

    id: Name
    """its name; the jobs are called ID-750-1 (in Mbit/s, by run)"""
    vms: Annotated[int, Field(ge=2, le=1_000_000)]
    """how many VMs it needs"""
    bandwidth: PositiveBandwidth
    """per VM: with 'duration' it says how much is moved, and it is what
    the default bandwidths are made of
    """
    duration: PositiveDuration
    """its running time at that bandwidth, as 6 s"""
    kind: Literal["transfer", "demand", "program"] | None = None
    """transfer: limited by the network (default); demand: limited by
    the curve in 'demand' too (default where there is one); program: a
    program that is launched in its VMs
    """
    pattern: Pattern | None = None
    """communication pattern (default ring)"""
    demand: DemandCurve | None = None
    """the demand curve c(x): steps up to 100 % of the progress"""
    cpu: Share | None = None
    """the share of a core that each VM burns"""
    command: CommandWords | None = None
    """a real application: each VM runs this, as its rank; words that
    begin with ./ are files beside this one
    """


Bandwidths = Annotated[
    list[PositiveBandwidth], Field(min_length=1, max_length=100)
]


class SweepWorkload(WorkloadSection):
    """One application, run at one bandwidth after another."""

    kind: Literal["ladder"]
    application: SweepApplication
    """whose profile is wanted"""
    bandwidths: Bandwidths | None = None
    """per VM, to run it at (default: 0.2, 0.4 … 2 times the
    application's, as far as the data centre can give it)
    """
    repetitions: Annotated[int, Field(ge=1, le=100)] = Field(
        REPETITIONS,
        description=f"how often at each; the median counts (default {REPETITIONS})",
    )
    tolerance: Share = TOLERANCE
    """a time that is longer by no more than this counts as equal when
    the no-elongation threshold is found (default 2 %)
    """

    def loaded(
        self, location: Location, context: LoadContext
    ) -> LoadedWorkload:
        """The application's runs: rounds over the bandwidths, the greatest
        first, one at a time.
        """
        application: Any = self["application"]
        if application is not None:
            check_entry(location / "application", application, context)
        centre = context.datacentre
        if centre is not None and centre.kind == "flat":
            location.report(_NO_LINKS, "kind")
        if application is None or not location.is_sound():
            return LoadedWorkload(applications=None)
        request = _request(application, location.document.folder)
        points_bps, notes = _points(
            location, self.bandwidths, request, context
        )
        if not location.is_sound():
            return LoadedWorkload(applications=None)
        jobs = _runs(request, points_bps, self.repetitions)
        sweep = BandwidthSweep(
            application=request.id,
            bandwidths_bps=points_bps,
            repetitions=self.repetitions,
            tolerance=self.tolerance,
            modelled=not request.demand.own_program,
        )
        return LoadedWorkload(
            jobs,
            applications=(request.id,),
            notes=(*notes, *launcher_notes([request])),
            sweep=sweep,
        )


def _request(application: Section, folder: FilePath) -> JobRequest:
    """The application as a job; files that it names lie in ``folder``."""
    # The application was checked as an entry is: none of it is checked again.
    values = {
        name: application[name] for name in SweepApplication.model_fields
    }
    entry = JobEntry.model_construct(**values)
    (request,) = requests(entry, EntryDemands(folder).of(entry), {})
    return replace(request, application=request.id)


def at_bandwidth(request: JobRequest, bandwidth_bps: int) -> JobRequest:
    """The same work at another bandwidth, with the duration that the model
    gives it.

    A transfer moves the same bytes, a demand curve does the same work by
    DCloud's Eq. 1. A command takes p·b/b', and p where it gets more bandwidth.
    """
    time_s = request.demand.profiled_s(request, bandwidth_bps)
    return replace(request, bandwidth_bps=bandwidth_bps, duration_s=time_s)


def _runs(
    request: JobRequest, points_bps: Sequence[int], repetitions: int
) -> tuple[JobRequest, ...]:
    """The jobs in rounds over the bandwidths: changes of the machine's load then
    affect all of them alike.
    """
    runs: list[JobRequest] = []
    falling = sorted(points_bps, reverse=True)
    names = suffixes(falling)
    for number in range(1, repetitions + 1):
        for point_bps, name in zip(falling, names, strict=True):
            # Each waits for the one before, so that no run competes with
            # another.
            runs.append(
                replace(
                    at_bandwidth(request, point_bps),
                    id=f"{request.id}-{name}-{number}",
                    after=runs[-1].id if runs else None,
                )
            )
    return tuple(runs)


def _points(
    location: Location,
    bandwidths: list[int] | None,
    request: JobRequest,
    context: LoadContext,
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The bandwidths, rising, and notes about them; the data centre can give
    each of them.
    """
    if bandwidths is None:
        return _default_points(location, request, context)
    for index, point_bps in enumerate(bandwidths):
        where = location / "bandwidths" / index
        if point_bps in bandwidths[:index]:
            where.report(
                f"{format_bandwidth(point_bps)} stands there twice"
            )
        reason = _refusal(request, point_bps, context)
        if reason is not None:
            where.report(_cannot(request, point_bps, reason))
    return tuple(sorted(bandwidths)), ()


def _default_points(
    location: Location, request: JobRequest, context: LoadContext
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """JSA's multiples of the application's bandwidth, up to the last that the
    data centre can give.
    """
    points_bps: list[int] = []
    for ratio in RATIOS:
        # A fifth of very little would round to nothing.
        point_bps = max(1, round(ratio * request.bandwidth_bps))
        # Of a few bit/s several multiples are the same.
        if point_bps in points_bps:
            continue
        reason = _refusal(request, point_bps, context)
        if reason is None:
            points_bps.append(point_bps)
            continue
        # A refused bandwidth ends the sweep: no greater one fits either.
        if not points_bps:
            location.report(
                _cannot(request, point_bps, reason), "application"
            )
            return (), (f"the sweep has no point: {reason}",)
        last = human_bandwidth(points_bps[-1])
        return tuple(points_bps), (f"the sweep ends at {last}: {reason}",)
    return tuple(points_bps), ()


def _cannot(request: JobRequest, point_bps: int, reason: str) -> str:
    asked = f"{request.n_vms} VMs at {format_bandwidth(point_bps)}"
    return f"{asked} do not fit even in the empty data centre: {reason}"


def _refusal(
    request: JobRequest, point_bps: int, context: LoadContext
) -> str | None:
    """The reason why the empty data centre cannot give that bandwidth; None
    where it can.
    """
    centre = context.datacentre
    # Defaults that replace unreadable keys prove nothing.
    if centre is None or not (context.slots_known and context.links_known):
        return None
    # AdaBa weighs a request against the largest so far, which is this one.
    answer = embedder(context.embedder).embed(
        centre,
        empty_residual(centre),
        request.n_vms,
        point_bps,
        largest_bps=point_bps,
    )
    if isinstance(answer, Refusal):
        return answer.reason
    return None
