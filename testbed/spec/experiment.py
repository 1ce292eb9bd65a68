"""An experiment file as values, for all other parts of the testbed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from jobs.interference import Interference
from jobs.request import Enforcement, JobRequest
from testbed.expectations import Expectation
from testbed.failures import Failure
from testbed.plugins import PluginUse
from testbed.spec.controller_choice import ControllerChoice
from topologies.datacentre import DataCentre

if TYPE_CHECKING:
    from testbed.schedulers.policy import PolicyKind

Scalar: TypeAlias = bool | int | float | str


@dataclass(frozen=True)
class Scale:
    """Factors by which the live network is smaller than the experiment.

    ``rate`` multiplies every capacity and bandwidth (0.1: 1 Gbit/s becomes 100
    Mbit/s on the wire). ``time`` divides every time (60: an hour of the
    experiment takes a minute). ``cpu`` of one of this machine's processors
    stand for each of the data centre's. Jobs that end within ``instant_s`` (of
    the experiment's time) of each other have ended together. ``auto``: the live
    run finds ``rate``; until it has, that is 1. ``largest``: it takes the
    largest that fits, not the first.
    """

    rate: float = 1.0
    time: float = 1.0
    cpu: float = 1.0
    instant_s: float = 0.0
    auto: bool = False
    largest: bool = False


@dataclass(frozen=True)
class PolicySpec:
    """A policy's name, and the parameters that the file gives it.

    ``plugin`` is the declaration of a policy that the file names by its class.
    """

    name: str
    parameters: tuple[tuple[str, Scalar], ...] = ()
    plugin: PolicyKind | None = field(default=None, repr=False)

    @property
    def kind(self) -> PolicyKind:
        """The policy's declaration; BadInput where no policy has this name."""
        from testbed.schedulers.registry import policy_kind

        return self.plugin or policy_kind(self.name)

    @property
    def resolved(self) -> dict[str, Any]:
        """The policy as an entry of the ``policies`` section."""
        entry: dict[str, Any] = {}
        if self.plugin is not None:
            entry["class"] = str(self.plugin.source)
        return {**entry, "name": self.name, **dict(self.parameters)}

    @property
    def label(self) -> str:
        """The policy's name with its parameters, for its folder and rows."""
        settings = [f"{key}={value}" for key, value in self.parameters]
        text = "-".join([self.name, *settings])
        return re.sub(r"[^A-Za-z0-9._=-]+", "-", text)


@dataclass(frozen=True)
class BandwidthSweep:
    """Parameters of a profile measurement: rising bandwidths, each run
    ``repetitions`` times.

    ``modelled``: the estimate is the application's model; a command has none.
    """

    application: str
    bandwidths_bps: tuple[int, ...]
    repetitions: int
    tolerance: float
    modelled: bool = True


@dataclass(frozen=True, eq=False)
class Experiment:
    """A checked experiment file. Jobs are in the file's order, sweeps expanded.

    - ``source_text``: the text of the file.
    - ``topology``: the resolved keys of that section; ``datacentre`` is built
      from them, and ``topology_notes`` are sentences on omissions and
      additions.
    - ``workload_facts``: the provenance of the jobs of a trace or a model, which
      are made when they are accessed; ``workload_notes``: the same in
      sentences.
    - ``sweep``: set where the jobs are the runs of a profile measurement.
    - ``interference``: the slowdown of two VMs on one simulated node.
    - ``controller``: a user's controller; None for the testbed's.
    - ``failures``: in order of time.
    - ``plugins``: the plug-ins that it uses, apart from policies.
    - ``files``: the files that it names, by their names in it.
    - ``has_sweep``: True with a ``sweep`` section, for ``testbed sweep``.
    """

    path: Path
    source_text: str
    name: str
    seed: int
    topology: Mapping[str, Any]
    datacentre: DataCentre
    scale: Scale
    embedder: str
    policies: tuple[PolicySpec, ...]
    workload: str
    jobs: Sequence[JobRequest]
    expect: Expectation
    enforcement: Enforcement = "strict"
    interference: Interference = Interference()  # noqa: RUF009 - frozen
    overrides: tuple[tuple[str, str], ...] = ()
    workload_facts: Mapping[str, Any] = field(default_factory=dict)
    workload_notes: tuple[str, ...] = ()
    topology_notes: tuple[str, ...] = ()
    sweep: BandwidthSweep | None = None
    controller: ControllerChoice | None = None
    failures: tuple[Failure, ...] = ()
    plugins: tuple[PluginUse, ...] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    has_sweep: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences to print before the experiment is used."""
        return (*self.topology_notes, *self.workload_notes)

    def plugins_of(self, policy: PolicySpec) -> tuple[PluginUse, ...]:
        """The plug-ins that a run of that policy uses, its own and its embedder
        first.
        """
        from testbed.embedding.base import embedder_source

        kind = policy.kind
        uses = []
        if kind.source is not None:
            uses.append(PluginUse("policies", kind.name, kind.source))
        if kind.embeds:
            # A policy's own embedder takes the place of the file's.
            name = str(
                dict(policy.parameters).get("embedder", self.embedder)
            )
            source = embedder_source(name)
            if source is not None:
                uses.append(PluginUse("embedders", name, source))
        return *uses, *self.plugins

    @property
    def resolved(self) -> dict[str, Any]:
        """Everything the run depends on, defaults and overrides included, for
        JSON.

        Jobs that a trace or a model determines are not repeated:
        ``workload_facts`` has the file's checksum and every parameter.
        """
        record = {
            "name": self.name,
            "seed": self.seed,
            "topology": dict(self.topology),
            "scale": asdict(self.scale),
            "interference": asdict(self.interference),
            "embedder": self.embedder,
            "enforcement": self.enforcement,
            "policies": [policy.resolved for policy in self.policies],
            "workload": self.workload,
            "workload_facts": dict(self.workload_facts),
        }
        if self.sweep is not None:
            record["ladder"] = asdict(self.sweep)
        if self.controller is not None:
            record["controller"] = self.controller.resolved
        if self.failures:
            record["failures"] = list(map(asdict, self.failures))
        jobs: list[Any] = []
        # A trace's jobs follow from its checksum and the parameters: a
        # million of them are not repeated.
        if not self.workload_facts:
            jobs = [job.to_json() for job in self.jobs]
        return {
            **record,
            "jobs": jobs,
            "expect": asdict(self.expect),
            "overrides": dict(self.overrides),
        }
