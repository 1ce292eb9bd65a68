"""The fidelity verdict against the truth, over disturbances of graded strength.

Each run plays the same jobs beside one disturbance that begins when they do,
after the preflight. The truth is the job that is furthest from its median
measured/estimate, or measured time where there is no estimate, in the
undisturbed runs of the same workload. Workloads: a ring and a shuffle with a
transfer of one VM; a ring and a demand curve; a ring beside iperf3, a command
and computing VMs; jobs without reservations (best effort); leases, of which one
is preempted; a ring that is preempted and resumes elsewhere.

Strengths and order of the disturbances are drawn from ``--seed``, as many mild
ones as severe ones; their kinds are dealt, so that each set has all of them.
Several runs are played on one network, one after another. A run that has ended
is a line of the file ``--to``, and a later call plays the runs that are left.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from fcntl import LOCK_EX, flock
from itertools import islice
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory

from bench.kept_rows import keep_row, kept_rows
from bench.progress import Progress, Step
from bench.samples import Result
from bench.spoiling import (
    GRADED,
    MILD,
    NOTHING,
    SEVERE,
    Disturbance,
    dealt,
)
from testbed import events
from testbed.backends.emu.emulation import LiveOptions
from testbed.play.live_run import LiveRun, run_live
from testbed.play.playing import RunRecord
from testbed.record.folder import RunFolder, Sink
from testbed.record.metrics import JobRow
from testbed.spec.experiment_file import load_experiment

HEAD = """
name: verdicts
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 3}
policies: [POLICY]
expect: {fidelity: invalid}
workload:
  kind: jobs
  jobs:
"""
RING = "    - {id: ring, vms: 4, bandwidth: 200 Mbit/s, duration: 6 s, pattern: ring}\n"
RESERVED = HEAD.replace("POLICY", "fcfs") + RING
BACKFILLED = "{name: bgmbf, evict: needed, migration_cost: 0 s}"
WORKLOADS = {
    "transfers": RESERVED
    + """\
    - {id: shuffle, vms: 3, bandwidth: 200 Mbit/s, duration: 6 s, pattern: all-to-all}
    - {id: lone, vms: 1, bandwidth: 200 Mbit/s, duration: 6 s}
""",
    "demand curve": RESERVED
    + """\
    - id: curve
      kind: demand
      vms: 3
      bandwidth: 200 Mbit/s
      duration: 6 s
      demand:
        - {until: 50 %, at: 100 Mbit/s}
        - {until: 100 %, at: 150 Mbit/s}
      cpu: 10 %
""",
    "programs": RESERVED
    + """\
    - {id: iperf3, kind: iperf3, vms: 2, bandwidth: 200 Mbit/s, duration: 6 s}
    - {id: command, vms: 2, bandwidth: 100 Mbit/s, duration: 6 s, command: [sleep, "6"]}
    - {id: compute, kind: compute, vms: 2, duration: 6 s, cpu: 20 %}
""",
    "best effort": HEAD.replace("POLICY", "bl")
    + RING
    + """\
    - {id: permutation, vms: 4, bandwidth: 200 Mbit/s, duration: 6 s, pattern: permutation}
""",
    "leases": """
name: verdicts
seed: 2
topology: {kind: flat, nodes: 4, slots_per_server: 4}
scale: {time: 720, cpu: 0.05}
policies: [mbfcbs]
expect: {fidelity: invalid}
workload:
  kind: leases
  jobs: 8
  mix: equal
  sizes: [small, medium, large]
  memory: false
  load: 2
  shortest: 30 min
  mean_duration: 1 h
  mean_lead: 30 min
  margin: 3 min
""",
    "preempted": HEAD.replace("POLICY", BACKFILLED)
    + """\
    - {id: first, vms: 6, bandwidth: 200 Mbit/s, duration: 3 s, pattern: ring}
    - {id: head, at: 0.5 s, vms: 10, bandwidth: 200 Mbit/s, duration: 3 s, pattern: ring}
    - {id: behind, at: 1 s, vms: 3, bandwidth: 200 Mbit/s, duration: 6 s, pattern: ring}
