"""``testbed run FILE``: the experiment on the live network, its table, its
verdict.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from testbed.cli import console, options
from testbed.cli.machine import require_live
from testbed.cli.run_progress import RunProgress, results_shown, so_far
from testbed.cli.watch import start_page
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment

if TYPE_CHECKING:
    from testbed.backends.emu.emulation import LiveOptions
    from testbed.play.playing import RunRecord, TableFormat


def run(
    file: options.ExperimentPath,
    settings: options.Settings = None,
    seed: options.Seed = None,
    out: options.Out = None,
    strict: options.Strict = False,
    openflow_port: options.OpenFlowPort = 6653,
    api_port: options.ApiPort = 8653,
    controller: options.Library = None,
    prefix: options.Prefix = "hn",
    builder: options.Builder = "batched",
    force: options.Force = False,
    lenient: options.Lenient = False,
    tables: options.Tables = "csv",
    watch: options.Watch = False,
    as_json: options.Json = False,
) -> None:
    """Run an experiment on the live emulated network and measure every job.

    Exit codes: 0 good, 1 a broken reservation, fidelity invalid or a result
    outside its band, 2 bad file, 3 this machine cannot, 4 the run failed, 130
    interrupted and cleaned up.
    """
    experiment = load_experiment(
        file,
        options.overrides_of(settings, seed, lenient=lenient),
    )
    require_live(prefix, f"testbed run {file}")
    from testbed.backends.emu.emulation import LiveOptions

    live = LiveOptions(
        prefix=prefix,
        openflow_port=openflow_port,
        api_port=api_port,
        library=controller,
        force=force,
        builder=builder,
    )
    recorded: list[RunRecord] = []
    sentences = partial(so_far, experiment)
    with results_shown(recorded, _show, sentences, as_json=as_json):
        played_live(
            experiment,
            out,
            live,
            tables=tables,
            recorded=recorded,
            watch=watch,
        )
    if any(is_bad(record, strict=strict) for record in recorded):
        raise typer.Exit(1)


def is_bad(recorded: RunRecord, *, strict: bool) -> bool:
    """A result that exit code 1 reports; under ``--strict`` a doubtful
    fidelity too.
    """
    verdict = recorded.results.summary.fidelity.verdict
    return not recorded.good or (strict and verdict != "ok")


def _show(recorded: Sequence[RunRecord]) -> None:
    from testbed.report.result_tables import verdict_table

    for record in recorded:
        console.out().print(verdict_table(record.results))
        for line in record.sentences():
            console.print_text(line)


def played_live(
    experiment: Experiment,
    out: Path | None,
    live: LiveOptions,
    *,
    tables: TableFormat = "csv",
    recorded: list[RunRecord] | None = None,
    watch: bool = False,
) -> list[RunRecord]:
    """Plays an experiment on the live network, with sentences and bars on
    standard error.

    ``recorded`` is filled policy by policy: whatever stops the run, it has the
    policies that were played.
    """
    from testbed.play.live_run import LiveRun, run_live
    from testbed.play.playing import new_run

    top = new_run(experiment, out, console.say, tables, live=True)
    if watch:
        start_page(str(top.path), os.getpid())
    several = len(experiment.policies) > 1
    progress = partial(RunProgress, console.err(), several=several)
    shown = LiveRun(
        console.say, progress, [] if recorded is None else recorded
    )
    return run_live(
        experiment,
        top,
        options=live,
        show=shown,
        command=["testbed", *sys.argv[1:]],
    )
