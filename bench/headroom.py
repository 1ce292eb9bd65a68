"""Room that the live examples leave on a machine in use.

Each is played as ``testbed run`` (or ``profile``) plays it, beside one process that never stops, a
policy at a time. *needs* is the preflight's load: how much of what the machine can do the plan's
busiest instant takes; *computes* what share of the processors the jobs' own computing takes.

A row is added to ``--results FILE`` as soon as it is known, and what is there is not played again:
an interrupted call is continued. ``--table`` plays nothing. Printed is the docs' table of all rows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from math import inf, nan
from pathlib import Path
from typing import Any

import psutil
import yaml

from bench.kept_rows import keep_row, kept_rows
from bench.progress import Progress, Step
from bench.samples import Result
from testbed import events
from testbed.plan.peak_load import computing_processors
from testbed.play.playing import dry_run
from testbed.record.event_file import read_events
from testbed.record.folder import EVENTS, SUMMARY
from testbed.spec.document import SpecErrors
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment
from testbed.sweeps.child_process import run_child

EXAMPLES = Path(__file__).parents[1] / "examples"
LIVE = (
    "bandwidth-scaling",
    "quickstart",
    "custom-topology",
    "own-controller",
    "failures",
    "elastic",
    "profile-exchange",
    "profile-sort",
    "profile-wordcount",
    "dcloud-fig10",
    "dcloud-fig11",
    "jsa-fig5",
    "bgmbf-live",
    "leases-live",
    "cmbf-fig1",
    "cmcbf-fig2",
    "scaling",
)
"""Examples whose first lines name a verb that plays them on the live network."""
BUSY_LOOP = "while True: pass"
BRING_UP_S = 30.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", metavar="NAME,NAME", type=_names, default=LIVE
    )
    parser.add_argument(
        "--results",
        metavar="FILE",
        type=Path,
        default=Path("headroom.jsonl"),
        help="what is known so far (default headroom.jsonl)",
    )
    parser.add_argument(
        "--within",
        metavar="SECONDS",
        type=float,
        default=inf,
        help="play what takes no longer together, as planned",
    )
    parser.add_argument(
        "--table", action="store_true", help="play nothing, print the table"
    )


def _names(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if not set(chosen) <= set(LIVE):
        raise argparse.ArgumentTypeError(
            f"one or more of {', '.join(LIVE)}"
        )
    return chosen


@dataclass(frozen=True)
class Case:
    """An example under one of its policies."""

    example: str
    policy: str

    @property
    def experiment(self) -> Experiment:
        return _experiment(self.example)

    @property
    def history(self) -> list[events.Event]:
        """Its events as planned."""
        return dry_run(self.experiment, self.experiment.policies[self._at])

    @property
    def wall_s(self) -> float:
        """The length of its run as planned, in s."""
        return BRING_UP_S + self.history[-1].t / self.experiment.scale.time

    @property
    def entry(self) -> Any:
        """Its policy as the file has it: with units."""
        document = yaml.safe_load(self.experiment.source_text)
        return document["policies"][self._at]

    @property
    def _at(self) -> int:
        """The place of its policy in the file."""
        labels = [policy.label for policy in self.experiment.policies]
        return labels.index(self.policy)

    @property
    def command(self) -> list[str]:
        verb = "run"
        if self.experiment.sweep is not None:
            verb = "profile"
        words = [verb, str(EXAMPLES / f"{self.example}.yaml")]
        if len(self.experiment.policies) > 1:
            entry = json.dumps([self.entry])
            words += ["--set", f"policies={entry}"]
        return [sys.executable, "-m", "testbed.cli.main", *words]


@dataclass(frozen=True)
class Outcome:
    """A case as it was played. ``needs`` and ``computes`` are shares; ratios
    are measured over estimated time.
    """

    example: str
    policy: str
    rate: float
    needs: float
    computes: float
    verdict: str
    exit_code: int
    least_ratio: float
    most_ratio: float
    reasons: list[str]
    load_average: float
    complaints: list[str] = field(default_factory=list)


@cache
def _experiment(name: str) -> Experiment:
    return load_experiment(EXAMPLES / f"{name}.yaml")


def _is_playable(name: str) -> bool:
    """True for an example whose trace is found; else prints why it is left out."""
    try:
        _experiment(name)
    except SpecErrors as error:
        sys.stderr.write(f"{name} is left out: {error}\n")
        return False
    return True


def cases(names: tuple[str, ...]) -> Iterator[Case]:
    """Each example under its first policy, then under the others."""
    names = tuple(filter(_is_playable, names))
    # An interrupted call has played something of every example.
    for name in names:
        yield Case(name, _experiment(name).policies[0].label)
    for name in names:
        for policy in _experiment(name).policies[1:]:
            yield Case(name, policy.label)


def run(quick: bool, options: argparse.Namespace) -> list[Result]:
    """A row a case; ``quick``: each example's first policy alone."""
    known = kept_rows(options.results, Outcome)
    if options.table:
        return [_result(outcome) for outcome in known]
    wanted = list(cases(options.only))
    if quick:
        wanted = wanted[: len(options.only)]
    known += _play_missing(wanted, known, options)
    return [_result(outcome) for outcome in known]


