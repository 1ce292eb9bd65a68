"""The Standard Workload Format: header comments, then 18 numbers a line, -1
where unknown.

Lines are checked by the format's definition (Parallel Workloads Archive, version
2.2). All problems are reported at once, by line and column; ``lenient`` leaves
such lines out and counts them. Of sound records :func:`jobs_of` takes the jobs
that can be scheduled, and counts the others by reason.
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
"""Name, the format's own name, and type of the 18 fields, in order."""

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
_COMMENT = re.compile(
    r"\s*;+\s?(\s*)(?:([A-Za-z][A-Za-z ]*?)\s*:(?:\s+|$))?(.*)"
)

Records = np.ndarray[tuple[int], np.dtype[np.void]]


@dataclass(frozen=True, eq=False)
class Swf:
    """The content of a file: ``records`` of the :data:`FIELDS` asked for, and
    each one's line.

    ``header`` has every ``; Key: value`` comment before the first record, in
    order of the file. ``skipped``, ``examples`` and ``remarks`` are those of
    :class:`jobs.workload.traces.Trace`.
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
    """The records of a file, the ``first`` so many of them where that is given.

    All 18 fields of a line are read and checked; ``names`` are those that are
    kept. Raises :class:`TraceErrors` with all that is wrong with the lines
    read, unless ``lenient``; in any case where there is no record at all;
    OSError where there is no such file. O(lines): about a microsecond a record,
    and 112 bytes if all its fields are kept.
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
        lines=np.concatenate(log.numbers),
        skipped=complaints.total,
        examples=tuple(complaints.first),
        remarks=complaints.remarks,
    )


