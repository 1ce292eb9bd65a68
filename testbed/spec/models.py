"""``workload: {kind: feitelson}`` and ``{kind: jann}``: jobs drawn from workload models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from jobs.workload.feitelson import FeitelsonStyle
from jobs.workload.jann import JannStyle
from jobs.workload.models import Calibration, ExponentialJobs, Model
from testbed.spec.document import Document
from testbed.spec.parallel import CpuRule, LinesOfJobs, ParallelWorkload, fitted
from testbed.spec.problems import Path
from testbed.spec.quantities import PositiveDuration, Share
from testbed.spec.reading import read_model
from testbed.spec.sourced import Workload
from testbed.spec.topology import Site
from testbed.units import human_duration

MAX_JOBS = 2_000_000

Jobs = Annotated[int, Field(ge=2, le=MAX_JOBS)]
Largest = Annotated[int, Field(ge=1, le=65_536)]
Factor = Annotated[float, Field(gt=0, le=1e6)]
Order = Annotated[int, Field(ge=1, le=100)]


class ModelWorkload(ParallelWorkload):
    """What workload models have in common."""

    load: Annotated[float, Field(gt=0, le=1000)] = Field(
        0.7, description="system load, as for every kind of parallel jobs (default 0.7)"
    )
    cpu: CpuRule = Field(
        CpuRule(), description="how CPU use is drawn (default 40 % to 100 % of a node)"
    )
    overestimate: Annotated[float, Field(ge=1, le=1e6)] | None = Field(
        None,
        description="users state their running time times a factor, uniform from 1 to this"
        " (default: the running time)",
    )


class FeitelsonWorkload(ModelWorkload):
    """Jobs after Feitelson's model of 1996."""

    kind: Literal["feitelson"]
    jobs: Jobs = Field(20_000, description="how many (default 20,000)")
    largest: Largest = Field(256, description="the greatest size (default 256)")
    size_exponent: Annotated[float, Field(ge=0, le=10)] = Field(
        1.0, description="a size n has the weight n to the power of minus this (default 1)"
    )
    power_of_two: Factor = Field(
        10.0, description="times this where n is a power of two above 1 (default 10)"
    )
    serial: Factor = Field(3.0, description="and this where n is 1 (default 3)")
    mean_run_time: PositiveDuration = Field(
        2500.0, description="what the law of running times is scaled to (default 2500 s)"
    )
    long_over_short: Annotated[float, Field(ge=1, le=1e6)] = Field(
        7.0, description="mean of long running times over that of short ones (default 7)"
    )
    long_at_one: Share = Field(0.05, description="the share of long ones at size 1 (default 5 %)")
    long_at_largest: Share = Field(
        0.25, description="the share of long ones at the greatest size (default 25 %)"
    )
    repeat_exponent: Annotated[float, Field(ge=0, le=10)] = Field(
        2.5, description="r runs have the weight r to the power of minus this (default 2.5)"
    )
    most_repeats: Annotated[int, Field(ge=1, le=10_000)] = Field(
        1000, description="a job is run so many times at most (default 1000)"
    )


class JannWorkload(ModelWorkload):
    """Jobs after the model of Jann and others of 1997."""

    kind: Literal["jann"]
    jobs: Jobs = Field(10_000, description="how many (default 10,000)")
    largest: Largest = Field(256, description="the greatest size (default 256)")
    serial: Share = Field(0.40, description="the share of jobs of one process (default 40 %)")
    below_20: Share = Field(
        0.86, description="the share of jobs of fewer than 20 processes (default 86 %)"
    )
    decay: Factor = Field(
        0.75, description="the share of a class of sizes over that of the one before (default 0.75)"
    )
    power_of_two: Share = Field(
        0.6, description="the share of a class that has its greatest size (default 60 %)"
    )
    mean_run_time: PositiveDuration = Field(
        11_250.0, description="the mean of running times (default 11250 s)"
    )
    growth: Factor = Field(
        1.0, description="mean running time of a class over that of the one before (default 1)"
    )
    run_cv2: Factor = Field(
        2.5, description="squared variation of running times in a class (default 2.5)"
    )
    arrival_cv2: Factor = Field(
        2.0, description="squared variation of distances between arrivals of a class (default 2)"
    )
    order: Order = Field(1, description="the common order of the hyper-Erlang laws (default 1)")


