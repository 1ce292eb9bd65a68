"""Students' words stand in marks.csv as text: no formula, no escape sequence."""

from __future__ import annotations

import csv
import io

import pytest

from testbed.labs.grading import Mark, table


def sentence(text: str) -> str:
    """A mark's sentence, as marks.csv has it."""
    (row,) = csv.DictReader(
        io.StringIO(table([Mark("a", 4, 1, problem=text)]))
    )
    return row["sentence"]


@pytest.mark.parametrize(
    "text",
    [
        "=cmd|' /C calc'!A0",
        "\t=cmd|' /C calc'!A0",
        "  @SUM(1)",
        "＝cmd|x",
    ],
)
def test_no_cell_is_a_formula(text: str) -> None:
    for cell in sentence(text).split(";"):
        assert not cell.lstrip().startswith(("=", "+", "-", "@", "＝"))


def test_escape_sequences_do_not_come_through() -> None:
    found = sentence("app.py: \x1b]0;title\x07\x1b[31mred\u202e\x9b2J")
    assert found.isprintable()
    assert "red" in found


def test_plain_sentences_stay_as_they_are() -> None:
    text = "rules(3, …) has 4 entries; expected at most 3 (README.md, 'An entry')"
    assert sentence(text) == text
