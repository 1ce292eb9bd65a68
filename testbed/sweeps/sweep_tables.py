"""Tables of a sweep: one with a row per cell, and one with a row per
combination of values, with means over seeds and their intervals.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Any

from testbed.foreign_text import csv_text
from testbed.record.folder import RunFolder
from testbed.record.metrics import mean
from testbed.spec.sweep_section import as_yaml, value_text
from testbed.sweeps.intervals import ROUNDING, Estimate, estimate
from testbed.sweeps.result_store import (
    Record,
    fidelity_of,
    number,
    numbers,
)
from testbed.sweeps.sweep_plan import METRICS, POLICIES, SweepPlan

if TYPE_CHECKING:
    from testbed.sweeps.cell_runs import Cell
    from testbed.sweeps.sweeping import SweepRun

CELLS = "cells.csv"
CELLS_PARQUET = "cells.parquet"
TABLE_CSV = "table.csv"
TABLE_MD = "table.md"
BATCH = 1000
"""Cells that are written to a Parquet file at once."""
ACCEPTED = "acceptance_rate"
GOOD = "ok"
OUTSIDE = "outside"
FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CellRow:
    """A cell, its outcome with the reason, and its result (None: it failed)."""

    cell: Cell
    outcome: str
    why: str
    record: Record | None


@dataclass(frozen=True, slots=True)
class TableRow:
    """A combination's values, its numbers of cells, and means over them.

    ``needed``: the number of seeds that is enough for the stop rule; None
    without a rule, or if all seeds are not enough. ``estimates``: of the plan's
    metrics, in their order. ``reasons``: for each cell outside its
    expectations, why. ``fidelity``: verdicts on live cells. ``accepted``: the
    mean share of jobs that were not rejected.
    """

    values: tuple[Any, ...]
    cells: int
    failed: int
    outside: int
    needed: int | None
    estimates: tuple[Estimate, ...]
    reasons: tuple[str, ...] = ()
    fidelity: tuple[str, ...] = ()
    accepted: float | None = None


def _cell_rows(run: SweepRun, combination: Sequence[Any]) -> list[CellRow]:
    """A combination's cells in the order of their seeds.

    They end with the cell that fulfils the stop rule, or before the first one
    that was not run.
    """
    rows: list[CellRow] = []
    for cell in run.cells.of(combination):
        row = _row(run, cell)
        if row is None:
            break
        rows.append(row)
        # Cells that ran ahead of the rule are left out: the table is the
        # same from one processor as from a hundred.
        if _needed(run.plan, rows) is not None:
            break
    return rows


def _row(run: SweepRun, cell: Cell) -> CellRow | None:
    """A cell's row; None if it was not run, as fewer seeds were enough."""
    failure = run.failures.get(cell.key)
    if failure is not None:
        return CellRow(cell, FAILED, failure.message, None)
    record = run.result_of(cell)
    if record is None:
        return None
    if record["exit_code"] == 0:
        return CellRow(cell, GOOD, "", record)
    audit = [f"audit: {name}" for name in record["audit"]["failed"]]
    why = "; ".join((*record["complaints"], *audit))
    return CellRow(cell, OUTSIDE, why, record)


def _table_row(
    run: SweepRun,
    combination: tuple[Any, ...],
    rows: Sequence[CellRow],
) -> TableRow:
    """A combination's means over its cells."""
    plan = run.plan
    records = [row.record for row in rows if row.record is not None]
    # A run without a value, as where no job finished, is not in the mean.
    estimates = tuple(
        estimate(number(record, name) for record in records)
        for name in plan.metrics
    )
    outcomes = Counter(row.outcome for row in rows)
    return TableRow(
        values=printed_cells(plan, combination),
        cells=len(rows),
        failed=outcomes[FAILED],
        outside=outcomes[OUTSIDE],
        needed=_needed(plan, rows),
        estimates=estimates,
        reasons=tuple(row.why for row in rows if row.outcome == OUTSIDE),
        fidelity=tuple(filter(None, map(fidelity_of, records))),
        accepted=mean(number(record, ACCEPTED) for record in records),
    )


