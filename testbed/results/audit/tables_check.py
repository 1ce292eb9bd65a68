"""``jobs.csv`` and ``links.csv`` against the same values, computed anew from the events."""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from testbed import events
from testbed.errors import BadInput
from testbed.results.audit.capacity_check import stays
from testbed.results.audit.history import Found, History, JobHistory, about
from testbed.results.folder import JOBS, LINKS
from testbed.results.reading import open_regular

Cells = dict[str, Any]
"""A job's figures by column, as the events have them."""

SHORTEST_S = 10.0
"""Γ: what counts as a job's running time at least, in the bounded slowdown."""

STOPPED = "the run stopped before its end"
"""The reason of a job without an end event."""


_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?")
_MEASURED = ("bps", "worst_bps", "ratio", "counted_bps")
_OF_REQUEST = ("kind", "submit_s", "n_vms", "deadline_s", "value", "application", "duration_s")


def facts(history: History) -> dict[str, Cells]:
    """Every submitted job's cells, in order of submission."""
    return {job.job_id: _cells(job, history.started.policy) for job in history.requested}


def _cells(job: JobHistory, policy: str) -> Cells:
    request, started, ended = job.request, job.first(events.JobStarted), job.first(events.JobEnded)
    booked = next(reversed(job.all(events.JobReserved)), None)
    estimate_s = getattr(booked, "estimate_s", None)
    return {
        "job_id": request["id"],
        "policy": policy,
        **{key: request[key] for key in _OF_REQUEST},
        "start_s": getattr(started, "t", None),
        "end_s": getattr(ended, "t", None),
        "outcome": getattr(ended, "outcome", "unfinished"),
        "reason": getattr(ended, "reason", STOPPED),
        "requested_bps": request["bandwidth_bps"],
        "granted_bps": getattr(booked, "rate_bps", None),
        "estimate_s": estimate_s,
        "measured_s": getattr(ended, "measured_s", None),
        "met_deadline": _met(request, ended),
        "preemptions": len(job.all(events.JobPreempted)),
        "migrations": len(job.all(events.JobMigrated)),
        "price": _price(ended),
        "job_class": _class(request),
        "wait_s": None if started is None else started.t - request["submit_s"],
        **_of_finished(request["submit_s"], ended, estimate_s),
        **_by_iperf3(ended, getattr(booked, "rate_bps", None)),
    }


def _met(request: Mapping[str, Any], ended: events.JobEnded | None) -> bool | None:
    if request["deadline_s"] is None:
        return None
    if ended is None or ended.outcome != "finished":
        return False
    return about(ended.t, request["submit_s"] + request["deadline_s"])


def _price(ended: events.JobEnded | None) -> float | None:
    """Price that the policy charged; None where the event holds no amount."""
    charged = 0.0 if ended is None else ended.detail.get("price", 0.0)
    return float(charged) if is_number(charged) else None


def _class(request: Mapping[str, Any]) -> str | None:
    for tag in request.get("tags") or ():
        if isinstance(tag, Sequence) and len(tag) == 2 and tag[0] == "class":
            return str(tag[1])
    queue = request.get("queue")
    return None if queue is None else str(queue)


def _of_finished(
    submit_s: float, ended: events.JobEnded | None, estimate_s: float | None
) -> dict[str, float | None]:
    """Columns that only a finished job has."""
    names = ("ratio", "response_s", "queued_s", "slowdown", "bounded_slowdown")
    out: dict[str, float | None] = dict.fromkeys(names)
    if ended is None or ended.outcome != "finished":
        return out
    stay_s, ran_s = ended.t - submit_s, ended.measured_s
    out["response_s"] = stay_s
    if ran_s is not None:
        out["queued_s"] = max(0.0, stay_s - ran_s)
        out["bounded_slowdown"] = stay_s / max(SHORTEST_S, ran_s)
        if ran_s:
            out["slowdown"] = stay_s / ran_s
        if estimate_s:
            out["ratio"] = ran_s / estimate_s
    return out


