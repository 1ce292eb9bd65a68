"""The page of a sweep: its picture, its table, the reasons of failed cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.spec.sweep_section import SweptKey, as_yaml
from testbed.sweeps.sweep_tables import (
    TableRow,
    printed_columns,
    printed_values,
)

if TYPE_CHECKING:
    from testbed.sweeps.sweep_plan import SweepPlan

MOST_ROWS = 1000
MOST_VALUES = 50
MOST_REASONS = 50


def sweep_page(
    plan: SweepPlan,
    table: Sequence[TableRow],
    sentence: str,
    reasons: Sequence[str],
    picture: str,
) -> str:
    """The page as HTML; ``sentence`` tells the numbers of cells, ``picture`` is
    the SVG file's text, or nothing.
    """
    from testbed.report.page import rendered

    rows = table[:MOST_ROWS]
    left = len(table) - len(rows)
    return rendered(
        "sweep",
        title=plan.name,
        sentence=sentence,
        picture=picture[picture.index("<svg") :] if picture else "",
        more=f"{left:,} more rows in table.csv" if left else "",
        keys=len(plan.combined),
        columns=printed_columns(plan),
        rows=[printed_values(plan, row) for row in rows],
        reasons=Counter(reasons).most_common(MOST_REASONS),
        over=[
            (key, _values(one))
            for key, one in zip(plan.columns, plan.over, strict=True)
        ],
    )


def _values(key: SweptKey) -> str:
    """A key's values; ranges as they are written."""
    found = [
        f"{values[0]}..{values[-1]}" if len(values) > 1 else as_yaml(values[0])
        for values, _ in key.parts[:MOST_VALUES]
    ]
    left = len(key.parts) - len(found)
    return ", ".join([*found, *([f"and {left:,} more"] if left else [])])
