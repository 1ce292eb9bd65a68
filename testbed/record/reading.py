"""Reads a run folder back into typed values; an interrupted run as far as it
came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from testbed.errors import BadInput
from testbed.events import Number, RunStarted
from testbed.record import folder as names
from testbed.record.event_file import EventFile, read_events, stream_events
from testbed.record.metrics import JobRow, Recording, Summary
from testbed.record.stored_json import (
    read_json,
    regular_bytes,
    typed_record,
)
from testbed.units import number_of

MADE = (
    "name a folder that `testbed run` or `testbed simulate` made, such as runs/…,"
    " or the run's name, or latest"
)
SHOWN_RUNS = 5


def read_recording(path: Path) -> Recording:
    """A run folder's events. Raises BadInput where they are damaged."""
    file = read_events(path / names.EVENTS)
    return Recording(file.path, file.events, file.broken_line)


@dataclass(frozen=True)
class RecordedRun:
    """One run folder (one policy). Files that an interrupted run never wrote
    are None or empty.
    """

    path: Path
    file: Recording
    started: RunStarted
    rows: tuple[JobRow, ...]
    summary: Summary
    stored_summary: dict[str, Any] | None
    provenance: dict[str, Any] | None
    spec_text: str | None
    resolved: dict[str, Any] | None


def policy_folders(path: Path) -> list[Path]:
    """The folders with an ``events.jsonl``: ``path`` itself, or its policies by
    name.

    Raises BadInput where ``path`` is no run folder, or holds several runs.
    """
    try:
        if (path / names.EVENTS).is_file():
            return [path]
        below = sorted(
            sub for sub in path.iterdir() if (sub / names.EVENTS).is_file()
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BadInput(f"{path} is not a folder", MADE) from error
    except OSError as error:
        hint = f"see who may read it: ls -l {path}"
        raise BadInput(
            f"{error.filename or path}: {error.strerror}", hint
        ) from error
    if not below:
        raise BadInput(
            f"{path} is not a run folder: it has no {names.EVENTS}, nor has a folder in it",
            MADE,
        )
    _require_one_run(path, below)
    return below


def in_order_of_list(path: Path, folders: list[Path]) -> list[Path]:
    """Policies in the experiment file's order, which is that of the run's list of
    summaries; without a list, by name.
    """
    listed = read_json(path / names.SUMMARY)
    order: dict[object, int] = {}
    if isinstance(listed, list):
        for entry in listed:
            if isinstance(entry, dict) and isinstance(
                entry.get("folder"), str
            ):
                order.setdefault(entry["folder"], len(order))
    return sorted(folders, key=lambda p: order.get(p.name, len(order)))


def _require_one_run(path: Path, below: list[Path]) -> None:
    """Raises BadInput where the folders below ``path`` are several runs, or named
    as runs are: then somebody keeps runs there.

    The policies of one run agree in its name, seed and backend. A policy that
    was killed before its first line is taken to belong to the others.
    """
    runs: dict[tuple[str, int, str], list[str]] = {}
    n_named = 0
    for folder in below:
        n_named += names.is_a_runs(folder.name)
        first = next(stream_events(folder / names.EVENTS), None)
        if isinstance(first, RunStarted):
            key = (first.run, first.seed, first.backend)
            runs.setdefault(key, []).append(folder.name)
    if len(runs) <= 1 and not n_named:
        return
    n_runs = number_of(max(len(runs), n_named), "run")
    message = f"{path} is not a run folder, it holds {n_runs}"
    if runs:
        message += f": {_listed(runs)}"
    raise BadInput(message, f"name one of them, as {below[0]}")


def _listed(runs: Mapping[tuple[str, int, str], list[str]]) -> str:
    """The first runs with their folders."""
    listed = []
    for (run, seed, backend), folders in runs.items():
        listed.append(
            f"{', '.join(folders)} ({run}, {backend}, seed {seed})"
        )
    shown = "; ".join(listed[:SHOWN_RUNS])
    if len(listed) > SHOWN_RUNS:
        shown += f" and {len(listed) - SHOWN_RUNS:,} more"
    return shown


def policy_of(folder: Path) -> str | None:
    """The policy of a run folder as its first event has it: the folder's name may
    be another.

    None where the run was killed before its first line. Raises BadInput where
    the folder is damaged.
    """
    file = folder / names.EVENTS
    first = next(stream_events(file), None)
    if first is None:
        return None
    return EventFile(file, [first]).started.policy


def load_run(path: Path, file: Recording | None = None) -> RecordedRun:
    """One policy's run folder. Raises BadInput where it is none, or damaged.

    ``file``: its events, where they have been read.
    """
    if file is None:
        file = read_recording(path)
    started = file.started
    stored = _stored_summary(path / names.SUMMARY)
    known = stored or {}
    return RecordedRun(
        path=path,
        file=file,
        started=started,
        rows=file.rows,
        summary=file.summary(known.get("name"), known.get("wall_s")),
        stored_summary=stored,
        # Several policies share what belongs to the experiment: it lies one
        # folder up.
        provenance=_own_or_shared(path, names.PROVENANCE),
        spec_text=_spec_text(path),
        resolved=_own_or_shared(path, names.RESOLVED),
    )


# What the events lack: the experiment's name, and how long the run took.
class _Stored(TypedDict, total=False):
    name: str | None
    wall_s: Number | None


_STORED = TypeAdapter(_Stored)


def _stored_summary(path: Path) -> dict[str, Any] | None:
    stored = read_json(path)
    if not isinstance(stored, dict):
        return None
    typed_record(_STORED, stored, path, "summary")
    return stored


def _own_and_above(path: Path) -> tuple[Path, Path]:
    """A policy's folder and the one that it lies in."""
    # By the file system: the parent of the path `.` would be `.` itself.
    return path, path.resolve().parent


def _own_or_shared(path: Path, name: str) -> dict[str, Any] | None:
    """The object in a policy's JSON file, or in that of its run."""
    for folder in _own_and_above(path):
        value = read_json(folder / name)
        if isinstance(value, dict):
            return value
    return None


def claims_of(resolved: object) -> tuple[str, ...]:
    """Invariants that the policy declared, from ``spec.resolved.json``; empty
    where that has none.
    """
    if not isinstance(resolved, dict):
        return ()
    claims = resolved.get("claims")
    if isinstance(claims, list):
        return tuple(map(str, claims))
    return ()


def _spec_text(path: Path) -> str | None:
    for folder in _own_and_above(path):
        file = folder / names.SPEC
        if file.is_file():
            return regular_bytes(file).decode("utf-8", "replace")
    return None
