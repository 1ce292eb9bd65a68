"""``testbed import FILE``: networks, workloads and traces of other tools as
experiment files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import console
from testbed.cli.options import Json, Lenient
from testbed.errors import BadInput
from testbed.importing.imported import Imported
from testbed.importing.recognition import KINDS, Kind, import_files
from testbed.record.folder import write_asked_for

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...", help="One file, or a network and its workload."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--out",
        metavar="EXPERIMENT",
        help="The experiment file to write (default: standard output).",
    ),
]
AskedKind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help=f"{', '.join(KINDS)} (default: by the content).",
    ),
]
First = Annotated[
    int | None,
    typer.Option(
        "--first",
        min=1,
        help="So many jobs from the beginning (default: all; of a cluster's trace 1000).",
    ),
]
Whole = Annotated[
    bool,
    typer.Option(
        "--whole",
        help="Refuse a graph of which not all links can be kept.",
    ),
]


def import_(
    files: Files,
    out: Out = None,
    kind: AskedKind = None,
    first: First = None,
    whole: Whole = False,
    lenient: Lenient = False,
    as_json: Json = False,
) -> None:
    """Make an experiment file of a containerlab topology, a GraphML or GML
    graph, a Batsim platform or workload, or Alibaba's batch_task.csv.

    Its comments say what was taken, what was not, and what to choose. Exit code
    2 where a file cannot be imported, or EXPERIMENT is there already.
    """
    # Before the import: what stands in a file may have been edited.
    if out is not None and out.exists():
        raise BadInput(
            f"{out}: is there already", "name another file with -o"
        )
    imported = import_files(
        files, _kind(kind), first, whole=whole, lenient=lenient
    )
    text = imported.text()
    if out is not None:
        write_asked_for("--out", out, text)
    if as_json:
        record = imported.to_json()
        record["file"] = None if out is None else str(out)
        record["experiment"] = text
        console.print_json(record)
        return
    # Standard output has the experiment alone, standard error the notes on it.
    if out is None:
        console.print_text(text)
    _say(imported)
    if out is not None:
        console.say(f"next: testbed validate {out}")


def _kind(name: str | None) -> Kind | None:
    # A loop, so that the type checker sees one of the literals.
    for kind in KINDS:
        if name == kind:
            return kind
    if name is None:
        return None
    raise BadInput(f"--kind {name}: one of {', '.join(KINDS)}")


def _say(imported: Imported) -> None:
    """Says at the terminal what the file's comments say."""
    for sentence in imported.notes.taken:
        console.say(f"taken: {sentence}")
    for sentence in imported.notes.not_taken:
        console.say(f"not taken: {sentence}")
    for sentence in imported.notes.choices:
        console.say(f"choose: {sentence}")
