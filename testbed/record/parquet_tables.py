"""A run's jobs, links and events as Arrow batches, and as Parquet files beside
``events.jsonl``.

Batches are made one after another from ``jobs.csv``, ``links.csv`` and
``events.jsonl``, and each becomes a row group: memory does not grow with the
run. A run that was killed has no CSV files; its jobs and links then come from
its events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from testbed.errors import BadInput
from testbed.events import Event, JobSubmitted
from testbed.record import folder as names
from testbed.record.columns import EVENT_TABLE, TABLES, Columns
from testbed.record.event_file import EventFile, read_events, stream_events
from testbed.record.folder import RunFolder
from testbed.record.link_rates import link_rows
from testbed.record.metrics import tally
from testbed.record.stored_json import CHANGED

ROWS = 1 << 15
"""Rows of a row group."""
SOURCES = {"jobs": names.JOBS, "links": names.LINKS, "events": names.EVENTS}
"""The file that a table is made from, where there is one."""

ARROW = {
    "string": pa.string(),
    "category": pa.string(),
    "json": pa.string(),
    "Int64": pa.int64(),
    "Float64": pa.float64(),
    "boolean": pa.bool_(),
}

T = TypeVar("T")
Record = dict[str, Any]
Batches = Iterator[pa.RecordBatch]


def schema(columns: Columns) -> pa.Schema:
    return pa.schema(
        [(name, ARROW[kind]) for name, kind in columns.items()]
    )


def parquet_name(table: str) -> str:
    """``jobs.parquet``."""
    return f"{table}.parquet"


def write_parquet(
    folder: RunFolder, history: Iterable[Event] | None = None
) -> list[Path]:
    """Writes ``jobs.parquet``, ``links.parquet`` and ``events.parquet`` into
    one policy's folder.

    ``history``: the run's events, where they are read already. Raises BadInput
    where the folder is damaged.
    """
    policy = policy_at(folder.path)
    written = []
    for table, columns in TABLES.items():
        if table == "events" and history is not None:
            batches = _event_batches(
                history, policy, folder.path / names.EVENTS
            )
        else:
            batches = table_batches(folder.path, table)
        write = partial(_write, schema(columns), batches)
        written.append(folder.write_stream(parquet_name(table), write))
    return written


def _write(form: pa.Schema, batches: Batches, file: IO[bytes]) -> None:
    with pq.ParquetWriter(file, form, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def read_table(path: Path, table: str) -> pa.Table:
    """One policy's table: its Parquet file where it is as new as its source,
    else the source.

    Raises BadInput where what is read is damaged.
    """
    stored = path / parquet_name(table)
    form = schema(TABLES[table])
    # The source is the truth: a stored table that is older was made of an
    # earlier version of it.
    if _is_as_new(stored, path / SOURCES[table]):
        try:
            table_as_stored = pq.read_table(stored)
            # In full: a text that is no UTF-8 is damage, too.
            table_as_stored.validate(full=True)
        except (OSError, pa.ArrowException) as error:
            raise _damaged(stored, error) from error
        # An earlier version may have written other columns.
        if table_as_stored.schema.equals(form):
            return table_as_stored
    return pa.Table.from_batches(table_batches(path, table), form)


def _is_as_new(stored: Path, source: Path) -> bool:
    try:
        return stored.stat().st_mtime_ns >= source.stat().st_mtime_ns
    except OSError:
        return False


def table_batches(path: Path, table: str) -> Batches:
    """The batches of one policy's table, from its CSV file or its events."""
    source = path / SOURCES[table]
    columns = TABLES[table]
    if table == "events":
        return _event_batches(
            stream_events(source), policy_at(path), source
        )
    if source.is_file():
        return _csv_batches(source, columns, policy_at(path))
    history = path / names.EVENTS
    return _batches(_RECORDS[table](history), columns, history)


def policy_at(path: Path) -> str:
    """The policy of a run's folder. Raises BadInput where its events do not
    begin with ``run_started``.
    """
    file = path / names.EVENTS
    first = list(islice(stream_events(file), 1))
    return EventFile(file, first).started.policy


def _job_records(file: Path) -> Iterator[Record]:
    columns = tuple(TABLES["jobs"])
    for row in tally(stream_events(file)).rows():
        yield {name: getattr(row, name) for name in columns}


