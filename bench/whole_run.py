"""A whole ``testbed simulate`` of the KTH log under EASY: what surrounds the engine.

The parts are processor time in one process, without its imports: the engine
with its events written down, the single parsing of those, tables, audit,
report, and all of it with the reading of the log.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bench.easy_kth import log_path
from bench.samples import Result
from testbed.audit import Audit, audit
from testbed.play.playing import begin_folder, play, simulated
from testbed.record.conclusion import conclude
from testbed.record.event_file import paused_collection
from testbed.record.folder import RunFolder
from testbed.record.reading import read_recording
from testbed.report.page import write_report
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment

QUICK_JOBS = 1000
TARGET = 2.5
EXPERIMENT = """\
name: whole-run
topology: {{kind: flat, nodes: 100}}
policies: [easy]
workload: {workload}
"""
PARTS = ("engine", "events", "tables", "audit", "report", "whole")


def run(quick: bool) -> list[Result]:
    """Seconds of each part, and the whole over the engine's part."""
    workload = f"{{kind: exponential, jobs: {QUICK_JOBS}, mean_vms: 8}}"
    repeats = 1
    if not quick:
        workload = f"{{kind: swf, path: {log_path().name}}}"
        repeats = 3
    text = EXPERIMENT.format(workload=workload)
    with tempfile.TemporaryDirectory() as name:
        # Once before: imports, compiled code.
        timed(text, Path(name))
        runs = [timed(text, Path(name)) for _ in range(repeats)]
    return results(runs, judged=not quick)


def results(runs: list[dict[str, float]], *, judged: bool) -> list[Result]:
    """A row a part, and the ratio with its target where it is ``judged``."""
    rows = []
    for part in PARTS:
        samples = tuple(taken_s[part] for taken_s in runs)
        rows.append(Result(part, "s", samples))
    ratios = [taken_s["whole"] / taken_s["engine"] for taken_s in runs]
    target = ""
    meets = None
    # The quick workload is so small that other parts outweigh the engine.
    if judged:
        target = f"at most {TARGET}"
        meets = sorted(ratios)[len(ratios) // 2] <= TARGET
    rows.append(
        Result(
            "whole over engine",
            "",
            samples=tuple(ratios),
            target=target,
            meets=meets,
        )
    )
    return rows


def timed(text: str, base: Path) -> dict[str, float]:
    """Seconds of processor time of each part of one run."""
    taken_s: dict[str, float] = {}
    file = base / "whole-run.yaml"
    file.write_text(text, "utf-8")
    with _clocked(taken_s, "whole"):
        experiment = load_experiment(file)
        folder = RunFolder.create(base, experiment.name, experiment.seed)
        _play(experiment, folder, taken_s)
        with paused_collection():
            checked = _conclude(experiment, folder, taken_s)
    if not checked.passed:
        raise AssertionError(f"the audit of {folder.path} failed")
    return taken_s


def _play(
    experiment: Experiment, folder: RunFolder, taken_s: dict[str, float]
) -> None:
    (policy,) = experiment.policies
    begin_folder(
        folder=folder,
        experiment=experiment,
        policy=policy,
        backend="sim",
        command=["bench"],
        facts={},
    )
    with _clocked(taken_s, "engine"), folder.open_events() as log:
        play(experiment, policy, simulated(experiment, policy), log)


def _conclude(
    experiment: Experiment, folder: RunFolder, taken_s: dict[str, float]
) -> Audit:
    """All that is made from the events; they are parsed once."""
    with _clocked(taken_s, "events"):
        recording = read_recording(folder.path)
    with _clocked(taken_s, "tables"):
        conclude(
            folder,
            experiment.expect,
            name=experiment.name,
            wall_s=taken_s["engine"],
            file=recording,
        )
    with _clocked(taken_s, "audit"):
        checked = audit(folder.path, recording)
    with _clocked(taken_s, "report"):
        write_report(folder, checked, recording)
    return checked


@contextmanager
def _clocked(taken_s: dict[str, float], part: str) -> Generator[None]:
    began_s = time.process_time()
    yield
    taken_s[part] = time.process_time() - began_s
