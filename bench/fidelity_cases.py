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

import json
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.samples import Result
from bench.spoiling import Spoilt, switch_quota, thieves, wrong_limits
from testbed import events
from testbed.backends.emu.emulation import LiveOptions
from testbed.play.live_run import LiveRun, run_live
from testbed.play.playing import RunRecord
from testbed.record.folder import RunFolder, Sink
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


def run(quick: bool) -> list[Result]:
    """Every case once (``quick``) or three times.

    Each row's samples are the largest measured/estimate; 0 where no job
    finished.
    """
    repeats = 1 if quick else 3
    return [
        _case(name, repeats, settings, spoil, good=name == "good")
        for name, settings, spoil in (
            ("good", {}, nullcontext),
            ("too much rate", {"scale.rate": TOO_MUCH}, nullcontext),
            ("stolen processors", {}, thieves),
            ("starved switch", {}, partial(switch_quota, SWITCH_SHARE)),
            ("wrong limiter", {}, partial(wrong_limits, links=NARROW)),
            ("wrong VM limiter", {}, partial(wrong_limits, caps=NARROW)),
            (
                "limits too wide",
                {},
                partial(wrong_limits, links=WIDE, caps=WIDE),
            ),
        )
    ]


def _case(
    name: str,
    repeats: int,
    settings: dict[str, str],
    spoil: Spoilt,
    *,
    good: bool,
) -> Result:
    verdicts, ratios, finished, findings_of = [], [], [], []
    for _ in range(repeats):
        recorded, findings = _one(settings, spoil)
        summary = recorded.results.summary
        verdicts.append(str(summary.fidelity.verdict))
        ratio = summary.estimate_ratio
        ratios.append(0.0 if ratio is None else ratio.max)
        finished.append(f"{summary.finished} of {summary.jobs}")
        findings_of.append(findings)
    target = (
        "every verdict ok" if good else "no verdict ok unless within 2 %"
    )
    right = True
    for verdict, worst in zip(verdicts, ratios, strict=True):
        # Programs beside jobs that took their time are no fault of the run.
        if good or abs(worst - 1.0) > NEAR:
            right = right and (verdict == "ok") is good
    return Result(
        name,
        "ratio",
        samples=tuple(ratios),
        target=target,
        meets=right,
        extra={
            "verdicts": verdicts,
            "finished": finished,
            "found": findings_of,
        },
    )


def _findings(run: Path) -> dict[str, str]:
    """Findings of the checks of a run that were not passed, by the check's
    name.
    """
    lines = (run / "events.jsonl").read_text(encoding="utf-8").splitlines()
    noted = [
        e
        for e in map(json.loads, lines)
        if e["event"] == events.FidelityNoted.name
    ]
    return {
        e["check"]: f"{e['level']}: {e['reason']}"
        for e in noted
        if e["level"] != "ok"
    }


def _one(
    settings: dict[str, str], spoil: Spoilt
) -> tuple[RunRecord, dict[str, str]]:
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

        show = LiveRun(lambda _: None, spoiling)
        (recorded,) = run_live(
            experiment=experiment,
            top=top,
            options=LiveOptions(prefix="hv", force=True),
            show=show,
            command=["bench"],
        )
        return recorded, _findings(recorded.folder.path)


def _nothing(_: events.Event) -> None:
    """Nobody watches."""
