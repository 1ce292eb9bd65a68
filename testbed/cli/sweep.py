"""``testbed sweep FILE``: the file at many values, each cell computed once."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text

from testbed.cli import console, options
from testbed.cli.sweep_progress import shown_progress
from testbed.cli.watch import start_page
from testbed.errors import BadInput
from testbed.units import UnitError, number_of, parse_share

if TYPE_CHECKING:
    from testbed.sweeps.intervals import Stop
    from testbed.sweeps.sweep_folder import Sweep, SweepOptions
    from testbed.sweeps.sweep_plan import PlanOptions

SHOWN_ROWS = 60
SHOWN_REASONS = 5

Over = Annotated[
    list[str] | None,
    typer.Option(
        "--over",
        metavar="KEY=VALUE,…",
        help="Values that a key takes in turn, as workload.load=0.2,0.4 or seed=1..20; in place of"
        " the file's. May be given several times.",
    ),
]
StopAt = Annotated[
    str | None,
    typer.Option(
        "--stop",
        metavar="SHARE",
        help="Seeds are enough where the 95 % interval's half width is this share of the mean.",
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="A metric to show. May be given several times.",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        min=1,
        help="Cells at a time; default: all processors.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="A Dask cluster: tcp://HOST:PORT, slurm, kubernetes or ssh:HOSTS.",
    ),
]
LiveCells = Annotated[
    bool, typer.Option("--live", help="On the live network (needs root).")
]
Again = Annotated[
    bool,
    typer.Option(
        "--again", help="Measure live cells again whose verdict is not ok."
    ),
]
KeepRuns = Annotated[
    bool,
    typer.Option("--keep-runs", help="Keep each cell's whole run folder."),
]
Format = Annotated[
    Literal["csv", "parquet"],
    typer.Option("--format", help="The form of the table of cells."),
]


def sweep(
    file: options.ExperimentPath,
    over: Over = None,
    stop: StopAt = None,
    metrics: Metrics = None,
    out: options.Out = None,
    processes: Processes = None,
    cluster: Cluster = None,
    live: LiveCells = False,
    again: Again = False,
    keep_runs: KeepRuns = False,
    form: Format = "csv",
    watch: options.Watch = False,
    as_json: options.Json = False,
) -> None:
    """Run an experiment at all combinations of values. A cell is computed, or
    measured, once only.

    Exit codes: 0 good, 1 a cell outside its stated band, 2 bad file, 3 this
    machine cannot, 4 a cell failed, 130 interrupted (the same command continues
    where it stopped).
    """
    from testbed.spec.document import read_text
    from testbed.sweeps.sweep_folder import SweepOptions, run_sweep
    from testbed.sweeps.sweep_plan import plan_sweep
    from testbed.sweeps.table_so_far import table_file

    # This reads the file at each value: a mistake at the last one would
    # otherwise be found hours later.
    plan = plan_sweep(
        file, read_text(file), _asked(over, stop, metrics, live=live)
    )
    sweep_options = SweepOptions(
        out=out or SweepOptions.out,
        # Of a container's processors, those that it may use.
        processes=processes or len(os.sched_getaffinity(0)),
        cluster=cluster,
        keep_runs=keep_runs,
        again=again,
        parquet=form == "parquet",
        command=["testbed", *sys.argv[1:]],
    )
    _check_options(sweep_options, live=plan.live)
    if watch:
        table = table_file(sweep_options.out.absolute())
        start_page(str(table), os.getpid())
    with shown_progress(plan.name, "cells") as report:
        done = run_sweep(plan, sweep_options, report, console.say)
    if as_json:
        console.print_json(done)
    else:
        _show(done)
    if done.exit_code:
        raise typer.Exit(done.exit_code)


def _check_options(chosen: SweepOptions, *, live: bool) -> None:
    """Raises BadInput where options exclude each other."""
    if chosen.keep_runs and chosen.cluster is not None:
        raise BadInput(
            "--keep-runs keeps folders on this machine",
            "leave --cluster or it away",
        )
    if chosen.again and not live:
        raise BadInput(
            "--again is for live cells: simulated ones repeat themselves"
        )


def _asked(
    over: list[str] | None,
    stop: str | None,
    metrics: list[str] | None,
    *,
    live: bool,
) -> PlanOptions:
    """The command line's part of the sweep. Raises BadInput."""
    from testbed.spec.sweep_section import read_option
    from testbed.sweeps.sweep_plan import PlanOptions

    return PlanOptions(
        tuple(map(read_option, over or ())),
        stop=None if stop is None else _stop_rule(stop),
        metrics=tuple(metrics or ()),
        live=live,
    )


def _stop_rule(written: str) -> Stop:
    from testbed.spec.document import ScalarError, plain_scalar
    from testbed.sweeps.intervals import Stop

    hint = "write a share, as --stop 2%"
    try:
        # As in a file, where 0.02 is a number.
        share = parse_share(plain_scalar(written))
    except (ScalarError, UnitError) as error:
        raise BadInput(f"--stop {written}: {error}", hint) from None
    if share > 1:
        raise BadInput(f"--stop {written} is more than 100 %", hint)
    return Stop(share)


def _show(done: Sweep) -> None:
    from testbed.sweeps.sweep_tables import outside_reasons

    console.out().print(_table(done))
    if (more := len(done.rows) - SHOWN_ROWS) > 0:
        console.print_text(
            f"and {number_of(more, 'more row')}: see table.csv"
        )
    _print_reasons("failed", done.reasons)
    _print_reasons("outside", outside_reasons(done.rows))
    console.print_text(
        f"{done.sentence}. Tables and picture: {done.folder}"
    )


def _table(done: Sweep) -> Table:
    """The first rows: the keys' values at the left, metrics at the right."""
    from testbed.sweeps.sweep_tables import printed_columns, printed_values

    table = Table(box=None, pad_edge=False, show_edge=False)
    left = len(done.plan.combined)
    for index, column in enumerate(printed_columns(done.plan)):
        table.add_column(
            column,
            overflow="fold",
            justify="left" if index < left else "right",
        )
    for row in done.rows[:SHOWN_ROWS]:
        table.add_row(*map(Text, printed_values(done.plan, row)))
    return table


def _print_reasons(outcome: str, reasons: Iterable[str]) -> None:
    """A line for each reason with its number of cells, the most frequent
    first: one mistake fails hundreds of cells alike.
    """
    counts = Counter(reasons)
    for message, count in counts.most_common(SHOWN_REASONS):
        cells = number_of(count, "cell")
        console.print_text(f"{outcome}, {cells}: {message}")
    left = len(counts) - SHOWN_REASONS
    if left > 0:
        more = number_of(left, "more reason")
        console.print_text(f"{outcome}: {more}, in cells.csv")
