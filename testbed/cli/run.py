"""``testbed run FILE``: the experiment on the live network, its table, its verdict."""

from __future__ import annotations

import sys

import typer

from testbed.cli import console
from testbed.cli.options import (
    ApiPort,
    ExperimentPath,
    Json,
    Lenient,
    Library,
    OpenFlowPort,
    Out,
    Prefix,
    Seed,
    Settings,
    Strict,
    new_run,
    overrides_of,
    require_live,
)
from testbed.cli.run_progress import shown
from testbed.spec.experiment_file import load_experiment


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
    require_live(prefix, f"testbed run {file}")
    from testbed.backends.emu.emulation import LiveOptions
    from testbed.report.result_tables import verdict_table
    from testbed.runs.live_run import run_live

    options = LiveOptions(prefix, openflow_port, api_port, controller)
    top = new_run(experiment, out)
    recorded = run_live(experiment, top, options, shown(), ["testbed", *sys.argv[1:]])
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
