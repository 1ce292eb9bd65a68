"""Claims that policies declare, and the start of leases, proved from the events.

When the head of EASY's queue was due is worked out here from the events alone: when, by the planned
running times, enough nodes would have been free for it had no job been backfilled after it came
there. Where a job runs longer than planned, what was due at that moment is void.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed import events
from testbed.results.audit.history import Check, Found, History, JobHistory, about


def options_within_deadline(history: History) -> Found:
    """JSA gives a job an option of its profile, and one that ends by its deadline."""
    for request, event in history.reserved():
        profile = request.get("profile")
        offered = profile["options"] if profile else [[request["bandwidth_bps"], 0.0]]
        if all(event.rate_bps != bandwidth_bps for bandwidth_bps, _ in offered):
            yield event, f"{event.job_id}: {event.rate_bps} bit/s is none of its options"
    yield from within_deadline(history)


def within_deadline(history: History) -> Found:
    """Holds t' + p' ≤ d for whatever is admitted, counted from the job's arrival."""
    for request, event in history.reserved():
        if request["deadline_s"] is None:
            continue
        due_s = request["submit_s"] + request["deadline_s"]
        planned_s = event.start_s + (event.estimate_s or 0.0)
        end_s = planned_s if event.end_s is None else event.end_s
        if not about(end_s, due_s):
            message = f"admitted until {end_s:.6g} s, its deadline is {due_s:.6g} s"
            yield event, f"{event.job_id}: {message}"


def granted_as_asked(history: History) -> Found:
    """VC reserves what was asked for, from the arrival on, or rejects."""
    for request, event in history.reserved():
        asked = request["bandwidth_bps"]
        if event.rate_bps != asked:
            yield event, f"{event.job_id}: {event.rate_bps} bit/s granted, {asked} asked for"


def in_order_of_arrival(history: History) -> Found:
    order = {event.job["id"]: n for n, event in enumerate(history.each(events.JobSubmitted))}
    # One that a failure has sent back to the queue starts again when it can.
    anew = {event.job_id for event in history.each(events.JobRequeued)}
    latest, by = -1, ""
    for event in history.each(events.JobStarted):
        place = order.get(event.job_id, -1)
        if event.job_id in anew:
            continue
        if 0 <= place < latest:
            yield event, f"{event.job_id} starts after {by}, which arrived later"
        elif place > latest:
            latest, by = place, event.job_id


def no_preemption(history: History) -> Found:
    moved = (events.JobPreempted, events.JobMigrated, events.JobTierSwitched)
    for job in history.jobs.values():
        for event in job.events:
            if isinstance(event, moved):
                yield event, f"{event.name} of {job.job_id}"


TIMED = ("advance", "immediate")


def _type(job: JobHistory) -> str | None:
    return job.request.get("lease")


def has_leases(history: History) -> str | None:
    if any(_type(job) in TIMED for job in history.jobs.values()):
        return None
    return "no advance or immediate lease was asked for"


def lease_starts(history: History) -> Found:
    """An advance lease starts when it wanted to, an immediate one when it comes; or never.

    Never is a rejection. One whose time had not come when a run was stopped has neither. In a live
    run it has started when its VMs have: a moment late, never early.
    """
    for job in history.requested:
        if _type(job) in TIMED:
            for event, wrong in _lease_start(job, history.live_slack_s):
                yield event, f"{_type(job)} lease {job.job_id} {wrong}"


def _lease_start(job: JobHistory, slack_s: float) -> Found:
    wanted_s = job.request.get("wanted_s")
    due_s = job.all(events.JobSubmitted)[0].t if wanted_s is None else float(wanted_s)
    started, ended = job.first(events.JobStarted), job.first(events.JobEnded)
    accepted = job.first(events.JobReserved) is not None
    if started is not None:
        if not (about(started.t, due_s, slack_s) and about(due_s, started.t)):
            yield started, f"starts at {started.t:.6g} s, was to start at {due_s:.6g} s"
    elif ended is not None and ended.outcome != "rejected":
        if ended.t > due_s or not (accepted or ended.outcome == "unfinished"):
            yield ended, f"was {ended.outcome} and never started at {due_s:.6g} s"
    elif ended is not None and accepted:
        yield ended, "was rejected after it had been accepted"