class ExponentialWorkload(ModelWorkload):
    """Random jobs: Poisson arrivals, exponential running times, uniform sizes (AdaBa, Fig. 4)."""

    kind: Literal["exponential"]
    cpu: CpuRule | None = Field(  # type: ignore[assignment]
        None, description="how CPU use is drawn (default: every process uses all of its node's)"
    )
    jobs: Jobs = Field(1000, description="how many (default 1,000)")
    mean_vms: Annotated[int, Field(ge=1, le=65_536)] = Field(
        8, description="VMs per job on average, uniform from 1 to twice this less one (default 8)"
    )
    mean_run_time: PositiveDuration = Field(
        3600.0, description="of the exponential law of running times (default 1 h)"
    )


def _exponential(section: ExponentialWorkload) -> Model:
    return ExponentialJobs(section.jobs, section.mean_vms, section.mean_run_time)


def read_exponential(document: Document, path: Path, site: Site, seed: int) -> Workload:
    """Random jobs."""
    section = read_model(ExponentialWorkload, document, path)
    return _read(document, path, site, seed, section, _exponential)


def _feitelson(section: FeitelsonWorkload) -> Model:
    given = section.model_dump(include=set(FeitelsonStyle.__dataclass_fields__))
    return FeitelsonStyle(**given, mean_run_s=section.mean_run_time)


def _jann(section: JannWorkload) -> Model:
    given = section.model_dump(include=set(JannStyle.__dataclass_fields__))
    return JannStyle(**given, mean_run_s=section.mean_run_time)


def read_feitelson(document: Document, path: Path, site: Site, seed: int) -> Workload:
    """The jobs of a Feitelson-style model."""
    section = read_model(FeitelsonWorkload, document, path)
    return _read(document, path, site, seed, section, _feitelson)


def read_jann(document: Document, path: Path, site: Site, seed: int) -> Workload:
    """The jobs of a Jann-style model."""
    section = read_model(JannWorkload, document, path)
    return _read(document, path, site, seed, section, _jann)


S = TypeVar("S", bound=ModelWorkload)


def _read(
    document: Document,
    path: Path,
    site: Site,
    seed: int,
    section: S | None,
    build: Callable[[S], Model],
) -> Workload:
    if section is None or site.datacentre is None:
        return Workload(applications=())
    try:
        model = build(section)
        jobs = model.draw(seed, site.datacentre.total_slots, section.load)
    except ValueError as objection:
        document.report(path, str(objection))
        return Workload(applications=())
    figures = model.calibration(jobs)
    if section.overestimate is not None:
        jobs = jobs.overestimated(section.overestimate, seed)
    fit = fitted(document, path, section, jobs, site, seed)
    if fit is None:
        return Workload(applications=())
    parameters = section.model_dump(exclude=set(ParallelWorkload.model_fields))
    facts = {
        **parameters,
        "overestimate": section.overestimate,
        "calibration": [asdict(figure) for figure in figures],
        **fit.facts,
    }
    notes = (f"{parameters['kind'].capitalize()}-style jobs", *map(_sentence, figures), *fit.notes)
    place = document.place(path)
    return Workload(fit.jobs, LinesOfJobs(fit.jobs, place.source, place), (), facts, notes)


def _sentence(figure: Calibration) -> str:
    """``calibration: mean running time 2,500 s wanted, 2,431 s drawn (-2.8 %)``."""

    def shown(value: float) -> str:
        return human_duration(value) if figure.unit == "s" else f"{value:.4g}"

    off = (figure.drawn / figure.wanted - 1.0) * 100 if figure.wanted else 0.0
    return (
        f"calibration: {figure.what} {shown(figure.wanted)} wanted, {shown(figure.drawn)} drawn"
        f" ({off:+.1f} %)"
    )