def _play_missing(
    wanted: list[Case], known: list[Outcome], options: argparse.Namespace
) -> list[Outcome]:
    chosen = _chosen(wanted, known, options.within)
    steps = []
    for case in chosen:
        steps.append(Step(f"{case.example}, {case.policy}", case.wall_s))
    progress = Progress(steps)
    played: list[Outcome] = []
    for case in chosen:
        with progress.step(), busy_loop():
            outcome = play(case)
        keep_row(options.results, outcome)
        played.append(outcome)
    return played


def _chosen(
    wanted: list[Case], known: list[Outcome], within_s: float
) -> list[Case]:
    """Cases without an outcome, as many as fit into the time."""
    done = {(outcome.example, outcome.policy) for outcome in known}
    left_s = within_s
    chosen = []
    for case in wanted:
        is_new = (case.example, case.policy) not in done
        # One that is too long leaves room for shorter ones after it.
        if is_new and case.wall_s <= left_s:
            left_s -= case.wall_s
            chosen.append(case)
    return chosen


@contextmanager
def busy_loop(program: str = BUSY_LOOP) -> Generator[None]:
    """A Python program beside the block that never stops."""
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def play(case: Case) -> Outcome:
    """Raises RuntimeError where there was no run to judge."""
    load_average = psutil.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="hosenet-bench-") as folder:
        # Interrupted, it takes its network down before this process ends.
        done = run_child([*case.command, "--out", folder])
        folders = [path.parent for path in Path(folder).glob(f"*/{EVENTS}")]
        if not folders:
            output = done.stdout + done.stderr
            raise RuntimeError(f"{case.example}: {output}")
        return _outcome(case, folders[0], done.returncode, load_average)


def _outcome(
    case: Case, folder: Path, exit_code: int, load_average: float
) -> Outcome:
    history = read_events(folder / EVENTS).events
    summary = _summary(folder)
    preflight = _preflight(history)
    scale = case.experiment.scale
    slots = int(case.experiment.datacentre.slots.sum())
    computes = computing_processors(history, slots, scale.cpu)
    # A run that was stopped has a summary without these.
    ratio = summary.get("estimate_ratio") or {}
    fidelity = summary.get("fidelity") or {}
    return Outcome(
        case.example,
        case.policy,
        rate=preflight.get("scale_rate", scale.rate),
        needs=preflight.get("load", 0.0),
        computes=computes / (psutil.cpu_count() or 1),
        verdict=fidelity.get("verdict") or "none",
        exit_code=exit_code,
        least_ratio=ratio.get("min", nan),
        most_ratio=ratio.get("max", nan),
        reasons=list(fidelity.get("reasons", ())),
        load_average=load_average,
        complaints=_complaints(summary),
    )


def _preflight(history: Sequence[events.Event]) -> dict[str, Any]:
    """The figures that the last preflight found; none without one."""
    figures: dict[str, Any] = {}
    for event in history:
        match event:
            case events.FidelityNoted(check="preflight"):
                figures = event.figures
    return figures


def _complaints(summary: dict[str, Any]) -> list[str]:
    """Reasons for exit code 1 beside the verdict: jobs and expectations."""
    expectations = summary.get("expectations") or {}
    return list(expectations.get("complaints", ()))


def _summary(folder: Path) -> dict[str, Any]:
    file = folder / SUMMARY
    if not file.exists():
        return {}
    summary: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return summary


def _result(outcome: Outcome) -> Result:
    meets = outcome.verdict == "ok" and outcome.exit_code == 0
    return Result(
        f"{outcome.example}, {outcome.policy}",
        "share",
        samples=(outcome.needs,),
        target="ok, exit code 0",
        meets=meets,
        extra=asdict(outcome),
    )


HEADINGS = (
    "example, policy",
    "`scale.rate`",
    "needs",
    "computes",
    "measured/estimate",
    "verdict, exit code",
    "load average",
)


def table(results: Sequence[Result]) -> str:
    """Markdown, a line an example and policy."""
    lines = [_line(HEADINGS), _line(["---"] * len(HEADINGS))]
    for result in results:
        outcome = Outcome(**result.extra)
        cells = (
            f"{outcome.example}, {outcome.policy}",
            f"{outcome.rate:g}",
            f"{outcome.needs:.0%}",
            f"{outcome.computes:.0%}",
            f"{outcome.least_ratio:.3f} to {outcome.most_ratio:.3f}",
            f"`{outcome.verdict}`, {outcome.exit_code}",
            f"{outcome.load_average:.1f}",
        )
        lines.append(_line(cells))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