def _by_iperf3(ended: events.JobEnded | None, granted_bps: int | None) -> dict[str, float | None]:
    """Columns that only a finished job has whose VMs measured with iperf3."""
    out: dict[str, float | None] = dict.fromkeys(f"iperf3_{name}" for name in _MEASURED)
    found = ended.detail.get("iperf3", {}) if ended and ended.outcome == "finished" else {}
    lists = [found.get(key, []) for key in ("received_bps", "counted_bps")]
    if all(lists):
        received, counted = lists
        figures = (statistics.median(received), min(received), statistics.median(counted))
        out["iperf3_bps"], out["iperf3_worst_bps"], out["iperf3_counted_bps"] = figures
        if granted_bps:
            out["iperf3_ratio"] = min(received) / granted_bps
    return out


def is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    # JSON's integers may be longer than any number that is computed with.
    return isinstance(value, float) or abs(value) < 1 << 1000


# ---------------------------------------------------------------------------------- jobs.csv


def jobs_csv(history: History) -> Found:
    """One line a job, every cell as the events have it, and no column beside them."""
    try:
        with _table(history.folder / JOBS) as file:
            reader = csv.DictReader(file)
            rows = [(reader.line_num, row) for row in reader]
            header = list(reader.fieldnames or ())
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        yield (JOBS, None), _unreadable(error)
        return
    # What the table names is what it can hold of a text: no lone carriage return.
    known = {_shown(job_id): cells for job_id, cells in facts(history).items()}
    if known:
        wanted = set(next(iter(known.values())))
        yield from (((JOBS, 1), wrong) for wrong in _wrong_columns(header, wanted))
    seen: set[str] = set()
    for line, row in rows:
        job_id = row.get("job_id") or ""
        if job_id not in known or job_id in seen:
            why = "stands here twice" if job_id in seen else "was never submitted"
            yield (JOBS, line), f"{job_id!r} {why}"
            continue
        seen.add(job_id)
        if len(row) != len(header) or None in row.values():
            yield (JOBS, line), f"{job_id}: has not one cell a column"
        for wrong in _wrong_cells(row, known[job_id]):
            yield (JOBS, line), f"{job_id}: {wrong}"
    yield from (((JOBS, None), f"{job_id} is missing") for job_id in known if job_id not in seen)


def _table(path: Path) -> TextIO:
    return io.TextIOWrapper(open_regular(path), encoding="utf-8", newline="")


def _unreadable(error: Exception) -> str:
    """The fault of a table as a whole. Raises BadInput where this user may not read it."""
    if isinstance(error, PermissionError):
        raise BadInput(f"{error.filename}: {error.strerror}") from error
    if isinstance(error, OSError):
        missing = isinstance(error, FileNotFoundError)
        return "is missing" if missing else f"cannot be read: {error.strerror}"
    return f"damaged: {error}"


def _number(cell: str) -> float:
    """A cell's number as the tables are written; Python's float takes 1_000 and others' digits."""
    return float(cell) if _NUMBER.fullmatch(cell) else math.nan


def _wrong_columns(header: list[str], wanted: set[str]) -> Iterator[str]:
    for column in sorted(wanted.difference(header)):
        yield f"has no column {column}"
    for column in dict.fromkeys(header):
        if column not in wanted:
            yield f"the column {column!r} is none of the table's"
        elif header.count(column) > 1:
            yield f"has the column {column} twice"


def _wrong_cells(row: Mapping[str, str], due: Cells) -> Iterator[str]:
    for column, value in due.items():
        cell = row.get(column)
        if cell is not None and not _cell_is(cell, value):
            yield f"{column} is {cell!r}, by the events {_shown(value)!r}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value.replace("\r\n", "\n").replace("\r", "\n")
    return "" if value is None else str(value)


