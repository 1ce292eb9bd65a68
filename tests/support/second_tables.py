"""The tables of a run computed a second time, from the audit's fold of its events.

Shares no line with ``testbed.record``: neither the jobs' lives nor a metric, nor
the rules of verdicts. Tests compare the product with it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from testbed import events
from testbed.audit.capacity_check import Change, occupied
from testbed.audit.history import (
    LEVELS,
    OUTCOMES,
    History,
    JobHistory,
    about,
)

Cells = dict[str, Any]
"""A job's figures by column, as the events have them."""

SHORTEST_S = 10.0
"""Γ: what counts as a job's running time at least, in the bounded slowdown."""

STOPPED = "the run stopped before its end"
"""The reason of a job without an end event."""

UNWATCHED = "nothing was checked about the machine during this run"
"""The reason in a live run's summary if none was recorded."""

_MEASURED = ("bps", "worst_bps", "ratio", "counted_bps")
_OF_REQUEST = (
    "kind",
    "submit_s",
    "n_vms",
    "deadline_s",
    "value",
    "application",
    "duration_s",
)


def facts(history: History) -> dict[str, Cells]:
    """Every submitted job's cells, in order of submission."""
    return {
        job.job_id: _cells(job, history.started.policy)
        for job in history.requested
    }


def _cells(job: JobHistory, policy: str) -> Cells:
    request, started, ended = (
        job.request,
        job.first(events.JobStarted),
        job.first(events.JobEnded),
    )
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
        "wait_s": None
        if started is None
        else started.t - request["submit_s"],
        **_of_finished(request["submit_s"], ended, estimate_s),
        **_by_iperf3(ended, getattr(booked, "rate_bps", None)),
    }


def _met(
    request: Mapping[str, Any], ended: events.JobEnded | None
) -> bool | None:
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
        if (
            isinstance(tag, Sequence)
            and len(tag) == 2
            and tag[0] == "class"
        ):
            return str(tag[1])
    queue = request.get("queue")
    return None if queue is None else str(queue)


def _of_finished(
    submit_s: float, ended: events.JobEnded | None, estimate_s: float | None
) -> dict[str, float | None]:
    """Columns that only a finished job has."""
    names = (
        "ratio",
        "response_s",
        "queued_s",
        "slowdown",
        "bounded_slowdown",
    )
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


def _by_iperf3(
    ended: events.JobEnded | None, granted_bps: int | None
) -> dict[str, float | None]:
    """Columns that only a finished job has whose VMs measured with iperf3."""
    out: dict[str, float | None] = dict.fromkeys(
        f"iperf3_{name}" for name in _MEASURED
    )
    measurements = (
        ended.detail.get("iperf3", {})
        if ended and ended.outcome == "finished"
        else {}
    )
    lists = [
        measurements.get(key, []) for key in ("received_bps", "counted_bps")
    ]
    if all(lists):
        received, counted = lists
        figures = (
            statistics.median(received),
            min(received),
            statistics.median(counted),
        )
        (
            out["iperf3_bps"],
            out["iperf3_worst_bps"],
            out["iperf3_counted_bps"],
        ) = figures
        if granted_bps:
            out["iperf3_ratio"] = min(received) / granted_bps
    return out


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def stays(history: History) -> Iterator[tuple[Change, float | None]]:
    """Every hold as it was taken, and until when (None: the end of the run), by
    release.
    """
    running: dict[str, Change] = {}
    for change in occupied(history):
        job_id = change.event.job_id
        if change.sign > 0:
            running[job_id] = change
        else:
            yield running.pop(job_id), change.t
    yield from ((change, None) for change in running.values())


MOST_ROWS, MOST_INTERVALS = 200_000, 200
"""The grain of the means of a run without samples (docs/runs-and-fidelity.md).
"""

_Row = tuple[float, int, float | None, float]
"""Time, directed link, sent (None: not measured), reserved; rates are written
as whole numbers.
"""


