"""``testbed compare RUN RUN``: decisions, jobs and metrics of two runs beside
each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from testbed.cli import console
from testbed.cli.options import Json, PictureFolder, RunPath
from testbed.record.comparison import (
    PolicyComparison,
    compare_runs,
    paired_folders,
)
from testbed.record.folder import write_asked_for
from testbed.record.reading import load_run
from testbed.report.comparison_page import (
    comparison_page,
    job_cells,
    job_columns,
    metric_cells,
    most_different,
    write_comparison_pictures,
)
from testbed.report.comparison_sentences import sentences
from testbed.sweeps.sweep_comparison import compare_sweeps, is_sweep
from testbed.sweeps.sweep_comparison_page import copy_pictures, sweeps_page

Jobs = Annotated[
    int,
    typer.Option(
        min=0, help="How many jobs to list, most different first."
    ),
]
Page = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write a page with the pictures of both runs too.",
    ),
]


def compare(
    first: RunPath,
    second: RunPath,
    jobs: Jobs = 10,
    page: Page = None,
    to: PictureFolder = None,
    as_json: Json = False,
) -> None:
    """Compare two runs: simulator against live network, or policy against
    policy; or two sweeps over the same keys.

    Folders of several policies are compared policy by policy. Exit codes: 0
    compared, 2 not run folders, or damaged ones.
    """
    if is_sweep(first) and is_sweep(second):
        _sweeps(first, second, page, to, as_json=as_json)
        return
    compared = []
    for first_folder, second_folder in paired_folders(first, second):
        first_run = load_run(first_folder)
        second_run = load_run(second_folder)
        comparison = compare_runs(first_run, second_run)
        compared.append((comparison, first_run, second_run))
    if page is not None:
        _write(page, comparison_page(compared, jobs))
    if to is not None:
        _tell(write_comparison_pictures(compared, to))
    if as_json:
        console.print_json([comparison for comparison, _, _ in compared])
        return
    for comparison, _, _ in compared:
        _show(comparison, jobs)


def _write(page: Path, text: str) -> None:
    write_asked_for("--page", page, text)
    console.say(f"page: {page}")


def _tell(files: Sequence[Path]) -> None:
    for path in files:
        console.say(f"picture: {path}")


def _sweeps(
    first: Path,
    second: Path,
    page: Path | None,
    to: Path | None,
    *,
    as_json: bool,
) -> None:
    comparison = compare_sweeps(first, second)
    if page is not None:
        _write(page, sweeps_page(comparison, (first, second)))
    if to is not None:
        _tell(copy_pictures((first, second), to))
    if as_json:
        console.print_json(comparison)
        return
    for line in (" and ".join(comparison.names), *comparison.sentences()):
        console.print_text(line)
    means = _table(comparison.columns[0], comparison.columns[1:])
    for pair in comparison.pairs:
        means.add_row(*map(Text, pair.cells()))
    console.out().print(means)


def _show(comparison: PolicyComparison, n_jobs: int) -> None:
    out = console.out()
    title = " and ".join(comparison.names)
    out.print(Text(title, style="bold"), soft_wrap=True)
    for line in sentences(comparison):
        out.print(Text(line), soft_wrap=True)
    metrics = _table("metric", comparison.names)
    for cells in metric_cells(comparison):
        metrics.add_row(*map(Text, cells))
    out.print(metrics)
    first, *others = job_columns(comparison)
    jobs = _table(first, others)
    for pair in most_different(comparison, n_jobs):
        jobs.add_row(*map(Text, job_cells(pair)))
    if jobs.row_count:
        out.print(jobs)


def _table(first: str, others: Sequence[str]) -> Table:
    """A table whose first column is text, and numbers the others."""
    table = Table(title_justify="left")
    table.add_column(first)
    for name in others:
        table.add_column(Text(name), justify="right")
    return table
