"""An experiment file to an :class:`Experiment`, or to all that is wrong with it. Nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from jobs.interference import Interference
from testbed.embedding.base import embedder_names
from testbed.spec.document import Document, read_document, read_text
from testbed.spec.expectation import ApplicationExpectation, Band, Expectation
from testbed.spec.experiment import Experiment, Scale
from testbed.spec.override import override
from testbed.spec.policies import read_policies
from testbed.spec.problems import Path, SpecErrors, did_you_mean, unknown_name
from testbed.spec.quantities import Duration, Name, Share, SpecModel
from testbed.spec.reading import kind_of, partial, read_model
from testbed.spec.sourced import Workload
from testbed.spec.topology import Site, read_topology
from testbed.spec.workload import Circumstances, read_workload

MAX_SEED = 2**63 - 1
DEFAULT_SEED = 1
DEFAULT_EMBEDDER = "oktopus"

Factor = Annotated[float, Field(gt=0, le=1_000_000)]
Ratio = Annotated[float, Field(ge=0)]
Section = Annotated[Any, WithJsonSchema({"type": "object"})]


class ScaleSection(SpecModel):
    """How the live world is smaller than the experiment."""

    rate: Factor = Field(1.0, description="0.1 makes 1 Gbit/s 100 Mbit/s on the wire (default 1)")
    time: Factor = Field(1.0, description="60 makes an hour take a minute (default 1)")
    cpu: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0,
        description="0.05 makes a slot's processor a twentieth of one of the machine's (default 1)",
    )
    instant: Duration | None = Field(
        None,
        description="jobs that end within so much of the experiment's time have ended together:"
        " the policy hears of all of them before it decides (default 0 s)",
    )


class InterferenceSection(SpecModel):
    """What two VMs on a node of the simulator do to each other."""

    loss: Share | None = Field(
        None,
        description="the most that a process loses in front of a background VM, uniformly from 0"
        " (default 3.7 %)",
    )
    efficiency: Share | None = Field(
        None,
        description="how well every process behind another uses the CPU that it gets (default:"
        " the published laws, 80 % to 100 % of one process and 43 % on average of several)",
    )


class BandSection(SpecModel):
    """A closed interval; an end that is left out is open."""

    min: Ratio | None = Field(None, description="the least value that is accepted")
    max: Ratio | None = Field(None, description="the greatest value that is accepted")


class ApplicationSection(SpecModel):
    """What is expected of one application's jobs."""

    estimate_ratio: BandSection | None = Field(
        None, description="measured / estimated running time of each of its jobs"
    )
    scaled_down_below: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="measured / estimated stays below this wherever a job got less bandwidth"
        " than it asked for",
    )


class ExpectSection(SpecModel):
    """What makes the exit code 1 where it does not come out."""

    estimate_ratio: BandSection | None = Field(
        None,
        description="measured / estimated running time of every job whose application has no"
        " band of its own",
    )
    applications: dict[str, ApplicationSection] | None = Field(
        None, description="expectations by the jobs' application"
    )
    fidelity: Literal["ok", "suspect"] | None = Field(
        None, description="the worst validity verdict of a live run that is accepted"
    )


class ExperimentFile(SpecModel):
    """An experiment: a data centre, what is asked of it, and who decides."""

    name: Name | None = Field(None, description="the run folder's name (default: the file's)")
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = Field(
        DEFAULT_SEED, description=f"of every random stream (default {DEFAULT_SEED})"
    )
    topology: Section = Field(description="the data centre, a mapping with a kind")
    scale: Section = Field(None, description="live only: rate, time, cpu, instant")
    interference: Section = Field(
        None, description="simulator only: what two VMs on a node do to each other"
    )
    embedder: str = Field(
        DEFAULT_EMBEDDER,
        description="who places VMs, where the policy lets one choose"
        f" (default {DEFAULT_EMBEDDER})",
    )
    policies: Annotated[Any, WithJsonSchema({"type": "array"})] = Field(
        None,
        description="who decides; each gets a run of its own (default [vc], for leases [mbfcbs],"
        " for a ladder [scripted])",
    )
    workload: Section = Field(description="the jobs, a mapping with a kind")
    expect: Section = Field(None, description="what the results must show for exit code 0")


def load_experiment(
    path: FilePath | str, overrides: Mapping[str, object] | None = None
) -> Experiment:
    """The experiment in a file. Raises :class:`SpecErrors` with everything that is wrong.

    ``overrides`` replaces values by dotted key, as ``{"scale.rate": "0.05", "seed": 8}``; a text
    is read as YAML. Pure but for reading the file (and what it names).
    """
    path = FilePath(path)
    return parse_experiment(read_text(path), path, overrides)


