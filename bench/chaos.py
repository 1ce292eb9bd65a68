"""Everything at once on a live fat-tree: jobs in and out, re-rates,
preemptions, and failures.

Rounds of a minute of wall time, six times as long in the experiment, each a run
of its own on one network. A policy starts jobs as they fit, and preempts,
re-rates and kills some; links, servers, switches and the controller fail by the
file; agents are killed, processes stopped for a second, and in every fifth
round the disk of the run folder gets full. Between steps of the engine, half a
second apart at the least, what ``ip``, ``tc``, ``ovs-ofctl`` and the control
groups' files show is compared with what the plan, the ledger and the events
say. A round's seed decides all of it but the timing of the machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any

import psutil

from bench.progress import Progress, Step
from bench.samples import Result
from testbed import events
from testbed.backends.emu.cleanup import clean_leftovers
from testbed.backends.emu.emulation import Emulation, LiveOptions, emulate
from testbed.backends.emu.live_backend import LiveBackend
from testbed.backends.emu.live_job import LiveJob
from testbed.embedding.placement import hose_bps, tree_of
from testbed.engine.backend import Completion
from testbed.errors import RunFailed
from testbed.plan.network_plan import TenantPlan
from testbed.play.playing import begin_folder, conclude_run, play, tee
from testbed.record.folder import RESOLVED, DiskReserve, RunFolder
from testbed.reservation.ledger import Holding
from testbed.schedulers import actions as act
from testbed.schedulers.policy import Policy, View
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import parse_experiment
from testbed.standing.network_layout import NetworkLayout, TenantPlans
from testbed.standing.verification import checks
from topologies.fat_tree import fat_tree

ROUNDS = 10
ROUND_S = 60.0
TIME_SCALE = 6.0
HORIZON_S = ROUND_S * TIME_SCALE
LAST_FAILURE_S = HORIZON_S - 30.0
JOBS = 60
FAILURES = 18
OP_EVERY_S = 5.0
"""Experiment time between two of the policy's own interventions."""
CHECK_EVERY_S = 0.5
AGREE_S = 5.0
"""Wall time in which what was stopped, or died, may bring things in order
again.
"""
SHARE_KILLED = 0.02
SHARE_STOPPED = 0.06
"""Shares of the steps at which an agent is killed, or a process stopped for a
second.
"""
FULL_EVERY = 5
DISK_BYTES = 96 << 20
GROWTH_MIB = 32.0
"""Most that a process may grow between the ends of the second and of the last
round.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first round (default 1)"
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="where run folders of a disagreement are kept",
    )


def run(quick: bool, args: argparse.Namespace) -> list[Result]:
    """All rounds, with ``--quick`` one. A round's seed alone repeats a failed
    one.
    """
    n_rounds = args.rounds
    if quick:
        n_rounds = 1
    seeds = range(args.seed, args.seed + n_rounds)
    with _small_disk() as disk:
        tallies = _rounds(seeds, disk, args.keep)
    return _results(tallies, _left_behind())


def _rounds(
    seeds: Sequence[int], disk: Path, keep: Path | None
) -> list[Tally]:
    """A round for each seed, one after another on one network."""
    steps = [Step(f"seed {seed}", ROUND_S * 1.2) for seed in seeds]
    progress = Progress(steps)
    tallies: list[Tally] = []
    with _network_up(seeds[0], disk / "logs") as emulation:
        for seed in seeds:
            with progress.step():
                tally = _round(emulation, seed, disk)
                tallies.append(tally)
                progress.say(tally.text())
                if keep is not None and tally.problems:
                    shutil.copytree(disk, keep, dirs_exist_ok=True)
    return tallies


def _network_up(seed: int, logs: Path) -> AbstractContextManager[Emulation]:
    """The network of all rounds, which is the same for every seed."""
    logs.mkdir()
    experiment = _experiment(seed)
    return emulate(
        datacentre=experiment.datacentre,
        scale=experiment.scale,
        options=LiveOptions(prefix="hc"),
        log_dir=logs,
        name="chaos",
        narrate=lambda _: None,
        # Twice the slots: a preempted job keeps its namespaces.
        namespaces_per_server=[8] * experiment.datacentre.n_servers,
    )


def _left_behind() -> list[str]:
    """Things of the testbed that remain after its network is down."""
    left = []
    for thing in clean_leftovers():
        left.append(f"{thing.what} {thing.name}")
    return left + _devices("hc-")


# -- one round -----------------------------------------------------------------


@dataclass
class Tally:
    """Counts of a round: actions by kind, comparisons, things compared, and the
    disagreements as sentences.
    """

    seed: int
    done: Counter[str] = field(default_factory=Counter)
    comparisons: int = 0
    compared: int = 0
    problems: list[str] = field(default_factory=list)
    agreed_after_s: list[float] = field(default_factory=list)
    memory_mib: dict[str, float] = field(default_factory=dict)

    def text(self) -> str:
        """The round in a line, and its first ten disagreements in one each."""
        done = ", ".join(
            f"{n} {what}" for what, n in sorted(self.done.items())
        )
        lines = [
            f"seed {self.seed}: {self.comparisons} comparisons; {done}"
        ]
        for problem in self.problems[:10]:
            lines.append(f"  DISAGREES {problem}")
        if self.problems:
            again = f"python -m bench chaos --seed {self.seed} --rounds 1"
            lines.append(f"  again: {again}")
        return "\n".join(lines)


def _experiment(seed: int) -> Experiment:
    """Jobs and failures of a round, as a file."""
    rng = Random(seed)  # noqa: S311 - no secret
    # All draws are made in the file's order: the seed decides on each.
    jobs = "".join(_job_line(rng, number) for number in range(JOBS))
    failures = "".join(f"  - {{{text}}}\n" for text in _failures(rng))
    on_failure = rng.choice(("wait", "kill", "requeue"))
    text = (
        f"name: chaos\nseed: {seed}\n"
        "topology: {kind: fat-tree, k: 4, links: 1 Gbit/s, slots_per_server: 4}\n"
        f"scale: {{rate: 0.02, time: {TIME_SCALE:g}}}\n"
        f"policies: [{{name: fcfs, on_failure: {on_failure}}}]\n"
        f"workload:\n  kind: jobs\n  jobs:\n{jobs}failures:\n{failures}"
        "expect: {fidelity: invalid}\n"
    )
    return parse_experiment(text, Path("chaos.yaml"))


def _job_line(rng: Random, number: int) -> str:
    at_s = rng.uniform(0, 0.85 * HORIZON_S)
    vms = rng.randint(2, 8)
    mbps = rng.choice((50, 100, 200))
    duration_s = rng.uniform(30, 150)
    pattern = rng.choice(("ring", "all-to-all", "permutation"))
    return (
        f"    - {{id: j{number}, at: {at_s:.3f} s, vms: {vms},"
        f" bandwidth: {mbps} Mbit/s, duration: {duration_s:.3f} s,"
        f" pattern: {pattern}}}\n"
    )


def _failures(rng: Random) -> Iterator[str]:
    """Failures at random times; a part is lost at most once."""
    names = _parts()
    lost: set[str] = set()
    kinds = ("link", "server", "switch", "controller")
    for _ in range(FAILURES):
        at_s = rng.uniform(5, LAST_FAILURE_S)
        lasts_s = rng.uniform(10, 60)
        (kind,) = rng.choices(kinds, (9, 3, 3, 3))
        if kind == "controller":
            yield f"at: {at_s:.3f} s, controller: killed"
            continue
        part = rng.choice(names[kind])
        if kind == "switch":
            yield f"at: {at_s:.3f} s, switch: {part}"
        elif part not in lost:
            lost.add(part)
            yield f"at: {at_s:.3f} s, {kind}: {part}, lasts: {lasts_s:.3f} s"


def _parts() -> dict[str, list[str]]:
    """Links, servers and switches by their names in a file."""
    centre = fat_tree(4, 10**9, 4)
    links = []
    for low, high in zip(
        centre.link_lower.tolist(), centre.link_upper.tolist(), strict=True
    ):
        links.append(f"{centre.names[low]} - {centre.names[high]}")
    return {
        "link": links,
        "server": list(centre.names[: centre.n_servers]),
        "switch": list(centre.names[centre.n_servers :]),
    }


def _round(emulation: Emulation, seed: int, disk: Path) -> Tally:
    """Plays one run in a folder of its own. In every fifth round the disk gets
    full, which ends the run.
    """
    experiment = _experiment(seed)
    tally = Tally(seed)
    rng = Random(f"chaos/{seed}")  # noqa: S311 - no secret
    folder = RunFolder.create(disk, "chaos", seed)
    # Late enough for jobs to run, early enough for the round to notice.
    full_s = None
    if seed % FULL_EVERY == 0:
        full_s = rng.uniform(0.3, 0.9) * HORIZON_S
    began = time.monotonic()
    _begin(folder, experiment, emulation)
    stopped = ""
    try:
        _play(emulation, experiment, folder, tally, rng=rng, full_s=full_s)
    except RunFailed as error:
        stopped = error.message
    finally:
        (folder.path / "filled").unlink(missing_ok=True)
    wall_s = time.monotonic() - began
    # A full disk is to stop the run; nothing else is.
    if stopped and (full_s is None or "disk" not in stopped):
        tally.problems.append(f"the run stopped: {stopped}")
    tally.problems += _audited(folder, experiment, wall_s)
    tally.memory_mib = _memory(emulation)
    return tally


def _audited(
    folder: RunFolder, experiment: Experiment, wall_s: float
) -> list[str]:
    """The first finding of each check that fails on the run's events."""
    policy = experiment.policies[0]
    record = conclude_run(folder, experiment, policy, wall_s)
    problems = []
    for result in record.audit.results:
        if result.status == "failed":
            problems.append(f"audit: {result.name}: {result.findings[0]}")
    return problems


