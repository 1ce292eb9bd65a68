"""Experiment files: the form of every section, then the checks of their
meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    WithJsonSchema,
    WrapValidator,
)

from jobs.interference import Interference
from jobs.request import Enforcement
from testbed.expectations import Expectation
from testbed.spec.bandwidth_sweep_section import SweepWorkload
from testbed.spec.controller_choice import ControllerChoice
from testbed.spec.controller_section import (
    ControllerSection,
    controller_choice,
)
from testbed.spec.document import (
    Document,
    Location,
    Path,
    Place,
    Problem,
    SpecErrors,
    did_you_mean,
    read_document,
    read_text,
)
from testbed.spec.experiment import Experiment, PolicySpec, Scale
from testbed.spec.failures_section import (
    FailureEntry,
    read_failures,
)
from testbed.spec.generated_sections import (
    BatchWorkload,
    PoissonWorkload,
    SyntheticLeases,
)
from testbed.spec.installed_workload import InstalledWorkload
from testbed.spec.job_entries import JobListWorkload
from testbed.spec.policy_section import (
    SWEEP_WORKLOAD,
    check_failures,
    check_policies,
    read_embedder,
    read_policies,
)
from testbed.spec.sweep_section import (
    SweepSection,
    as_yaml,
    check_sweep,
)
from testbed.spec.swim_section import SwimWorkload
from testbed.spec.topology_section import (
    LoadContext,
    Topology,
    with_topology,
)
from testbed.spec.trace_sections import LwfWorkload, SwfWorkload
from testbed.spec.unit_types import Duration, Name, Share, refused_value
from testbed.spec.validation import (
    INSTALLED,
    Section,
    kind_tag,
    read_section,
    value_in_words,
)
from testbed.spec.workload_models import (
    ExponentialWorkload,
    FeitelsonWorkload,
    JannWorkload,
)
from testbed.spec.workload_section import LoadedWorkload
from topologies.datacentre import dotted

MAX_SEED = 2**63 - 1
DEFAULT_SEED = 1
DEFAULT_EMBEDDER = "oktopus"

_EXPECTATION = TypeAdapter(Expectation)
Factor = Annotated[float, Field(gt=0, le=1_000_000)]
Ratio = Annotated[float, Field(ge=0)]


RateSearch = Literal["auto", "largest"]
RATE_SEARCHES: tuple[RateSearch, ...] = get_args(RateSearch)


def _rate_tag(value: object) -> str:
    """The tag of a rate: a number, or a search for one."""
    if value in RATE_SEARCHES:
        return "search"
    return "number"


def _number_or_search(
    value: object, read: Callable[[object], float | RateSearch]
) -> float | RateSearch:
    """The rate; a message about an unknown word names both forms."""
    is_word = isinstance(value, str) and value.isalpha()
    if is_word and value not in RATE_SEARCHES:
        raise refused_value(
            f"must be a number, auto or largest, not {value_in_words(value)}"
        )
    return read(value)


FactorOrSearch = Annotated[
    Annotated[Factor, Tag("number")] | Annotated[RateSearch, Tag("search")],
    Discriminator(_rate_tag),
    WrapValidator(_number_or_search),
]


class ScaleSection(Section):
    """Factors by which the live network is smaller than the experiment."""

    rate: FactorOrSearch = 1.0
    """0.1 makes 1 Gbit/s 100 Mbit/s on the wire; auto: a rate, 1 at
    most, that this machine can do beside other programs; largest: the
    largest that it can (default 1)
    """
    time: Factor = 1.0
    """60 makes an hour take a minute (default 1)"""
    cpu: Annotated[float, Field(gt=0, le=1)] = 1.0
    """0.05 makes a slot's processor a twentieth of one of the machine's
    (default 1)
    """
    instant: Duration | None = None
    """jobs that end within so much of the experiment's time have ended
    together: the policy hears of all of them before it decides (default
    0 s)
    """


class InterferenceSection(Section):
    """The slowdown of two VMs on one node of the simulator."""

    loss: Share | None = None
    """the most that a process loses in front of a background VM,
    uniformly from 0 (default 3.7 %)
    """
    efficiency: Share | None = None
    """how well every background process uses the CPU that it gets
    (default: as published, 80 % to 100 % of one process and 43 % on
    average of several)
    """


class BandSection(Section):
    """A closed interval; an end that is left out is open."""

    min: Ratio | None = None
    """the least value that is accepted"""
    max: Ratio | None = None
    """the greatest value that is accepted"""


class ApplicationSection(Section):
    """Expectations of one application's jobs."""

    estimate_ratio: BandSection | None = None
    """measured / estimated running time of each of its jobs"""
    scaled_down_below: Annotated[float, Field(gt=0)] | None = None
    """measured / estimated stays below this wherever a job got less
    bandwidth than it asked for
    """


