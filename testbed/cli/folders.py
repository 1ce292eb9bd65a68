"""Where a verb that runs an experiment puts what it leaves."""

from __future__ import annotations

from pathlib import Path

from testbed.cli import console
from testbed.results.folder import RunFolder
from testbed.spec.experiment import Experiment

DEFAULT_OUT = Path("runs")


def new_run(experiment: Experiment, out: Path | None) -> RunFolder:
    """A run folder under ``out``; says where it is, and what is to be known of the workload."""
    top = RunFolder.create(out or DEFAULT_OUT, experiment.name, experiment.seed)
    console.say(f"run folder: {top.path}")
    for note in experiment.workload_notes:
        console.say(note)
    return top
