"""Capacity: placements, hoses and estimates; slots, memory and links never beyond what there is.

What a job holds is replayed from its events in two independent ways.

*Occupied*: what runs, in the order of the file. *Booked*: the calendar of reservations, future
ones included, as half-open intervals of time. Both must fit at every instant.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from testbed import events
from testbed.results.audit.history import Found, History, JobHistory, about
from testbed.results.folder import EVENTS

Pairs = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Hold:
    """VMs on servers and bit/s on directed links that a job takes.

    The VMs are of ``tier``: each has as many slots as the servers have.
    """

    vms_on: Pairs = ()
    links: Pairs = ()
    tier: str = "foreground"

    def changed(self, event: events.Event) -> Hold:
        """With those of its values that the event has."""
        given = {key: getattr(event, key) for key in vars(self) if hasattr(event, key)}
        return replace(self, **given)


@dataclass(frozen=True)
class Change:
    """At ``t`` a job takes (``sign`` 1) or gives back (-1) a hold."""

    t: float
    event: events.Event
    job_id: str
    sign: int
    hold: Hold


@dataclass(frozen=True)
class Booking:
    """``[start_s, end_s)``; ``end_s`` None: it was never given back."""

    start_s: float
    end_s: float | None
    event: events.Event
    hold: Hold


_GIVING = (events.JobPreempted, events.JobRequeued, events.JobEnded)
_TAKING = (events.JobStarted, events.JobResumed, events.JobTierSwitched, events.JobMigrated)
_HOLDING = (events.JobReserved, *_TAKING[1:], events.JobRescaled, events.JobRerooted)


def occupied(history: History) -> Iterator[Change]:
    """Changes of what running jobs occupy, in the order of the file."""
    placed: dict[str, Hold] = {}
    held: dict[str, Hold] = {}
    for event in history.events:
        job_id = getattr(event, "job_id", "")
        if isinstance(event, _HOLDING):
            placed[job_id] = placed.get(job_id, Hold()).changed(event)
        takes = isinstance(event, (*_TAKING, events.JobRescaled)) and job_id in placed
        takes |= isinstance(event, events.JobRerooted) and job_id in held
        ends = isinstance(event, _GIVING)
        if job_id in held and (takes or ends):
            yield Change(event.t, event, job_id, -1, held.pop(job_id))
        if takes:
            held[job_id] = placed[job_id]
            yield Change(event.t, event, job_id, 1, held[job_id])


def stays(history: History) -> Iterator[tuple[Change, float | None]]:
    """Every hold as it was taken, and until when (None: the end of the run), by release."""
    running: dict[str, Change] = {}
    for change in occupied(history):
        if change.sign > 0:
            running[change.job_id] = change
        else:
            yield running.pop(change.job_id), change.t
    yield from ((change, None) for change in running.values())


def bookings(history: History) -> list[tuple[str, Booking]]:
    """Every job's reservations as intervals, in order of the lines that made them."""
    out = [(job.job_id, one) for job in history.jobs.values() for one in _bookings(job)]
    return sorted(out, key=lambda own: history.lines[id(own[1].event)])


def _bookings(job: JobHistory) -> Iterator[Booking]:
    """One job's intervals: each begins with a reservation or a change and ends at the next one."""
    now: Booking | None = None
    last: Booking | None = None
    for event in job.events:
        after = now
        match event:
            case events.JobReserved():
                after = Booking(event.start_s, event.end_s, event, Hold().changed(event))
            case events.JobMigrated():
                after = Booking(event.t, event.end_s, event, Hold().changed(event))
            case events.JobRescaled() | events.JobRerooted() if now is not None:
                begin_s = max(event.t, now.start_s)
                after = Booking(begin_s, now.end_s, event, now.hold.changed(event))
            case events.JobTierSwitched() if now is not None:
                after = Booking(event.t, None, event, now.hold.changed(event))
            case events.JobResumed() if last is not None:
                after = Booking(event.t, event.end_s, event, last.hold.changed(event))
            case events.JobShortened() if now is not None:
                now = after = replace(now, end_s=event.until_s)
            case events.JobPreempted() | events.JobRequeued() | events.JobEnded():
                last, after = now, None
            case _:
                pass
        if now is not None and after is not now:
            end_s = event.t if now.end_s is None else min(now.end_s, event.t)
            if end_s > now.start_s:
                yield replace(now, end_s=end_s)
        now = after
    if now is not None:
        yield now


