"""Reader of the Standard Workload Format (SWF): header comments, then records
of 18 numbers a line, -1 where unknown.

:func:`read_swf` checks lines by the format's definition (Parallel Workloads
Archive, version 2.2) and reports all problems at once, by line and column;
with ``lenient`` it leaves such lines out and counts them. :func:`jobs_of` makes
jobs of the valid records that can be scheduled, and counts the others by
reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from jobs.workload.distributions import Bools, Floats, Ints32
from jobs.workload.parallel_jobs import SHORTEST_S, ParallelJobs
from jobs.workload.traces import Complaints, LineProblem, quoted_text

FIELDS: tuple[tuple[str, str, type], ...] = (
    ("number", "job number", np.int64),
    ("submit_s", "submit time", np.float64),
    ("wait_s", "wait time", np.float64),
    ("run_s", "run time", np.float64),
    ("allocated", "allocated processors", np.int32),
    ("cpu_s", "average CPU time", np.float64),
    ("memory_kb", "used memory", np.float64),
    ("requested", "requested processors", np.int32),
    ("requested_s", "requested time", np.float64),
    ("requested_memory_kb", "requested memory", np.float64),
    ("status", "status", np.int32),
    ("user", "user", np.int32),
    ("group", "group", np.int32),
    ("executable", "executable", np.int32),
    ("queue", "queue", np.int32),
    ("partition", "partition", np.int32),
    ("preceding", "preceding job", np.int64),
    ("think_s", "think time", np.float64),
)
"""The 18 fields in order: name here, name in the format's definition, type."""

NAMES = tuple(name for name, _, _ in FIELDS)

_WHOLE = np.array(
    [np.issubdtype(kind, np.integer) for _, _, kind in FIELDS]
)
_GREATEST_OF_TYPE: dict[type, float] = {
    np.int32: 2**31 - 1,
    np.int64: 2**53,
}
_GREATEST = np.array(
    [_GREATEST_OF_TYPE.get(kind, 1e15) for *_, kind in FIELDS]
)
_CHUNK_LINES = 1 << 15
# Groups: the indentation after "; ", the key of "; Key: value" if there is one,
# and the rest of the comment. A key matches in one way: otherwise a line of
# blanks would take hours.
_COMMENT = re.compile(
    r"\s*;+\s?(\s*)(?:([A-Za-z]+(?: +[A-Za-z]+)*)\s*:(?:\s+|$))?(.*)"
)

Records = np.ndarray[tuple[int], np.dtype[np.void]]


@dataclass(frozen=True, eq=False)
class Swf:
    """The content of a file.

    ``records`` have the requested ones of :data:`FIELDS`; ``lines`` are their
    line numbers. ``header``: the values of every ``; Key: value`` comment above
    the first record, by key, in the file's order. ``skipped``, ``examples``,
    ``remarks``: see :class:`jobs.workload.traces.Trace`.
    """

    path: Path
    header: Mapping[str, tuple[str, ...]]
    records: Records
    lines: Ints32
    skipped: int = 0
    examples: tuple[LineProblem, ...] = ()
    remarks: tuple[str, ...] = ()


def read_swf(
    path: Path,
    *,
    first: int | None = None,
    lenient: bool = False,
    names: Collection[str] = NAMES,
) -> Swf:
    """Reads a file's records, at most ``first`` of them (None: all).

    All 18 fields of a line are checked; those in ``names`` are kept. Raises
    :class:`TraceErrors` with all problems of the lines read, unless
    ``lenient``, and always if no record is left; OSError if the file cannot be
    read. O(lines): about a microsecond a record, and 112 bytes if all its
    fields are kept.
    """
    complaints = Complaints()
    record = np.dtype([(n, kind) for n, _, kind in FIELDS if n in names])
    log = _Log(first, record, complaints)
    with complaints.reading(path) as lines:
        log.take(lines)
    complaints.conclude(path, log.kept, lenient=lenient)
    return Swf(
        path=path,
        header={key: tuple(texts) for key, texts in log.header.items()},
        records=np.concatenate(log.blocks),
        lines=np.concatenate(log.line_numbers),
        skipped=complaints.total,
        examples=tuple(complaints.first),
        remarks=complaints.remarks,
    )


