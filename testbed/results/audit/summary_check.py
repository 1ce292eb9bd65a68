"""``summary.json`` and ``spec.resolved.json`` against the events.

The rules of verdicts are those of docs/experiment-files.md. Their words are not compared; a
complaint only has to be about its subject.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from testbed import events
from testbed.results.audit.capacity_check import stays
from testbed.results.audit.declared_topology import topology_faults
from testbed.results.audit.history import (
    LEVELS,
    OUTCOMES,
    Found,
    History,
    JobHistory,
    Place,
    about,
    parsed,
)
from testbed.results.audit.tables_check import Cells, facts, is_number
from testbed.results.folder import RESOLVED, SUMMARY

UNWATCHED = "nothing was checked about the machine during this run"
"""The reason in a live run's summary if none was recorded."""

_SUMMARY: Place = (SUMMARY, None)
_RESOLVED: Place = (RESOLVED, None)
_SHOWN_CHARS = 160


def summary(history: History) -> Found:
    """Every figure of the summary; the verdicts on the jobs have a check of their own."""
    stored = parsed(history.folder / SUMMARY)
    faults = [stored] if isinstance(stored, str) else _summary_faults(history, stored)
    yield from ((_SUMMARY, wrong) for wrong in faults)


def _summary_faults(history: History, stored: Mapping[str, Any]) -> Iterator[str]:
    expected = _expected(history, list(facts(history).values()))
    for key, value in expected.items():
        if key not in stored:
            yield f"lacks {key}"
        elif not same(stored[key], value):
            yield f"{key} is {_short(stored[key])}, by the events {_short(value)}"
    wall_s = stored.get("wall_s")
    if "wall_s" not in stored:
        yield "lacks wall_s"
    elif wall_s is not None and not (is_number(wall_s) and 0 <= wall_s < math.inf):
        yield f"wall_s is {_short(wall_s)}, which is no duration"
    for key in stored:
        if key not in (*expected, *_USES, "wall_s", "expectations"):
            yield f"{key!r} is none of the summary's keys"


def _expected(history: History, jobs: Sequence[Cells]) -> dict[str, Any]:
    started = history.started
    return {
        "name": started.run,
        **{key: getattr(started, key) for key in ("policy", "backend", "seed")},
        "status": history.status,
        **_group(jobs),
        "link_utilisation_measured": _sent(history),
        "revenue": math.fsum(_numbers(jobs, "price")),
        "classes": _classes(jobs),
        "estimate_ratio": _spread(_numbers(jobs, "ratio")),
        "iperf3_ratio": _spread(_numbers(jobs, "iperf3_ratio")),
        "fidelity": fidelity(history),
        "span_s": history.end_s,
        **_use(history),
    }


def _group(jobs: Sequence[Cells]) -> dict[str, Any]:
    """Metrics of some jobs: all of a run, or those of a class."""
    count = {o: sum(job["outcome"] == o for job in jobs) for o in OUTCOMES}
    good = sum(job["outcome"] == "finished" and job["met_deadline"] is not False for job in jobs)
    return {
        "jobs": len(jobs),
        **count,
        "met_deadline": sum(job["met_deadline"] is True for job in jobs),
        "success_rate": good / len(jobs) if jobs else None,
        "acceptance_rate": 1 - count["rejected"] / len(jobs) if jobs else None,
        **{key: _mean(jobs, key.replace("_mean", "")) for key in _MEANS},
        "preemptions": sum(job["preemptions"] for job in jobs),
        "migrations": sum(job["migrations"] for job in jobs),
    }


_MEANS = (
    "wait_mean_s",
    "queued_mean_s",
    "response_mean_s",
    "slowdown_mean",
    "bounded_slowdown_mean",
)


def _numbers(jobs: Sequence[Cells], column: str) -> list[float]:
    return [job[column] for job in jobs if job[column] is not None]


def _mean(jobs: Sequence[Cells], column: str) -> float | None:
    numbers = _numbers(jobs, column)
    return statistics.fmean(numbers) if numbers else None


