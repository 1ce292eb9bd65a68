"""Trace files: their lines, compressed or not, their errors by line and column,
their origins.

Published traces are known by name; the traces themselves are no part of this
project.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import math
import os
import re
import time
import tomllib
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import BinaryIO, Generic, Literal, TextIO, TypeVar, cast

from jobs.job_names import SAFE_NAME

_ARCHIVES: dict[bytes, Callable[[BinaryIO], BinaryIO]] = {
    b"\x1f\x8b": lambda file: cast(BinaryIO, gzip.GzipFile(fileobj=file)),
    b"BZh": lambda file: cast(BinaryIO, bz2.BZ2File(file)),
    b"\xfd7zXZ\x00": lambda file: cast(BinaryIO, lzma.LZMAFile(file)),  # noqa: SIM115 - whoever opens it closes it
}
"""How archives are opened, by their first bytes."""
PROBLEM_LIMIT = 20
LINES_A_CHECK = 1_000
LONGEST_LINE = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True, order=True)
class LineProblem:
    """An error in a line; line and column count from 1, line 0 is the file as a
    whole.
    """

    line: int
    column: int
    message: str


class TraceErrors(ValueError):
    """A trace that cannot be read. ``problems`` are the first ones, ``found``
    counts all.

    ``lines_alone``: nothing but single lines is wrong, and there are others.
    """

    def __init__(
        self,
        path: Path,
        problems: tuple[LineProblem, ...],
        found: int,
        *,
        lines_alone: bool = True,
    ) -> None:
        self.path = path
        self.problems = problems
        self.found = found
        self.lines_alone = lines_alone
        super().__init__(
            "; ".join(
                f"{path}:{p.line}:{p.column}: {p.message}" for p in problems
            )
            + (
                f"; and {found - len(problems):,} more"
                if found > len(problems)
                else ""
            )
        )


class CutOff(ValueError):
    """A file that cannot be read any further: compressed and damaged, or
    endless; ``line`` where that is known.
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Bounds:
    """Most lines and bytes that are read of a file, and the reason.

    ``until_s``: this process's processor time after which no more is read.
    """

    lines: int
    size_bytes: int
    reason: str
    until_s: float = math.inf

    @classmethod
    def of(cls, packed_bytes: int | None) -> Bounds:
        """Those of a plain file (None), or of an archive of that size.

        A small archive may unpack without end: a real log's lines take some
        bytes each in it, and unpack to 5 to 15 times its size.
        """
        if packed_bytes is None:
            reason = "no trace has so much before this line"
            return cls(20_000_000, 4 << 30, reason)
        reason = (
            f"an archive of {packed_bytes:,} bytes that unpacks to so much before this"
            " line is no trace's; if it is one, unpack it first"
        )
        n_lines = 200_000 + packed_bytes
        # Of a real log a megabyte takes some 3 s.
        until_s = time.process_time() + 60 + packed_bytes / 100_000
        return cls(n_lines, (8 << 20) + 30 * packed_bytes, reason, until_s)

    def check(self, n_lines: int, n_bytes: int) -> None:
        """Raises CutOff beyond them."""
        if n_lines > self.lines:
            raise CutOff(
                f"over {self.lines:,} lines: {self.reason}", n_lines
            )
        if n_bytes > self.size_bytes:
            over = f"over {self.size_bytes >> 20:,} MiB"
            raise CutOff(f"{over}: {self.reason}", n_lines)
        # Asking for the time takes as long as reading a line.
        if (
            n_lines % LINES_A_CHECK == 0
            and time.process_time() > self.until_s
        ):
            raise CutOff(f"too long a time: {self.reason}", n_lines)


@dataclass(frozen=True)
class Trace(Generic[T]):
    """A file's jobs; ``skipped`` were left out, ``examples`` says why of the
    first.
    """

    path: Path
    jobs: tuple[T, ...]
    skipped: int = 0
    examples: tuple[LineProblem, ...] = ()


class Complaints:
    """The errors of a file: the first of them whole, all of them counted.

    ``of_lines``: so far only single lines are wrong. A reader keeps ``line`` at
    the number of lines that it has read.
    """

    def __init__(self) -> None:
        self.first: list[LineProblem] = []
        self.found = 0
        self.of_lines = True
        self.line = 0

    def add(self, line: int, column: int, message: str) -> None:
        self.found += 1
        if len(self.first) < PROBLEM_LIMIT:
            self.first.append(LineProblem(line, column, message))

    def add_of_file(self, line: int, column: int, message: str) -> None:
        """Adds an error that no other line makes good: from there on the file
        is unreadable.
        """
        self.of_lines = False
        self.add(line, column, message)

    def add_of_count(
        self, line: int, column: int, found: int, wanted: int
    ) -> None:
        """Adds a line's wrong number of fields."""
        hint = ": the line is cut off" if found < wanted else ""
        self.add(line, column, f"has {found} fields, not {wanted}{hint}")

    def is_early(
        self,
        line: int,
        column: int,
        field: str,
        submit_s: float,
        above: tuple[float, int],
    ) -> bool:
        """True, and reported, if a job is submitted before the one above it, in
        another line.
        """
        before_s, before_line = above
        if submit_s >= before_s:
            return False
        message = f"{submit_s:.15g} s is before line {before_line}'s {before_s:.15g} s"
        self.add(line, column, f"{field}: {message}")
        return True

    @contextmanager
    def reading(self, path: Path) -> Iterator[Iterator[str]]:
        """The file's lines; a damaged archive ends them, and is reported after
        the last line.
        """
        try:
            with opened(path) as lines:
                yield lines
        except CutOff as damage:
            line = damage.line or self.line + 1
            self.add_of_file(line, 1, str(damage))

    def conclude(
        self, path: Path, kept: int, *, lenient: bool, noun: str = "job"
    ) -> None:
        """Raises :class:`TraceErrors` where nothing is kept, or anything is
        wrong unless lenient.

        ``kept`` is how many jobs could be read.
        """
        if kept == 0 and not self.found:
            message = f"the file ends here and holds no {noun}"
            self.add_of_file(max(self.line, 1), 1, message)
        if self.found and (not lenient or kept == 0):
            alone = self.of_lines and kept > 0
            raise TraceErrors(
                path, tuple(self.first), self.found, lines_alone=alone
            )

    def trace(
        self,
        path: Path,
        jobs: Sequence[T],
        *,
        lenient: bool,
        noun: str = "job",
    ) -> Trace[T]:
        """The jobs that could be read. Raises as :meth:`conclude`."""
        self.conclude(path, len(jobs), lenient=lenient, noun=noun)
        return Trace(path, tuple(jobs), self.found, tuple(self.first))


