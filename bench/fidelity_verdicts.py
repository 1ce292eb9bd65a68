"""The fidelity verdict against the truth, over disturbances of graded strength.

Each run plays the same jobs beside one disturbance that begins when they do,
after the preflight. The truth is the job that is furthest from its median
measured/estimate in the undisturbed runs of the same workload. Workloads: a
ring and a shuffle with a transfer of one VM; a ring and a demand curve.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.samples import Result
from bench.spoiling import GRADED, NOTHING, Disturbance
from testbed import events
from testbed.backends.emu.emulation import LiveOptions
from testbed.play.live_run import LiveRun, run_live
from testbed.play.playing import RunRecord
from testbed.record.folder import RunFolder, Sink
from testbed.spec.experiment_file import load_experiment

HEAD = """
name: verdicts
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 3}
policies: [fcfs]
expect: {fidelity: invalid}
workload:
  kind: jobs
  jobs:
    - {id: ring, vms: 4, bandwidth: 200 Mbit/s, duration: 6 s, pattern: ring}
"""
WORKLOADS = {
    "transfers": HEAD
    + """\
    - {id: shuffle, vms: 3, bandwidth: 200 Mbit/s, duration: 6 s, pattern: all-to-all}
    - {id: lone, vms: 1, bandwidth: 200 Mbit/s, duration: 6 s}
""",
    "demand curve": HEAD
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
}
RATE = "0.05"
TOO_MUCH = "1"
OFF, NEAR = 0.02, 0.01
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
    "switch with 0.5 of a processor",
    "switch with 0.05 of a processor",
    "caps at 0.97",
    "classes and caps at 2",
)


@dataclass(frozen=True)
class Played:
    """A run beside a disturbance: jobs' measured/estimate, and the verdict."""

    workload: str
    name: str
    ratios: dict[str, float]
    verdict: str
    reasons: tuple[str, ...]


def run(quick: bool) -> list[Result]:
    """All disturbances twice on each workload, or some once (``quick``)."""
    played: list[Played] = []
    for number, (name, text) in enumerate(WORKLOADS.items()):
        if quick:
            some = [each for each in GRADED if each.name in QUICK]
            plan = [NOTHING] * 2 + some[number::2] + [NOTHING]
        else:
            plan = [NOTHING] * 12 + list(GRADED) * 2
            random.Random(number).shuffle(plan)  # noqa: S311 an order
        played += _batch(name, text, RATE, plan)
    if not quick:
        for name, text in WORKLOADS.items():
            played += _batch(name, text, TOO_MUCH, [NOTHING], "too much rate")
    return _results(played)


def _batch(
    workload: str,
    text: str,
    rate: str,
    plan: Sequence[Disturbance],
    name: str = "",
) -> list[Played]:
    """Runs on one network, one after another."""
    left = iter(plan)

    @contextmanager
    def spoiling(*_: object) -> Iterator[Sink]:
        """The progress bar's place: between the preflight and the last job."""
        with next(left).spoilt():
            yield _nothing

    with TemporaryDirectory(prefix="hosenet-bench-") as folder:
        file = Path(folder) / "verdicts.yaml"
        file.write_text(text, encoding="utf-8")
        experiment = load_experiment(file, {"scale.rate": rate})
        policies = experiment.policies * len(plan)
        experiment = replace(experiment, policies=policies)
        top = RunFolder.create(Path(folder) / "runs", experiment.name, 1)
        recorded = run_live(
            experiment,
            top,
            LiveOptions(prefix="hv", force=True),
            LiveRun(lambda _: None, spoiling),
            ["bench"],
        )
        played = []
        for record, disturbance in zip(recorded, plan, strict=True):
            played.append(_played(workload, name or disturbance.name, record))
        return played


def _nothing(_: events.Event) -> None:
    """Nobody watches."""


def _played(workload: str, name: str, record: RunRecord) -> Played:
    fidelity = record.results.summary.fidelity
    ratios = {}
    for row in record.results.verdicts.rows:
        ratios[row.job_id] = row.ratio or 0.0
    played = Played(
        workload, name, ratios, str(fidelity.verdict), fidelity.reasons
    )
    sys.stderr.write(f"{played}\n")
    return played


def _results(played: Sequence[Played]) -> list[Result]:
    """Rows of verdict against truth, then the three error rates."""
    rows: dict[str, list[tuple[float, str]]] = {}
    for run_ in played:
        rows.setdefault(run_.name, []).append(
            (_off(run_, played), run_.verdict)
        )
    results = []
    for name, outcomes in rows.items():
        verdicts = " ".join(verdict for _, verdict in outcomes)
        off = tuple(100 * off for off, _ in outcomes)
        extra = {"verdicts": verdicts}
        results.append(Result(name, "% off", off, extra=extra))
    every = [outcome for outcomes in rows.values() for outcome in outcomes]
    wrong = [verdict for off, verdict in every if off > OFF]
    right = [verdict for off, verdict in every if off <= NEAR]
    results.append(_share("off by over 2 %, ok", wrong, "ok", 0.0))
    results.append(_share("within 1 %, invalid", right, "invalid", 0.05))
    results.append(_share("within 1 %, suspect", right, "suspect", 0.20))
    return results


def _off(run_: Played, played: Sequence[Played]) -> float:
    """The distance of its worst job from the undisturbed median."""
    calm = [
        other.ratios
        for other in played
        if other.name == NOTHING.name and other.workload == run_.workload
    ]
    distances = []
    for job_id, ratio in run_.ratios.items():
        usual = median(ratios[job_id] for ratios in calm)
        distances.append(abs(ratio / usual - 1.0))
    return max(distances)


def _share(name: str, verdicts: Sequence[str], bad: str, most: float) -> Result:
    count = sum(verdict == bad for verdict in verdicts)
    share = count / max(1, len(verdicts))
    extra = {"runs": f"{count} of {len(verdicts)}"}
    target = f"at most {most:.0%}"
    return Result(name, "%", (100 * share,), target, share <= most, extra)
