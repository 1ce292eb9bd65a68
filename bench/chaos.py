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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
from testbed.embedding.placement import hose_bps, tree_of
from testbed.engine.backend import Completion
from testbed.errors import RunFailed
from testbed.plan.network_plan import TenantPlan
from testbed.play.playing import begin_folder, conclude_run, play, tee
from testbed.record.folder import RESOLVED, DiskReserve, RunFolder
from testbed.schedulers import actions as act
from testbed.schedulers.policy import Policy, View
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import parse_experiment
from testbed.standing.network_layout import NetworkLayout, TenantPlans
from testbed.standing.verification import checks
from topologies.fat_tree import fat_tree

ROUNDS, ROUND_S, TIME_SCALE = 10, 60.0, 6.0
HORIZON_S = ROUND_S * TIME_SCALE
LAST_FAILURE_S = HORIZON_S - 30.0
JOBS, FAILURES = 60, 18
OP_EVERY_S = 5.0
"""Of the experiment: between two of the policy's own interventions."""
CHECK_EVERY_S = 0.5
AGREE_S = 5.0
"""Wall time in which what was stopped, or died, may bring things in order
again.
"""
SHARE_KILLED, SHARE_STOPPED = 0.02, 0.06
"""Steps at which an agent is killed, or a process stopped for a second."""
FULL_EVERY = 5
DISK_BYTES = 96 << 20
GROWTH_MIB = 32.0
"""Between the ends of the second and of the last round."""


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
    """All rounds; with ``--quick`` one. A round that fails is played again by
    its seed alone.
    """
    n = 1 if quick else args.rounds
    progress = Progress(
        [Step(f"seed {args.seed + k}", ROUND_S * 1.2) for k in range(n)]
    )
    tallies: list[Tally] = []
    with _small_disk() as disk:
        first = _experiment(args.seed)
        options, logs = LiveOptions(prefix="hc"), disk / "logs"
        logs.mkdir()
        room = [8] * first.datacentre.n_servers
        with emulate(
            datacentre=first.datacentre,
            scale=first.scale,
            options=options,
            log_dir=logs,
            name="chaos",
            narrate=lambda _: None,
            namespaces_per_server=room,
        ) as emulation:
            for k in range(n):
                with progress.step():
                    tallies.append(_round(emulation, args.seed + k, disk))
                    progress.say(tallies[-1].text())
                    if args.keep is not None and tallies[-1].problems:
                        shutil.copytree(disk, args.keep, dirs_exist_ok=True)
    left = [
        f"{thing.what} {thing.name}" for thing in clean_leftovers()
    ] + _devices("hc-")
    return _results(tallies, left)


# -- one round -----------------------------------------------------------------


@dataclass
class Tally:
    """A round: what was done, how often all was compared, and what disagreed."""

    seed: int
    done: Counter[str] = field(default_factory=Counter)
    comparisons: int = 0
    compared: int = 0
    problems: list[str] = field(default_factory=list)
    agreed_after_s: list[float] = field(default_factory=list)
    memory_mib: dict[str, float] = field(default_factory=dict)

    def text(self) -> str:
        done = ", ".join(
            f"{n} {what}" for what, n in sorted(self.done.items())
        )
        lines = [
            f"seed {self.seed}: {self.comparisons} comparisons; {done}"
        ]
        if self.problems:
            again = f"python -m bench chaos --seed {self.seed} --rounds 1"
            lines += [
                *(f"  DISAGREES {text}" for text in self.problems[:10]),
                f"  again: {again}",
            ]
        return "\n".join(lines)


