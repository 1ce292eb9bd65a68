"""docs/live-network.md states the constants of the limits as they are."""

from __future__ import annotations

import re
from pathlib import Path

from testbed.plan import batch_lines, installation, limits

PAGE = Path(__file__).parents[3] / "docs" / "live-network.md"
ROW = re.compile(r"^\| `([A-Z_]+)` \| (\S+) \|", re.MULTILINE)


def test_the_table_of_sizes_is_the_codes() -> None:
    stated = dict(ROW.findall(PAGE.read_text(encoding="utf-8")))
    assert len(stated) == 19
    actual = vars(batch_lines) | vars(installation) | vars(limits)
    assert stated == {name: str(actual[name]) for name in stated}