def _begin(
    folder: RunFolder, experiment: Experiment, emulation: Emulation
) -> None:
    policy = experiment.policies[0]
    begin_folder(
        folder=folder,
        experiment=experiment,
        policy=policy,
        backend="live",
        command=["bench", "chaos"],
        facts={},
    )
    # The policy's claims are not those of one that is meddled with.
    resolved = {**experiment.resolved, "policy": policy.label, "claims": []}
    folder.write_json(RESOLVED, resolved)
    emulation.write_plans_to(folder.write_text)
    emulation.network.forbid_borrowing()


def _play(
    emulation: Emulation,
    experiment: Experiment,
    folder: RunFolder,
    tally: Tally,
    *,
    rng: Random,
    full_s: float | None,
) -> None:
    """Plays the experiment with blows and comparisons. Raises RunFailed."""
    with (
        DiskReserve(folder.path) as reserve,
        folder.open_events() as log,
    ):
        sink = reserve.guarded(
            tee(log, lambda event: tally.done.update([event.name]))
        )
        live = LiveBackend(emulation, experiment.scale, tally.seed, sink)
        shaken = Shaken(
            live=live,
            emulation=emulation,
            tally=tally,
            rng=rng,
            folder=folder.path,
            full_s=full_s,
        )
        live.begin()
        try:
            play(
                experiment,
                experiment.policies[0],
                shaken,
                tee(shaken.follow, sink),
                around=shaken.policy,
            )
        finally:
            # A run that stops takes its network down; this one stays for
            # the next round.
            for job_id in list(live._jobs):  # noqa: SLF001
                live.remove(job_id)


