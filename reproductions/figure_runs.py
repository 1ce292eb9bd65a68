"""Reproductions from cells to files: the grid computed, judged, drawn and written down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproductions.draw import pictures
from reproductions.figure import Figure, Reproduced
from reproductions.record import to_json, to_markdown
from reproductions.store import Store
from reproductions.sweep import Report, sweep
from testbed.results.folder import PROVENANCE, RunFolder, caller
from testbed.results.provenance import provenance

CELLS = "cells"
RESULTS = "results.json"
TABLE = "table.md"
PICTURE = "figure"


@dataclass(frozen=True)
class Request:
    """What is asked for: how many seeds, which size, on how many processors, into which folder."""

    out: Path
    seeds: int
    quick: bool
    processes: int
    command: list[str]


def reproduce_figure(figure: Figure, request: Request, report: Report) -> Reproduced:
    """A figure's cells, those that are stored already not again; raises what stops it."""
    cells = figure.cells(request.seeds, quick=request.quick)
    store = Store(request.out / CELLS)
    results = sweep((c for own in cells.values() for c in own), store, request.processes, report)
    return Reproduced.of(figure, request.seeds, results, quick=request.quick)


def write(done: Reproduced, request: Request) -> tuple[RunFolder, dict[str, Any]]:
    """The figure's folder (``OUT/NAME`` or ``OUT/NAME-quick``), and what its JSON says."""
    name = f"{done.figure.name}-quick" if request.quick else done.figure.name
    folder = RunFolder((request.out / name).absolute(), caller())
    where = provenance(
        seeds={"first": 1, "count": done.seeds}, command=request.command, backend="sim"
    )
    record = to_json(done, request.command, where)
    folder.write_json(RESULTS, record)
    folder.write_text(TABLE, to_markdown(done))
    for kind, content in pictures(done).items():
        folder.write_bytes(f"{PICTURE}.{kind}", content)
    folder.write_json(PROVENANCE, where)
    return folder, record