def _classes(jobs: Sequence[Cells]) -> dict[str, Any]:
    names = sorted({str(job["job_class"]) for job in jobs if job["job_class"] is not None})
    return {name: _group([job for job in jobs if job["job_class"] == name]) for name in names}


def fidelity(history: History) -> dict[str, Any]:
    """The worst level noted of a live run, and every reason for less than ``ok`` once."""
    if history.started.backend != "live":
        return {"verdict": None, "reasons": []}
    notes = history.each(events.FidelityNoted)
    if not notes:
        return {"verdict": "suspect", "reasons": [UNWATCHED]}
    worst = max(notes, key=lambda note: badness(note.level))
    reasons = dict.fromkeys(note.reason for note in notes if note.level != "ok")
    return {"verdict": worst.level, "reasons": list(reasons)}


def badness(level: object) -> int:
    """The place of a level; what is none is as bad as the worst."""
    return LEVELS.index(level) if level in LEVELS else len(LEVELS) - 1


def _sent(history: History) -> float | None:
    """Bandwidth sent over all capacity, both directions, weighted by the samples' lengths."""
    bits = sampled_s = 0.0
    for sample in history.each(events.LinkSample):
        sampled_s += sample.interval_s
        bits += sample.interval_s * sum(sent for _, sent, _ in sample.links)
    both = 2 * sum(history.topology.capacity_bps)
    return bits / (both * sampled_s) if both and sampled_s and history.end_s > 0 else None


def _spread(ratios: list[float]) -> dict[str, float] | None:
    if not ratios:
        return None
    many = len(ratios) > 1
    p95 = statistics.quantiles(ratios, n=100, method="inclusive")[94] if many else ratios[0]
    middle = statistics.median(ratios)
    return {"min": min(ratios), "median": middle, "p95": p95, "max": max(ratios)}


_USES = ("vm_utilisation", "link_utilisation")


def _use(history: History) -> dict[str, float | None]:
    """Means over the run, added up job by job: Σ held · how long."""
    vm_s = bits = 0.0
    for taken, until_s in stays(history):
        if until_s is None:
            # Something runs at the end: that is a finding of its own, and no figure is due.
            return {}
        lasted_s, hold = until_s - taken.t, taken.hold
        if hold.tier == "foreground":
            each = history.jobs[taken.job_id].slots_per_vm
            vm_s += lasted_s * each * sum(count for _, count in hold.vms_on)
        bits += lasted_s * sum(bps for _, bps in hold.links)
    slots = sum(history.topology.slots) * history.end_s
    links = 2 * sum(history.topology.capacity_bps) * history.end_s
    due = (vm_s / slots if slots else None, bits / links if links else None)
    return dict(zip(_USES, due, strict=True))


def same(stored: Any, value: Any) -> bool:
    """True where a stored JSON value is this one, sums of floats but for their rounding."""
    if isinstance(value, list) and isinstance(stored, list):
        return same(dict(enumerate(stored)), dict(enumerate(value)))
    if isinstance(value, dict) and isinstance(stored, dict):
        return stored.keys() == value.keys() and all(same(stored[k], value[k]) for k in value)
    if isinstance(value, float) and is_number(stored):
        return math.isclose(stored, value, rel_tol=1e-9, abs_tol=1e-9)
    # In Python a truth equals a number.
    return isinstance(stored, bool) == isinstance(value, bool) and bool(stored == value)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


# -- the resolved experiment


