"""Experiments played into run folders: in the simulator, or from a live run's
backend trace.
"""

from __future__ import annotations

import time
from collections.abc import (
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from testbed import events
from testbed.audit import Audit, audit
from testbed.backends.sim.simulator import Meter, SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.backend import Backend
from testbed.engine.engine import Engine
from testbed.errors import BadInput, RunFailed, TestbedError
from testbed.events import Event
from testbed.play.backend_trace import (
    TRACE,
    ReplayBackend,
    TraceLine,
    read_trace,
)
from testbed.plugin_guard.policy_guard import (
    guarded,
    limited,
    of_the_testbed,
)
from testbed.plugins import SourceFile, raised_anywhere
from testbed.record import folder as names
from testbed.record.comparison import (
    Difference,
    decisions,
    first_difference,
)
from testbed.record.conclusion import Results, conclude, conclude_all
from testbed.record.event_file import paused_collection, read_events
from testbed.record.folder import DEFAULT_OUT, EVENTS, RunFolder, Sink
from testbed.record.metrics import Fidelity
from testbed.record.provenance import provenance
from testbed.record.reading import policy_folders, policy_of, read_recording
from testbed.record.running import noted, running_run
from testbed.record.topology_record import topology_record
from testbed.record.verdicts import Verdicts
from testbed.report.page import write_overview, write_report
from testbed.schedulers.policy import Policy
from testbed.spec.experiment import Experiment, PolicySpec
from testbed.units import number_of

TableFormat = Literal["csv", "parquet"]
"""Formats of a run's tables: CSV alone, or Parquet too."""
CSV: TableFormat = "csv"
SHOWN_COMPLAINTS = 10


def new_run(
    experiment: Experiment,
    out: Path | None,
    say: Callable[[str], None],
    tables: TableFormat = CSV,
    *,
    live: bool = False,
) -> RunFolder:
    """Creates a run folder under ``out``; prints its path and notes on the
    topology and the workload.

    A live run that is refused leaves no folder: it names it later.
    """
    top = RunFolder.create(
        out or DEFAULT_OUT, experiment.name, experiment.seed
    )
    if not live:
        say_folder(top, say)
    for note in experiment.notes:
        say(note)
    return replace(top, parquet=tables != CSV)


def say_folder(top: RunFolder, say: Callable[[str], None]) -> None:
    """Prints the path of a run folder that stays."""
    say(f"run folder: {top.path}")


@contextmanager
def failing_run(top: RunFolder) -> Generator[None, None, None]:
    """Turns a system error into RunFailed: once the run has begun, the input is
    not at fault.
    """
    try:
        yield
    # Whoever reads our output has closed it, which is no failure of the
    # run.
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RunFailed(
            f"the run stopped: {error}", f"see {top.path}"
        ) from error


def tee(*sinks: Sink) -> Sink:
    """One sink that hands every event to all of them, in order."""

    def to_all(event: events.Event) -> None:
        for sink in sinks:
            sink(event)

    return to_all


_INTERRUPTED = {
    "SIGHUP": "its terminal was closed (SIGHUP)",
    "SIGTERM": "it was asked to end (SIGTERM)",
}
"""Reasons by the signal that an interrupt names; Ctrl-C names none."""


def play(
    experiment: Experiment,
    policy: PolicySpec,
    backend: Backend,
    sink: Sink,
    around: Callable[[Policy], Policy] | None = None,
    refusal: Exception | None = None,
    after_step: Callable[[Engine], None] | None = None,
) -> None:
    """Runs one policy to its end. Whatever stops it, the stream ends in
    ``run_ended`` saying so.

    ``around`` puts an observer, such as a stopwatch, between engine and policy.
    ``refusal`` is raised in place of the first job. ``after_step`` looks at the
    engine after each step.
    """
    # Before the policy is made: what its constructor raises is to be in the
    # stream too.
    sink(
        events.RunStarted(
            t=0.0,
            run=experiment.name,
            policy=policy.label,
            backend=backend.name,
            seed=experiment.seed,
            topology=topology_record(experiment.datacentre),
        )
    )
    try:
        built = _built(experiment, policy)
    except Exception as error:
        sink(_failed(0.0, error))
        raise
    engine = Engine(
        experiment.datacentre,
        experiment.jobs,
        policy=built if around is None else around(built),
        backend=backend,
        sink=sink,
        after_step=after_step,
        failures=experiment.failures,
        on_failure=policy.kind.on_failure_of(dict(policy.parameters)),
    )
    try:
        # In here, so that a run that is refused has its first and last
        # event, as any other.
        if refusal is not None:
            raise refusal  # noqa: TRY301 - the stream is to end in it
        engine.run()
    except KeyboardInterrupt as interrupt:
        why = _INTERRUPTED.get(str(interrupt), "interrupted by the user")
        sink(events.RunEnded(engine.now_s, "interrupted", why))
        raise
    except Exception as error:
        sink(_failed(engine.now_s, error))
        raise


def _failed(now_s: float, error: Exception) -> events.RunEnded:
    """The end of a run by an error; by its kind where it says nothing."""
    why = str(error) or type(error).__name__
    return events.RunEnded(now_s, "failed", why)


def _built(experiment: Experiment, policy: PolicySpec) -> Policy:
    """The policy, guarded where it is not ours. Raises RunFailed where its
    constructor does.
    """
    parameters = dict(policy.parameters)
    # No parameter of the policy: in its entry it replaces the file's embedder.
    name = parameters.pop("embedder", None) if policy.kind.embeds else None
    chosen = limited(embedder(str(name or experiment.embedder)))
    try:
        built: Policy = policy.kind.make(chosen, parameters)
    except TestbedError:
        raise
    except (Exception, SystemExit) as error:
        # The testbed's own fault keeps its traceback; a plug-in's is named
        # with its line.
        if policy.kind.source is None:
            raise
        raise RunFailed(
            f"policy {policy.label}: it {raised_anywhere(error)}"
        ) from error
    if of_the_testbed(built) and policy.kind.source is None:
        return built
    return guarded(built, policy.label)


def dry_run(
    experiment: Experiment, policy: PolicySpec
) -> list[events.Event]:
    """The events of the same policy and jobs in the simulator (decision 01)."""
    history: list[events.Event] = []
    play(experiment, policy, simulated(experiment, policy), history.append)
    return history


def simulated(
    experiment: Experiment,
    policy: PolicySpec,
    meter: Meter | None = None,
) -> SimulatedBackend:
    """The experiment's simulated backend, where best-effort jobs compete by the
    policy's rule.

    ``meter`` hears what they send up the servers' links.
    """
    return SimulatedBackend(
        experiment.datacentre,
        sharing=policy.kind.sharing_of(dict(policy.parameters)),
        seed=experiment.seed,
        meter=meter,
        interference=experiment.interference,
    )


# -- the simulated run

Progress = Callable[[str, int], AbstractContextManager[Sink]]
"""Shows how far a policy is: its label, and how many jobs there are, to an
event sink.
"""


def run_simulated(
    experiment: Experiment,
    top: RunFolder,
    progress: Progress,
    command: list[str],
    recorded: list[RunRecord] | None = None,
) -> list[RunRecord]:
    """Every policy, one after another; with several, each has a folder of its
    own below ``top``.

    ``recorded`` is filled policy by policy: whatever stops the run, those are
    there.
    """
    recorded = [] if recorded is None else recorded
    labels = [policy.label for policy in experiment.policies]
    # Noted while this process lasts, by which others tell it from a run
    # that was killed.
    run = running_run(
        top.path, experiment.name, labels, len(experiment.jobs)
    )
    try:
        with noted(top, run):
            for policy in experiment.policies:
                _one_policy(
                    experiment,
                    policy,
                    folder=policy_folder(experiment, policy, top),
                    progress=progress,
                    command=command,
                    recorded=recorded,
                )
    finally:
        conclude_several(experiment, top, recorded)
    return recorded


def policy_folder(
    experiment: Experiment, policy: PolicySpec, top: RunFolder
) -> RunFolder:
    """The folder of a policy's run: ``top`` itself for the only one."""
    if len(experiment.policies) > 1:
        return top.policy(policy.label)
    return top


def conclude_several(
    experiment: Experiment,
    top: RunFolder,
    recorded: list[RunRecord],
) -> None:
    """The summary and the page above several policies, of those that there are."""
    if len(experiment.policies) > 1 and recorded:
        conclude_all(top, [record.results for record in recorded])
        pairs = [(record.results, record.audit) for record in recorded]
        write_overview(top, pairs)


def _one_policy(
    experiment: Experiment,
    policy: PolicySpec,
    *,
    folder: RunFolder,
    progress: Progress,
    command: list[str],
    recorded: list[RunRecord],
) -> None:
    began = time.monotonic()
    begin_folder(
        folder,
        experiment,
        policy,
        backend="sim",
        command=command,
        facts={},
    )
    took_s = None
    try:
        with (
            folder.open_events() as log,
            progress(policy.label, len(experiment.jobs)) as bar,
        ):
            backend = simulated(experiment, policy)
            play(experiment, policy, backend, tee(log, bar))
            # Closing the log and the bar is no part of playing.
            took_s = time.monotonic() - began
    finally:
        wall_s = took_s or time.monotonic() - began
        # What was simulated until then is written down, whatever stopped it.
        record = conclude_run(folder, experiment, policy, wall_s)
        recorded.append(record)


# -- the run folder, before and after the events


@dataclass(frozen=True)
class RunRecord:
    """One policy's run, written and checked."""

    folder: RunFolder
    policy: str
    results: Results
    audit: Audit

    @property
    def page_above(self) -> Path:
        """The page over all policies of its run, where there are several."""
        return self.folder.path.parent / names.REPORT

    def to_json(self) -> dict[str, Any]:
        """Output of ``--json``: the summary, and whether the audit passed."""
        return {
            **self.results.to_json(),
            "folder": str(self.folder.path),
            "audit_passed": self.audit.passed,
        }

    def sentences(self) -> list[str]:
        """Verdicts in words, and where the report is."""
        return [
            *_all_rejected(self.results),
            *_unfinished(self.results),
            *_complaints(self.results.verdicts),
            *_fidelity(self.results.summary.fidelity),
            *_failed_checks(self.audit),
            f"report: {self.folder.path / names.REPORT}",
        ]

    @property
    def good(self) -> bool:
        """All reservations held, all expectations met, and the audit passed."""
        return self.results.verdicts.met and self.audit.passed


def _all_rejected(results: Results) -> Iterator[str]:
    """A sentence with the first job's reason where no job was accepted."""
    jobs = results.summary.jobs
    if jobs and results.summary.rejected == jobs:
        first = results.rows[0]
        yield (
            f"rejected: {number_of(jobs, 'job')}, all there are;"
            f" {first.job_id}: {first.reason}"
        )


def _unfinished(results: Results) -> Iterator[str]:
    """A sentence with the first job's reason where jobs are left at the end of
    a complete run: their policy has forgotten them.
    """
    summary = results.summary
    if summary.status == "completed" and summary.unfinished:
        first = next(
            row for row in results.rows if row.outcome == "unfinished"
        )
        yield (
            f"unfinished: {number_of(summary.unfinished, 'job')} of"
            f" {summary.jobs:,}; {first.job_id}: {first.reason}"
        )


def _complaints(verdicts: Verdicts) -> Iterator[str]:
    """Sentences on results outside the file's expectations, or one on none."""
    complaints = verdicts.complaints
    outside = "outside what was expected"
    for text in complaints[:SHOWN_COMPLAINTS]:
        yield f"{outside}: {text}"
    more = len(complaints) - SHOWN_COMPLAINTS
    if more > 0:
        yield f"{outside}: {more:,} more; the report names all"
    if verdicts.met and verdicts.bad:
        bad = number_of(len(verdicts.bad), "job")
        yield f"late, early or killed, which the file accepts: {bad}"
    elif verdicts.met and verdicts.judged:
        yield "every job is within what was expected"


def _fidelity(fidelity: Fidelity) -> Iterator[str]:
    """The verdict on the emulation; a simulated run has none."""
    if fidelity.verdict is None:
        return
    sentence = f"fidelity: {fidelity.verdict}"
    if fidelity.reasons:
        sentence += f": {'; '.join(fidelity.reasons)}"
    yield sentence


def _failed_checks(checked: Audit) -> Iterator[str]:
    passed = True
    for result in checked.results:
        if result.status == "failed":
            passed = False
            yield f"audit: {result.name} FAILED: {result.says}"
    if passed:
        yield "audit: passed"


def begin_folder(
    folder: RunFolder,
    experiment: Experiment,
    policy: PolicySpec,
    *,
    backend: str,
    command: list[str],
    facts: Mapping[str, Any],
) -> None:
    """Writes the spec as given, the spec as resolved, the provenance, and
    plug-ins' files.
    """
    # All of it before the first event: of a run that is killed it is there,
    # too.
    folder.write_text(names.SPEC, experiment.source_text)
    folder.write_json(names.RESOLVED, resolved_record(experiment, policy))
    used = [plugin.to_json() for plugin in experiment.plugins_of(policy)]
    known = provenance(
        seeds={"seed": experiment.seed},
        command=command,
        backend=backend,
        extra=facts,
    )
    folder.write_json(names.PROVENANCE, {**known, "plugins": used})
    for file in _plugin_files(experiment):
        folder.write_bytes(f"{names.PLUGINS}/{file.name}", file.text)


def _plugin_files(experiment: Experiment) -> list[SourceFile]:
    """The Python files that the experiment's plug-ins are made of, for whoever
    repeats it.
    """
    files: dict[SourceFile, None] = {}
    for policy in experiment.policies:
        for use in experiment.plugins_of(policy):
            files |= dict.fromkeys(use.source.files)
    return list(files)


def resolved_record(
    experiment: Experiment, policy: PolicySpec
) -> dict[str, Any]:
    """The content of ``spec.resolved.json``: the experiment, whose run it is,
    and its claims.
    """
    claims = policy.kind.claims_of(dict(policy.parameters))
    return {
        **experiment.resolved,
        "policy": policy.label,
        "claims": list(claims),
    }


def conclude_run(
    folder: RunFolder,
    experiment: Experiment,
    policy: PolicySpec,
    wall_s: float,
) -> RunRecord:
    """Tables, summary, audit and report from the events on disk, however the
    run ended.
    """
    # One reading of the file is what all three see; of a few million values,
    # none of which is part of a cycle.
    with paused_collection():
        file = read_recording(folder.path)
        results = conclude(
            folder,
            experiment.expect,
            name=experiment.name,
            wall_s=wall_s,
            file=file,
        )
        checked = audit(folder.path, file)
        write_report(folder, checked, file)
    folder.hand_over()
    return RunRecord(folder, policy.label, results, checked)


# -- a live run decided again, without the network


@dataclass(frozen=True)
class Replay:
    """One policy's replay: its run, how many decisions it made, and the first
    that differs.
    """

    recorded: RunRecord
    n_decisions: int
    difference: Difference | None
    stopped: str | None

    @property
    def same(self) -> bool:
        return self.difference is None and self.stopped is None

    def sentence(self) -> str:
        """The verdict for a person."""
        if self.same:
            return f"all {self.n_decisions} decisions are the live run's"
        sentence = ""
        if self.difference is not None:
            sentence = (
                f"decision {self.difference.place} differs: "
                f"live {self.difference.first}; "
                f"replayed {self.difference.second}"
            )
        # An engine that decides differently soon asks for what the trace does
        # not hold: the difference is the cause, this its end.
        if self.stopped is not None:
            sentence += f" ({self.stopped})"
        return sentence

    def to_json(self) -> dict[str, Any]:
        return {
            **self.recorded.to_json(),
            "decisions": self.n_decisions,
            "same_decisions": self.same,
            "replay": self.sentence(),
        }


@dataclass(frozen=True)
class ReplaySource:
    """One policy of the experiment, with the events and the trace of its live
    run.
    """

    policy: PolicySpec
    path: Path
    events: list[Event]
    trace: list[TraceLine]


def replay_sources(
    experiment: Experiment, live: Path
) -> list[ReplaySource]:
    """The live run's folder of every policy, read. Raises BadInput; makes
    nothing.
    """
    # All are read before the first is played: a damaged folder is known at
    # once.
    folders = policy_folders(live)
    sources = []
    for policy in experiment.policies:
        # The only run of the only policy, under whatever label: the file may
        # name its policy anew.
        if len(folders) == len(experiment.policies) == 1:
            path = folders[0]
        else:
            path = _folder_of_policy(live, folders, policy)
        sources.append(_replay_source(policy, path))
    return sources


def _folder_of_policy(
    live: Path,
    folders: list[Path],
    policy: PolicySpec,
) -> Path:
    by_policy = {policy_of(path): path for path in folders}
    if policy.label in by_policy:
        return by_policy[policy.label]
    known = ", ".join(sorted(filter(None, by_policy))) or "nothing"
    raise BadInput(
        f"{live} holds no run of the policy {policy.label}, only of {known}",
        "replay the file that was run, or choose with --set policies=[…]",
    )


def _replay_source(policy: PolicySpec, path: Path) -> ReplaySource:
    trace = list(read_trace(path / TRACE))
    history = read_events(path / EVENTS).events
    if not history:
        raise BadInput(
            f"{path / EVENTS} is empty: that run was killed before it began"
        )
    return ReplaySource(policy, path, history, trace)


def run_replayed(
    experiment: Experiment,
    sources: Sequence[ReplaySource],
    top: RunFolder,
    command: list[str],
) -> list[Replay]:
    """Every policy against the live run of it, as :func:`replay_sources` found
    them.
    """
    replays = []
    for source in sources:
        folder = policy_folder(experiment, source.policy, top)
        replays.append(_replay(experiment, source, folder, command))
    return replays


def _replay(
    experiment: Experiment,
    source: ReplaySource,
    folder: RunFolder,
    command: list[str],
) -> Replay:
    began = time.monotonic()
    policy = source.policy
    backend = ReplayBackend(iter(source.trace))
    begin_folder(
        folder,
        experiment,
        policy,
        backend=backend.name,
        command=command,
        facts={"replay_of": str(source.path)},
    )
    replayed: list[Event] = []
    stopped = None
    try:
        with folder.open_events() as log:
            play(experiment, policy, backend, tee(log, replayed.append))
    # How a replay ends that decides differently: its events, as far as they
    # go, say where.
    except RunFailed as error:
        stopped = error.message
    wall_s = time.monotonic() - began
    recorded = conclude_run(folder, experiment, policy, wall_s)
    decided = decisions(replayed)
    return Replay(
        recorded,
        n_decisions=len(decided),
        difference=first_difference(decisions(source.events), decided),
        stopped=stopped,
    )
