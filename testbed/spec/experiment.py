"""An experiment as values: what every other part of the testbed takes instead of a file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from jobs.interference import Interference
from jobs.request import JobRequest
from testbed.spec.expectation import Expectation
from testbed.spec.problems import Place
from testbed.spec.sourced import Ladder
from topologies.datacentre import DataCentre

Scalar: TypeAlias = bool | int | float | str


@dataclass(frozen=True)
class Scale:
    """How the live world is smaller than the experiment.

    ``rate`` multiplies every capacity and bandwidth (0.1: 1 Gbit/s becomes 100 Mbit/s on the
    wire). ``time`` divides every time (60: an hour of the experiment takes a minute). ``cpu`` of
    one of this machine's processors stand for each of the data centre's. Jobs that end within
    ``instant_s`` (of the experiment's time) of each other have ended together.
    """

    rate: float = 1.0
    time: float = 1.0
    cpu: float = 1.0
    instant_s: float = 0.0


@dataclass(frozen=True)
class PolicySpec:
    """A policy by name, with the parameters the file gives it, by name."""

    name: str
    parameters: tuple[tuple[str, Scalar], ...] = ()

    @property
    def label(self) -> str:
        """The name of the policy's folder and rows: with its parameters where it has any."""
        text = "-".join([self.name, *(f"{key}={value}" for key, value in self.parameters)])
        return re.sub(r"[^A-Za-z0-9._=-]+", "-", text)


@dataclass(frozen=True, eq=False)
class Experiment:
    """A checked experiment file. Jobs are in the file's order, sweeps expanded.

    ``topology`` are the resolved keys of that section, ``datacentre`` what they build.
    ``job_places`` say where each job stands in the file; ``source_text`` is the file as given.
    ``workload_facts`` are where the jobs of a trace or a model come from (``workload_notes``: in
    sentences); those jobs are made when they are looked at. ``ladder`` is what a profile is to be
    measured with, where the jobs are its runs. ``interference``: what two VMs on a simulated node
    do to each other.
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
    interference: Interference = Interference()  # noqa: RUF009 - frozen
    overrides: tuple[tuple[str, str], ...] = ()
    job_places: Mapping[str, Place] = field(default_factory=dict)
    workload_facts: Mapping[str, Any] = field(default_factory=dict)
    workload_notes: tuple[str, ...] = ()
    ladder: Ladder | None = None

    @property
    def resolved(self) -> dict[str, Any]:
        """Everything the run depends on, defaults and overrides included, for JSON.

        Jobs that a trace or a model determines are not repeated: ``workload_facts`` has the file's
        checksum and every parameter.
        """
        return {
            "name": self.name,
            "seed": self.seed,
            "topology": dict(self.topology),
            "scale": asdict(self.scale),
            "interference": asdict(self.interference),
            "embedder": self.embedder,
            "policies": [{"name": p.name, **dict(p.parameters)} for p in self.policies],
            "workload": self.workload,
            "workload_facts": dict(self.workload_facts),
            **({} if self.ladder is None else {"ladder": asdict(self.ladder)}),
            "jobs": [] if self.workload_facts else [job.to_json() for job in self.jobs],
            "expect": asdict(self.expect),
            "overrides": dict(self.overrides),
        }
