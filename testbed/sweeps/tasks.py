"""Tasks of a sweep and their outcomes: the interface between sweeps and
executors.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from testbed.errors import BadInput, MachineCannot, RunFailed, TestbedError
from testbed.file_digests import file_digest
from testbed.private_folders import private_folder


@dataclass(frozen=True)
class FileRef:
    """A file that a task reads: its name in the experiment, its content's
    digest, its path here.
    """

    name: str
    sha256: str
    path: Path


def sha256_of(path: Path) -> str:
    """The digest of a file's content. Raises BadInput where it cannot be read."""
    try:
        return file_digest(path)
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror}"
        ) from error


def unchanged(ref: FileRef, *places: Path) -> Path:
    """The first of the places that has the file's content. Raises RunFailed
    where none has.
    """
    for place in places:
        with suppress(OSError):
            if file_digest(place) == ref.sha256:
                return place
    raise RunFailed(
        f"{ref.path} has changed since the sweep began",
        "start the sweep again",
    )


def laid_out(folder: Path, files: Mapping[str, Path]) -> dict[str, Path]:
    """Copies files into the folder, so that each finds the others by their
    names. Returns the copies by name.
    """
    # As deep as names go up, so that "../data" stays within the folder.
    depth = max(Path(name).parts.count("..") for name in files)
    above = folder.joinpath(*["above"] * depth)
    laid = {}
    for name, path in files.items():
        place = above / name
        # Joined to the folder, an absolute name would leave it.
        if Path(name).is_absolute():
            place = folder / "absolute" / os.path.normpath(name).lstrip("/")
        # Cells with the same files share a folder.
        if not place.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
            # It may be a job's command.
            place.chmod(0o755)
        laid[name] = place
    return laid


class Context(Protocol):
    """The machine that a task runs on, as far as a task may know it.

    ``scratch`` is a folder in which a task makes one of its own; it goes when
    the executor does.
    """

    @property
    def scratch(self) -> Path: ...

    def path(self, ref: FileRef) -> Path:
        """Path of the file with that content on this machine."""
        ...


class Task(Protocol):
    """Work for an executor: picklable and small. Equal keys stand for equal
    results.

    ``live``: it needs a machine that offers the live network, one task at a
    time.
    """

    @property
    def key(self) -> str: ...

    @property
    def live(self) -> bool: ...

    @property
    def files(self) -> Mapping[str, FileRef]: ...

    def run(self, context: Context) -> Mapping[str, Any]:
        """Computes ``{"result": …, "provenance": …}``; ``provenance`` may be
        missing.

        The result depends on the key alone, but for a live task's measurements.
        """
        ...


@dataclass(frozen=True)
class TaskFailure:
    """A task's error as a person reads it."""

    message: str
    hint: str | None = None
    exit_code: int = RunFailed.exit_code

    @classmethod
    def of(cls, error: TestbedError) -> TaskFailure:
        return cls(error.message, error.hint, error.exit_code)

    @property
    def error(self) -> TestbedError:
        """The error to raise where the failure is to end everything."""
        # Between processes an error is its words and its exit code: the
        # class follows from that.
        kinds = {kind.exit_code: kind for kind in (BadInput, MachineCannot)}
        return kinds.get(self.exit_code, RunFailed)(self.message, self.hint)


@dataclass(frozen=True)
class Outcome:
    """A task's result, or its failure; where and how long it ran
    (``provenance``).
    """

    result: Mapping[str, Any] | None
    failure: TaskFailure | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def error(self) -> TestbedError:
        """The error of a task without a result."""
        failure = self.failure
        if failure is None:
            failure = TaskFailure("a task ended without a result")
        return failure.error


Result = tuple[Task, Outcome]


class Executor(AbstractContextManager["Executor"], Protocol):
    """Runs tasks. ``width`` is the number of tasks that it runs at once."""

    @property
    def width(self) -> int: ...

    def results(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Outcomes in order of completion. Tasks are taken when workers have
        room.
        """
        ...


def attempt(task: Task, context: Context) -> Outcome:
    """A task's outcome on this machine, whatever it raises but an interrupt."""
    began_s = time.monotonic()
    cpu_s = time.process_time()
    answer: Mapping[str, Any] = {}
    failure = None
    try:
        answer = task.run(context)
    except TestbedError as error:
        failure = TaskFailure.of(error)
    except Exception as error:  # noqa: BLE001 - a cell that fails leaves the others alone
        failure = TaskFailure(f"{type(error).__name__}: {error}")
    provenance = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "wall_s": time.monotonic() - began_s,
        "cpu_s": time.process_time() - cpu_s,
        **answer.get("provenance", {}),
    }
    return Outcome(answer.get("result"), failure, provenance)


@dataclass(frozen=True)
class LocalContext:
    """The context of a task in this process: its files where they are."""

    scratch: Path

    def path(self, ref: FileRef) -> Path:
        """Raises RunFailed where the file has changed meanwhile."""
        return unchanged(ref, ref.path)


class InProcess:
    """An executor that runs one task after another in this process."""

    width = 1

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def results(self, tasks: Iterable[Task]) -> Iterator[Result]:
        # A job's command in a live cell's folder is run by another user.
        with private_folder("sweep-", entered=True) as scratch:
            for task in tasks:
                yield task, attempt(task, LocalContext(scratch))
