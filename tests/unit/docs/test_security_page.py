"""docs/security.md names tests that exist, and all of the code that needs root."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.root_code import ROOT_CODE, beyond, code_lines

PROJECT = Path(__file__).parents[3]
PAGE = (PROJECT / "docs" / "security.md").read_text("utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
STATED = re.compile(r"^ *([\d,]+)  (\S.*)$", re.MULTILINE)
# Code comes and goes between two edits of the page.
TOLERANCE = 0.15


def guarantees() -> list[str]:
    """Rows of the table."""
    section = PAGE.split("## Guaranteed\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return rows[1:]


@pytest.mark.parametrize("row", guarantees(), ids=lambda row: row[2:40])
def test_each_guarantee_names_tests_that_exist(row: str) -> None:
    named = NAMED.findall(row.split(" | ")[1])
    assert named
    for file, test in named:
        text = (PROJECT / file).read_text("utf-8")
        assert re.search(rf"^def {test}\(", text, re.MULTILINE), (
            file,
            test,
        )


@pytest.mark.slow
def test_root_calls_are_in_the_listed_code_alone() -> None:
    assert beyond() == []


@pytest.mark.slow
def test_the_lines_of_roots_code_are_about_those_that_are_stated() -> None:
    stated = {
        what: int(n.replace(",", "")) for n, what in STATED.findall(PAGE)
    }
    for what, patterns in ROOT_CODE.items():
        assert stated[what] == pytest.approx(
            code_lines(patterns), rel=TOLERANCE
        ), "python -m tests.support.root_code"
