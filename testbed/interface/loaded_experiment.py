"""``testbed.load``: an experiment from a file or a dictionary, to be simulated, run and planned."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from testbed.errors import BadInput, MachineCannot
from testbed.interface.finished_run import Run
from testbed.plan.network_plan import check_prefix
from testbed.results.folder import RunFolder, Sink
from testbed.runs.playing import CSV, Progress, TableFormat, failing_run, new_run, run_simulated
from testbed.spec.document import Place, Problem, SpecErrors, read_text, unknown_name
from testbed.spec.experiment import Experiment as CheckedExperiment
from testbed.spec.experiment import PolicySpec
from testbed.spec.experiment_file import parse_experiment
from testbed.spec.given_values import yaml_of, yaml_value
from topologies.datacentre import DataCentre

if TYPE_CHECKING:
    import pandas as pd

    from testbed.backends.emu.emulation import LiveOptions
    from testbed.runs.planned import Planned
    from testbed.runs.playing import RunRecord

GIVEN = "experiment"
"""The name of an experiment that is given as values, in messages and where it has none."""


def load(
    file: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
    lenient: bool = False,
    **values: Any,
) -> Experiment:
    """The experiment of a file, or of a dictionary with a file's keys and values.

    ``overrides`` replaces values by dotted key, as ``{"scale.rate": 0.1}``; ``values`` those at
    the top, as ``policies=["vc", "bl"]``. A text is read as YAML there, as after ``--set``.
    ``lenient`` leaves out lines of a trace that cannot be read. Files that a dictionary names are
    looked for from the working directory. Raises SpecErrors with everything that is wrong.
    """
    given = _overrides(overrides, seed, lenient, values)
    if isinstance(file, Mapping):
        text, problems = yaml_of(file, GIVEN)
        return Experiment(Path(GIVEN), text, given, problems)
    if not isinstance(file, str | os.PathLike):
        raise BadInput(f"load takes a path or a dictionary, not {type(file).__name__}")
    path = Path(file)
    return Experiment(path, read_text(path), given)


def _overrides(
    overrides: Mapping[str, Any] | None, seed: int | None, lenient: bool, values: Mapping[str, Any]
) -> dict[str, Any]:
    """All that is given beside the file, by dotted key; later ones win."""
    found = {**(overrides or {}), **values}
    found |= {} if seed is None else {"seed": seed}
    return found | ({"workload.lenient": True} if lenient else {})


class Experiment:
    """A checked experiment. Made by :func:`load`; it does not change.

    ``name``, ``seed``, ``policies`` (their labels), ``datacentre`` and ``jobs`` say what it is;
    ``simulate``, ``run`` and ``plan`` do what the commands of these names do.
    """

    def __init__(
        self,
        path: Path,
        text: str,
        overrides: Mapping[str, Any],
        problems: Iterable[Problem] = (),
    ) -> None:
        self._path, self._text, self._overrides = path, text, dict(overrides)
        self._problems = tuple(problems)
        self._checked = _checked(path, text, self._overrides, self._problems)

    @property
    def name(self) -> str:
        return self._checked.name

    @property
    def seed(self) -> int:
        return self._checked.seed

    @property
    def policies(self) -> tuple[str, ...]:
        """Their labels: names, with the parameters that are given."""
        return tuple(policy.label for policy in self._checked.policies)

    @property
    def datacentre(self) -> DataCentre:
        """Nodes, links and capacities as read-only arrays."""
        return self._checked.datacentre

    @property
    def jobs(self) -> pd.DataFrame:
        """One row a job as it is submitted: those columns of a run's ``jobs``."""
        from testbed.results.columns import REQUESTS
        from testbed.results.frames import records_frame
        from testbed.results.metrics import request_record

        return records_frame((request_record(j.to_json()) for j in self._checked.jobs), REQUESTS)

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
        """The experiment with other values, given as to :func:`load`. Raises SpecErrors."""
        given = _overrides(overrides, seed, False, values)  # noqa: FBT003 - lenient stays as it is
        kept = {key: value for key, value in self._overrides.items() if key not in given}
        return Experiment(self._path, self._text, kept | given)

    # -- what is done with it

    def simulate(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        progress: bool = False,
        format: TableFormat = CSV,  # noqa: A002 - as the option of the command
    ) -> Run:
        """Plays it in the simulator, as ``testbed simulate`` does, and returns the run.

        Its folder is made below ``out``, by default below ``runs`` in the working directory.
        ``progress`` shows a bar on standard error. ``format="parquet"`` writes the tables as
        Parquet too. A result outside its band raises nothing: ask :attr:`Run.good`.
        Raises BadInput, RunFailed.
        """
        top = self._new_run(out, format, progress=progress)
        shown: Progress = _bar if progress else _no_bar
        with failing_run(top):
            recorded = run_simulated(self._checked, top, shown, self._command("simulate"))
        return _finished(top, recorded)

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
        """Plays it on the live network, as ``sudo testbed run`` does, and returns the run.

        ``progress`` narrates on standard error; the other options are the command's. Raises
        BadInput, MachineCannot (also where this is not root), RunFailed.
        """
        check_prefix(prefix, "prefix")
        if os.geteuid() != 0:
            raise MachineCannot("the live network needs root", "start Python by sudo")
        from testbed.backends.emu.emulation import LiveOptions

        live = LiveOptions(prefix, openflow_port, api_port, controller, force, builder)
        return self._live(out, format, live, progress=progress)

    def _live(
        self,
        out: str | os.PathLike[str] | None,
        tables: TableFormat,
        live: LiveOptions,
        *,
        progress: bool,
    ) -> Run:
        from testbed.runs.live_run import LiveRun, run_live

        top = self._new_run(out, tables, progress=progress)
        shown = LiveRun(_say(progress=progress), lambda *_: nullcontext(_heard))
        return _finished(top, run_live(self._checked, top, live, shown, self._command("run")))

    def plan(self, policy: str | None = None) -> tuple[Planned, ...]:
        """The flows and tc text that each policy (or one) would install, as ``testbed plan``.

        ``print(plan)`` shows all of it. Raises BadInput.
        """
        from testbed.runs.planned import planned

        return tuple(planned(self._checked, one) for one in self._chosen(policy))

    def _chosen(self, label: str | None) -> list[PolicySpec]:
        found = [one for one in self._checked.policies if label in (None, one.label)]
        if not found:
            raise BadInput(unknown_name("policy", str(label), self.policies))
        return found

    def _new_run(
        self, out: str | os.PathLike[str] | None, tables: TableFormat, *, progress: bool
    ) -> RunFolder:
        if tables not in ("csv", "parquet"):
            raise BadInput(unknown_name("format", str(tables), ("csv", "parquet")))
        where = None if out is None else Path(out)
        return new_run(self._checked, where, _say(progress=progress), tables)

    def _command(self, verb: str) -> list[str]:
        """The command that does the same, for the provenance."""
        file = "spec.yaml" if self._path == Path(GIVEN) else str(self._path)
        given = f", {self._overrides!r}" if self._overrides else ""
        return ["python", "-c", f"import testbed; testbed.load({file!r}{given}).{verb}()"]


