"""``testbed runs [list | rm RUN ...]``: the runs that there are, and their removal."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from testbed.cli import console
from testbed.cli.name_completion import run_names
from testbed.cli.options import Json, run_path
from testbed.errors import BadInput
from testbed.owned_files import from_home
from testbed.record.folder import DEFAULT_OUT
from testbed.record.run_list import (
    LISTED,
    ListedPolicy,
    ListedRun,
    is_run_folder,
    refuse_in_progress,
    remove_run,
    runs_below,
)
from testbed.record.running import NOTE, read_note
from testbed.units import number_of


class Action(StrEnum):
    """Actions of the command."""

    LIST = "list"
    RM = "rm"


Part = Annotated[
    Action,
    typer.Argument(
        metavar="list|rm",
        help="list: the runs in a folder; rm: remove runs.",
    ),
]
Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FOLDER|RUN...]",
        autocompletion=run_names,
        help="list: the folder, else runs; rm: runs by folder, name or latest.",
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Remove without a question.")
]

_STYLES = {
    "ok": "green",
    "suspect": "yellow",
    "outside": "bold red",
    "invalid": "bold red",
    "interrupted": "red",
    "running": "cyan",
}


def runs(
    part: Part = Action.LIST,
    paths: Paths = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """List the runs that there are, the latest first, or remove some.

    Exit codes: 2 no such folder or run, or a run in progress is to be removed.
    """
    if part is Action.RM:
        _remove(paths or [], yes=yes, as_json=as_json)
        return
    if len(paths or []) > 1:
        raise BadInput(
            "testbed runs list takes one folder", "leave the others out"
        )
    written = paths[0] if paths else str(DEFAULT_OUT)
    base = Path(from_home(written))
    listed = runs_below(base)
    if as_json:
        console.print_json(listed)
    elif not listed:
        console.say(f"no runs in {base}")
    else:
        console.out().print(_table(listed))


def _table(listed: list[ListedRun]) -> Table:
    """A row for each policy; a run's first row has what belongs to the run."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("run", overflow="fold")
    table.add_column("began (UTC)", no_wrap=True)
    for heading in ("seed", "policy", "backend"):
        table.add_column(heading)
    for heading in ("jobs", "verdict", "size"):
        table.add_column(heading, no_wrap=True)
    for run in listed:
        began = f"{run.began:%Y-%m-%d %H:%M}"
        seed = "many" if run.seed is None else str(run.seed)
        of_run = [run.name, began, seed]
        size = decimal(run.size_bytes)
        for policy in run.policies or (_before_the_first(run.folder),):
            verdict = Text(policy.verdict, style=_STYLES[policy.verdict])
            row = [*of_run, *_cells(policy)]
            table.add_row(*map(Text, row), verdict, Text(size))
            of_run = ["", "", ""]
            size = ""
    return table


def _before_the_first(folder: Path) -> ListedPolicy:
    """Stands in the table for the policies of a run that has begun none."""
    running = read_note(folder / NOTE) is not None
    return ListedPolicy(None, "running" if running else "interrupted")


def _cells(policy: ListedPolicy) -> tuple[str, str, str]:
    """Policy, backend, and how many jobs or cells."""
    name = policy.policy or ""
    count = ""
    if policy.cells is not None:
        name = "sweep"
        count = number_of(policy.cells, "cell")
    elif policy.jobs is not None:
        count = f"{policy.jobs:,}"
    return name, policy.backend or "", count


def _remove(written: list[str], *, yes: bool, as_json: bool) -> None:
    """Removes runs by their names; all are looked up before the first is
    removed.
    """
    if not written:
        raise BadInput("testbed runs rm needs a RUN", LISTED)
    # A run that is named twice, as by latest, is removed once.
    folders = list(dict.fromkeys(map(_run_to_remove, written)))
    if not yes and sys.stdin.isatty():
        question = f"remove {', '.join(map(str, folders))}?"
        # Standard output has the result alone.
        typer.confirm(question, abort=True, err=True)
    sizes_bytes = {str(folder): remove_run(folder) for folder in folders}
    if as_json:
        console.print_json(
            {
                "removed": list(sizes_bytes),
                "bytes": sum(sizes_bytes.values()),
            }
        )
        return
    for removed, size_bytes in sizes_bytes.items():
        console.print_text(f"removed {removed}, {decimal(size_bytes)}")


def _run_to_remove(name: str) -> Path:
    folder = run_path(name)
    if not is_run_folder(folder):
        raise BadInput(
            f"{name} is not a run, or only a part of one",
            LISTED,
        )
    refuse_in_progress(folder)
    return folder
