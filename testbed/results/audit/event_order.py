"""Order of the events: one stream, one life and one outcome a job, nothing before its time."""

from __future__ import annotations

from collections.abc import Iterator

from testbed import events
from testbed.results.audit.history import LEVELS, Finding, History, JobHistory, about
from testbed.results.folder import EVENTS

_NEXT: dict[str, dict[str, str]] = {
    "unknown": {"job_submitted": "waiting"},
    "waiting": {"job_waits": "waiting", "job_reserved": "reserved", "job_ended": "ended"},
    "reserved": {"job_started": "running", "job_ended": "ended"},
    "running": {
        "job_rescaled": "running",
        "job_progress": "running",
        "job_migrated": "running",
        "job_tier_switched": "running",
        "job_shortened": "running",
        "job_preempted": "preempted",
        "job_ended": "ended",
    },
    "preempted": {
        "job_waits": "preempted",
        "job_resumed": "running",
        "job_migrated": "running",
        "job_ended": "ended",
    },
    "ended": {},
}
"""What may happen to a job in each phase, and the phase it is in afterwards."""

_OUTCOMES = ("finished", "rejected", "killed", "unfinished")
_STATUSES = ("completed", "interrupted", "failed")
_BACKENDS = ("live", "sim", "replay")


def stream(history: History) -> Iterator[Finding]:
    """One beginning, one end, and time that never runs backwards."""
    before = 0.0
    for entry in history.file.lines:
        if entry.event.t < before:
            message = f"{entry.event.name} at {entry.event.t:.6g} s comes after {before:.6g} s"
            yield Finding(EVENTS, entry.number, f"time runs backwards: {message}")
        before = max(before, entry.event.t)
    for line, _ in list(history.each(events.RunStarted))[1:]:
        yield Finding(EVENTS, line, "the run starts a second time")
    ends = list(history.each(events.RunEnded))
    last = history.file.lines[-1].number
    for line, _ in ends:
        if line != last:
            yield Finding(EVENTS, line, "the run continues after its end")
    if history.file.broken_line is not None:
        yield Finding(EVENTS, history.file.broken_line, "cut short: the run was killed here")
    elif not ends:
        yield Finding(EVENTS, last, "the run never ended: it was killed after this line")


def ending(history: History) -> Iterator[Finding]:
    """The status is known and fits: an incomplete run has a reason, a complete one no open jobs."""
    for line, end in history.each(events.RunEnded):
        if end.status not in _STATUSES:
            yield Finding(EVENTS, line, f"the status is {end.status!r}")
        elif end.status == "completed" and end.reason:
            yield Finding(EVENTS, line, f"completed, and yet: {end.reason}")
        elif end.status != "completed" and not end.reason:
            yield Finding(EVENTS, line, f"{end.status} without a reason")
        if end.status == "completed":
            yield from _stopped_half_way(history, line)


def _stopped_half_way(history: History, line: int) -> Iterator[Finding]:
    for job in history.jobs.values():
        ended = job.first(events.JobEnded)
        started = job.first(events.JobStarted) is not None
        if started and ended is not None and ended[1].outcome == "unfinished":
            yield Finding(EVENTS, line, f"completed, and yet {job.job_id} was stopped half-way")


def notes(history: History) -> Iterator[Finding]:
    """Each note on fidelity is of a known level, and of a live run."""
    live = history.started.backend == "live"
    if history.started.backend not in _BACKENDS:
        first = history.file.lines[0].number
        yield Finding(EVENTS, first, f"the backend is {history.started.backend!r}")
    for line, note in history.each(events.FidelityNoted):
        if note.level not in LEVELS:
            yield Finding(EVENTS, line, f"{note.check}: the level is {note.level!r}")
        elif note.level != "ok" and not note.reason:
            yield Finding(EVENTS, line, f"{note.check}: {note.level} without a reason")
        if not live:
            yield Finding(EVENTS, line, f"{note.check}: noted in a run that is not live")


def topology(history: History) -> Iterator[Finding]:
    """The arrays of ``run_started`` describe a data centre."""
    for problem in history.topology.problems():
        yield Finding(EVENTS, history.file.lines[0].number, problem)


def lives(history: History) -> Iterator[Finding]:
    """Every job's events come in an order that makes sense, and end in exactly one outcome."""
    for job in history.jobs.values():
        phase = "unknown"
        for entry in job.lines:
            after = _NEXT[phase].get(entry.event.name)
            if after is None:
                message = f"{entry.event.name} of {job.job_id}, which is {phase}"
                yield Finding(EVENTS, entry.number, message)
            else:
                phase = after
        if phase != "ended":
            last = job.lines[-1].number
            yield Finding(EVENTS, last, f"{job.job_id} has no outcome: it is still {phase}")