def experiment(history: History) -> Found:
    """Name, seed and policy are the run's, and jobs that it lists are those that came."""
    spec = history.resolved
    if isinstance(spec, str):
        yield _RESOLVED, spec
        return
    started = history.started
    for key, ran in (("name", started.run), ("seed", started.seed), ("policy", started.policy)):
        if spec.get(key) != ran:
            yield _RESOLVED, f"{key} is {spec.get(key)!r}, that of the run {ran!r}"
    yield from (
        (_RESOLVED, wrong) for wrong in topology_faults(spec.get("topology"), history.topology)
    )
    listed = spec.get("jobs")
    if isinstance(listed, list) and all(isinstance(job, dict) for job in listed):
        # An empty list: a trace or a model decides, and is not repeated there.
        yield from _jobs(history, {str(job.get("id")): job for job in listed}) if listed else ()
    else:
        yield _RESOLVED, "jobs is not a list of jobs"


def foreign_flows(history: History) -> Found:
    """A live run under a person's controller has a note which says whose the flows are."""
    app = _controller_app(history)
    if not any(app in note.reason for note in history.each(events.FidelityNoted)):
        yield _RESOLVED, f"the flows are those of {app}, and no note on fidelity says so"


def has_foreign_flows(history: History) -> str | None:
    """Why a run has no flows but the testbed's; None where it has."""
    others = history.started.backend == "live" and _controller_app(history)
    return None if others else "no controller but the testbed's"


def _controller_app(history: History) -> str:
    section = None if isinstance(history.resolved, str) else history.resolved.get("controller")
    return str(section.get("app", "")) if isinstance(section, dict) else ""


def _jobs(history: History, listed: dict[str, dict[str, Any]]) -> Found:
    """Jobs are submitted as specified; with ``after``, and live, possibly later."""
    came = {str(event.job["id"]): event for event in history.each(events.JobSubmitted)}
    for event in history.each(events.JobSubmitted):
        job_id = str(event.job["id"])
        if job_id not in listed:
            yield event, f"{job_id} is none of the jobs of {RESOLVED}"
        for wrong in _otherwise(event.job, listed.get(job_id, {})):
            yield event, f"{job_id}{wrong}"
    if history.status == "completed":
        end = history.each(events.RunEnded)[-1]
        yield from (
            (end, f"{job_id} of {RESOLVED} never came") for job_id in listed if job_id not in came
        )


def _otherwise(came: Mapping[str, Any], listed: Mapping[str, Any]) -> Iterator[str]:
    for key, asked in listed.items():
        if key == "submit_s" and is_number(asked):
            if not about(asked, came[key]):
                yield f" comes at {came[key]:.6g} s, in {RESOLVED} at {asked:.6g} s"
        elif key not in came or came[key] != asked:
            yield f": {key} is {came.get(key)!r}, in {RESOLVED} {asked!r}"


def expected(history: History) -> Mapping[str, Any] | None:
    """The ``expect`` block of the resolved experiment; None where that is unknown."""
    spec = history.resolved
    block = spec.get("expect") if isinstance(spec, dict) else None
    return block if _is_expect(block) else None


def _is_expect(block: Any) -> bool:
    if not isinstance(block, dict) or not isinstance(block.get("applications"), dict):
        return False
    own = list(block["applications"].values())
    if not all(isinstance(each, dict) for each in own):
        return False
    bounds = [block.get("late_above"), *(each.get("scaled_down_below") for each in own)]
    for band in (each.get("estimate_ratio") for each in (block, *own)):
        if not isinstance(band, dict | None):
            return False
        bounds += [] if band is None else [band.get("min"), band.get("max")]
    return all(bound is None or is_number(bound) for bound in bounds)


# -- the verdicts of summary.json


_FROM_TABLE = ("ratio", "requested_bps", "granted_bps", "estimate_s", "measured_s")
_ROW = {"job_id", "application", *_FROM_TABLE, "verdict", "why"}
_BLOCK = {"met", "complaints", "rows"}


def verdicts(history: History) -> Found:
    """Every job has the correct verdict, every violation its cause, and ``met`` sums them up."""
    stored, expect = parsed(history.folder / SUMMARY), expected(history)
    block = stored.get("expectations") if isinstance(stored, dict) else None
    if not isinstance(block, dict) or not _is_block(block):
        yield _SUMMARY, "expectations is missing or damaged"
    elif expect is None:
        yield _RESOLVED, "has no expect: verdicts cannot be passed again"
    else:
        yield from ((_SUMMARY, wrong) for wrong in _verdict_faults(history, expect, block))


