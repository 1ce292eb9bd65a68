"""A sweep that the page shows: in progress by its table so far, or finished by
its folder.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

from testbed.errors import BadInput, TestbedError
from testbed.record.folder import SWEEP, untimed_name
from testbed.record.stored_json import read_json
from testbed.sweeps.sweep_comparison import SweepTable, stored_table
from testbed.sweeps.sweep_tables import with_interval
from testbed.sweeps.table_so_far import MOST_ROWS, TableSoFar, read_table
from testbed.web.followed_run import ItemKind, Status
from testbed.web.gauges import Gauge
from testbed.web.run_state import shown

STATES = ("asked", "computed", "kept", "failed")
"""Counts of a sweep's runs, as its file names them: of all, then of those in
each state.
"""


class FollowedSweep:
    """The table of a sweep. ``path``: the file of a sweep in progress, which may
    not exist yet, or the folder of a finished one.

    ``trouble``: what cannot be read, in a sentence, or empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trouble = ""
        self._table: TableSoFar | None = None
        self._began_unix_s = time.time()
        self._finished: dict[str, Any] = {}
        if path.is_dir():
            self._finish(path)

    @property
    def ended(self) -> bool:
        return bool(self._finished) or bool(self.trouble)

    @property
    def status(self) -> Status:
        if self.trouble:
            return "damaged"
        if self._finished:
            return "finished"
        if self._table is None:
            return "waiting"
        return "live" if self._table.lives else "interrupted"

    def refresh(self) -> bool:
        """Reads what was written since the last call; False where nothing was."""
        if self.ended:
            return False
        table = read_table(self.path)
        if table is None:
            return self._look_for_end()
        if table == self._table:
            return False
        self._table = table
        return True

    def _look_for_end(self) -> bool:
        """True if the sweep's folder has taken the place of its file."""
        if self._table is None:
            return False
        wanted = untimed_name(self._table.name, seed=None)
        folders = []
        for path in self.path.parent.glob("*-sweep*"):
            written = path / SWEEP
            # The time has no hyphen. A second folder of the same time has a
            # number at its end.
            _, _, named = path.name.partition("-")
            named = re.sub(r"-sweep-\d+$", "-sweep", named)
            # Another's folder, or one that is being removed, is passed over.
            with suppress(OSError):
                if written.is_file() and named == wanted:
                    folders.append((written.stat().st_mtime, path))
        # An older folder is an earlier sweep's of the same name. A second
        # of grace, as files' times are coarser than the clock.
        if not folders or max(folders)[0] < self._began_unix_s - 1:
            return False
        self._finish(max(folders)[1])
        return True

    def _finish(self, folder: Path) -> None:
        try:
            self._finished = _finished(folder)
        except TestbedError as error:
            self.trouble = error.message

    def label(self) -> dict[str, str]:
        """The sweep as lists and metrics name it."""
        return {
            "run": shown(self._sweep()["name"]),
            "policy": "",
            "kind": "sweep",
        }

    def gauges(self) -> Iterable[Gauge]:
        """The number of its runs in each state."""
        cells = Gauge("sweep_cells", "", "Cells of a sweep.", ("state",))
        sweep = self._sweep()
        for state in STATES:
            cells.add(sweep[state], state)
        yield cells

    def header(self) -> dict[str, Any]:
        sweep = self._sweep()
        return {
            "kind": "layout",
            "of": "sweep",
            "name": shown(sweep["name"]),
            "policy": "",
            "backend": sweep["backend"],
            "seed": None,
            "folder": shown(self.path),
            "status": self.status,
            "trouble": shown(self.trouble),
            "begin_s": 0.0,
            "end_s": 0.0,
            "curves": [],
        }

    def frame(self) -> dict[str, Any]:
        at_s = 0.0
        if self._table is not None:
            at_s = time.time() - self._table.since_unix_s
        return {
            "kind": "frame",
            "sweep": self._sweep(),
            "at_s": at_s,
            "speed": 0,
            "mode": "live",
        }

    def item(self, kind: ItemKind, name: str) -> dict[str, Any]:
        """Raises BadInput: a sweep's page has no histories."""
        raise BadInput(f"a sweep has no {kind} {shown(name)}")

    def _sweep(self) -> dict[str, Any]:
        if self._finished:
            return self._finished
        if self._table is None:
            return {**_EMPTY, "name": "sweep"}
        sweep = {key: getattr(self._table, key) for key in _EMPTY}
        return sweep | {
            "columns": list(map(shown, self._table.columns)),
            "rows": [list(map(shown, row)) for row in self._table.rows],
        }


_EMPTY: dict[str, Any] = {
    "name": "",
    "backend": "sim",
    "asked": 0,
    "computed": 0,
    "kept": 0,
    "failed": 0,
    "n_keys": 0,
    "columns": [],
    "rows": [],
}


def _finished(folder: Path) -> dict[str, Any]:
    """A finished sweep as it is written down. Raises BadInput where it is
    damaged.
    """
    written = read_json(folder / SWEEP)
    if not isinstance(written, dict):
        raise BadInput(f"{folder / SWEEP} is not a sweep's")
    cells = written.get("cells")
    if not isinstance(cells, dict):
        raise BadInput(f"{folder / SWEEP} does not say how many cells")
    counts = {}
    for state in STATES:
        count = cells.get(state)
        counts[state] = count if isinstance(count, int) else 0
    table = stored_table(folder)
    metrics = list(dict.fromkeys(chain(*table.means.values())))
    return {
        "name": str(written.get("name", "")),
        "backend": str(written.get("backend", "")),
        **counts,
        "n_keys": len(table.keys),
        "columns": list(map(shown, (*table.keys, *metrics))),
        "rows": list(_rows(table, metrics)),
    }


def _rows(table: SweepTable, metrics: Sequence[str]) -> Iterator[list[str]]:
    """The table's rows as people read them, the first ``MOST_ROWS``."""
    for values, means in islice(table.means.items(), MOST_ROWS):
        row = list(map(shown, values))
        for metric in metrics:
            mean = means.get(metric)
            row.append("–" if mean is None else with_interval(mean))
        yield row
