"""``testbed reproduce NAME…``: the papers' figures again, and a verdict for
every claim.
"""

from __future__ import annotations

import errno
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
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
from testbed.owned_files import as_it_leads
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
        help="Repetitions, from the first seed that judges; default: what the rules need.",
    ),
]
MostSeeds = Annotated[
    int,
    typer.Option(
        "--most-seeds",
        min=0,
        metavar="N",
        help="Double the seeds, up to N, until every claim of the paper is decided.",
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
        help="A Dask cluster: tcp://HOST:PORT, slurm, kubernetes or ssh:HOSTS.",
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
        help="On the live network, with the simulator's results beside (needs root).",
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
    wanted = _wanted(
        names or [], everything=everything, live=live, again=again
    )
    if live and cluster is not None:
        raise BadInput(
            "--live measures on this machine", "leave --cluster away"
        )
    if live and most_seeds:
        raise BadInput(
            "--most-seeds is for simulated figures",
            "give --live a number of --seeds",
        )
    out = _checked_out(out)
    usable = processes or len(os.sched_getaffinity(0))
    command = ["testbed", *sys.argv[1:]]
    records: list[dict[str, Any]] = []
    failures: list[TestbedError] = []
    with executor(cluster, usable, console.say) as runs:
        for figure in wanted:
            repeated = seeds or (DEFAULT_SEEDS if quick else figure.seeds)
            request = Request(
                out=out,
                seeds=repeated,
                quick=quick,
                command=command,
                most=most_seeds,
            )
            try:
                if isinstance(figure, LiveFigure):
                    records.append(
                        _one_live(
                            figure, request, again=again, as_json=as_json
                        )
                    )
                else:
                    records.append(
                        _one(figure, request, runs, as_json=as_json)
                    )
            except TestbedError as error:
                # A figure whose logs are not here must not keep the others from
                # being reproduced.
                failures.append(error)
                console.say(f"{figure.name}: {error.message}")
    if as_json and not failures:
        console.print_json(records)
    if failures:
        raise failures[0]
    if strict and any(
        c["verdict"] == "not reproduced"
        for r in records
        for c in r["claims"]
    ):
        raise typer.Exit(1)


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
    if not everything and not names:
        known = LIVE_FIGURES if live else FIGURES
        raise BadInput(
            "nothing to reproduce",
            f"name some, or --all: {', '.join(known)}",
        )
    if live:
        return (
            list(LIVE_FIGURES.values())
            if everything
            else live_figures(names)
        )
    return list(FIGURES.values()) if everything else figures(names)


def _checked_out(out: Path) -> Path:
    """The folder without links. Raises BadInput where nothing can be written,
    before anything is computed.
    """
    try:
        there = as_it_leads(out).absolute()
    except RuntimeError:
        raise BadInput(
            f"{out} is a link to itself", "name another folder with --out"
        ) from None
    folder = there
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        why = f"{there} is not a folder"
    elif not os.access(there, os.W_OK | os.X_OK):
        why = f"{there}: {os.strerror(errno.EACCES)}"
    else:
        return folder
    raise BadInput(
        f"nothing can be written into {out}: {why}",
        "name a folder you may write to with --out",
    )


def _one(
    figure: Figure, request: Request, runs: Executor, *, as_json: bool
) -> dict[str, Any]:
    with shown_progress(figure.name) as report:
        done = reproduce_figure(figure, request, runs, report)
    folder, record = write(done, request)
    if not as_json:
        _show(done, folder)
    return {**record, "folder": str(folder.path)}


def _one_live(
    figure: LiveFigure, request: Request, *, again: bool, as_json: bool
) -> dict[str, Any]:
    backends = Machine(
        request.command, f"testbed reproduce {figure.name} --live"
    )
    with shown_progress(figure.name) as report:
        found = reproduce_live(
            figure, request, backends, report, again=again
        )
    folder, record = write_live(found, request)
    if not as_json:
        _show(found.done, folder)
        _show_runs(record["runs"])
    return {**record, "folder": str(folder.path)}


def _list(*, as_json: bool) -> None:
    listed = [
        *((figure, "simulated") for figure in FIGURES.values()),
        *((figure, "live") for figure in LIVE_FIGURES.values()),
    ]
    if as_json:
        console.print_json(
            [
                {
                    "name": f.name,
                    "title": f.title,
                    "source": f.source,
                    "backend": backend,
                }
                for f, backend in listed
            ]
        )
        return
    table = Table(box=None, pad_edge=False)
    for column in ("name", "source", "title", "claims", "backend"):
        table.add_column(
            column, justify="right" if column == "claims" else "left"
        )
    for figure, backend in listed:
        shown = "live: sudo, --live" if backend == "live" else backend
        table.add_row(
            figure.name,
            figure.source,
            figure.title,
            str(len(figure.claims)),
            shown,
        )
    console.out().print(table)


def _show(done: Reproduced, folder: RunFolder) -> None:
    figure, out = done.figure, console.out()
    size = figure.quick_size if done.quick else figure.size
    seeds = (
        ""
        if figure.exact
        else f"; {done.seeds} seed{'s' * (done.seeds > 1)}"
    )
    out.print(
        Text(
            f"{figure.name}: {figure.title} ({figure.source})", style="bold"
        )
    )
    out.print(Text(f"{size}{seeds}", style="dim"), soft_wrap=True)
    for panel in figure.tables:
        if panel.measure in figure.printed:
            header, *points = points_rows(done, panel)
            _print_table(
                header, [[Text(text) for text in row] for row in points]
            )
    claims = [_claim_row(judged) for judged in done.judged]
    _print_table(["verdict", "claim", "published", "ours"], claims)
    counts = Counter[str](judged.verdict for judged in done.judged)
    tally = ", ".join(f"{counts[verdict]} {verdict}" for verdict in STYLES)
    text = f"{number_of(len(done.judged), 'claim')}: {tally}. Figure and tables: {folder.path}"
    if done.reduced:
        text = f"{withheld_text(done)} {text}"
    if done.seeds < figure.needed:
        text = f"It takes {figure.needed} seeds to decide. {text}"
    out.print(Text(text), soft_wrap=True)


def _show_runs(runs: Sequence[Mapping[str, Any]]) -> None:
    """Prints every live run with its fidelity and its time."""
    rows = []
    for run in runs:
        why = "; ".join(run["reasons"])
        rows.append(
            [
                Text(
                    str(run["verdict"]),
                    style=FIDELITY_STYLES.get(str(run["verdict"]), ""),
                ),
                Text(
                    f"{run['series']} at {run['x']:g}, seed {run['seed']}"
                ),
                Text(
                    ""
                    if run["wall_s"] is None
                    else f"{clock(run['wall_s'])} wall"
                ),
                Text(run["replay"]),
                Text(why),
            ]
        )
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
