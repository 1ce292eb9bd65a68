"""``testbed profile APP``: an application's bandwidth sweep, live, and its job
profile.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import console, options
from testbed.cli.machine import require_live
from testbed.cli.run import played_live
from testbed.errors import BadInput
from testbed.record.folder import check_asked_for
from testbed.spec.experiment_file import load_experiment

AppPath = Annotated[
    Path,
    typer.Argument(
        metavar="APP",
        help="An experiment file with a workload of kind ladder.",
    ),
]
To = Annotated[
    Path | None,
    typer.Option(
        "--to",
        metavar="FILE",
        help="Write the profile here too (replaces the file).",
    ),
]


def profile(
    app: AppPath,
    settings: options.Settings = None,
    seed: options.Seed = None,
    out: options.Out = None,
    to: To = None,
    strict: options.Strict = False,
    openflow_port: options.OpenFlowPort = 6653,
    api_port: options.ApiPort = 8653,
    controller: options.Library = None,
    prefix: options.Prefix = "hn",
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Run an application at several bandwidths on the live network; write its
    job profile.

    The profile (bandwidth options with running times up to the no-elongation
    threshold) is what a job's 'profile' names; it lies in the run folder as
    profile.yaml.

    Exit codes: 0 good, 1 a broken reservation, fidelity invalid (with --strict:
    not ok) or a failed audit, 2 bad file, 3 this machine cannot, 4 the run
    failed, 130 interrupted and cleaned up.
    """
    experiment = load_experiment(app, options.overrides_of(settings, seed))
    if experiment.sweep is None:
        raise BadInput(
            f"{app}: workload.kind is {experiment.workload}, and a profile needs ladder",
            "write the application as workload: {kind: ladder, application: ...}; examples/"
            "profile-sort.yaml shows how",
        )
    from testbed.play.profiled import profiled

    if to is not None:
        check_asked_for("--to", to)
    require_live(prefix, f"testbed profile {app}")
    from testbed.backends.emu.emulation import LiveOptions
    from testbed.report.result_tables import profile_table

    live = LiveOptions(prefix, openflow_port, api_port, controller, force)
    (recorded,) = played_live(experiment, out, live)
    found = profiled(experiment, recorded, to)
    if as_json:
        console.print_json(found.to_json())
    else:
        console.out().print(profile_table(found.measured))
        for line in (
            found.measured.sentence(),
            found.measured.model_sentence(),
        ):
            if line is not None:
                console.print_text(line)
        for line in recorded.sentences():
            console.print_text(line)
        console.print_text(f"profile: {found.file}")
    doubtful = strict and recorded.results.summary.fidelity.verdict != "ok"
    if doubtful or not recorded.good:
        raise typer.Exit(1)