""",
}
RATE = "0.05"
TOO_MUCH = "5"
"""Values of ``scale.rate``; no machine keeps up with the second."""
OFF = 0.02
NEAR = 0.01
"""Distances of a run from the truth: above the first no verdict should be ok,
and up to the second none should be anything else.
"""
BATCHES = {
    "transfers": 3,
    "demand curve": 2,
    "programs": 2,
    "best effort": 1,
    "leases": 1,
    "preempted": 2,
}
"""Networks by workload."""
UNDISTURBED = 3
MILD_RUNS = SEVERE_RUNS = 3
"""Runs on each of these networks."""
RUN_S = 9.0
LONG_RUN_S = 13.0
NETWORK_S = 12.0
LONG = ("leases", "preempted")
"""Workloads whose jobs come one after another: a run takes LONG_RUN_S."""
POLITE_S = 1.0
"""Time without the lock, in which another process may take it."""
QUICK = (
    "1 busy loop",
    "2 busy loops",
    "4 busy loops",
    "1 busy loop at nice -20",
    "6 busy loops at nice -20",
    "disk load",
    "switch paused 0.2 s",
    "switch paused 0.5 s",
    "switch paused 2 s",
    "agent paused 1 s",
    "database paused 2 s",
    "controller paused 2 s",
    "switch with 0.5 of a processor",
    "switch with 0.05 of a processor",
    "caps at 0.97",
    "classes and caps at 2",
)


@dataclass(frozen=True)
class Played:
    """A run beside a disturbance: jobs' measured/estimate, and the verdict.

    ``ratios``: of jobs that finished, by job. The name of a job that was
    preempted or migrated says how often, as moving takes time too.
    ``number``: the run's place in its set; ``kind``: the disturbance without
    its strength; ``evidence``: by job, as in ``job_ended``; ``load``: the
    machine's load average.
    """

    workload: str
    name: str
    ratios: dict[str, float]
    verdict: str
    reasons: tuple[str, ...]
    number: int = 0
    kind: str = ""
    evidence: dict[str, dict[str, float | str]] = field(
        default_factory=dict
    )
    load: float = 0.0


@dataclass(frozen=True)
class Batch:
    """Runs that share a network, each with its number in the set."""

    workload: str
    rate: str
    runs: tuple[tuple[int, Disturbance], ...]

    @property
    def expected_s(self) -> float:
        """The time that its runs and the network take."""
        run_s = RUN_S
        if self.workload in LONG:
            run_s = LONG_RUN_S
        return NETWORK_S + run_s * len(self.runs)

    def without(self, numbers: set[int]) -> Batch:
        """The batch but for some of its runs."""
        left = tuple(run_ for run_ in self.runs if run_[0] not in numbers)
        return replace(self, runs=left)


def add_options(parser: argparse.ArgumentParser) -> None:
    """``--seed``, ``--to``, ``--most`` and ``--lock``."""
    parser.add_argument(
        "--seed", type=int, default=1, help="which set of disturbances (1)"
    )
    parser.add_argument(
        "--to",
        type=Path,
        metavar="FILE",
        help="a line for each run that has ended; those in it are not repeated",
    )
    parser.add_argument(
        "--most",
        type=int,
        metavar="N",
        help="play N networks in this call, 0: only print the table of FILE",
    )
    parser.add_argument(
        "--lock",
        type=Path,
        metavar="FILE",
        help="lock FILE while a network is there, for others who use it too",
    )


def planned(seed: int) -> list[Batch]:
    """The batches of a set, in their order; disturbances drawn from ``seed``."""
    stream = Random(seed)  # noqa: S311 an order, not a secret
    shapes = []
    for workload, count in BATCHES.items():
        shapes += [(workload, RATE)] * count
    shapes.append(("transfers", TOO_MUCH))
    stream.shuffle(shapes)
    mild = dealt(stream, MILD)
    severe = dealt(stream, SEVERE)
    batches = []
    number = 0
    for workload, rate in shapes:
        disturbances = _disturbances(rate, mild, severe)
        stream.shuffle(disturbances)
        numbered = tuple(enumerate(disturbances, number))
        number += len(disturbances)
        batches.append(Batch(workload, rate, numbered))
    return batches


def _disturbances(
    rate: str, mild: Iterator[Disturbance], severe: Iterator[Disturbance]
) -> list[Disturbance]:
    """Disturbances of a network's runs; none beside a rate that is too much."""
    if rate == TOO_MUCH:
        return [replace(NOTHING, name="too much rate")] * 2
    return [
        *[NOTHING] * UNDISTURBED,
        *islice(mild, MILD_RUNS),
        *islice(severe, SEVERE_RUNS),
    ]


