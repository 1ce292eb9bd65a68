"""``testbed examples [FOLDER]``: the example experiment files, for those who
have no checkout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import console
from testbed.cli.options import Json
from testbed.errors import BadInput
from testbed.owned_files import caller

NOT_COPIED = ("__pycache__", "runs")

Folder = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER", help="The new folder.", show_default="examples"
    ),
]


def examples(
    folder: Folder = Path("examples"), as_json: Json = False
) -> None:
    """Copy the example experiment files into a new folder. Exit code 2 if it is
    there already.
    """
    if folder.exists():
        raise BadInput(
            f"{folder}: is there already",
            "name another: testbed examples FOLDER",
        )
    from testbed.record.folder import RunFolder
    from testbed.spec.document import EXAMPLES

    made = RunFolder(folder, caller())
    made.make("name another: testbed examples FOLDER")
    files = list(map(str, made.copy(EXAMPLES, NOT_COPIED)))
    if as_json:
        console.print_json({"folder": str(folder), "files": files})
        return
    console.print_text("\n".join(files))
    console.say(f"next: testbed simulate {folder}/quickstart.yaml")
