"""``jobs.csv`` and ``summary.json`` against figures worked out anew from the events."""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from testbed import events
from testbed.results.audit.findings import Finding
from testbed.results.audit.history import Dossier, History, about
from testbed.results.audit.holding import occupied
from testbed.results.folder import JOBS, SUMMARY

Value = str | float | int | bool | None


def has_jobs_csv(history: History) -> str | None:
    return None if (history.folder / JOBS).is_file() else f"the run never wrote {JOBS}"


def has_summary(history: History) -> str | None:
    return None if (history.folder / SUMMARY).is_file() else f"the run never wrote {SUMMARY}"


@dataclass(frozen=True)
class _Facts:
    """One job's figures as the events have them."""

    cells: dict[str, Value]

    @property
    def ratio(self) -> float | None:
        measured, estimate = self.cells["measured_s"], self.cells["estimate_s"]
        if self.cells["outcome"] != "finished" or measured is None or not estimate:
            return None
        return float(measured) / float(estimate)


def _facts(job: Dossier, policy: str) -> _Facts | None:
    request, ended = job.request, job.first(events.JobEnded)
    if request is None:
        return None
    booked, started = job.all(events.JobReserved), job.first(events.JobStarted)
    end_s = None if ended is None else ended[1].t
    finished = ended is not None and ended[1].outcome == "finished"
    deadline_s = request["deadline_s"]
    met: bool | None = None
    if deadline_s is not None:
        met = finished and end_s is not None and about(end_s, request["submit_s"] + deadline_s)
    cells: dict[str, Value] = {
        "policy": policy,
        "kind": request["kind"],
        "submit_s": request["submit_s"],
        "start_s": None if started is None else started[1].t,
        "end_s": end_s,
        "outcome": "unfinished" if ended is None else ended[1].outcome,
        "n_vms": request["n_vms"],
        "requested_bps": request["bandwidth_bps"],
        "granted_bps": booked[-1][1].rate_bps if booked else None,
        "estimate_s": booked[-1][1].estimate_s if booked else None,
        "measured_s": None if ended is None else ended[1].measured_s,
        "deadline_s": deadline_s,
        "met_deadline": met,
        "preemptions": len(job.all(events.JobPreempted)),
        "migrations": len(job.all(events.JobMigrated)),
    }
    return _Facts(cells)


def _all_facts(history: History) -> dict[str, _Facts]:
    found = {key: _facts(job, history.started.policy) for key, job in history.jobs.items()}
    return {key: facts for key, facts in found.items() if facts is not None}


def jobs_csv(history: History) -> Iterator[Finding]:
    """One line a job, every figure as in the events."""
    with (history.folder / JOBS).open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        try:
            rows = [(reader.line_num, row) for row in reader]
            columns = reader.fieldnames or ()
        except (UnicodeDecodeError, csv.Error) as error:
            yield Finding(JOBS, reader.line_num, f"damaged: {error}")
            return
    facts = _all_facts(history)
    seen: set[str] = set()
    for line, row in rows:
        job_id = row.get("job_id") or ""
        if job_id not in facts or job_id in seen:
            why = "stands here twice" if job_id in seen else "was never submitted"
            yield Finding(JOBS, line, f"{job_id!r} {why}")
            continue
        seen.add(job_id)
        for column, value in facts[job_id].cells.items():
            cell = row.get(column)
            if column not in columns:
                yield Finding(JOBS, 1, f"has no column {column}")
            elif not _cell_is(cell or "", value):
                said = f"{column} is {cell!r}, by the events {_shown(value)!r}"
                yield Finding(JOBS, line, f"{job_id}: {said}")
    for job_id in facts:
        if job_id not in seen:
            yield Finding(JOBS, None, f"{job_id} is missing")


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
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


def summary(history: History) -> Iterator[Finding]:
    """Every figure of the summary that the events decide."""
    try:
        stored = json.loads((history.folder / SUMMARY).read_text(encoding="utf-8"))
    except ValueError as error:
        yield Finding(SUMMARY, None, f"damaged: {error}")
        return
    if not isinstance(stored, dict):
        yield Finding(SUMMARY, None, "is not an object")
        return
    facts = _all_facts(history)
    for key, value in _expected(history, facts).items():
        if key not in stored:
            yield Finding(SUMMARY, None, f"lacks {key}")
        elif not _same(stored[key], value):
            yield Finding(SUMMARY, None, f"{key} is {stored[key]}, by the events {value}")
    yield from _verdict_rows(facts, stored)


