"""Live fat-trees of hundreds of VMs: round trip, exactness, cost, and the load
where both end.

- *rtt*: ping over the longest way, seven bridges, with every port of the network there;
- *exact*: measured over estimated time of jobs of 32 VMs, each VM sending at its reservation
  (448 VMs at 1 Mbit/s on k=8, 192 at 3 on k=6, 96 at 10 on k=4), and the run's fidelity;
- *crossing*: the same with jobs that do not fill pods, so that the last of them are spread over
  several (3 of 3 on k=4, 3 of 9 on k=6, 6 of 14 on k=8), at half these rates;
- *cost*: in the middle of these runs, the processor time of the testbed's own process, of the
  switches' daemons, the controller and the agents, and the agents' memory;
- *sweep*: rates doubled until a run's fidelity is not ok, one between the last two, by number of
  switch parts; and the largest exact load of four transfers over five bridges.

All runs are those of ``testbed run``, with its preflight, samples and verdict.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, nan
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from bench import aggregate_load
from bench.live_cost import MACHINE, Cost, CostSampler, cpu_s, named
from bench.live_network import (
    PING_EVERY_S,
    PINGS,
    five_switches,
    network,
    pair,
    ping_ms,
    switch_memory_bytes,
    switch_of,
)
from bench.progress import Progress, Step
from bench.samples import Result, quantile
from testbed.backends.emu.emulation import Emulation, LiveOptions
from testbed.errors import RunFailed
from testbed.plan.network_plan import NetworkPlan, network_plan
from testbed.plan.switch_parts import switch_parts
from testbed.play.live_run import LiveRun, run_live
from testbed.play.playing import RunRecord
from testbed.record.folder import PROVENANCE, RunFolder, Sink
from testbed.spec.experiment_file import load_experiment
from topologies.fat_tree import fat_tree

EXPERIMENT = """
name: live-scale
seed: 1
topology: {{kind: fat-tree, k: {k}, links: 1 Gbit/s, slots_per_server: {slots}}}
scale: {{rate: {scale}}}
policies: [vc]
workload:
  kind: jobs
  jobs:
