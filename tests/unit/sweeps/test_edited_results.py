"""A stored result that was edited, or has another form, is computed again."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.sweeps.result_store import ResultStore
from tests.unit.sweeps.small_sweep import done, planned


def edited(line: dict[str, Any]) -> None:
    line["result"]["summary"]["jobs"] = {}
    line["result"]["summary"]["wait_mean_s"] = 0.5


def unguarded(line: dict[str, Any]) -> None:
    del line["sha256"]


@pytest.mark.parametrize("edit", [edited, unguarded])
def test_it_is_computed_again(
    edit: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    plan = planned("policies=easy", "seed=1")
    first = done(plan, tmp_path)
    before = (first.folder / "cells.csv").read_bytes()
    (file,) = (tmp_path / ".cells").rglob("*.jsonl")
    content = file.read_bytes()
    one, two = content.decode().splitlines()
    line = json.loads(one)
    edit(line)
    file.write_text(f"{json.dumps(line)}\n{two}\n")
    again = done(plan, tmp_path)
    assert (again.cell_counts.computed, again.cell_counts.kept) == (1, 0)
    assert (again.folder / "cells.csv").read_bytes() == before
    assert file.read_bytes().splitlines()[0] == content.splitlines()[0]


@pytest.mark.parametrize(
    "result",
    [{}, {"measures": {"yield": 1.0}}, {"summary": 1, "audit": {}}],
)
def test_one_of_another_form_too(
    result: dict[str, Any], tmp_path: Path
) -> None:
    plan = planned("policies=easy", "seed=1")
    first = done(plan, tmp_path)
    with (first.folder / "cells.csv").open() as table:
        (row,) = csv.DictReader(table)
    ResultStore(tmp_path / ".cells").put(row["key"], result, {})
    again = done(plan, tmp_path)
    assert (again.cell_counts.computed, again.cell_counts.kept) == (1, 0)
    assert done(plan, tmp_path).cell_counts.kept == 1
