"""Trace files: their lines, compressed or not, their errors by line and column, their origins.

Published traces are known by name; the traces themselves are no part of this project.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import BinaryIO, Literal, cast

GZIP_MAGIC = b"\x1f\x8b"
PROBLEM_LIMIT = 20


@dataclass(frozen=True, order=True)
class LineProblem:
    """An error in a line; line and column count from 1, line 0 is the file as a whole."""

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


class CutOff(ValueError):
    """A compressed file that ends early or is damaged."""


class Complaints:
    """The errors of a file: the first of them whole, all of them counted.

    ``of_lines``: so far only single lines are wrong. A reader keeps ``line`` at the number of
    lines that it has read.
    """

    def __init__(self, limit: int = PROBLEM_LIMIT) -> None:
        self.first: list[LineProblem] = []
        self.found = 0
        self.of_lines = True
        self.line = 0
        self._limit = limit

    def add(self, line: int, column: int, message: str) -> None:
        self.found += 1
        if len(self.first) < self._limit:
            self.first.append(LineProblem(line, column, message))

    def add_of_file(self, line: int, column: int, message: str) -> None:
        """Adds an error that no other line makes good: from there on the file is unreadable."""
        self.of_lines = False
        self.add(line, column, message)

    def add_of_count(self, line: int, column: int, found: int, wanted: int) -> None:
        """Adds a line's wrong number of fields."""
        hint = ": the line is cut off" if found < wanted else ""
        self.add(line, column, f"has {found} fields, not {wanted}{hint}")

    def is_early(
        self, line: int, column: int, field: str, submit_s: float, above: tuple[float, int]
    ) -> bool:
        """True, and reported, if a job is submitted before the one above it, in another line."""
        before_s, before_line = above
        if submit_s >= before_s:
            return False
        message = f"{submit_s:.15g} s is before line {before_line}'s {before_s:.15g} s"
        self.add(line, column, f"{field}: {message}")
        return True

    @contextmanager
    def reading(self, path: Path) -> Iterator[Iterator[str]]:
        """The file's lines; a damaged archive ends them, and is reported after the last line."""
        try:
            with opened(path) as lines:
                yield lines
        except CutOff as damage:
            message = f"the compressed file is cut off or damaged here ({damage})"
            self.add_of_file(self.line + 1, 1, message)

    def conclude(self, path: Path, kept: int, *, lenient: bool, noun: str = "job") -> None:
        """Raises :class:`TraceErrors` where nothing is kept, or anything is wrong unless lenient.

        ``kept`` is how many jobs could be read.
        """
        if kept == 0 and not self.found:
            message = f"the file ends here and holds no {noun}"
            self.add_of_file(max(self.line, 1), 1, message)
        if self.found and (not lenient or kept == 0):
            alone = self.of_lines and kept > 0
            raise TraceErrors(path, tuple(self.first), self.found, lines_alone=alone)


def shown(text: str) -> str:
    """A piece of a file as a message may quote it: short, and nothing a terminal would obey."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def whole_number(text: str, digits: int) -> int | None:
    """A number of at most so many ASCII digits; None for any other text."""
    return int(text) if re.fullmatch(f"-?[0-9]{{1,{digits}}}", text) else None


@contextmanager
def _unpacked(path: Path) -> Iterator[BinaryIO]:
    """The content, unpacked where it begins as gzip does, whatever the name says."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP_MAGIC
        file.seek(0)
        try:
            yield cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise CutOff(str(error)) from None


@contextmanager
def opened(path: Path) -> Iterator[Iterator[str]]:
    """The file's lines. Raises OSError; :class:`CutOff` while iterating over a damaged archive.

    Bytes are taken as Latin-1: every one is a character, and a trace's fields are ASCII.
    """
    with _unpacked(path) as inside, io.TextIOWrapper(inside, encoding="latin-1") as text:
        yield text


def checksum(path: Path) -> str:
    """SHA-256 of the unpacked content, in hexadecimal. Raises OSError, :class:`CutOff`."""
    digest = hashlib.sha256()
    with _unpacked(path) as inside:
        while block := inside.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


# ------------------------------------------------------------------ published traces

TraceFormat = Literal["swf", "swim", "lwf"]


@dataclass(frozen=True)
class PublishedTrace:
    """A trace that experiments here use, with its origin; ``sha256`` of the unpacked file."""

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