"""
JOB = (
    "    - {{id: j{i}, at: 0 s, vms: {vms}, bandwidth: 100 Mbit/s, duration: {duration_s} s, "
    "pattern: permutation}}\n"
)
BANDWIDTH_MBPS = 100
VMS_PER_JOB = 32
CROSSING = {4: (3, 30), 6: (9, 20), 8: (14, 30)}
"""By k the jobs, and VMs of each, that leave slots in every pod: the last jobs
have theirs in several.
"""
CROSSING_RATE_SHARE = 0.5
LINK_BPS = 1_000_000_000
KINDS = ("rtt", "exact", "crossing", "cost", "sweep")
PLANNED = "planned"

PROBE_BPS = 10_000_000
WAY = 7
"""Bridges between two servers in different pods, with their own."""
GROWTH_TARGET = 2.0
MEDIAN_TARGET = 0.01
P95_TARGET = 0.02
TESTBED_TARGET_CORES = 0.05
AGENT_TARGET_MB = 4.0
SWEEP_PARTS = (1, 2, 4)
MOST_RATE_MBPS = 128.0
LOADS_MBPS = (800, 1200, 1500, 1800, 2100, 2400, 3000)
LOAD_LINK_BPS = 4_000_000_000
LOAD_TARGET_MBPS = 1800
"""One and a half times what one daemon carried before switches had parts."""


@dataclass(frozen=True)
class Size:
    """A fat-tree, the jobs on it, and the rate of each VM at which it is to be
    exact.

    ``up_down_s``: time to bring it up, start all jobs, and take it down.
    """

    k: int
    slots: int
    n_jobs: int
    rate_mbps: float
    duration_s: float
    first_rate_mbps: float
    up_down_s: float
    vms_per_job: int = VMS_PER_JOB

    @property
    def vms(self) -> int:
        return self.n_jobs * self.vms_per_job

    @property
    def crossing(self) -> Size:
        """Jobs of which some have VMs in several pods, at a lower rate."""
        n_jobs, vms_per_job = CROSSING[self.k]
        return replace(
            self,
            n_jobs=n_jobs,
            rate_mbps=CROSSING_RATE_SHARE * self.rate_mbps,
            vms_per_job=vms_per_job,
        )

    @property
    def plan(self) -> NetworkPlan:
        return network_plan(fat_tree(self.k, LINK_BPS, self.slots))


# The longer the slower: jobs take seconds to start, and all VMs are to send for
# most of the time.
SIZES = {
    4: Size(
        k=4,
        slots=8,
        n_jobs=3,
        rate_mbps=10.0,
        duration_s=30.0,
        first_rate_mbps=2.0,
        up_down_s=10.0,
    ),
    6: Size(
        k=6,
        slots=4,
        n_jobs=6,
        rate_mbps=3.0,
        duration_s=30.0,
        first_rate_mbps=1.0,
        up_down_s=20.0,
    ),
    8: Size(
        k=8,
        slots=4,
        n_jobs=14,
        rate_mbps=1.0,
        duration_s=60.0,
        first_rate_mbps=0.5,
        up_down_s=40.0,
    ),
    10: Size(
        k=10,
        slots=2,
        n_jobs=0,
        rate_mbps=0.0,
        duration_s=0.0,
        first_rate_mbps=0.0,
        up_down_s=60.0,
    ),
}
"""k = 10 is there for its ports alone."""
LARGEST_PLAYED_K = max(k for k, size in SIZES.items() if size.n_jobs)


def add_options(parser: argparse.ArgumentParser) -> None:
    """``--only``, ``--k`` and ``--parts``."""
    parser.add_argument(
        "--only", metavar="|".join(KINDS), type=_kinds, default=KINDS
    )
    parser.add_argument(
        "--k", metavar="4,6,8,10", type=_sizes, default=tuple(SIZES)
    )
    parser.add_argument(
        "--parts",
        metavar="planned,1,2,4",
        type=_parts,
        help="switch parts (rtt: planned,1; exact and cost: planned; sweep: 1,2,4)",
    )


def _kinds(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if not set(chosen) <= set(KINDS):
        raise argparse.ArgumentTypeError(
            f"one or more of {', '.join(KINDS)}"
        )
    return chosen


def _sizes(text: str) -> tuple[int, ...]:
    chosen = tuple(map(int, text.split(",")))
    if not set(chosen) <= set(SIZES):
        raise argparse.ArgumentTypeError(
            f"one or more of {', '.join(map(str, SIZES))}"
        )
    return chosen


def _parts(text: str) -> tuple[int | None, ...]:
    """Numbers of parts; None stands for the plan's."""
    parts: list[int | None] = []
    for part in text.split(","):
        if part == PLANNED:
            parts.append(None)
        else:
            parts.append(int(part))
    return tuple(parts)


@dataclass(frozen=True)
class Task:
    """A step of the benchmark and what does it."""

    step: Step
    work: Callable[[Progress], list[Result]]


def run(quick: bool, options: argparse.Namespace) -> list[Result]:
    """Everything asked for; ``quick``: shorter jobs, fewer rates."""
    tasks = _tasks(quick, options)
    progress = Progress([task.step for task in tasks])
    results: list[Result] = []
    for task in tasks:
        with progress.step():
            for result in task.work(progress):
                results.append(result)
                middle = median(result.samples)
                progress.say(f"{result.name}: {middle:.4g} {result.unit}")
    return results + _growth(results)


