"""``testbed.load``: an experiment, to be simulated, run and planned."""

from __future__ import annotations

import os
import sys
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from testbed.errors import BadInput, MachineCannot
from testbed.foreign_text import plain_text
from testbed.interface.finished_run import PolicyRun, Run
from testbed.plan.network_plan import check_prefix
from testbed.play.playing import (
    CSV,
    Progress,
    TableFormat,
    failing_run,
    new_run,
    run_simulated,
)
from testbed.record.folder import RunFolder, Sink
from testbed.spec.document import (
    Place,
    Problem,
    SpecErrors,
    read_text,
    unknown_name,
)
from testbed.spec.experiment import Experiment as CheckedExperiment
from testbed.spec.experiment_file import parse_experiment
from testbed.spec.given_values import path_argument, yaml_of, yaml_value
from topologies.datacentre import DataCentre

if TYPE_CHECKING:
    import pandas as pd

    from testbed.play.planned import Planned
    from testbed.play.playing import RunRecord

GIVEN = "experiment"
_GIVEN_PATH = Path(GIVEN)
"""Stands for no file; told by its identity, as a file may have that name."""
"""The name, in messages, of an experiment that is given as values."""


def load(
    file: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
    lenient: bool = False,
    **values: Any,
) -> Experiment:
    """The experiment of a file, or of a dictionary with a file's keys.

    ``overrides`` replaces values by dotted key, as ``{"scale.rate": 0.1}``;
    ``values`` those at the top, as ``policies=["vc", "bl"]``. Either reads a
    text as YAML, as ``--set`` does. ``lenient`` leaves out lines of a trace
    that cannot be read. Paths in a dictionary are relative to the working
    directory. Raises SpecErrors with everything that is wrong.
    """
    replaced = _overrides(overrides, seed, values, lenient=lenient)
    if isinstance(file, Mapping):
        # Values have no file: they are written as one, so that all checks
        # and the run folder are those of files.
        text, problems = yaml_of(file, GIVEN)
        return Experiment(_GIVEN_PATH, text, replaced, problems)
    path = path_argument(file, "load takes a path or a dictionary")
    return Experiment(path, read_text(path), replaced)


def _overrides(
    overrides: Mapping[str, Any] | None,
    seed: int | None,
    values: Mapping[str, Any],
    *,
    lenient: bool,
) -> dict[str, Any]:
    """The values that replace those of the file, by dotted key. Raises
    BadInput.
    """
    if not isinstance(overrides, Mapping | None):
        raise BadInput(
            f"overrides={overrides!r} is no mapping",
            'write {"scale.rate": 0.1}',
        )
    replaced = {**(overrides or {}), **values}
    for key in replaced:
        if not isinstance(key, str):
            raise BadInput(
                f"overrides have the key {key!r}, which is no text"
            )
    if seed is not None:
        replaced["seed"] = seed
    if lenient:
        replaced["workload.lenient"] = True
    return replaced


