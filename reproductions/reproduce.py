"""``testbed reproduce NAME…``: the papers' figures again, and a verdict for
every claim.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from reproductions.catalogue import (
    FIGURES,
    LIVE_FIGURES,
    figures,
    live_figures,
)
from reproductions.claim_checks import JudgedClaim
from reproductions.figure_runs import (
    Request,
    checked_out,
    reproduce_figure,
    reproduce_live,
    write,
    write_live,
)
from reproductions.figure_tables import points_rows, withheld_text
from reproductions.live_backends import Machine
from reproductions.live_figure import LiveFigure
from reproductions.published_figure import Figure, Reproduced
from testbed.cli import console
from testbed.cli.options import Json
from testbed.cli.run_progress import clock
from testbed.cli.sweep_progress import shown_progress
from testbed.errors import BadInput, TestbedError
from testbed.record.folder import RunFolder
from testbed.sweeps.cluster import executor
from testbed.sweeps.tasks import Executor
from testbed.units import number_of

DEFAULT_OUT = Path("reproduced")
DEFAULT_SEEDS = 3
FIDELITY_STYLES = {
    "ok": "green",
    "suspect": "yellow",
    "invalid": "bold red",
}
STYLES = {
    "reproduced": "green",
    "not reproduced": "bold red",
    "inconclusive": "yellow",
}

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME…", help="As dcloud-fig5; see --list."),
]
ListThem = Annotated[
    bool, typer.Option("--list", help="List what can be reproduced.")
]
All = Annotated[bool, typer.Option("--all", help="Reproduce everything.")]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="A smaller data centre of the same shape; a minute or two.",
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        "--seeds",
        min=1,
        help=(
            "Repetitions, from the first seed that judges; default: what "
            "the rules need."
        ),
    ),
]
MostSeeds = Annotated[
    int,
    typer.Option(
        "--most-seeds",
        min=0,
        metavar="N",
        help=(
            "Double the seeds, up to N, until every claim of the paper is "
            "decided."
        ),
    ),
]
After = Annotated[
    int,
    typer.Option(
        "--after",
        min=0,
        metavar="N",
        help=(
            "Leave the first N seeds out: --seeds more, for a result that "
            "has those already."
        ),
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        min=1,
        help="Runs at a time; default: all processors.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help=(
            "A Dask cluster: tcp://HOST:PORT, slurm, kubernetes or "
            "ssh:HOSTS."
        ),
    ),
]
OutFolder = Annotated[
    Path,
    typer.Option("--out", metavar="FOLDER", help="Where to put results."),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Exit code 1 if a claim is not reproduced."
    ),
]

Live = Annotated[
    bool,
    typer.Option(
        "--live",
        help=(
            "On the live network, with the simulator's results beside "
            "(needs root)."
        ),
    ),
]
Again = Annotated[
    bool,
    typer.Option(
        "--again",
        help="With --live: run those runs again whose verdict is not ok.",
    ),
]


def reproduce(
    names: Names = None,
    list_them: ListThem = False,
    everything: All = False,
    quick: Quick = False,
    seeds: Seeds = None,
    most_seeds: MostSeeds = 0,
    after: After = 0,
    processes: Processes = None,
    cluster: Cluster = None,
    out: OutFolder = DEFAULT_OUT,
    strict: Strict = False,
    live: Live = False,
    again: Again = False,
    as_json: Json = False,
) -> None:
    """Run a published evaluation again. A result is computed, or measured, once
    only.

    Simulated, it needs no root; --live does, unless all its runs are there
    already.

    Exit codes: 0 done, 1 a claim is not reproduced (with --strict), 2 unknown
    name, 3 data are missing or this machine cannot, 4 a live run failed, 130
    interrupted and cleaned up (the same command continues where it stopped).
    """
    if list_them:
        _list(as_json=as_json)
        return
    if live and cluster is not None:
        raise BadInput(
            "--live measures on this machine", "leave --cluster away"
        )
    _refuse_two_plans(again=again, most_seeds=most_seeds, after=after)
    wanted = _wanted(
        names or [], everything=everything, live=live, again=again
    )
    out = checked_out(out)
    # The machine may have more processors than this process may use.
    usable = processes or len(os.sched_getaffinity(0))
    # As it was typed: results name it.
    command = ["testbed", *sys.argv[1:]]
    records: list[dict[str, Any]] = []
    failures: list[TestbedError] = []
    with executor(cluster, usable, console.say) as runs:
        for published in wanted:
            figure = replace(
                published, first_seed=published.first_seed + after
            )
            request = Request(
                out=out,
                seeds=seeds or _default_seeds(figure, quick=quick),
                quick=quick,
                command=command,
                most=most_seeds,
                after=after,
            )
            try:
                record = _one(
                    figure, request, runs, again=again, as_json=as_json
                )
                records.append(record)
            except TestbedError as error:
                # A figure whose logs are not here must not keep the others
                # from being reproduced.
                failures.append(error)
                console.say(f"{figure.name}: {error.message}")
    # With failures the first one's exit code and hint end the command.
    if as_json and not failures:
        console.print_json(records)
    if failures:
        raise failures[0]
    if strict and _any_not_reproduced(records):
        raise typer.Exit(1)


def _refuse_two_plans(*, again: bool, most_seeds: int, after: int) -> None:
    """Raises BadInput where options plan seeds in two ways."""
    if again and most_seeds:
        raise BadInput(
            "--again repeats runs that are there, --most-seeds adds some",
            "give one of them",
        )
    if after and most_seeds:
        # The seeds left out belong to the looks, and are not here.
        raise BadInput(
            "--after adds a fixed number of seeds to a result",
            "leave --most-seeds away",
        )


def _any_not_reproduced(records: Iterable[Mapping[str, Any]]) -> bool:
    """True where a claim of a figure is not reproduced."""
    for record in records:
        for claim in record["claims"]:
            if claim["verdict"] == "not reproduced":
                return True
    return False


def _wanted(
    names: Sequence[str], *, everything: bool, live: bool, again: bool
) -> Sequence[Figure | LiveFigure]:
    """The figures that the command line names. Raises BadInput."""
    if everything and names:
        raise BadInput("give names or --all, not both")
    if again and not live:
        raise BadInput(
            "--again is for --live: simulated runs repeat themselves"
        )
    known: Mapping[str, Figure | LiveFigure] = FIGURES
    if live:
        known = LIVE_FIGURES
    if everything:
        return list(known.values())
    if not names:
        raise BadInput(
            "nothing to reproduce",
            f"name some, or --all: {', '.join(known)}",
        )
    if live:
        return live_figures(names)
    return figures(names)


def _default_seeds(figure: Figure | LiveFigure, *, quick: bool) -> int:
    """The number of seeds where the command line gives none."""
    # At quick size no number is judged: it needs no more seeds.
    if quick:
        return DEFAULT_SEEDS
    return figure.seeds


def _one(
    figure: Figure | LiveFigure,
    request: Request,
    runs: Executor,
    *,
    again: bool,
    as_json: bool,
) -> dict[str, Any]:
    """Reproduces a figure on its backend; returns its record."""
    if request.after and figure.exact:
        raise BadInput(
            f"{figure.name} has nothing random in it",
            "one seed says all: leave --after away",
        )
    if isinstance(figure, LiveFigure):
        return _one_live(figure, request, again=again, as_json=as_json)
    return _one_simulated(figure, request, runs, as_json=as_json)


def _one_simulated(
    figure: Figure, request: Request, runs: Executor, *, as_json: bool
) -> dict[str, Any]:
    with shown_progress(figure.name) as report:
        done = reproduce_figure(figure, request, runs, report)
    folder, record = write(done, request)
    if not as_json:
        _show(done, folder, request.after)
    return {**record, "folder": str(folder.path)}


def _one_live(
    figure: LiveFigure, request: Request, *, again: bool, as_json: bool
) -> dict[str, Any]:
    backends = Machine(
        request.command, f"testbed reproduce {figure.name} --live"
    )
    with shown_progress(figure.name) as report:
        reproduced = reproduce_live(
            figure, request, backends, report, again=again
        )
    folder, record = write_live(reproduced, request)
    if not as_json:
        _show(reproduced.done, folder, request.after)
        _show_runs(record["runs"])
    return {**record, "folder": str(folder.path)}


def _list(*, as_json: bool) -> None:
    """Prints every figure that can be reproduced, simulated ones first."""
    listed: tuple[Figure | LiveFigure, ...] = (
        *FIGURES.values(),
        *LIVE_FIGURES.values(),
    )
    if as_json:
        console.print_json(list(map(_listed, listed)))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("name")
    table.add_column("source")
    table.add_column("title")
    table.add_column("claims", justify="right")
    table.add_column("backend")
    for figure in listed:
        backend = "simulated"
        if isinstance(figure, LiveFigure):
            backend = "live: sudo, --live"
        row = (
            figure.name,
            figure.source,
            figure.title,
            str(len(figure.claims)),
            backend,
        )
        table.add_row(*row)
    console.out().print(table)


def _listed(figure: Figure | LiveFigure) -> dict[str, str]:
    is_live = isinstance(figure, LiveFigure)
    return {
        "name": figure.name,
        "title": figure.title,
        "source": figure.source,
        "backend": "live" if is_live else "simulated",
    }


def _show(done: Reproduced, folder: RunFolder, after: int) -> None:
    """Prints a figure's size, the values of its printed measures, its claims,
    and a sentence on these. ``after``: the number of seeds left out.
    """
    figure = done.figure
    out = console.out()
    size = figure.quick_size if done.quick else figure.size
    if not figure.exact:
        size = f"{size}; {number_of(done.seeds, 'seed')}"
    if after:
        size = f"{size} after the first {after}"
    title = f"{figure.name}: {figure.title} ({figure.source})"
    out.print(Text(title, style="bold"))
    out.print(Text(size, style="dim"), soft_wrap=True)
    for panel in figure.tables:
        if panel.measure in figure.printed:
            header, *points = points_rows(done, panel)
            rows = [list(map(Text, row)) for row in points]
            _print_table(header, rows)
    claims = [_claim_row(judged) for judged in done.judged]
    _print_table(["verdict", "claim", "published", "ours"], claims)
    counts = Counter[str](judged.verdict for judged in done.judged)
    tally = ", ".join(f"{counts[verdict]} {verdict}" for verdict in STYLES)
    text = (
        f"{number_of(len(done.judged), 'claim')}: {tally}. Figure and "
        f"tables: {folder.path}"
    )
    if done.reduced:
        text = f"{withheld_text(done)} {text}"
    if done.seeds < figure.needed:
        text = f"It takes {figure.needed} seeds to decide. {text}"
    out.print(Text(text), soft_wrap=True)


def _show_runs(runs: Sequence[Mapping[str, Any]]) -> None:
    """Prints every live run with its fidelity and its time."""
    rows = []
    for run in runs:
        verdict = str(run["verdict"])
        took = ""
        if run["wall_s"] is not None:
            took = f"{clock(run['wall_s'])} wall"
        row = [
            Text(verdict, style=FIDELITY_STYLES.get(verdict, "")),
            Text(f"{run['series']} at {run['x']:g}, seed {run['seed']}"),
            Text(took),
            Text(run["replay"]),
            Text("; ".join(run["reasons"])),
        ]
        rows.append(row)
    _print_table(["fidelity", "live run", "took", "replayed", "why"], rows)


def _claim_row(judged: JudgedClaim) -> list[Text]:
    claim = judged.claim
    return [
        Text(judged.verdict, style=STYLES[judged.verdict]),
        Text(claim.text),
        Text(claim.published),
        Text(judged.ours),
    ]


def _print_table(header: list[str], rows: list[list[Text]]) -> None:
    """A table that is whole in any terminal and in a pipe."""
    table = Table(box=None, pad_edge=False, show_edge=False)
    for column in header:
        table.add_column(
            column, overflow="fold", no_wrap=column == "verdict"
        )
    for row in rows:
        table.add_row(*row)
    console.out().print(table)
