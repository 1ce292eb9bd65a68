"""``testbed schema``: the JSON Schema of experiment files, for editors."""

from __future__ import annotations

from testbed.cli import console
from testbed.cli.options import Json
from testbed.spec.json_schema import experiment_schema


def schema(as_json: Json = False) -> None:
    """Print the JSON Schema (draft 2020-12) of experiment files, for editors to check against."""
    del as_json  # a schema is JSON in any case
    console.print_json(experiment_schema())
