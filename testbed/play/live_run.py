"""The live run: dry run, preflight, network up, jobs, judgement, network down,
results.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    suppress,
)
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import IO

from jobs.live.agent_pool import AgentPoolError
from testbed import events
from testbed.backends.emu.capture_places import (
    LINKS_NOTE,
    VMS_NOTE,
    link_places,
    note,
    vm_places,
)
from testbed.backends.emu.cleanup_journal import state_dir
from testbed.backends.emu.emulation import Emulation, LiveOptions, emulate
from testbed.backends.emu.interrupts import (
    terminated_as_interrupt,
    uninterrupted,
)
from testbed.backends.emu.live_backend import LiveBackend
from testbed.backends.emu.machine_checks import require_launchers
from testbed.backends.emu.preflight import (
    Peak,
    Preflight,
    load_test,
    passed_load_test,
)
from testbed.errors import BadInput, MachineCannot, RunFailed
from testbed.owned_files import FILE_MODE, new_file, remove_lone_folder
from testbed.plan.direct_evidence import weighed
from testbed.plan.fidelity import Finding
from testbed.plan.network_plan import TenantPlan, check_reachable
from testbed.plan.peak_load import (
    computing_processors,
    namespaces_per_server,
    peak,
    rings,
)
from testbed.play.backend_trace import TRACE, TracingBackend, writer
from testbed.play.playing import (
    RunRecord,
    begin_folder,
    conclude_run,
    conclude_several,
    dry_run,
    failing_run,
    play,
    policy_folder,
    say_folder,
    tee,
)
from testbed.record import folder as names
from testbed.record.event_file import EventLog
from testbed.record.folder import DiskReserve, RunFolder, Sink
from testbed.record.running import noted, noted_among_others, running_run
from testbed.spec.experiment import Experiment, PolicySpec

Narrate = Callable[[str], None]
Progress = Callable[
    [dict[str, float], float, str], AbstractContextManager[Sink]
]


@dataclass(frozen=True)
class LiveRun:
    """Output while it runs: sentences, and a progress bar around each policy.

    ``recorded`` is filled policy by policy: whatever stops the run, those are
    there.
    """

    narrate: Narrate
    progress: Progress
    recorded: list[RunRecord] = field(default_factory=list)


def run_live(
    experiment: Experiment,
    top: RunFolder,
    options: LiveOptions,
    show: LiveRun,
    command: list[str],
) -> list[RunRecord]:
    """Every policy of the experiment on the live network, one after another.

    Raises BadInput and MachineCannot before anything is made; then the folder is
    gone too, but for the log of an own application that does not start. Raises
    MachineCannot after the preflight and RunFailed when the run stopped: the
    folder is complete then.
    """
    run = _Run(
        top,
        replace(options, controller=experiment.controller),
        show,
        command,
    )
    try:
        with failing_run(top):
            _run_and_conclude(run, experiment)
    except AgentPoolError as error:
        raise RunFailed(str(error), f"see {top.path}") from error
    return show.recorded


@dataclass(frozen=True)
class _Run:
    """The part of a live run that its policies share, beside the experiment."""

    top: RunFolder
    options: LiveOptions
    show: LiveRun
    command: list[str]


@dataclass(frozen=True)
class _DryRuns:
    """The events of each policy's dry run, and the busiest instant of each."""

    histories: list[list[events.Event]]
    peaks: list[Peak]

    @property
    def n_agents(self) -> int:
        """The most VMs that run at once: each has an agent."""
        return max(map(_n_vms, self.peaks))


def _n_vms(busiest: Peak) -> int:
    return sum(n for job in busiest for _, n in job.vms_on)


def _run_and_conclude(run: _Run, experiment: Experiment) -> None:
    """Plays all policies, and writes the summary of those that there are."""
    top = run.top
    recorded = run.show.recorded
    try:
        _run_policies(run, experiment)
    except BaseException as error:
        # What stopped the run is what the caller must hear.
        with uninterrupted(), suppress(OSError):
            conclude_several(experiment, top, recorded)
            # A run that is refused before anything is written leaves no
            # folder. Logs go with the machine's refusals alone: an application
            # that does not start says why in its log.
            if isinstance(error, MachineCannot) and not recorded:
                remove_lone_folder(top.path, names.LOGS)
            # A folder with anything in it stays, by an OSError.
            top.path.rmdir()
        raise
    # The run is over: Ctrl-C now would leave its summary half written.
    with uninterrupted():
        conclude_several(experiment, top, recorded)


