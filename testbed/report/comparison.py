"""Policies beside each other over the same jobs, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from testbed.results.metrics import Summary
from testbed.units import human_duration, human_share


def comparison_table(summaries: Sequence[Summary]) -> Table:
    """One line a policy: what became of its jobs, what it used, what it earned."""
    table = Table(title=Text(_title(summaries)), title_justify="left")
    table.add_column("policy")
    for heading in (
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
    ):
        table.add_column(heading, justify="right")
    for summary in summaries:
        table.add_row(Text(summary.policy), *(Text(cell) for cell in _cells(summary)))
    return table


def _title(summaries: Sequence[Summary]) -> str:
    if not summaries:
        return "no policies"
    first = summaries[0]
    return f"{first.name}, {first.backend}, seed {first.seed}"


def _cells(summary: Summary) -> list[str]:
    return [
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
    ]


def _share(value: float | None) -> str:
    return "–" if value is None else human_share(value)


def _time(value: float | None) -> str:
    return "–" if value is None else human_duration(value)
