"""Columns of a run's tables as frames and Parquet files: the name and type of
each.

A type is pandas' (``string``, ``Int64``, ``Float64``, ``boolean``,
``category``) or ``json``: a string of JSON text, where a value is a list or has
keys of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from testbed.events import EVENTS
from testbed.record.link_rates import LINK_COLUMNS, LinkRow
from testbed.record.metrics import JOB_COLUMNS, OUTCOMES, JobRow, Summary

ColumnType: TypeAlias = Literal[
    "string", "Int64", "Float64", "boolean", "category", "json"
]
Columns: TypeAlias = dict[str, ColumnType]

CATEGORIES: dict[str, tuple[str, ...]] = {
    "outcome": OUTCOMES,
    "event": tuple(EVENTS),
}
"""The categories of the columns of that type, the same in every frame."""

_TYPES: dict[Any, ColumnType] = {
    bool: "boolean",
    int: "Int64",
    float: "Float64",
    str: "string",
}


def _hint(hint: Any) -> Any:
    """The type of a value that is there: ``float`` of ``float | None``."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    # One type beside None: any other union raises here, as soon as such a
    # field is added.
    (kind,) = set(get_args(hint)) - {NoneType}
    return kind


def _typed(name: str, hint: Any) -> Columns:
    """A field's column; a column for each field of a dataclass,
    ``estimate_ratio.median``.
    """
    kind = _hint(hint)
    if is_dataclass(kind):
        return {
            f"{name}.{inner}": column
            for inner, column in _of_class(kind).items()
        }
    if name in CATEGORIES:
        return {name: "category"}
    return {name: _TYPES.get(kind, "json")}


def _joined(parts: Iterable[Columns]) -> Columns:
    return {name: kind for part in parts for name, kind in part.items()}


def _of_class(kind: Any) -> Columns:
    hints = get_type_hints(kind)
    return _joined(_typed(f.name, hints[f.name]) for f in fields(kind))


_ROW = _of_class(JobRow)
# Columns that are properties, as wait_s, are no fields; all of them are
# times or ratios.
JOBS: Columns = {name: _ROW.get(name, "Float64") for name in JOB_COLUMNS}

# Rates are whole numbers in links.csv.
_LINK = _of_class(LinkRow) | {"sent_bps": "Int64", "reserved_bps": "Int64"}
LINKS: Columns = {
    "policy": "string",
    **{name: _LINK[name] for name in LINK_COLUMNS},
}

_FIRST: Columns = {
    "policy": "string",
    "t": "Float64",
    "event": "category",
    "job_id": "string",
}
EVENT_TABLE: Columns = _FIRST | _joined(map(_of_class, EVENTS.values()))

SUMMARY: Columns = _of_class(Summary) | {
    "expectations.met": "boolean",
    "expectations.complaints": "json",
}

TABLES: dict[str, Columns] = {
    "jobs": JOBS,
    "links": LINKS,
    "events": EVENT_TABLE,
}
"""The tables that a run folder holds as Parquet, by the file's name."""

REQUEST_COLUMNS = (
    "job_id",
    "kind",
    "submit_s",
    "n_vms",
    "requested_bps",
    "duration_s",
    "deadline_s",
    "value",
    "application",
    "job_class",
)
REQUESTS: Columns = {name: JOBS[name] for name in REQUEST_COLUMNS}
"""Columns of ``jobs`` that are known of a job before it is played."""
