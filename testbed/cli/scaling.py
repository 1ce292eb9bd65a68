"""``testbed scaling FILE``: running times at smaller bandwidths against
p·b/b', with p measured.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from testbed.cli import console, options
from testbed.cli.run_progress import clock
from testbed.cli.sweep_progress import shown_progress
from testbed.errors import BadInput, RunFailed
from testbed.units import (
    UnitError,
    human_bandwidth,
    number_of,
    parse_bandwidth,
)

if TYPE_CHECKING:
    from testbed.sweeps.measured_scaling import MeasuredScaling
    from testbed.sweeps.scaling_file import ScalingFile
    from testbed.sweeps.scaling_run import Scaling
    from testbed.sweeps.sweep_plan import SweepPlan

STYLES = {
    "holds": "green",
    "close": "green",
    "violated": "bold red",
    "undecided": "yellow",
}

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Experiment files; of several one table and picture are made, too.",
    ),
]

Bandwidths = Annotated[
    str | None,
    typer.Option(
        "--bandwidths",
        metavar="RATE,…",
        help="The smaller bandwidths b', as 600Mbit/s,300Mbit/s; default: the file's, or 100, 80,"
        " 60, 40 and 20 % of the job's.",
    ),
]
Repetitions = Annotated[
    int,
    typer.Option(
        "--repetitions",
        min=1,
        max=1000,
        help="How often the profile and the sweep are repeated.",
    ),
]
Simulated = Annotated[
    bool,
    typer.Option(
        "--simulated",
        help="By the job's model in the simulator; needs no root, and measures nothing.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Exit code 1 if a bound is violated."),
]
Again = Annotated[
    bool,
    typer.Option(
        "--again", help="Run repetitions again whose verdict is not ok."
    ),
]


def scaling(
    files: Files,
    bandwidths: Bandwidths = None,
    repetitions: Repetitions = 5,
    settings: options.Settings = None,
    seed: options.Seed = None,
    out: options.Out = None,
    simulated: Simulated = False,
    strict: Strict = False,
    again: Again = False,
    as_json: options.Json = False,
) -> None:
    """Profile files' jobs at their bandwidth, run them at smaller ones, and
    compare with DCloud's estimate p·b/b'.

    A repetition is measured once only: the same command continues where it
    stopped.

    Exit codes: 0 done, 1 a bound is violated (with --strict), 2 bad file, 3
    this machine cannot, 4 a repetition failed, 130 interrupted and cleaned up.
    """
    from testbed.sweeps.scaling_run import (
        run_scaling,
        scaling_plan,
        together,
    )
    from testbed.sweeps.sweep_folder import SweepOptions

    # All of them are read before the first is run.
    applications = _scaling_files(files, bandwidths, settings)
    # Seeds are repetitions: the same seed is the same measurement, and is not
    # made twice.
    first_seed = 1 if seed is None else seed
    sweep_options = SweepOptions(
        out=out or SweepOptions.out,
        keep_runs=True,
        again=again,
        command=["testbed", *sys.argv[1:]],
    )
    ended = []
    for application in applications:
        plan = scaling_plan(
            application, first_seed, repetitions, live=not simulated
        )
        if not simulated:
            _announce(plan, application, repetitions)
        with shown_progress(plan.name, "repetitions") as report:
            ended.append(
                run_scaling(plan, sweep_options, report, console.say)
            )
    done = ended[0]
    if len(ended) > 1:
        done = together(
            ended, sweep_options, repetitions, live=not simulated
        )
    if as_json:
        console.print_json({**done.to_json(), "folder": str(done.folder)})
    else:
        _show(done)
    if done.failures:
        raise typer.Exit(RunFailed.exit_code)
    if strict and done.violated:
        raise typer.Exit(1)


def _scaling_files(
    files: Sequence[Path],
    bandwidths: str | None,
    settings: Sequence[str] | None,
) -> list[ScalingFile]:
    """The files with the options' values, ready to be run."""
    from testbed.spec.document import read_text
    from testbed.sweeps.scaling_file import scaling_file

    rates_bps = _bandwidths_bps(bandwidths)
    values = options.overrides_of(settings)
    return [
        scaling_file(file, read_text(file), values, rates_bps)
        for file in files
    ]


def _announce(
    plan: SweepPlan, application: ScalingFile, repetitions: int
) -> None:
    lasts = clock(application.repetition_s)
    number = number_of(repetitions, "repetition")
    console.say(f"{plan.name}: {number} of about {lasts} each")


def _bandwidths_bps(text: str | None) -> tuple[int, ...]:
    """The rates of ``--bandwidths``. Raises BadInput."""
    rates = text.split(",") if text else ()
    bandwidths_bps = []
    for rate in rates:
        try:
            bandwidths_bps.append(parse_bandwidth(rate.strip()))
        except UnitError as error:
            raise BadInput(
                f"--bandwidths {text}: {error}",
                "write rates, as --bandwidths 600Mbit/s,300Mbit/s",
            ) from None
    if 0 in bandwidths_bps:
        raise BadInput(
            f"--bandwidths {text}: a job that sends needs more than 0 bit/s"
        )
    return tuple(bandwidths_bps)


def _show(done: Scaling) -> None:
    for measured in done.measured:
        _show_application(measured)
    for sentence in done.failures:
        console.print_text(f"failed: {sentence}")
    if done.verdicts:
        console.print_text(f"fidelity: {', '.join(done.verdicts)}")
    console.print_text(f"Table and picture: {done.folder}")


def _show_application(measured: MeasuredScaling) -> None:
    asked = human_bandwidth(measured.requested_bps)
    console.print_text(
        f"{measured.application}: p = {measured.profiled.show(3)} s at {asked},"
        f" {len(measured.profiles_s)} repetitions"
    )
    table = Table(box=None, pad_edge=False, show_edge=False)
    for column in ("b'", "estimate [s]", "measured [s]", "ratio"):
        table.add_column(column, justify="right")
    table.add_column("bound")
    table.add_column("network", justify="right")
    for point in measured.points:
        table.add_row(
            human_bandwidth(point.granted_bps),
            point.estimated.show(3),
            point.measured.show(3),
            point.ratio.show(4),
            Text(point.verdict, STYLES.get(point.verdict, "")),
            _share(point.network_share),
        )
    console.out().print(table)
    # Below it: beside the numbers there is no room on eighty columns.
    for point in measured.points:
        if point.reason:
            granted = human_bandwidth(point.granted_bps)
            console.print_text(f"  {granted}: {point.reason}")


def _share(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"
