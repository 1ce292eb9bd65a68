"""Policies beside each other over the same jobs, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from testbed.results.metrics import Summary
from testbed.units import human_duration, human_share

_HEADINGS = (
    "policy",
    "jobs",
    "finished",
    "rejected",
    "killed",
    "success",
    "VM use",
    "reserved",
    "revenue",
    "mean wait",
    "took",
)


def comparison_table(summaries: Sequence[Summary], width: int) -> Table:
    """What became of each policy's jobs, what it used, what it earned.

    One line a policy; where that is wider than ``width`` characters, one column a policy.
    """
    rows = [_HEADINGS, *(_cells(summary) for summary in summaries)]
    if _width(rows) > width:
        rows = list(zip(*rows, strict=True))
    table = Table(title=Text(_title(summaries)), title_justify="left")
    first, *others = rows[0]
    table.add_column(Text(first), no_wrap=True)
    for heading in others:
        table.add_column(Text(heading), justify="right", no_wrap=True)
    for row in rows[1:]:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _width(rows: Sequence[Sequence[str]]) -> int:
    """Characters that a table of these rows takes: three a column go to its border and padding."""
    return 1 + sum(3 + max(map(cell_len, column)) for column in zip(*rows, strict=True))


def _title(summaries: Sequence[Summary]) -> str:
    if not summaries:
        return "no policies"
    first = summaries[0]
    return f"{first.name}, {first.backend}, seed {first.seed}"


def _cells(summary: Summary) -> tuple[str, ...]:
    return (
        summary.policy,
        f"{summary.jobs:,}",
        f"{summary.finished:,}",
        f"{summary.rejected:,}",
        f"{summary.killed:,}",
        _share(summary.success_rate),
        _share(summary.vm_utilisation),
        _share(summary.link_utilisation),
        f"{summary.revenue:,.2f} $",
        _time(summary.wait_mean_s),
        _time(summary.wall_s),
    )


def _share(value: float | None) -> str:
    return "–" if value is None else human_share(value)


def _time(value: float | None) -> str:
    return "–" if value is None else human_duration(value)
