"""``testbed simulate FILE``: the experiment in the simulator, its policies side by side."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import typer

from testbed import events
from testbed.cli import console
from testbed.cli.options import ExperimentPath, Json, Lenient, Out, Seed, Settings, overrides_of
from testbed.results.folder import RunFolder
from testbed.runs.play import Sink
from testbed.spec.load import load_experiment

DEFAULT_OUT = Path("runs")


def simulate(
    file: ExperimentPath,
    settings: Settings = None,
    seed: Seed = None,
    out: Out = None,
    lenient: Lenient = False,
    as_json: Json = False,
) -> None:
    """Run an experiment in the event-driven simulator; needs no root.

    Exit codes: 0 good, 1 a result outside its stated band or an audit that failed, 2 bad file,
    4 the run failed, 130 interrupted.
    """
    experiment = load_experiment(file, overrides_of(settings, seed, lenient=lenient))
    from testbed.report.comparison import comparison_table
    from testbed.runs.simulated import run_simulated

    top = RunFolder.create(out or DEFAULT_OUT, experiment.name, experiment.seed)
    console.say(f"run folder: {top.path}")
    for note in experiment.workload_notes:
        console.say(note)
    recorded = run_simulated(experiment, top, _progress, ["testbed", *sys.argv[1:]])
    if as_json:
        console.print_json([one.to_json() for one in recorded])
    else:
        shown = console.out()
        shown.print(comparison_table([one.results.summary for one in recorded], shown.width))
        for one in recorded:
            for line in one.sentences():
                console.print_text(f"{one.policy}: {line}" if len(recorded) > 1 else line)
    if any(not one.good for one in recorded):
        raise typer.Exit(1)


@contextmanager
def _progress(label: str, jobs: int) -> Generator[Sink, None, None]:
    """A bar that advances with every job that comes or leaves; nothing without a terminal."""
    with console.progress(label, total=2 * jobs) as bars:
        task = bars.task_ids[0]

        def advance(event: events.Event) -> None:
            if isinstance(event, events.JobSubmitted | events.JobEnded):
                bars.update(task, advance=1)

        yield advance
