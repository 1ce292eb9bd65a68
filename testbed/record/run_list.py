"""The runs and sweeps in a folder: what there is, with verdicts and sizes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from testbed.errors import BadInput
from testbed.owned_files import remove_folder
from testbed.record.folder import EVENTS, FOLDER_NAME, SUMMARY, SWEEP
from testbed.record.running import NOTE, read_note
from testbed.record.stored_json import read_json

RunVerdict = Literal[
    "ok", "suspect", "outside", "invalid", "interrupted", "running"
]
"""A policy's run in a word. ``outside``: an expectation or a reservation did not
hold, or a sweep's cell failed; ``suspect`` and
``invalid``: the fidelity's verdict; ``interrupted``: it wrote no summary.
"""
LISTED = "testbed runs lists them"


@dataclass(frozen=True)
class ListedPolicy:
    """One policy of a run, or the cells of a sweep. What it wrote nothing about
    is None.
    """

    policy: str | None
    verdict: RunVerdict
    backend: str | None = None
    jobs: int | None = None
    cells: int | None = None


@dataclass(frozen=True)
class ListedRun:
    """A run's or a sweep's folder. ``began``: by its name, in UTC; a sweep is of
    many seeds, and has none.
    """

    folder: Path
    name: str
    seed: int | None
    began: datetime
    policies: tuple[ListedPolicy, ...]
    size_bytes: int

    def to_json(self) -> dict[str, Any]:
        """The run as ``testbed runs --json`` prints it."""
        return {
            "folder": str(self.folder),
            "name": self.name,
            "seed": self.seed,
            "began": self.began.isoformat(),
            "size_bytes": self.size_bytes,
            "policies": [dict(vars(policy)) for policy in self.policies],
        }


def runs_below(base: Path) -> list[ListedRun]:
    """Runs in a folder, the latest first; those that are removed meanwhile are
    left out. Raises BadInput where there is no such folder.
    """
    try:
        folders = [path for path in base.iterdir() if is_run_folder(path)]
    except OSError as error:
        raise BadInput(
            f"{base}: {error.strerror}",
            "testbed run and testbed simulate make it; or name another folder",
        ) from error
    folders.sort(key=lambda folder: folder.name, reverse=True)
    runs = []
    for folder in folders:
        with suppress(FileNotFoundError):
            runs.append(listed_run(folder))
    return runs


def is_run_folder(path: Path) -> bool:
    """True for a folder that is named as a run's or a sweep's and is no link to
    one.
    """
    named = _name_parts(path.name) is not None
    return named and path.is_dir() and not path.is_symlink()


def _name_parts(name: str) -> tuple[datetime, str, int | None] | None:
    """Begin, name and seed in a folder's name; None where it is not a run's."""
    parts = FOLDER_NAME.fullmatch(name)
    if parts is None:
        return None
    time, run, seed = parts.groups()
    try:
        began = datetime.strptime(time, "%Y%m%dT%H%M%SZ").replace(
            tzinfo=UTC
        )
    # Somebody's own folder: its digits are no date.
    except ValueError:
        return None
    return began, run, None if seed is None else int(seed)


def listed_run(folder: Path) -> ListedRun:
    """A run by its folder's name and summaries; its events are not read.

    Raises BadInput where the name is not a run's.
    """
    parts = _name_parts(folder.name)
    if parts is None:
        raise BadInput(f"{folder} is not the folder of a run", LISTED)
    began, name, seed = parts
    policies = [_sweep(folder)]
    if seed is not None:
        policies = list(_policies(folder))
    return ListedRun(
        folder=folder,
        name=name,
        seed=seed,
        began=began,
        policies=tuple(policies),
        size_bytes=sum(_sizes_bytes(folder)),
    )


def remove_run(folder: Path) -> int:
    """Removes a run's folder; returns its size in bytes.

    Raises BadInput where it is no run's folder, or the run is in progress.
    """
    if not is_run_folder(folder):
        raise BadInput(
            f"{folder} is not the folder of a run",
            f"{LISTED}; a policy's folder goes with its run",
        )
    refuse_in_progress(folder)
    size_bytes = sum(_sizes_bytes(folder))
    try:
        remove_folder(folder)
    except OSError as error:
        raise BadInput(
            f"{error.filename}: {error.strerror}",
            "see who owns it: a run by sudo whose caller is root is root's",
        ) from error
    return size_bytes


def refuse_in_progress(folder: Path) -> None:
    """Raises BadInput for the folder of a run in progress."""
    run = read_note(folder / NOTE)
    if run is not None:
        raise BadInput(
            f"{folder} is the folder of a run in progress, process {run.pid}",
            "end it by Ctrl-C in its terminal, then remove its folder",
        )


def _sweep(folder: Path) -> ListedPolicy:
    """The cells of a sweep."""
    written = read_json(folder / SWEEP)
    if not isinstance(written, dict):
        return ListedPolicy(None, "interrupted")
    cells = written.get("cells")
    counts = cells if isinstance(cells, dict) else {}
    asked = counts.get("asked")
    return ListedPolicy(
        policy=None,
        verdict="outside" if counts.get("failed") else "ok",
        backend=_text(written.get("backend")),
        cells=asked if isinstance(asked, int) else None,
    )


def _policies(folder: Path) -> Iterator[ListedPolicy]:
    """The policies in a run's summary, then those of which there are only
    events.
    """
    running = read_note(folder / NOTE) is not None
    unfinished: RunVerdict = "running" if running else "interrupted"
    if (folder / EVENTS).is_file():
        yield _policy(folder, None, unfinished)
        return
    listed = read_json(folder / SUMMARY)
    known = set()
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict):
            known.add(_text(entry.get("folder")))
            yield _with_summary(entry)
    for path in sorted(folder.iterdir()):
        if path.name not in known and (path / EVENTS).is_file():
            yield _policy(path, path.name, unfinished)


def _policy(
    folder: Path, name: str | None, unfinished: RunVerdict
) -> ListedPolicy:
    """A policy by the summary in its folder; ``unfinished`` without one."""
    summary = read_json(folder / SUMMARY)
    if isinstance(summary, dict):
        return _with_summary(summary)
    return ListedPolicy(name, unfinished)


def _with_summary(entry: dict[str, Any]) -> ListedPolicy:
    jobs = entry.get("jobs")
    return ListedPolicy(
        policy=_text(entry.get("policy")),
        verdict=_verdict(entry),
        backend=_text(entry.get("backend")),
        jobs=jobs if isinstance(jobs, int) else None,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _verdict(entry: dict[str, Any]) -> RunVerdict:
    """The worst of what a summary says."""
    if entry.get("status") != "completed":
        return "interrupted"
    fidelity = _within(entry, "fidelity").get("verdict")
    # Before the expectations: what an invalid run measured proves nothing
    # about them.
    if fidelity == "invalid":
        return "invalid"
    if _within(entry, "expectations").get("met") is False:
        return "outside"
    if fidelity == "suspect":
        return "suspect"
    return "ok"


def _within(entry: dict[str, Any], key: str) -> dict[str, Any]:
    """An object in a summary, which may be damaged; an empty one then."""
    value = entry.get(key)
    return value if isinstance(value, dict) else {}


def _sizes_bytes(folder: Path) -> Iterator[int]:
    """Sizes of the files in a folder and below; those that end meanwhile are
    left out.
    """
    for path, _, files in os.walk(folder):
        for file in files:
            try:
                yield Path(path, file).lstat().st_size
            except OSError:
                continue
