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
from functools import partial

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
    play,
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
    recorded = show.recorded
    try:
        try:
            _run_policies(experiment, top, options, show, command)
        except BaseException as error:
            # What stopped the run is what the caller must hear.
            with uninterrupted(), suppress(OSError):
                conclude_several(experiment, top, recorded)
                # One that is refused before anything is written leaves none.
                if isinstance(error, MachineCannot) and not recorded:
                    remove_lone_folder(top.path, names.LOGS)
                top.path.rmdir()
            raise
        with uninterrupted():
            conclude_several(experiment, top, recorded)
    except AgentPoolError as error:
        raise RunFailed(str(error), f"see {top.path}") from error
    except OSError as error:
        raise RunFailed(
            f"the run stopped: {error}", f"see {top.path}"
        ) from error
    return recorded


def _run_policies(
    experiment: Experiment,
    top: RunFolder,
    options: LiveOptions,
    show: LiveRun,
    command: list[str],
) -> None:
    """Plays policy by policy: whatever stops the run, those before are recorded."""
    check_reachable(experiment.datacentre, experiment.jobs)
    require_launchers(job.demand for job in experiment.jobs)
    options = replace(options, own=experiment.controller)
    plans = [dry_run(experiment, policy) for policy in experiment.policies]
    peaks = [peak(plan, experiment.datacentre) for plan in plans]
    network = partial(
        _network,
        top=top,
        options=options,
        show=show,
        plans=plans,
        n_agents=max(map(_agents, peaks)),
    )
    with terminated_as_interrupt(), ExitStack() as stack:
        emulation = stack.enter_context(network(experiment))
        for line in _computing(plans, experiment):
            show.narrate(line)
        test = partial(load_test, emulation, experiment.seed, rings(plans))
        accepted = options.force or experiment.expect.fidelity == "invalid"
        found = passed_load_test(
            test, peaks, experiment.scale, show.narrate, force=accepted
        )
        if found.rate != experiment.scale.rate and found.refusal is None:
            # Limits of links and VMs are written for one rate: it is built anew.
            stack.close()
            experiment = replace(
                experiment, scale=replace(experiment.scale, rate=found.rate)
            )
            emulation = stack.enter_context(network(experiment))
        for policy, plan, finding in zip(
            experiment.policies, plans, found.findings, strict=True
        ):
            if found.refusal is not None and finding is not found.worst:
                continue
            folder = top
            if len(experiment.policies) > 1:
                folder = top.policy(policy.label)
            emulation.network.forbid_borrowing()
            _one_policy(
                experiment,
                policy,
                plan,
                finding,
                found.refusal,
                emulation,
                folder,
                show,
                command,
            )
        show.narrate("taking the network down")


def _agents(busiest: Peak) -> int:
    """VMs that run at once at a peak: each has an agent."""
    return sum(n for job in busiest for _, n in job.vms_on)


@contextmanager
def _network(
    experiment: Experiment,
    *,
    top: RunFolder,
    options: LiveOptions,
    show: LiveRun,
    plans: list[list[events.Event]],
    n_agents: int,
) -> Iterator[Emulation]:
    """The live network of the plans, noted as a run while it stands."""
    slots = list(map(int, experiment.datacentre.slots))
    with (
        emulate(
            experiment.datacentre,
            experiment.scale,
            options,
            top.path / names.LOGS,
            experiment.name,
            show.narrate,
            namespaces_per_server(plans, slots),
            n_agents,
        ) as emulation,
        _announced(top, experiment, plans, emulation),
    ):
        emulation.network.forbid_borrowing()
        yield emulation


def _computing(
    plans: list[list[events.Event]], experiment: Experiment
) -> Iterator[str]:
    """A sentence on the processors that jobs compute on, where they do."""
    slots = experiment.datacentre.total_slots
    most = max(
        computing_processors(plan, slots, experiment.scale.cpu)
        for plan in plans
    )
    share = most / len(os.sched_getaffinity(0))
    if share > 0.0:
        yield f"the jobs' own computing takes up to {share:.0%} of the processors"


