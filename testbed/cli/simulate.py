"""``testbed simulate FILE``: the experiment in the simulator, its policies side
by side.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed import events
from testbed.cli import console, options
from testbed.cli.name_completion import run_names
from testbed.cli.run_progress import results_shown, so_far
from testbed.record.folder import Sink
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment

if TYPE_CHECKING:
    from testbed.play.playing import RunRecord, TableFormat

ReplayOf = Annotated[
    Path | None,
    typer.Option(
        "--replay",
        metavar="RUN",
        parser=options.run_path,
        autocompletion=run_names,
        help="Decide again at the times and ends of this live run.",
    ),
]


def simulate(
    file: options.ExperimentPath,
    settings: options.Settings = None,
    seed: options.Seed = None,
    out: options.Out = None,
    lenient: options.Lenient = False,
    replay: ReplayOf = None,
    tables: options.Tables = "csv",
    as_json: options.Json = False,
) -> None:
    """Run an experiment in the event-driven simulator; needs no root.

    With --replay RUN the engine is given the times and ends that a live run of
    the same file met; exit code 1 then says that a decision differs from that
    run's.

    Exit codes: 0 good, 1 a result outside its stated band or an audit that
    failed, 2 bad file, 4 the run failed, 130 interrupted.
    """
    experiment = load_experiment(
        file, options.overrides_of(settings, seed, lenient=lenient)
    )
    # After the file has been read: a mistake in it is reported before these
    # modules are imported.
    from testbed.play.playing import failing_run, new_run, run_simulated

    if replay is not None:
        _replay(experiment, replay, out, tables, as_json=as_json)
        return
    top = new_run(experiment, out, console.say, tables)
    recorded: list[RunRecord] = []
    sentences = partial(so_far, experiment)
    with (
        results_shown(recorded, _show, sentences, as_json=as_json),
        failing_run(top),
    ):
        run_simulated(
            experiment,
            top,
            progress=_progress,
            command=["testbed", *sys.argv[1:]],
            recorded=recorded,
        )
    if any(not record.good for record in recorded):
        raise typer.Exit(1)


def _show(recorded: Sequence[RunRecord]) -> None:
    from testbed.report.result_tables import comparison_table

    if not recorded:
        return
    shown = console.out()
    summaries = [record.results.summary for record in recorded]
    shown.print(comparison_table(summaries, shown.width))
    for record in recorded:
        for line in record.sentences():
            console.print_text(
                f"{record.policy}: {line}" if len(recorded) > 1 else line
            )


def _replay(
    experiment: Experiment,
    live: Path,
    out: Path | None,
    tables: TableFormat,
    *,
    as_json: bool,
) -> None:
    from testbed.play.playing import (
        failing_run,
        new_run,
        replay_sources,
        run_replayed,
    )

    # Before a folder is made for it: there may be nothing to replay.
    sources = replay_sources(experiment, live)
    top = new_run(experiment, out, console.say, tables)
    with failing_run(top):
        replays = run_replayed(
            experiment, sources, top, ["testbed", *sys.argv[1:]]
        )
    if as_json:
        console.print_json(replays)
    else:
        for replayed in replays:
            policy = replayed.recorded.policy
            console.print_text(f"{policy}: {replayed.sentence()}")
    if not all(replayed.same for replayed in replays):
        raise typer.Exit(1)


@contextmanager
def _progress(label: str, jobs: int) -> Generator[Sink, None, None]:
    """A bar that advances with every job that comes or leaves; nothing without
    a terminal.
    """
    with console.counted(label, 2 * jobs) as advance:

        def passed(event: events.Event) -> None:
            if isinstance(event, events.JobSubmitted | events.JobEnded):
                advance()

        yield passed