class ExpectSection(Section):
    """Expectations of the results; the exit code is 1 where one is not met."""

    estimate_ratio: BandSection | None = None
    """measured / estimated running time of every job whose application
    has no band of its own
    """
    applications: dict[str, ApplicationSection] | None = None
    """expectations by the jobs' application"""
    fidelity: Literal["ok", "suspect", "invalid"] | None = None
    """the worst fidelity accepted; invalid: broken reservations too"""


def _workload_tag(value: Any) -> Any:
    """The kind of a workload; one tag for all those of installed packages."""
    return kind_tag(value, Workload, "workloads")


Workload = Annotated[
    Annotated[JobListWorkload, Tag("jobs")]
    | Annotated[SweepWorkload, Tag("ladder")]
    | Annotated[PoissonWorkload, Tag("poisson")]
    | Annotated[BatchWorkload, Tag("batch")]
    | Annotated[SwfWorkload, Tag("swf")]
    | Annotated[FeitelsonWorkload, Tag("feitelson")]
    | Annotated[JannWorkload, Tag("jann")]
    | Annotated[ExponentialWorkload, Tag("exponential")]
    | Annotated[SyntheticLeases, Tag("leases")]
    | Annotated[SwimWorkload, Tag("swim")]
    | Annotated[LwfWorkload, Tag("lwf")]
    | Annotated[InstalledWorkload, Tag(INSTALLED)],
    Discriminator(_workload_tag),
]


class ExperimentFile(Section):
    """An experiment: a data centre, a workload and its policies."""

    name: Name | None = None
    """the run folder's name (default: the file's)"""
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = Field(
        DEFAULT_SEED,
        description=f"of every random stream (default {DEFAULT_SEED})",
    )
    topology: Topology
    """the data centre, a mapping with a kind"""
    scale: ScaleSection | None = None
    """live only: rate, time, cpu, instant"""
    controller: ControllerSection | None = None
    """live only: a person's OpenFlow application in place of ours"""
    interference: InterferenceSection | None = None
    """simulator only: what two VMs on a node do to each other"""
    embedder: Annotated[Any, WithJsonSchema({})] = Field(
        DEFAULT_EMBEDDER,
        description="who places VMs, where the policy lets one choose"
        f" (default {DEFAULT_EMBEDDER})",
    )
    enforcement: Enforcement = "strict"
    """live only: strict, nobody sends above a reservation;
    work-conserving, unused bandwidth is lent; none, nothing is reserved
    on links (default strict)
    """
    policies: Annotated[Any, WithJsonSchema({"type": "array"})] = None
    """who decides; each gets a run of its own (default [vc], for leases
    [mbfcbs], for kind ladder [scripted])
    """
    workload: Workload
    """the jobs, a mapping with a kind"""
    failures: list[FailureEntry] | None = None
    """links, servers, switches and the controller that fail at given
    times
    """
    expect: ExpectSection | None = None
    """what the results must show for exit code 0"""
    sweep: SweepSection | None = None
    """values that keys of this file take in turn, for testbed sweep"""


def load_experiment(
    path: FilePath | str, overrides: Mapping[str, object] | None = None
) -> Experiment:
    """The experiment in a file. Raises :class:`SpecErrors` with all problems.

    ``overrides`` replaces values by dotted key, as ``{"scale.rate": "0.05",
    "seed": 8}``; a text is read as YAML. Reads the file and the files that it
    names, and has no other effects.
    """
    path = FilePath(path)
    return parse_experiment(read_text(path), path, overrides)


def parse_experiment(
    text: str,
    path: FilePath,
    overrides: Mapping[str, object] | None = None,
    files: Mapping[str, FilePath] | None = None,
) -> Experiment:
    """The experiment in a text, as :func:`load_experiment`; messages call it
    ``path``.

    ``files``: paths of files by their names in the text; these are not searched
    for.
    """
    document = read_document(text, str(path))
    document.supplied = files or {}
    # As text, as on the command line: both are read by the same rules.
    texts = {}
    for key, value in (overrides or {}).items():
        texts[key] = value if isinstance(value, str) else as_yaml(value)
        _override(document, key, texts[key])
    return _checked(document, text, path, texts)


