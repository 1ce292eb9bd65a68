"""``testbed report RUN``: ``report.html`` anew, from the run folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import console
from testbed.cli.options import Json
from testbed.report.page import write_report
from testbed.results.folder import RunFolder

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as runs/2026….")]


def report(run: RunPath, as_json: Json = False) -> None:
    """Write a run's report.html again, from what lies in its folder, and print where it is.

    Exit code 2 where the folder is no run folder, or is damaged.
    """
    console.say(f"reading {run}")
    path = write_report(RunFolder.open(run))
    if as_json:
        console.print_json({"report": str(path), "bytes": path.stat().st_size})
    else:
        console.print_text(str(path))