def _tasks(quick: bool, options: argparse.Namespace) -> list[Task]:
    """The steps that are asked for, with each number of parts and each size."""
    sizes = [SIZES[k] for k in options.k]
    played = [size for size in sizes if size.n_jobs]
    tasks: list[Task] = []
    if "rtt" in options.only:
        tasks += _for_each(options.parts or (None, 1), sizes, _round_trip)
    planned = options.parts or (None,)
    if {"exact", "cost"} & set(options.only):
        exact = partial(_exact, quick=quick, only=options.only)
        tasks += _for_each(planned, played, exact)
    if "crossing" in options.only:
        crossing = [size.crossing for size in played]
        exact = partial(_exact, quick=quick, only=("exact",))
        tasks += _for_each(planned, crossing, exact)
    if "sweep" in options.only:
        parts = options.parts or SWEEP_PARTS
        tasks += _for_each(parts, played, partial(_sweep, quick=quick))
        tasks.append(_loads(parts, quick))
    return tasks


def _for_each(
    parts: Sequence[int | None],
    sizes: Sequence[Size],
    task_of: Callable[[Size, int | None], Task],
) -> list[Task]:
    tasks = []
    for n_parts in parts:
        for size in sizes:
            tasks.append(task_of(size, n_parts))
    return tasks


def _duration_s(size: Size, quick: bool) -> float:
    """The time for which the jobs of a size send."""
    if quick:
        return size.duration_s / 2
    return size.duration_s


def _about(size: Size, n_parts: int | None) -> str:
    """The network in words, with the parts that it really has."""
    if n_parts is None:
        count = len(switch_parts(size.plan))
        return f"k={size.k}, {count} planned {_part_noun(count)}"
    return f"k={size.k}, {n_parts} {_part_noun(n_parts)}"


def _part_noun(count: int) -> str:
    if count == 1:
        return "part"
    return "parts"


# ------------------------------------------------------------------------------------ round trip


def _round_trip(size: Size, n_parts: int | None) -> Task:
    name = f"round trip, {_about(size, n_parts)}"
    step = Step(name, size.up_down_s + PINGS * PING_EVERY_S)
    return Task(step, lambda _: [_pinged(name, size, n_parts)])


def _pinged(name: str, size: Size, n_parts: int | None) -> Result:
    """A ping between the first and the last server, and the network's memory."""
    free = psutil.virtual_memory().available
    with (
        switch_of(n_parts),
        network(fat_tree(size.k, LINK_BPS, size.slots)) as emulation,
    ):
        times = _longest_way_ms(emulation)
        taken = free - psutil.virtual_memory().available
        extra = {
            "machine's memory taken, MiB": taken >> 20,
            "daemons' memory, MiB": switch_memory_bytes(emulation.network)
            >> 20,
            **_counts(emulation),
            "k": size.k,
            "n_parts": n_parts,
        }
    return Result(name, "ms", times, extra=extra)


def _counts(emulation: Emulation) -> dict[str, int]:
    plan = emulation.plan
    return {
        "bridges": len(plan.bridges),
        "ports": len(plan.ports),
        "VMs": len(plan.slots),
        "parts": len(emulation.network.switch_pids),
    }


def _longest_way_ms(emulation: Emulation) -> tuple[float, ...]:
    """Round trips of a tenant whose two VMs are in different pods, in ms."""
    tenant = pair(
        emulation=emulation,
        tenant_id=1,
        slot=0,
        rate_bps=PROBE_BPS,
        servers=(0, emulation.datacentre.n_servers - 1),
    )
    n_bridges = len(tenant.edges) + 1
    if n_bridges != WAY:
        raise RuntimeError(f"the way has {n_bridges} bridges, not {WAY}")
    emulation.admit(tenant)
    sender, receiver = tenant.vms
    return ping_ms(sender.slot.netns, str(receiver.ip))


def _growth(results: Sequence[Result]) -> list[Result]:
    """Row of the round trip on k=8 over that on k=4, both with planned parts;
    no row unless both were measured.
    """
    planned_ms = {}
    for result in results:
        # Only rows of round trips have `n_parts`.
        if result.extra.get("n_parts", 0) is None:
            planned_ms[result.extra["k"]] = median(result.samples)
    if not {4, 8} <= set(planned_ms):
        return []
    growth = planned_ms[8] / planned_ms[4]
    return [
        Result(
            "round trip, k=8 over k=4, planned",
            "ratio",
            samples=(growth,),
            target=f"at most {GROWTH_TARGET:g}",
            meets=growth <= GROWTH_TARGET,
        )
    ]


