"""Capacity: placements, hoses and estimates; slots, memory and links never beyond what there is.

What a job holds is replayed from its events in two independent ways.

*Occupied*: what runs, in the order of the file. *Booked*: the calendar of reservations, future
ones included, as half-open intervals of time. Both must fit at every instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from testbed import events
from testbed.results.audit.history import Finding, History, JobHistory, about
from testbed.results.folder import EVENTS

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


def _booking(event: events.JobReserved | events.JobMigrated, start_s: float, line: int) -> Booking:
    held = (event.vms_on, event.links, event.tier)
    return Booking(start_s, event.end_s, line, event.job_id, *held)


def _changed(
    now: Booking, event: events.JobRescaled | events.JobTierSwitched, line: int
) -> Booking:
    """A running job's booking after a change of its rate or tier."""
    if isinstance(event, events.JobRescaled):
        return replace(now, start_s=event.t, line=line, links=event.links)
    return replace(now, start_s=event.t, end_s=None, line=line, tier=event.tier)


def bookings(history: History) -> list[Booking]:
    """Every reservation of every job as intervals, in order of the lines that made them."""
    out = [booking for job in history.jobs.values() for booking in _bookings(job)]
    return sorted(out, key=lambda booking: booking.line)


def _bookings(job: JobHistory) -> Iterator[Booking]:
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
                now = _booking(event, event.start_s, line)
            case events.JobRescaled() | events.JobTierSwitched() if now is not None:
                yield from close(event.t)
                now = _changed(now, event, line)
            case events.JobMigrated():
                yield from close(event.t)
                now = _booking(event, event.t, line)
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


# -- reservations against hoses, estimates, samples

SAMPLE_SLACK = 0.05
"""A counter's interval and a limiter's burst are not exact: a sample may show 5 % too much."""


def placements(history: History) -> Iterator[Finding]:
    """Every VM asked for is on a server below the tree's root, each server named once."""
    for job, request in history.requested:
        for entry in job.lines:
            event = entry.event
            if isinstance(event, events.JobReserved | events.JobMigrated):
                for wrong in history.topology.misplaced(event.root, event.vms_on, request["n_vms"]):
                    yield Finding(EVENTS, entry.number, f"{job.job_id}: {wrong}")


def hoses(history: History) -> Iterator[Finding]:
    """On every link exactly min(X, N-X)·B is reserved: no less, no more, nowhere else."""
    for job in history.jobs.values():
        yield from _hose_findings(history, job)


def _hose_findings(history: History, job: JobHistory) -> Iterator[Finding]:
    root, rate_bps = -1, 0
    vms: Pairs = ()
    for entry in job.lines:
        event = entry.event
        match event:
            case events.JobReserved():
                root, vms, rate_bps = event.root, event.vms_on, event.rate_bps
            case events.JobMigrated():
                root, vms = event.root, event.vms_on
            case events.JobRescaled():
                rate_bps = event.rate_bps
            case events.JobStarted():
                if event.rate_bps != rate_bps:
                    message = f"starts at {event.rate_bps} bit/s, reserved are {rate_bps}"
                    yield Finding(EVENTS, entry.number, f"{job.job_id} {message}")
                continue
            case _:
                continue
        # A placement that makes no sense has its own finding.
        request = job.request
        if request is None or history.topology.misplaced(root, vms, request["n_vms"]):
            continue
        need = history.topology.hose(root, vms, rate_bps)
        yield from _compare(history, job.job_id, entry.number, event.links, need)


def _compare(
    history: History, job_id: str, line: int, links: Pairs, need: dict[int, int]
) -> Iterator[Finding]:
    topology = history.topology
    given: dict[int, int] = {}
    for directed, bps in links:
        if directed in given:
            yield Finding(EVENTS, line, f"{job_id}: directed link {directed} is named twice")
        given[directed] = bps
    for directed in sorted({*given, *need}):
        has, wants = given.get(directed, 0), need.get(directed, 0)
        if has != wants:
            known = 0 <= directed < topology.n_directed
            name = topology.link(directed) if known else f"directed link {directed}"
            message = f"{has} bit/s reserved on {name}, its hose needs {wants}"
            yield Finding(EVENTS, line, f"{job_id}: {message}")