def _checked(
    document: Document,
    text: str,
    path: FilePath,
    overrides: Mapping[str, str],
) -> Experiment:
    """The experiment of a document. Raises SpecErrors with all problems of form
    and of meaning.
    """
    location = Location(document)
    file = _form(location)
    # With defaults for unreadable keys the meaning of the others is checked.
    known = file.with_defaults()
    embedder = _embedder(file, location / "embedder")
    # In order of dependence: the workload is checked against the data centre,
    # policies against the workload's kind.
    context = with_topology(
        LoadContext(known.seed, embedder),
        file["topology"],
        location / "topology",
    )
    kind = _workload_kind(file)
    workload = _loaded_workload(file, location / "workload", context)
    interference = _interference(
        file.interference, location / "interference"
    )
    controller = controller_choice(file.controller, location / "controller")
    policies = read_policies(location / "policies", kind)
    _check_enforcement(known.enforcement, kind, location)
    _check_expect(file.expect, location / "expect", workload)
    check_sweep(file.sweep, location / "sweep")
    failures = read_failures(
        file["failures"] or (), location / "failures", context.datacentre
    )
    if failures:
        _check_players_of_failures(location, policies, controller)
    # The sizes that a policy builds depend on all jobs.
    if not document.problems and context.datacentre is not None:
        check_policies(
            location, policies, context.datacentre, workload.jobs
        )
    if document.problems or context.datacentre is None:
        raise SpecErrors(document.problems)
    return Experiment(
        path=path,
        source_text=text,
        name=file.name or _default_name(path),
        seed=known.seed,
        topology=context.resolved,
        datacentre=context.datacentre,
        scale=_scale(file.scale),
        embedder=embedder,
        policies=policies,
        workload=kind,
        jobs=workload.jobs,
        expect=_expectation(file.expect).under(known.enforcement),
        enforcement=known.enforcement,
        interference=interference,
        overrides=tuple(overrides.items()),
        workload_facts=workload.facts,
        workload_notes=workload.notes,
        topology_notes=context.notes,
        sweep=workload.sweep,
        controller=controller,
        failures=failures,
        plugins=(*context.plugins, *workload.plugins),
        files=document.files,
        has_sweep=file.sweep is not None,
    )


def _form(location: Location) -> ExperimentFile:
    """The readable keys of the file. Raises SpecErrors where it is no mapping."""
    document = location.document
    file = None
    if isinstance(document.data, dict):
        file = read_section(ExperimentFile, location)
    elif not document.problems:
        shown = value_in_words(document.data)
        location.report(
            f"must be a mapping with topology and workload, not {shown}"
        )
    if file is None:
        raise SpecErrors(document.problems)
    return file


def _workload_kind(file: ExperimentFile) -> str:
    """The workload's kind; empty where it cannot be read."""
    if file["workload"] is None:
        return ""
    return file.workload.kind


def _loaded_workload(
    file: ExperimentFile, location: Location, context: LoadContext
) -> LoadedWorkload:
    """The jobs of the workload; none, and unknown applications, where its kind
    cannot be read.
    """
    if file["workload"] is None:
        return LoadedWorkload(applications=None)
    return file.workload.loaded(location, context)


def _check_enforcement(
    enforcement: Enforcement, kind: str, location: Location
) -> None:
    if kind == SWEEP_WORKLOAD and enforcement != "strict":
        location.report(
            "must be strict: a profile is measured at given bandwidths",
            "enforcement",
        )


def _embedder(file: ExperimentFile, location: Location) -> str:
    """The chosen embedder; the default where it cannot be read."""
    if "embedder" not in file.model_fields_set:
        return DEFAULT_EMBEDDER
    return read_embedder(location) or DEFAULT_EMBEDDER


def _check_players_of_failures(
    location: Location,
    policies: Sequence[PolicySpec],
    controller: ControllerChoice | None,
) -> None:
    """Reports policies, or a controller, that cannot play failures."""
    check_failures(location, policies)
    if controller is not None:
        location.report(
            "need the testbed's own controller, which moves tenants: leave it out",
            "failures",
        )


def _expectation(section: ExpectSection | None) -> Expectation:
    if section is None:
        return Expectation()
    stated = section.model_dump(exclude_none=True)
    return _EXPECTATION.validate_python(stated)


