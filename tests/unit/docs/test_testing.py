"""docs/testing.md names the files that have long tests, and no other."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
PAGE = TESTS.parent / "docs" / "testing.md"
LONG = re.compile(r"\bmark\.(?:long|short)\b")


def test_files_with_long_tests_are_those_of_the_table() -> None:
    marked = set()
    for path in TESTS.glob("*/**/test_*.py"):
        if LONG.search(path.read_text(encoding="utf-8")):
            marked.add(str(path.relative_to(TESTS)))
    table = PAGE.read_text(encoding="utf-8").partition("| file |")[2]
    named = set()
    for row in table.splitlines():
        first_cell = row.split("|")[1] if row.count("|") > 1 else ""
        named.update(re.findall(r"`(\S+\.py)`", first_cell))
    assert named == marked
