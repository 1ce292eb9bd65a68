"""Order of the events: one stream, one life and one outcome a job, nothing before its time."""

from __future__ import annotations

from testbed import events
from testbed.results.audit.history import LEVELS, OUTCOMES, Found, History, JobHistory, about
from testbed.results.folder import EVENTS

_NEXT: dict[str, dict[str, str]] = {
    "unknown": {"job_submitted": "waiting"},
    "waiting": {"job_waits": "waiting", "job_reserved": "reserved", "job_ended": "ended"},
    "reserved": {"job_started": "running", "job_rerooted": "reserved", "job_ended": "ended"},
    "running": {
        "job_rescaled": "running",
        "job_progress": "running",
        "job_migrated": "running",
        "job_tier_switched": "running",
        "job_shortened": "running",
        "job_preempted": "preempted",
        "job_rerooted": "running",
        "job_cut": "running",
        "job_reconnected": "running",
        "job_requeued": "waiting",
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
"""Events that a job may have in each phase, and its phase afterwards."""

_WITH_REASON = (
    *("job_waits", "job_shortened", "job_preempted", "job_migrated"),
    *("job_rerooted", "job_cut", "job_requeued"),
)
_TIERS = ("foreground", "background")
_BEGINS = (events.JobStarted, events.JobRequeued)
_STATUSES = ("completed", "interrupted", "failed")
_BACKENDS = ("live", "sim", "replay")


def stream(history: History) -> Found:
    before_s = 0.0
    for event in history.events:
        if event.t < before_s:
            late = f"{event.name} at {event.t:.6g} s comes after {before_s:.6g} s"
            yield event, f"time runs backwards: {late}"
        before_s = max(before_s, event.t)
    for event in history.each(events.RunStarted)[1:]:
        yield event, "the run starts a second time"
    ends, last = history.each(events.RunEnded), history.events[-1]
    for event in ends:
        if event is not last:
            yield event, "the run continues after its end"
    if history.file.broken_line is not None:
        yield (EVENTS, history.file.broken_line), "cut short: the run was killed here"
    elif not ends:
        yield last, "the run never ended: it was killed after this line"


def ending(history: History) -> Found:
    """An incomplete run has a reason, a complete one has none and no job stopped half-way."""
    for end in history.each(events.RunEnded):
        if end.status not in _STATUSES:
            yield end, f"the status is {end.status!r}"
        elif end.status == "completed" and end.reason:
            yield end, f"completed, and yet: {end.reason}"
        elif end.status != "completed" and not end.reason:
            yield end, f"{end.status} without a reason"
        for job in history.jobs.values() if end.status == "completed" else ():
            ended = job.first(events.JobEnded)
            if ended and ended.outcome == "unfinished" and _has_started(job):
                yield end, f"completed, and yet {job.job_id} was stopped half-way"


def notes(history: History) -> Found:
    """Each note on fidelity is of a known level, and of a live run."""
    backend = history.started.backend
    if backend not in _BACKENDS:
        yield history.started, f"the backend is {backend!r}"
    for note in history.each(events.FidelityNoted):
        if note.level not in LEVELS:
            yield note, f"{note.check}: the level is {note.level!r}"
        elif note.level != "ok" and not note.reason:
            yield note, f"{note.check}: {note.level} without a reason"
        if backend != "live":
            yield note, f"{note.check}: noted in a run that is not live"


def topology(history: History) -> Found:
    for problem in history.topology.problems():
        yield history.started, problem


def lives(history: History) -> Found:
    for job in history.jobs.values():
        phase, reserved = "unknown", ""
        for event in job.events:
            tier = getattr(event, "tier", _TIERS[0])
            if tier not in _TIERS:
                yield event, f"{event.name} of {job.job_id}: the tier is {tier!r}"
            elif reserved and isinstance(event, events.JobStarted) and tier != reserved:
                yield event, f"{job.job_id} starts in the {tier}, reserved is the {reserved}"
            if getattr(event, "cost_s", 0.0) < 0:
                yield event, f"{event.name} of {job.job_id} costs less than no time"
            elif event.name in _WITH_REASON and not getattr(event, "reason", ""):
                yield event, f"{event.name} of {job.job_id} without a reason"
            reserved = tier if isinstance(event, events.JobReserved) else reserved
            after = _NEXT[phase].get(event.name)
            if after is None:
                yield event, f"{event.name} of {job.job_id}, which is {phase}"
            else:
                phase = after
        if phase != "ended":
            yield job.events[-1], f"{job.job_id} has no outcome: it is still {phase}"


def _has_started(job: JobHistory) -> bool:
    """True if a job has started, since it was last requeued."""
    begins = [event for event in job.events if isinstance(event, _BEGINS)]
    return isinstance(next(reversed(begins), None), events.JobStarted)


def outcomes(history: History) -> Found:
    for job in history.jobs.values():
        started = _has_started(job)
        for ended in job.all(events.JobEnded):
            wrong = _unfit(ended, started=started)
            if wrong:
                yield ended, f"{job.job_id}: {wrong}"


def _unfit(ended: events.JobEnded, *, started: bool) -> str:
    """The fault of an outcome; empty where it has none."""
    finished = ended.outcome == "finished"
    if ended.outcome not in OUTCOMES:
        return f"the outcome is {ended.outcome!r}"
    if finished and not started:
        return "it finished without having started"
    if finished and (ended.measured_s is None or ended.measured_s <= 0):
        return f"it finished with a measured time of {ended.measured_s}"
    if ended.outcome == "rejected" and started:
        return "it was rejected after it had started"
    return "" if finished or ended.reason else f"it was {ended.outcome} without a reason"


def accounts(history: History) -> Found:
    submitted = len(history.each(events.JobSubmitted))
    count = dict.fromkeys(OUTCOMES, 0)
    for ended in history.each(events.JobEnded):
        count[ended.outcome] = count.get(ended.outcome, 0) + 1
    if submitted != sum(count.values()):
        parts = " + ".join(f"{n} {outcome}" for outcome, n in count.items())
        message = f"{submitted} jobs were submitted, but {parts} = {sum(count.values())}"
        yield history.events[-1], message


def arrivals(history: History) -> Found:
    """Nothing is reserved or started before it arrives, or started before its reservation."""
    for job in history.jobs.values():
        arrival = job.first(events.JobSubmitted)
        if arrival is None:
            continue
        submit_s = arrival.job["submit_s"]
        if not about(submit_s, arrival.t):
            yield arrival, f"{job.job_id} is there before its time, {submit_s:.6g} s"
        yield from _too_early(job, max(submit_s, arrival.t))


def _too_early(job: JobHistory, arrival_s: float) -> Found:
    earliest_s = arrival_s
    for event in job.events:
        wrong = []
        if isinstance(event, events.JobReserved):
            from_s = min(event.t, event.start_s)
            if not about(arrival_s, from_s):
                wrong.append(f"reserved from {from_s:.6g} s, arrives at {arrival_s:.6g} s")
            if event.end_s is not None and not about(event.start_s, event.end_s):
                wrong.append(f"reserved until {event.end_s:.6g} s, from {event.start_s:.6g} s on")
            if not about(event.t, event.start_s):
                made = f"a reservation made at {event.t:.6g} s"
                wrong.append(f"{made} begins at {event.start_s:.6g} s")
            earliest_s = max(earliest_s, event.start_s)
        elif isinstance(event, events.JobStarted) and not about(earliest_s, event.t):
            wrong.append(f"starts at {event.t:.6g} s, before {earliest_s:.6g} s")
        for message in wrong:
            yield event, f"{job.job_id}: {message}"


def overstays(history: History) -> Found:
    for job in history.jobs.values():
        ends_s: float | None = None
        for event in job.events:
            match event:
                case events.JobReserved() | events.JobMigrated() | events.JobResumed():
                    ends_s = event.end_s
                case events.JobShortened():
                    ends_s = event.until_s
                case events.JobTierSwitched():
                    ends_s = None
                case events.JobEnded() | events.JobPreempted() | events.JobRequeued():
                    if ends_s is not None and not about(event.t, ends_s, history.live_slack_s):
                        booked = f"is booked until {ends_s:.6g} s"
                        yield event, f"{job.job_id} runs until {event.t:.6g} s, {booked}"
                    ends_s = None
                case _:
                    pass


def measured(history: History) -> Found:
    """A measured time fits between the start of the job's reservation and its end."""
    for job in history.jobs.values():
        reserved, ended = job.first(events.JobReserved), job.first(events.JobEnded)
        if reserved is None or ended is None or ended.measured_s is None:
            continue
        stay_s = ended.t - reserved.start_s
        if not about(ended.measured_s, stay_s):
            times = f"measured {ended.measured_s:.6g} s, was there for {stay_s:.6g} s"
            yield ended, f"{job.job_id}: {times}"
