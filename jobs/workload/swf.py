"""The Standard Workload Format: header comments, then 18 numbers a line, -1 where unknown.

What a line must be is the format's definition (Parallel Workloads Archive, version 2.2). What is
wrong is named by line and column, all of it at once; ``lenient`` leaves such lines out and counts
them. Of sound records :func:`jobs_of` takes those that are jobs which can be scheduled, and counts
the others by reason.
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
import numpy.typing as npt

from jobs.workload.distributions import Floats
from jobs.workload.parallel_jobs import SHORTEST_S, ParallelJobs
from jobs.workload.traces import Complaints, LineProblem, shown

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

_WHOLE = np.array([np.issubdtype(kind, np.integer) for _, _, kind in FIELDS])
_GREATEST = np.array(
    [2**31 - 1 if kind is np.int32 else 2**53 if kind is np.int64 else 1e15 for *_, kind in FIELDS]
)
_CHUNK_LINES = 1 << 15
_COMMENT = re.compile(r"\s*;+\s?(\s*)(?:([A-Za-z][A-Za-z ]*?)\s*:(?:\s+|$))?(.*)")

Records = np.ndarray[tuple[int], np.dtype[np.void]]
Lines = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Swf:
    """The content of a file: ``records`` of the :data:`FIELDS` asked for, and each one's line.

    ``header`` has every ``; Key: value`` comment before the first record, in order of the file;
    ``skipped`` says how many lines were left out, and ``examples`` what was wrong with the first.
    """

    path: Path
    header: Mapping[str, tuple[str, ...]]
    records: Records
    lines: Lines
    skipped: int = 0
    examples: tuple[LineProblem, ...] = ()


def read_swf(
    path: Path,
    *,
    first: int | None = None,
    lenient: bool = False,
    names: Collection[str] = NAMES,
) -> Swf:
    """The records of a file, the ``first`` so many of them where that is given.

    All 18 fields of a line are read and checked; ``names`` are those that are kept.
    Raises :class:`TraceErrors` with all that is wrong with the lines read, unless ``lenient``; in
    any case where there is no record at all; OSError where there is no such file. O(lines): about
    a microsecond a record, and 112 bytes if all its fields are kept.
    """
    complaints = Complaints()
    record = np.dtype([(n, kind) for n, _, kind in FIELDS if n in names])
    log = _Log(first, record, complaints)
    with complaints.reading(path) as lines:
        log.take(lines)
    complaints.conclude(path, log.kept, lenient=lenient)
    return Swf(
        path,
        {key: tuple(values) for key, values in log.header.items()},
        np.concatenate(log.blocks),
        np.concatenate(log.numbers),
        complaints.found,
        tuple(complaints.first),
    )


@dataclass
class _Log:
    """A log as far as it has been read. Records come in blocks of some thousand lines."""

    first: int | None
    record: np.dtype[np.void]
    complaints: Complaints
    header: dict[str, list[str]] = field(default_factory=dict)
    blocks: list[Records] = field(default_factory=list)
    numbers: list[Lines] = field(default_factory=list)
    kept: int = 0
    _key: str | None = None
    _latest: tuple[float, int] = (-np.inf, 0)
    _greatest_number: int = -1

    def take(self, lines: Iterator[str]) -> None:
        """Read until the lines end or the wanted records are there."""
        while self.first is None or self.kept < self.first:
            # No line beyond the last wanted record is looked at.
            wanted = _CHUNK_LINES if self.first is None else self.first - self.kept
            chunk = list(islice(lines, min(_CHUNK_LINES, wanted)))
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

    def _take_records(self, texts: list[str], where: Lines) -> None:
        try:
            values = np.loadtxt(texts, dtype=np.float64, comments=None, ndmin=2)
            sound = values.shape[1] == len(FIELDS)
        except ValueError:
            sound = False
            values = np.empty((0, len(FIELDS)))
        if not sound:
            texts, where, values = self._numbers_of(texts, where)
        good = self._check_values(texts, where, values)
        good &= self._check_order(texts, where, values[:, 1], good)
        good &= self._check_repeats(texts, where, values[:, 0], good)
        chosen = np.flatnonzero(good)
        block = np.empty(len(chosen), self.record)
        for k, name in enumerate(NAMES):
            if name in (self.record.names or ()):
                block[name] = values[chosen, k]
        self.blocks.append(block)
        self.numbers.append(where[chosen])
        self.kept += len(chosen)

    def _numbers_of(self, texts: list[str], where: Lines) -> tuple[list[str], Lines, Floats]:
        """Line by line, where not all lines are 18 numbers: those that are."""
        kept: list[int] = []
        rows: list[list[float]] = []
        for k, text in enumerate(texts):
            row = self._row(text, int(where[k]))
            if row is not None:
                kept.append(k)
                rows.append(row)
        values = np.array(rows, dtype=np.float64).reshape(len(rows), len(FIELDS))
        return [texts[k] for k in kept], where[kept], values

    def _row(self, text: str, line: int) -> list[float] | None:
        words = list(re.finditer(r"\S+", text))
        row: list[float] = []
        for k, word in enumerate(words[: len(FIELDS)]):
            try:
                row.append(float(word.group().replace("_", "x")))
            except ValueError:
                what = f"{shown(word.group())} is not a number"
                if k == 0 and not word.group()[:1].isdigit():
                    what = f"{shown(text.strip())} is no line of this format: 18 numbers"
                self.complaints.add(line, word.start() + 1, _of_field(k, what) if k else what)
                return None
        if len(words) != len(FIELDS):
            few = len(words) < len(FIELDS)
            column = words[-1].end() if few else words[len(FIELDS)].start() + 1
            self.complaints.add_of_count(line, column, len(words), len(FIELDS))
            return None
        return row

    def _check_values(self, texts: list[str], where: Lines, values: Floats) -> Bools:
        """Which lines hold only numbers that their fields can have."""
        wrong = ~np.isfinite(values)
        wrong |= (values < 0) & (values != -1)
        wrong |= np.abs(values) > _GREATEST
        wrong |= _WHOLE & (np.trunc(values) != values)
        wrong[:, :2] |= values[:, :2] < 0
        for k in np.flatnonzero(wrong.any(axis=1)).tolist():
            field_ = int(np.argmax(wrong[k]))
            self._complain(texts[k], where[k], field_, _objection(field_, float(values[k, field_])))
        good: Bools = np.logical_not(wrong.any(axis=1))
        return good

    def _complain(self, text: str, line: int, field_: int, message: str) -> None:
        """Adds what is wrong with a field of a line."""
        column = list(re.finditer(r"\S+", text))[field_].start() + 1
        self.complaints.add(int(line), column, _of_field(field_, message))

    def _check_order(self, texts: list[str], where: Lines, submit_s: Floats, good: Bools) -> Bools:
        """Which lines are not submitted before a sound one above them."""
        times = np.concatenate(([self._latest[0]], np.where(good, submit_s, -np.inf)))
        lines = np.concatenate(([self._latest[1]], where))
        latest = np.maximum.accumulate(times)
        late = good & (submit_s < latest[:-1])
        if late.any():
            holder = np.maximum.accumulate(np.where(times == latest, np.arange(len(times)), 0))
            for k in np.flatnonzero(late).tolist():
                above = int(holder[k])
                earlier = f"line {lines[above]}'s {times[above]:.15g} s"
                self._complain(texts[k], where[k], 1, f"{submit_s[k]:.15g} s is before {earlier}")
        if latest[-1] > self._latest[0]:
            at = int(np.argmax(times))
            self._latest = (float(times[at]), int(lines[at]))
        return ~late

    def _check_repeats(self, texts: list[str], where: Lines, values: Floats, good: Bools) -> Bools:
        """Which lines bear a job number that no line above them has."""
        fresh = np.ones(len(values), dtype=np.bool_)
        numbers = np.where(good, values, -1).astype(np.int64)
        mine = numbers[good]
        if not len(mine):
            return fresh
        rising = bool((np.diff(mine) > 0).all()) and int(mine[0]) > self._greatest_number
        if not rising:
            known: dict[int, int] = {}
            for block, lines in zip(self.blocks, self.numbers, strict=True):
                shared = np.isin(block["number"], mine)
                known.update(
                    zip(block["number"][shared].tolist(), lines[shared].tolist(), strict=True)
                )
            for k in np.flatnonzero(good).tolist():
                number = int(numbers[k])
                if number in known:
                    fresh[k] = False
                    message = f"{number} stands in line {known[number]} too"
                    self._complain(texts[k], where[k], 0, message)
                else:
                    known[number] = int(where[k])
        self._greatest_number = max(self._greatest_number, int(mine.max()))
        return fresh


def _objection(field_: int, value: float) -> str:
    if not np.isfinite(value):
        return f"{value} is not a finite number"
    if value < 0:
        unknown = "; -1 is for what is unknown" if field_ > 1 else ""
        return f"{value:.15g} is negative{unknown}"
    if abs(value) > _GREATEST[field_]:
        return f"{value:.15g} is beyond what can be meant"
    return f"{value:.15g} is not a whole number"


def _of_field(field_: int, message: str) -> str:
    return f"field {field_ + 1} ({FIELDS[field_][1]}): {message}"


# ------------------------------------------------------------------ from records to jobs

ZeroRun = Literal["raise", "skip"]
"""What becomes of records with a running time of 0 s: raised to 1 s, or left out."""

NEEDED = (
    "number", "submit_s", "run_s", "allocated", "requested", "requested_s", "status", "user",
    "queue",
)  # fmt: skip
"""The fields of a record that decide on its job."""


@dataclass(frozen=True)
class JobsOfLog:
    """The jobs, how many records were left out, and how many were repaired, by reason."""

    jobs: ParallelJobs
    skipped: Mapping[str, int]
    repaired: Mapping[str, int]


def jobs_of(
    log: Swf,
    zero_run: ZeroRun = "raise",
    shortest_s: float = 0.0,
    longest_s: float = math.inf,
) -> JobsOfLog:
    """The jobs of a log that ran from ``shortest_s`` to ``longest_s``.

    Processors are those requested, else those allocated, else 1. A stated time below the true one
    is raised to it: the machine would have ended the job, and it did not.
    """
    records = log.records
    keep, skipped = _usable(records, zero_run, shortest_s, longest_s)
    lines = log.lines
    if not keep.all():
        records, lines = records[keep], lines[keep]
    asked = records["requested"] > 0
    given = records["allocated"] > 0
    processes = np.where(asked, records["requested"], records["allocated"])
    processes = np.where(asked | given, processes, 1)
    run_s = np.maximum(records["run_s"], SHORTEST_S)
    stated = records["requested_s"] > 0
    low = stated & (records["requested_s"] < run_s)
    repaired = {
        "processors neither requested nor allocated: 1 taken": ~(asked | given),
        f"running time below {SHORTEST_S:g} s raised to it": records["run_s"] < SHORTEST_S,
        "requested time below the running time raised to it": low,
        "no requested time: the running time taken": ~stated,
    }
    jobs = ParallelJobs(
        number=records["number"].copy(),
        submit_s=records["submit_s"].copy(),
        processes=processes.astype(np.int32),
        run_s=run_s,
        stated_s=np.where(stated, np.maximum(records["requested_s"], run_s), np.nan),
        bandwidth_bps=np.zeros(len(records), dtype=np.int64),
        user=records["user"].copy(),
        queue=records["queue"].copy(),
        line=lines,
    )
    return JobsOfLog(jobs, skipped, _counts(repaired))


def _usable(
    records: Records, zero_run: ZeroRun, shortest_s: float, longest_s: float
) -> tuple[Bools, dict[str, int]]:
    """Which records are jobs with a running time, and why the others are not: the first reason."""
    status, run_s = records["status"], records["run_s"]
    reasons = {
        "part of a job that has a record of its own": np.isin(status, (2, 3, 4)),
        "cancelled before it ran": (status == 5) & (run_s <= 0),
        "running time unknown": run_s < 0,
        "ran for 0 s": (run_s == 0) & (zero_run == "skip"),
        f"ran for less than {shortest_s:g} s": run_s < shortest_s,
        f"ran for more than {longest_s:g} s": run_s > longest_s,
    }
    keep = np.ones(len(records), dtype=np.bool_)
    first: dict[str, Bools] = {}
    for reason, holds in reasons.items():
        first[reason] = holds & keep
        keep &= ~holds
    return keep, _counts(first)


def _counts(marked: Mapping[str, Bools]) -> dict[str, int]:
    return {reason: int(marks.sum()) for reason, marks in marked.items() if marks.any()}