def _checked(
    path: Path, text: str, overrides: Mapping[str, Any], problems: tuple[Problem, ...]
) -> CheckedExperiment:
    """The experiment; raises SpecErrors, with ``problems``, in the words of this interface."""
    found, given = list(problems), {}
    for key, value in overrides.items():
        given[key], own = yaml_value(value, key)
        found += own
    try:
        experiment = parse_experiment(text, path, given)
    except SpecErrors as errors:
        reported = {problem.path for problem in found}
        found += [_placed(p, path) for p in errors.problems if p.path not in reported]
    else:
        if not found:
            return experiment
    raise SpecErrors(found)


def _placed(problem: Problem, path: Path) -> Problem:
    """The problem where its reader knows a place: values have no lines, and no option ``--set``."""
    source = problem.place.source
    if source.startswith("--set "):
        place = Place(source.removeprefix("--set "))
    elif path == Path(GIVEN):
        place = Place(source)
    else:
        place = problem.place
    return Problem(place, problem.path, problem.message)


def _finished(top: RunFolder, recorded: list[RunRecord]) -> Run:
    return Run(top.path, [(one.folder.path, one.policy, one) for one in recorded])


# -- what is shown meanwhile


def _say(*, progress: bool) -> Callable[[str], None]:
    return (lambda text: print(text, file=sys.stderr)) if progress else lambda _: None


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
        task = bars.add_task(label, total=2 * jobs)

        def advance(event: Event) -> None:
            if isinstance(event, JobSubmitted | JobEnded):
                bars.update(task, advance=1)

        yield advance
