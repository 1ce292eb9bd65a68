"""What the verbs that build the live network share: their options, and what they show."""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli import console
from testbed.cli.progress import RunProgress
from testbed.errors import BadInput, MachineCannot

if TYPE_CHECKING:
    from testbed.runs.live import LiveRun

OpenFlowPort = Annotated[
    int, typer.Option(min=1, max=65535, help="Where the controller listens for switches.")
]
ApiPort = Annotated[int, typer.Option(min=1, max=65535, help="Where the controller's API listens.")]
Prefix = Annotated[
    str,
    typer.Option(help="What the names of bridges and namespaces begin with (1 to 4 letters)."),
]
Library = Annotated[
    str | None, typer.Option("--controller", help="ryu or os-ken (default: ryu if installed).")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit 1 unless the run's validity verdict is ok.")
]


def require_live(prefix: str, command: str) -> None:
    """Raises BadInput for a prefix that names nothing, MachineCannot without root."""
    if not re.fullmatch(r"[a-z][a-z0-9]{0,3}", prefix):
        raise BadInput(f"--prefix {prefix}: 1 to 4 lower-case letters or digits, a letter first")
    require_root(command)


def require_root(command: str) -> None:
    """Raises MachineCannot, with the command that has it."""
    if os.geteuid() != 0:
        raise MachineCannot("the live network needs root", f"sudo {command}")


def shown() -> LiveRun:
    """Sentences and progress bars on standard error."""
    from testbed.runs.live import LiveRun

    return LiveRun(console.say, _progress)


def _progress(
    expected_end_s: dict[str, float], time_scale: float, label: str
) -> AbstractContextManager[RunProgress]:
    return RunProgress(console.err(), expected_end_s, time_scale, label)
