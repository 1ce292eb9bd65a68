"""Run configurations: an experiment file with values in place of its own, a
policy and a seed.

Every simulated figure's points are such runs, loaded and played as ``testbed
simulate --set`` does; live figures play the same configurations on the live
network.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cache, cached_property
from io import StringIO
from pathlib import Path
from typing import Any

import yaml

from jobs.request import JobRequest
from jobs.workload.traces import published
from reproductions.grid_quantities import Measures
from reproductions.occupancy import Occupancy
from testbed.compiled import LazyLoop
from testbed.errors import MachineCannot
from testbed.record.folder import Sink
from testbed.record.metrics import JobRow, Summary, Tally
from testbed.schedulers.actions import Action, Arrived, PolicyEvent
from testbed.schedulers.policy import Charging, Policy, View
from testbed.spec.document import find_file
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment

# The experiment files are installed with this package.
FOLDER = Path(__file__).parent

Settings = tuple[tuple[str, str], ...]


def settings(**values: object) -> Settings:
    """Values by key of the workload section, as in ``settings(load=0.5)``."""
    return tuple(
        (f"workload.{key}", str(value)) for key, value in values.items()
    )


@dataclass(frozen=True)
class Variant:
    """An experiment file of this package, one entry for its ``policies``, and
    values by dotted key.

    ``policy`` is read as an entry of the file's ``policies``: a name, or
    ``{name: dcloud, …}``.
    """

    file: str
    policy: str
    settings: Settings = ()

    @property
    def path(self) -> Path:
        return FOLDER / self.file

    def to_json(self) -> dict[str, Any]:
        """All that is played but the seed; ``content`` is the file without its
        comments.
        """
        return {
            "file": self.file,
            "content": _content_digest(self.path.read_bytes()),
            "policy": self.policy,
            "settings": dict(self.settings),
        }

    def experiment(self, seed: int | None = None) -> Experiment:
        """The experiment, by default under the file's own seed.

        Raises SpecErrors where file or settings are wrong.
        """
        # As ``--set`` does: settings replace values of the file by their
        # keys.
        values = {**dict(self.settings), "policies": f"[{self.policy}]"}
        if seed is not None:
            values["seed"] = str(seed)
        return load_experiment(self.path, values)

    def repetition(self, number: int) -> Experiment:
        """The experiment under the file's seed for the first repetition, then
        the ones after it.
        """
        first = self.experiment()
        if number == 1:
            return first
        return self.experiment(first.seed + number - 1)


@cache
def _content_digest(text: bytes) -> str:
    """The digest of an experiment file's content, whatever its comments and
    layout.
    """
    content = json.dumps(yaml.load(text, yaml.CSafeLoader), default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def require_trace(name: str) -> None:
    """Raises MachineCannot, naming its origin, where a published trace is not
    on this machine.
    """
    if find_file(name, FOLDER) is None:
        trace = published(name)
        origin = "a public archive"
        if trace is not None:
            origin = trace.origin
        raise MachineCannot(
            f"there is no {name} here, along TESTBED_DATA or in the cache",
            f"it is public: {origin}; testbed data check tells whether a copy is the right one",
        )


@dataclass(frozen=True)
class PlayedRun:
    """A finished simulated run with its common metrics.

    ``cpu_used_s`` are the CPU seconds that jobs kept nodes busy,
    ``decisions_s`` the processor seconds that the policy took for each arrival
    (empty unless asked for).
    """

    experiment: Experiment
    tally: Tally
    occupancy: Occupancy
    cpu_used_s: float
    decisions_s: tuple[float, ...] = ()

    @cached_property
    def rows(self) -> tuple[JobRow, ...]:
        return tuple(self.tally.rows())

    @cached_property
    def summary(self) -> Summary:
        return self.tally.summary()


class Stopwatch:
    """Processor seconds that a policy takes for each arrival."""

    def __init__(self) -> None:
        self.took_s: list[float] = []

    def around(self, policy: Policy) -> Policy:
        """The policy, observed."""
        # An observer hides what the policy has beside its decisions.
        if isinstance(policy, Charging):
            return _TimedCharging(policy, policy.price, self.took_s)
        return _Timed(policy, self.took_s)


class _Timed:
    """A policy whose decisions on arrivals are timed."""

    def __init__(self, policy: Policy, took_s: list[float]) -> None:
        self.name = policy.name
        self._policy = policy
        self._took_s = took_s

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        began_s = time.thread_time()
        actions = self._policy.decide(view, event)
        if isinstance(event, Arrived):
            self._took_s.append(time.thread_time() - began_s)
        return actions


class _TimedCharging(_Timed):
    """A timed policy that charges: the engine looks for its ``price``."""

    def __init__(
        self,
        policy: Policy,
        price: Callable[[JobRequest, float], float],
        took_s: list[float],
    ) -> None:
        super().__init__(policy, took_s)
        self.price = price


@dataclass(frozen=True)
class Extractor:
    """The measures that are taken from a run, and what they need beside its
    table of jobs: ``occupancy``, the use over time, and ``decisions``, the
    policy's computing time.
    """

    measures: Callable[[PlayedRun], Measures]
    occupancy: bool = False
    decisions: bool = False


@cache
def load_loops() -> None:
    """Loads the machine code of the inner loops, once a process.

    Otherwise the first allocation of a process takes as long as loading does,
    or, after a change of the loops, as compiling: seconds.
    """
    # Imported here: listing figures loads no inner loops.
    from testbed.play.precompile import precompile

    # To precompile changes how long later loops wait for machine code, and
    # prints its progress, which belongs to another command.
    patience = LazyLoop.patience
    with redirect_stderr(StringIO()):
        precompile()
    LazyLoop.patience = patience


def measured(experiment: Experiment, extractor: Extractor) -> Measures:
    """The measures of an experiment of one policy, played as ``testbed
    simulate`` does.
    """
    # Here, so that listing figures loads neither engine nor report.
    from testbed.play.playing import play, simulated, tee

    if extractor.decisions:
        load_loops()
    (policy,) = experiment.policies
    tally = Tally()
    occupancy = Occupancy()
    watch = Stopwatch()
    # Both take time at every event or arrival, and only some measures need
    # them.
    sink: Sink = tally
    record_sent = None
    around = None
    if extractor.occupancy:
        sink = tee(tally, occupancy)
        record_sent = occupancy.sent
    if extractor.decisions:
        around = watch.around
    backend = simulated(experiment, policy, record_sent)
    play(
        experiment=experiment,
        policy=policy,
        backend=backend,
        sink=sink,
        around=around,
    )
    run = PlayedRun(
        experiment=experiment,
        tally=tally,
        occupancy=occupancy,
        cpu_used_s=backend.cpu_s,
        decisions_s=tuple(watch.took_s),
    )
    return extractor.measures(run)


@dataclass(frozen=True)
class RunConfiguration:
    """A simulated run of a variant under a seed. ``trace`` is a published file
    that it needs.
    """

    variant: Variant
    seed: int
    extractor: Extractor
    weight: float = 1.0
    trace: str = ""

    def to_json(self) -> dict[str, Any]:
        # The function's name stands for what it measures.
        measures = self.extractor.measures
        return {
            **self.variant.to_json(),
            "seed": self.seed,
            "measures": f"{measures.__module__}.{measures.__qualname__}",
        }

    @property
    def traces(self) -> tuple[str, ...]:
        """The published files that it reads."""
        if not self.trace:
            return ()
        return (self.trace,)

    def cost(self) -> float:
        return self.weight

    def run(self) -> Measures:
        """Plays the run and takes its measures; ``cpu_s`` is the processor time
        of it all.
        """
        began_s = time.process_time()
        measures = measured(self.experiment(), self.extractor)
        return {**measures, "cpu_s": time.process_time() - began_s}

    def experiment(self) -> Experiment:
        """The experiment under this configuration's seed."""
        if self.trace:
            require_trace(self.trace)
        return self.variant.experiment(self.seed)


@dataclass(frozen=True)
class Together:
    """Several runs that one point shows, each under a prefix of its measures'
    names.
    """

    parts: tuple[tuple[str, RunConfiguration], ...]

    def to_json(self) -> dict[str, Any]:
        return {prefix: part.to_json() for prefix, part in self.parts}

    @property
    def traces(self) -> tuple[str, ...]:
        """The published files that its runs read, each once."""
        names: dict[str, None] = {}
        for _, part in self.parts:
            names.update(dict.fromkeys(part.traces))
        return tuple(names)

    def cost(self) -> float:
        return sum(part.cost() for _, part in self.parts)

    def run(self) -> Measures:
        """All measures as ``PREFIX_NAME``; the processor times are added up."""
        measures: dict[str, float] = {}
        cpu_s = 0.0
        for prefix, part in self.parts:
            of_part = part.run()
            cpu_s += of_part["cpu_s"]
            for name, value in of_part.items():
                measures[f"{prefix}_{name}"] = value
        return {**measures, "cpu_s": cpu_s}
