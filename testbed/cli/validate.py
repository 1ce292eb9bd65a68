"""``testbed validate FILE...`` and ``testbed schema``: experiment files, right
and wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from testbed.cli import console
from testbed.cli.options import Json, Lenient, Settings, overrides_of
from testbed.spec.document import SpecErrors
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment
from testbed.units import (
    human_capacity,
    number_of,
)
from topologies.datacentre import DataCentre

Files = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help="Experiment files.")
]


def validate(
    files: Files,
    settings: Settings = None,
    lenient: Lenient = False,
    as_json: Json = False,
) -> None:
    """Check experiment files: all their errors at once, with file:line:column.
    Creates nothing.

    Exit code 2 when a file has errors.
    """
    overrides = overrides_of(settings, lenient=lenient)
    results = [_checked(path, overrides) for path in files]
    checked = list(zip(files, results, strict=True))
    if as_json:
        console.print_json(
            [_record(path, result) for path, result in checked]
        )
    else:
        for path, result in checked:
            _print(path, result)
    if any(isinstance(result, SpecErrors) for result in results):
        raise typer.Exit(SpecErrors.exit_code)


def _print(path: Path, result: Experiment | SpecErrors) -> None:
    if isinstance(result, SpecErrors):
        # Errors name their file, line and column themselves.
        console.print_error(result, as_json=False)
        return
    console.print_text(f"{path}: {_summary(result)}")
    for note in result.notes:
        console.print_text(f"{path}: {note}")


def _checked(
    path: Path, overrides: dict[str, str]
) -> Experiment | SpecErrors:
    """The experiment, with every value of its sweep checked too."""
    try:
        experiment = load_experiment(path, overrides)
        if experiment.has_sweep:
            from testbed.sweeps.sweep_plan import plan_sweep

            plan_sweep(path, experiment.source_text)
    except SpecErrors as errors:
        return errors
    return experiment


def _summary(experiment: Experiment) -> str:
    """``ok: tree of 16 servers, 32 slots, 30 links of 1 Gbit/s; 10 jobs;
    policies scripted``.
    """
    centre = experiment.datacentre
    servers = number_of(centre.n_servers, "server")
    slots = number_of(centre.total_slots, "slot")
    jobs = number_of(len(experiment.jobs), "job")
    policies = ", ".join(policy.label for policy in experiment.policies)
    return (
        f"ok: {centre.kind} of {servers}, {slots}{_links(centre)};"
        f" {jobs}; policies {policies}"
    )


def _links(centre: DataCentre) -> str:
    """The links with their three smallest capacities; nothing where there are
    none.
    """
    # A link has two neighbouring entries: up, then down.
    directed_bps = centre.directed_capacity_bps.reshape(-1, 2).tolist()
    capacities = sorted(set(map(tuple, directed_bps)))
    if not capacities:
        return ""
    named = [human_capacity(*both) for both in capacities[:3]]
    return f", {number_of(centre.n_links, 'link')} of {' and '.join(named)}"


def _record(path: Path, result: Experiment | SpecErrors) -> dict[str, Any]:
    if isinstance(result, SpecErrors):
        return {
            "file": str(path),
            "valid": False,
            "problems": result.problems,
        }
    return {
        "file": str(path),
        "valid": True,
        "problems": [],
        "experiment": result.resolved,
    }


def schema(as_json: Json = False) -> None:
    """Print the JSON Schema (draft 2020-12) of experiment files, for editors to
    check against.
    """
    from testbed.spec.json_schema import experiment_schema

    del as_json  # a schema is JSON in any case
    console.print_json(experiment_schema())
