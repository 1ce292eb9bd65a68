"""Options that several verbs share, so that they are spelt and explained alike everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from testbed.errors import BadInput

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on standard output.")]
"""``as_json: Json = False``."""

ExperimentPath = Annotated[Path, typer.Argument(metavar="FILE", help="An experiment file.")]

Seed = Annotated[
    int | None, typer.Option("--seed", min=0, help="The seed, in place of the file's.")
]
"""``seed: Seed = None``."""

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A value in place of the file's, as scale.rate=0.05. May be given several times.",
    ),
]
"""``settings: Settings = None``."""

Out = Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="Where to put results.")]
"""``out: Out = None``."""


Lenient = Annotated[
    bool,
    typer.Option("--lenient", help="Leave out lines of a trace that cannot be read; count them."),
]
"""``lenient: Lenient = False``."""


def overrides_of(
    settings: Sequence[str] | None, seed: int | None = None, *, lenient: bool = False
) -> dict[str, str]:
    """What ``load_experiment`` takes, from ``--set``, ``--seed`` and ``--lenient``."""
    overrides: dict[str, str] = {}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise BadInput(f"--set {setting}: write it as KEY=VALUE, as scale.rate=0.05")
        overrides[key.strip()] = value.strip()
    if seed is not None:
        overrides["seed"] = str(seed)
    if lenient:
        overrides["workload.lenient"] = "true"
    return overrides
