"""The table of a sweep in progress, in a file that others may read meanwhile."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Self

from annotated_types import MaxLen
from pydantic import TypeAdapter, ValidationError

from testbed.errors import BadInput
from testbed.owned_files import caller, remove_file
from testbed.record.folder import RunFolder
from testbed.record.running import start_ticks
from testbed.record.stored_json import regular_bytes
from testbed.sweeps.cell_runs import Cell
from testbed.sweeps.intervals import estimate
from testbed.sweeps.result_store import Record, numbers
from testbed.sweeps.sweep_plan import SweepPlan
from testbed.sweeps.sweep_tables import (
    TableRow,
    printed_cells,
    printed_columns,
    printed_values,
)

EVERY_S = 1.0
MOST_ROWS = 1_000
NAME = ".sweep-{pid}.json"


@dataclass(frozen=True)
class TableSoFar:
    """A sweep at a moment.

    ``rows``: the first MOST_ROWS combinations of which a cell is done, as people
    read them.
    """

    name: str
    backend: str
    pid: int
    start_ticks: int
    since_unix_s: float
    asked: int
    computed: int
    kept: int
    failed: int
    n_keys: int
    columns: tuple[str, ...]
    rows: Annotated[tuple[tuple[str, ...], ...], MaxLen(MOST_ROWS)]

    @property
    def lives(self) -> bool:
        """True while the process that computes it does."""
        return start_ticks(self.pid) == self.start_ticks


_TABLE = TypeAdapter(TableSoFar)


@dataclass
class _Combination:
    """A combination's cells so far. ``values``: a list per cell."""

    printed: tuple[Any, ...]
    values: list[list[float | None]] = field(default_factory=list)
    failed: int = 0
    outside: int = 0


class TableWriter:
    """Writes the table each second while cells come; its file is removed at the
    end of the block.

    Where no file can be written there is none.
    """

    def __init__(self, plan: SweepPlan, out: Path) -> None:
        # How many seeds are enough is not known before the end.
        self._plan = replace(plan, stop=None)
        self._folder = RunFolder(out.absolute(), caller())
        self._since_unix_s = time.time()
        self._combinations: dict[tuple[str, ...], _Combination] = {}
        self._printed: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._counts = {"computed": 0, "kept": 0, "failed": 0}
        self._written_s = 0.0

    def __enter__(self) -> Self:
        with suppress(OSError, BadInput):
            self._folder.make()
            self._write()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            remove_file(table_file(self._folder.path))

    def take(self, cell: Cell, record: Record | None, count: str) -> None:
        """Takes a cell's result, None for one that failed; ``count``: computed,
        kept or failed.
        """
        self._counts[count] += 1
        n_keys = len(self._plan.combined)
        # Values may be lists and mappings, which are no keys of a
        # dictionary.
        key = tuple(map(repr, cell.values[:n_keys]))
        combination = self._combinations.get(key)
        if combination is None:
            printed = printed_cells(self._plan, cell.values[:n_keys])
            combination = _Combination(printed)
            self._combinations[key] = combination
        combination.values.append(numbers(record, self._plan.metrics))
        combination.failed += record is None
        combination.outside += (
            record is not None and record["exit_code"] != 0
        )
        # Its line is made anew when it is written next.
        self._printed.pop(key, None)
        if time.monotonic() - self._written_s >= EVERY_S:
            with suppress(OSError, BadInput):
                self._write()

    def _write(self) -> None:
        self._written_s = time.monotonic()
        pid = os.getpid()
        table = TableSoFar(
            name=self._plan.name,
            backend=self._plan.backend,
            pid=pid,
            start_ticks=start_ticks(pid) or 0,
            since_unix_s=self._since_unix_s,
            asked=self._plan.size,
            n_keys=len(self._plan.combined),
            columns=printed_columns(self._plan),
            rows=tuple(self._rows()),
            **self._counts,
        )
        name = table_file(self._folder.path).name
        self._folder.write_json(name, asdict(table))

    def _rows(self) -> list[tuple[str, ...]]:
        rows = []
        for key in list(self._combinations)[:MOST_ROWS]:
            if key not in self._printed:
                self._printed[key] = self._row(self._combinations[key])
            rows.append(self._printed[key])
        return rows

    def _row(self, combination: _Combination) -> tuple[str, ...]:
        estimates = map(estimate, zip(*combination.values, strict=True))
        row = TableRow(
            values=combination.printed,
            cells=len(combination.values),
            failed=combination.failed,
            outside=combination.outside,
            needed=None,
            estimates=tuple(estimates),
        )
        return printed_values(self._plan, row)


def table_file(out: Path) -> Path:
    """The file of the sweep that this process computes into a place."""
    return out / NAME.format(pid=os.getpid())


def tables_below(out: Path) -> list[Path]:
    """Files of the sweeps in progress into a place, the latest last."""
    living = []
    for path in out.glob(NAME.format(pid="*")):
        table = read_table(path)
        if table is not None and table.lives:
            living.append((table.since_unix_s, path))
    return [path for _, path in sorted(living)]


def read_table(path: Path) -> TableSoFar | None:
    """A table as it was written last; None where there is none, or none that
    can be read.
    """
    try:
        return _TABLE.validate_json(regular_bytes(path))
    except (OSError, ValidationError):
        return None