def _default_name(path: FilePath) -> str:
    """The file's name without its ending, made safe."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem)
    # Names begin with a letter or a digit.
    return name.lstrip("._-")[:64] or "experiment"


def _scale(section: ScaleSection | None) -> Scale:
    if section is None:
        return Scale()
    # During the search the rate is 1.
    searched = section.rate in RATE_SEARCHES
    return Scale(
        rate=1.0 if searched else float(section.rate),
        time=section.time,
        cpu=section.cpu,
        instant_s=section.instant or 0.0,
        auto=searched,
        largest=section.rate == "largest",
    )


def _interference(
    section: InterferenceSection | None, location: Location
) -> Interference:
    """The published values, unless the file overrides them."""
    interference = Interference()
    if section is None:
        return interference
    if section.loss is not None:
        interference = replace(interference, loss_max=section.loss)
    efficiency = section.efficiency
    if efficiency is None:
        return interference
    if not efficiency:
        location.report(
            "must be above 0: nothing would ever end", "efficiency"
        )
    # One value in place of the published distributions.
    always = (efficiency, efficiency)
    return replace(
        interference,
        eff_single=always,
        eff_mean=efficiency,
        eff_sigma=0.0,
        eff_range=always,
    )


def _check_expect(
    section: ExpectSection | None,
    location: Location,
    workload: LoadedWorkload,
) -> None:
    if section is None:
        return
    _check_band(section.estimate_ratio, location / "estimate_ratio")
    known = workload.applications
    for name, band in (section.applications or {}).items():
        where = location / "applications" / name
        _check_band(band.estimate_ratio, where / "estimate_ratio")
        if known is not None and name not in known:
            hint = did_you_mean(name, known)
            where.report(
                f"no job has the application {name!r}{hint}", at_key=True
            )


def _check_band(band: BandSection | None, location: Location) -> None:
    if band is None:
        return
    if (
        band.min is not None
        and band.max is not None
        and band.min > band.max
    ):
        location.report(
            f"min {band.min:g} is above max {band.max:g}", "min"
        )
    # By the value as written: in the section, an unreadable key is None too,
    # and has been reported.
    if location.value == {}:
        location.report("needs a min, a max, or both")


# ------------------------------------------------------------------ values of the command line


def _override(document: Document, key: str, text: str) -> None:
    """Replaces the value at a dotted ``key`` by YAML ``text`` (``--set
    scale.rate=0.05``).
    """
    source = Place(f"--set {key}={text}")
    path = key_path(key)
    holder = _holder(document, path, source)
    if holder is None:
        document.problems.append(
            Problem(source, key, "is not a place in this file")
        )
        return
    # From here on, places and readability are those of the new value.
    _forget(document, path)
    try:
        value = read_document(text, source.source)
    except SpecErrors as errors:
        value = Document(
            problems=list(errors.problems),
            places={(): source},
            unreadable={()},
        )
    holder[path[-1]] = value.data
    document.key_places[path] = source
    _take_places(document, path, value, source)


def _take_places(
    document: Document, path: Path, value: Document, source: Place
) -> None:
    """Adds the keys and problems of an option's value below ``path``."""
    # All get the place of the option: its text has none in the file.
    for below in value.places:
        document.places[path + below] = source
    for below in value.key_places:
        document.key_places[path + below] = source
    for below in value.unreadable:
        document.unreadable.add(path + below)
    for problem in value.problems:
        document.problems.append(
            Problem(source, dotted(path), problem.message)
        )


def key_path(key: str) -> Path:
    """``workload.jobs[0].vms`` or ``workload.jobs.0.vms``."""
    path: list[str | int] = []
    for part in re.findall(r"[^.\[\]]+", key):
        # Longer digits are no index of a list, and int() refuses thousands
        # of them.
        is_index = re.fullmatch("[0-9]{1,9}", part)
        path.append(int(part) if is_index else part)
    return tuple(path)


def _holder(document: Document, path: Path, source: Place) -> Any:
    """The mapping or list of the item that a path names; None where there can be
    none.

    Mappings that the file lacks on the way are made.
    """
    holder = document.data
    for depth, part in enumerate(path):
        if not _may_hold(holder, part):
            return None
        if depth == len(path) - 1:
            return holder
        # A key of a section that the file leaves out makes the section.
        if isinstance(holder, dict) and part not in holder:
            holder[part] = {}
            document.places[path[: depth + 1]] = source
            document.key_places[path[: depth + 1]] = source
        holder = holder[part]
    return None


def _may_hold(holder: Any, part: str | int) -> bool:
    """True of a mapping if ``part`` is a key, known or new; of a list if it is the
    number of an item.
    """
    if isinstance(part, str):
        return isinstance(holder, dict)
    return isinstance(holder, list) and part < len(holder)


def _forget(document: Document, path: Path) -> None:
    """Forgets where the values at a path and below it stood, and which of them
    were unreadable.
    """
    for table in (document.places, document.key_places):
        for known in list(table):
            if known[: len(path)] == path:
                del table[known]
    for known in list(document.unreadable):
        if known[: len(path)] == path:
            document.unreadable.discard(known)
