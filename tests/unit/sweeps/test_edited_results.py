"""A stored result that was edited, or has another form, is computed again."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.sweeps.result_store import ResultStore
from tests.unit.sweeps.small_sweep import done, planned

pytestmark = pytest.mark.usefixtures("undrawn")


def edited(line: dict[str, Any]) -> None:
    line["result"]["summary"]["jobs"] = {}
    line["result"]["summary"]["wait_mean_s"] = 0.5


def unguarded(line: dict[str, Any]) -> None:
    del line["sha256"]


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.short("result0")
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


def waiting(file: Path) -> None:
    """By a pipe that nobody writes to."""
    file.unlink()
    os.mkfifo(file)


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def content(data: bytes) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(data)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


DAMAGED: dict[str, Callable[[Path], object]] = {
    "nested": content(b"[" * 100_000 + b"\n{}\n"),
    "nested result": content(
        b'{"result": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n{}\n"
    ),
    "bytes": content(b"\xff\xfe\0\n\n"),
    "empty": content(b""),
    "list": content(b"[]\n{}\n"),
    "digits": content(b'{"key": ' + b"9" * 5_000 + b"}\n{}\n"),
    "cut": cut,
    "pipe": waiting,
    "folder": a_folder,
}


@pytest.mark.slow
@pytest.mark.short("pipe", "cut", "nested result")
@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_one_ends_no_sweep(kind: str, tmp_path: Path) -> None:
    plan = planned("policies=easy", "seed=1")
    first = done(plan, tmp_path / "out")
    before = (first.folder / "cells.csv").read_bytes()
    (file,) = (tmp_path / "out" / ".cells").rglob("*.jsonl")
    DAMAGED[kind](file)
    if kind == "folder":
        # It cannot be replaced: the sweep says so.
        with pytest.raises(OSError, match="directory"):
            done(plan, tmp_path / "out")
        return
    again = done(plan, tmp_path / "out")
    assert (again.cell_counts.computed, again.cell_counts.kept) == (1, 0)
    assert (again.folder / "cells.csv").read_bytes() == before
