"""A run folder: made once, written whole file by whole file, owned by the user
who called sudo.

``docs/runs-and-fidelity.md`` describes every file in it.
"""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from testbed.errors import BadInput, RunFailed
from testbed.events import Event
from testbed.owned_files import (
    FILE_MODE,
    Owner,
    caller,
    from_home,
    give_all,
    make_folder,
    make_folders,
    new_file,
    new_file_in,
    opened_folder,
    remove_file,
)
from testbed.record.event_file import EventLog
from testbed.record.stored_json import as_json

DEFAULT_OUT = Path("runs")
"""The folder of results where no ``--out`` names another."""
SPEC = "spec.yaml"
RESOLVED = "spec.resolved.json"
PROVENANCE = "provenance.json"
EVENTS = "events.jsonl"
JOBS = "jobs.csv"
LINKS = "links.csv"
SUMMARY = "summary.json"
REPORT = "report.html"
SWEEP = "sweep.json"
LOGS = "logs"
PLUGINS = "plugins"

WITH_OUT = "name a folder you may write to with --out"

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
FOLDER_NAME = re.compile(r"(\d{8}T\d{6}Z)-(.+)-(?:s(-?\d+)|sweep)(?:-\d+)?")
"""Time, name and seed in a name of :func:`folder_name`; a sweep has no seed."""


Sink = Callable[[Event], None]


def folder_name(name: str, seed: int | None, now: datetime) -> str:
    """``20261120T141500Z-NAME-sSEED``, or ``-sweep`` for that of many seeds."""
    return (
        f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{untimed_name(name, seed)}"
    )


def untimed_name(name: str, seed: int | None) -> str:
    """The part of a folder's name behind the time.

    What a file name should not hold becomes ``-``.
    """
    # A leading dot would hide the folder.
    safe = _UNSAFE.sub("-", name).strip("-.") or "run"
    end = "sweep" if seed is None else f"s{seed}"
    return f"{safe[:80]}-{end}"


def is_a_runs(name: str) -> bool:
    """True for a folder name as :func:`folder_name` makes them for a run, not
    for a policy.
    """
    parts = FOLDER_NAME.fullmatch(name)
    return parts is not None and parts[3] is not None


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run's files, or of those of one of its policies.

    Files appear whole or not at all: each is written beside its place and
    renamed into it. ``parquet``: its tables are written as Parquet too.
    """

    path: Path
    owner: Owner | None = None
    parquet: bool = False

    @classmethod
    def create(
        cls,
        base: Path,
        name: str,
        seed: int | None,
        *,
        now: datetime | None = None,
    ) -> RunFolder:
        """A new, empty ``BASE/20261120T141500Z-NAME-sSEED/``, with ``-2``,
        ``-3`` … where taken. Without a seed it is a sweep's.

        ``base`` is made if it is missing. Raises BadInput where the folder
        cannot be made.
        """
        owner = caller()
        stem = folder_name(
            name, seed, datetime.now(UTC) if now is None else now
        )
        try:
            # Links that are there before a run begins are its caller's wish.
            base = Path(from_home(str(base))).resolve()
            make_folders(base, owner)
            return cls(_first_free(base, stem, owner), owner)
        except OSError as error:
            raise BadInput(
                f"no run folder can be made in {base}: {error.strerror}",
                WITH_OUT,
            ) from error

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run folder, for what is written later (a new report),
        which belongs to whom the folder belongs. Raises BadInput where there is
        no such folder.
        """
        try:
            status = path.stat()
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}") from error
        owner = None
        if os.geteuid() == 0:
            owner = Owner(status.st_uid, status.st_gid)
        return cls(path.resolve(), owner)

    def make(self, hint: str = WITH_OUT) -> None:
        """Makes the folder itself, and what is missing above it. Raises
        BadInput, with the hint.
        """
        try:
            make_folders(self.path, self.owner)
        except OSError as error:
            raise BadInput(
                f"the folder {self.path} cannot be made: {error.strerror}",
                hint,
            ) from error

    def policy(self, label: str) -> RunFolder:
        """A new sub-folder for one of several policies; equal labels get
        ``-2``, ``-3`` …
        """
        safe = _UNSAFE.sub("-", label).strip("-.") or "policy"
        return replace(self, path=_first_free(self.path, safe, self.owner))

    def write_text(self, name: str, text: str) -> Path:
        """``text`` as the whole of the file ``name`` (relative, may name a
        sub-folder).
        """
        return self.write_bytes(name, text.encode())

    def write_json(self, name: str, value: object) -> Path:
        return self.write_text(name, as_json(value))

    def write_bytes(
        self, name: str, content: bytes, *, sync: bool = True
    ) -> Path:
        """``content`` as the whole of a file, as by :meth:`write_stream`."""
        return self.write_stream(
            name, lambda file: file.write(content), sync=sync
        )

    def write_lines(
        self, name: str, write: Callable[[IO[str]], None]
    ) -> Path:
        """A text file too long to hold in memory: ``write`` is given the open
        file.
        """

        def wrapped(file: IO[bytes]) -> None:
            # newline="" leaves line ends to the csv module.
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            write(text)
            # Flushed, and not closed: the file is still to be synced.
            text.detach()

        return self.write_stream(name, wrapped)

    def copy(
        self, source: Path, beside: Collection[str] = ()
    ) -> list[Path]:
        """Copies of a folder's files, but for hidden ones and those in folders
        named ``beside``; their paths.
        """
        copied = []
        for path in sorted(source.rglob("[!.]*")):
            name = path.relative_to(source)
            if path.is_file() and not set(beside).intersection(name.parts):
                copied.append(
                    self.write_bytes(str(name), path.read_bytes())
                )
        return copied

    def write_stream(
        self,
        name: str,
        write: Callable[[IO[bytes]], object],
        *,
        sync: bool = True,
    ) -> Path:
        """A file too long to hold in memory: ``write`` is given the open file.

        ``sync=False``: whole or not at all unless the machine itself stops.
        Raises OSError with the file's path.
        """
        target = self._inside(name)
        # Hidden, so that no reader takes it for a result, and another name
        # for each writer.
        scratch = f".{target.name}.{secrets.token_hex(4)}"
        try:
            with opened_folder(
                target.parent, self.owner, make=True
            ) as folder:
                try:
                    new = new_file_in(
                        folder, scratch, FILE_MODE, self.owner
                    )
                    with os.fdopen(new, "wb") as file:
                        write(file)
                        # On the disk before the rename: a machine that
                        # stops in between would otherwise keep the name and
                        # lose the content.
                        file.flush()
                        if sync:
                            os.fsync(file.fileno())
                    # By the open folder, whose path somebody could replace
                    # by a link while root writes.
                    os.replace(
                        scratch,
                        target.name,
                        src_dir_fd=folder,
                        dst_dir_fd=folder,
                    )
                # After the rename there is nothing to remove; after an
                # error a torn file.
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(scratch, dir_fd=folder)
        except OSError as error:
            # Under the name that people know.
            raise OSError(
                error.errno, error.strerror, str(target)
            ) from error
        return target

    def open_events(self) -> EventLog:
        """The event stream of this run. Exists once: a second call raises
        FileExistsError.
        """
        return EventLog(self.path / EVENTS, self.owner)

    def hand_over(self) -> None:
        """Gives everything in the folder to its owner: what others wrote there
        as root too.
        """
        if self.owner is not None:
            give_all(self.path, self.owner)

    def _inside(self, name: str) -> Path:
        parts = Path(name).parts
        if not parts or Path(name).is_absolute() or ".." in parts:
            raise ValueError(
                f"{name!r} is not a file inside the run folder"
            )
        return self.path / name