class Meddling:
    """Policy ``inner`` with interventions every few seconds: preemptions, re-
    rates, kills.
    """

    def __init__(self, inner: Policy, rng: Random, owner: Shaken) -> None:
        self.name = inner.name
        self._inner = inner
        self._rng = rng
        self._owner = owner
        self._asked: dict[str, int] = {}
        self._woken = False

    def decide(
        self, view: View, event: act.PolicyEvent
    ) -> list[act.Action]:
        self._owner.view = view
        if view.now_s >= HORIZON_S:
            return self._end(view, event)
        actions = list(self._inner.decide(view, event))
        if isinstance(event, act.Woken):
            actions += self._meddle(view)
        # The first decision sets the alarm; each alarm sets the next one.
        if isinstance(event, act.Woken) or not self._woken:
            self._woken = True
            actions.append(act.Wake(view.now_s + OP_EVERY_S))
        return actions

    def _end(self, view: View, event: act.PolicyEvent) -> list[act.Action]:
        """Kills all jobs, as the round is over."""
        # Others that have ended at this time may still count as running.
        if isinstance(event, act.Ended) and event.more_at_this_time:
            return []
        job_ids = (*view.running(), *view.waiting())
        return [act.Kill(job_id, "the round is over") for job_id in job_ids]

    def _meddle(self, view: View) -> list[act.Action]:
        """Draws a running job and an intervention into it."""
        running = view.running()
        if not running:
            return []
        job_id = self._rng.choice(running)
        kinds = ("preempt", "rerate", "kill", "nothing")
        (kind,) = self._rng.choices(kinds, (3, 4, 1, 2))
        match kind:
            case "preempt":
                return [act.Preempt(job_id, "chaos")]
            case "rerate":
                return self._rerate(view, job_id)
            case "kill":
                return [act.Kill(job_id, "chaos")]
        return []

    def _rerate(self, view: View, job_id: str) -> list[act.Action]:
        """Halves the job's bandwidth; restores it where there is room for all
        of it.
        """
        held = view.ledger.holdings()[job_id]
        full_bps = view.job(job_id).bandwidth_bps
        if held.rate_bps == full_bps:
            return [act.Rescale(job_id, full_bps // 2)]
        need = hose_bps(
            tree_of(view.datacentre, held.placement.root),
            held.placement,
            full_bps - held.rate_bps,
        )
        free_bps = view.residual(view.now_s, None).free_bps
        for link, bps in need.items():
            if free_bps[link] < bps:
                return []
        return [act.Rescale(job_id, full_bps)]


class Shaken:
    """The live backend; each wait begins with a comparison, and some with a
    blow: a killed agent, a stopped process, a full disk.
    """

    name = "live"

    def __init__(
        self,
        live: LiveBackend,
        emulation: Emulation,
        tally: Tally,
        rng: Random,
        folder: Path,
        full_s: float | None,
    ) -> None:
        self._live = live
        self._emulation = emulation
        self._tally = tally
        self._rng = rng
        self._folder = folder
        self._full_s = full_s
        self._lost: set[tuple[str, int]] = set()
        self._compared_at = 0.0
        self.view: View | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._live, name)

    def policy(self, inner: Policy) -> Policy:
        return Meddling(inner, self._rng, self)

    def follow(self, event: events.Event) -> None:
        """Note what is lost, of what the engine says."""
        match event:
            case events.LinkFailed(link=part):
                self._lost.add(("link", part))
            case events.LinkRestored(link=part):
                self._lost.discard(("link", part))
            case events.ServerFailed(server=part):
                self._lost.add(("server", part))
            case events.ServerRestored(server=part):
                self._lost.discard(("server", part))

    def wait(self, until_s: float | None) -> list[Completion]:
        if (
            time.monotonic() - self._compared_at >= CHECK_EVERY_S
            and self.view is not None
        ):
            self._compare()
            self._compared_at = time.monotonic()
        self._strike()
        return self._live.wait(until_s)

    # -- blows ------------------------------------------------------------------------------

    def _strike(self) -> None:
        now_s = self._live.now_s()
        if self._full_s is not None and now_s >= self._full_s:
            self._full_s = None
            self._fill_disk()
        agents = sorted(self._live._alive)  # noqa: SLF001 - a blow asks nobody
        draw = self._rng.random()
        if draw < SHARE_KILLED and agents:
            self._emulation.agents.signal(
                self._rng.choice(agents), signal.SIGKILL
            )
            self._tally.done["agents killed"] += 1
        elif draw < SHARE_KILLED + SHARE_STOPPED:
            self._stop_for_a_second()

    def _stop_for_a_second(self) -> None:
        """Stops any process of the run for a second, the run's own among them."""
        name, pid = self._rng.choice(self._stoppable())
        self._tally.done[f"{name} stopped"] += 1
        if pid == os.getpid():
            # By a process that is not stopped with it, as a thread's timer
            # would be.
            waker = f"sleep 1; kill -CONT {pid}"
            subprocess.Popen(
                ["/bin/sh", "-c", waker], start_new_session=True
            )
            os.kill(pid, signal.SIGSTOP)
            return
        # A thread is enough for others' processes, and waits for nobody.
        _signal(pid, signal.SIGSTOP)
        timer = Timer(1.0, _signal, (pid, signal.SIGCONT))
        timer.daemon = True
        timer.start()

    def _stoppable(self) -> list[tuple[str, int]]:
        """Names and ids of the run's processes."""
        testbed = psutil.Process()
        processes = []
        for child in testbed.children(recursive=True):
            processes.append((child.name(), child.pid))
        for pid in self._emulation.network.switch_pids:
            if pid:
                processes.append(("ovs-vswitchd", pid))
        # Three times, as there are many agents beside the one run.
        processes += [("the run", testbed.pid)] * 3
        return processes

    def _fill_disk(self) -> None:
        """Fills the file system of the run's folder to its last block."""
        self._tally.done["disk filled"] += 1
        with (self._folder / "filled").open("wb") as file:
            free = os.statvfs(self._folder)
            # The blocks themselves: a file of that length alone would be a
            # hole, and leave them to others.
            os.posix_fallocate(
                file.fileno(), 0, free.f_bavail * free.f_frsize
            )

    # -- comparison -------------------------------------------------------------------------

    def _compare(self) -> None:
        """Compares everything. Disagreements have AGREE_S to disappear, as
        after a blow.
        """
        began = time.monotonic()
        while problems := self._problems():
            if time.monotonic() - began > AGREE_S:
                at_s = self._live.now_s()
                self._tally.problems += [
                    f"at {at_s:.1f} s: {text}" for text in problems
                ]
                break
            time.sleep(0.1)
        self._tally.comparisons += 1
        self._tally.agreed_after_s.append(time.monotonic() - began)

    def _problems(self) -> list[str]:
        """All disagreements of this moment."""
        # What the backend believes is what is compared.
        jobs = self._live._jobs  # noqa: SLF001
        tenants = []
        for job in jobs.values():
            if job.tenant is not None:
                tenants.append(job.tenant)
        return [
            *self._network(tuple(tenants)),
            *self._groups(),
            *self._ledger(),
        ]

    def _network(self, tenants: tuple[TenantPlan, ...]) -> Iterator[str]:
        """Cables by ``ip``, limits by ``tc``, flows by ``ovs-ofctl``."""
        layout = self._layout()
        plans = self._planned(tenants)
        # Links, limits and flows. The packets that come after them would
        # take bandwidth from the jobs.
        for check in islice(checks(layout, plans), 3):
            self._tally.compared += check.compared
            if check.name == "links":
                yield from self._wrong_links(check.problems)
                continue
            for text in check.problems:
                yield f"{check.name}: {text}"

    def _layout(self) -> NetworkLayout:
        switches = {}
        network = self._emulation.network
        for name, switch in network.switch_of_bridge.items():
            switches[name] = (str(switch.run_dir), switch.netns)
        return NetworkLayout(
            self._emulation.plan,
            switches,
            self._emulation.controller.openflow_port,
            os.getpid(),
        )

    def _planned(self, tenants: tuple[TenantPlan, ...]) -> TenantPlans:
        names = {}
        for bridge in self._emulation.plan.bridges:
            names[bridge.name] = bridge.name
        for tenant in tenants:
            for vm in tenant.vms:
                names[vm.slot.port.name] = f"{tenant.job_id}.{vm.index}"
        return TenantPlans(
            tenants, names, self._emulation.network.borrowing
        )

    def _wrong_links(self, problems: Sequence[str]) -> Iterator[str]:
        """Links that are down and should not be, and the other way round."""
        # A problem begins with the name of the link's lower port.
        down = {text.split()[0] for text in problems}
        lost = self._lost_links()
        for name in sorted(down - lost):
            yield f"links: {name} is down"
        for name in sorted(lost - down):
            yield f"links: {name} carries, and is lost"

    def _lost_links(self) -> set[str]:
        """Lower ports of links that are lost, or whose server is."""
        plan = self._emulation.plan
        bridges = set()
        for kind, part in self._lost:
            if kind == "server":
                bridges.add(plan.bridge_of_node[part].name)
        lost = set()
        for number, link in enumerate(plan.links):
            if ("link", number) in self._lost:
                lost.add(link.lower.name)
            if link.lower.bridge in bridges:
                lost.add(link.lower.name)
        return lost

    def _groups(self) -> Iterator[str]:
        """Disagreements on control groups: an agent of a frozen job is frozen,
        and no other is.
        """
        cgroup = self._emulation.cgroup
        for job_id, job in self._live._jobs.items():  # noqa: SLF001
            if job.tenant is None or job.over:
                continue
            expected = "not frozen"
            if job.frozen:
                expected = "frozen"
            for vm in job.tenant.vms:
                self._tally.compared += 1
                frozen = cgroup.is_frozen(vm.slot.server, vm.slot.index)
                if frozen is not job.frozen:
                    yield f"cgroups: {job_id}.{vm.index} is {expected}"

    def _ledger(self) -> Iterator[str]:
        """Disagreements between ledger and network: running jobs hold what they
        use, and no others hold anything.
        """
        if self.view is None:
            return
        self.view.ledger.check()
        holdings = self.view.ledger.holdings()
        jobs = self._live._jobs  # noqa: SLF001
        running = set()
        for job_id, job in jobs.items():
            if job.since_ns is not None:
                running.add(job_id)
        for job_id in sorted(running - holdings.keys()):
            yield f"ledger: {job_id} runs alone"
        for job_id in sorted(holdings.keys() - running):
            yield f"ledger: {job_id} is held alone"
        for job_id in sorted(running & holdings.keys()):
            self._tally.compared += 1
            yield from self._against(holdings[job_id], jobs[job_id])

    def _against(self, held: Holding, job: LiveJob) -> Iterator[str]:
        """Differences of a job on the network from what it holds."""
        job_id = job.request.id
        on_network = (job.placement, job.rate_bps)
        if on_network != (held.placement, held.rate_bps):
            yield f"ledger: {job_id} is elsewhere, or at another rate, than on the network"
        if job.tenant is None:
            return
        scale = self._live._scale  # noqa: SLF001
        if job.tenant.rate_bps != round(held.rate_bps * scale.rate):
            yield f"ledger: {job_id} has {job.tenant.rate_bps} bit/s on the wire"


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it has ended meanwhile


def _memory(emulation: Emulation) -> dict[str, float]:
    """Resident memory in MiB."""
    pids = {
        "testbed": os.getpid(),
        "controller": emulation.controller.process.pid,
        "agents' server": emulation.agents.pid,
    }
    for number, pid in enumerate(emulation.network.switch_pids):
        if pid:
            pids[f"switch {number}"] = pid
    memory_mib = {}
    for name, pid in pids.items():
        memory_mib[name] = psutil.Process(pid).memory_info().rss / 2**20
    return memory_mib


@contextmanager
def _small_disk() -> Iterator[Path]:
    """A file system of its own for run folders, small enough to be filled."""
    with (
        TemporaryDirectory(prefix="hosenet-chaos-") as path,
        ExitStack() as stack,
    ):
        size = f"size={DISK_BYTES}"
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", size, "tmpfs", path], check=True
        )
        # Lazily: a process that is on its way out may still have a file
        # open there.
        stack.callback(subprocess.run, ["umount", "-l", path], check=True)
        yield Path(path)