def _experiment(seed: int) -> Experiment:
    """Jobs and failures of a round, as a file."""
    rng = Random(seed)  # noqa: S311 - no secret
    jobs = "".join(
        f"    - {{id: j{k}, at: {rng.uniform(0, 0.85 * HORIZON_S):.3f} s, vms: {rng.randint(2, 8)},"
        f" bandwidth: {rng.choice((50, 100, 200))} Mbit/s, duration: {rng.uniform(30, 150):.3f} s,"
        f" pattern: {rng.choice(('ring', 'all-to-all', 'permutation'))}}}\n"
        for k in range(JOBS)
    )
    failures = "".join(f"  - {{{text}}}\n" for text in _failures(rng))
    text = (
        f"name: chaos\nseed: {seed}\n"
        "topology: {kind: fat-tree, k: 4, links: 1 Gbit/s, slots_per_server: 4}\n"
        f"scale: {{rate: 0.02, time: {TIME_SCALE:g}}}\n"
        "policies: [{name: fcfs, on_failure: "
        f"{rng.choice(('wait', 'kill', 'requeue'))}}}]\n"
        f"workload:\n  kind: jobs\n  jobs:\n{jobs}failures:\n{failures}"
        "expect: {fidelity: invalid}\n"
    )
    return parse_experiment(text, Path("chaos.yaml"))


def _failures(rng: Random) -> Iterator[str]:
    """Failures at random times; a part is lost at most once."""
    names, lost = _parts(), set[str]()
    for _ in range(FAILURES):
        at_s, lasts_s = rng.uniform(5, LAST_FAILURE_S), rng.uniform(10, 60)
        kind = rng.choices(
            ("link", "server", "switch", "controller"), (9, 3, 3, 3)
        )[0]
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
    ends = zip(
        centre.link_lower.tolist(), centre.link_upper.tolist(), strict=True
    )
    return {
        "link": [
            f"{centre.names[low]} - {centre.names[high]}"
            for low, high in ends
        ],
        "server": list(centre.names[: centre.n_servers]),
        "switch": list(centre.names[centre.n_servers :]),
    }


def _round(emulation: Emulation, seed: int, disk: Path) -> Tally:
    """A run in a folder of its own. Its last act in every fifth: the disk is
    full.
    """
    experiment, tally = _experiment(seed), Tally(seed)
    policy, rng = experiment.policies[0], Random(f"chaos/{seed}")  # noqa: S311
    folder = RunFolder.create(disk, "chaos", seed)
    full_s = (
        rng.uniform(0.3, 0.9) * HORIZON_S
        if seed % FULL_EVERY == 0
        else None
    )
    began = time.monotonic()
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
    stopped = ""
    try:
        with (
            DiskReserve(folder.path) as reserve,
            folder.open_events() as log,
        ):
            sink = reserve.guarded(
                tee(log, lambda event: tally.done.update([event.name]))
            )
            live = LiveBackend(emulation, experiment.scale, seed, sink)
            watched = Shaken(
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
                    policy,
                    watched,
                    tee(watched.follow, sink),
                    around=watched.policy,
                )
            finally:
                # A run that stops takes its network down; this one stays for
                # the next round.
                for job_id in list(live._jobs):  # noqa: SLF001
                    live.remove(job_id)
    except RunFailed as error:
        stopped = error.message
    finally:
        (folder.path / "filled").unlink(missing_ok=True)
    checked = conclude_run(
        folder, experiment, policy, time.monotonic() - began
    ).audit
    if stopped and (full_s is None or "disk" not in stopped):
        tally.problems.append(f"the run stopped: {stopped}")
    failed = [
        result for result in checked.results if result.status == "failed"
    ]
    tally.problems += [
        f"audit: {result.name}: {result.findings[0]}" for result in failed
    ]
    tally.memory_mib = _memory(emulation)
    return tally


