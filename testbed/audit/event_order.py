"""Order of the events: one stream, one life and one outcome a job, nothing
before its time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from testbed import events
from testbed.audit.history import (
    LEVELS,
    OUTCOMES,
    Findings,
    History,
    JobHistory,
    about,
)
from testbed.record.folder import EVENTS

_NEXT: dict[str, dict[str, str]] = {
    "unknown": {"job_submitted": "waiting"},
    "waiting": {
        "job_waits": "waiting",
        "job_reserved": "reserved",
        "job_ended": "ended",
    },
    "reserved": {
        "job_started": "running",
        "job_rerooted": "reserved",
        "job_ended": "ended",
    },
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
    "job_waits",
    "job_shortened",
    "job_preempted",
    "job_migrated",
    "job_rerooted",
    "job_cut",
    "job_requeued",
)
_TIERS = ("foreground", "background")
_TIERED = frozenset(
    {
        events.JobReserved,
        events.JobStarted,
        events.JobResumed,
        events.JobMigrated,
        events.JobTierSwitched,
    }
)
_COSTS = frozenset({events.JobResumed, events.JobMigrated})
_STATUSES = ("completed", "interrupted", "failed")
_BACKENDS = ("live", "sim", "replay")


def stream(history: History) -> Findings:
    before_s = 0.0
    for event in history.events:
        t = event.t
        if t < before_s:
            late = f"{event.name} at {t:.6g} s comes after {before_s:.6g} s"
            yield event, f"time runs backwards: {late}"
        else:
            before_s = t
    for event in history.of_kind(events.RunStarted)[1:]:
        yield event, "the run starts a second time"
    yield from _one_end(history)


def _one_end(history: History) -> Findings:
    ends = history.of_kind(events.RunEnded)
    last = history.events[-1]
    for event in ends:
        if event is not last:
            yield event, "the run continues after its end"
    # A line cut short says by itself that the run was killed; a missing end
    # is then no second finding.
    broken_line = history.file.broken_line
    if broken_line is not None:
        yield (EVENTS, broken_line), "cut short: the run was killed here"
    elif not ends:
        yield last, "the run never ended: it was killed after this line"


def ending(history: History) -> Findings:
    """An incomplete run has a reason, a complete one has none and no job
    stopped half-way.
    """
    for end in history.of_kind(events.RunEnded):
        if end.status not in _STATUSES:
            yield end, f"the status is {end.status!r}"
        elif end.status == "completed" and end.reason:
            yield end, f"completed, and yet: {end.reason}"
        elif end.status != "completed" and not end.reason:
            yield end, f"{end.status} without a reason"
        if end.status == "completed":
            for job in history.jobs.values():
                if _stopped_half_way(job):
                    yield (
                        end,
                        f"completed, and yet {job.job_id} was stopped half-way",
                    )


def _stopped_half_way(job: JobHistory) -> bool:
    ended = job.first(events.JobEnded)
    if ended is None or ended.outcome != "unfinished":
        return False
    return _has_started(job)


def notes(history: History) -> Findings:
    """Each note on fidelity is of a known level, and of a live run."""
    backend = history.started.backend
    if backend not in _BACKENDS:
        yield history.started, f"the backend is {backend!r}"
    for note in history.of_kind(events.FidelityNoted):
        if note.level not in LEVELS:
            yield note, f"{note.check}: the level is {note.level!r}"
        elif note.level != "ok" and not note.reason:
            yield note, f"{note.check}: {note.level} without a reason"
        if backend != "live":
            yield note, f"{note.check}: noted in a run that is not live"


def topology(history: History) -> Findings:
    for problem in history.topology.problems():
        yield history.started, problem


def lives(history: History) -> Findings:
    for job in history.jobs.values():
        yield from _life_findings(job)


def _life_findings(job: JobHistory) -> Findings:
    phase = "unknown"
    before = ""
    for event in job.events:
        kind = type(event)
        if kind in _TIERED:
            tier: str = event.tier  # type: ignore[attr-defined]
            wrong = _wrong_tier(job, event, tier, before)
            if wrong:
                yield event, wrong
            before = tier
        named = f"{event.name} of {job.job_id}"
        if kind in _COSTS and event.cost_s < 0:  # type: ignore[attr-defined]
            yield event, f"{named} costs less than no time"
        elif event.name in _WITH_REASON and not event.reason:  # type: ignore[attr-defined]
            yield event, f"{named} without a reason"
        after = _NEXT[phase].get(event.name)
        if after is None:
            # The phase stays: one event out of place is one finding.
            yield event, f"{named}, which is {phase}"
        else:
            phase = after
    if phase != "ended":
        message = f"{job.job_id} has no outcome: it is still {phase}"
        yield job.events[-1], message


def _wrong_tier(
    job: JobHistory, event: events.Event, tier: str, before: str
) -> str:
    """The fault of an event's tier; empty where it has none.

    ``before``: the job's tier so far, empty before any reservation. There the
    phase is a finding already.
    """
    job_id = job.job_id
    if tier not in _TIERS:
        return f"{event.name} of {job_id}: the tier is {tier!r}"
    if isinstance(event, events.JobStarted) and before not in ("", tier):
        return f"{job_id} starts in the {tier}, reserved is the {before}"
    if isinstance(event, events.JobTierSwitched) and tier == before:
        return f"{job_id} switches to the {tier}, where it is already"
    reserved = job.first(events.JobReserved)
    if tier == "background" and reserved and reserved.rate_bps:
        return f"{job_id} reserves bandwidth, which the {tier} has not"
    return ""


def _has_started(job: JobHistory) -> bool:
    """True if a job has started, since it was last requeued."""
    for event in reversed(job.events):
        kind = type(event)
        if kind is events.JobStarted:
            return True
        if kind is events.JobRequeued:
            return False
    return False


def outcomes(history: History) -> Findings:
    for job in history.jobs.values():
        for ended in job.all(events.JobEnded):
            wrong = _unfit(ended, started=_has_started(job))
            if wrong:
                yield ended, f"{job.job_id}: {wrong}"


def _unfit(ended: events.JobEnded, *, started: bool) -> str:
    """The fault of an outcome; empty where it has none."""
    if ended.outcome not in OUTCOMES:
        return f"the outcome is {ended.outcome!r}"
    if ended.outcome == "finished":
        return _unfit_finish(ended, started=started)
    if ended.outcome == "rejected" and started:
        return "it was rejected after it had started"
    if not ended.reason:
        return f"it was {ended.outcome} without a reason"
    return ""


def _unfit_finish(ended: events.JobEnded, *, started: bool) -> str:
    if not started:
        return "it finished without having started"
    if ended.measured_s is None or ended.measured_s <= 0:
        return f"it finished with a measured time of {ended.measured_s}"
    return ""


def accounts(history: History) -> Findings:
    submitted = len(history.of_kind(events.JobSubmitted))
    count = Counter(dict.fromkeys(OUTCOMES, 0))
    # Unknown outcomes are counted too: another check names them.
    for ended in history.of_kind(events.JobEnded):
        count[ended.outcome] += 1
    total = count.total()
    if submitted != total:
        parts = " + ".join(f"{n} {outcome}" for outcome, n in count.items())
        message = f"{submitted} jobs were submitted, but {parts} = {total}"
        yield history.events[-1], message


def arrivals(history: History) -> Findings:
    """Nothing is reserved or started before it arrives, or started before its
    reservation, and no job arrives before one that it follows has left; in a
    simulated run none arrives or starts late.
    """
    for job in history.jobs.values():
        arrival = job.first(events.JobSubmitted)
        if arrival is None:
            continue
        submit_s = arrival.job["submit_s"]
        if not about(submit_s, arrival.t):
            yield (
                arrival,
                f"{job.job_id} is there before its time, {submit_s:.6g} s",
            )
        elif not (history.live or about(arrival.t, submit_s)):
            yield (
                arrival,
                f"{job.job_id} is there after its time, {submit_s:.6g} s",
            )
        followed = arrival.job.get("after")
        if followed is not None and not _has_left(
            history, str(followed), arrival.t
        ):
            yield (
                arrival,
                f"{job.job_id} is there before {followed} has left",
            )
        earliest_s = max(submit_s, arrival.t)
        yield from _untimely(job, earliest_s, exact=not history.live)


def _has_left(history: History, job_id: str, at_s: float) -> bool:
    """True if a job has come, and has ended by ``at_s``."""
    if job_id not in history.jobs:
        return False
    ended = history.jobs[job_id].first(events.JobEnded)
    return ended is not None and about(ended.t, at_s)


def _untimely(
    job: JobHistory, arrival_s: float, *, exact: bool
) -> Findings:
    """Reservations and starts before their time; with ``exact`` late starts
    too.
    """
    earliest_s = arrival_s
    for event in job.events:
        if isinstance(event, events.JobReserved):
            for wrong in _reserved_early(event, arrival_s):
                yield event, f"{job.job_id}: {wrong}"
            earliest_s = max(earliest_s, event.start_s)
        if not isinstance(event, events.JobStarted):
            continue
        starts = f"{job.job_id}: starts at {event.t:.6g} s"
        if not about(earliest_s, event.t):
            yield event, f"{starts}, before {earliest_s:.6g} s"
        elif exact and not about(event.t, earliest_s):
            yield event, f"{starts}, its reservation at {earliest_s:.6g} s"


def _reserved_early(
    event: events.JobReserved, arrival_s: float
) -> Iterator[str]:
    start_s = event.start_s
    from_s = min(event.t, start_s)
    if not about(arrival_s, from_s):
        yield f"reserved from {from_s:.6g} s, arrives at {arrival_s:.6g} s"
    if event.end_s is not None and not about(start_s, event.end_s):
        yield f"reserved until {event.end_s:.6g} s, from {start_s:.6g} s on"
    if not about(event.t, start_s):
        yield f"a reservation made at {event.t:.6g} s begins at {start_s:.6g} s"


_BOOKING = (events.JobReserved, events.JobMigrated, events.JobResumed)
_LEAVING = (events.JobEnded, events.JobPreempted, events.JobRequeued)


def overstays(history: History) -> Findings:
    for job in history.jobs.values():
        yield from _overstay(job, history.live_slack_s)


def _overstay(job: JobHistory, slack_s: float) -> Findings:
    ends_s: float | None = None
    for event in job.events:
        if isinstance(event, _BOOKING):
            ends_s = event.end_s
        elif isinstance(event, events.JobShortened):
            until_s = event.until_s
            if ends_s is not None and not about(until_s, ends_s):
                named = f"{job.job_id} is shortened to {until_s:.6g} s"
                yield event, f"{named}, is booked until {ends_s:.6g} s"
            ends_s = until_s
        # Whoever moves to another tier is booked there without an end.
        elif isinstance(event, events.JobTierSwitched):
            ends_s = None
        elif isinstance(event, _LEAVING):
            if ends_s is not None and not about(event.t, ends_s, slack_s):
                runs = f"{job.job_id} runs until {event.t:.6g} s"
                yield event, f"{runs}, is booked until {ends_s:.6g} s"
            ends_s = None


def measured(history: History) -> Findings:
    """A measured time fits between the start of the job's reservation and its
    end; in a simulated run it is the job's time on nodes.
    """
    for job in history.jobs.values():
        reserved = job.first(events.JobReserved)
        ended = job.first(events.JobEnded)
        if reserved is None or ended is None or ended.measured_s is None:
            continue
        measured_s = ended.measured_s
        stay_s = ended.t - reserved.start_s
        fits = about(measured_s, stay_s)
        if not history.live:
            stay_s = _on_nodes_s(job)
            # Differences of two times are as inexact as these.
            rounding_s = 1e-9 * ended.t
            fits = about(abs(measured_s - stay_s), rounding_s)
        if not fits:
            times = (
                f"measured {measured_s:.6g} s, was there for {stay_s:.6g} s"
            )
            yield ended, f"{job.job_id}: {times}"


def _on_nodes_s(job: JobHistory) -> float:
    """The time from a job's last start to its end without that in which it was
    preempted.
    """
    ran_s = 0.0
    since_s: float | None = None
    for event in job.events:
        if isinstance(event, events.JobStarted):
            ran_s = 0.0
            since_s = event.t
        elif isinstance(event, _LEAVING) and since_s is not None:
            ran_s += event.t - since_s
            since_s = None
        elif isinstance(event, _BOOKING) and since_s is None:
            since_s = event.t
    return ran_s
