"""``testbed run FILE``: the experiment on the live network, its table, its verdict."""

from __future__ import annotations

import os
import re
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import console
from testbed.cli.options import ExperimentPath, Json, Lenient, Out, Seed, Settings, overrides_of
from testbed.cli.progress import RunProgress
from testbed.errors import BadInput, MachineCannot
from testbed.results.conclude import conclude_all
from testbed.results.folder import RunFolder
from testbed.spec.load import load_experiment

DEFAULT_OUT = Path("runs")

OpenFlowPort = Annotated[
    int, typer.Option(min=1, max=65535, help="Where the controller listens for switches.")
]
ApiPort = Annotated[int, typer.Option(min=1, max=65535, help="Where the controller's API listens.")]
Prefix = Annotated[
    str,
    typer.Option(help="What the names of bridges and namespaces begin with (1 to 4 letters)."),
]
Library = Annotated[
    str | None, typer.Option("--controller", help="ryu or os-ken (default: ryu if installed).")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit 1 unless the run's validity verdict is ok.")
]


def run(
    file: ExperimentPath,
    settings: Settings = None,
    seed: Seed = None,
    out: Out = None,
    strict: Strict = False,
    openflow_port: OpenFlowPort = 6653,
    api_port: ApiPort = 8653,
    controller: Library = None,
    prefix: Prefix = "hn",
    lenient: Lenient = False,
    as_json: Json = False,
) -> None:
    """Run an experiment on the live emulated network and measure every job.

    Exit codes: 0 good, 1 a result outside its stated band, 2 bad file, 3 this machine cannot,
    4 the run failed, 130 interrupted and cleaned up.
    """
    experiment = load_experiment(file, overrides_of(settings, seed, lenient=lenient))
    if not re.fullmatch(r"[a-z][a-z0-9]{0,3}", prefix):
        raise BadInput(f"--prefix {prefix}: 1 to 4 lower-case letters or digits, a letter first")
    if os.geteuid() != 0:
        raise MachineCannot("the live network needs root", f"sudo testbed run {file}")
    from testbed.backends.emu.world import LiveOptions
    from testbed.report.table import verdict_table
    from testbed.runs.live import LiveRun, run_live

    options = LiveOptions(prefix, openflow_port, api_port, controller)
    top = RunFolder.create(out or DEFAULT_OUT, experiment.name, experiment.seed)
    console.say(f"run folder: {top.path}")
    for note in experiment.workload_notes:
        console.say(note)
    show = LiveRun(console.say, _progress)
    recorded = run_live(experiment, top, options, show, ["testbed", *sys.argv[1:]])
    if len(experiment.policies) > 1:
        conclude_all(top, [one.results for one in recorded])
    bad = any(not one.good for one in recorded)
    doubtful = strict and any(one.results.summary.fidelity.verdict != "ok" for one in recorded)
    if as_json:
        console.print_json([one.to_json() for one in recorded])
    else:
        for one in recorded:
            console.out().print(verdict_table(one.results))
            for line in one.sentences():
                console.print_text(line)
    if bad or doubtful:
        raise typer.Exit(1)


def _progress(
    expected_end_s: dict[str, float], time_scale: float, label: str
) -> AbstractContextManager[RunProgress]:
    return RunProgress(console.err(), expected_end_s, time_scale, label)
