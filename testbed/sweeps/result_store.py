"""Results on disk, each filed under the digest of all that it depends on.

A result is two lines of JSON: the result, the same to the byte wherever it was
computed, and its provenance. It is written whole or not at all; one that is
damaged, or was edited, counts as none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.owned_files import caller
from testbed.record.folder import EVENTS, RunFolder
from testbed.record.stored_json import regular_bytes

Record = Mapping[str, Any]
COMPLAINTS = 10


class ResultStore:
    """A folder of results by key, owned by the user who called sudo; sweeps may
    share it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = RunFolder(folder.absolute(), caller())

    @staticmethod
    def name(key: str) -> str:
        """The file of a key's result, below the store."""
        return f"{key[:2]}/{key[2:]}.jsonl"

    def get(self, key: str) -> Record | None:
        """The stored result; None if it is missing, damaged, or of another key."""
        try:
            path = self._folder.path / self.name(key)
            text = regular_bytes(path).decode()
            first, _, second = text.partition("\n")
            record: Any = json.loads(first)
            # Files are not synced: a torn one lacks its last line end.
            if not second.endswith("\n") or record["key"] != key:
                return None
            result: Any = record["result"]
            if record["sha256"] != _digest(result):
                return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        if isinstance(result, dict):
            return result
        return None

    def put(self, key: str, result: Record, provenance: Record) -> None:
        """Stores a result, whole or not at all."""
        filed = {"key": key, "result": result, "sha256": _digest(result)}
        lines = f"{_line(filed)}\n{_line(provenance)}\n"
        # Unsynced: what a power cut damages is computed again, and a sync may
        # take milliseconds.
        self._folder.write_bytes(self.name(key), lines.encode(), sync=False)


def _digest(result: Record) -> str:
    """A checksum against edits by mistake; it protects from no forgery."""
    return hashlib.sha256(_line(result).encode()).hexdigest()


def _line(value: Record) -> str:
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )


@dataclass(frozen=True)
class SweepProgress:
    """Runs done, of which ``kept`` were found stored; ``cost`` is of the others.

    ``in_seconds``: costs are the seconds that runs are expected to take, one
    after another. ``stage``: if set, this is the progress of other work, whose
    results are not stored.
    """

    done: int
    of: int
    cost: float
    of_cost: float
    kept: int
    in_seconds: bool = False
    stage: str = ""


Report = Callable[[SweepProgress], None]


def number(record: Record, metric: str) -> float | None:
    """A cell's metric by its dotted path in the summary; None where it is no
    number.
    """
    value: Any = record["summary"]
    for part in metric.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return None


def numbers(
    record: Record | None, metrics: Sequence[str]
) -> list[float | None]:
    """Metrics of a cell's result; all None of a cell that has none."""
    if record is None:
        return [None] * len(metrics)
    return [number(record, metric) for metric in metrics]


def fidelity_of(record: Record) -> str | None:
    """The verdict on a live cell's fidelity; None for a simulated cell."""
    summary = record.get("summary", {})
    verdict: str | None = summary.get("fidelity", {}).get("verdict")
    return verdict


def events_digest(run: Path) -> str:
    """The SHA-256 of a run folder's events."""
    return hashlib.sha256(regular_bytes(run / EVENTS)).hexdigest()


def cell_result(
    summary: dict[str, Any],
    expected: Mapping[str, Any],
    failed: list[str],
    events_sha256: str,
) -> dict[str, Any]:
    """A cell's result. ``exit_code``: as the run's, 1 if an expectation or the
    audit failed.
    """
    summary = dict(summary)
    # A result is the same to the byte wherever it was computed.
    summary.pop("wall_s", None)
    good = expected["met"] and not failed
    return {
        "summary": summary,
        "events_sha256": events_sha256,
        "audit": {"passed": not failed, "failed": failed},
        "met": expected["met"],
        "complaints": expected["complaints"][:COMPLAINTS],
        "exit_code": 0 if good else 1,
    }


def is_cell_result(record: Record) -> bool:
    """True for what :func:`cell_result` gives."""
    parts = (record.get("summary"), record.get("audit"))
    if not all(isinstance(part, dict) for part in parts):
        return False
    fields = ("events_sha256", "met", "complaints", "exit_code")
    return all(name in record for name in fields)
