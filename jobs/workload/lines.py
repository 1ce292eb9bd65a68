"""The lines of a trace, compressed or not, and all that is wrong with them, by line and column."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

GZIP_MAGIC = b"\x1f\x8b"
PROBLEM_LIMIT = 20


@dataclass(frozen=True, order=True)
class LineProblem:
    """What is wrong with a line; line and column count from 1, line 0 is the file as a whole."""

    line: int
    column: int
    message: str


class TraceErrors(ValueError):
    """A trace that cannot be read. ``problems`` are the first ones, ``found`` counts all.

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
            "; ".join(f"{path}:{p.line}:{p.column}: {p.message}" for p in problems)
            + (f"; and {found - len(problems):,} more" if found > len(problems) else "")
        )


class Complaints:
    """Collects what is wrong with a file: the first problems whole, all of them counted.

    ``of_lines``: so far it is wrong with single lines alone.
    """

    def __init__(self, limit: int = PROBLEM_LIMIT) -> None:
        self.first: list[LineProblem] = []
        self.found = 0
        self.of_lines = True
        self._limit = limit

    def add(self, line: int, column: int, message: str) -> None:
        self.found += 1
        if len(self.first) < self._limit:
            self.first.append(LineProblem(line, column, message))

    def add_of_file(self, line: int, column: int, message: str) -> None:
        """What no other line makes good: the file ends, or is of no known form, from there on."""
        self.of_lines = False
        self.add(line, column, message)

    def errors(self, path: Path, kept: int) -> TraceErrors:
        """All of it as an exception; ``kept`` is how many jobs could be read."""
        alone = self.of_lines and kept > 0
        return TraceErrors(path, tuple(self.first), self.found, lines_alone=alone)


class CutOff(ValueError):
    """A compressed file that ends early or is damaged."""


@contextmanager
def opened(path: Path) -> Iterator[Iterator[str]]:
    """The file's lines, unpacked where it begins as gzip does, whatever its name says.

    Bytes are taken as Latin-1: every one is a character, and a trace's fields are ASCII. Raises
    OSError; :class:`CutOff` while iterating over a damaged archive.
    """
    with path.open("rb") as file:
        packed = file.read(2) == GZIP_MAGIC
        file.seek(0)
        inside = gzip.GzipFile(fileobj=file) if packed else file
        with io.TextIOWrapper(cast(BinaryIO, inside), encoding="latin-1") as text:
            yield _whole(text)


def _whole(text: io.TextIOWrapper) -> Iterator[str]:
    try:
        yield from text
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CutOff(str(error)) from None


def checksum(path: Path) -> str:
    """SHA-256 of the unpacked content, in hexadecimal. Raises OSError, :class:`CutOff`."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        packed = file.read(2) == GZIP_MAGIC
        file.seek(0)
        inside = gzip.GzipFile(fileobj=file) if packed else file
        try:
            while block := inside.read(1 << 20):
                digest.update(block)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise CutOff(str(error)) from None
    return digest.hexdigest()