def _quick() -> list[Batch]:
    """A batch of each of two workloads, with disturbances of fixed strength."""
    some = []
    for disturbance in GRADED:
        if disturbance.name in QUICK:
            some.append(disturbance)
    batches = []
    for place, workload in enumerate(("transfers", "demand curve")):
        # Undisturbed runs at both ends: the machine may change meanwhile.
        disturbances = [NOTHING] * 2 + some[place::2] + [NOTHING]
        # Numbers of a set are unique; no batch has a hundred runs.
        numbered = tuple(enumerate(disturbances, 100 * place))
        batches.append(Batch(workload, RATE, numbered))
    return batches


def run(quick: bool, options: argparse.Namespace) -> list[Result]:
    """Plays the runs of a set that are left, or some others (``quick``).

    Returns the results of all, with those that the file ``--to`` has.
    """
    batches = planned(options.seed)
    if quick:
        batches = _quick()
    played = []
    if options.to is not None:
        played = kept_rows(options.to, Played)
    left = _left(batches, played)[: options.most]
    steps = [Step(batch.workload, batch.expected_s) for batch in left]
    progress = Progress(steps)
    for batch in left:
        with progress.step(), _locked(options.lock):
            played += _play(batch, options.to)
    return results(played)


def _left(
    batches: Sequence[Batch], played: Sequence[Played]
) -> list[Batch]:
    """Batches without the runs that have ended, and without empty batches."""
    done = {run_.number for run_ in played}
    left = []
    for batch in batches:
        rest = batch.without(done)
        if rest.runs:
            left.append(rest)
    return left


@contextmanager
def _locked(path: Path | None) -> Iterator[None]:
    """Holds the lock for the block, so that no other process has a network."""
    if path is None:
        yield
        return
    with path.open("a") as file:
        flock(file, LOCK_EX)
        yield
    # A process that has waited meanwhile comes first.
    time.sleep(POLITE_S)


def _play(batch: Batch, to: Path | None) -> list[Played]:
    """The runs of a batch on one network, one after another."""
    left = iter(batch.runs)
    recorded: list[RunRecord] = []
    played: list[Played] = []

    def note_ended() -> None:
        for place in range(len(played), len(recorded)):
            row = _played(
                batch.workload, batch.runs[place], recorded[place]
            )
            played.append(row)
            write(row, to)

    @contextmanager
    def spoiling(*_: object) -> Iterator[Sink]:
        """Takes the place of the progress bar, which is shown beside the jobs."""
        # The run before this one is over, and is written down before this
        # one can fail.
        note_ended()
        disturbance = next(left)[1]
        with disturbance.spoilt():
            yield _nothing

    with TemporaryDirectory(prefix="hosenet-bench-") as folder:
        show = LiveRun(lambda _: None, spoiling, recorded)
        _run_live(batch, show, Path(folder))
        # Before the folder goes: the last run's events are read, too.
        note_ended()
    return played


def _run_live(batch: Batch, show: LiveRun, folder: Path) -> None:
    file = folder / "verdicts.yaml"
    file.write_text(WORKLOADS[batch.workload], encoding="utf-8")
    experiment = load_experiment(file, {"scale.rate": batch.rate})
    # A policy for each disturbance, as policies are run one after another on
    # one network.
    policies = experiment.policies * len(batch.runs)
    experiment = replace(experiment, policies=policies)
    top = RunFolder.create(folder / "runs", experiment.name, 1)
    run_live(
        experiment=experiment,
        top=top,
        options=LiveOptions(prefix="hv", force=True),
        show=show,
        command=["bench"],
    )


def _nothing(_: events.Event) -> None:
    """Takes an event, which nobody watches."""


def write(played: Played, to: Path | None) -> None:
    """Writes a run that has ended as a line of a file, or on standard error."""
    if to is None:
        sys.stderr.write(f"{json.dumps(asdict(played))}\n")
        return
    keep_row(to, played)
    ratios = " ".join(
        f"{job_id} {ratio:.4f}" for job_id, ratio in played.ratios.items()
    )
    sys.stderr.write(f"{played.name}: {ratios}: {played.verdict}\n")


def _played(
    workload: str, run_: tuple[int, Disturbance], record: RunRecord
) -> Played:
    number, disturbance = run_
    summary = record.results.summary
    ratios = {}
    for row in record.results.rows:
        ratio = _ratio(row)
        if ratio is not None:
            ratios[_name(row)] = ratio
    return Played(
        workload=workload,
        name=disturbance.name,
        ratios=ratios,
        verdict=str(summary.fidelity.verdict),
        reasons=tuple(summary.fidelity.reasons),
        number=number,
        kind=disturbance.kind or disturbance.name,
        evidence=_evidence(record.folder.path / "events.jsonl"),
        load=os.getloadavg()[0],
    )


