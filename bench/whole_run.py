"""A whole ``testbed simulate`` of the KTH log under EASY: what surrounds the engine.

The parts are processor time in one process, without its imports: the engine
with its events written down, the single parsing of those, tables, audit,
report, and all of it with the reading of the log.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.samples import Result
from testbed.audit import audit
from testbed.errors import MachineCannot
from testbed.play.playing import begin_folder, play, simulated
from testbed.record.conclusion import conclude
from testbed.record.event_file import paused_collection
from testbed.record.folder import RunFolder
from testbed.record.reading import read_recording
from testbed.report.page import write_report
from testbed.spec.document import find_file
from testbed.spec.experiment_file import load_experiment

LOG = "KTH-SP2-1996-2.1-cln.swf.gz"
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
    if not quick:
        if find_file(LOG, Path.cwd()) is None:
            hint = "testbed data list says where it comes from"
            raise MachineCannot(f"there is no {LOG}", hint)
        workload = f"{{kind: swf, path: {LOG}}}"
    text = EXPERIMENT.format(workload=workload)
    with tempfile.TemporaryDirectory() as folder:
        # Once before: imports, compiled code.
        runs = [
            timed(text, Path(folder)) for _ in range(2 if quick else 4)
        ][1:]
    return results(runs, judged=not quick)


def results(runs: list[dict[str, float]], *, judged: bool) -> list[Result]:
    """A row a part, and the ratio with its target where it is ``judged``."""
    rows = [
        Result(part, "s", tuple(taken_s[part] for taken_s in runs))
        for part in PARTS
    ]
    ratios = tuple(taken_s["whole"] / taken_s["engine"] for taken_s in runs)
    target = ""
    meets = None
    if judged:
        target = f"at most {TARGET}"
        meets = sorted(ratios)[len(ratios) // 2] <= TARGET
    return [
        *rows,
        Result(
            "whole over engine",
            "",
            samples=ratios,
            target=target,
            meets=meets,
        ),
    ]


def timed(text: str, base: Path) -> dict[str, float]:
    """Seconds of processor time of each part of one run."""
    taken_s: dict[str, float] = {}
    file = base / "whole-run.yaml"
    file.write_text(text, "utf-8")
    with _clocked(taken_s, "whole"):
        experiment = load_experiment(file)
        (policy,) = experiment.policies
        folder = RunFolder.create(base, experiment.name, experiment.seed)
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
        with paused_collection():
            recording = _part(
                taken_s, "events", read_recording, folder.path
            )
            _part(
                taken_s,
                "tables",
                conclude,
                folder,
                experiment.expect,
                name=experiment.name,
                wall_s=taken_s["engine"],
                file=recording,
            )
            checked = _part(taken_s, "audit", audit, folder.path, recording)
            _part(
                taken_s, "report", write_report, folder, checked, recording
            )
    if not checked.passed:
        raise AssertionError(f"the audit of {folder.path} failed")
    return taken_s


def _part(
    taken_s: dict[str, float],
    part: str,
    function: Callable[..., Any],
    *arguments: object,
    **named: object,
) -> Any:
    with _clocked(taken_s, part):
        return function(*arguments, **named)


@contextmanager
def _clocked(taken_s: dict[str, float], part: str) -> Generator[None]:
    began_s = time.process_time()
    yield
    taken_s[part] = time.process_time() - began_s
