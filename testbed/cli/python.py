"""``testbed python …``: the interpreter that has the testbed, with any arguments."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ARGUMENT…",
        help="Its arguments, as -c 'import testbed', a script, or -m pytest.",
    ),
]


def python(arguments: Arguments = None) -> None:
    """Run Python with the testbed's packages, as `testbed python script.py`.

    Its own environment is where `import testbed` works. The exit code is
    Python's.
    """
    # What is in this process's buffer ends with it.
    sys.stdout.flush()
    os.execv(  # noqa: S606 - the caller's own program
        sys.executable,
        [sys.executable, *(arguments or ())],
    )