@dataclass
class _Log:
    """A log as far as it has been read. Records come in blocks of some thousand
    lines.
    """

    first: int | None
    record: np.dtype[np.void]
    complaints: Complaints
    header: dict[str, list[str]] = field(default_factory=dict)
    blocks: list[Records] = field(default_factory=list)
    numbers: list[Ints32] = field(default_factory=list)
    kept: int = 0
    _key: str | None = None
    _greatest_number: float = -1.0

    def take(self, lines: Iterator[str]) -> None:
        """Reads until the lines end or the wanted records are there."""
        while self.first is None or self.kept < self.first:
            n_lines = _CHUNK_LINES
            if self.first is not None:
                # No line beyond the last wanted record is looked at.
                n_lines = min(n_lines, self.first - self.kept)
            chunk = list(islice(lines, n_lines))
            if not chunk:
                return
            self._take_chunk(chunk)

    def _take_chunk(self, chunk: list[str]) -> None:
        texts: list[str] = []
        where: list[int] = []
        for number, text in enumerate(chunk, self.complaints.line + 1):
            start = text.lstrip()
            if start[:1] == ";":
                if not texts and not self.kept:
                    self._comment(text.rstrip())
            elif start:
                texts.append(text)
                where.append(number)
        self.complaints.line += len(chunk)
        if texts:
            self._take_records(texts, np.array(where, dtype=np.int32))

    def _comment(self, text: str) -> None:
        match = _COMMENT.match(text)
        indent, key, value = match.groups() if match else ("", None, "")
        if key is not None:
            self._key = key
            self.header.setdefault(key, []).append(value.rstrip())
        elif indent and value and self._key is not None:
            self.header[self._key][-1] += f" {value}"
        else:
            self._key = None

    def _take_records(
        self,
        texts: list[str],
        where: Ints32,
    ) -> None:
        # A sound log is parsed and checked by whole columns, at a microsecond
        # a line; only a chunk with something wrong is gone through by line.
        values = _numbers(texts)
        if values is None or values.shape[1] != len(FIELDS):
            values = _numbers(texts, range(len(FIELDS)))
            if values is None:
                texts, where, values = self._numbers_of(texts, where)
            else:
                self._count_longer(texts, where)
        wrong = _wrong(values)
        if wrong.any() or not self._in_order(values):
            good = self._check_each(texts, where, values, wrong)
            where = where[good]
            values = values[good]
        self._keep(values, where)

    def _keep(
        self,
        values: Floats,
        where: Ints32,
    ) -> None:
        """Keeps sound records, of the wanted fields."""
        block = np.empty(len(values), self.record)
        for k, name in enumerate(NAMES):
            if name in (self.record.names or ()):
                block[name] = values[:, k]
        if len(values):
            greatest = float(values[:, 0].max())
            last = (float(values[-1, 1]), int(where[-1]))
            self._greatest_number = max(self._greatest_number, greatest)
            self.complaints.latest = max(self.complaints.latest, last)
        self.blocks.append(block)
        self.numbers.append(where)
        self.kept += len(values)

    def _count_longer(
        self,
        texts: list[str],
        where: Ints32,
    ) -> None:
        """Counts lines with more than the 18 fields."""
        for text, line in zip(texts, where.tolist(), strict=True):
            words = text.split()
            if len(words) > len(FIELDS):
                self.complaints.add_longer(
                    line, n_fields=len(words), wanted=len(FIELDS)
                )

    def _numbers_of(
        self,
        texts: list[str],
        where: Ints32,
    ) -> tuple[list[str], Ints32, Floats]:
        """Line by line, where not all lines are 18 numbers: those that are."""
        kept = []
        kept_texts = []
        rows = []
        for k, (text, line) in enumerate(
            zip(texts, where.tolist(), strict=True)
        ):
            row = self._row(text, line)
            if row is not None:
                kept.append(k)
                kept_texts.append(text)
                rows.append(row)
        # Of no rows numpy would make an array of one dimension.
        values = np.array(rows, dtype=np.float64)
        values = values.reshape(len(rows), len(FIELDS))
        return kept_texts, where[kept], values

    def _row(
        self,
        text: str,
        line: int,
    ) -> list[float] | None:
        words = list(re.finditer(r"\S+", text))
        row: list[float] = []
        for k, word in enumerate(words[: len(FIELDS)]):
            try:
                # Python takes underscores in numbers, the format does not.
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
        """True where job numbers rise and submission times never fall, from the
        lines above on.
        """
        numbers = np.concatenate(([self._greatest_number], values[:, 0]))
        latest_s, _ = self.complaints.latest
        times = np.concatenate(([latest_s], values[:, 1]))
        return bool(
            (numbers[1:] > numbers[:-1]).all()
            and (times[1:] >= times[:-1]).all()
        )

    def _check_each(
        self,
        texts: list[str],
        where: Ints32,
        values: Floats,
        wrong: Bools,
    ) -> list[int]:
        """Lines of which nothing is wrong with the numbers, the order, or the
        job number.
        """
        good: list[int] = []
        # Of the numbers that come up here alone: no table of a million jobs
        # for one wrong line.
        known = self._lines_of(values[:, 0])
        for k, line in enumerate(where.tolist()):
            columns = [
                word.start() + 1 for word in re.finditer(r"\S+", texts[k])
            ]
            number, submit_s = values[k, :2].tolist()
            if wrong[k].any():
                at = int(np.argmax(wrong[k]))
                objection = _objection(at, float(values[k, at]))
                message = f"{_field(at)}: {objection}"
                self.complaints.add(line, columns[at], message)
                continue
            # Before its number is looked at: later lines are compared with it,
            # whatever that is.
            if self.complaints.is_early(
                line, columns[1], _field(1), submit_s
            ):
                continue
            if number in known:
                message = f"{_field(0)}: {number:.0f} stands in line {known[number]} too"
                self.complaints.add(line, columns[0], message)
            else:
                known[number] = line
                good.append(k)
        return good

    def _lines_of(self, numbers: Floats) -> dict[float, int]:
        """Lines of the records above that have these job numbers."""
        lines_of: dict[float, int] = {}
        for block, lines in zip(self.blocks, self.numbers, strict=True):
            shared = np.isin(block["number"], numbers)
            pairs = zip(
                block["number"][shared].tolist(),
                lines[shared].tolist(),
                strict=True,
            )
            lines_of.update(pairs)
        return lines_of


