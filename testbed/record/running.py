"""Runs in progress: a note in their folder for as long as their process lives."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from testbed.events import JobEnded
from testbed.owned_files import remove_file
from testbed.record.event_file import stream_events
from testbed.record.folder import EVENTS, RunFolder
from testbed.record.stored_json import regular_bytes
from testbed.units import (
    human_duration,
    number_of,
)

NOTE = ".running.json"


@dataclass(frozen=True)
class RunningRun:
    """A run whose process lives. ``ends_s``: when each of its policies is
    expected to end, on the experiment's clock.
    """

    folder: str
    name: str
    pid: int
    start_ticks: int
    since_unix_s: float
    policies: tuple[str, ...]
    jobs: int
    ends_s: tuple[float, ...] = ()

    @property
    def lives(self) -> bool:
        # Process numbers are given out again: a later process of the same
        # number has another start.
        return start_ticks(self.pid) == self.start_ticks


@dataclass(frozen=True)
class HowFar:
    """Progress of a run: the present policy and its number from 1 (None and 0
    before the first), the jobs that have ended under it, and the time on the
    experiment's clock.
    """

    number: int
    policy: str | None
    ended: int
    at_s: float


@cache
def _note() -> TypeAdapter[RunningRun]:
    # Made for the first note that is read: most short commands find none.
    return TypeAdapter(RunningRun)


def running_run(
    folder: Path,
    name: str,
    policies: Sequence[str],
    jobs: int,
    ends_s: Sequence[float] = (),
) -> RunningRun:
    """The run of this process."""
    pid = os.getpid()
    return RunningRun(
        folder=str(folder.absolute()),
        name=name,
        pid=pid,
        start_ticks=start_ticks(pid) or 0,
        since_unix_s=time.time(),
        policies=tuple(policies),
        jobs=jobs,
        ends_s=tuple(ends_s),
    )


@contextmanager
def noted(
    top: RunFolder,
    run: RunningRun,
    name: str = NOTE,
) -> Iterator[None]:
    """Notes in a run's folder that it is in progress, until the block ends.

    A folder that takes no note, as on a full disk, does without.
    """
    path = top.path / name
    with suppress(OSError):
        top.write_json(name, asdict(run))
    try:
        yield
    finally:
        with suppress(OSError):
            remove_file(path)


def noted_among_others(
    state: Path,
    run: RunningRun,
) -> AbstractContextManager[None]:
    """Notes a run in ``state``, the folder for all runs of this machine."""
    return noted(RunFolder(state), run, f".running-{run.pid}.json")


def running_on_machine(state: Path) -> RunningRun | None:
    """A run in progress that is noted among others; None where there is none."""
    return _first_run(sorted(state.glob(".running-*.json")))


def read_note(path: Path) -> RunningRun | None:
    """The run that a note tells of; None where there is none that lives."""
    try:
        run = _note().validate_json(regular_bytes(path))
    except (OSError, ValidationError):
        return None
    if run.lives:
        return run
    return None


def running_in(folder: Path) -> RunningRun | None:
    """The run in progress whose folder this is, or the folder of a policy."""
    return _first_run([folder / NOTE, folder.resolve().parent / NOTE])


def _first_run(notes: Sequence[Path]) -> RunningRun | None:
    for note in notes:
        run = read_note(note)
        if run is not None:
            return run
    return None


def how_far(run: RunningRun) -> HowFar:
    """Progress of a run, from the events of the last policy that has begun."""
    top = Path(run.folder)
    folders = [top]
    if len(run.policies) > 1:
        folders = list(top.iterdir())
    begun = [
        folder / EVENTS for folder in folders if (folder / EVENTS).is_file()
    ]
    if not begun:
        return HowFar(0, None, 0, 0.0)
    ended = 0
    at_s = 0.0
    # The file that was written last is the present policy's.
    for event in stream_events(max(begun, key=_written_s)):
        ended += isinstance(event, JobEnded)
        at_s = max(at_s, event.t)
    # Policies are played in order: as many have begun as have events.
    return HowFar(len(begun), run.policies[len(begun) - 1], ended, at_s)


def sentences(run: RunningRun) -> list[str]:
    """Sentences on a run in progress: its name, its start, its progress."""
    since = datetime.fromtimestamp(run.since_unix_s, UTC).astimezone()
    lasted = human_duration(max(0.0, time.time() - run.since_unix_s))
    when = f"{since:%Y-%m-%d %H:%M:%S} ({lasted})"
    return [
        f"the run {run.name} is in progress since {when}, process {run.pid}",
        _progress_sentence(run, how_far(run)),
        f"run folder: {run.folder}",
    ]


def _progress_sentence(run: RunningRun, progress: HowFar) -> str:
    policy = progress.policy
    if policy is None:
        return "its network is being built and tested: no job has begun"
    if len(run.policies) > 1:
        policy += f" ({progress.number} of {len(run.policies)} policies)"
    # When the policy's dry run ended, if there was one.
    expected = ""
    if len(run.ends_s) >= progress.number:
        ends_s = run.ends_s[progress.number - 1]
        expected = f" of about {human_duration(ends_s)}"
    return (
        f"policy {policy}: {progress.ended:,} of {number_of(run.jobs, 'job')} "
        f"ended, at {human_duration(progress.at_s)}{expected}"
    )


def _written_s(path: Path) -> float:
    return path.stat().st_mtime


def start_ticks(pid: int) -> int | None:
    """When a process started, in ticks since boot; None where it cannot be
    read.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # Field 22 of proc(5), counted from the last bracket: the command's name
    # before it may hold any.
    return int(stat.rpartition(b")")[2].split()[19])
