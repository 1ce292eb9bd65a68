"""The live run: dry run, preflight, network up, jobs, judgement, network down, results."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from types import FrameType

from jobs.live.agent_pool import AgentPoolError
from testbed import events
from testbed.backends.emu.cleanup import uninterrupted
from testbed.backends.emu.emulation import Emulation, LiveOptions, emulate
from testbed.backends.emu.live_backend import LiveBackend
from testbed.backends.emu.preflight import LoadTests, Preflight, check
from testbed.errors import BadInput, MachineCannot, RunFailed
from testbed.plan.fidelity import Finding
from testbed.plan.network_plan import check_reachable
from testbed.plan.peak_load import namespaces_per_server, peak
from testbed.results import folder as names
from testbed.results.folder import DiskReserve, EventLog, RunFolder, Sink
from testbed.results.tables import conclude_all
from testbed.runs.backend_trace import TRACE, TracingBackend, writer
from testbed.runs.playing import RunRecord, begin_folder, conclude_run, dry_run, play, tee
from testbed.schedulers.registry import policy_kind
from testbed.spec.experiment import Experiment, PolicySpec

Narrate = Callable[[str], None]
Progress = Callable[[dict[str, float], float, str], AbstractContextManager[Sink]]


@dataclass(frozen=True)
class LiveRun:
    """Output while it runs: sentences, and a progress bar around each policy."""

    narrate: Narrate
    progress: Progress


def run_live(
    experiment: Experiment, top: RunFolder, options: LiveOptions, show: LiveRun, command: list[str]
) -> list[RunRecord]:
    """Every policy of the experiment on the live network, one after another.

    Raises BadInput and MachineCannot before anything is made, MachineCannot after the preflight
    too, RunFailed when the run could not go on; the folder is complete in these cases.
    """
    recorded: list[RunRecord] = []
    try:
        try:
            check_reachable(experiment.datacentre, experiment.jobs)
            plans = [dry_run(experiment, policy) for policy in experiment.policies]
            run = _Run(experiment, plans, top, options, show, command, recorded)
            with terminated_as_interrupt():
                run.play()
        except BaseException:
            # What stopped the run is what the caller must hear.
            with suppress(OSError):
                _conclude_several(experiment, top, recorded)
            raise
        _conclude_several(experiment, top, recorded)
    except AgentPoolError as error:
        raise RunFailed(str(error), f"see {top.path}") from error
    except OSError as error:
        raise RunFailed(f"the run stopped: {error}", f"see {top.path}") from error
    return recorded


def _conclude_several(experiment: Experiment, top: RunFolder, recorded: list[RunRecord]) -> None:
    """The summary above several policies, of those that there are."""
    if len(experiment.policies) > 1 and recorded:
        with uninterrupted():
            conclude_all(top, [one.results for one in recorded])


@dataclass(frozen=True)
class _Run:
    """A run and its plans, by policy.

    Adds to ``recorded`` policy by policy: whatever stops the run, those are there.
    """

    experiment: Experiment
    plans: Sequence[list[events.Event]]
    top: RunFolder
    options: LiveOptions
    show: LiveRun
    command: list[str]
    recorded: list[RunRecord]

    def play(self) -> None:
        """The preflight, then every policy; on a network built anew if the preflight chose the
        rate.
        """
        experiment, built_at = self.experiment, self.experiment.scale.rate
        with self._network() as emulation:
            found = self._preflight(emulation)
            if found.rate == built_at or found.refusal is not None:
                self._play_all(emulation, found)
                return
        scaled = replace(experiment, scale=replace(experiment.scale, rate=found.rate))
        again = replace(self, experiment=scaled)
        with again._network() as emulation:  # noqa: SLF001 - its own kind
            again._play_all(emulation, found)  # noqa: SLF001

    def _network(self) -> AbstractContextManager[Emulation]:
        datacentre = self.experiment.datacentre
        return emulate(
            datacentre,
            self.experiment.scale,
            self.options,
            self.top.path / names.LOGS,
            self.experiment.name,
            self.show.narrate,
            namespaces_per_server(self.plans, [int(count) for count in datacentre.slots]),
        )

    def _preflight(self, emulation: Emulation) -> Preflight:
        experiment, narrate = self.experiment, self.show.narrate
        emulation.network.forbid_borrowing()
        peaks = [peak(plan, experiment.datacentre) for plan in self.plans]
        tests = LoadTests(emulation, experiment.scale, experiment.seed, peaks, narrate)
        accepted = self.options.force or experiment.expect.fidelity == "invalid"
        found = check(tests, force=accepted)
        if experiment.scale.auto:
            load = f"{found.load:.0%} of what this machine can do"
            narrate(f"scale.rate: auto -> {found.rate:g}, tested: {load}")
        return found

    def _play_all(self, emulation: Emulation, found: Preflight) -> None:
        """Every policy; of a run that is refused, the folder of the one that asks for most."""
        todo = list(zip(self.experiment.policies, self.plans, found.findings, strict=True))
        for policy, plan, finding in todo if found.refusal is None else [todo[found.worst]]:
            emulation.network.forbid_borrowing()
            self._one_policy(policy, plan, finding, found.refusal, emulation)
        self.show.narrate("taking the network down")

    def _one_policy(
        self,
        policy: PolicySpec,
        plan: list[events.Event],
        preflight_finding: Finding,
        refusal: MachineCannot | None,
        emulation: Emulation,
    ) -> None:
        """Raises RunFailed, OSError, ``refusal``; what there is of the run is concluded and
        ``recorded`` anyway.
        """
        began, experiment = time.monotonic(), self.experiment
        folder = self.top.policy(policy.label) if len(experiment.policies) > 1 else self.top
        expected = {e.job_id: e.t for e in plan if isinstance(e, events.JobEnded)}
        try:
            with (
                DiskReserve(folder.path) as reserve,
                _begun(folder, experiment, policy, self.command, emulation, reserve) as log,
                (folder.path / TRACE).open("x", encoding="utf-8") as trace,
                self.show.progress(expected, experiment.scale.time, policy.label) as bar,
            ):
                sink = tee(reserve.guarded(log), bar)
                weighted = policy_kind(policy.name).sharing_of({}).weights == "proximate"
                backend = LiveBackend(
                    emulation, experiment.scale, experiment.seed, sink, weighted=weighted
                )
                traced = TracingBackend(backend, writer(trace, reserve))
                noting = _before_the_end(sink, backend, preflight_finding)
                backend.begin()
                play(experiment, policy, traced, noting, refusal=refusal)
        except BaseException:
            # What stopped the run is what the caller must hear, whatever the folder still allows.
            with uninterrupted(), suppress(BadInput, OSError):
                self.recorded.append(
                    conclude_run(folder, experiment, policy, time.monotonic() - began)
                )
            raise
        # Whoever asks the run to end now is heard when it is written down.
        with uninterrupted():
            self.recorded.append(conclude_run(folder, experiment, policy, time.monotonic() - began))


def _begun(
    folder: RunFolder,
    experiment: Experiment,
    policy: PolicySpec,
    command: list[str],
    emulation: Emulation,
    reserve: DiskReserve,
) -> EventLog:
    """The folder with all that is known before the first event. Raises RunFailed, OSError."""
    with reserve.guarding():
        facts = {**emulation.facts(), "scale": asdict(experiment.scale)}
        begin_folder(folder, experiment, policy, "live", command, facts)
        emulation.write_plans_to(folder.write_text)
        return folder.open_events()


def _before_the_end(sink: Sink, backend: LiveBackend, first: Finding) -> Sink:
    """Note the fidelity checks just before ``run_ended``."""

    def passed(event: events.Event) -> None:
        if isinstance(event, events.RunEnded):
            for found in [first, *backend.watch.findings()]:
                sink(
                    events.FidelityNoted(
                        event.t, found.level, found.check, found.reason, found.metrics
                    )
                )
        sink(event)

    return passed


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP clean up like Ctrl-C."""

    def interrupt(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    chosen = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in chosen}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