# -- reservations against hoses, estimates, samples

SAMPLE_SLACK = 0.05
ROUNDING = 1e-5
"""Of rates on the wire, whole bit/s, given in bits of the experiment."""
"""A counter's interval and a limiter's burst are not exact: a sample may show 5 % too much."""
PACKET_BITS = 32_768 * 8
"""A slow VM's packet: for each behind a link, one may be sent beyond the rate after a pause."""
BUCKET_PACKETS = 2
"""Packets of a VM beyond its rate: one that counts whole in a sample, and one in the bucket."""


def placements(history: History) -> Found:
    """Every VM asked for is on a server below the tree's root, each server named once."""
    for job in history.requested:
        for event in job.events:
            if isinstance(event, events.JobReserved | events.JobMigrated):
                n_vms = job.request["n_vms"]
                for wrong in history.topology.misplaced(event.root, event.vms_on, n_vms):
                    yield event, f"{job.job_id}: {wrong}"


def hoses(history: History) -> Found:
    for job in history.jobs.values():
        yield from _hose_findings(history, job)


def _hose_findings(history: History, job: JobHistory) -> Found:
    root, rate_bps = -1, 0
    vms: Pairs = ()
    for event in job.events:
        match event:
            case events.JobReserved():
                root, vms, rate_bps = event.root, event.vms_on, event.rate_bps
            case events.JobMigrated():
                root, vms = event.root, event.vms_on
            case events.JobRerooted():
                root = event.root
            case events.JobRescaled():
                rate_bps = event.rate_bps
            case events.JobStarted() if event.rate_bps != rate_bps:
                rates = f"starts at {event.rate_bps} bit/s, reserved are {rate_bps}"
                yield event, f"{job.job_id} {rates}"
                continue
            case _:
                continue
        # A placement that makes no sense has its own finding.
        if job.request and not history.topology.misplaced(root, vms, job.request["n_vms"]):
            need = history.topology.hose(root, vms, rate_bps)
            for wrong in _differences(history, event.links, need):
                yield event, f"{job.job_id}: {wrong}"


def _differences(history: History, links: Pairs, need: Mapping[int, int]) -> Iterator[str]:
    topology = history.topology
    for directed, times in Counter(directed for directed, _ in links).items():
        yield from [f"directed link {directed} is named twice"] * (times - 1)
    given = {directed: int(bps) for directed, bps in links}
    for directed in sorted({*given, *need}):
        has, wants = given.get(directed, 0), need.get(directed, 0)
        if has != wants:
            known = 0 <= directed < topology.n_directed
            name = topology.link(directed) if known else f"directed link {directed}"
            yield f"{has} bit/s reserved on {name}, its hose needs {wants}"


def estimates(history: History) -> Found:
    """The estimate is p·b/b', p where nothing was scaled down, and none for best effort.

    A job with a profile has the time of the option it is given as its estimate.
    """
    for request, event in history.reserved():
        asked, granted = request["bandwidth_bps"], event.rate_bps
        best_effort = granted == 0 and asked > 0 and request["kind"] != "compute"
        if best_effort or event.estimate_s is None:
            if not (best_effort and event.estimate_s is None):
                stated = f"estimate {event.estimate_s} s at {granted} bit/s of {asked}"
                yield event, f"{event.job_id}: {stated}"
            continue
        factor = asked / granted if 0 < granted < asked else 1.0
        rule, due_s = "p·b/b'", request["duration_s"] * factor
        if request.get("profile"):
            rule, due_s = "its profile's time", _of_profile(request["profile"]["options"], granted)
        if not (about(event.estimate_s, due_s) and about(due_s, event.estimate_s)):
            stated = f"estimate {event.estimate_s:.6g} s, {rule} is {due_s:.6g} s"
            yield event, f"{event.job_id}: {stated}"