def _name(row: JobRow) -> str:
    moves = row.preemptions + row.migrations
    if moves == 0:
        return row.job_id
    return f"{row.job_id} moved {moves}"


def _ratio(row: JobRow) -> float | None:
    """Measured time/estimate of a job, or what takes its place.

    Of iperf3, which takes its time at any rate: the bandwidth that it reserved
    over what it received. Of a job without an estimate: its time. None where
    the job did not finish.
    """
    ratio = row.ratio
    if ratio is None:
        ratio = row.measured_s
    if row.iperf3_ratio is not None:
        ratio = 1.0 / row.iperf3_ratio
    return ratio


def _evidence(path: Path) -> dict[str, dict[str, float | str]]:
    """The evidence of jobs' traffic and programs, by job."""
    evidence = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["event"] == events.JobEnded.name:
            evidence[event["job_id"]] = event["detail"].get("evidence", {})
    return evidence


def results(played: Sequence[Played]) -> list[Result]:
    """Rows of verdict against truth, then the three error rates.

    Runs are left out where none of their workload is undisturbed yet.
    """
    outcomes_of = _outcomes(played)
    table = []
    known: list[tuple[float, str]] = []
    for name, outcomes in sorted(outcomes_of.items()):
        known += outcomes
        table.append(_outcomes_row(name, outcomes))
    # Runs between the two distances may have any verdict.
    wrong = []
    right = []
    for off, verdict in known:
        if off > OFF:
            wrong.append(verdict)
        elif off <= NEAR:
            right.append(verdict)
    table.append(_share("off by over 2 %, ok", wrong, "ok", 0.0))
    table.append(_share("within 1 %, invalid", right, "invalid", 0.05))
    table.append(_share("within 1 %, suspect", right, "suspect", 0.20))
    return table


def _outcomes_row(
    name: str, outcomes: Sequence[tuple[float, str]]
) -> Result:
    off_percent = []
    verdicts = []
    for off, verdict in outcomes:
        off_percent.append(100 * off)
        verdicts.append(verdict)
    extra = {"verdicts": " ".join(verdicts), "off": _figures(off_percent)}
    return Result(name, "% off", tuple(off_percent), extra=extra)


def _outcomes(
    played: Sequence[Played],
) -> dict[str, list[tuple[float, str]]]:
    """Distance from the truth and verdict of each run, by kind of disturbance."""
    calm = {run_.workload for run_ in played if run_.name == NOTHING.name}
    outcomes_of: dict[str, list[tuple[float, str]]] = {}
    for run_ in played:
        if run_.workload in calm:
            outcomes = outcomes_of.setdefault(run_.kind or run_.name, [])
            outcomes.append((_off(run_, played), run_.verdict))
    return outcomes_of


def _figures(off: Sequence[float]) -> str:
    return " ".join(f"{value:.1f}" for value in off)


def _off(run_: Played, played: Sequence[Played]) -> float:
    """The distance of a run's worst job from its undisturbed median."""
    calm = _calm_ratios(run_.workload, played)
    distances = [0.0]
    for job_id, ratio in run_.ratios.items():
        usual = [ratios[job_id] for ratios in calm if job_id in ratios]
        # A job that no undisturbed run moved as often, or let finish, has
        # no usual ratio: leases depend on the time of decisions.
        if usual:
            distances.append(abs(ratio / median(usual) - 1.0))
    ended = set.intersection(*map(_jobs, calm))
    # A job that finishes in every undisturbed run but not in this one is off
    # by all of its time.
    if not ended <= _jobs(run_.ratios):
        distances.append(1.0)
    return max(distances)


def _calm_ratios(
    workload: str, played: Sequence[Played]
) -> list[dict[str, float]]:
    """The ratios of each undisturbed run of a workload, by job."""
    calm = []
    for run_ in played:
        if run_.workload == workload and run_.name == NOTHING.name:
            calm.append(run_.ratios)
    return calm


def _jobs(ratios: Mapping[str, float]) -> set[str]:
    """The jobs that finished, by their ids."""
    return {name.partition(" moved ")[0] for name in ratios}


def _share(
    name: str, verdicts: Sequence[str], bad: str, most: float
) -> Result:
    count = sum(verdict == bad for verdict in verdicts)
    share = count / max(1, len(verdicts))
    extra = {"runs": f"{count} of {len(verdicts)}"}
    target = f"at most {most:.0%}"
    return Result(
        name,
        "%",
        samples=(100 * share,),
        target=target,
        meets=share <= most,
        extra=extra,
    )