def estimates(history: History) -> Iterator[Finding]:
    """The estimate is p·b/b', p where nothing was scaled down, and none for best effort.

    A job with a profile has the time of the option it is given as its estimate.
    """
    for job, request in history.requested:
        for line, event in job.all(events.JobReserved):
            asked, granted = request["bandwidth_bps"], event.rate_bps
            best_effort = granted == 0 and asked > 0 and request["kind"] != "compute"
            if best_effort or event.estimate_s is None:
                if not (best_effort and event.estimate_s is None):
                    message = f"estimate {event.estimate_s} s at {granted} bit/s of {asked}"
                    yield Finding(EVENTS, line, f"{job.job_id}: {message}")
                continue
            factor = asked / granted if 0 < granted < asked else 1.0
            due_s = request["duration_s"] * factor
            if request.get("profile"):
                due_s = _of_profile(request["profile"]["options"], granted)
            if not (about(event.estimate_s, due_s) and about(due_s, event.estimate_s)):
                rule = "its profile's time" if request.get("profile") else "p·b/b'"
                message = f"estimate {event.estimate_s:.6g} s, {rule} is {due_s:.6g} s"
                yield Finding(EVENTS, line, f"{job.job_id}: {message}")


def _of_profile(options: list[list[float]], granted: float) -> float:
    """The time of a profile's option; between two a straight line, below the least p·b/b'."""
    least_bps, longest_s = options[0]
    if granted < least_bps:
        return longest_s * least_bps / granted if granted else 0.0
    for (low, slow), (high, fast) in pairwise(options):
        if granted <= high:
            return slow - (slow - fast) * (granted - low) / (high - low)
    return options[-1][1]


