"""A changelog line is one sentence of under 25 words."""

from __future__ import annotations

import re
from pathlib import Path

LINES = re.findall(
    r"^- (.*)$",
    (Path(__file__).parents[3] / "CHANGELOG.md").read_text("utf-8"),
    re.MULTILINE,
)


def test_every_line_is_a_short_sentence() -> None:
    assert LINES
    for line in LINES:
        assert line.endswith("."), line
        assert len(line.split()) < 25, line