class Meddling:
    """``inner`` as the policy, and interventions every few seconds: preempts,
    re-rates, kills.
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
        if isinstance(event, act.Woken) or not self._woken:
            self._woken = True
            actions.append(act.Wake(view.now_s + OP_EVERY_S))
        return actions

    def _end(self, view: View, event: act.PolicyEvent) -> list[act.Action]:
        """The round is over: everybody out."""
        if isinstance(event, act.Ended) and event.more_at_this_time:
            return []
        waiting = [
            act.Kill(job_id, "the round is over")
            for job_id in view.waiting()
        ]
        return [
            *(
                act.Kill(job_id, "the round is over")
                for job_id in view.running()
            ),
            *waiting,
        ]

    def _meddle(self, view: View) -> list[act.Action]:
        running = view.running()
        if not running:
            return []
        job_id = self._rng.choice(running)
        match self._rng.choices(
            ("preempt", "rerate", "kill", "nothing"), (3, 4, 1, 2)
        )[0]:
            case "preempt":
                return [act.Preempt(job_id, "chaos")]
            case "rerate":
                rate_bps = self._rate(view, job_id)
                return [act.Rescale(job_id, rate_bps)] if rate_bps else []
            case "kill":
                return [act.Kill(job_id, "chaos")]
        return []

    def _rate(self, view: View, job_id: str) -> int:
        """Half of its bandwidth; or all of it, where there is room; 0: neither."""
        held = view.ledger.holdings()[job_id]
        full_bps = view.job(job_id).bandwidth_bps
        if held.rate_bps == full_bps:
            return full_bps // 2
        more_bps = full_bps - held.rate_bps
        need = hose_bps(
            tree_of(view.datacentre, held.placement.root),
            held.placement,
            more_bps,
        )
        free_bps = view.residual(view.now_s, None).free_bps
        return (
            full_bps
            if all(free_bps[link] >= bps for link, bps in need.items())
            else 0
        )


class Shaken:
    """The live backend, whose every wait begins with a comparison and now and
    then a blow.
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
        """SIGSTOP to any process of the run, its own among them; another wakes
        it.
        """
        testbed = psutil.Process()
        name, pid = self._rng.choice(
            [
                *(
                    (child.name(), child.pid)
                    for child in testbed.children(recursive=True)
                ),
                *(
                    ("ovs-vswitchd", pid)
                    for pid in self._emulation.network.switch_pids
                    if pid
                ),
                *[("the run", testbed.pid)] * 3,
            ]
        )
        self._tally.done[f"{name} stopped"] += 1
        if pid == testbed.pid:
            # By a process that is not stopped with it, as a thread's timer
            # would be.
            waker = f"sleep 1; kill -CONT {pid}"
            subprocess.Popen(
                ["/bin/sh", "-c", waker], start_new_session=True
            )
            os.kill(pid, signal.SIGSTOP)
            return
        _signal(pid, signal.SIGSTOP)
        timer = Timer(1.0, _signal, (pid, signal.SIGCONT))
        timer.daemon = True
        timer.start()

    def _fill_disk(self) -> None:
        """All that is left of the folder's file system, and a byte more."""
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
        """All of it; what disagrees has a moment to come right, as after a
        blow.
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
        jobs = self._live._jobs  # noqa: SLF001 - what it believes is what is compared
        tenants = {
            job_id: job.tenant
            for job_id, job in jobs.items()
            if job.tenant is not None
        }
        return [
            *self._network(tuple(tenants.values())),
            *self._groups(),
            *self._ledger(),
        ]

    def _network(self, tenants: tuple[TenantPlan, ...]) -> Iterator[str]:
        """Cables by ``ip``, limits by ``tc``, flows by ``ovs-ofctl``."""
        network, plan = self._emulation.network, self._emulation.plan
        switches = {
            name: (str(switch.run_dir), switch.netns)
            for name, switch in network.switch_of_bridge.items()
        }
        layout = NetworkLayout(
            plan,
            switches,
            self._emulation.controller.openflow_port,
            os.getpid(),
        )
        names = {bridge.name: bridge.name for bridge in plan.bridges}
        names |= {
            vm.slot.port.name: f"{t.job_id}.{vm.index}"
            for t in tenants
            for vm in t.vms
        }
        plans = TenantPlans(tenants, names, network.borrowing)
        lost = {
            link.lower.name
            for number, link in enumerate(plan.links)
            if ("link", number) in self._lost
            or any(
                plan.bridge_of_node[part].name == link.lower.bridge
                for kind, part in self._lost
                if kind == "server"
            )
        }
        # Links, limits and flows. The packets that come after them would
        # take bandwidth from the jobs.
        for check in islice(checks(layout, plans), 3):
            self._tally.compared += check.compared
            if check.name == "links":
                down = {text.split()[0] for text in check.problems}
                yield from (
                    f"links: {name} is down" for name in sorted(down - lost)
                )
                yield from (
                    f"links: {name} carries, and is lost"
                    for name in sorted(lost - down)
                )
            else:
                yield from (
                    f"{check.name}: {text}" for text in check.problems
                )

    def _groups(self) -> Iterator[str]:
        """Each VM's agent is in the VM's own group, which is frozen if its job
        is.
        """
        cgroup = self._emulation.cgroup
        for job_id, job in self._live._jobs.items():  # noqa: SLF001
            for vm in (
                job.tenant.vms
                if job.tenant is not None and not job.over
                else ()
            ):
                self._tally.compared += 1
                if (
                    cgroup.is_frozen(vm.slot.server, vm.slot.index)
                    is not job.frozen
                ):
                    yield f"cgroups: {job_id}.{vm.index} is {'not ' * job.frozen}frozen"

    def _ledger(self) -> Iterator[str]:
        """Each running job has on the network what the ledger has of it; nobody
        else has.
        """
        if self.view is None:
            return
        holdings, jobs = self.view.ledger.holdings(), self._live._jobs  # noqa: SLF001
        self.view.ledger.check()
        running = {
            name for name, job in jobs.items() if job.since_ns is not None
        }
        for job_id in sorted(running ^ holdings.keys()):
            yield f"ledger: {job_id} {'runs' if job_id in running else 'is held'} alone"
        rate = self._live._scale.rate  # noqa: SLF001
        for job_id in sorted(running & holdings.keys()):
            job, held = jobs[job_id], holdings[job_id]
            self._tally.compared += 1
            if (job.placement, job.rate_bps) != (
                held.placement,
                held.rate_bps,
            ):
                yield f"ledger: {job_id} is elsewhere, or at another rate, than on the network"
            if job.tenant is not None and job.tenant.rate_bps != round(
                held.rate_bps * rate
            ):
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
        **{
            f"switch {k}": pid
            for k, pid in enumerate(emulation.network.switch_pids)
            if pid
        },
    }
    return {
        name: psutil.Process(pid).memory_info().rss / 2**20
        for name, pid in pids.items()
    }


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
    devices = [line.split(": ")[1] for line in shown.splitlines()]
    spaces = [path.name for path in Path("/run/netns").glob(f"{prefix}*")]
    return [name for name in devices if name.startswith(prefix)] + spaces


def _results(tallies: list[Tally], left: list[str]) -> list[Result]:
    done: Counter[str] = Counter()
    for tally in tallies:
        done.update(tally.done)
    problems = [
        f"seed {tally.seed}: {text}"
        for tally in tallies
        for text in tally.problems
    ]
    waited = tuple(s for tally in tallies for s in tally.agreed_after_s)
    first, last = (
        tallies[min(1, len(tallies) - 1)].memory_mib,
        tallies[-1].memory_mib,
    )
    grown = {
        name: last[name] - first[name]
        for name in first.keys() & last.keys()
    }
    counts = tuple(float(len(tally.problems)) for tally in tallies)
    things = sum(tally.compared for tally in tallies)
    return [
        Result(
            "disagreements a round",
            "",
            samples=counts,
            target="none",
            meets=not problems,
            extra={
                "comparisons": sum(t.comparisons for t in tallies),
                "things compared": things,
                **dict(sorted(done.items())),
                **({"problems": problems[:20]} if problems else {}),
            },
        ),
        Result("a comparison, until it agrees", "s", waited or (0.0,)),
        Result(
            "left behind",
            "",
            samples=(float(len(left)),),
            target="nothing",
            meets=not left,
            extra={"left": left} if left else {},
        ),
        Result(
            "memory grown since the second round",
            "MiB",
            samples=tuple(grown.values()) or (0.0,),
            target=f"at most {GROWTH_MIB:g} MiB each",
            meets=all(g <= GROWTH_MIB for g in grown.values()),
            extra={
                name: f"{first[name]:.0f} -> {last[name]:.0f}"
                for name in sorted(grown)
            },
        ),
    ]
