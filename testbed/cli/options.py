"""Options that several verbs share, so that they are spelt and explained alike
everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from testbed.cli import console
from testbed.cli.name_completion import run_names
from testbed.errors import (
    BadInput,
    MachineCannot,
    from_checkout,
    install_hint,
)
from testbed.owned_files import from_home

Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON value on standard output."),
]

ExperimentPath = Annotated[
    Path, typer.Argument(metavar="FILE", help="An experiment file.")
]


def run_path(written: str | Path) -> Path:
    """The run folder that an argument names; prints it for a short name."""
    from testbed.record.run_names import run_folder

    path = Path(from_home(str(written)))
    folder = run_folder(path)
    if folder != path:
        console.say(f"{written} is {folder}")
    return folder


RunPath = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        parser=run_path,
        autocompletion=run_names,
        help="A run's folder, its experiment's name, or latest; then /POLICY for one policy.",
    ),
]

Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, help="The seed, in place of the file's."),
]

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A value in place of the file's, as scale.rate=0.05. May be given several times.",
    ),
]

Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FOLDER", help="Where to put results."),
]

PictureFolder = Annotated[
    Path | None,
    typer.Option(
        "--pictures",
        metavar="FOLDER",
        help="Write each picture as SVG and PNG there, its values as CSV.",
    ),
]

Tables = Annotated[
    Literal["csv", "parquet"],
    typer.Option(
        "--format",
        help="parquet: write jobs, links and events as Parquet too, beside the CSV files.",
    ),
]

Lenient = Annotated[
    bool,
    typer.Option(
        "--lenient",
        help="Leave out lines of a trace that cannot be read; count them.",
    ),
]


def overrides_of(
    settings: Sequence[str] | None,
    seed: int | None = None,
    *,
    lenient: bool = False,
) -> dict[str, str]:
    """Overrides for ``load_experiment`` from ``--set``, ``--seed`` and
    ``--lenient``.
    """
    overrides: dict[str, str] = {}
    for setting in settings or ():
        key, value = key_and_value(setting, "scale.rate=0.05")
        overrides[key] = value
    if seed is not None:
        overrides["seed"] = str(seed)
    if lenient:
        overrides["workload.lenient"] = "true"
    return overrides


def key_and_value(setting: str, example: str) -> tuple[str, str]:
    """Key and value of a ``--set``. Raises BadInput, which shows ``example``."""
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise BadInput(
            f"--set {setting}: write it as KEY=VALUE, as {example}"
        )
    return key.strip(), value.strip()


# -- verbs that build the live network


OpenFlowPort = Annotated[
    int,
    typer.Option(
        min=1, max=65535, help="Where the controller listens for switches."
    ),
]
ApiPort = Annotated[
    int,
    typer.Option(
        min=1, max=65535, help="Where the controller's API listens."
    ),
]
Prefix = Annotated[
    str,
    typer.Option(
        help="What the names of bridges and namespaces begin with (1 to 4 letters)."
    ),
]
Library = Annotated[
    str | None,
    typer.Option(
        "--controller", help="ryu or os-ken (default: ryu if installed)."
    ),
]
Builder = Annotated[
    Literal["batched", "plain"],
    typer.Option(
        "--builder",
        help="Who builds it: the testbed in batches, or Mininet (plain).",
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Run even if the preflight says that this machine cannot.",
    ),
]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch", help="Serve a live page meanwhile, and print its link."
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Exit 1 unless the run's fidelity is ok."
    ),
]


def require_root(command: str) -> None:
    """Raises MachineCannot unless root. Its hint is the command with sudo;
    without a checkout, how to install what is needed.
    """
    if os.geteuid() == 0:
        return
    if from_checkout():
        raise MachineCannot(
            "the live network needs root", f"sudo {command}"
        )
    why = "the live network needs root and what provision.sh installs"
    raise MachineCannot(why, install_hint())