# ------------------------------------------------------------------------------ exactness and cost


@dataclass(frozen=True)
class Played:
    """A live run: each finished job's measured over estimated time, verdict and
    cost.
    """

    rate_mbps: float
    ratios: tuple[float, ...] = ()
    finished: str = ""
    verdict: str = "failed"
    reasons: tuple[str, ...] = ()
    parts: int = 0
    cost: Cost = field(default_factory=Cost)

    @property
    def ok(self) -> bool:
        return self.verdict == "ok"

    def to_json(self) -> dict[str, Any]:
        """All but the samples of cost, of which the medians."""
        cores = {}
        for kind, samples in self.cost.cores.items():
            cores[kind] = round(median(samples), 3)
        return {
            "rate per VM, Mbit/s": self.rate_mbps,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "measured/estimate": [round(ratio, 4) for ratio in self.ratios],
            "finished": self.finished,
            "parts": self.parts,
            "cores": cores,
        }


def experiment_text(size: Size, rate_mbps: float, duration_s: float) -> str:
    """The experiment file of a size's jobs."""
    text = EXPERIMENT.format(
        k=size.k, slots=size.slots, scale=rate_mbps / BANDWIDTH_MBPS
    )
    for number in range(size.n_jobs):
        text += JOB.format(
            i=number, vms=size.vms_per_job, duration_s=duration_s
        )
    return text


def play(
    size: Size, rate_mbps: float, duration_s: float, n_parts: int | None
) -> Played:
    """The jobs of a size, each VM at a rate on the emulated wire. Raises
    MachineCannot.
    """
    text = experiment_text(size, rate_mbps, duration_s)
    # The first job ends while the last ones, started seconds later, still
    # run.
    sampler = CostSampler(size.n_jobs, max(1, round(duration_s / 8)))
    with (
        TemporaryDirectory(prefix="hosenet-bench-") as folder,
        switch_of(n_parts),
    ):
        try:
            recorded = _run_live(text, Path(folder), sampler)
        except RunFailed as error:
            return Played(rate_mbps, reasons=(str(error),))
        return _played(rate_mbps, recorded, sampler.cost)


def _run_live(text: str, folder: Path, sampler: CostSampler) -> RunRecord:
    """One live run of an experiment file, sampled. Raises RunFailed,
    MachineCannot.
    """
    file = folder / "live-scale.yaml"
    file.write_text(text, encoding="utf-8")
    experiment = load_experiment(file)
    top = RunFolder.create(
        folder / "runs", experiment.name, experiment.seed
    )

    @contextmanager
    def sampling(*_: object) -> Generator[Sink, None, None]:
        with sampler:
            yield sampler

    (recorded,) = run_live(
        experiment=experiment,
        top=top,
        options=LiveOptions(prefix="hb", force=True),
        show=LiveRun(lambda _: None, sampling),
        command=["bench"],
    )
    return recorded


def _played(rate_mbps: float, recorded: RunRecord, cost: Cost) -> Played:
    summary = recorded.results.summary
    provenance = recorded.folder.path / PROVENANCE
    facts = json.loads(provenance.read_text(encoding="utf-8"))
    ratios = []
    for row in recorded.results.rows:
        if row.ratio is not None:
            ratios.append(row.ratio)
    return Played(
        rate_mbps=rate_mbps,
        ratios=tuple(ratios),
        finished=f"{summary.finished} of {summary.jobs}",
        verdict=str(summary.fidelity.verdict),
        reasons=tuple(summary.fidelity.reasons),
        parts=facts["live"]["switch_parts"],
        cost=cost,
    )


