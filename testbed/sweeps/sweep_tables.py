"""Tables of a sweep: a row a cell, and a row a combination with means and their
intervals.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

from testbed.foreign_text import csv_text
from testbed.record.folder import RunFolder
from testbed.spec.sweep_section import as_yaml
from testbed.sweeps.intervals import Estimate, estimate
from testbed.sweeps.result_store import Record, number
from testbed.sweeps.sweep_plan import METRICS, POLICIES, SweepPlan

if TYPE_CHECKING:
    from testbed.sweeps.cell_runs import Cell
    from testbed.sweeps.sweeping import SweepRun

CELLS, CELLS_PARQUET = "cells.csv", "cells.parquet"
TABLE_CSV, TABLE_MD = "table.csv", "table.md"
BATCH = 1000
GOOD, OUTSIDE, FAILED = "ok", "outside", "failed"


@dataclass(frozen=True, slots=True)
class CellRow:
    """A cell's line: its values, its outcome with the reason, and its result."""

    cell: Cell
    outcome: str
    why: str
    record: Record | None


@dataclass(frozen=True, slots=True)
class TableRow:
    """A combination's line. ``needed``: seeds that the stop rule took; None
    where there is no rule or all seeds were not enough. ``reasons``: why cells
    are outside what was expected; ``fidelity``: verdicts on live ones.
    """

    values: tuple[Any, ...]
    cells: int
    failed: int
    outside: int
    needed: int | None
    estimates: tuple[Estimate, ...]
    reasons: tuple[str, ...] = ()
    fidelity: tuple[str, ...] = ()


def cell_rows(run: SweepRun, combination: Sequence[Any]) -> Iterator[CellRow]:
    """A combination's cells in the order of their seeds, as far as the stop
    rule takes them.
    """
    stop, names = run.plan.stop, run.plan.rule_metrics
    columns: list[list[float | None]] = [[] for _ in names]
    for cell in run.cells.of(combination):
        row = _row(run, cell)
        if row is None:
            return
        yield row
        for name, column in zip(names, columns, strict=True):
            column.append(
                None if row.record is None else number(row.record, name),
            )
        if stop is not None and stop.needed(columns) is not None:
            return


def _row(run: SweepRun, cell: Cell) -> CellRow | None:
    """None for a cell that was not run: its combination had enough."""
    record, failure = run.found(cell), run.failures.get(cell.key)
    if failure is not None:
        return CellRow(cell, FAILED, failure.message, None)
    if record is None:
        return None
    if record["exit_code"] == 0:
        return CellRow(cell, GOOD, "", record)
    audit = [f"audit: {name}" for name in record["audit"]["failed"]]
    return CellRow(
        cell,
        OUTSIDE,
        "; ".join((*record["complaints"], *audit)),
        record,
    )


def table_row(
    run: SweepRun,
    combination: tuple[Any, ...],
    rows: Sequence[CellRow],
) -> TableRow:
    """A combination's means over its cells."""
    found = [row.record for row in rows if row.record is not None]
    columns = {
        name: [number(record, name) for record in found]
        for name in (*run.plan.metrics, *run.plan.rule_metrics)
    }
    needed = None
    if run.plan.stop is not None:
        needed = run.plan.stop.needed(
            [
                [
                    None if row.record is None else number(row.record, name)
                    for row in rows
                ]
                for name in run.plan.rule_metrics
            ]
        )
    return TableRow(
        printed_cells(run.plan, combination),
        len(rows),
        sum(row.outcome == FAILED for row in rows),
        sum(row.outcome == OUTSIDE for row in rows),
        needed,
        tuple(
            estimate([value for value in columns[name] if value is not None])
            for name in run.plan.metrics
        ),
        tuple(row.why for row in rows if row.outcome == OUTSIDE),
        tuple(_verdicts(found)),
    )


def outside_reasons(table: Sequence[TableRow]) -> tuple[str, ...]:
    """Why cells are outside what was expected, a sentence each."""
    return tuple(why for row in table for why in row.reasons)


def _verdicts(found: Sequence[Record]) -> Iterator[str]:
    """Verdicts on the fidelity of live cells."""
    for record in found:
        verdict = record["summary"]["fidelity"]["verdict"]
        if verdict is not None:
            yield verdict


def printed_cells(plan: SweepPlan, values: Sequence[Any]) -> tuple[Any, ...]:
    """Values as tables have them: numbers as they are, policies by their
    labels, others as YAML.
    """
    cells: list[Any] = []
    for dimension, value in zip(plan.over, values, strict=False):
        if dimension.key == POLICIES:
            text = as_yaml(value)
            cells.append(plan.labels.get(text, text))
        elif isinstance(value, str | int | float):
            cells.append(value)
        else:
            cells.append(as_yaml(value))
    return tuple(cells)


# -- files


def write_tables(
    run: SweepRun,
    folder: RunFolder,
    *,
    parquet: bool = False,
) -> list[TableRow]:
    """``cells.csv`` (or ``.parquet``), ``table.csv`` and ``table.md``; the
    table's rows.
    """
    table: list[TableRow] = []
    if parquet:
        folder.write_bytes(CELLS_PARQUET, _parquet(run, table))
    else:
        folder.write_lines(CELLS, lambda file: _write_cells(run, table, file))
    folder.write_lines(
        TABLE_CSV, lambda file: write_table(run.plan, table, file)
    )
    folder.write_text(TABLE_MD, markdown(run.plan, table))
    return table


