"""``summary.json`` against figures worked out anew from the events."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from testbed import events
from testbed.results.audit.findings import Finding
from testbed.results.audit.history import History
from testbed.results.audit.holding import occupied
from testbed.results.audit.tables import Cells, facts, is_number
from testbed.results.folder import SUMMARY

LEVELS = ("ok", "suspect", "invalid")
"""What a note on validity may say, from good to bad."""

UNWATCHED = "nothing was checked about the machine during this run"
"""The reason that stands in a live run's summary where nobody noted anything."""

_COUNTED = ("finished", "rejected", "killed", "unfinished")
_JUDGED = "expectations"
_SAID_CHARS = 160


def has_summary(history: History) -> str | None:
    return None if (history.folder / SUMMARY).is_file() else f"the run never wrote {SUMMARY}"


def stored_summary(history: History) -> dict[str, Any] | str:
    """What ``summary.json`` holds, or what is wrong with it."""
    try:
        stored = json.loads((history.folder / SUMMARY).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        return f"damaged: {error}"
    return stored if isinstance(stored, dict) else "is not an object"


def summary(history: History) -> Iterator[Finding]:
    """Every figure of the summary; the verdicts on the jobs have a check of their own."""
    stored = stored_summary(history)
    if isinstance(stored, str):
        yield Finding(SUMMARY, None, stored)
        return
    expected = _expected(history, list(facts(history).values()))
    for key, value in expected.items():
        if key not in stored:
            yield Finding(SUMMARY, None, f"lacks {key}")
        elif not same(stored[key], value):
            said = f"{key} is {_short(stored[key])}, by the events {_short(value)}"
            yield Finding(SUMMARY, None, said)
    if "wall_s" not in stored:
        yield Finding(SUMMARY, None, "lacks wall_s")
    elif not _is_duration(stored["wall_s"]):
        yield Finding(SUMMARY, None, f"wall_s is {_short(stored['wall_s'])}, which is no duration")
    for key in stored:
        if key not in (*expected, *_USES, "wall_s", _JUDGED):
            yield Finding(SUMMARY, None, f"{key!r} is none of the summary's keys")


def _is_duration(value: Any) -> bool:
    return value is None or (is_number(value) and 0 <= value < math.inf)


def _expected(history: History, jobs: Sequence[Cells]) -> dict[str, Any]:
    ratios = [float(job["ratio"]) for job in jobs if job["ratio"] is not None]
    ends = list(history.each(events.RunEnded))
    return {
        "name": history.started.run,
        "policy": history.started.policy,
        "backend": history.started.backend,
        "seed": history.started.seed,
        "status": ends[-1][1].status if ends else "interrupted",
        **_group(jobs),
        "link_utilisation_measured": _sent(history),
        "revenue": math.fsum(_numbers(jobs, "price")),
        "classes": _classes(jobs),
        "estimate_ratio": _spread(ratios),
        "fidelity": fidelity(history),
        "span_s": history.end_s,
        **_use(history),
    }


def _group(jobs: Sequence[Cells]) -> dict[str, Any]:
    """What some jobs came to: all of a run, or those of a class."""
    count = {o: sum(job["outcome"] == o for job in jobs) for o in _COUNTED}
    good = sum(job["outcome"] == "finished" and job["met_deadline"] is not False for job in jobs)
    return {
        "jobs": len(jobs),
        **count,
        "met_deadline": sum(job["met_deadline"] is True for job in jobs),
        "success_rate": good / len(jobs) if jobs else None,
        "acceptance_rate": 1 - count["rejected"] / len(jobs) if jobs else None,
        "wait_mean_s": _mean(jobs, "wait_s"),
        "queued_mean_s": _mean(jobs, "queued_s"),
        "response_mean_s": _mean(jobs, "response_s"),
        "slowdown_mean": _mean(jobs, "slowdown"),
        "bounded_slowdown_mean": _mean(jobs, "bounded_slowdown"),
        "preemptions": sum(int(n) for n in _numbers(jobs, "preemptions")),
        "migrations": sum(int(n) for n in _numbers(jobs, "migrations")),
    }


def _numbers(jobs: Sequence[Cells], column: str) -> list[float]:
    return [float(job[column] or 0.0) for job in jobs if job[column] is not None]


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
    notes = [note for _, note in history.each(events.FidelityNoted)]
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
    for _, sample in history.each(events.LinkSample):
        sampled_s += sample.interval_s
        bits += sample.interval_s * sum(sent for _, sent, _ in sample.links)
    both = 2 * sum(history.world.capacity_bps)
    return bits / (both * sampled_s) if both and sampled_s and history.end_s > 0 else None


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


_USES = ("vm_utilisation", "link_utilisation")


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


def same(stored: Any, value: Any) -> bool:
    """Whether a stored JSON value is this one: sums of floats but for their rounding."""
    if isinstance(value, dict):
        return (
            isinstance(stored, dict)
            and stored.keys() == value.keys()
            and all(same(stored[key], v) for key, v in value.items())
        )
    if isinstance(value, list):
        return (
            isinstance(stored, list)
            and len(stored) == len(value)
            and all(same(s, v) for s, v in zip(stored, value, strict=True))
        )
    if isinstance(value, float) and is_number(stored):
        return math.isclose(stored, value, rel_tol=1e-9, abs_tol=1e-9)
    # In Python a truth equals a number.
    return isinstance(stored, bool) == isinstance(value, bool) and bool(stored == value)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SAID_CHARS else f"{text[:_SAID_CHARS]}…"
