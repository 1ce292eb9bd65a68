"""``docs/architecture.md`` is true: its tree, its layers, its "to add X, touch Y"."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support import additions
from tests.support.additions import Addition, apply

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/architecture.md").read_text("utf-8")
PACKAGES = ("testbed", "topologies", "jobs", "controller", "reproductions")
ADDITIONS = {
    value.subject: value
    for value in vars(additions).values()
    if isinstance(value, Addition)
}


def rows() -> dict[str, frozenset[str]]:
    """Files of each row of the table: "to add" subject, paths in backticks."""
    table = {}
    for line in PAGE.splitlines():
        match = re.match(r"\| an? ([a-z ]+) \| (.+?) \|", line)
        if match:
            files = re.findall(r"`([^`]+\.(?:py|yaml))`", match[2])
            table[match[1]] = frozenset(files)
    return table


def test_every_row_has_an_addition() -> None:
    assert rows().keys() == ADDITIONS.keys()


@pytest.mark.parametrize("subject", ADDITIONS)
def test_a_row_names_the_files_that_the_addition_touches(
    subject: str,
) -> None:
    assert rows()[subject] == ADDITIONS[subject].paths


def test_a_new_event_touches_five_files_at_most_and_a_column_two() -> None:
    assert len(rows()["event"]) <= 5
    assert len(rows()["column"]) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("subject", ADDITIONS)
def test_an_addition_works_with_these_files_alone(
    subject: str, tmp_path: Path
) -> None:
    for package in PACKAGES:
        # With its bytecode, which is as old as its sources: the child
        # compiles what the addition changes.
        shutil.copytree(ROOT / package, tmp_path / package)
    addition = ADDITIONS[subject]
    apply(addition, tmp_path)
    result = subprocess.run(
        [sys.executable, "-c", addition.program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.stdout.split("\n")[-2:] == ["added", ""], result.stderr


def test_an_insertion_needs_exactly_one_place(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text("a\na\n", "utf-8")
    edit = additions.Insertion("twice.py", "a", "b")
    with pytest.raises(ValueError, match="2 matches"):
        apply(Addition("twice", (edit,), ""), tmp_path)


def test_the_tree_lists_every_package_with_a_sentence() -> None:
    block = PAGE.split("```text\n")[1].split("```")[0]
    listed = set(re.findall(r"^ *([a-z_]+)/ +\S", block, re.MULTILINE))
    there = {
        path.parent.name
        for path in (ROOT / "testbed").glob("*/__init__.py")
    }
    top_level = {"topologies", "jobs", "controller", "testbed"}
    assert there | top_level <= listed


def test_the_layers_are_those_that_are_checked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(item for item in contracts if item["id"] == "layers")[
        "layers"
    ]
    rooms = []
    for layer in layers[:-1]:
        rooms += [name.split(".")[1] for name in layer.split(" | ")]
    block = PAGE.split("```text\n")[1].split("```")[0]
    in_page = re.findall(r"^    ([a-z_]+)/ ", block, re.MULTILINE)
    assert [
        room for room in rooms if room not in ("plugins", "plugin_source")
    ] == in_page
