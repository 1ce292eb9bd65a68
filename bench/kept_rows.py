"""Rows that a benchmark keeps as soon as it has them: a later call continues.

A line of JSON each, in a file that its options name.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = TypeVar("Row", bound="DataclassInstance")


def kept_rows(file: Path, kind: type[Row]) -> list[Row]:
    """The rows that earlier calls have kept; none without the file."""
    if not file.exists():
        return []
    lines = file.read_text("utf-8").splitlines()
    return [kind(**json.loads(line)) for line in lines]


def keep_row(file: Path, row: DataclassInstance) -> None:
    # Opened for each row: it is on disk before the next one is measured.
    with file.open("a", encoding="utf-8") as rows:
        rows.write(json.dumps(asdict(row)) + "\n")