def parse_experiment(
    text: str, path: FilePath, overrides: Mapping[str, object] | None = None
) -> Experiment:
    """As :func:`load_experiment`, from the file's text; ``path`` names it in messages."""
    document = read_document(text, str(path))
    given = {
        key: value if isinstance(value, str) else str(value)
        for key, value in (overrides or {}).items()
    }
    for key, value in given.items():
        override(document, key, value)
    return _read(document, text, path, given)


def _read(
    document: Document, text: str, path: FilePath, overrides: Mapping[str, str]
) -> Experiment:
    """Every section is read, whatever is wrong with the others; then all or nothing."""
    if not isinstance(document.data, dict):
        if not document.problems:
            shown = kind_of(document.data)
            document.report((), f"must be a mapping with topology and workload, not {shown}")
        raise SpecErrors(document.problems)
    read_model(ExperimentFile, document, ())
    top = partial(ExperimentFile, document, ())
    seed = int(top.get("seed", DEFAULT_SEED))
    site = Site()
    if "topology" in document.data:
        site = read_topology(document, ("topology",), path.parent)
    embedder = str(top.get("embedder", DEFAULT_EMBEDDER))
    if embedder not in embedder_names():
        document.report(("embedder",), unknown_name("embedder", embedder, embedder_names()))
    kind, workload = "", Workload()
    if "workload" in document.data:
        circumstances = Circumstances(site, seed, path.parent, embedder)
        kind, workload = read_workload(document, ("workload",), circumstances)
    scale = _read_scale(document)
    interference = _read_interference(document)
    policies = read_policies(document, ("policies",), kind)
    expect = _read_expect(document, workload)
    if document.problems or site.datacentre is None:
        raise SpecErrors(document.problems)
    return Experiment(
        path=path,
        source_text=text,
        name=str(top.get("name") or _default_name(path)),
        seed=seed,
        topology=site.resolved,
        datacentre=site.datacentre,
        scale=scale,
        embedder=embedder,
        policies=policies,
        workload=kind,
        jobs=workload.jobs,
        expect=expect,
        interference=interference,
        overrides=tuple(overrides.items()),
        job_places=workload.places,
        workload_facts=workload.facts,
        workload_notes=workload.notes,
        ladder=workload.ladder,
    )


def _default_name(path: FilePath) -> str:
    """The file's name without its ending, made safe."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).lstrip("._-")[:64]
    return stem or "experiment"


def _read_scale(document: Document) -> Scale:
    if "scale" not in document.data:
        return Scale()
    section = read_model(ScaleSection, document, ("scale",))
    if section is None:
        return Scale()
    return Scale(section.rate, section.time, section.cpu, section.instant or 0.0)


def _read_interference(document: Document) -> Interference:
    """The published figures, where the file says nothing else."""
    published = Interference()
    if "interference" not in document.data:
        return published
    section = read_model(InterferenceSection, document, ("interference",))
    if section is None:
        return published
    if section.loss is not None:
        published = replace(published, loss_max=section.loss)
    efficiency = section.efficiency
    if efficiency is None:
        return published
    if not efficiency:
        document.report(("interference", "efficiency"), "must be above 0: nothing would ever end")
    always = (efficiency, efficiency)
    return replace(
        published, eff_single=always, eff_mean=efficiency, eff_sigma=0.0, eff_range=always
    )


def _read_expect(document: Document, workload: Workload) -> Expectation:
    if "expect" not in document.data:
        return Expectation()
    path: Path = ("expect",)
    section = read_model(ExpectSection, document, path)
    given = document.at(path)
    if isinstance(given, dict):
        _check_band(document, (*path, "estimate_ratio"))
        applications = given.get("applications")
        known = workload.applications
        for name in applications if isinstance(applications, dict) else ():
            here = (*path, "applications", name)
            _check_band(document, (*here, "estimate_ratio"))
            if known is not None and name not in known:
                hint = did_you_mean(name, known)
                document.report(here, f"no job has the application {name!r}{hint}", at_key=True)
    if section is None:
        return Expectation()
    return Expectation(
        estimate_ratio=_band(section.estimate_ratio),
        applications={
            name: ApplicationExpectation(_band(each.estimate_ratio), each.scaled_down_below)
            for name, each in (section.applications or {}).items()
        },
        fidelity=section.fidelity,
    )


def _check_band(document: Document, path: Path) -> None:
    if path not in document.places or document.is_poisoned(path):
        return
    known = partial(BandSection, document, path)
    low, high = known.get("min"), known.get("max")
    if low is not None and high is not None and low > high:
        document.report((*path, "min"), f"min {low:g} is above max {high:g}")
    if known and low is None and high is None and document.at(path) == {}:
        document.report(path, "needs a min, a max, or both")


def _band(section: BandSection | None) -> Band | None:
    return None if section is None else Band(section.min, section.max)