@dataclass
class _Log:
    """The part of a log that has been read.

    ``record``: the type of the records to keep. ``blocks`` and
    ``line_numbers``: the records kept, in arrays of some thousand, and their
    lines; ``kept`` counts them.
    """

    first: int | None
    record: np.dtype[np.void]
    complaints: Complaints
    header: dict[str, list[str]] = field(default_factory=dict)
    blocks: list[Records] = field(default_factory=list)
    line_numbers: list[Ints32] = field(default_factory=list)
    kept: int = 0
    # The header key whose value an indented comment continues.
    _open_key: str | None = None
    _greatest_job: float = -1.0

    def take(self, lines: Iterator[str]) -> None:
        """Reads to the end, or until ``first`` records are kept."""
        while self.first is None or self.kept < self.first:
            n_lines = _CHUNK_LINES
            if self.first is not None:
                # Lines after the last wanted record may be wrong: a chunk
                # never reaches beyond it.
                n_lines = min(n_lines, self.first - self.kept)
            chunk = list(islice(lines, n_lines))
            if not chunk:
                return
            self._take_chunk(chunk)

    def _take_chunk(self, chunk: list[str]) -> None:
        texts: list[str] = []
        line_numbers: list[int] = []
        for line, text in enumerate(chunk, self.complaints.line + 1):
            start = text.lstrip()
            if start[:1] == ";":
                # Comments below the first record are no part of the header.
                if not texts and not self.kept:
                    self._take_comment(text.rstrip())
            elif start:
                texts.append(text)
                line_numbers.append(line)
        self.complaints.line += len(chunk)
        if texts:
            self._take_records(
                texts, np.array(line_numbers, dtype=np.int32)
            )

    def _take_comment(self, text: str) -> None:
        """Adds a comment to the header, under its key or under the one above."""
        match = _COMMENT.match(text)
        indent, key, value = match.groups() if match else ("", None, "")
        if key is not None:
            self._open_key = key
            self.header.setdefault(key, []).append(value.rstrip())
        elif indent and value and self._open_key is not None:
            self.header[self._open_key][-1] += f" {value}"
        else:
            self._open_key = None

    def _take_records(
        self,
        texts: list[str],
        line_numbers: Ints32,
    ) -> None:
        # Three attempts, the fastest first: all lines at once, in a microsecond
        # each; all at once without what follows the 18th field; line by line,
        # which finds the lines that are wrong.
        values = _parsed(texts)
        if values is None or values.shape[1] != len(FIELDS):
            values = _parsed(texts, range(len(FIELDS)))
            if values is None:
                texts, line_numbers, values = self._parsed_by_line(
                    texts, line_numbers
                )
            else:
                self._count_longer(texts, line_numbers)
        invalid = _invalid(values)
        if invalid.any() or not self._in_order(values):
            valid = self._check_each(texts, line_numbers, values, invalid)
            line_numbers = line_numbers[valid]
            values = values[valid]
        self._keep(values, line_numbers)

    def _keep(
        self,
        values: Floats,
        line_numbers: Ints32,
    ) -> None:
        """Keeps the requested fields of valid records."""
        block = np.empty(len(values), self.record)
        for k, name in enumerate(NAMES):
            if name in (self.record.names or ()):
                block[name] = values[:, k]
        if len(values):
            greatest = float(values[:, 0].max())
            last = (float(values[-1, 1]), int(line_numbers[-1]))
            self._greatest_job = max(self._greatest_job, greatest)
            self.complaints.latest = max(self.complaints.latest, last)
        self.blocks.append(block)
        self.line_numbers.append(line_numbers)
        self.kept += len(values)

    def _count_longer(
        self,
        texts: list[str],
        line_numbers: Ints32,
    ) -> None:
        """Counts lines with more than the 18 fields."""
        for text, line in zip(texts, line_numbers.tolist(), strict=True):
            words = text.split()
            if len(words) > len(FIELDS):
                self.complaints.add_longer(
                    line, n_fields=len(words), wanted=len(FIELDS)
                )

    def _parsed_by_line(
        self,
        texts: list[str],
        line_numbers: Ints32,
    ) -> tuple[list[str], Ints32, Floats]:
        """The lines that hold 18 numbers: text, line number and values.

        The other lines are reported.
        """
        kept = []
        kept_texts = []
        rows = []
        for k, (text, line) in enumerate(
            zip(texts, line_numbers.tolist(), strict=True)
        ):
            row = self._row(text, line)
            if row is not None:
                kept.append(k)
                kept_texts.append(text)
                rows.append(row)
        # Without rows the array would have one dimension.
        values = np.array(rows, dtype=np.float64)
        values = values.reshape(len(rows), len(FIELDS))
        return kept_texts, line_numbers[kept], values

    def _row(
        self,
        text: str,
        line: int,
    ) -> list[float] | None:
        """The 18 numbers of a line; None, and reported, if it is wrong."""
        words = list(re.finditer(r"\S+", text))
        row: list[float] = []
        for k, word in enumerate(words[: len(FIELDS)]):
            try:
                # float() accepts underscores, the format does not.
                row.append(float(word.group().replace("_", "x")))
            except ValueError:
                message = _word_objection(k, word.group(), text)
                self.complaints.add(line, word.start() + 1, message)
                return None
        end = words[-1].end()
        if not self.complaints.has_fields(
            line, end, n_fields=len(words), wanted=len(FIELDS)
        ):
            return None
        return row

    def _in_order(self, values: Floats) -> bool:
        """True if job numbers rise and submission times never fall, in these
        records and from the records above to them.
        """
        numbers = np.concatenate(([self._greatest_job], values[:, 0]))
        latest_s, _ = self.complaints.latest
        times = np.concatenate(([latest_s], values[:, 1]))
        return bool(
            (numbers[1:] > numbers[:-1]).all()
            and (times[1:] >= times[:-1]).all()
        )

    def _check_each(
        self,
        texts: list[str],
        line_numbers: Ints32,
        values: Floats,
        invalid: Bools,
    ) -> list[int]:
        """Positions of the valid records; the others are reported.

        A record is invalid for a value (``invalid``), a submission before the
        latest one above, or a job number that a line above has.
        """
        valid: list[int] = []
        # Only of the job numbers in this chunk: a table of a million jobs would
        # be too much for one wrong line.
        line_of_job = self._lines_of(values[:, 0])
        for k, line in enumerate(line_numbers.tolist()):
            columns = [
                word.start() + 1 for word in re.finditer(r"\S+", texts[k])
            ]
            job, submit_s = values[k, :2].tolist()
            if invalid[k].any():
                at = int(np.argmax(invalid[k]))
                objection = _objection(at, float(values[k, at]))
                message = f"{_field_name(at)}: {objection}"
                self.complaints.add(line, columns[at], message)
                continue
            # Before the job number: later submissions are compared with this
            # one even if its job number is a repeated one.
            if self.complaints.is_early(
                line, columns[1], _field_name(1), submit_s
            ):
                continue
            if job in line_of_job:
                message = f"{_field_name(0)}: {job:.0f} stands in line {line_of_job[job]} too"
                self.complaints.add(line, columns[0], message)
            else:
                line_of_job[job] = line
                valid.append(k)
        return valid

    def _lines_of(self, jobs: Floats) -> dict[float, int]:
        """Lines of the records kept so far that have these job numbers."""
        line_of_job: dict[float, int] = {}
        for block, lines in zip(
            self.blocks, self.line_numbers, strict=True
        ):
            shared = np.isin(block["number"], jobs)
            pairs = zip(
                block["number"][shared].tolist(),
                lines[shared].tolist(),
                strict=True,
            )
            line_of_job.update(pairs)
        return line_of_job