def _exact(
    size: Size, n_parts: int | None, quick: bool, only: Sequence[str]
) -> Task:
    """A run whose rows are those of exactness, of cost, or of both."""
    duration_s = _duration_s(size, quick)
    vms = f"{size.vms} VMs in jobs of {size.vms_per_job}"
    name = f"{_about(size, n_parts)}, {vms} at {size.rate_mbps:g} Mbit/s"

    def work(_: Progress) -> list[Result]:
        played = play(size, size.rate_mbps, duration_s, n_parts)
        rows = []
        if "exact" in only:
            rows.append(_exactness(f"exact, {name}", size, played))
        if "cost" in only:
            rows += _costs(name, size, played.cost)
        return rows

    return Task(Step(name, size.up_down_s + duration_s), work)


def _exactness(name: str, size: Size, played: Played) -> Result:
    off = [abs(ratio - 1) for ratio in played.ratios] or [inf]
    middle = median(off)
    high = quantile(off, 0.95)
    meets = (
        played.ok
        and len(played.ratios) == size.n_jobs
        and middle <= MEDIAN_TARGET
        and high <= P95_TARGET
    )
    target = f"off by {MEDIAN_TARGET:.0%} (median), {P95_TARGET:.0%} (p95) at most, fidelity ok"
    return Result(
        name,
        "ratio",
        samples=played.ratios or (nan,),
        target=target,
        meets=meets,
        extra={
            "off, median": round(middle, 4),
            "off, p95": round(high, 4),
            **played.to_json(),
        },
    )


def _costs(name: str, size: Size, cost: Cost) -> list[Result]:
    """Rows of processors by kind of process, and of the agents' memory.

    Targets are missed where nothing was sampled, as a job had not started.
    """
    rows = []
    cores = cost.cores or {"testbed": [nan], MACHINE: [nan]}
    for kind, samples in cores.items():
        row = Result(
            f"{kind}, {name}",
            "cores",
            samples=tuple(samples),
            extra=_processes(kind, cost),
        )
        if kind == "testbed" and size.k == LARGEST_PLAYED_K:
            row = replace(
                row,
                target=f"median at most {TESTBED_TARGET_CORES:g}",
                meets=median(samples) <= TESTBED_TARGET_CORES,
            )
        rows.append(row)
    rows.append(_agents_memory(name, cost))
    return rows


def _processes(kind: str, cost: Cost) -> dict[str, int]:
    """Numbers of processes and of jobs that ended meanwhile, without zeros."""
    counts = {}
    if count := cost.processes.get(kind, 0):
        counts["processes"] = count
    if kind == "testbed" and cost.jobs_ended:
        counts["jobs ended meanwhile"] = cost.jobs_ended
    return counts


def _agents_memory(name: str, cost: Cost) -> Result:
    pss_mb = [n_bytes / 1e6 for n_bytes in cost.agents_pss_bytes] or [nan]
    return Result(
        f"an agent's memory (PSS), {name}",
        "MB",
        samples=tuple(pss_mb),
        target=f"at most {AGENT_TARGET_MB:g} MB each",
        meets=max(pss_mb) <= AGENT_TARGET_MB,
    )


# ------------------------------------------------------------------------------- where it ends


def highest(
    first: float, most: float, passes: Callable[[float], bool]
) -> tuple[float, float | None]:
    """The largest rate tried that passes (0: none), and the least that does not
    (None: none).

    Doubles from ``first`` up to ``most``, or halves at most three times; then
    tries the middle of the last two.
    """
    good = 0.0
    bad = first
    while passes(bad):
        if 2 * bad > most:
            return bad, None
        good = bad
        bad = 2 * bad
    # Only where `first` itself did not pass.
    while not good and bad > first / 8:
        if passes(bad / 2):
            good = bad / 2
        else:
            bad = bad / 2
    if good:
        between = (good + bad) / 2
        if passes(between):
            good = between
        else:
            bad = between
    return good, bad


