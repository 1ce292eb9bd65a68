"""``testbed clean``: remove what an interrupted run left behind, and nothing else."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated

import typer

from testbed.cli import console
from testbed.cli.options import Json
from testbed.errors import MachineCannot

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be removed.")]


def clean(dry_run: DryRun = False, as_json: Json = False) -> None:
    """Remove exactly what the ledgers of dead runs list. Exit code 3 while a run is alive."""
    if os.geteuid() != 0:
        raise MachineCannot("removing namespaces and bridges needs root", "sudo testbed clean")
    from testbed.backends.emu.cleanup import clean as remove_leftovers

    removed = remove_leftovers(dry_run=dry_run)
    if as_json:
        console.print_json({"dry_run": dry_run, "removed": [asdict(thing) for thing in removed]})
        return
    verb = "would remove" if dry_run else "removed"
    for thing in removed:
        console.print_text(f"{verb} {thing.what} {thing.name}")
    if not removed:
        console.print_text("nothing to remove")