def best_effort_preempted_once(history: History) -> Found:
    """Advance and immediate leases are never preempted, best-effort ones once at most."""
    for job in history.jobs.values():
        allowed = 0 if _type(job) in TIMED else 1
        for event in job.all(events.JobPreempted)[allowed:]:
            message = "a second time" if allowed else f"though it is {_type(job)}"
            yield event, f"{job.job_id} is preempted {message}, at {event.t:.6g} s"


# -- EASY: the head of the queue is never delayed by a backfilled job


def head_not_delayed(history: History) -> Found:
    by_user = "head-not-delayed-by-user-estimates" in history.claims
    queue = _Queue(sum(history.topology.slots), by_user)
    instant_s = 0.0
    for event in history.events:
        if event.t > instant_s:
            # All events of one instant are read: determine the head of the queue and its estimate.
            queue.advance(instant_s)
            instant_s = event.t
        late = queue.follow(event)
        if late is not None:
            yield event, late


@dataclass
class _Queue:
    """Waiting jobs in order, and running ones with their nodes and planned ends."""

    nodes: int
    by_user: bool
    waiting: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    running: dict[str, tuple[float, int]] = field(default_factory=dict)
    head: str | None = None
    due_s: float | None = None

    def advance(self, now_s: float) -> None:
        head = next(iter(self.waiting), None)
        if head == self.head:
            return
        self.head = head
        self.due_s = None if head is None else self._due_s(self.waiting[head]["n_vms"], now_s)

    def _due_s(self, n: int, now_s: float) -> float | None:
        free = self.nodes - sum(held for _, held in self.running.values())
        if free >= n:
            return now_s
        for end_s, held in sorted(self.running.values()):
            free += held
            if free >= n:
                return end_s
        return None

    def _planned_s(self, job: Mapping[str, Any]) -> float:
        stated_s = job.get("estimate_s") if self.by_user else None
        return float(job["duration_s"] if stated_s is None else stated_s)

    def follow(self, event: events.Event) -> str | None:
        """Take an event in; what is wrong with it."""
        match event:
            case events.JobSubmitted():
                self.waiting[str(event.job["id"])] = event.job
            case events.JobStarted():
                job = self.waiting.pop(event.job_id, None)
                if job is not None:
                    self.running[event.job_id] = (event.t + self._planned_s(job), job["n_vms"])
                if event.job_id == self.head and self.due_s is not None:
                    due_s, self.due_s = self.due_s, None
                    if not about(event.t, due_s, 1e-6):
                        return (
                            f"{event.job_id} was due at {due_s:.6g} s when it came to the head of"
                            f" the queue, and starts at {event.t:.6g} s"
                        )
            case events.JobEnded():
                self.waiting.pop(event.job_id, None)
                planned = self.running.pop(event.job_id, None)
                if planned is not None and not about(event.t, planned[0], 1e-6):
                    self.due_s = None
            case _:
                pass
        return None


def _claim(says: str, find: Callable[[History], Found], *claims: str) -> Check:
    return Check(claims[0], says, find, claims=claims)


CLAIM_CHECKS = (
    _claim("every job has the bandwidth it asked for", granted_as_asked, "granted-as-asked"),
    _claim("every reservation ends by its deadline", within_deadline, "within-deadline"),
    _claim(
        "every job has an option of its profile that meets the deadline",
        options_within_deadline,
        "options-within-deadline",
    ),
    _claim("jobs start in the order of their arrival", in_order_of_arrival, "in-order-of-arrival"),
    _claim(
        "no head of the queue starts later than was due",
        head_not_delayed,
        "head-not-delayed",
        "head-not-delayed-by-user-estimates",
    ),
    _claim(
        "only best-effort leases are preempted, each once at most",
        best_effort_preempted_once,
        "best-effort-preempted-once",
    ),
    _claim("no running job is preempted or moved", no_preemption, "no-preemption"),
)
"""Checks by the claims that policies declare, each called as its (first) claim."""
