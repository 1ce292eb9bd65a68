"""The live run: dry run, preflight, network up, jobs, judgement, network down, results."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from jobs.live.agent_pool import AgentPoolError
from testbed import events
from testbed.backends.emu.cleanup import uninterrupted
from testbed.backends.emu.emulation import Emulation, LiveOptions, emulate
from testbed.backends.emu.live_backend import LiveBackend, preflight_load_test
from testbed.errors import BadInput, RunFailed
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

    Raises BadInput and MachineCannot before anything is made, RunFailed when the run could not go
    on; the folder is complete in either case once jobs had begun.
    """
    recorded: list[RunRecord] = []
    try:
        try:
            _run_policies(experiment, top, options, show, command, recorded)
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


def _run_policies(
    experiment: Experiment,
    top: RunFolder,
    options: LiveOptions,
    show: LiveRun,
    command: list[str],
    recorded: list[RunRecord],
) -> None:
    """Adds to ``recorded`` policy by policy: whatever stops the run, those are there."""
    check_reachable(experiment.datacentre, experiment.jobs)
    plans = [dry_run(experiment, policy) for policy in experiment.policies]
    peaks = [peak(plan, experiment.datacentre) for plan in plans]
    several = len(experiment.policies) > 1
    slots = [int(count) for count in experiment.datacentre.slots]
    with (
        terminated_as_interrupt(),
        emulate(
            experiment.datacentre,
            experiment.scale,
            options,
            top.path / names.LOGS,
            experiment.name,
            show.narrate,
            namespaces_per_server(plans, slots),
            max(sum(n for job in busiest for _, n in job.vms_on) for busiest in peaks),
        ) as emulation,
    ):
        for policy, plan, busiest in zip(experiment.policies, plans, peaks, strict=True):
            folder = top.policy(policy.label) if several else top
            emulation.network.forbid_borrowing()
            show.narrate("preflight: load test at the plan's busiest instant")
            found = preflight_load_test(emulation, experiment.scale, experiment.seed, busiest)
            show.narrate(f"preflight: {found.level}: {found.reason}")
            _one_policy(experiment, policy, plan, found, emulation, folder, show, command, recorded)
        show.narrate("taking the network down")


def _one_policy(
    experiment: Experiment,
    policy: PolicySpec,
    plan: list[events.Event],
    preflight_finding: Finding,
    emulation: Emulation,
    folder: RunFolder,
    show: LiveRun,
    command: list[str],
    recorded: list[RunRecord],
) -> None:
    """Raises RunFailed, OSError; what there is of the run is concluded and ``recorded`` anyway."""
    began = time.monotonic()
    expected = {e.job_id: e.t for e in plan if isinstance(e, events.JobEnded)}
    try:
        with (
            DiskReserve(folder.path) as reserve,
            _begun(folder, experiment, policy, command, emulation, reserve) as log,
            (folder.path / TRACE).open("x", encoding="utf-8") as trace,
            show.progress(expected, experiment.scale.time, policy.label) as bar,
        ):
            sink = tee(reserve.guarded(log), bar)
            weighted = policy_kind(policy.name).sharing_of({}).weights == "proximate"
            backend = LiveBackend(
                emulation, experiment.scale, experiment.seed, sink, weighted=weighted
            )
            traced = TracingBackend(backend, writer(trace, reserve))
            backend.begin()
            play(experiment, policy, traced, _before_the_end(sink, backend, preflight_finding))
    except BaseException:
        # What stopped the run is what the caller must hear, whatever the folder still allows.
        with uninterrupted(), suppress(BadInput, OSError):
            recorded.append(conclude_run(folder, experiment, policy, time.monotonic() - began))
        raise
    # Whoever asks the run to end now is heard when it is written down.
    with uninterrupted():
        recorded.append(conclude_run(folder, experiment, policy, time.monotonic() - began))


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
        begin_folder(folder, experiment, policy, "live", command, emulation.facts())
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
