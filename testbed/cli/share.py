"""``testbed share RUN``: a run as one file that opens in any browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from testbed.cli import console
from testbed.cli.options import Json, RunPath
from testbed.record.folder import write_asked_for

Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Default: NAME.html, here."),
]


def share(run: RunPath, out: Out = None, as_json: Json = False) -> None:
    """Write a run as one HTML file, to be sent to others: it shows the run as
    testbed watch does, and needs neither a server nor the network.

    Exit codes: 2 no such run, or a damaged one.
    """
    from testbed.web.shared_page import shared_page

    page = shared_page(run)
    file = out or Path(f"{run.resolve().name}.html")
    write_asked_for("--out", file, page)
    size_bytes = file.stat().st_size
    console.print_result(
        {"file": str(file), "bytes": size_bytes},
        f"{file}, {decimal(size_bytes)}",
        as_json=as_json,
    )