def _devices(prefix: str) -> list[str]:
    """Network devices and namespaces that are still there."""
    shown = subprocess.run(
        ["ip", "-o", "link"], capture_output=True, text=True, check=True
    ).stdout
    names = []
    for line in shown.splitlines():
        device = line.split(": ")[1]
        if device.startswith(prefix):
            names.append(device)
    for path in Path("/run/netns").glob(f"{prefix}*"):
        names.append(path.name)
    return names


def _results(tallies: list[Tally], left: list[str]) -> list[Result]:
    waited: list[float] = []
    for tally in tallies:
        waited += tally.agreed_after_s
    extra_left = {}
    if left:
        extra_left = {"left": left}
    # Memory is compared from the second round on: in the first much is
    # loaded and made once.
    second = tallies[min(1, len(tallies) - 1)]
    return [
        _disagreements(tallies),
        Result(
            "a comparison, until it agrees", "s", tuple(waited) or (0.0,)
        ),
        Result(
            "left behind",
            "",
            samples=(float(len(left)),),
            target="nothing",
            meets=not left,
            extra=extra_left,
        ),
        _growth(second.memory_mib, tallies[-1].memory_mib),
    ]


def _disagreements(tallies: list[Tally]) -> Result:
    done: Counter[str] = Counter()
    problems: list[str] = []
    counts = []
    comparisons = 0
    compared = 0
    for tally in tallies:
        done.update(tally.done)
        for text in tally.problems:
            problems.append(f"seed {tally.seed}: {text}")
        counts.append(float(len(tally.problems)))
        comparisons += tally.comparisons
        compared += tally.compared
    extra: dict[str, Any] = {
        "comparisons": comparisons,
        "things compared": compared,
        **dict(sorted(done.items())),
    }
    if problems:
        extra["problems"] = problems[:20]
    return Result(
        "disagreements a round",
        "",
        samples=tuple(counts),
        target="none",
        meets=not problems,
        extra=extra,
    )


def _growth(
    first_mib: Mapping[str, float], last_mib: Mapping[str, float]
) -> Result:
    """Growth of each process that was there in both rounds."""
    grown_mib = []
    extra = {}
    for name in sorted(first_mib.keys() & last_mib.keys()):
        grown_mib.append(last_mib[name] - first_mib[name])
        extra[name] = f"{first_mib[name]:.0f} -> {last_mib[name]:.0f}"
    return Result(
        "memory grown since the second round",
        "MiB",
        samples=tuple(grown_mib) or (0.0,),
        target=f"at most {GROWTH_MIB:g} MiB each",
        meets=max(grown_mib, default=0.0) <= GROWTH_MIB,
        extra=extra,
    )