def _expected(history: History, facts: dict[str, _Facts]) -> dict[str, Any]:
    cells = [job.cells for job in facts.values()]
    ratios = [job.ratio for job in facts.values() if job.ratio is not None]
    count = {o: sum(c["outcome"] == o for c in cells) for o in _COUNTED}
    good = sum(c["outcome"] == "finished" and c["met_deadline"] is not False for c in cells)
    waits = [
        _number(c["start_s"]) - _number(c["submit_s"]) for c in cells if c["start_s"] is not None
    ]
    stays = [
        _number(c["end_s"]) - _number(c["submit_s"]) for c in cells if c["outcome"] == "finished"
    ]
    # Response and running time of what finished and was measured.
    ran = [
        (_number(c["end_s"]) - _number(c["submit_s"]), _number(c["measured_s"]))
        for c in cells
        if c["outcome"] == "finished" and c["measured_s"] is not None
    ]
    return {
        "policy": history.started.policy,
        "backend": history.started.backend,
        "seed": history.started.seed,
        "jobs": len(cells),
        **count,
        "met_deadline": sum(c["met_deadline"] is True for c in cells),
        "success_rate": good / len(cells) if cells else None,
        "acceptance_rate": 1 - count["rejected"] / len(cells) if cells else None,
        "wait_mean_s": statistics.fmean(waits) if waits else None,
        "queued_mean_s": statistics.fmean(max(0.0, r - m) for r, m in ran) if ran else None,
        "bounded_slowdown_mean": statistics.fmean(r / max(10.0, m) for r, m in ran)
        if ran
        else None,
        "response_mean_s": statistics.fmean(stays) if stays else None,
        "preemptions": sum(int(_number(c["preemptions"])) for c in cells),
        "migrations": sum(int(_number(c["migrations"])) for c in cells),
        "estimate_ratio": _spread(ratios),
        **_use(history),
    }


_COUNTED = ("finished", "rejected", "killed", "unfinished")


def _number(value: Value) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan


def _spread(ratios: list[float]) -> dict[str, float] | None:
    if not ratios:
        return None
    p95 = max(ratios)
    if len(ratios) > 1:
        p95 = statistics.quantiles(ratios, n=100, method="inclusive")[94]
    return {
        "min": min(ratios),
        "median": statistics.median(ratios),
        "p95": p95,
        "max": max(ratios),
    }


def _use(history: History) -> dict[str, float | None]:
    """Means over the run, added up job by job: Σ held · how long."""
    since: dict[str, float] = {}
    vm_s = bits = 0.0
    for change in occupied(history):
        if change.sign > 0:
            since[change.job_id] = change.t
            continue
        lasted_s = change.t - since.pop(change.job_id)
        if change.tier == "foreground":
            each = history.jobs[change.job_id].slots_per_vm
            vm_s += lasted_s * each * sum(count for _, count in change.vms_on)
        bits += lasted_s * sum(bps for _, bps in change.links)
    slots = sum(history.world.slots) * history.end_s
    links = 2 * sum(history.world.capacity_bps) * history.end_s
    if since:
        # Something still runs at the end: that is a finding of its own, and no figure is due.
        return {}
    return {
        "vm_utilisation": vm_s / slots if slots else None,
        "link_utilisation": bits / links if links else None,
    }


def _same(stored: Any, value: Any) -> bool:
    if isinstance(value, dict):
        return isinstance(stored, dict) and all(_same(stored.get(k), v) for k, v in value.items())
    if isinstance(value, float) and isinstance(stored, (int, float)):
        return math.isclose(stored, value, rel_tol=1e-6, abs_tol=1e-9)
    return bool(stored == value)


def _verdict_rows(facts: dict[str, _Facts], stored: dict[str, Any]) -> Iterator[Finding]:
    """The verdicts were passed on the figures that the events hold."""
    block = stored.get("expectations")
    rows = block.get("rows", []) if isinstance(block, dict) else []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        yield Finding(SUMMARY, None, "damaged: expectations.rows is not a list of verdicts")
        return
    for row in rows:
        job = facts.get(str(row.get("job_id")))
        if job is None:
            yield Finding(SUMMARY, None, f"a verdict on {row.get('job_id')!r}, never submitted")
        elif not _same(row.get("ratio"), job.ratio):
            said = f"judged at {row.get('ratio')}, by the events {job.ratio}"
            yield Finding(SUMMARY, None, f"{row.get('job_id')}: {said}")