def _verdict_faults(
    history: History, expect: Mapping[str, Any], block: Mapping[str, Any]
) -> Iterator[str]:
    jobs = facts(history)
    rows, complaints = block["rows"], block["complaints"]
    yield from _matched(rows, jobs)
    due = {job_id: _due(history, expect, job) for job_id, job in jobs.items()}
    for row in rows:
        if row["job_id"] in jobs:
            yield from _row(row, jobs[row["job_id"]], due[row["job_id"]])
    bad = ("outside",) if expect.get("fidelity") == "invalid" else ("outside", "late", "killed")
    outside = [f"{row['job_id']}: {row['why']}" for row in rows if row["verdict"] in bad]
    yield from _complaints(complaints, outside, list(_others(history, expect, jobs, due)))
    if block["met"] is not (not complaints):
        yield f"expectations.met is {block['met']}, with {len(complaints)} complaints"
    n_bad = sum(verdict in bad for verdict in due.values())
    if block["met"] is True and n_bad:
        yield f"expectations.met is True, by the events {n_bad} jobs are {' or '.join(bad)}"


def _is_block(block: dict[str, Any]) -> bool:
    rows, complaints = block.get("rows"), block.get("complaints")
    return (
        block.keys() == _BLOCK
        and isinstance(rows, list)
        and all(isinstance(row, dict) and row.keys() == _ROW for row in rows)
        and all(isinstance(row["job_id"], str) for row in rows)
        and isinstance(complaints, list)
        and all(isinstance(text, str) for text in complaints)
    )


def _matched(rows: Sequence[dict[str, Any]], jobs: Mapping[str, Cells]) -> Iterator[str]:
    """One row a job, one job a row."""
    times = Counter(row["job_id"] for row in rows)
    for job_id, n in times.items():
        if job_id not in jobs:
            yield f"a verdict on {job_id!r}, never submitted"
        elif n > 1:
            yield f"{n} verdicts on {job_id}"
    for job_id in jobs:
        if job_id not in times:
            yield f"no verdict on {job_id}"


def _row(row: dict[str, Any], job: Cells, due: str) -> Iterator[str]:
    job_id = row["job_id"]
    for key in _FROM_TABLE:
        if not same(row[key], job[key]):
            at = "at" if key == "ratio" else f"with {key}"
            yield f"{job_id}: judged {at} {row[key]}, by the events {job[key]}"
    if row["application"] != _label(job):
        yield f"{job_id}: judged as {row['application']!r}, it is of {_label(job)!r}"
    if row["verdict"] != due:
        yield f"{job_id}: the verdict is {row['verdict']!r}, by the events {due!r}"
    if not isinstance(row["why"], str) or not row["why"]:
        yield f"{job_id}: a verdict without a reason"


def _label(job: Cells) -> str:
    return str(job["application"] or job["job_id"])


def _best_effort(job: Cells) -> bool:
    """True for a job that ran without an estimate."""
    return job["start_s"] is not None and job["estimate_s"] is None


def _due(history: History, expect: Mapping[str, Any], job: Cells) -> str:
    """The verdict that a job is due by its figures."""
    named = expect["applications"].get(job["application"] or "")
    own = named or {}
    band = own.get("estimate_ratio")
    band = expect.get("estimate_ratio") if band is None else band
    # A policy may reject, and may run a job without an estimate; a script is to run its jobs.
    free = named is None and "every-job-starts" not in history.claims
    if free and (job["outcome"] == "rejected" or _best_effort(job)):
        return "open"
    granted = job["granted_bps"]
    less = granted is None or granted < job["requested_bps"]
    below = own.get("scaled_down_below") if less else None
    if band is None and below is None:
        return _due_by_reservation(history, expect.get("late_above"), job)
    if job["ratio"] is None:
        return "outside"
    low, high = (None, None) if band is None else (band.get("min"), band.get("max"))
    held = (
        (below is None or job["ratio"] < below)
        and (low is None or low <= job["ratio"])
        and (high is None or job["ratio"] <= high)
    )
    return "ok" if held else "outside"


