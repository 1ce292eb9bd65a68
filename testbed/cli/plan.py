"""``testbed plan FILE``: the flows and tc text of an experiment; no root, no
effects.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from testbed.backends.emu.machine_checks import machine_limits
from testbed.cli import console, options
from testbed.errors import BadInput
from testbed.plan.vm_limits import processor_weights
from testbed.play.planned import Planned, planned
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment
from testbed.spec.job_entries import launcher_notes
from testbed.units import number_of

JobId = Annotated[
    str | None, typer.Option("--job", help="Only this job's text.")
]
NoNetwork = Annotated[
    bool,
    typer.Option(
        "--tenants-only", help="Leave out what the network itself gets."
    ),
]

SHOWN_NAMES = 5
ANNOUNCED_MB = 5.0


def plan(
    file: options.ExperimentPath,
    settings: options.Settings = None,
    seed: options.Seed = None,
    job: JobId = None,
    tenants_only: NoNetwork = False,
    lenient: options.Lenient = False,
    as_json: options.Json = False,
) -> None:
    """Show what a run would install: bridges, limits, flows; job by job, as
    exact text.

    Placements are the simulator's: live ends that come earlier or later can
    move later jobs.
    """
    experiment = load_experiment(
        file, options.overrides_of(settings, seed, lenient=lenient)
    )
    if job is not None:
        _require(job, experiment)
    if experiment.scale.auto:
        console.say(
            "scale.rate is found by a live run; this is the text at scale.rate: 1"
        )
    network = not tenants_only and job is None
    plans = [
        planned(experiment, policy).only(job, network=network)
        for policy in experiment.policies
    ]
    _announce(plans)
    if network:
        _say_machine(experiment)
    if as_json:
        console.print_json(plans)
        return
    for text in plans:
        console.print_text(
            str(text) or f"### policy {text.policy}: {job} does not start\n"
        )


def _say_machine(experiment: Experiment) -> None:
    """Prints notes that depend on the machine, and so are no part of the plan."""
    limits = machine_limits(experiment.datacentre.slots.tolist())
    console.say(f"on this machine a VM may have {limits}")
    console.say(f"processors: {processor_weights(os.cpu_count() or 1)}")
    for note in launcher_notes(experiment.jobs):
        console.say(note)


def _require(job: str, experiment: Experiment) -> None:
    """Raises BadInput where the experiment has no such job."""
    names = [request.id for request in experiment.jobs]
    if job not in names:
        hint = None
        if names:
            hint = f"jobs are named as {', '.join(names[:SHOWN_NAMES])}"
        raise BadInput(f"{experiment.path} has no job {job!r}", hint)


def _announce(plans: Sequence[Planned]) -> None:
    """Announces the size of a long output."""
    megabytes = sum(text.n_characters for text in plans) / 1e6
    if megabytes > ANNOUNCED_MB:
        tenants = sum(len(text.tenants) for text in plans)
        console.say(
            f"{megabytes:,.0f} MB of text for {number_of(tenants, 'tenant')}; --job NAME shows one"
        )