def _of_profile(options: list[list[float]], granted: float) -> float:
    """The time of a profile's option; between two a straight line, below the least p·b/b'."""
    least_bps, longest_s = options[0]
    if granted < least_bps:
        return longest_s * least_bps / granted if granted else 0.0
    for (low, slow), (high, fast) in pairwise(options):
        if granted <= high:
            return slow - (slow - fast) * (granted - low) / (high - low)
    return options[-1][1]


def samples(history: History) -> Found:
    """Every sample is of a link that exists and shows no more than the link can carry."""
    topology = history.topology
    for event, vms, _ in sampled(history):
        if event.interval_s <= 0:
            yield event, f"a sample over {event.interval_s} s"
            continue
        for directed, sent, reserved in event.links:
            number = int(directed)
            if not 0 <= number < topology.n_directed:
                yield event, f"directed link {number} does not exist"
                continue
            capacity = topology.capacity_bps[number // 2]
            where = f"on {topology.link(number)}, capacity {capacity}"
            if not 0 <= reserved <= capacity * (1 + ROUNDING):
                yield event, f"{reserved:.0f} bit/s reserved {where}"
            beside = vms.get(number, 0.0) * _packet_bits(history) / event.interval_s
            if not 0 <= sent <= capacity * (1 + SAMPLE_SLACK) + beside:
                yield event, f"{sent:.0f} bit/s sent {where}"


def sampled(history: History) -> Iterator[tuple[events.LinkSample, Mapping[int, float], bool]]:
    """Every sample, how many VMs had a reservation on each directed link then, and whether a job
    was rescaled since the sample before.
    """
    rescaled = False
    changes: dict[int, list[Change]] = defaultdict(list)
    for change in occupied(history):
        changes[id(change.event)].append(change)
    rates: dict[str, int] = {}
    behind: dict[str, Mapping[int, float]] = {}
    for event in history.events:
        job_id = getattr(event, "job_id", "")
        rates[job_id] = getattr(event, "rate_bps", None) or rates.get(job_id, 0)
        for change in changes.get(id(event), ()):
            if change.sign > 0:
                rate_bps = max(1, rates[job_id])
                behind[job_id] = {link: bps / rate_bps for link, bps in change.hold.links}
            else:
                behind.pop(job_id, None)
        if isinstance(event, events.LinkSample):
            vms: dict[int, float] = defaultdict(float)
            for of_job in behind.values():
                for link, n in of_job.items():
                    vms[link] += n
            yield event, vms, rescaled
        if isinstance(event, events.LinkSample | events.JobRescaled):
            rescaled = isinstance(event, events.JobRescaled)


def strict(history: History) -> Found:
    """On no directed link do tenants send more than they reserve, over two samples in a row.

    One sample may be a bucket's. Nothing is proved of samples in which a reservation was changed.
    """
    before: dict[int, tuple[float, float]] = {}
    for event, vms, rescaled in sampled(history):
        length_s = event.interval_s
        now = {int(k): (sent * length_s, held * length_s) for k, sent, held in event.links}
        for link in [] if rescaled else sorted(before.keys() & now.keys()):
            sent_bits, most_bits = map(sum, zip(before[link], now[link], strict=True))
            beside = BUCKET_PACKETS * vms.get(link, 0.0) * _packet_bits(history)
            if sent_bits > most_bits * (1 + SAMPLE_SLACK) + beside:
                where = f"on {history.topology.link(link)}, over two samples"
                yield event, f"{sent_bits:.0f} bits sent of {most_bits:.0f} reserved {where}"
        before = {} if rescaled else now


def _packet_bits(history: History) -> float:
    """A packet on the wire in bits of the experiment, for a second of its time."""
    resolved: Any = history.resolved
    try:
        scale = resolved["scale"]
        return PACKET_BITS * float(scale["time"]) / float(scale["rate"])
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return PACKET_BITS  # the file itself is another check's


# -- slots, memory and links at every instant


def _booked(history: History) -> list[Change]:
    """The calendar as changes in order of time; what ends at an instant ends before what begins."""
    out = []
    for job_id, one in bookings(history):
        out.append(Change(one.start_s, one.event, job_id, 1, one.hold))
        if one.end_s is not None:
            out.append(Change(one.end_s, one.event, job_id, -1, one.hold))
    return sorted(out, key=lambda c: (c.t, c.sign, history.lines[id(c.event)]))


def _over(
    changes: Iterable[Change],
    amounts: Callable[[Change], Pairs],
    has: Sequence[int],
    name: Callable[[int], str],
    say: str,
) -> Found:
    """One finding each time a resource goes from fitting to not fitting.

    ``say`` has a place for the amount, the resource's name and what it has.
    """
    taken: Counter[int] = Counter()
    holders: dict[int, set[str]] = defaultdict(set)
    over: set[int] = set()
    for change in changes:
        for resource, amount in amounts(change):
            room = has[resource] if 0 <= resource < len(has) else 0
            taken[resource] += change.sign * amount
            if change.sign > 0:
                holders[resource].add(change.job_id)
            else:
                holders[resource].discard(change.job_id)
            if taken[resource] <= room:
                over.discard(resource)
            elif resource not in over:
                over.add(resource)
                jobs = ", ".join(sorted(holders[resource]))
                what = say.format(taken[resource], name(resource), room)
                yield change.event, f"at {change.t:.6g} s {what} (jobs {jobs})"


def slots(history: History) -> Found:
    """The VMs of each tier against the servers' slots; a lease's VM takes one for each core."""
    each = {job_id: job.slots_per_vm for job_id, job in history.jobs.items()}
    what = "VMs" if all(n == 1 for n in each.values()) else "VM slots"
    yield from _on_servers(history, history.topology.slots, each, what, "slots")


def memory(history: History) -> Found:
    """The memory of all VMs against the servers'."""
    each = {job_id: int(job.request.get("memory_mib", 0)) for job_id, job in history.jobs.items()}
    yield from _on_servers(history, history.topology.memory_mib or [], each, "MiB", "MiB")


def has_memory(history: History) -> str | None:
    return None if history.topology.memory_mib is not None else "memory limits nothing here"


def _on_servers(
    history: History, has: Sequence[int], each: Mapping[str, int], taken: str, unit: str
) -> Found:
    def amounts(change: Change) -> Pairs:
        return [(server, n * each[change.job_id]) for server, n in change.hold.vms_on]

    ran, booked = list(occupied(history)), _booked(history)
    for tier in sorted({change.hold.tier for change in (*ran, *booked)}):
        where = "on" if tier == "foreground" else f"in the {tier} of"
        for changes, word in ((ran, "run"), (booked, "are booked")):
            mine = (change for change in changes if change.hold.tier == tier)
            say = f"{{}} {taken} {word} {where} {{}}, which has {{}} {unit}"
            yield from _over(mine, amounts, has, history.topology.node, say)


def links(history: History) -> Found:
    topology = history.topology
    has = [capacity for capacity in topology.capacity_bps for _way in ("up", "down")]
    for changes, word in ((occupied(history), "in use"), (_booked(history), "booked")):
        say = f"{{}} bit/s are {word} on {{}}, which carries {{}} bit/s"
        yield from _over(changes, lambda change: change.hold.links, has, topology.link, say)


def returned(history: History) -> Found:
    running: dict[str, events.Event] = {}
    n_slots, on_links, on_servers = 0, Counter[int](), Counter[tuple[str, int]]()
    for change in occupied(history):
        for server, n in change.hold.vms_on:
            n_slots += change.sign * n
            on_servers[change.hold.tier, server] += change.sign * n
        for link, bps in change.hold.links:
            on_links[link] += change.sign * bps
        if change.sign > 0:
            running[change.job_id] = change.event
        else:
            running.pop(change.job_id, None)
    n_links = sum(amount != 0 for amount in on_links.values())
    if running or n_links or any(on_servers.values()):
        first = min((history.lines[id(event)] for event in running.values()), default=None)
        left = f"{n_slots} VM slots and bandwidth on {n_links} directed links"
        holders = ", ".join(sorted(running)) or "nobody"
        yield (EVENTS, first), f"at the end {left} are still taken by {holders}"
    for job_id, booking in bookings(history):
        if booking.end_s is None and job_id not in running:
            yield booking.event, f"the reservation of {job_id} was never given back"