def _sweep(size: Size, n_parts: int | None, quick: bool) -> Task:
    first_mbps = size.first_rate_mbps
    if quick:
        first_mbps = 2 * first_mbps
    duration_s = _duration_s(size, quick)
    name = f"highest load ok, {_about(size, n_parts)}, {size.vms} VMs"

    def work(progress: Progress) -> list[Result]:
        tried: dict[float, Played] = {}

        def passes(rate_mbps: float) -> bool:
            progress.note(f"{rate_mbps:g} Mbit/s per VM")
            tried[rate_mbps] = play(size, rate_mbps, duration_s, n_parts)
            return tried[rate_mbps].ok

        good, bad = highest(first_mbps, MOST_RATE_MBPS, passes)
        extra = _sweep_extra(good, bad, tried)
        return [Result(name, "Mbit/s", (size.vms * good,), extra=extra)]

    # Some four runs are played until the highest rate is known.
    return Task(Step(name, 4 * (size.up_down_s + duration_s)), work)


def _sweep_extra(
    good: float, bad: float | None, tried: dict[float, Played]
) -> dict[str, Any]:
    """The highest rate, the run that was not ok, and all verdicts by rate."""
    extra: dict[str, Any] = {"rate per VM, Mbit/s": good}
    if bad is not None:
        extra["first that is not ok"] = tried[bad].to_json()
    verdicts = {}
    for rate_mbps, played in sorted(tried.items()):
        verdicts[rate_mbps] = played.verdict
    extra["tried"] = verdicts
    return extra


def _loads(parts: Sequence[int | None], quick: bool) -> Task:
    """The largest load over five bridges at which every transfer stays within
    1 %.
    """
    repeats = 3
    if quick:
        repeats = 1
    load_s = repeats * aggregate_load.DURATION_S + 1.0
    expected_s = len(parts) * (10.0 + len(LOADS_MBPS) * load_s)
    step = Step("largest exact load over five bridges", expected_s)
    return Task(step, partial(_load_rows, parts, repeats))


def _load_rows(
    parts: Sequence[int | None], repeats: int, progress: Progress
) -> list[Result]:
    """A row for each number of parts, then the best of them."""
    rows = [_largest_load(n_parts, repeats, progress) for n_parts in parts]
    best = max(row.samples[0] for row in rows)
    rows.append(
        Result(
            "largest exact load of these",
            "Mbit/s",
            samples=(best,),
            target=f"at least {LOAD_TARGET_MBPS}",
            meets=best >= LOAD_TARGET_MBPS,
        )
    )
    return rows


def _largest_load(
    n_parts: int | None, repeats: int, progress: Progress
) -> Result:
    """Raises the load on one network until a transfer is not exact."""
    largest = 0
    missed: dict[str, Any] = {}
    with (
        switch_of(n_parts),
        network(five_switches(LOAD_LINK_BPS, 4)) as emulation,
    ):
        count = len(emulation.network.switch_pids)
        for load in LOADS_MBPS:
            progress.note(f"{load} Mbit/s over five bridges, {count} parts")
            missed = _missed(emulation, load, repeats)
            if missed:
                break
            largest = load
    name = f"largest exact load, five bridges, {count} {_part_noun(count)}"
    return Result(name, "Mbit/s", (largest,), extra={"missed": missed})


def _missed(
    emulation: Emulation, load_mbps: int, repeats: int
) -> dict[str, Any]:
    """Facts on a load that is not exact: its worst transfer, and the processors
    of each daemon. Empty where all transfers are exact.
    """
    before_s = {pid: cpu_s(pid) for pid in named("ovs-vswitchd")}
    ratios = aggregate_load.ratios_at(emulation, load_mbps, repeats)
    if aggregate_load.exact(ratios):
        return {}
    worst = max(ratios)
    lasted_s = repeats * aggregate_load.DURATION_S * worst
    cores = []
    for pid, began_s in before_s.items():
        cores.append(round((cpu_s(pid) - began_s) / lasted_s, 2))
    return {"at": load_mbps, "worst": worst, "cores by daemon": cores}