def _pwa(
    name: str, what: str, jobs: int, log: str, sha256: str, acknowledge: str
) -> PublishedTrace:
    """A log of the Parallel Workloads Archive."""
    thanks = (
        'cite "Experience with using the Parallel Workloads Archive" (Feitelson, Tsafrir, Krakov,'
        f" J. Parallel Distrib. Comput. 2014) and name the archive; acknowledge {acknowledge}"
    )
    archive = "Parallel Workloads Archive"
    return PublishedTrace(name, "swf", what, jobs, archive, log, sha256, thanks)


def _haizea(name: str, what: str, jobs: int, sha256: str) -> PublishedTrace:
    """A trace of the Haizea simulator."""
    format_: TraceFormat = "swf" if ".swf" in name else "lwf"
    thanks = "Haizea (Borja Sotomayor), Apache-2.0"
    log = name.removesuffix(".gz")
    path = f"haizea/{name}"
    return PublishedTrace(path, format_, what, jobs, "Haizea traces", log, sha256, thanks)


PUBLISHED: tuple[PublishedTrace, ...] = (
    _pwa(
        "KTH-SP2-1996-2.1-cln.swf.gz",
        "IBM SP2, 100 nodes, 11 months",
        28_476,
        "log l_kth_sp2",
        "fba36494c4e4257f72182e8b629ebb0bcb054b3b82851ef957445bd627adcc87",
        "Lars Malinowsky",
    ),
    _pwa(
        "NASA-iPSC-1993-3.1-cln.swf.gz",
        "iPSC/860, 128 nodes, 3 months",
        18_239,
        "log l_nasa_ipsc",
        "9d997a2c20a7f7b0b6d81638d756ce8b2c524c4f2e9ec78da36001743ca33d76",
        "Bill Nitzberg",
    ),
    PublishedTrace(
        "FB-2009_samples_24_times_1hr_0.tsv.gz",
        "swim",
        "Facebook Hadoop sample, 24 hours",
        5_894,
        "SWIM",
        "workloadSuite",
        "5033ea98faed398b132957e4555c9ba88653d1ffaac470f370b761b79cd44c19",
        "SWIM (Chen, Ganapathi, Griffith, Katz, MASCOTS 2011), New BSD",
    ),
    _haizea(
        "15days.swf.gz",
        "best-effort background from SDSC Blue, 15 days",
        3_383,
        "1ca24af2d0100522dbcafbb2c7a3bed3140bdfb52d60e8a9a45b5be15d53a63a",
    ),
    _haizea(
        "30days.swf.gz",
        "best-effort background from SDSC Blue, 30 days",
        5_545,
        "04c6c1795e1c8ce7ebb8f7beb1a403c2cd954c12e608a174f0b9cf003412307e",
    ),
    _haizea(
        "inj1.lwf",
        "advance reservations injected into the background",
        13,
        "f61be41446a2a5f95dfe0b9b3ee5dfac8e05c91757c17857987889c70cb94439",
    ),
    _haizea(
        "withprematureend.lwf",
        "best-effort leases that end before their time",
        139,
        "bc4b735e64122395e7952b314cde2b52a04bbd4ccf43d98a499625811c1dd532",
    ),
    _haizea(
        "work_05-dur_1h-size_1small.lwf",
        "advance reservations, 5 % of the cluster, 1 h, small",
        207,
        "79b1d1218269bbcee3a9b4a577efae5885a0a11bed30490b8051926c7d02b70b",
    ),
    _haizea(
        "work_10-dur_2h-size_1small.lwf",
        "advance reservations, 10 % of the cluster, 2 h, small",
        213,
        "8b683fb32e79339c3edb9974d48307c7139604cd7ced3b8966ea31fdcaca7104",
    ),
    _haizea(
        "work_10-dur_2h-size_2medium.lwf",
        "advance reservations, 10 % of the cluster, 2 h, medium",
        71,
        "58475b9b1edca0d52ee713e4eab80b583b42afb65a6be6e2625b7c139d0edb8a",
    ),
)


def published(name: str) -> PublishedTrace | None:
    """The published trace that a file is named after, packed or not, in whatever folder."""
    wanted = PurePath(name).name.removesuffix(".gz")
    return next((t for t in PUBLISHED if PurePath(t.name).name.removesuffix(".gz") == wanted), None)
