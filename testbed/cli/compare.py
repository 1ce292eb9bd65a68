"""``testbed compare RUN RUN``: decisions, jobs and metrics of two runs beside
each other.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from testbed.cli import console
from testbed.cli.options import Json
from testbed.record.comparison import (
    JobPair,
    PolicyComparison,
    compare_runs,
    paired_folders,
)
from testbed.record.reading import load_run
from testbed.units import human_duration, human_share

FirstPath = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="A run folder, or a policy's in it."),
]
SecondPath = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="Another run folder, of the same jobs."),
]
Jobs = Annotated[
    int,
    typer.Option(min=0, help="How many jobs to list, most different first."),
]

_COUNT, _NUMBER = "{:,}".format, "{:,.2f}".format
_METRICS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("finished", "finished", _COUNT),
    ("rejected", "rejected", _COUNT),
    ("killed", "killed", _COUNT),
    ("met their deadline", "met_deadline", _COUNT),
    ("success", "success_rate", human_share),
    ("VM use", "vm_utilisation", human_share),
    ("links reserved", "link_utilisation", human_share),
    ("mean wait", "wait_mean_s", human_duration),
    ("mean response", "response_mean_s", human_duration),
    ("mean slowdown", "bounded_slowdown_mean", _NUMBER),
    ("preemptions", "preemptions", _COUNT),
    ("migrations", "migrations", _COUNT),
    ("revenue", "revenue", _NUMBER),
)


def compare(
    first: FirstPath, second: SecondPath, jobs: Jobs = 10, as_json: Json = False
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
    for label, field, shown in _METRICS:
        values = [getattr(summary, field) for summary in found.summaries]
        table.add_row(
            label, *("–" if value is None else shown(value) for value in values)
        )
    ratios = [s.estimate_ratio for s in found.summaries]
    cells = [
        "–" if r is None else f"{r.median:.4f} (p95 {r.p95:.4f})"
        for r in ratios
    ]
    table.add_row("measured/estimate", *cells)
    received = [s.iperf3_ratio for s in found.summaries]
    if any(received):
        cells = [
            "–" if r is None else f"{r.median:.4f} (least {r.min:.4f})"
            for r in received
        ]
        table.add_row("iperf3/reserved", *cells)
    table.add_row(
        "fidelity", *(Text(s.fidelity.verdict or "–") for s in found.summaries)
    )
    return table


def _worst(found: PolicyComparison, n: int) -> list[JobPair]:
    """Jobs whose outcomes differ, then those whose times differ most."""

    def order(pair: JobPair) -> tuple[bool, float, str]:
        away = abs(pair.completion_difference or 0.0)
        return (len(set(pair.outcomes)) == 1, -away, pair.job_id)

    return sorted(found.jobs, key=order)[:n]


def _jobs(found: PolicyComparison, pairs: list[JobPair]) -> Table:
    table = Table(title_justify="left")
    table.add_column("job")
    for name in found.names:
        table.add_column(Text(name), justify="right")
    table.add_column("difference", justify="right")
    for pair in pairs:
        cells = [
            Text(outcome if taken is None else human_duration(taken))
            for outcome, taken in zip(
                pair.outcomes, pair.measured_s, strict=True
            )
        ]
        away = pair.completion_difference
        table.add_row(
            Text(pair.job_id), *cells, "–" if away is None else f"{away:+.2%}"
        )
    return table