def _parsed(
    texts: list[str],
    columns: range | None = None,
) -> Floats | None:
    """The numbers of all lines, shape (lines, columns).

    ``columns``: those to parse (None: all). None where a text is not a number,
    or lines differ in their number of columns.
    """
    try:
        return np.loadtxt(
            texts,
            dtype=np.float64,
            comments=None,
            ndmin=2,
            usecols=columns,
        )
    except ValueError:
        return None


def _invalid(values: Floats) -> Bools:
    """True for values that their fields do not allow; shape ``values``."""
    invalid = ~np.isfinite(values)
    invalid |= (values < 0) & (values != -1)
    invalid |= np.abs(values) > _GREATEST
    invalid |= _WHOLE & (np.trunc(values) != values)
    # Job number and submission must be known (not -1): they name and order
    # the jobs.
    invalid[:, :2] |= values[:, :2] < 0
    return invalid


def _word_objection(
    k: int,
    word: str,
    text: str,
) -> str:
    """The message on word ``k`` of a line, which is not a number."""
    objection = f"{quoted_text(word)} is not a number"
    if k:
        return f"{_field_name(k)}: {objection}"
    if word[:1].isdigit():
        return objection
    # A line without a number at its start is probably another format's: the
    # message quotes all of it.
    return (
        f"{quoted_text(text.strip())} is no line of this format: 18 numbers"
    )


def _objection(
    k: int,
    value: float,
) -> str:
    """The message on an invalid value of field ``k``."""
    if not np.isfinite(value):
        return f"{value} is not a finite number"
    if value < 0:
        unknown = "; -1 is for what is unknown" if k > 1 else ""
        return f"{value:.15g} is negative{unknown}"
    if abs(value) > _GREATEST[k]:
        return f"{value:.15g} is beyond what can be meant"
    return f"{value:.15g} is not a whole number"