class Experiment:
    """A checked experiment. Made by :func:`load`; it does not change.

    ``name``, ``seed``, ``policies`` (their labels), ``datacentre`` and ``jobs``
    say what it is; ``simulate``, ``run`` and ``plan`` do what the commands of
    these names do.
    """

    def __init__(
        self,
        path: Path,
        text: str,
        overrides: Mapping[str, Any],
        problems: Iterable[Problem] = (),
    ) -> None:
        self._path = path
        self._text = text
        self._overrides = dict(overrides)
        # At once: an experiment that exists is a sound one.
        self._checked = _checked(
            path, text, self._overrides, tuple(problems)
        )

    @property
    def name(self) -> str:
        return self._checked.name

    @property
    def seed(self) -> int:
        return self._checked.seed

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies' labels: names, with the parameters that the file sets."""
        return tuple(policy.label for policy in self._checked.policies)

    @property
    def datacentre(self) -> DataCentre:
        """Nodes, links and capacities as read-only arrays."""
        return self._checked.datacentre

    @property
    def jobs(self) -> pd.DataFrame:
        """One row a job as it is submitted, with columns of a run's ``jobs``."""
        from testbed.record.columns import REQUESTS
        from testbed.record.frames import records_frame
        from testbed.record.metrics import request_record

        jobs = self._checked.jobs
        records = (request_record(job.to_json()) for job in jobs)
        return records_frame(records, REQUESTS)

    def __repr__(self) -> str:
        policies = ", ".join(self.policies)
        return f"<Experiment {self.name}: {policies}; seed {self.seed}>"

    def with_(
        self,
        overrides: Mapping[str, Any] | None = None,
        *,
        seed: int | None = None,
        **values: Any,
    ) -> Experiment:
        """The experiment with other values, given as to :func:`load`.

        Raises SpecErrors.
        """
        # Leniency, if it was asked for, is among the earlier overrides.
        replaced = _overrides(overrides, seed, values, lenient=False)
        merged = dict(self._overrides)
        for key, value in replaced.items():
            # Moved to the end: of two overrides the later wins.
            merged.pop(key, None)
            merged[key] = value
        return Experiment(self._path, self._text, merged)

    # -- what is done with it

    def simulate(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        progress: bool = False,
        format: TableFormat = CSV,  # noqa: A002 - as the option of the command
    ) -> Run:
        """Plays it as ``testbed simulate`` does, and returns the run.

        Its folder is made below ``out``, by default below ``runs`` in the
        working directory. ``progress`` shows a bar on standard error.
        ``format="parquet"`` writes the tables as Parquet too. A result outside
        its band raises nothing: ask :attr:`Run.good`. Raises BadInput,
        RunFailed.
        """
        top = self._new_run(out, format, progress=progress)
        shown: Progress = _bar if progress else _no_bar
        with failing_run(top):
            records = run_simulated(
                experiment=self._checked,
                top=top,
                progress=shown,
                command=self._command("simulate", out=out, format=format),
            )
        return _finished(top, records)

    def run(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        progress: bool = False,
        format: TableFormat = CSV,  # noqa: A002
        openflow_port: int = 6653,
        api_port: int = 8653,
        controller: Literal["ryu", "os-ken"] | None = None,
        prefix: str = "hn",
        builder: Literal["batched", "plain"] = "batched",
        force: bool = False,
    ) -> Run:
        """Plays it as ``sudo testbed run`` does, and returns the run.

        ``progress`` narrates on standard error; the other options are the
        command's. Raises BadInput, MachineCannot (also where this is not root),
        RunFailed.
        """
        check_prefix(prefix, "prefix")
        _require_known("builder", builder, ("batched", "plain"))
        if controller is not None:
            _require_known("controller", controller, ("ryu", "os-ken"))
        if os.geteuid() != 0:
            raise MachineCannot(
                "the live network needs root", "start Python by sudo"
            )
        from testbed.backends.emu.emulation import LiveOptions
        from testbed.play.live_run import LiveRun, run_live

        top = self._new_run(out, format, progress=progress, live=True)
        records = run_live(
            experiment=self._checked,
            top=top,
            options=LiveOptions(
                prefix=prefix,
                openflow_port=openflow_port,
                api_port=api_port,
                library=controller,
                force=force,
                builder=builder,
            ),
            show=LiveRun(
                _say(progress=progress), lambda *_: nullcontext(_heard)
            ),
            command=self._command(
                "run",
                out=out,
                format=format,
                openflow_port=openflow_port,
                api_port=api_port,
                controller=controller,
                prefix=prefix,
                builder=builder,
                force=force,
            ),
        )
        return _finished(top, records)

    def plan(self, policy: str | None = None) -> tuple[Planned, ...]:
        """The flows and tc text that each policy (or one) would install.

        ``print(plan)`` shows all of it. Raises BadInput.
        """
        from testbed.play.planned import planned

        chosen = [
            spec
            for spec in self._checked.policies
            if policy is None or policy == spec.label
        ]
        if not chosen:
            raise BadInput(
                unknown_name("policy", str(policy), self.policies)
            )
        return tuple(planned(self._checked, spec) for spec in chosen)

    def _new_run(
        self,
        out: str | os.PathLike[str] | None,
        tables: TableFormat,
        *,
        progress: bool,
        live: bool = False,
    ) -> RunFolder:
        _require_known("format", tables, ("csv", "parquet"))
        return new_run(
            self._checked,
            None if out is None else Path(out),
            _say(progress=progress),
            tables,
            live=live,
        )

    def _command(self, verb: str, **options: object) -> list[str]:
        """The command line of the same call, for the provenance; ``options`` are
        left out where they are the defaults.
        """
        file = str(self._path)
        if self._path is _GIVEN_PATH:
            # The run folder's own copy of what was given.
            file = "spec.yaml"
        arguments = repr(file)
        if self._overrides:
            arguments += f", {self._overrides!r}"
        stated = []
        for name, parameter in signature(
            getattr(self, verb)
        ).parameters.items():
            if options.get(name, parameter.default) != parameter.default:
                value = options[name]
                if isinstance(value, os.PathLike):
                    value = os.fspath(value)
                stated.append(f"{name}={value!r}")
        options_text = ", ".join(stated)
        script = f"import testbed; testbed.load({arguments}).{verb}({options_text})"
        return ["python", "-c", script]


