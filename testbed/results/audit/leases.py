"""What leases are promised: their start, and at most one preemption."""

from __future__ import annotations

from collections.abc import Iterator

from testbed import events
from testbed.results.audit.findings import Finding
from testbed.results.audit.history import Dossier, History, about
from testbed.results.folder import EVENTS

TIMED = ("advance", "immediate")


def _type(job: Dossier) -> str | None:
    return (job.request or {}).get("lease")


def has_leases(history: History) -> str | None:
    if any(_type(job) in TIMED for job in history.jobs.values()):
        return None
    return "no advance or immediate lease was asked for"


def is_mbfcbs(history: History) -> str | None:
    return None if history.policy == "mbfcbs" else f"the policy is {history.policy}, not mbfcbs"


def starts(history: History) -> Iterator[Finding]:
    """An advance lease starts when it wanted to, an immediate one when it comes; or never.

    Never is a rejection. One whose time had not come when a run was stopped has neither. In a live
    world it has started when its VMs have, late by a moment and never early (docs/decisions/0466).
    """
    for job in history.jobs.values():
        request, submitted = job.request, job.first(events.JobSubmitted)
        if request is None or submitted is None or _type(job) not in TIMED:
            continue
        due_s = request.get("wanted_s")
        due_s = submitted[1].t if due_s is None else float(due_s)
        started, ended = job.first(events.JobStarted), job.first(events.JobEnded)
        if started is not None:
            if not (
                about(started[1].t, due_s, history.live_slack_s) and about(due_s, started[1].t)
            ):
                said = f"starts at {started[1].t:.6g} s, was to start at {due_s:.6g} s"
                yield Finding(EVENTS, started[0], f"{_type(job)} lease {job.job_id} {said}")
        elif ended is not None and ended[1].outcome != "rejected":
            accepted = job.first(events.JobReserved) is not None
            if ended[1].t > due_s or not (accepted or ended[1].outcome == "unfinished"):
                said = f"was {ended[1].outcome} and never started at {due_s:.6g} s"
                yield Finding(EVENTS, ended[0], f"{_type(job)} lease {job.job_id} {said}")
        elif ended is not None and job.first(events.JobReserved) is not None:
            said = "was rejected after it had been accepted"
            yield Finding(EVENTS, ended[0], f"{_type(job)} lease {job.job_id} {said}")


def preemptions(history: History) -> Iterator[Finding]:
    """Advance and immediate leases are never preempted, best-effort ones once at most."""
    for job in history.jobs.values():
        allowed = 0 if _type(job) in TIMED else 1
        for line, event in job.all(events.JobPreempted)[allowed:]:
            said = "a second time" if allowed else f"though it is {_type(job)}"
            yield Finding(EVENTS, line, f"{job.job_id} is preempted {said}, at {event.t:.6g} s")
