"""Workloads of kind ``poisson`` and ``batch``: requests drawn as in DCloud's simulations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from jobs.demand import Pattern
from jobs.request import JobRequest
from jobs.workload.arrivals import HOUR_S, Batch, DayAndNight
from jobs.workload.laws import Law, Rule
from jobs.workload.tenants import READINGS, ProfilingError, Tenants
from testbed.spec.document import Document
from testbed.spec.problems import Path
from testbed.spec.quantities import Bandwidth, Duration, PositiveDuration, Share, SpecModel
from testbed.spec.quantities import PositiveBandwidth as PositiveBps
from testbed.spec.reading import partial, read_model
from testbed.spec.sourced import Workload
from testbed.units import SHARE_PATTERN, UnitError, parse_share

MAX_JOBS = 100_000

Reading = Literal["G", "literal", "literal-clamped"]
Sigma = Annotated[float, Field(ge=0, le=1e6)]


def _signed_share(value: Any) -> float:
    sign = 1.0
    if isinstance(value, str) and value.startswith("-"):
        sign, value = -1.0, value[1:].lstrip()
    elif isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        sign, value = -1.0, -value
    try:
        return sign * parse_share(value)
    except UnitError as error:
        raise PydanticCustomError("quantity", "{message}", {"message": str(error)}) from None


SignedShare = Annotated[
    float,
    PlainValidator(_signed_share),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": f"^-? *{SHARE_PATTERN.lstrip('^')}"},
                {"type": "number"},
            ],
            "description": "a share above or below 0",
            "examples": ["-12 %", 0.3],
        }
    ),
]


class CountLaw(SpecModel):
    """How many VMs jobs ask for: a normal law, drawn again below 1 (or clamped to it)."""

    mean: Annotated[float, Field(ge=1, le=1e6)] | None = Field(
        None, description="of the normal law, before draws below 1 are drawn again (default 120)"
    )
    sigma: Sigma | None = Field(None, description="its standard deviation (default: the reading's)")
    rule: Rule | None = Field(None, description="what becomes of draws below 1")


class RatioLaw(SpecModel):
    """The deadline extension ratio r = d/p: a normal law, drawn again below 1 (or clamped)."""

    mean: Annotated[float, Field(ge=1, le=1e6)] | None = Field(
        None,
        description="of the normal law, at least 1: no deadline is before the end (default 10)",
    )
    sigma: Sigma | None = Field(None, description="its standard deviation (default: the reading's)")
    rule: Rule | None = Field(None, description="what becomes of draws below 1")


class BandwidthLaw(SpecModel):
    """The bandwidth asked for per VM: a normal law, positive."""

    mean: PositiveBps | None = Field(None, description="of the normal law (default 250 Mbit/s)")
    sigma: Bandwidth | None = Field(
        None, description="its standard deviation (default: the reading's)"
    )
    rule: Rule | None = Field(None, description="what becomes of draws below 1 bit/s")


class DurationLaw(SpecModel):
    """The profiled running time: a normal law, of a minute at least."""

    mean: PositiveDuration | None = Field(None, description="of the normal law (default 1 h)")
    sigma: Duration | None = Field(
        None, description="its standard deviation (default: the reading's)"
    )
    rule: Rule | None = Field(None, description="what becomes of draws below a minute")


class ErrorSection(SpecModel):
    """By how much true durations differ from profiled ones, uniformly."""

    low: SignedShare = Field(description="the least error, as -12 %")
    high: SignedShare = Field(description="the greatest error, as 30 %")


class DrawnWorkload(SpecModel):
    """What drawn workloads have in common."""

    reading: Reading = Field(
        "G",
        description="how the paper's laws are read: G (fitted to its figures, default), literal,"
        " literal-clamped",
    )
    vms: CountLaw = Field(CountLaw(), description="VMs per job")
    bandwidth: BandwidthLaw = Field(BandwidthLaw(), description="bandwidth per VM")
    duration: DurationLaw = Field(DurationLaw(), description="profiled running time")
    deadline_ratio: RatioLaw = Field(RatioLaw(), description="deadline over running time")
    profiling_error: ErrorSection | None = Field(
        None, description="true over profiled running time, less 1 (default none)"
    )
    pattern: Pattern = Field(
        "permutation", description="who sends to whom (default permutation, drawn per job)"
    )
    services: Share = Field(0.0, description="the share of user-facing services (default 0)")


class PoissonWorkload(DrawnWorkload):
    """Jobs that arrive at random, more of them by day than by night."""

    kind: Literal["poisson"]
    per_hour: Annotated[float, Field(ge=0, le=1e6)] = Field(
        160.0, description="arrivals per hour by day (default 160)"
    )
    night_factor: Annotated[float, Field(ge=0, le=1e3)] = Field(
        0.2, description="arrivals by night over those by day (default 0.2)"
    )
    hours: Annotated[float, Field(gt=0, le=1e5)] = Field(
        24.0, description="for how long jobs arrive; day and night take turns every 12 h"
    )


class BatchWorkload(DrawnWorkload):
    """Jobs that all arrive at time 0."""

    kind: Literal["batch"]
    jobs: Annotated[int, Field(ge=1, le=MAX_JOBS)] = Field(description="how many")


def read_poisson(document: Document, path: Path, seed: int) -> Workload:
    """The jobs of a Poisson workload."""
    section = read_model(PoissonWorkload, document, path)
    tenants = _tenants(document, path, partial(PoissonWorkload, document, path))
    if section is None or tenants is None:
        return Workload(applications=())
    arrivals = DayAndNight(section.per_hour, section.night_factor, section.hours * HOUR_S)
    expected = section.per_hour * max(1.0, section.night_factor) * section.hours
    if expected > MAX_JOBS:
        message = f"asks for some {expected:,.0f} jobs; at most {MAX_JOBS:,} are supported"
        document.report((*path, "per_hour"), message)
        return Workload(applications=())
    return _drawn(document, path, tenants.requests(arrivals, seed))


def read_batch(document: Document, path: Path, seed: int) -> Workload:
    """The jobs of a batch."""
    section = read_model(BatchWorkload, document, path)
    tenants = _tenants(document, path, partial(BatchWorkload, document, path))
    if section is None or tenants is None:
        return Workload(applications=())
    return _drawn(document, path, tenants.requests(Batch(section.jobs), seed))


def _drawn(document: Document, path: Path, jobs: tuple[JobRequest, ...]) -> Workload:
    place = document.place(path)
    return Workload(jobs, dict.fromkeys((job.id for job in jobs), place), ())


AnyLaw = CountLaw | RatioLaw | BandwidthLaw | DurationLaw

_FIELDS = {
    "vms": "vms",
    "bandwidth": "bandwidth",
    "duration": "duration",
    "deadline_ratio": "ratio",
}
_ARGUMENTS = {"vms": "n", "bandwidth": "b_bps", "duration": "p_s", "deadline_ratio": "r"}


def _tenants(document: Document, path: Path, known: Mapping[str, Any]) -> Tenants | None:
    """The reading's laws with what the file changes; None where that makes no sense.

    ``known`` are the keys that could be read: what is wrong with their meaning is reported
    whatever is wrong with the others.
    """
    before = len(document.problems)
    given: dict[str, AnyLaw] = {key: known[key] for key in _FIELDS if key in known}
    base = READINGS[known.get("reading", "G")]
    means = {_ARGUMENTS[key]: float(law.mean) for key, law in given.items() if law.mean is not None}
    try:
        tenants = base(**means)
    except ValueError:
        # A mean that its own deviation cannot lift above the floor; _law says which.
        tenants = base()
    laws = {
        _FIELDS[key]: _law(document, (*path, key), getattr(tenants, _FIELDS[key]), law)
        for key, law in given.items()
    }
    error = _error(document, (*path, "profiling_error"), known.get("profiling_error"))
    if len(document.problems) > before:
        return None
    return replace(
        tenants,
        **laws,
        profiling_error=error,
        pattern=known.get("pattern", "permutation"),
        service_share=known.get("services", 0.0),
    )


def _law(document: Document, path: Path, law: Law, given: AnyLaw) -> Law:
    """The reading's law with what the file changes of it."""
    try:
        return Law(
            law.mean if given.mean is None else float(given.mean),
            law.sigma if given.sigma is None else float(given.sigma),
            law.low,
            law.rule if given.rule is None else given.rule,
        )
    except ValueError as objection:
        document.report(path, str(objection))
        return law


def _error(document: Document, path: Path, given: ErrorSection | None) -> ProfilingError:
    try:
        return ProfilingError() if given is None else ProfilingError(given.low, given.high)
    except ValueError as objection:
        document.report(path, str(objection))
        return ProfilingError()