def _require_known(what: str, value: object, known: Sequence[str]) -> None:
    """Raises BadInput for a value that is none of the known ones."""
    if value not in known:
        raise BadInput(unknown_name(what, str(value), known))


def _checked(
    path: Path,
    text: str,
    overrides: Mapping[str, Any],
    problems: tuple[Problem, ...],
) -> CheckedExperiment:
    """The experiment of a text and its overrides.

    Raises SpecErrors with all problems, those given among them, in the words of
    this interface.
    """
    all_problems = list(problems)
    replaced = {}
    for key, value in overrides.items():
        replaced[key], of_value = yaml_value(value, key)
        all_problems += of_value
    # A value that cannot be written as YAML has been reported: what the parser
    # says of the same key would be about its stand-in.
    reported = {problem.path for problem in all_problems}
    try:
        # Parsed whatever is wrong so far, so that all problems are reported
        # together.
        experiment = parse_experiment(text, path, replaced)
    except SpecErrors as errors:
        for problem in errors.problems:
            if problem.path not in reported:
                all_problems.append(_placed(problem, path))
    else:
        if not all_problems:
            return experiment
    raise SpecErrors(all_problems)


def _placed(problem: Problem, path: Path) -> Problem:
    """The problem at a place that a caller of this interface knows.

    Values have no lines, and there is no option ``--set``.
    """
    place = problem.place
    source = place.source
    if source.startswith("--set "):
        place = Place(source.removeprefix("--set "))
    elif path is _GIVEN_PATH:
        place = Place(source)
    return Problem(place, problem.path, problem.message)


def _finished(top: RunFolder, records: list[RunRecord]) -> Run:
    parts = [
        PolicyRun(record.folder.path, record.policy, record)
        for record in records
    ]
    return Run(top.path, parts)


# -- progress


def _say(*, progress: bool) -> Callable[[str], None]:
    if progress:
        return _narrate
    return lambda _: None


def _narrate(text: str) -> None:
    print(plain_text(text), file=sys.stderr)


def _heard(_: object) -> None:
    """A sink of events that shows nothing."""


def _no_bar(_label: str, _jobs: int) -> AbstractContextManager[Sink]:
    return nullcontext(_heard)


@contextmanager
def _bar(label: str, jobs: int) -> Generator[Sink, None, None]:
    """A bar that advances with every job that comes or leaves."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    from testbed.events import Event, JobEnded, JobSubmitted

    with Bars(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(plain_text(label), total=2 * jobs)

        def advance(event: Event) -> None:
            if isinstance(event, JobSubmitted | JobEnded):
                bars.update(task, advance=1)

        yield advance