def _cell_is(cell: str, value: Any) -> bool:
    if isinstance(value, float) and cell:
        return math.isclose(_number(cell), value, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(value, int) and not isinstance(value, bool):
        return cell in (str(value), str(float(value)))
    return cell == _shown(value)


# -- links.csv


COLUMNS = ["time_s", "link", "directed_link", "sent_bps", "reserved_bps", "capacity_bps"]
MOST_ROWS, MOST_INTERVALS = 200_000, 200
"""The grain of the means of a run without samples (docs/runs-and-fidelity.md)."""

_Row = tuple[float, int, float | None, float]
"""Time, directed link, sent (None: not measured), reserved; rates are written as whole numbers."""


def links_csv(history: History) -> Found:
    """Row for row what was sampled; without samples the means of what was reserved."""
    topology = history.topology
    named = [
        (topology.link(directed), str(directed), str(topology.capacity_bps[directed // 2]))
        for directed in range(topology.n_directed)
    ]
    samples = history.each(events.LinkSample)
    sampled = ((one.t, int(link), *rates) for one in samples for link, *rates in one.links)
    due: Iterator[Any] = sampled if samples else _means(history)
    try:
        with _table(history.folder / LINKS) as file:
            reader = csv.reader(file)
            header = next(reader, [])
            if header != COLUMNS:
                yield (LINKS, 1), f"the columns are {header}, not {COLUMNS}"
                return
            for cells, row in zip_longest(reader, due):
                if cells is None or row is None:
                    wrong = "a row is missing" if cells is None else "is a row too many"
                    yield (LINKS, reader.line_num), wrong
                    return
                if wrong := _wrong(named, cells, row):
                    yield (LINKS, reader.line_num), wrong
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        yield (LINKS, None), _unreadable(error)


def _wrong(named: Sequence[tuple[str, str, str]], cells: Sequence[str], row: _Row) -> str:
    """First cell of a line that is not as it is due; empty where all are."""
    time_s, directed, sent_bps, reserved_bps = row
    if not 0 <= directed < len(named):
        return f"directed link {directed} does not exist"
    if len(cells) != len(COLUMNS):
        return "has not one cell a column"
    cell = dict(zip(COLUMNS, cells, strict=True))
    rates = (("sent_bps", sent_bps, 0.5), ("reserved_bps", reserved_bps, 0.5))
    for column, due, rounding in (*rates, ("time_s", time_s, 0.0)):
        if not (cell[column] == "" if due is None else _about(cell[column], due, rounding)):
            return f"{column} is {cell[column]!r}, by the events {due}"
    given = (cell["link"], cell["directed_link"], cell["capacity_bps"])
    if given == named[directed]:
        return ""
    return f"is of {given} (link, number, capacity), by the events of {named[directed]}"


def _about(cell: str, value: float, rounding: float) -> bool:
    found = _number(cell)
    return math.isfinite(found) and abs(found - value) <= rounding + 1e-9 * max(1.0, abs(value))


def _means(history: History) -> Iterator[_Row]:
    """Equal intervals, all links that ever were reserved in each, by number."""
    end_s = history.end_s
    steps = sorted(_changes(history).items())
    if not steps or end_s <= 0:
        return
    n = max(1, min(MOST_INTERVALS, MOST_ROWS // len(steps)))
    means = {link: _cut(changes, end_s, n) for link, changes in steps}
    for i in range(n):
        for link, own in means.items():
            yield (i + 1) * end_s / n, link, None, own[i]


def _changes(history: History) -> dict[int, list[tuple[float, int]]]:
    """When how much more or less was held on each link; what is held for no time is left out."""
    out: dict[int, list[tuple[float, int]]] = {}
    for taken, until_s in stays(history):
        end_s = history.end_s if until_s is None else until_s
        for link, bps in taken.hold.links if end_s > taken.t else ():
            out.setdefault(link, []).extend(((taken.t, bps), (end_s, -bps)))
    return out


def _cut(changes: list[tuple[float, int]], end_s: float, n: int) -> list[float]:
    """The mean over each of ``n`` equal parts of the run, from the bits held up to each moment."""
    times, steps = np.array(sorted([(0.0, 0), *changes, (end_s, 0)])).T
    bits = np.append(0.0, np.cumsum(np.cumsum(steps)[:-1] * np.diff(times)))
    edges = np.linspace(0.0, end_s, n + 1)
    means: list[float] = (np.diff(np.interp(edges, times, bits)) * n / end_s).tolist()
    return means
