"""Checks ``jobs.csv`` and ``links.csv`` against tables made from the events.

A table is right if it equals the table made from the events, byte for byte. A
table that differs is compared value by value. Each finding then names its line.
Other roundings of a number, and whole numbers written as floats, are accepted.
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
ROUNDING_BPS = 0.5
"""Largest error of a rate that was rounded to a whole number."""


class _TextDiffers(Exception):
    """Written text differs from the text of the existing file."""


class _ComparingWriter:
    """Compares the text that is written with an existing file, and stores
    nothing.
    """

    def __init__(self, existing: TextIO) -> None:
        self._existing = existing

    def write(self, text: str) -> int:
        # The exception also ends the writer, so that a large table is not
        # made to its end.
        if self._existing.read(len(text)) != text:
            raise _TextDiffers
        return len(text)


def _equals_written(path: Path, write: Callable[[IO[str]], None]) -> bool:
    """True if the file has exactly the text that ``write`` writes."""
    with _opened(path) as file:
        try:
            write(_ComparingWriter(file))  # type: ignore[arg-type]
        except _TextDiffers:
            return False
        # No text may follow.
        return file.read(1) == ""


def _opened(path: Path) -> TextIO:
    return io.TextIOWrapper(
        open_regular(path), encoding="utf-8", newline=""
    )


def _unreadable(error: Exception) -> str:
    """The finding about a table that cannot be read.

    Raises BadInput if this user may not read it, which is no fault of the
    table.
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
    """Findings on ``jobs.csv``, which has one line per job, in any order.

    Its columns and its values must be those that follow from the events.
    """
    path = history.folder / JOBS
    try:
        with _opened(path) as file:
            if file.read() == history.file.jobs_table:
                return
            # The comparison has read the file to its end.
            file.seek(0)
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
    for fault in _column_faults(header):
        yield (JOBS, 1), fault
    # A job's name in the table may differ from that in the events: csv_text
    # replaces characters.
    jobs = {
        csv_text(row.job_id): cells_of(row) for row in history.file.rows
    }
    seen: set[str] = set()
    for number, line in lines:
        for fault in _line_faults(line, jobs, seen, n_columns=len(header)):
            yield (JOBS, number), fault
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
    """Faults of a line, whose job is added to ``seen``.

    ``jobs``: values in the order of JOB_COLUMNS, by name in the table.
    """
    job_id = line.get("job_id") or ""
    if job_id in seen:
        yield f"{job_id!r} stands here twice"
        return
    if job_id not in jobs:
        yield f"{job_id!r} was never submitted"
        return
    seen.add(job_id)
    # DictReader adds the key None to a line that is too long, and fills one
    # that is too short with values None.
    if len(line) != n_columns or None in line.values():
        yield f"{job_id}: does not have one field per column"
    for fault in _value_faults(line, jobs[job_id]):
        yield f"{job_id}: {fault}"


def _column_faults(header: list[str]) -> Iterator[str]:
    for column in sorted(set(JOB_COLUMNS).difference(header)):
        yield f"has no column {column}"
    for column in dict.fromkeys(header):
        if column not in JOB_COLUMNS:
            yield f"the column {column!r} is none of the table's"
        elif header.count(column) > 1:
            yield f"has the column {column} twice"


def _value_faults(
    line: Mapping[str, str], values: Sequence[Any]
) -> Iterator[str]:
    for column, value in zip(JOB_COLUMNS, values, strict=True):
        text = line.get(column)
        # A missing column or field is a finding of its own.
        if text is not None and not _stands_for(text, value):
            yield f"{column} is {text!r}, by the events {_written(value)!r}"


def _written(value: Any) -> str:
    """The text of a value in a table."""
    if value is None:
        return ""
    return str(cell_of(value))


def _stands_for(text: str, value: Any) -> bool:
    """True if a field's text is a permitted form of the value."""
    if isinstance(value, float):
        return math.isclose(
            _number(text), value, rel_tol=1e-9, abs_tol=1e-9
        )
    # Its exact type, since True is an int too, but is written as a word.
    if type(value) is int:
        return text in (str(value), str(float(value)))
    return text == _written(value)


def _number(text: str) -> float:
    """The number in a field; NaN, which equals nothing, for any other text.

    Python's float alone would also accept 1_000 and digits of other alphabets.
    """
    if _NUMBER.fullmatch(text):
        return float(text)
    return math.nan


# -- links.csv


def links_csv(history: History) -> Findings:
    """Findings on ``links.csv``, which has the samples of a live run, or the
    mean reservations of a simulated run, in the order of ``link_rows``.
    """
    path = history.folder / LINKS
    tally = history.file.tally
    try:
        if _equals_written(
            path, lambda file: write_links_csv(link_rows(tally), file)
        ):
            return
        with _opened(path) as file:
            yield from _wrong_rows(csv.reader(file), link_rows(tally))
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        yield (LINKS, None), _unreadable(error)


def _wrong_rows(reader: Any, rows: Iterable[LinkRow]) -> Findings:
    """Findings on the lines of a CSV reader, which are to equal the rows."""
    header: list[str] = next(reader, [])
    columns = list(LINK_COLUMNS)
    if header != columns:
        yield (LINKS, 1), f"the columns are {header}, not {columns}"
        return
    for texts, row in zip_longest(reader, rows):
        if texts is None:
            yield (LINKS, reader.line_num), "a row is missing"
            return
        if row is None:
            yield (LINKS, reader.line_num), "is a row too many"
            return
        fault = _row_fault(texts, row)
        if fault:
            yield (LINKS, reader.line_num), fault


def _row_fault(texts: Sequence[str], row: LinkRow) -> str:
    """The first difference of a line from the row; empty for none."""
    if len(texts) != len(LINK_COLUMNS):
        return "does not have one field per column"
    line = dict(zip(LINK_COLUMNS, texts, strict=True))
    for column, value, rounding in (
        ("sent_bps", row.sent_bps, ROUNDING_BPS),
        ("reserved_bps", row.reserved_bps, ROUNDING_BPS),
        ("time_s", row.time_s, 0.0),
    ):
        if not _is_near(line[column], value, rounding):
            return f"{column} is {line[column]!r}, by the events {value}"
    for column, text in (
        ("link", csv_text(row.link)),
        ("directed_link", str(row.directed_link)),
        ("capacity_bps", str(row.capacity_bps)),
    ):
        if line[column] != text:
            return f"{column} is {line[column]!r}, by the events {text!r}"
    return ""


def _is_near(text: str, value: float | None, rounding: float) -> bool:
    """True if a field's text is the value, up to rounding; None: empty."""
    if value is None:
        return text == ""
    number = _number(text)
    # Means are sums of floats, whose errors grow with the value.
    tolerance = rounding + 1e-9 * max(1.0, abs(value))
    return math.isfinite(number) and abs(number - value) <= tolerance