def _due_by_reservation(history: History, late_above: float | None, job: Cells) -> str:
    """The verdict on a live job of which the file states nothing."""
    lived, rate_bps = history.jobs[job["job_id"]], job["granted_bps"]
    request, live = lived.request, history.started.backend == "live"
    by_policy = any(event.killed_by_policy for event in lived.all(events.JobEnded))
    if late_above is None or not live or by_policy or job["estimate_s"] is None:
        return "open"
    if job["outcome"] == "killed" and job["reason"] != events.OUTLASTED:
        return "open" if job["reason"].startswith(events.FAILED) else "killed"
    kept = (
        bool(rate_bps)
        and (request["kind"] in ("transfer", "demand") and not request.get("command"))
        and (request.get("true_duration_s") or 0) <= request["duration_s"]
        and job["preemptions"] + job["migrations"] == 0
        and not any(isinstance(e, events.JobCut | events.JobRequeued) for e in lived.events)
        and not any(_runs_at(history, lived, e) for e in history.each(events.SwitchRestarted))
        and all(event.rate_bps >= rate_bps for event in lived.all(events.JobRescaled))
    )
    if not kept or job["ratio"] is None:
        return "killed" if kept and job["outcome"] == "killed" else "open"
    return "late" if job["ratio"] > late_above else "held"


def _runs_at(history: History, job: JobHistory, event: events.Event) -> bool:
    """True for a job that has started and not ended where an event stands."""
    around = (job.first(events.JobStarted), job.first(events.JobEnded))
    first, last = (0 if one is None else history.lines[id(one)] for one in around)
    return 0 < first < history.lines[id(event)] < (last or math.inf)


def work_conserving(history: History) -> Found:
    """No job whose reservation was to be kept is late: what is lent only makes it end earlier.

    A file that accepts an invalid emulation accepts late jobs.
    """
    expect = expected(history) or {}
    if expect.get("fidelity") == "invalid":
        return
    for job_id, job in facts(history).items():
        if _due_by_reservation(history, expect.get("late_above"), job) == "late":
            ended = history.jobs[job_id].all(events.JobEnded)[-1]
            yield ended, f"{job_id}: measured/estimate {job['ratio']:.4f}, its reservation was lent"


def _others(
    history: History, expect: Mapping[str, Any], jobs: Mapping[str, Cells], due: Mapping[str, str]
) -> Iterator[str]:
    """Complaints due beside those on jobs: a word of each, in their order."""
    verdict, accepted = fidelity(history)["verdict"], expect.get("fidelity")
    if accepted is not None and verdict is not None and badness(verdict) > badness(accepted):
        yield f"fidelity is {verdict}"
    seen = {_label(job) for job in jobs.values()}
    yield from (repr(name) for name in expect["applications"] if name not in seen)
    none_judged = all(verdict == "open" for verdict in due.values())
    estimated = not any(_best_effort(job) for job in jobs.values())
    if expect.get("estimate_ratio") is not None and none_judged and estimated:
        yield "no job"


def _complaints(
    stored: Sequence[str], outside: Sequence[str], others: Sequence[str]
) -> Iterator[str]:
    """Those of the jobs outside, word for word as their rows say it, then the others."""
    jobs, rest = stored[: len(outside)], stored[len(outside) :]
    for message, row in zip(jobs, outside, strict=False):
        if message != row:
            yield f"complains {message!r}, the row says {row!r}"
    for message, word in zip(rest, others, strict=False):
        if word not in message:
            yield f"complains {message!r}, it is to be about {word}"
    wanted = len(outside) + len(others)
    if len(stored) != wanted:
        yield f"complains of {len(stored)} things, there are {wanted}"