@contextmanager
def _announced(
    top: RunFolder,
    experiment: Experiment,
    plans: list[list[events.Event]],
    emulation: Emulation,
) -> Iterator[None]:
    """Notes the run, in its folder and where other commands look for it."""
    labels = [policy.label for policy in experiment.policies]
    ends_s = [plan[-1].t for plan in plans]
    run = running_run(
        top.path, experiment.name, labels, len(experiment.jobs), ends_s
    )
    with noted(top, run), ExitStack() as stack:
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
        with suppress(OSError):
            folder.write_bytes(
                VMS_NOTE, note(vm_places(tenants)), sync=False
            )

    try:
        with suppress(OSError):
            folder.write_bytes(LINKS_NOTE, note(links), sync=False)
        note_vms(())
        emulation.on_tenants = note_vms
        yield
    finally:
        emulation.on_tenants = None
        for name in (LINKS_NOTE, VMS_NOTE):
            with suppress(OSError):
                (folder.path / name).unlink()


def _one_policy(
    experiment: Experiment,
    policy: PolicySpec,
    plan: list[events.Event],
    finding: Finding,
    refusal: MachineCannot | None,
    emulation: Emulation,
    folder: RunFolder,
    show: LiveRun,
    command: list[str],
) -> None:
    """Raises RunFailed, OSError, the refusal; what there is of the run is
    recorded anyway.

    ``finding``: the preflight's.
    """
    began = time.monotonic()

    def conclude() -> None:
        wall_s = time.monotonic() - began
        show.recorded.append(
            conclude_run(folder, experiment, policy, wall_s)
        )

    expected = {
        e.job_id: e.t for e in plan if isinstance(e, events.JobEnded)
    }
    try:
        with (
            DiskReserve(folder.path) as reserve,
            _begun(
                folder, experiment, policy, command, emulation, reserve
            ) as log,
            os.fdopen(
                new_file(folder.path / TRACE, FILE_MODE, None),
                "w",
                encoding="utf-8",
            ) as trace,
            show.progress(
                expected, experiment.scale.time, policy.label
            ) as bar,
        ):
            sink = tee(reserve.guarded(log), bar)
            weighted = policy.kind.sharing_of({}).weights == "proximate"
            backend = LiveBackend(
                emulation,
                experiment.scale,
                experiment.seed,
                sink,
                weighted=weighted,
                enforcement=experiment.enforcement,
                expect=experiment.expect,
            )
            traced = TracingBackend(backend, writer(trace, reserve))
            backend.begin()
            noting = _before_the_end(
                sink, backend, finding, emulation.flow_findings
            )
            play(experiment, policy, traced, noting, refusal=refusal)
    except BaseException:
        # What stopped the run is what the caller must hear, whatever the folder
        # still allows.
        with uninterrupted(), suppress(BadInput, OSError):
            conclude()
        raise
    # Whoever asks the run to end now is heard when it is written down.
    with uninterrupted():
        conclude()


def _begun(
    folder: RunFolder,
    experiment: Experiment,
    policy: PolicySpec,
    command: list[str],
    emulation: Emulation,
    reserve: DiskReserve,
) -> EventLog:
    """The folder with all that is known before the first event. Raises
    RunFailed, OSError.
    """
    with reserve.guarding():
        facts = {**emulation.facts(), "scale": asdict(experiment.scale)}
        begin_folder(folder, experiment, policy, "live", command, facts)
        emulation.write_plans_to(folder.write_text)
        return folder.open_events()


def _before_the_end(
    sink: Sink,
    backend: LiveBackend,
    first: Finding,
    flows: Callable[[], list[Finding]],
) -> Sink:
    """Note the fidelity checks just before ``run_ended``."""

    def passed(event: events.Event) -> None:
        if isinstance(event, events.RunEnded):
            watch = backend.watch
            findings = [first, *watch.findings(), *flows()]
            for found in weighed(findings, watch.evidence.ended):
                sink(
                    events.FidelityNoted(
                        event.t,
                        found.level,
                        found.check,
                        found.reason,
                        found.metrics,
                    )
                )
        sink(event)

    return passed