def outcomes(history: History) -> Iterator[Finding]:
    """Each outcome is a known one and fits what happened to the job before."""
    for job in history.jobs.values():
        started = job.first(events.JobStarted) is not None
        for line, ended in job.all(events.JobEnded):
            measured = ended.measured_s
            wrong = None
            if ended.outcome not in _OUTCOMES:
                wrong = f"the outcome is {ended.outcome!r}"
            elif ended.outcome == "finished" and not started:
                wrong = "it finished without having started"
            elif ended.outcome == "finished" and (measured is None or measured <= 0):
                wrong = f"it finished with a measured time of {measured}"
            elif ended.outcome == "rejected" and started:
                wrong = "it was rejected after it had started"
            elif ended.outcome != "finished" and not ended.reason:
                wrong = f"it was {ended.outcome} without a reason"
            if wrong:
                yield Finding(EVENTS, line, f"{job.job_id}: {wrong}")


def accounts(history: History) -> Iterator[Finding]:
    """Jobs submitted = finished + rejected + killed + unfinished."""
    submitted = sum(1 for _ in history.each(events.JobSubmitted))
    count = dict.fromkeys(_OUTCOMES, 0)
    for _, ended in history.each(events.JobEnded):
        count[ended.outcome] = count.get(ended.outcome, 0) + 1
    if submitted != sum(count.values()):
        parts = " + ".join(f"{n} {outcome}" for outcome, n in count.items())
        message = f"{submitted} jobs were submitted, but {parts} = {sum(count.values())}"
        yield Finding(EVENTS, history.file.lines[-1].number, message)


def arrivals(history: History) -> Iterator[Finding]:
    """Nothing is reserved or started before it arrives, or started before its reservation."""
    for job in history.jobs.values():
        submitted = job.first(events.JobSubmitted)
        if submitted is None:
            continue
        line, arrival = submitted
        submit_s = arrival.job["submit_s"]
        if not about(submit_s, arrival.t):
            yield Finding(EVENTS, line, f"{job.job_id} is there before its time, {submit_s:.6g} s")
        yield from _too_early(job, max(submit_s, arrival.t))


def _too_early(job: JobHistory, arrival_s: float) -> Iterator[Finding]:
    earliest_s = arrival_s
    for entry in job.lines:
        event = entry.event
        if isinstance(event, events.JobReserved):
            begins_s = min(event.t, event.start_s)
            if not about(arrival_s, begins_s):
                message = f"reserved from {begins_s:.6g} s, arrives at {arrival_s:.6g} s"
                yield Finding(EVENTS, entry.number, f"{job.job_id}: {message}")
            if not about(event.t, event.start_s):
                message = f"a reservation made at {event.t:.6g} s begins at {event.start_s:.6g} s"
                yield Finding(EVENTS, entry.number, f"{job.job_id}: {message}")
            earliest_s = max(earliest_s, event.start_s)
        elif isinstance(event, events.JobStarted) and not about(earliest_s, event.t):
            message = f"starts at {event.t:.6g} s, before {earliest_s:.6g} s"
            yield Finding(EVENTS, entry.number, f"{job.job_id}: {message}")


def overstays(history: History) -> Iterator[Finding]:
    """No job runs on after the end of its own reservation."""
    slack_s = history.live_slack_s
    for job in history.jobs.values():
        ends_s: float | None = None
        for entry in job.lines:
            event = entry.event
            if isinstance(event, events.JobReserved):
                ends_s = event.end_s
            elif isinstance(event, events.JobShortened):
                ends_s = event.until_s
            elif isinstance(event, events.JobMigrated | events.JobResumed):
                ends_s = event.end_s
            elif isinstance(event, events.JobTierSwitched):
                ends_s = None
            elif isinstance(event, events.JobEnded | events.JobPreempted):
                if ends_s is not None and not about(event.t, ends_s, slack_s):
                    message = f"runs until {event.t:.6g} s, is booked until {ends_s:.6g} s"
                    yield Finding(EVENTS, entry.number, f"{job.job_id} {message}")
                ends_s = None


def measured(history: History) -> Iterator[Finding]:
    """A measured time fits between the job's start of reservation and its end."""
    for job in history.jobs.values():
        reserved, ended = job.first(events.JobReserved), job.first(events.JobEnded)
        if reserved is None or ended is None or ended[1].measured_s is None:
            continue
        stay_s = ended[1].t - reserved[1].start_s
        if not about(ended[1].measured_s, stay_s):
            message = f"measured {ended[1].measured_s:.6g} s, was there for {stay_s:.6g} s"
            yield Finding(EVENTS, ended[0], f"{job.job_id}: {message}")
