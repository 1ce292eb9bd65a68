"""``testbed compare RUN RUN``: decisions, jobs and metrics of two runs beside
each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from testbed.cli import console
from testbed.cli.options import Json, RunPath
from testbed.record.comparison import (
    JobPair,
    PolicyComparison,
    compare_runs,
    paired_folders,
)
from testbed.record.reading import load_run
from testbed.units import human_duration, human_share

Jobs = Annotated[
    int,
    typer.Option(min=0, help="How many jobs to list, most different first."),
]

_COUNT, _NUMBER = "{:,}".format, "{:,.2f}".format
_METRICS: tuple[tuple[str, Callable[[Any], str]], ...] = (
    ("finished", _COUNT),
    ("rejected", _COUNT),
    ("killed", _COUNT),
    ("met_deadline", _COUNT),
    ("success_rate", human_share),
    ("vm_utilisation", human_share),
    ("link_utilisation", human_share),
    ("wait_mean_s", human_duration),
    ("response_mean_s", human_duration),
    ("slowdown_mean", _NUMBER),
    ("bounded_slowdown_mean", _NUMBER),
    ("preemptions", _COUNT),
    ("migrations", _COUNT),
    ("revenue", _NUMBER),
)
"""Rows of the table: names as in ``summary.json``, and their form."""


def compare(
    first: RunPath,
    second: RunPath,
    jobs: Jobs = 10,
    as_json: Json = False,
) -> None:
    """Compare two runs: simulator against live network, or policy against
    policy.

    Folders of several policies are compared policy by policy. Exit codes: 0
    compared, 2 not run folders, or damaged ones.
    """
    found = [
        compare_runs(load_run(a), load_run(b))
        for a, b in paired_folders(first, second)
    ]
    if as_json:
        console.print_json([each.to_json() for each in found])
        return
    for each in found:
        _show(each, jobs)


def _show(found: PolicyComparison, n_jobs: int) -> None:
    out = console.out()
    title = f"{found.names[0]} – {found.names[1]}"
    out.print(Text(title, style="bold"), soft_wrap=True)
    for line in found.sentences():
        out.print(Text(line), soft_wrap=True)
    out.print(_metrics(found))
    if pairs := _worst(found, n_jobs):
        out.print(_jobs(found, pairs))


def _metrics(found: PolicyComparison) -> Table:
    table = Table(title_justify="left")
    table.add_column("metric")
    for name in found.names:
        table.add_column(Text(name), justify="right")
    for field, shown in _METRICS:
        values = [getattr(summary, field) for summary in found.summaries]
        table.add_row(
            field, *("–" if value is None else shown(value) for value in values)
        )
    ratios = [s.estimate_ratio for s in found.summaries]
    cells = [
        "–" if r is None else f"{r.median:.4f} (p95 {r.p95:.4f})"
        for r in ratios
    ]
    table.add_row("estimate_ratio", *cells)
    received = [s.iperf3_ratio for s in found.summaries]
    if any(received):
        cells = [
            "–" if r is None else f"{r.median:.4f} (least {r.min:.4f})"
            for r in received
        ]
        table.add_row("iperf3_ratio", *cells)
    table.add_row(
        "fidelity", *(Text(s.fidelity.verdict or "–") for s in found.summaries)
    )
    return table


def _worst(found: PolicyComparison, n: int) -> list[JobPair]:
    """Jobs whose outcomes differ, then those whose ends are furthest apart."""

    def order(pair: JobPair) -> tuple[bool, float, str]:
        away = abs(pair.later_s or 0.0)
        return (len(set(pair.outcomes)) == 1, -away, pair.job_id)

    return sorted(found.jobs, key=order)[:n]


def _jobs(found: PolicyComparison, pairs: list[JobPair]) -> Table:
    table = Table(title_justify="left")
    table.add_column("job")
    for name in found.names:
        table.add_column(Text(name), justify="right")
    for column in ("running time", "end"):
        table.add_column(column, justify="right")
    for pair in pairs:
        cells = []
        for place, outcome in enumerate(pair.outcomes):
            cells.append(
                Text(_times(outcome, pair.start_s[place], pair.end_s[place])),
            )
        away, later_s = pair.completion_difference, pair.later_s
        table.add_row(
            Text(pair.job_id),
            *cells,
            "–" if away is None else f"{away:+.2%}",
            "–" if later_s is None else f"{later_s:+.2f} s",
        )
    return table


def _times(outcome: str, start_s: float | None, end_s: float | None) -> str:
    """``10.00 to 60.00 s``; for a job that did not finish, its outcome too."""
    if start_s is None or end_s is None:
        return outcome
    times = f"{start_s:.2f} to {end_s:.2f} s"
    if outcome == "finished":
        return times
    return f"{outcome}, {times}"