def _passed(run: SweepRun, table: list[TableRow]) -> Iterator[CellRow]:
    """Every cell's row, in order; the table's rows are added on the way."""
    for combination in run.cells.combinations():
        rows = list(cell_rows(run, combination))
        table.append(table_row(run, combination, rows))
        yield from rows


def cell_columns(plan: SweepPlan) -> tuple[str, ...]:
    """The columns of ``cells.csv``."""
    return *plan.columns, "outcome", "why", *METRICS, "events_sha256", "key"


def cell_values(plan: SweepPlan, row: CellRow) -> tuple[Any, ...]:
    """A cell's values by those columns."""
    record = row.record
    found = [
        None if record is None else number(record, name) for name in METRICS
    ]
    digest = None if record is None else record["events_sha256"]
    return (
        *map(_csv_value, printed_cells(plan, row.cell.values)),
        row.outcome,
        csv_text(row.why),
        *found,
        digest,
        row.cell.key,
    )


def _csv_value(value: Any) -> Any:
    if isinstance(value, str):
        return csv_text(value)
    return value


def _write_cells(run: SweepRun, table: list[TableRow], file: IO[str]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(cell_columns(run.plan))
    for row in _passed(run, table):
        writer.writerow(cell_values(run.plan, row))


def _parquet(run: SweepRun, table: list[TableRow]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    numeric = {one.key for one in run.plan.over if one.is_numeric}
    kinds = {name: pa.float64() for name in (*METRICS, *numeric)}
    columns = cell_columns(run.plan)
    schema = pa.schema(
        [(name, kinds.get(name, pa.string())) for name in columns]
    )
    out, rows = io.BytesIO(), _passed(run, table)
    with parquet.ParquetWriter(out, schema) as writer:
        while batch := [
            cell_values(run.plan, row) for row in islice(rows, BATCH)
        ]:
            arrays = [
                pa.array(
                    [
                        v if v is None or name in kinds else str(v)
                        for v in column
                    ],
                    schema.field(name).type,
                )
                for name, column in zip(
                    columns,
                    zip(*batch, strict=True),
                    strict=True,
                )
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return out.getvalue()


def table_columns(plan: SweepPlan) -> tuple[str, ...]:
    """The columns of ``table.csv``: a metric's mean, and half its interval's
    width.
    """
    stop = () if plan.stop is None else ("needed",)
    metrics = [name for one in plan.metrics for name in (one, f"{one}_ci95")]
    return (
        *plan.columns[: len(plan.combined)],
        "cells",
        "failed",
        "outside",
        *stop,
        *metrics,
    )


def table_values(plan: SweepPlan, row: TableRow) -> tuple[Any, ...]:
    """A combination's values by those columns; None where there is nothing to
    average.
    """
    stop = () if plan.stop is None else (row.needed,)
    numbers = [
        value
        for one in row.estimates
        for value in (one.mean if one.n else None, one.half_width)
    ]
    values = map(_csv_value, row.values)
    return (*values, row.cells, row.failed, row.outside, *stop, *numbers)


def write_table(
    plan: SweepPlan,
    table: Sequence[TableRow],
    file: IO[str],
) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table_columns(plan))
    writer.writerows(table_values(plan, row) for row in table)


def printed_columns(plan: SweepPlan) -> tuple[str, ...]:
    return (*plan.columns[: len(plan.combined)], "cells", *plan.metrics)


def printed_values(plan: SweepPlan, row: TableRow) -> tuple[str, ...]:
    """A combination as people read it: ``0.84 ± 0.02``."""
    return (
        *(
            f"{value:g}" if isinstance(value, float) else str(value)
            for value in row.values
        ),
        _count(plan, row),
        *map(with_interval, row.estimates),
    )


def _count(plan: SweepPlan, row: TableRow) -> str:
    """Number of its cells, with whether they were enough, and how many failed."""
    notes = []
    if plan.stop is not None:
        notes.append("enough" if row.needed is not None else "not enough")
    if row.failed:
        notes.append(f"{row.failed} failed")
    if row.outside:
        notes.append(f"{row.outside} outside")
    return str(row.cells) + (f" ({', '.join(notes)})" if notes else "")


def with_interval(one: Estimate) -> str:
    """Both to the second digit of the interval: ``1,602 ± 560``."""
    if not one.n:
        return "–"
    if not one.half_width:
        return four_digits(one.mean) + (
            "" if one.half_width is None else " ± 0"
        )
    digits = max(0, 1 - math.floor(math.log10(one.half_width)))
    return f"{one.mean:,.{digits}f} ± {one.half_width:,.{digits}f}"


def four_digits(value: float, sign: str = "") -> str:
    """Its first four digits, without an exponent where it is large: ``19,420``.

    ``sign``: "+" where a number above 0 is to have one too.
    """
    return f"{float(f'{value:.4g}'):{sign},.15g}"


def markdown(plan: SweepPlan, table: Sequence[TableRow]) -> str:
    """The table as Markdown."""
    lines = [printed_columns(plan), tuple("---" for _ in printed_columns(plan))]
    lines += [printed_values(plan, row) for row in table]
    return "".join(
        f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |\n"
        for line in lines
    )