def samples(history: History) -> Iterator[Finding]:
    """Every sample is of a link that exists and shows no more than the link can carry."""
    topology = history.topology
    for line, event in history.each(events.LinkSample):
        if event.interval_s <= 0:
            yield Finding(EVENTS, line, f"a sample over {event.interval_s} s")
        for directed, sent, reserved in event.links:
            number = int(directed)
            if not 0 <= number < topology.n_directed:
                yield Finding(EVENTS, line, f"directed link {number} does not exist")
                continue
            capacity = topology.capacity_bps[number // 2]
            if reserved > capacity or reserved < 0:
                message = (
                    f"{reserved:.0f} bit/s reserved on {topology.link(number)}, capacity {capacity}"
                )
                yield Finding(EVENTS, line, message)
            if not 0 <= sent <= capacity * (1 + SAMPLE_SLACK):
                message = f"{sent:.0f} bit/s sent on {topology.link(number)}, capacity {capacity}"
                yield Finding(EVENTS, line, message)


# -- slots, memory and links at every instant


Amounts = Callable[[Change], Pairs]


@dataclass
class _Load:
    """One resource: what is taken of it now, by whom, and whether that was already reported."""

    taken: int = 0
    by: dict[str, int] = field(default_factory=dict)
    over: bool = False


def _booked(history: History) -> list[Change]:
    """The calendar as changes in order of time; what ends at an instant ends before what begins."""
    out = []
    for one in bookings(history):
        held = (one.vms_on, one.links, one.tier)
        out.append(Change(one.start_s, one.line, one.job_id, 1, *held))
        if one.end_s is not None:
            out.append(Change(one.end_s, one.line, one.job_id, -1, *held))
    return sorted(out, key=lambda change: (change.t, change.sign, change.line))


def _over(
    changes: Iterable[Change],
    amounts: Amounts,
    capacity: Callable[[int], int],
    say: Callable[[int, int, int], str],
) -> Iterator[Finding]:
    """One finding each time a resource goes from fitting to not fitting."""
    loads: dict[int, _Load] = {}
    for change in changes:
        for resource, amount in amounts(change):
            load = loads.setdefault(resource, _Load())
            load.taken += change.sign * amount
            if change.sign > 0:
                load.by[change.job_id] = amount
            else:
                load.by.pop(change.job_id, None)
            over = load.taken > capacity(resource)
            if over and not load.over:
                jobs = ", ".join(sorted(load.by))
                what = say(resource, load.taken, capacity(resource))
                yield Finding(EVENTS, change.line, f"at {change.t:.6g} s {what} (jobs {jobs})")
            load.over = over


def slots(history: History) -> Iterator[Finding]:
    """The VMs of each tier against the servers' slots; a lease's VM takes one for each core."""
    each = {job_id: job.slots_per_vm for job_id, job in history.jobs.items()}
    what = "VMs" if all(n == 1 for n in each.values()) else "VM slots"
    yield from _on_servers(history, history.topology.slots, each, what, "slots")


def memory(history: History) -> Iterator[Finding]:
    """The memory of all VMs against the servers'."""
    each = {job_id: job.memory_per_vm_mib for job_id, job in history.jobs.items()}
    yield from _on_servers(history, history.topology.memory_mib or [], each, "MiB", "MiB")


def has_memory(history: History) -> str | None:
    return None if history.topology.memory_mib is not None else "memory limits nothing here"


def _on_servers(
    history: History, has: Sequence[int], each: Mapping[str, int], taken: str, unit: str
) -> Iterator[Finding]:
    topology = history.topology

    def capacity(server: int) -> int:
        return has[server] if 0 <= server < len(has) else 0

    def say(word: str) -> Callable[[int, int, int], str]:
        return lambda server, amount, room: (
            f"{amount} {taken} {word} "
            f"{topology.node(server) if 0 <= server < topology.n_nodes else server}, "
            f"which has {room} {unit}"
        )

    def amounts(change: Change) -> Pairs:
        return [(server, n * each[change.job_id]) for server, n in change.vms_on]

    ran, booked = list(occupied(history)), _booked(history)
    for tier in sorted({change.tier for change in (*ran, *booked)}):
        where = "on" if tier == "foreground" else f"in the {tier} of"
        for changes, word in ((ran, "run"), (booked, "are booked")):
            mine = (change for change in changes if change.tier == tier)
            yield from _over(mine, amounts, capacity, say(f"{word} {where}"))


def links(history: History) -> Iterator[Finding]:
    topology = history.topology

    def capacity(directed: int) -> int:
        return topology.capacity_bps[directed // 2] if 0 <= directed < topology.n_directed else 0

    def say(word: str) -> Callable[[int, int, int], str]:
        return lambda directed, taken, has: (
            f"{taken} bit/s are {word} on "
            f"{topology.link(directed) if 0 <= directed < topology.n_directed else directed}, "
            f"which carries {has} bit/s"
        )

    yield from _over(occupied(history), lambda c: c.links, capacity, say("in use"))
    yield from _over(_booked(history), lambda c: c.links, capacity, say("booked"))


def returned(history: History) -> Iterator[Finding]:
    """At the end every server and every link is as empty as at the beginning."""
    running: dict[str, int] = {}
    left: dict[tuple[str, int], int] = {}
    for change in occupied(history):
        tier = change.tier
        for kind, pairs in ((f"{tier} slot", change.vms_on), ("link", change.links)):
            for resource, amount in pairs:
                key = (kind, resource)
                left[key] = left.get(key, 0) + change.sign * amount
        if change.sign > 0:
            running[change.job_id] = change.line
        else:
            running.pop(change.job_id, None)
    n_slots = sum(amount for (kind, _), amount in left.items() if kind != "link")
    n_links = sum(kind == "link" and amount != 0 for (kind, _), amount in left.items())
    if running or any(left.values()):
        first = min(running.values(), default=None)
        yield Finding(
            EVENTS,
            first,
            f"at the end {n_slots} VM slots and bandwidth on {n_links} directed links are still "
            f"taken by {', '.join(sorted(running)) or 'nobody'}",
        )
    for booking in bookings(history):
        if booking.end_s is None and booking.job_id not in running:
            yield Finding(
                EVENTS, booking.line, f"the reservation of {booking.job_id} was never given back"
            )
