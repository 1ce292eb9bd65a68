"""``jobs.csv`` and ``links.csv`` against the same values, computed anew from the events."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from testbed import events
from testbed.results.audit.capacity_check import occupied
from testbed.results.audit.history import Finding, History, JobHistory, Topology, about
from testbed.results.folder import JOBS, LINKS

Value = str | float | int | bool | None
Cells = dict[str, Value]
"""A job's figures by column, as the events have them."""

SHORTEST_S = 10.0
"""Γ: what counts as a job's running time at least, in the bounded slowdown."""

STOPPED = "the run stopped before its end"
"""The reason of a job without an end event."""


def facts(history: History) -> dict[str, Cells]:
    """Every submitted job's cells, in order of submission."""
    policy = history.started.policy
    return {job.job_id: _cells(job, request, policy) for job, request in history.requested}


def _cells(job: JobHistory, request: Mapping[str, Any], policy: str) -> Cells:
    found, started = job.first(events.JobEnded), job.first(events.JobStarted)
    ended = None if found is None else found[1]
    booked = job.all(events.JobReserved)
    start_s = None if started is None else started[1].t
    estimate_s = booked[-1][1].estimate_s if booked else None
    return {
        "job_id": request["id"],
        "policy": policy,
        "kind": request["kind"],
        "submit_s": request["submit_s"],
        "start_s": start_s,
        "end_s": None if ended is None else ended.t,
        "outcome": "unfinished" if ended is None else ended.outcome,
        "reason": STOPPED if ended is None else ended.reason,
        "n_vms": request["n_vms"],
        "requested_bps": request["bandwidth_bps"],
        "granted_bps": booked[-1][1].rate_bps if booked else None,
        "estimate_s": estimate_s,
        "measured_s": None if ended is None else ended.measured_s,
        "deadline_s": request["deadline_s"],
        "met_deadline": _met(request, ended),
        "preemptions": len(job.all(events.JobPreempted)),
        "migrations": len(job.all(events.JobMigrated)),
        "value": request["value"],
        "price": _price(ended),
        "application": request["application"],
        "duration_s": request["duration_s"],
        "job_class": _class(request),
        "wait_s": None if start_s is None else start_s - request["submit_s"],
        **_of_finished(request["submit_s"], ended, estimate_s),
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


def is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    # JSON's integers may be longer than any number that is computed with.
    return isinstance(value, float) or abs(value) < 1 << 1000


# ---------------------------------------------------------------------------------- jobs.csv


def jobs_csv(history: History) -> Iterator[Finding]:
    """One line a job, every cell as the events have it, and no column beside them."""
    try:
        with (history.folder / JOBS).open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows = [(reader.line_num, row) for row in reader]
            header = list(reader.fieldnames or ())
    except (csv.Error, UnicodeDecodeError) as error:
        yield Finding(JOBS, None, f"damaged: {error}")
        return
    # What the table names is what it can hold of a text: no lone carriage return.
    known = {_shown(job_id): cells for job_id, cells in facts(history).items()}
    if known:
        yield from _columns(header, set(next(iter(known.values()))))
    seen: set[str] = set()
    for line, row in rows:
        job_id = row.get("job_id") or ""
        if job_id not in known or job_id in seen:
            why = "stands here twice" if job_id in seen else "was never submitted"
            yield Finding(JOBS, line, f"{job_id!r} {why}")
            continue
        seen.add(job_id)
        if len(row) != len(header) or None in row.values():
            yield Finding(JOBS, line, f"{job_id}: has not one cell a column")
        for column, value in known[job_id].items():
            cell = row.get(column)
            if cell is not None and not _cell_is(cell, value):
                message = f"{column} is {cell!r}, by the events {_shown(value)!r}"
                yield Finding(JOBS, line, f"{job_id}: {message}")
    for job_id in known:
        if job_id not in seen:
            yield Finding(JOBS, None, f"{job_id} is missing")


def _columns(header: list[str], wanted: set[str]) -> Iterator[Finding]:
    for column in sorted(wanted.difference(header)):
        yield Finding(JOBS, 1, f"has no column {column}")
    for column in dict.fromkeys(header):
        if column not in wanted:
            yield Finding(JOBS, 1, f"the column {column!r} is none of the table's")
        elif header.count(column) > 1:
            yield Finding(JOBS, 1, f"has the column {column} twice")


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value.replace("\r\n", "\n").replace("\r", "\n")
    return "" if value is None else str(value)


def _cell_is(cell: str, value: Value) -> bool:
    if isinstance(value, float) and cell:
        try:
            return math.isclose(float(cell), value, rel_tol=1e-9, abs_tol=1e-9)
        except ValueError:
            return False
    if isinstance(value, int) and not isinstance(value, bool):
        return cell in (str(value), str(float(value)))
    return cell == _shown(value)


# -- links.csv


COLUMNS = ["time_s", "link", "directed_link", "sent_bps", "reserved_bps", "capacity_bps"]
MOST_ROWS, MOST_INTERVALS = 200_000, 200
"""How finely the means of a run without samples are cut (docs/runs-and-fidelity.md)."""


@dataclass(frozen=True)
class _Row:
    """``sent_bps`` None: not measured. Both rates are written as whole numbers."""

    time_s: float
    directed: int
    sent_bps: float | None
    reserved_bps: float


def links_csv(history: History) -> Iterator[Finding]:
    """Row for row what was sampled; without samples the means of what was reserved."""
    sampled = next(history.each(events.LinkSample), None) is not None
    named = _named(history.topology)
    due = _sampled(history) if sampled else _means(history)
    try:
        with (history.folder / LINKS).open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            if header != COLUMNS:
                yield Finding(LINKS, 1, f"the columns are {header}, not {COLUMNS}")
                return
            for cells, row in zip_longest(reader, due):
                if cells is None or row is None:
                    wrong = "a row is missing" if cells is None else "is a row too many"
                    yield Finding(LINKS, reader.line_num, wrong)
                    return
                if wrong := _wrong(named, cells, row):
                    yield Finding(LINKS, reader.line_num, wrong)
    except (csv.Error, UnicodeDecodeError) as error:
        yield Finding(LINKS, None, f"damaged: {error}")


def _named(topology: Topology) -> list[tuple[str, str, str]]:
    """The cells that tell which directed link it is, and what it carries."""
    return [
        (topology.link(directed), str(directed), str(topology.capacity_bps[directed // 2]))
        for directed in range(topology.n_directed)
    ]


def _wrong(named: Sequence[tuple[str, str, str]], cells: Sequence[str], row: _Row) -> str:
    """First cell of a line that is not as it is due; empty where all are."""
    if not 0 <= row.directed < len(named):
        return f"directed link {row.directed} does not exist"
    if len(cells) != len(COLUMNS):
        return "has not one cell a column"
    time_s, link, directed, sent, reserved, capacity = cells
    measured = sent == "" if row.sent_bps is None else _about(sent, row.sent_bps, 0.5)
    if not measured:
        return f"sent_bps is {sent!r}, by the events {row.sent_bps}"
    if not _about(reserved, row.reserved_bps, 0.5):
        return f"reserved_bps is {reserved!r}, by the events {row.reserved_bps}"
    if not _about(time_s, row.time_s, 0.0):
        return f"time_s is {time_s!r}, by the events {row.time_s}"
    due = named[row.directed]
    given = (link, directed, capacity)
    return "" if given == due else f"is of {given} (link, number, capacity), by the events of {due}"


def _about(cell: str, value: float, rounding: float) -> bool:
    try:
        found = float(cell)
    except ValueError:
        return False
    return math.isfinite(found) and abs(found - value) <= rounding + 1e-9 * max(1.0, abs(value))


def _sampled(history: History) -> Iterator[_Row]:
    for _, sample in history.each(events.LinkSample):
        for directed, sent, reserved in sample.links:
            yield _Row(sample.t, int(directed), sent, reserved)


def _means(history: History) -> Iterator[_Row]:
    """Equal intervals, all links that ever were reserved in each, by number."""
    end_s = history.end_s
    steps = {link: changes for link, changes in sorted(_changes(history).items()) if changes}
    if not steps or end_s <= 0:
        return
    n = max(1, min(MOST_INTERVALS, MOST_ROWS // len(steps)))
    means = {link: _cut(changes, end_s, n) for link, changes in steps.items()}
    for i in range(n):
        for link, own in means.items():
            yield _Row((i + 1) * end_s / n, link, None, own[i])


def _changes(history: History) -> dict[int, list[tuple[float, int]]]:
    """When how much more or less was held on each link; what is held for no time is left out."""
    out: dict[int, list[tuple[float, int]]] = {}
    since: dict[str, float] = {}
    held: dict[str, Sequence[Sequence[int]]] = {}

    def book(start_s: float, end_s: float, links: Sequence[Sequence[int]]) -> None:
        if end_s > start_s:
            for link, bps in links:
                out.setdefault(link, []).extend(((start_s, bps), (end_s, -bps)))

    for change in occupied(history):
        if change.sign > 0:
            since[change.job_id], held[change.job_id] = change.t, change.links
        else:
            book(since.pop(change.job_id), change.t, held.pop(change.job_id))
    for job_id, start_s in since.items():
        book(start_s, history.end_s, held[job_id])
    return out


def _cut(changes: list[tuple[float, int]], end_s: float, n: int) -> list[float]:
    """The mean over each of ``n`` equal parts of the run."""
    step_s = end_s / n
    bits = [0.0] * n
    now_s, bps = 0.0, 0
    for t, more in [*sorted(changes), (end_s, 0)]:
        i = min(n - 1, int(now_s / step_s))
        while bps and now_s < t:
            until_s = t if i == n - 1 else min(t, (i + 1) * step_s)
            bits[i] += bps * max(0.0, until_s - now_s)
            now_s, i = max(now_s, until_s), i + 1
            if i == n:
                break
        now_s, bps = max(now_s, t), bps + more
    return [amount / step_s for amount in bits]
