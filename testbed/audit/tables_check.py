"""``jobs.csv`` and ``links.csv`` against the same tables made from the events.

A table that equals the one that the product makes of the events on the disk, to
the byte, is right. Only another one is read cell by cell, so that each finding
names its line, and what merely differs in rounding, or was written by an
earlier version, passes.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, TextIO

from testbed.audit.history import Findings, History
from testbed.errors import BadInput
from testbed.foreign_text import csv_text
from testbed.record.folder import JOBS, LINKS
from testbed.record.link_rates import (
    LINK_COLUMNS,
    LinkRow,
    link_rows,
    write_links_csv,
)
from testbed.record.metrics import JOB_COLUMNS, cell_of, cells_of
from testbed.record.stored_json import open_regular

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?")
HALF_A_BIT = 0.5
"""Rates are written as whole numbers."""


class _Differs(Exception):
    pass


class _Compared:
    """A text file that accepts only the text of another."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        # As soon as a piece differs, the rest is not made.
        if self._file.read(len(text)) != text:
            raise _Differs
        return len(text)


def _holds(path: Path, write: Callable[[IO[str]], None]) -> bool:
    """True for a file of exactly the text that ``write`` writes."""
    with _table(path) as file:
        try:
            write(_Compared(file))  # type: ignore[arg-type]
        except _Differs:
            return False
        return file.read(1) == ""


def _table(path: Path) -> TextIO:
    return io.TextIOWrapper(
        open_regular(path), encoding="utf-8", newline=""
    )


def _unreadable(error: Exception) -> str:
    """The fault of a table as a whole.

    Raises BadInput where this user may not read it.
    """
    if isinstance(error, PermissionError):
        raise BadInput(f"{error.filename}: {error.strerror}") from error
    if isinstance(error, FileNotFoundError):
        return "is missing"
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror}"
    return f"damaged: {error}"


# -- jobs.csv


def jobs_csv(history: History) -> Findings:
    """One line a job, every cell as the events have it, no column beside them."""
    path = history.folder / JOBS
    try:
        with _table(path) as file:
            if file.read() == history.file.jobs_table:
                return
        # Opened anew: the comparison has used it up.
        with _table(path) as file:
            reader = csv.DictReader(file)
            lines = [(reader.line_num, line) for line in reader]
            header = list(reader.fieldnames or ())
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        yield (JOBS, None), _unreadable(error)
        return
    yield from _wrong_lines(history, header, lines)


def _wrong_lines(
    history: History,
    header: list[str],
    lines: Sequence[tuple[int, Mapping[str, str]]],
) -> Findings:
    # By the names that the table can hold: no lone carriage return.
    jobs = {
        csv_text(row.job_id): cells_of(row) for row in history.file.rows
    }
    if jobs:
        for wrong in _wrong_columns(header):
            yield (JOBS, 1), wrong
    seen: set[str] = set()
    for number, line in lines:
        for wrong in _line_faults(line, jobs, seen, n_columns=len(header)):
            yield (JOBS, number), wrong
    for job_id in jobs:
        if job_id not in seen:
            yield (JOBS, None), f"{job_id} is missing"


def _line_faults(
    line: Mapping[str, str],
    jobs: Mapping[str, Sequence[Any]],
    seen: set[str],
    *,
    n_columns: int,
) -> Iterator[str]:
    """Faults of a line; its job joins those ``seen``."""
    job_id = line.get("job_id") or ""
    if job_id in seen:
        yield f"{job_id!r} stands here twice"
        return
    if job_id not in jobs:
        yield f"{job_id!r} was never submitted"
        return
    seen.add(job_id)
    # A line that is too long or too short has None as a name or a cell.
    if len(line) != n_columns or None in line.values():
        yield f"{job_id}: has not one cell a column"
    for wrong in _wrong_cells(line, jobs[job_id]):
        yield f"{job_id}: {wrong}"


def _wrong_columns(header: list[str]) -> Iterator[str]:
    for column in sorted(set(JOB_COLUMNS).difference(header)):
        yield f"has no column {column}"
    for column in dict.fromkeys(header):
        if column not in JOB_COLUMNS:
            yield f"the column {column!r} is none of the table's"
        elif header.count(column) > 1:
            yield f"has the column {column} twice"


def _wrong_cells(
    line: Mapping[str, str], values: Sequence[Any]
) -> Iterator[str]:
    for column, value in zip(JOB_COLUMNS, values, strict=True):
        cell = line.get(column)
        if cell is not None and not _cell_is(cell, value):
            yield f"{column} is {cell!r}, by the events {_text(value)!r}"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(cell_of(value))


def _cell_is(cell: str, value: Any) -> bool:
    if isinstance(value, float) and cell:
        return math.isclose(
            _number(cell), value, rel_tol=1e-9, abs_tol=1e-9
        )
    if isinstance(value, int) and not isinstance(value, bool):
        return cell in (str(value), str(float(value)))
    return cell == _text(value)


def _number(cell: str) -> float:
    """A cell's number as the tables are written.

    Python's float takes 1_000 and other alphabets' digits too.
    """
    if _NUMBER.fullmatch(cell):
        return float(cell)
    return math.nan


# -- links.csv


def links_csv(history: History) -> Findings:
    """Row for row what was sampled, or the means of what was reserved."""
    path = history.folder / LINKS
    tally = history.file.tally
    try:
        if _holds(
            path, lambda file: write_links_csv(link_rows(tally), file)
        ):
            return
        with _table(path) as file:
            yield from _wrong_rows(csv.reader(file), link_rows(tally))
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        yield (LINKS, None), _unreadable(error)


def _wrong_rows(reader: Any, rows: Iterable[LinkRow]) -> Findings:
    """Lines of a CSV reader that are not as the rows are due."""
    header: list[str] = next(reader, [])
    if header != list(LINK_COLUMNS):
        due = list(LINK_COLUMNS)
        yield (LINKS, 1), f"the columns are {header}, not {due}"
        return
    for cells, row in zip_longest(reader, rows):
        if cells is None:
            yield (LINKS, reader.line_num), "a row is missing"
            return
        if row is None:
            yield (LINKS, reader.line_num), "is a row too many"
            return
        if wrong := _wrong_rates(cells, row):
            yield (LINKS, reader.line_num), wrong


def _wrong_rates(cells: Sequence[str], row: LinkRow) -> str:
    """First cell of a line that is not as it is due; empty where all are."""
    if len(cells) != len(LINK_COLUMNS):
        return "has not one cell a column"
    cell = dict(zip(LINK_COLUMNS, cells, strict=True))
    for column, value, rounding in (
        ("sent_bps", row.sent_bps, HALF_A_BIT),
        ("reserved_bps", row.reserved_bps, HALF_A_BIT),
        ("time_s", row.time_s, 0.0),
    ):
        if not _rate_is(cell[column], value, rounding):
            return f"{column} is {cell[column]!r}, by the events {value}"
    stated = (cell["link"], cell["directed_link"], cell["capacity_bps"])
    link = (
        csv_text(row.link),
        str(row.directed_link),
        str(row.capacity_bps),
    )
    if stated == link:
        return ""
    return (
        f"is of {stated} (link, number, capacity), by the events of {link}"
    )


def _rate_is(cell: str, value: float | None, rounding: float) -> bool:
    if value is None:
        return cell == ""
    number = _number(cell)
    # A share of the value beside the half bit: means are sums of floats.
    slack = rounding + 1e-9 * max(1.0, abs(value))
    return math.isfinite(number) and abs(number - value) <= slack