def _numbers(
    texts: list[str],
    columns: range | None = None,
) -> Floats | None:
    """The columns of all lines, or those asked for. None where they are not all
    numbers, or lines differ in their number of columns.
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


def _wrong(values: Floats) -> Bools:
    """Which numbers their fields cannot have."""
    wrong = ~np.isfinite(values)
    wrong |= (values < 0) & (values != -1)
    wrong |= np.abs(values) > _GREATEST
    wrong |= _WHOLE & (np.trunc(values) != values)
    # A job's number and submission cannot be unknown (-1): order and names
    # come of them.
    wrong[:, :2] |= values[:, :2] < 0
    return wrong


def _word_objection(
    k: int,
    word: str,
    text: str,
) -> str:
    """The objection to the k-th word of a line, which is no number."""
    wrong = f"{quoted_text(word)} is not a number"
    if k:
        return f"{_field(k)}: {wrong}"
    if word[:1].isdigit():
        return wrong
    # A line that begins so is another format's.
    return (
        f"{quoted_text(text.strip())} is no line of this format: 18 numbers"
    )


def _objection(
    field_: int,
    value: float,
) -> str:
    if not np.isfinite(value):
        return f"{value} is not a finite number"
    if value < 0:
        unknown = "; -1 is for what is unknown" if field_ > 1 else ""
        return f"{value:.15g} is negative{unknown}"
    if abs(value) > _GREATEST[field_]:
        return f"{value:.15g} is beyond what can be meant"
    return f"{value:.15g} is not a whole number"


def _field(field_: int) -> str:
    return f"field {field_ + 1} ({FIELDS[field_][1]})"


# ------------------------------------------------------------------ from records to jobs

ZeroRun = Literal["raise", "skip"]
"""Treatments of records with a running time of 0 s: raised to 1 s, or left out.
"""

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
"""The fields of a record that decide on its job."""


@dataclass(frozen=True)
class JobsOfLog:
    """The jobs, how many records were left out, and how many were repaired, by
    reason.
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
    """The jobs of a log that ran from ``shortest_s`` to ``longest_s``."""
    records = log.records
    keep, skipped = _usable(records, zero_run, shortest_s, longest_s)
    # Nearly always all are kept: no copy of a million records then.
    if not keep.all():
        records = records[keep]
    run_s = np.maximum(records["run_s"], SHORTEST_S)
    # Copies: a view of one field would keep whole records in memory.
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
    """Those requested, else those allocated, else 1."""
    requested = records["requested"]
    processes: Ints32 = np.where(
        requested > 0, requested, records["allocated"]
    )
    return np.maximum(processes, 1).astype(np.int32)


def _stated_s(records: Records, run_s: Floats) -> Floats:
    """The times requested; NaN where there is none.

    One below the true time is raised to it: the machine would have ended the
    job, and it did not.
    """
    requested_s = records["requested_s"]
    return np.where(requested_s > 0, np.maximum(requested_s, run_s), np.nan)


def _repairs(
    records: Records,
    run_s: Floats,
) -> dict[str, Bools]:
    """The records that were repaired, by reason. ``run_s``: as repaired."""
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
    """Which records are jobs with a running time, and why the others are not:
    the first reason.
    """
    status = records["status"]
    run_s = records["run_s"]
    # Statuses 2 to 4 are parts of a job that was checkpointed, with a line
    # each beside the whole job's; 5 is a cancelled one.
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
    first: dict[str, Bools] = {}
    # In this order: each record counts for the first reason alone, so the
    # counts add up.
    for reason, holds in reasons.items():
        first[reason] = holds & keep
        keep &= ~holds
    return keep, _counts(first)


def _counts(marked: Mapping[str, Bools]) -> dict[str, int]:
    return {
        reason: int(marks.sum())
        for reason, marks in marked.items()
        if marks.any()
    }
