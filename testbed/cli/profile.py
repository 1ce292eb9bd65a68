"""``testbed profile APP``: an application's bandwidth sweep, live, and its job
profile.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli import console, options
from testbed.cli.machine import require_live
from testbed.cli.run import is_bad, played_live
from testbed.errors import BadInput
from testbed.record.folder import check_asked_for
from testbed.spec.experiment_file import load_experiment

if TYPE_CHECKING:
    from testbed.play.playing import RunRecord
    from testbed.play.profiled import Profiled

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
    # Imported once the file is known to be right: a mistake in it is reported
    # without waiting for numpy and the emulation.
    from testbed.play.profiled import profiled

    # Before the run, which takes minutes: that a file cannot be written would
    # else be found at its end.
    if to is not None:
        check_asked_for("--to", to)
    require_live(prefix, f"testbed profile {app}")
    from testbed.backends.emu.emulation import LiveOptions

    live = LiveOptions(
        prefix=prefix,
        openflow_port=openflow_port,
        api_port=api_port,
        library=controller,
        force=force,
    )
    # A bandwidth sweep has one policy.
    (recorded,) = played_live(experiment, out, live)
    profile_of_app = profiled(experiment, recorded, to)
    if as_json:
        console.print_json(profile_of_app)
    else:
        _print(profile_of_app, recorded)
    if is_bad(recorded, strict=strict):
        raise typer.Exit(1)


def _print(profile_of_app: Profiled, recorded: RunRecord) -> None:
    from testbed.report.result_tables import profile_table

    measured = profile_of_app.measured
    console.out().print(profile_table(measured))
    sentences = (measured.sentence(), measured.model_sentence())
    for line in (*sentences, *recorded.sentences()):
        if line is not None:
            console.print_text(line)
    console.print_text(f"profile: {profile_of_app.file}")