def _needed(plan: SweepPlan, rows: Sequence[CellRow]) -> int | None:
    """The number of seeds that is enough; None without a rule, or if all seeds
    are not enough.
    """
    if plan.stop is None:
        return None
    by_seed = [numbers(row.record, plan.rule_metrics) for row in rows]
    return plan.stop.needed(list(zip(*by_seed, strict=True)))


def outside_reasons(table: Sequence[TableRow]) -> tuple[str, ...]:
    """Reasons why cells are outside what was expected, a sentence each."""
    return tuple(chain.from_iterable(row.reasons for row in table))


def printed_cells(
    plan: SweepPlan, values: Sequence[Any]
) -> tuple[Any, ...]:
    """Values as tables print them: policies by their labels; numbers, texts,
    true and false as they are; all others as YAML.
    """
    printed: list[Any] = []
    # A combination has no value of the last key, the seed.
    for swept, value in zip(plan.over, values, strict=False):
        if swept.key == POLICIES:
            text = as_yaml(value)
            printed.append(plan.labels.get(text, text))
        elif isinstance(value, str | int | float):
            printed.append(value)
        else:
            printed.append(as_yaml(value))
    return tuple(printed)


# -- files


def write_tables(
    run: SweepRun,
    folder: RunFolder,
    *,
    parquet: bool = False,
) -> list[TableRow]:
    """Writes ``cells.csv`` (or ``.parquet``), ``table.csv`` and ``table.md``.

    Returns the table's rows.
    """
    table: list[TableRow] = []
    if parquet:
        folder.write_bytes(CELLS_PARQUET, _parquet(run, table))
    else:
        folder.write_lines(
            CELLS, lambda file: _write_cells(run, table, file)
        )
    folder.write_lines(
        TABLE_CSV, lambda file: write_table(run.plan, table, file)
    )
    folder.write_text(TABLE_MD, markdown(run.plan, table))
    return table


def _all_rows(run: SweepRun, table: list[TableRow]) -> Iterator[CellRow]:
    """Yields every cell's row in order, and appends every combination's row to
    ``table`` meanwhile.
    """
    for combination in run.cells.combinations():
        rows = _cell_rows(run, combination)
        table.append(_table_row(run, combination, rows))
        yield from rows


def cell_columns(plan: SweepPlan) -> tuple[str, ...]:
    """The columns of ``cells.csv``."""
    return *plan.columns, "outcome", "why", *METRICS, "events_sha256", "key"


def cell_values(plan: SweepPlan, row: CellRow) -> tuple[Any, ...]:
    """A cell's values in the order of :func:`cell_columns`."""
    record = row.record
    digest = None if record is None else record["events_sha256"]
    return (
        *map(_csv_value, printed_cells(plan, row.cell.values)),
        row.outcome,
        csv_text(row.why),
        *numbers(record, METRICS),
        digest,
        row.cell.key,
    )


def _csv_value(value: Any) -> Any:
    if isinstance(value, str):
        return csv_text(value)
    return value


def _write_cells(
    run: SweepRun, table: list[TableRow], file: IO[str]
) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(cell_columns(run.plan))
    for row in _all_rows(run, table):
        writer.writerow(cell_values(run.plan, row))


