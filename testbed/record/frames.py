"""Tables of a run as pandas frames with typed columns, the same for an empty
table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from testbed.errors import BadInput
from testbed.record.columns import CATEGORIES, SUMMARY, TABLES, Columns
from testbed.record.parquet_tables import ARROW, read_table, schema
from testbed.record.stored_json import CHANGED

# Nullable types: a missing number does not make whole numbers floats
# (decision 45).
DTYPES: dict[str, Any] = {
    "string": pd.StringDtype("pyarrow", pd.NA),
    "json": pd.StringDtype("pyarrow", pd.NA),
    "Int64": pd.Int64Dtype(),
    "Float64": pd.Float64Dtype(),
    "boolean": pd.BooleanDtype(),
}


def dtype_of(name: str, kind: str) -> Any:
    """Pandas' dtype of a column; that of a category has its values."""
    if kind == "category":
        return pd.CategoricalDtype(list(CATEGORIES[name]))
    return DTYPES[kind]


def table_frame(paths: Sequence[Path], table: str) -> pd.DataFrame:
    """One table of all policies of a run, in the order of their folders. Raises
    BadInput.
    """
    columns = TABLES[table]
    # The empty one gives a run without policies its columns.
    tables = [schema(columns).empty_table()]
    for path in paths:
        tables.append(_known(read_table(path, table), columns, path))
    return _frame(pa.concat_tables(tables), columns)


def _known(table: pa.Table, columns: Columns, path: Path) -> pa.Table:
    """The table. Raises BadInput where a category is none that there is."""
    for name in CATEGORIES.keys() & columns.keys():
        for value in pc.unique(table[name]).to_pylist():
            if value not in (None, *CATEGORIES[name]):
                # A damaged file's outcome would silently become a missing
                # value.
                raise BadInput(
                    f"{path}: damaged: {name} is {value!r}", CHANGED
                )
    return table


def _frame(table: pa.Table, columns: Columns) -> pd.DataFrame:
    dtypes = {ARROW[kind]: dtype for kind, dtype in DTYPES.items()}
    frame: pd.DataFrame = table.to_pandas(types_mapper=dtypes.get)
    # Arrow knows no category that is the same in every batch.
    categories = {}
    for name, kind in columns.items():
        if kind == "category":
            categories[name] = dtype_of(name, kind)
    return frame.astype(categories)


def records_frame(
    records: Iterable[Mapping[str, Any]], columns: Columns
) -> pd.DataFrame:
    """A frame of records; what one lacks is missing there."""
    rows = list(records)
    arrays = {}
    for name, kind in columns.items():
        values = [row.get(name) for row in rows]
        arrays[name] = pd.array(values, dtype=dtype_of(name, kind))
    return pd.DataFrame(arrays)


def summary_record(summary: Mapping[str, Any]) -> dict[str, Any]:
    """A ``summary.json`` as one row: nested values under dotted names, lists as
    JSON text.
    """
    return {
        name: _cell(summary, name, kind) for name, kind in SUMMARY.items()
    }


def _cell(summary: Mapping[str, Any], name: str, kind: str) -> Any:
    value: Any = summary
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if kind != "json" or value is None:
        return value
    return json.dumps(value, ensure_ascii=False)