def _link_records(file: Path) -> Iterator[Record]:
    history = read_events(file)
    policy = history.started.policy
    for row in link_rows(tally(history.events, recording=True)):
        record = {"policy": policy, **asdict(row)}
        # Whole numbers, as in links.csv.
        for rate in ("sent_bps", "reserved_bps"):
            if record[rate] is not None:
                record[rate] = round(record[rate])
        yield record


_RECORDS: dict[str, Callable[[Path], Iterator[Record]]] = {
    "jobs": _job_records,
    "links": _link_records,
}


def _batches(
    records: Iterable[Record], columns: Columns, source: Path
) -> Batches:
    """Batches of records that have all columns; an empty text is no value, as
    in a CSV file.
    """
    for chunk in _chunks(records):
        cells: dict[str, list[Any]] = {}
        for name in columns:
            values = [record[name] for record in chunk]
            cells[name] = [
                None if value == "" else value for value in values
            ]
        yield _batch(cells, columns, source)


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """The items of one row group after another."""
    stream = iter(items)
    while chunk := list(islice(stream, ROWS)):
        yield chunk


def _batch(
    cells: dict[str, list[Any]], columns: Columns, source: Path
) -> pa.RecordBatch:
    try:
        return pa.record_batch(cells, schema=schema(columns))
    except (OverflowError, pa.ArrowException) as error:
        raise _damaged(source, error) from error


def _damaged(path: Path, error: Exception) -> BadInput:
    # A message of Arrow's may have several lines; the first names the fault.
    lines = str(error).splitlines()
    why = lines[0] if lines else type(error).__name__
    return BadInput(f"{path}: damaged: {why}", CHANGED)


# -- jobs.csv and links.csv


def _csv_batches(path: Path, columns: Columns, policy: str) -> Batches:
    """The rows of a CSV file; columns that an earlier version did not write are
    empty.
    """
    # Of the two files, jobs.csv alone has a column for the policy.
    of_jobs = path.name == names.JOBS
    included = [name for name in columns if of_jobs or name != "policy"]
    # Names and reasons are anybody's text, and may hold line ends.
    parse = arrow_csv.ParseOptions(newlines_in_values=True)
    first = included[0]
    try:
        with arrow_csv.open_csv(
            path,
            parse_options=parse,
            convert_options=_types(included, columns),
        ) as reader:
            for batch in reader:
                if batch.column(first).null_count:
                    raise BadInput(
                        f"{path}: damaged: a line without {first}", CHANGED
                    )
                yield (
                    batch if of_jobs else _labelled(batch, columns, policy)
                )
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, error) from error


def _types(
    included: list[str], columns: Columns
) -> arrow_csv.ConvertOptions:
    """Columns with their types: Arrow would guess them from the first block of
    lines, in which a column may be empty.
    """
    return arrow_csv.ConvertOptions(
        column_types={name: ARROW[columns[name]] for name in included},
        include_columns=included,
        include_missing_columns=True,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
        true_values=["true"],
        false_values=["false"],
    )


def _labelled(
    batch: pa.RecordBatch, columns: Columns, policy: str
) -> pa.RecordBatch:
    label = pa.array([policy] * batch.num_rows, pa.string())
    return pa.record_batch([label, *batch.columns], schema=schema(columns))


# -- events.jsonl


_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_NESTED = frozenset(
    name for name, kind in EVENT_TABLE.items() if kind == "json"
)


def _event_batches(
    history: Iterable[Event], policy: str, source: Path
) -> Batches:
    """A column for each field of any event; lists and objects as JSON text.

    The job of a ``job_submitted`` is named in ``job_id`` too.
    """
    for chunk in _chunks(history):
        cells = _event_cells(chunk)
        cells["policy"] = [policy] * len(chunk)
        yield _batch(cells, EVENT_TABLE, source)


def _event_cells(events: Sequence[Event]) -> dict[str, list[Any]]:
    cells: dict[str, list[Any]] = {
        name: [None] * len(events) for name in EVENT_TABLE
    }
    for place, event in enumerate(events):
        for name, value in event.to_json().items():
            if name in _NESTED:
                value = _JSON.encode(value)  # noqa: PLW2901
            cells[name][place] = value
        if isinstance(event, JobSubmitted):
            cells["job_id"][place] = str(event.job["id"])
    return cells