def _parquet(run: SweepRun, table: list[TableRow]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    kinds = dict.fromkeys(cell_columns(run.plan), pa.string())
    kinds |= dict.fromkeys(METRICS, pa.float64())
    for swept in run.plan.over:
        if swept.is_numeric:
            kinds[swept.key] = pa.float64()
        # A float holds no seed above 2**53.
        if swept.is_whole:
            kinds[swept.key] = pa.int64()
    schema = pa.schema(kinds)
    out = io.BytesIO()
    rows = _all_rows(run, table)
    with parquet.ParquetWriter(out, schema) as writer:
        # By batches: a sweep's cells need not fit into memory.
        while batch := list(islice(rows, BATCH)):
            values = [cell_values(run.plan, row) for row in batch]
            columns = zip(*values, strict=True)
            arrays = list(map(_parquet_column, columns, kinds.values()))
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return out.getvalue()


def _parquet_column(values: Sequence[Any], kind: Any) -> Any:
    """A Parquet column, to whose type all values are converted."""
    import pyarrow as pa

    # Not by Arrow, which refuses a whole number that a float rounds.
    convert = {pa.string(): str, pa.float64(): float, pa.int64(): int}[kind]
    converted = [None if v is None else convert(v) for v in values]
    return pa.array(converted, kind)


def table_columns(plan: SweepPlan) -> tuple[str, ...]:
    """The columns of ``table.csv``; a metric has two: its mean, and half the
    width of its interval.
    """
    columns = [
        *plan.combined_columns,
        "cells",
        "failed",
        "outside",
    ]
    if plan.stop is not None:
        columns.append("needed")
    for metric in plan.metrics:
        columns += [metric, f"{metric}_ci95"]
    return tuple(columns)


def table_values(plan: SweepPlan, row: TableRow) -> tuple[Any, ...]:
    """A combination's values in the order of :func:`table_columns`.

    A mean is None where there is nothing to average.
    """
    values = [
        *map(_csv_value, row.values),
        row.cells,
        row.failed,
        row.outside,
    ]
    if plan.stop is not None:
        values.append(row.needed)
    for metric in row.estimates:
        values += [metric.mean if metric.n else None, metric.half_width]
    return tuple(values)


def write_table(
    plan: SweepPlan,
    table: Sequence[TableRow],
    file: IO[str],
) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table_columns(plan))
    writer.writerows(table_values(plan, row) for row in table)


def printed_columns(plan: SweepPlan) -> tuple[str, ...]:
    return (*plan.combined_columns, "cells", *plan.metrics)


def printed_values(plan: SweepPlan, row: TableRow) -> tuple[str, ...]:
    """A combination as people read it: ``0.84 ± 0.02``."""
    return printed_row(row.values, printed_count(plan, row), row.estimates)


def printed_row(
    values: Sequence[Any], count: str, estimates: Sequence[Estimate]
) -> tuple[str, ...]:
    """A row as people read it, of values, :func:`printed_count`, and means."""
    texts = list(map(value_text, values))
    texts.append(count)
    texts += map(with_interval, estimates)
    return tuple(texts)


def printed_count(plan: SweepPlan, row: TableRow) -> str:
    """Number of cells, such as ``5 (not enough, 1 failed, 2 outside)``."""
    notes = []
    if plan.stop is not None:
        notes.append("enough" if row.needed is not None else "not enough")
    if row.failed:
        notes.append(f"{row.failed} failed")
    if row.outside:
        notes.append(f"{row.outside} outside")
    if notes:
        return f"{row.cells} ({', '.join(notes)})"
    return str(row.cells)


def with_interval(around: Estimate) -> str:
    """Mean and half width, rounded alike: ``1,602 ± 560``.

    Both have decimals up to the second digit of the half width: ``16.02 ±
    0.56``.
    """
    if not around.n:
        return "–"
    if around.half_width is None:
        return four_digits(around.mean)
    # What is left of a sum's rounding is no width.
    if around.half_width <= ROUNDING * abs(around.mean):
        return f"{four_digits(around.mean)} ± 0"
    decimals = max(0, 1 - math.floor(math.log10(around.half_width)))
    mean_text = f"{around.mean:,.{decimals}f}"
    return f"{mean_text} ± {around.half_width:,.{decimals}f}"


def four_digits(value: float, sign: str = "") -> str:
    """A number's first four digits, however large, as digits: ``19,420``.

    ``sign``: "+" to have a sign before numbers above 0, too.
    """
    rounded = float(f"{value:.4g}")
    return f"{rounded:{sign},.15g}"


def markdown(plan: SweepPlan, table: Sequence[TableRow]) -> str:
    """The table as Markdown."""
    columns = printed_columns(plan)
    lines = [columns, ["---"] * len(columns)]
    lines += [printed_values(plan, row) for row in table]
    text = ""
    for line in lines:
        # A bar inside a cell would end it.
        cells = [cell.replace("|", "∣") for cell in line]
        text += f"| {' | '.join(cells)} |\n"
    return text
