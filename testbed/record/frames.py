"""Tables of a run as pandas frames. Types of columns do not depend on the values:
an empty table has the same.
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
    """Pandas' dtype of a column, for a category with its possible values.

    ``kind``: the type in :mod:`testbed.record.columns`.
    """
    if kind == "category":
        return pd.CategoricalDtype(list(CATEGORIES[name]))
    return DTYPES[kind]


def table_frame(paths: Sequence[Path], table: str) -> pd.DataFrame:
    """A table of a run: the rows of all policies, one policy after another.

    ``paths``: the policies' folders. Raises BadInput where one is damaged.
    """
    columns = TABLES[table]
    # Without policies the frame has the columns of an empty table.
    tables = [schema(columns).empty_table()]
    for path in paths:
        rows = read_table(path, table)
        _check_categories(rows, columns, path)
        tables.append(rows)
    return _frame(pa.concat_tables(tables), columns)


def _check_categories(rows: pa.Table, columns: Columns, path: Path) -> None:
    """Raises BadInput for a value of a category that its column does not know:
    pandas would take it for a missing one.
    """
    for name in CATEGORIES.keys() & columns.keys():
        for value in pc.unique(rows[name]).to_pylist():
            if value not in (None, *CATEGORIES[name]):
                raise BadInput(
                    f"{path}: damaged: {name} is {value!r}", CHANGED
                )


def _frame(table: pa.Table, columns: Columns) -> pd.DataFrame:
    dtypes = {ARROW[kind]: dtype for kind, dtype in DTYPES.items()}
    frame: pd.DataFrame = table.to_pandas(types_mapper=dtypes.get)
    # Afterwards, as strings: Arrow's categories are those that occur.
    categories = {}
    for name in CATEGORIES.keys() & columns.keys():
        categories[name] = dtype_of(name, "category")
    return frame.astype(categories)


def records_frame(
    records: Iterable[Mapping[str, Any]], columns: Columns
) -> pd.DataFrame:
    """A frame with a row for each record; a value that a record lacks is missing.

    Raises TypeError, ValueError or OverflowError for a value of another type.
    """
    rows = list(records)
    arrays = {}
    for name, kind in columns.items():
        values = [row.get(name) for row in rows]
        arrays[name] = pd.array(values, dtype=dtype_of(name, kind))
    return pd.DataFrame(arrays)


def summary_record(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a ``summary.json``, with the columns of SUMMARY.

    A nested value has a dotted name; columns of type ``json`` are JSON text.
    """
    return {
        name: _summary_value(summary, name, kind)
        for name, kind in SUMMARY.items()
    }


def _summary_value(summary: Mapping[str, Any], name: str, kind: str) -> Any:
    value: Any = summary
    for key in name.split("."):
        # Without jobs, for one, a summary has null in place of an object.
        value = value.get(key) if isinstance(value, Mapping) else None
    if kind != "json" or value is None:
        return value
    return json.dumps(value, ensure_ascii=False)