def check_asked_for(option: str, to: Path) -> None:
    """Raises BadInput, before a minute is spent, where the file that an option
    names cannot be written.
    """
    if to.is_dir():
        raise BadInput(f"{option} {to}: is a folder, not a file")
    # The file is renamed into its place: for root it would replace /dev/null.
    if to.exists() and not to.is_file():
        raise BadInput(f"{option} {to}: is a device or pipe, not a file")
    if not to.parent.is_dir():
        raise BadInput(
            f"{option} {to}: there is no folder {to.parent}",
            f"mkdir -p {to.parent}",
        )
    if not os.access(to.parent, os.W_OK):
        raise BadInput(f"{option} {to}: {to.parent} may not be written to")


def write_asked_for(option: str, to: Path, text: str) -> None:
    """Writes the file that an option names, whole; it belongs to the user who
    called sudo.
    """
    check_asked_for(option, to)
    try:
        RunFolder(to.parent.absolute(), caller()).write_text(to.name, text)
    except OSError as error:
        raise BadInput(f"{option} {to}: {error.strerror}") from error


def _first_free(base: Path, stem: str, owner: Owner | None) -> Path:
    """A new folder ``BASE/STEM``, or ``BASE/STEM-2``, ``-3`` … where that is
    taken.
    """
    with opened_folder(base) as above:
        for attempt in range(1, 10_000):
            name = stem if attempt == 1 else f"{stem}-{attempt}"
            # The folder is made, not looked for: two runs that begin in the
            # same second get one each.
            try:
                os.close(make_folder(above, name, owner))
            except FileExistsError:
                continue
            return base / name
    raise BadInput(f"{base} has 9999 folders named {stem}", WITH_OUT)


# -- room for a run that fills its disk


RESERVE_BYTES = 8 << 20
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class DiskReserve:
    """A file of zeros that is given up when the disk is full, or at the end."""

    def __init__(
        self, folder: Path, size_bytes: int = RESERVE_BYTES
    ) -> None:
        self._path = folder / ".reserve"
        self._size_bytes = size_bytes

    def __enter__(self) -> DiskReserve:
        descriptor = new_file(self._path, 0o600, None)
        # Blocks are given out now: a file with a hole would keep no room.
        try:
            os.posix_fallocate(descriptor, 0, self._size_bytes)
        except OSError as error:
            self.release()
            if error.errno in FULL:
                raise RunFailed(
                    f"the disk of {self._path.parent} has under {self._size_bytes >> 20} MiB left",
                    "make room on it, or name another folder with --out",
                ) from error
            # A file system that cannot keep room does without.
        finally:
            os.close(descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Gives the room to whatever is written next. A second call does
        nothing.
        """
        with suppress(OSError):
            remove_file(self._path)

    @contextmanager
    def guarding(self) -> Generator[None, None, None]:
        """Turns a full disk into the end of the run; what is written from then
        on has room.

        What could not be written is still in its file's buffer and goes out
        with the next line.
        """
        try:
            yield
        except OSError as error:
            if error.errno not in FULL:
                raise
            self.release()
            raise RunFailed(
                f"the disk of the run folder is full: {self._path.parent}",
                "make room on it, or name another folder with --out",
            ) from error

    def guarded(self, sink: Sink) -> Sink:
        """The sink, under :meth:`guarding`."""

        def passed(event: Event) -> None:
            with self.guarding():
                sink(event)

        return passed