def _run_policies(run: _Run, experiment: Experiment) -> None:
    """Plays policy by policy: whatever stops the run, those before are recorded."""
    check_reachable(experiment.datacentre, experiment.jobs)
    require_launchers(job.demand for job in experiment.jobs)
    dry_runs = _dry_runs(experiment)
    # From here on there is something to be taken down, whichever signal
    # asks for the end.
    with terminated_as_interrupt(), ExitStack() as stack:
        emulation = stack.enter_context(_network(run, experiment, dry_runs))
        # Not before: a run whose network does not come up leaves no folder.
        say_folder(run.top, run.show.narrate)
        for line in _computing(dry_runs.histories, experiment):
            run.show.narrate(line)
        tested = _tested(run, experiment, dry_runs, emulation)
        fits = tested.refusal is None
        if fits and tested.rate != experiment.scale.rate:
            # Limits of links and VMs are written for one rate: it is built anew.
            stack.close()
            scale = replace(experiment.scale, rate=tested.rate)
            experiment = replace(experiment, scale=scale)
            emulation = stack.enter_context(
                _network(run, experiment, dry_runs)
            )
        for policy, history, finding in zip(
            experiment.policies,
            dry_runs.histories,
            tested.findings,
            strict=True,
        ):
            # A refused run has one folder that says so, of the policy whose
            # busiest instant is the machine's heaviest.
            if not fits and finding is not tested.worst:
                continue
            # A policy before may have let jobs without a reservation
            # borrow; this one is to find the network as it was built.
            emulation.network.forbid_borrowing()
            policy_run = _PolicyRun(
                run,
                experiment,
                policy,
                emulation=emulation,
                finding=finding,
                refusal=tested.refusal,
            )
            policy_run.play_and_conclude(_ends_s(history))
        run.show.narrate("taking the network down")


def _dry_runs(experiment: Experiment) -> _DryRuns:
    histories = []
    peaks: list[Peak] = []
    for policy in experiment.policies:
        history = dry_run(experiment, policy)
        histories.append(history)
        peaks.append(peak(history, experiment.datacentre))
    return _DryRuns(histories, peaks)


def _tested(
    run: _Run,
    experiment: Experiment,
    dry_runs: _DryRuns,
    emulation: Emulation,
) -> Preflight:
    test = partial(
        load_test, emulation, experiment.seed, rings(dry_runs.histories)
    )
    # A file that expects an invalid run is played in any case: a second test
    # would change nothing.
    expected = experiment.expect.fidelity == "invalid"
    return passed_load_test(
        test,
        dry_runs.peaks,
        experiment.scale,
        run.show.narrate,
        force=run.options.force or expected,
        repeat=run.options.force or not expected,
    )


@contextmanager
def _network(
    run: _Run,
    experiment: Experiment,
    dry_runs: _DryRuns,
) -> Iterator[Emulation]:
    """The live network, noted as a run while it stands."""
    slots = list(map(int, experiment.datacentre.slots))
    with (
        emulate(
            experiment.datacentre,
            experiment.scale,
            run.options,
            log_dir=run.top.path / names.LOGS,
            name=experiment.name,
            narrate=run.show.narrate,
            # Of all policies' dry runs: one network stands for all of them.
            namespaces_per_server=namespaces_per_server(
                dry_runs.histories, slots
            ),
            n_agents=dry_runs.n_agents,
        ) as emulation,
        _announced(run.top, experiment, dry_runs.histories, emulation),
    ):
        emulation.network.forbid_borrowing()
        yield emulation


def _computing(
    histories: list[list[events.Event]], experiment: Experiment
) -> Iterator[str]:
    """A sentence on the processors that jobs compute on, where they do."""
    slots = experiment.datacentre.total_slots
    most = max(
        computing_processors(history, slots, experiment.scale.cpu)
        for history in histories
    )
    share = most / len(os.sched_getaffinity(0))
    if share > 0.0:
        yield f"the jobs' own computing takes up to {share:.0%} of the processors"


@contextmanager
def _announced(
    top: RunFolder,
    experiment: Experiment,
    histories: list[list[events.Event]],
    emulation: Emulation,
) -> Iterator[None]:
    """Notes the run, in its folder and where other commands look for it."""
    labels = [policy.label for policy in experiment.policies]
    # By the dry runs, which are all that is known of how long it will take.
    ends_s = [history[-1].t for history in histories]
    run = running_run(
        top.path,
        name=experiment.name,
        policies=labels,
        jobs=len(experiment.jobs),
        ends_s=ends_s,
    )
    with noted(top, run), ExitStack() as stack:
        # Other commands' finds, no part of the run: it does without, as
        # on a machine whose /run is read-only.
        with suppress(MachineCannot):
            stack.enter_context(_noted_places(emulation))
            stack.enter_context(noted_among_others(state_dir(), run))
        yield


