"""Results of cells on disk, by the hash of everything they depend on: a stopped sweep goes on.

The name of a result is the digest of the cell and of the sources that compute its kind.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from reproductions.cell import Cell, Measures
from reproductions.sources import digest_behind
from testbed.results.folder import RunFolder, caller


class Store:
    """A folder of results, one small JSON file each, owned by the person who called sudo."""

    def __init__(self, folder: Path) -> None:
        self._folder = RunFolder(folder.absolute(), caller())

    def name(self, cell: Cell) -> str:
        """The file that holds the cell's result, or will."""
        content = json.dumps([_kind(cell), cell.to_json()], sort_keys=True)
        content += digest_behind(type(cell).__module__)
        return f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"

    def get(self, cell: Cell) -> Measures | None:
        """The stored result; None where there is none, or half of one, or another cell's."""
        try:
            record: Any = json.loads((self._folder.path / self.name(cell)).read_text("utf-8"))
            if record["cell"] != json.loads(json.dumps(cell.to_json())):
                return None
            return {str(name): float(value) for name, value in record["measures"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def put(self, cell: Cell, measures: Measures) -> None:
        """Store a result, whole or not at all."""
        record = {"kind": _kind(cell), "cell": cell.to_json(), "measures": dict(measures)}
        self._folder.write_json(self.name(cell), record)


def _kind(cell: Cell) -> str:
    return f"{type(cell).__module__}.{type(cell).__qualname__}"