def _field_name(k: int) -> str:
    return f"field {k + 1} ({FIELDS[k][1]})"


# ------------------------------------------------------------------ from records to jobs

ZeroRun = Literal["raise", "skip"]
"""Treatments of running times of 0 s: raised to 1 s, or left out."""

NEEDED = (
    "number",
    "submit_s",
    "run_s",
    "allocated",
    "requested",
    "requested_s",
    "status",
    "user",
    "queue",
)
"""The fields that :func:`jobs_of` reads."""


@dataclass(frozen=True)
class JobsOfLog:
    """The jobs of a log.

    ``skipped`` and ``repaired``: numbers of records left out and of records
    repaired, by reason.
    """

    jobs: ParallelJobs
    skipped: Mapping[str, int]
    repaired: Mapping[str, int]


def jobs_of(
    log: Swf,
    zero_run: ZeroRun = "raise",
    shortest_s: float = 0.0,
    longest_s: float = math.inf,
) -> JobsOfLog:
    """The jobs of a log with running times from ``shortest_s`` to
    ``longest_s``, both included.
    """
    records = log.records
    keep, skipped = _usable(records, zero_run, shortest_s, longest_s)
    # Most logs are kept whole: that saves a copy of a million records.
    if not keep.all():
        records = records[keep]
    run_s = np.maximum(records["run_s"], SHORTEST_S)
    # Copies, as a view of one field would keep all fields in memory.
    jobs = ParallelJobs(
        number=records["number"].copy(),
        submit_s=records["submit_s"].copy(),
        processes=_processes(records),
        run_s=run_s,
        stated_s=_stated_s(records, run_s),
        bandwidth_bps=np.zeros(len(records), dtype=np.int64),
        user=records["user"].copy(),
        queue=records["queue"].copy(),
    )
    return JobsOfLog(jobs, skipped, _counts(_repairs(records, run_s)))


def _processes(records: Records) -> Ints32:
    """Processors requested, else allocated, else 1, per record."""
    requested = records["requested"]
    processes: Ints32 = np.where(
        requested > 0, requested, records["allocated"]
    )
    return np.maximum(processes, 1).astype(np.int32)


def _stated_s(records: Records, run_s: Floats) -> Floats:
    """The requested times in s; NaN where there is none.

    A requested time below the running time is raised to it: a job that was not
    ended at its limit had a higher one.
    """
    requested_s = records["requested_s"]
    return np.where(requested_s > 0, np.maximum(requested_s, run_s), np.nan)


def _repairs(
    records: Records,
    run_s: Floats,
) -> dict[str, Bools]:
    """Marks of the records that were repaired, by reason.

    ``run_s``: the running times after the repair.
    """
    unstated = records["requested_s"] <= 0
    low = records["requested_s"] < run_s
    short = records["run_s"] < SHORTEST_S
    unknown = (records["requested"] <= 0) & (records["allocated"] <= 0)
    return {
        "processors neither requested nor allocated: 1 taken": unknown,
        f"running time below {SHORTEST_S:g} s raised to it": short,
        "requested time below the running time raised to it": ~unstated
        & low,
        "no requested time: the running time taken": unstated,
    }


def _usable(
    records: Records,
    zero_run: ZeroRun,
    shortest_s: float,
    longest_s: float,
) -> tuple[Bools, dict[str, int]]:
    """Marks of the records that are jobs to schedule, and numbers of the others
    by reason.
    """
    status = records["status"]
    run_s = records["run_s"]
    # A job that was checkpointed has a line for each part (status 2 to 4)
    # and one for the whole. A cancelled job has status 5.
    is_part = np.isin(status, (2, 3, 4))
    reasons = {
        "part of a job that has a record of its own": is_part,
        "cancelled before it ran": (status == 5) & (run_s <= 0),
        "running time unknown": run_s < 0,
        "ran for 0 s": (run_s == 0) & (zero_run == "skip"),
        f"ran for less than {shortest_s:g} s": run_s < shortest_s,
        f"ran for more than {longest_s:g} s": run_s > longest_s,
    }
    keep = np.ones(len(records), dtype=np.bool_)
    left_out: dict[str, Bools] = {}
    # A record counts under its first reason alone, so the counts add up.
    for reason, marks in reasons.items():
        left_out[reason] = marks & keep
        keep &= ~marks
    return keep, _counts(left_out)


def _counts(marked: Mapping[str, Bools]) -> dict[str, int]:
    """The number of records marked, by reason; reasons without one are left
    out.
    """
    return {
        reason: int(marks.sum())
        for reason, marks in marked.items()
        if marks.any()
    }