def quoted_text(text: str) -> str:
    """A piece of a file as a message may quote it: short, and nothing a
    terminal would obey.
    """
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def check_name(
    complaints: Complaints, line: int, column: int, field: str, name: str
) -> bool:
    """True if a job may be called so; else it is reported."""
    if re.fullmatch(SAFE_NAME, name):
        return True
    rule = "letters, digits, '.', '_' and '-', 64 at most, a letter or digit first"
    complaints.add(
        line, column, f"{field}: {quoted_text(name)} is no name: {rule}"
    )
    return False


def whole_number(text: str, digits: int) -> int | None:
    """A number of at most so many ASCII digits; None for any other text."""
    return (
        int(text) if re.fullmatch(f"-?[0-9]{{1,{digits}}}", text) else None
    )


@contextmanager
def _unpacked(path: Path) -> Iterator[tuple[BinaryIO, Bounds]]:
    """The content, unpacked where it begins as gzip, bzip2 or xz do, whatever
    the name says; and its bounds.
    """
    with path.open("rb") as file:
        begin = file.read(max(map(len, _ARCHIVES)))
        file.seek(0)
        inside: BinaryIO = file
        bounds = Bounds.of(None)
        for magic, unpacking in _ARCHIVES.items():
            if begin.startswith(magic):
                inside = unpacking(file)
                bounds = Bounds.of(os.fstat(file.fileno()).st_size)
        try:
            yield inside, bounds
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            what = (
                f"the compressed file is cut off or damaged here ({error})"
            )
            raise CutOff(what) from None


@contextmanager
def opened(path: Path) -> Iterator[Iterator[str]]:
    """The file's lines. Raises OSError; :class:`CutOff` while iterating over a
    damaged archive.

    Bytes are taken as Latin-1: every one is a character, and a trace's fields
    are ASCII.
    """
    with (
        _unpacked(path) as (inside, bounds),
        io.TextIOWrapper(inside, encoding="latin-1") as text,
    ):
        yield _lines(text, bounds)


def _lines(text: TextIO, bounds: Bounds) -> Iterator[str]:
    """The lines of a file; CutOff at one that no trace has, which a small
    archive may hold.
    """
    number = n_bytes = 0
    while line := text.readline(LONGEST_LINE + 1):
        number += 1
        n_bytes += len(line)
        if len(line) > LONGEST_LINE:
            long = f"a line of more than {LONGEST_LINE:,} characters"
            raise CutOff(f"{long} is no trace's", number)
        bounds.check(number, n_bytes)
        yield line


def checksum(path: Path) -> str:
    """SHA-256 of the unpacked content, in hexadecimal. Raises OSError,
    :class:`CutOff`.
    """
    digest = hashlib.sha256()
    n_bytes = 0
    with _unpacked(path) as (inside, bounds):
        while block := inside.read(1 << 20):
            n_bytes += len(block)
            bounds.check(0, n_bytes)
            digest.update(block)
    return digest.hexdigest()


# ------------------------------------------------------------------ published traces

TraceFormat = Literal["swf", "swim", "lwf"]


@dataclass(frozen=True)
class PublishedTrace:
    """A trace that experiments here use, with its origin; ``sha256`` of the
    unpacked file.
    """

    name: str
    format: TraceFormat
    what: str
    jobs: int
    archive: str
    log: str
    sha256: str
    thanks: str

    @property
    def origin(self) -> str:
        """The archive and the name it has there."""
        return f"{self.archive}, {self.log}"


@cache
def published_traces() -> tuple[PublishedTrace, ...]:
    """The traces that are known by name."""
    table = tomllib.loads(
        Path(__file__).with_name("published_traces.toml").read_text("utf-8")
    )
    return tuple(PublishedTrace(**each) for each in table["trace"])


def published(name: str) -> PublishedTrace | None:
    """The published trace that a file is named after, packed or not, in
    whatever folder.
    """
    by_name = {
        PurePath(t.name).name.removesuffix(".gz"): t
        for t in published_traces()
    }
    return by_name.get(PurePath(name).name.removesuffix(".gz"))
