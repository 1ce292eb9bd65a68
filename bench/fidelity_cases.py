"""Live runs known good, and runs spoilt on purpose one cause at a time: the
verdict on each.

- *good*: the network is asked for a fifth of what this machine can forward;
- *too much rate*: the same experiment at many times its rate;
- *stolen processors*: busy processes of the highest priority beside it, while its jobs run;
- *starved switch*: ovs-vswitchd gets a fiftieth of a processor while its jobs run;
- *wrong limiter*: one tenant's classes on links have two fifths of their rate;
- *wrong VM limiter*: the caps of one tenant's VMs have two fifths of theirs;
- *limits too wide*: one tenant's classes and caps have two and a half times theirs.

The causes that come while jobs run come after the preflight, so that it cannot
see them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.samples import Result
from bench.spoiling import Spoilt, switch_quota, thieves, wrong_limits
from testbed import events
from testbed.backends.emu.emulation import LiveOptions
from testbed.play.live_run import LiveRun, run_live
from testbed.play.playing import RunRecord
from testbed.record.event_file import read_events
from testbed.record.folder import EVENTS, RunFolder, Sink
from testbed.spec.experiment_file import load_experiment

EXPERIMENT = """
name: fidelity
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
scale: {rate: 0.05}
policies: [scripted]
workload:
  kind: jobs
  jobs:
    - {id: a, vms: 4, bandwidth: 400 Mbit/s, duration: 8 s, pattern: ring}
    - {id: b, vms: 4, bandwidth: 400 Mbit/s, duration: 8 s, pattern: ring}
"""
TOO_MUCH = "4"
NARROW = 0.4  # a ring across two servers uses half of what its hose reserves there
WIDE = 2.5
SWITCH_SHARE = 0.02
NEAR = 0.02
GOOD = "good"
TOO_MUCH_RATE = "too much rate"
SPOILT: dict[str, Spoilt] = {
    GOOD: nullcontext,
    TOO_MUCH_RATE: nullcontext,
    "stolen processors": thieves,
    "starved switch": partial(switch_quota, SWITCH_SHARE),
    "wrong limiter": partial(wrong_limits, links=NARROW),
    "wrong VM limiter": partial(wrong_limits, caps=NARROW),
    "limits too wide": partial(wrong_limits, links=WIDE, caps=WIDE),
}


def run(quick: bool) -> list[Result]:
    """Every case once (``quick``) or three times.

    Each row's samples are the largest measured/estimate; 0 where no job
    finished.
    """
    repeats = 3
    if quick:
        repeats = 1
    rows = []
    for name, spoil in SPOILT.items():
        settings = {}
        if name == TOO_MUCH_RATE:
            settings["scale.rate"] = TOO_MUCH
        runs = [_one(settings, spoil) for _ in range(repeats)]
        rows.append(_row(name, runs, good=name == GOOD))
    return rows


@dataclass(frozen=True)
class Judged:
    """A run: its verdict, the largest measured/estimate, and why."""

    verdict: str
    worst: float
    finished: str
    findings: dict[str, str]


def _row(name: str, runs: list[Judged], *, good: bool) -> Result:
    target = "no verdict ok unless within 2 %"
    if good:
        target = "every verdict ok"
    right = True
    for judged in runs:
        # Programs beside jobs that took their time are no fault of the run.
        if good or abs(judged.worst - 1.0) > NEAR:
            right = right and (judged.verdict == "ok") is good
    return Result(
        name,
        "ratio",
        samples=tuple(judged.worst for judged in runs),
        target=target,
        meets=right,
        extra={
            "verdicts": [judged.verdict for judged in runs],
            "finished": [judged.finished for judged in runs],
            "found": [judged.findings for judged in runs],
        },
    )


def _findings(run: Path) -> dict[str, str]:
    """Findings of the checks of a run that were not passed, by the check's
    name.
    """
    findings = {}
    for event in read_events(run / EVENTS).events:
        if isinstance(event, events.FidelityNoted) and event.level != "ok":
            findings[event.check] = f"{event.level}: {event.reason}"
    return findings


def _one(settings: dict[str, str], spoil: Spoilt) -> Judged:
    """One live run, spoilt while its jobs run."""
    with TemporaryDirectory(prefix="hosenet-bench-") as folder:
        file = Path(folder) / "fidelity.yaml"
        file.write_text(EXPERIMENT, encoding="utf-8")
        experiment = load_experiment(file, settings)
        top = RunFolder.create(
            Path(folder) / "runs", experiment.name, experiment.seed
        )

        @contextmanager
        def spoiling(*_: object) -> Generator[Sink, None, None]:
            """The progress bar's place: between the preflight and the last job."""
            with spoil():
                yield _nothing

        (recorded,) = run_live(
            experiment=experiment,
            top=top,
            options=LiveOptions(prefix="hv", force=True),
            show=LiveRun(lambda _: None, spoiling),
            command=["bench"],
        )
        return _judged(recorded)


def _judged(recorded: RunRecord) -> Judged:
    summary = recorded.results.summary
    worst = 0.0
    if summary.estimate_ratio is not None:
        worst = summary.estimate_ratio.max
    return Judged(
        verdict=str(summary.fidelity.verdict),
        worst=worst,
        finished=f"{summary.finished} of {summary.jobs}",
        findings=_findings(recorded.folder.path),
    )


def _nothing(_: events.Event) -> None:
    """Nobody watches."""