def link_means(history: History) -> Iterator[_Row]:
    """Equal intervals, all links that ever were reserved in each, by number."""
    end_s = history.end_s
    steps = sorted(_changes(history).items())
    if not steps or end_s <= 0:
        return
    n = max(1, min(MOST_INTERVALS, MOST_ROWS // len(steps)))
    means = {link: _cut(changes, end_s, n) for link, changes in steps}
    for i in range(n):
        for link, of_link in means.items():
            yield (i + 1) * end_s / n, link, None, of_link[i]


def _changes(history: History) -> dict[int, list[tuple[float, int]]]:
    """When how much more or less was held on each link; what is held for no
    time is left out.
    """
    out: dict[int, list[tuple[float, int]]] = {}
    for taken, until_s in stays(history):
        end_s = history.end_s if until_s is None else until_s
        for link, bps in taken.hold.links if end_s > taken.t else ():
            out.setdefault(link, []).extend(((taken.t, bps), (end_s, -bps)))
    return out


def _cut(
    changes: list[tuple[float, int]], end_s: float, n: int
) -> list[float]:
    """The mean over each of ``n`` equal parts of the run, from the bits held up
    to each moment.
    """
    times, steps = np.array(sorted([(0.0, 0), *changes, (end_s, 0)])).T
    bits = np.append(0.0, np.cumsum(np.cumsum(steps)[:-1] * np.diff(times)))
    edges = np.linspace(0.0, end_s, n + 1)
    means: list[float] = (
        np.diff(np.interp(edges, times, bits)) * n / end_s
    ).tolist()
    return means


def summary_due(history: History, jobs: Sequence[Cells]) -> dict[str, Any]:
    started = history.started
    return {
        "name": started.run,
        **{
            key: getattr(started, key)
            for key in ("policy", "backend", "seed")
        },
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
    good = sum(
        job["outcome"] == "finished" and job["met_deadline"] is not False
        for job in jobs
    )
    return {
        "jobs": len(jobs),
        **count,
        "met_deadline": sum(job["met_deadline"] is True for job in jobs),
        "success_rate": good / len(jobs) if jobs else None,
        "acceptance_rate": 1 - count["rejected"] / len(jobs)
        if jobs
        else None,
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
    names = sorted(
        {
            str(job["job_class"])
            for job in jobs
            if job["job_class"] is not None
        }
    )
    return {
        name: _group([job for job in jobs if job["job_class"] == name])
        for name in names
    }


def fidelity(history: History) -> dict[str, Any]:
    """The worst level noted of a live run, and every reason for less than
    ``ok`` once.
    """
    if history.started.backend != "live":
        return {"verdict": None, "reasons": []}
    notes = history.of_kind(events.FidelityNoted)
    if not notes:
        return {"verdict": "suspect", "reasons": [UNWATCHED]}
    worst = max(notes, key=lambda note: badness(note.level))
    reasons = dict.fromkeys(
        note.reason for note in notes if note.level != "ok"
    )
    return {"verdict": worst.level, "reasons": list(reasons)}


def badness(level: object) -> int:
    """The place of a level; what is none is as bad as the worst."""
    return LEVELS.index(level) if level in LEVELS else len(LEVELS) - 1


def _sent(history: History) -> float | None:
    """Bandwidth sent over all capacity, both directions, weighted by the
    samples' lengths.
    """
    bits = sampled_s = 0.0
    for sample in history.of_kind(events.LinkSample):
        sampled_s += sample.interval_s
        bits += sample.interval_s * sum(sent for _, sent, _ in sample.links)
    both = _carried_bps(history)
    return (
        bits / (both * sampled_s)
        if both and sampled_s and history.end_s > 0
        else None
    )


def _spread(ratios: list[float]) -> dict[str, float] | None:
    if not ratios:
        return None
    many = len(ratios) > 1
    p95 = (
        # The 95th of 99 cut points.
        statistics.quantiles(ratios, n=100, method="inclusive")[94]
        if many
        else ratios[0]
    )
    middle = statistics.median(ratios)
    return {
        "min": min(ratios),
        "median": middle,
        "p95": p95,
        "max": max(ratios),
    }


def _carried_bps(history: History) -> int:
    """Capacity of all links, both directions."""
    topology = history.topology
    return sum(topology.capacity_bps) + sum(topology.capacity_down_bps)


_USES = ("vm_utilisation", "link_utilisation")


def _use(history: History) -> dict[str, float | None]:
    """Means over the run, added up job by job: Σ held · how long."""
    vm_s = bits = 0.0
    for taken, until_s in stays(history):
        if until_s is None:
            # Something runs at the end: that is a finding of its own, and no
            # figure is due.
            return {}
        lasted_s, hold = until_s - taken.t, taken.hold
        if hold.tier == "foreground":
            slots_per_vm = history.jobs[taken.event.job_id].slots_per_vm
            vm_s += (
                lasted_s
                * slots_per_vm
                * sum(count for _, count in hold.vms_on)
            )
        bits += lasted_s * sum(bps for _, bps in hold.links)
    slots = sum(history.topology.slots) * history.end_s
    links = _carried_bps(history) * history.end_s
    due = (vm_s / slots if slots else None, bits / links if links else None)
    return dict(zip(_USES, due, strict=True))


def _label(job: Cells) -> str:
    return str(job["application"] or job["job_id"])


def _best_effort(job: Cells) -> bool:
    """True for a job that ran without an estimate."""
    return job["start_s"] is not None and job["estimate_s"] is None


def verdict_due(
    history: History, expect: Mapping[str, Any], job: Cells
) -> str:
    """The verdict that a job is due by its figures."""
    named = expect["applications"].get(job["application"] or "")
    stated = named or {}
    band = stated.get("estimate_ratio")
    band = expect.get("estimate_ratio") if band is None else band
    # A policy may reject, and may run a job without an estimate; a script is to
    # run its jobs.
    free = named is None and "every-job-starts" not in history.claims
    if free and (job["outcome"] == "rejected" or _best_effort(job)):
        return "open"
    granted = job["granted_bps"]
    less = granted is None or granted < job["requested_bps"]
    below = stated.get("scaled_down_below") if less else None
    if band is None and below is None:
        return _due_by_reservation(history, expect, job)
    if job["ratio"] is None:
        return "outside"
    low, high = (
        (None, None) if band is None else (band.get("min"), band.get("max"))
    )
    held = (
        (below is None or job["ratio"] < below)
        and (low is None or low <= job["ratio"])
        and (high is None or job["ratio"] <= high)
    )
    return "ok" if held else "outside"


def _due_by_reservation(
    history: History, expect: Mapping[str, Any], job: Cells
) -> str:
    """The verdict on a live job of which the file states nothing."""
    late_above, early_below = (
        expect.get("late_above"),
        expect.get("early_below"),
    )
    lived, rate_bps = history.jobs[job["job_id"]], job["granted_bps"]
    request, live = lived.request, history.started.backend == "live"
    by_policy = any(
        event.killed_by_policy for event in lived.all(events.JobEnded)
    )
    if (
        late_above is None
        or not live
        or by_policy
        or job["estimate_s"] is None
    ):
        return "open"
    if job["outcome"] == "killed" and job["reason"] != events.OUTLASTED:
        return (
            "open" if job["reason"].startswith(events.FAILED) else "killed"
        )
    kept = (
        bool(rate_bps)
        and (
            request["kind"] in ("transfer", "demand")
            and not request.get("command")
        )
        and (request.get("true_duration_s") or 0) <= request["duration_s"]
        and job["preemptions"] + job["migrations"] == 0
        and not any(
            isinstance(e, events.JobCut | events.JobRequeued)
            for e in lived.events
        )
        and not any(
            _runs_at(history, lived, e)
            for e in history.of_kind(events.SwitchRestarted)
        )
        and all(
            event.rate_bps >= rate_bps
            for event in lived.all(events.JobRescaled)
        )
    )
    if not kept or job["ratio"] is None:
        return "killed" if kept and job["outcome"] == "killed" else "open"
    full_s = request.get("true_duration_s") or request["duration_s"]
    may_end_early = (
        full_s < request["duration_s"]
        or (
            request["kind"] == "demand"
            and rate_bps < request["bandwidth_bps"]
        )
        or any(
            event.rate_bps > rate_bps
            for event in lived.all(events.JobRescaled)
        )
    )
    if early_below and job["ratio"] < early_below and not may_end_early:
        return "early"
    return "late" if job["ratio"] > late_above else "held"


def _runs_at(
    history: History, job: JobHistory, event: events.Event
) -> bool:
    """True for a job that has started and not ended where an event stands."""
    around = (job.first(events.JobStarted), job.first(events.JobEnded))
    first, last = (
        0 if boundary is None else history.lines[id(boundary)]
        for boundary in around
    )
    return 0 < first < history.lines[id(event)] < (last or math.inf)


def other_subjects(
    history: History,
    expect: Mapping[str, Any],
    jobs: Mapping[str, Cells],
    due: Mapping[str, str],
) -> Iterator[str]:
    """Complaints due beside those on jobs: a word of each, in their order."""
    verdict, accepted = fidelity(history)["verdict"], expect.get("fidelity")
    if (
        accepted is not None
        and verdict is not None
        and badness(verdict) > badness(accepted)
    ):
        yield f"fidelity is {verdict}"
    seen = {_label(job) for job in jobs.values()}
    yield from (
        repr(name) for name in expect["applications"] if name not in seen
    )
    none_judged = all(verdict == "open" for verdict in due.values())
    estimated = not any(_best_effort(job) for job in jobs.values())
    if (
        expect.get("estimate_ratio") is not None
        and none_judged
        and estimated
    ):
        yield "no job"