@contextmanager
def _noted_places(emulation: Emulation) -> Iterator[None]:
    """Notes where the links and the jobs' VMs are, for ``testbed capture``."""
    folder = RunFolder(state_dir())
    switches = emulation.network.switch_of_bridge
    namespaces = {name: switch.netns for name, switch in switches.items()}
    nodes = emulation.datacentre.names
    links = link_places(emulation.plan, nodes, namespaces)

    def note_vms(tenants: Iterable[TenantPlan]) -> None:
        # Not synced: a job's start would wait for the disk, and after a
        # crash there are no VMs to be captured.
        with suppress(OSError):
            folder.write_bytes(
                VMS_NOTE, note(vm_places(tenants)), sync=False
            )

    try:
        with suppress(OSError):
            folder.write_bytes(LINKS_NOTE, note(links), sync=False)
        # Those of a run that was killed may still be there.
        note_vms(())
        emulation.on_tenants = note_vms
        yield
    finally:
        emulation.on_tenants = None
        for name in (LINKS_NOTE, VMS_NOTE):
            with suppress(OSError):
                (folder.path / name).unlink()


def _ends_s(history: list[events.Event]) -> dict[str, float]:
    """Times at which the dry run's jobs end, for the progress bar."""
    return {
        event.job_id: event.t
        for event in history
        if isinstance(event, events.JobEnded)
    }


@dataclass(frozen=True)
class _PolicyRun:
    """One policy on the live network, into a folder of its own.

    ``finding``: the preflight's. ``refusal``: raised in place of the first job.
    """

    run: _Run
    experiment: Experiment
    policy: PolicySpec
    emulation: Emulation
    finding: Finding
    refusal: MachineCannot | None

    @cached_property
    def folder(self) -> RunFolder:
        return policy_folder(self.experiment, self.policy, self.run.top)

    def play_and_conclude(self, ends_s: dict[str, float]) -> None:
        """Raises RunFailed, OSError, the refusal; what there is of the run is
        recorded anyway.
        """
        began = time.monotonic()
        try:
            self._play(ends_s)
        except BaseException:
            # What stopped the run is what the caller must hear, whatever the
            # folder still allows.
            with uninterrupted(), suppress(BadInput, OSError):
                self._conclude(began)
            raise
        # Whoever asks the run to end now is heard when it is written down.
        with uninterrupted():
            self._conclude(began)

    def _conclude(self, began: float) -> None:
        wall_s = time.monotonic() - began
        record = conclude_run(
            self.folder, self.experiment, self.policy, wall_s
        )
        self.run.show.recorded.append(record)

    def _play(self, ends_s: dict[str, float]) -> None:
        progress = self.run.show.progress(
            ends_s, self.experiment.scale.time, self.policy.label
        )
        # The reserve of disk first: whatever stops the run, its last events
        # and its tables find room.
        with (
            DiskReserve(self.folder.path) as reserve,
            self._begun(reserve) as log,
            self._trace() as trace,
            progress as bar,
        ):
            sink = tee(reserve.guarded(log), bar)
            backend = self._backend(sink)
            # The samplers' first counts are from before the first job.
            backend.begin()
            play(
                self.experiment,
                self.policy,
                TracingBackend(backend, writer(trace, reserve)),
                _before_the_end(
                    sink,
                    backend,
                    self.finding,
                    self.emulation.flow_findings,
                ),
                refusal=self.refusal,
            )

    def _begun(self, reserve: DiskReserve) -> EventLog:
        """The folder with all that is known before the first event. Raises
        RunFailed, OSError.
        """
        scale = asdict(self.experiment.scale)
        with reserve.guarding():
            begin_folder(
                self.folder,
                self.experiment,
                self.policy,
                backend="live",
                command=self.run.command,
                facts={**self.emulation.facts(), "scale": scale},
            )
            self.emulation.write_plans_to(self.folder.write_text)
            return self.folder.open_events()

    def _trace(self) -> IO[str]:
        # New, and no link followed: the folder is its caller's, and root
        # writes here.
        descriptor = new_file(self.folder.path / TRACE, FILE_MODE, None)
        return os.fdopen(descriptor, "w", encoding="utf-8")

    def _backend(self, sink: Sink) -> LiveBackend:
        # Without the file's parameters: they have no effect on the weights,
        # which alone are read.
        sharing = self.policy.kind.sharing_of({})
        return LiveBackend(
            self.emulation,
            self.experiment.scale,
            self.experiment.seed,
            sink,
            weighted=sharing.weights == "proximate",
            enforcement=self.experiment.enforcement,
            expect=self.experiment.expect,
        )


def _before_the_end(
    sink: Sink,
    backend: LiveBackend,
    first: Finding,
    flows: Callable[[], list[Finding]],
) -> Sink:
    """Notes the fidelity checks just before ``run_ended``."""

    def noting(event: events.Event) -> None:
        if isinstance(event, events.RunEnded):
            watch = backend.watch
            findings = [first, *watch.findings(), *flows()]
            # Together, since evidence of the jobs decides how much checks of
            # the machine count.
            for finding in weighed(findings, watch.evidence.ended):
                sink(
                    events.FidelityNoted(
                        event.t,
                        level=finding.level,
                        check=finding.check,
                        reason=finding.reason,
                        figures=finding.metrics,
                    )
                )
        sink(event)

    return noting
