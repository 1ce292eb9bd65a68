"""Trace files: their errors by line and column, their origins.

Published traces are known by name; the traces themselves are no part of this
project.
"""

from __future__ import annotations

import re
import tomllib
from bisect import insort
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Generic, Literal, TypeVar

from jobs.job_names import SAFE_NAME
from jobs.workload.packed_files import CutOff, opened

PROBLEM_LIMIT = 20

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
    """A trace that cannot be read. ``problems`` are the first ones, ``total``
    counts all.

    ``lines_alone``: each problem is one of a single line, and other lines are
    good.
    """

    def __init__(
        self,
        path: Path,
        problems: tuple[LineProblem, ...],
        total: int,
        *,
        lines_alone: bool = True,
    ) -> None:
        self.path = path
        self.problems = problems
        self.total = total
        self.lines_alone = lines_alone
        texts = []
        for problem in problems:
            place = f"{path}:{problem.line}:{problem.column}"
            texts.append(f"{place}: {problem.message}")
        if total > len(problems):
            texts.append(f"and {total - len(problems):,} more")
        super().__init__("; ".join(texts))


@dataclass(frozen=True)
class Trace(Generic[T]):
    """A file's jobs. ``skipped``: the number of problems, whose lines were left
    out; ``examples``: the first of them.

    ``remarks``: sentences on fields that were not read.
    """

    path: Path
    jobs: tuple[T, ...]
    skipped: int = 0
    examples: tuple[LineProblem, ...] = ()
    remarks: tuple[str, ...] = ()


class Complaints:
    """The errors of a file: the first of them whole, all of them counted.

    ``of_lines``: so far only single lines are wrong. A reader keeps ``line`` at
    the number of lines that it has read. ``longer``: the number of lines with
    more fields than are read. ``latest``: the latest submission so far in s,
    and its line.
    """

    def __init__(self) -> None:
        self.longer = 0
        self._first_longer = ""
        self.first: list[LineProblem] = []
        self.total = 0
        self.of_lines = True
        self.line = 0
        self.latest = (0.0, 0)

    def add(
        self,
        line: int,
        column: int,
        message: str,
    ) -> None:
        self.total += 1
        problem = LineProblem(line, column, message)
        # A file of another format has an error in each of a million lines. They
        # are not found in the order of lines.
        if len(self.first) < PROBLEM_LIMIT or problem < self.first[-1]:
            insort(self.first, problem)
            del self.first[PROBLEM_LIMIT:]

    def add_of_file(
        self,
        line: int,
        column: int,
        message: str,
    ) -> None:
        """Adds an error that no other line makes good: from there on the file
        is unreadable.
        """
        self.of_lines = False
        self.add(line, column, message)

    def has_fields(
        self,
        line: int,
        column: int,
        n_fields: int,
        wanted: int,
    ) -> bool:
        """True if a line has the wanted fields; one that ends before them is
        reported. What follows them is counted, and is nobody's error.
        """
        if n_fields < wanted:
            message = (
                f"has {n_fields} fields, not {wanted}: the line is cut off"
            )
            self.add(line, column, message)
        if n_fields > wanted:
            self.add_longer(line, n_fields, wanted)
        return n_fields >= wanted

    def add_longer(
        self,
        line: int,
        n_fields: int,
        wanted: int,
    ) -> None:
        """Counts a line with more fields than the wanted ones."""
        if not self.longer:
            self._first_longer = (
                f"more than {wanted} fields, the first of them line {line}"
                f" with {n_fields}: what follows is not read"
            )
        self.longer += 1

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences on fields that were not read."""
        if not self.longer:
            return ()
        noun = "line has" if self.longer == 1 else "lines have"
        return (f"{self.longer:,} {noun} {self._first_longer}",)

    def is_early(
        self,
        line: int,
        column: int,
        field: str,
        submit_s: float,
    ) -> bool:
        """True, and reported, if a job is submitted before the latest one above
        it; else it becomes the latest.
        """
        before_s, before_line = self.latest
        if submit_s >= before_s:
            self.latest = (submit_s, line)
            return False
        message = f"{submit_s:.15g} s is before line {before_line}'s {before_s:.15g} s"
        self.add(line, column, f"{field}: {message}")
        return True

    def check_name(
        self,
        line: int,
        column: int,
        field: str,
        name: str,
    ) -> bool:
        """True if a job may be called so; else it is reported."""
        if re.fullmatch(SAFE_NAME, name):
            return True
        rule = "letters, digits, '.', '_' and '-', 64 at most, a letter or digit first"
        message = f"{field}: {quoted_text(name)} is no name: {rule}"
        self.add(line, column, message)
        return False

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
        self,
        path: Path,
        kept: int,
        *,
        lenient: bool,
        noun: str = "job",
    ) -> None:
        """Raises :class:`TraceErrors` where nothing is kept, or anything is
        wrong unless lenient.

        ``kept`` is how many jobs could be read.
        """
        if kept == 0 and not self.total:
            message = f"the file ends here and holds no {noun}"
            self.add_of_file(max(self.line, 1), 1, message)
        if self.total and (not lenient or kept == 0):
            alone = self.of_lines and kept > 0
            raise TraceErrors(
                path, tuple(self.first), self.total, lines_alone=alone
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
        return Trace(
            path,
            tuple(jobs),
            skipped=self.total,
            examples=tuple(self.first),
            remarks=self.remarks,
        )


def quoted_text(text: str) -> str:
    """A piece of a file as a message may quote it: short, and without control
    characters.
    """
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def whole_number(
    text: str,
    digits: int,
) -> int | None:
    """A number of at most so many ASCII digits; None for any other text."""
    # Not by int() alone, which takes `1_000`, blanks and all scripts' digits,
    # and raises for thousands of digits.
    if re.fullmatch(f"-?[0-9]{{1,{digits}}}", text):
        return int(text)
    return None


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
    file = Path(__file__).with_name("published_traces.toml")
    table = tomllib.loads(file.read_text("utf-8"))
    return tuple(PublishedTrace(**fields) for fields in table["trace"])


def published(name: str) -> PublishedTrace | None:
    """The published trace that a file is named after, packed or not, in
    whatever folder.
    """
    wanted = _unpacked(name)
    for trace in published_traces():
        if _unpacked(trace.name) == wanted:
            return trace
    return None


def _unpacked(name: str) -> str:
    """A file's name without its folders and what says how it is packed."""
    return re.sub(r"\.(gz|bz2|xz)$", "", PurePath(name).name)
