"""What each job holds and when: replayed from its events, twice, in two independent ways.

*Occupied*: what runs, in the order of the file. *Booked*: the calendar of reservations, future
ones included, as half-open intervals of time. Both must fit at every instant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from testbed import events
from testbed.results.audit.history import Dossier, History

Pairs = Sequence[Sequence[int]]
Held = tuple[Pairs, Pairs, str]
NOTHING: Held = ((), (), "foreground")


@dataclass(frozen=True)
class Change:
    """At ``t`` a job takes (``sign`` 1) or gives back (-1) VMs on servers and bit/s on links.

    The VMs are of ``tier``: each has as many slots as the servers have.
    """

    t: float
    line: int
    job_id: str
    sign: int
    vms_on: Pairs
    links: Pairs
    tier: str


@dataclass(frozen=True)
class Booking:
    """``[start_s, end_s)``; ``end_s`` None: it was never given back."""

    start_s: float
    end_s: float | None
    line: int
    job_id: str
    vms_on: Pairs
    links: Pairs
    tier: str


def occupied(history: History) -> Iterator[Change]:
    """Changes of what running jobs occupy, in the order of the file."""
    placed: dict[str, Held] = {}
    held: dict[str, Held] = {}

    def release(t: float, line: int, job_id: str) -> Iterator[Change]:
        if job_id in held:
            yield Change(t, line, job_id, -1, *held.pop(job_id))

    def take(t: float, line: int, job_id: str) -> Iterator[Change]:
        yield from release(t, line, job_id)
        if job_id in placed:
            held[job_id] = placed[job_id]
            yield Change(t, line, job_id, 1, *placed[job_id])

    for entry in history.file.lines:
        line, event = entry.number, entry.event
        vms_on, links, tier = placed.get(getattr(event, "job_id", ""), NOTHING)
        match event:
            case events.JobReserved():
                placed[event.job_id] = (event.vms_on, event.links, event.tier)
            case events.JobStarted():
                yield from take(event.t, line, event.job_id)
            case events.JobResumed() | events.JobTierSwitched():
                placed[event.job_id] = (vms_on, links, event.tier)
                yield from take(event.t, line, event.job_id)
            case events.JobMigrated():
                placed[event.job_id] = (event.vms_on, event.links, event.tier)
                yield from take(event.t, line, event.job_id)
            case events.JobRescaled():
                placed[event.job_id] = (vms_on, event.links, tier)
                yield from take(event.t, line, event.job_id)
            case events.JobPreempted() | events.JobEnded():
                yield from release(event.t, line, event.job_id)
            case _:
                pass


def _changed(
    now: Booking, event: events.JobRescaled | events.JobTierSwitched, line: int
) -> Booking:
    """What a running job holds after it got another rate or tier."""
    if isinstance(event, events.JobRescaled):
        return replace(now, start_s=event.t, line=line, links=event.links)
    return replace(now, start_s=event.t, end_s=None, line=line, tier=event.tier)


def bookings(history: History) -> list[Booking]:
    """Every reservation of every job as intervals, in order of the lines that made them."""
    out = [booking for job in history.jobs.values() for booking in _bookings(job)]
    return sorted(out, key=lambda booking: booking.line)


def _bookings(job: Dossier) -> Iterator[Booking]:
    """One job's intervals: each begins with a reservation or a change and ends at the next one."""
    now: Booking | None = None

    def close(t: float) -> Iterator[Booking]:
        if now is not None:
            end_s = t if now.end_s is None else min(now.end_s, t)
            if end_s > now.start_s:
                yield replace(now, end_s=end_s)

    last: Booking | None = None
    for entry in job.lines:
        line, event = entry.number, entry.event
        match event:
            case events.JobReserved():
                yield from close(event.t)
                held = (event.vms_on, event.links, event.tier)
                now = Booking(event.start_s, event.end_s, line, job.job_id, *held)
            case events.JobRescaled() | events.JobTierSwitched() if now is not None:
                yield from close(event.t)
                now = _changed(now, event, line)
            case events.JobMigrated():
                yield from close(event.t)
                held = (event.vms_on, event.links, event.tier)
                now = Booking(event.t, event.end_s, line, job.job_id, *held)
            case events.JobResumed() if last is not None:
                end_s = event.end_s
                now = replace(last, start_s=event.t, end_s=end_s, line=line, tier=event.tier)
            case events.JobShortened() if now is not None:
                now = replace(now, end_s=event.until_s)
            case events.JobPreempted() | events.JobEnded():
                yield from close(event.t)
                last, now = now, None
            case _:
                pass
    if now is not None:
        yield now
