"""Capacity: placements, hoses and estimates; slots, memory and links never
beyond what there is.

What a job holds is replayed from its events in two independent ways.

*Occupied*: what runs, in the order of the file. *Booked*: the calendar of
reservations, future ones included, as half-open intervals of time. Both must
fit at every instant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed import events
from testbed.audit.history import (
    AuditedHold,
    Findings,
    History,
    JobHistory,
    Pairs,
    Topology,
    about,
    once,
)
from testbed.record.folder import EVENTS


class Change(NamedTuple):
    """At ``t`` an event's job takes (``sign`` 1) or gives back (-1) a hold."""

    t: float
    event: events.JobEvent
    sign: int
    hold: AuditedHold


class BookedHold(NamedTuple):
    """A hold of an event's job in ``[start_s, end_s)``.

    ``end_s`` None: it was never given back.
    """

    start_s: float
    end_s: float | None
    event: events.JobEvent
    hold: AuditedHold


NOTHING = AuditedHold()

_GIVING = frozenset(
    {events.JobPreempted, events.JobRequeued, events.JobEnded}
)
_MOVING = frozenset(
    {events.JobResumed, events.JobTierSwitched, events.JobMigrated}
)
_TAKING = _MOVING | {events.JobStarted, events.JobRescaled}
_PLACING = _MOVING | {
    events.JobReserved,
    events.JobRescaled,
    events.JobRerooted,
}
_BOOKING = (_PLACING | _GIVING) | {events.JobShortened}


@once
def occupied(history: History) -> list[Change]:
    """Changes of what running jobs occupy, in the order of the file."""
    changes: list[Change] = []
    placed: dict[str, AuditedHold] = {}
    held: dict[str, AuditedHold] = {}
    for event in history.events:
        if not isinstance(event, events.JobEvent):
            continue
        job_id = event.job_id
        kind = type(event)
        if kind in _PLACING:
            placed[job_id] = placed.get(job_id, NOTHING).changed(event)
        takes = kind in _TAKING and job_id in placed
        # Before its start a job is rerooted in the calendar alone: it
        # occupies nothing.
        if kind is events.JobRerooted:
            takes = job_id in held
        # What it held is given back in full first, so that a change can
        # never lose a part.
        if (takes or kind in _GIVING) and job_id in held:
            before = held.pop(job_id)
            changes.append(Change(event.t, event, sign=-1, hold=before))
        if takes:
            held[job_id] = placed[job_id]
            changes.append(
                Change(event.t, event, sign=1, hold=placed[job_id])
            )
    return changes


@once
def bookings(history: History) -> list[BookedHold]:
    """Every job's reservations as intervals, in order of the lines that made
    them.
    """
    booked: list[BookedHold] = []
    for job in history.jobs.values():
        booked += _bookings(job)
    # Several may begin at one instant: the order of the file is theirs.
    lines = history.lines
    booked.sort(key=lambda booking: lines[id(booking.event)])
    return booked


def _bookings(job: JobHistory) -> Iterator[BookedHold]:
    """One job's intervals: each begins with a reservation or a change and ends
    at the next one.
    """
    now: BookedHold | None = None
    last: BookedHold | None = None
    for event in job.events:
        if not isinstance(event, events.JobEvent):
            continue
        kind = type(event)
        if kind not in _BOOKING:
            continue
        # A shortened reservation keeps its hold and ends earlier: no new
        # interval begins.
        if isinstance(event, events.JobShortened):
            if now is not None:
                now = now._replace(end_s=event.until_s)
            continue
        after: BookedHold | None = None
        if kind not in _GIVING:
            after = _booked_by(event, now, last) or now
        if now is not None and after is not now:
            yield from _ended_at(now, event.t)
        # What is resumed is what was held before the preemption.
        if kind in _GIVING:
            last = now
        now = after
    if now is not None:
        yield now


def _ended_at(booking: BookedHold, t: float) -> Iterator[BookedHold]:
    """The interval up to an instant; none where it had not begun."""
    end_s = t
    if booking.end_s is not None:
        end_s = min(booking.end_s, t)
    if end_s > booking.start_s:
        yield booking._replace(end_s=end_s)


def _booked_by(
    event: events.JobEvent, now: BookedHold | None, last: BookedHold | None
) -> BookedHold | None:
    """The interval that an event begins; None where it begins none.

    ``now`` is the current one, ``last`` the one before a preemption.
    """
    if isinstance(event, events.JobReserved):
        hold = NOTHING.changed(event)
        return BookedHold(event.start_s, event.end_s, event, hold)
    t = event.t
    if isinstance(event, events.JobMigrated):
        return BookedHold(t, event.end_s, event, NOTHING.changed(event))
    before = last if isinstance(event, events.JobResumed) else now
    if before is None:
        return None
    hold = before.hold.changed(event)
    if isinstance(event, events.JobResumed):
        return BookedHold(t, event.end_s, event, hold)
    if isinstance(event, events.JobTierSwitched):
        return BookedHold(t, None, event, hold)
    # Rescaled or rerooted; what is booked ahead may change before it begins.
    return BookedHold(max(t, before.start_s), before.end_s, event, hold)


# -- reservations against hoses, estimates, samples

LARGEST_SUM = 2.0**62
"""Sums below this are exact in 64 bits."""
SAMPLE_SLACK = 0.05
"""Share by which a sample may show too much: a counter's interval and a
limiter's burst are not exact.
"""
ROUNDING = 1e-5
"""Of rates on the wire, whole bit/s, given in bits of the experiment."""
PACKET_BITS = 32_768 * 8
"""A slow VM's packet: for each behind a link, one may be sent beyond the rate
after a pause.
"""
BUCKET_PACKETS = 2
"""Packets of a VM beyond its rate: one that counts whole in a sample, and one
in the bucket.
"""


def placements(history: History) -> Findings:
    """Every VM asked for is on a server below the tree's root, each server
    named once.
    """
    misplaced = history.topology.misplaced
    for job in history.requested:
        n_vms = job.request["n_vms"]
        for event in job.events:
            if isinstance(event, events.JobReserved | events.JobMigrated):
                for wrong in misplaced(event.root, event.vms_on, n_vms):
                    yield event, f"{job.job_id}: {wrong}"


def hoses(history: History) -> Findings:
    for job in history.jobs.values():
        yield from _hose_findings(history, job)


def _hose_findings(history: History, job: JobHistory) -> Findings:
    root = -1
    rate_bps = 0
    vms: Pairs = ()
    for event in job.events:
        if isinstance(event, events.JobReserved):
            root = event.root
            vms = event.vms_on
            rate_bps = event.rate_bps
        elif isinstance(event, events.JobMigrated):
            root = event.root
            vms = event.vms_on
        elif isinstance(event, events.JobRerooted):
            root = event.root
        elif isinstance(event, events.JobRescaled):
            rate_bps = event.rate_bps
        elif isinstance(event, events.JobStarted):
            if event.rate_bps != rate_bps:
                starts = f"{job.job_id} starts at {event.rate_bps} bit/s"
                yield event, f"{starts}, reserved are {rate_bps}"
            continue
        else:
            continue
        # Best effort reserves nothing, and says so with an empty list.
        if not rate_bps and not event.links:
            continue
        # A placement that makes no sense has its own finding.
        if not job.request:
            continue
        n_vms = job.request["n_vms"]
        if not history.topology.misplaced(root, vms, n_vms):
            need = history.topology.hose(root, vms, rate_bps)
            for wrong in _differences(history, event.links, need):
                yield event, f"{job.job_id}: {wrong}"


def _differences(
    history: History, links: Pairs, need: Mapping[int, int]
) -> Iterator[str]:
    topology = history.topology
    reserved: dict[int, int] = {}
    for directed, bps in links:
        if directed in reserved:
            yield f"directed link {directed} is named twice"
        reserved[directed] = int(bps)
    # Nearly always equal: single links are compared only to name the fault.
    if reserved == need:
        return
    for directed in sorted({*reserved, *need}):
        has = reserved.get(directed, 0)
        wants = need.get(directed, 0)
        if has != wants:
            name = f"directed link {directed}"
            if 0 <= directed < topology.n_directed:
                name = topology.link(directed)
            yield f"{has} bit/s reserved on {name}, its hose needs {wants}"


def estimates(history: History) -> Findings:
    """The estimate is p·b/b', p where nothing was scaled down, and none for
    best effort.

    A job with a profile has the time of the option it is given as its estimate.
    """
    for request, event in history.reserved():
        wrong = _wrong_estimate(request, event)
        if wrong:
            yield event, f"{event.job_id}: {wrong}"


def _wrong_estimate(
    request: Mapping[str, Any], event: events.JobReserved
) -> str:
    asked = request["bandwidth_bps"]
    granted = event.rate_bps
    computes = request["kind"] == "compute"
    # 0 granted of something asked is best effort; a job that computes asks
    # for nothing of the network.
    best_effort = granted == 0 and asked > 0 and not computes
    stated_s = event.estimate_s
    if best_effort != (stated_s is None):
        return f"estimate {stated_s} s at {granted} bit/s of {asked}"
    if stated_s is None:
        return ""
    rule = "p·b/b'"
    due_s = request["duration_s"]
    if 0 < granted < asked:
        due_s *= asked / granted
    if request.get("profile"):
        rule = "its profile's time"
        due_s = _of_profile(request["profile"]["options"], granted)
    # Both ways: an estimate may be neither above nor below.
    if about(stated_s, due_s) and about(due_s, stated_s):
        return ""
    return f"estimate {stated_s:.6g} s, {rule} is {due_s:.6g} s"


def _of_profile(options: list[list[float]], granted: float) -> float:
    """The time of a profile's option, in s.

    Between two options it is interpolated linearly, below the least it is
    p·b/b'.
    """
    least_bps, longest_s = options[0]
    if granted < least_bps:
        if granted:
            return longest_s * least_bps / granted
        return 0.0
    for (low, slow), (high, fast) in pairwise(options):
        if granted <= high:
            return slow - (slow - fast) * (granted - low) / (high - low)
    return options[-1][1]


def samples(history: History) -> Findings:
    """Every sample is of a link that exists and shows no more than the link can
    carry.
    """
    topology = history.topology
    packet_bits = _packet_bits(history)
    for event, vms, _ in sampled(history):
        if event.interval_s <= 0:
            yield event, f"a sample over {event.interval_s} s"
            continue
        packet_bps = packet_bits / event.interval_s
        for directed, sent, reserved in event.links:
            number = int(directed)
            beside = vms.get(number, 0.0) * packet_bps
            if not 0 <= number < topology.n_directed:
                yield event, f"directed link {number} does not exist"
                continue
            capacity = topology.carries_bps(number)
            if not 0 <= reserved <= capacity * (1 + ROUNDING):
                wrong = f"{reserved:.0f} bit/s reserved"
                yield event, f"{wrong} {_on(topology, number)}"
            if not 0 <= sent <= capacity * (1 + SAMPLE_SLACK) + beside:
                wrong = f"{sent:.0f} bit/s sent"
                yield event, f"{wrong} {_on(topology, number)}"


def _on(topology: Topology, directed: int) -> str:
    """The end of a sentence on a directed link's rate."""
    capacity = topology.carries_bps(directed)
    return f"on {topology.link(directed)}, capacity {capacity}"


def sampled(
    history: History,
) -> Iterator[tuple[events.LinkSample, Mapping[int, float], bool]]:
    """Every sample, how many VMs had a reservation on each directed link then,
    and whether a job was rescaled since the sample before.
    """
    changes: dict[int, list[Change]] = defaultdict(list)
    for change in occupied(history):
        changes[id(change.event)].append(change)
    rescaled = False
    rates: dict[str, int] = {}
    vms_of: dict[str, Mapping[int, float]] = {}
    for event in history.events:
        if isinstance(event, events.LinkSample):
            yield event, _summed(vms_of), rescaled
            rescaled = False
            continue
        if not isinstance(event, events.JobEvent):
            continue
        job_id = event.job_id
        # An event without a rate leaves the last one.
        rate_bps = getattr(event, "rate_bps", None) or rates.get(job_id, 0)
        rates[job_id] = rate_bps
        for change in changes.get(id(event), ()):
            vms_of.pop(job_id, None)
            if change.sign > 0:
                vms_of[job_id] = _vms_behind(change.hold, rate_bps)
        if isinstance(event, events.JobRescaled):
            rescaled = True


def _vms_behind(hold: AuditedHold, rate_bps: int) -> dict[int, float]:
    """VMs on the smaller side of each directed link: its hose over a VM's rate."""
    return {link: bps / max(1, rate_bps) for link, bps in hold.links}


def _summed(vms_of: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
    vms: dict[int, float] = defaultdict(float)
    for of_job in vms_of.values():
        for link, n in of_job.items():
            vms[link] += n
    return vms


def strict(history: History) -> Findings:
    """On no directed link do tenants send more than they reserve, over two
    samples in a row.

    One sample may be a bucket's. Nothing is proved of samples in which a
    reservation was changed.
    """
    beside_bits = BUCKET_PACKETS * _packet_bits(history)
    before: dict[int, tuple[float, float]] = {}
    for event, vms, rescaled in sampled(history):
        # Which part of the sample was under which rate is not known.
        if rescaled:
            before = {}
            continue
        now = _bits_on_links(event)
        for link in sorted(before.keys() & now.keys()):
            sent_bits = before[link][0] + now[link][0]
            most_bits = before[link][1] + now[link][1]
            beside = vms.get(link, 0.0) * beside_bits
            if sent_bits > most_bits * (1 + SAMPLE_SLACK) + beside:
                name = history.topology.link(link)
                amounts = f"{sent_bits:.0f} bits sent of {most_bits:.0f}"
                yield (
                    event,
                    f"{amounts} reserved on {name}, over two samples",
                )
        before = now


def _bits_on_links(
    sample: events.LinkSample,
) -> dict[int, tuple[float, float]]:
    """Bits sent and bits reserved during a sample, by directed link."""
    length_s = sample.interval_s
    return {
        int(link): (sent * length_s, held * length_s)
        for link, sent, held in sample.links
    }


def _packet_bits(history: History) -> float:
    """A packet on the wire in bits of the experiment, for a second of its time."""
    scale = history.stated("scale")
    try:
        return PACKET_BITS * float(scale["time"]) / float(scale["rate"])
    except (LookupError, TypeError, ValueError, ArithmeticError):
        # The file itself is another check's.
        return PACKET_BITS


# -- slots, memory and links at every instant


@once
def _booked(history: History) -> list[Change]:
    """The calendar as changes in order of time.

    Intervals are half-open: what ends at an instant ends before what begins.
    """
    changes = []
    for start_s, end_s, event, hold in bookings(history):
        changes.append(Change(start_s, event, sign=1, hold=hold))
        if end_s is not None:
            changes.append(Change(end_s, event, sign=-1, hold=hold))
    # Stably: what begins at one instant stays in the order of the file.
    changes.sort(key=attrgetter("t", "sign"))
    return changes


def _over(
    changes: Sequence[Change],
    *,
    amounts: Callable[[AuditedHold], Pairs],
    per_job: Mapping[str, int],
    has: Sequence[int],
    name: Callable[[int], str],
    say: str,
) -> Findings:
    """One finding each time a resource goes from fitting to not fitting.

    A hold's ``amounts`` count ``per_job`` times. ``say`` has a place for the
    amount, the resource's name and what it has.
    """
    # The fast way decides; only where it fails or is unsure are findings
    # named.
    if _all_fit(changes, amounts, has, per_job):
        return
    resources: dict[int, _Resource] = {}
    for change in changes:
        for number, amount in amounts(change.hold):
            if number not in resources:
                # A resource that does not exist has no room: a placement on
                # it is a finding.
                exists = 0 <= number < len(has)
                resources[number] = _Resource(has[number] if exists else 0)
            resource = resources[number]
            if resource.take(change, amount * per_job[change.event.job_id]):
                jobs = ", ".join(sorted(resource.holders))
                message = say.format(
                    resource.taken, name(number), resource.room
                )
                yield (
                    change.event,
                    f"at {change.t:.6g} s {message} (jobs {jobs})",
                )


@dataclass
class _Resource:
    """A server's slots or memory, or a directed link's bandwidth, and the jobs
    that hold some of it.
    """

    room: int
    taken: int = 0
    holders: set[str] = field(default_factory=set)

    def take(self, change: Change, amount: int) -> bool:
        """Takes an amount, or gives it back; True where it fits no more."""
        was_over = self.taken > self.room
        self.taken += change.sign * amount
        if change.sign > 0:
            self.holders.add(change.event.job_id)
        else:
            self.holders.discard(change.event.job_id)
        return self.taken > self.room and not was_over


def _all_fit(
    changes: Sequence[Change],
    amounts: Callable[[AuditedHold], Pairs],
    has: Sequence[int],
    per_job: Mapping[str, int],
) -> bool:
    """True where no resource is ever beyond what it has; False where unsure.

    Nearly every run fits, and then no finding needs a name: all running sums
    are formed at once, as 64-bit integers, which are exact.
    """
    pairs = [amounts(change.hold) for change in changes]
    factors = [
        change.sign * per_job[change.event.job_id] for change in changes
    ]
    flat = chain.from_iterable(chain.from_iterable(pairs))
    try:
        table = np.fromiter(flat, dtype=np.int64).reshape(-1, 2)
        rooms = np.array(has, dtype=np.int64)
    except OverflowError:
        return False
    if len(table) == 0:
        return True
    most_times = max(map(abs, factors))
    if not _can_be_summed(table, most_times, n_resources=len(has)):
        return False
    resources = table[:, 0]
    signed = table[:, 1] * np.repeat(factors, list(map(len, pairs)))
    # Stably: the changes of one resource follow each other in their order.
    order = np.argsort(resources, kind="stable")
    resources = resources[order]
    sums = _running_sums(resources, signed[order])
    return bool((sums <= rooms[resources]).all())


def _can_be_summed(
    table: NDArray[np.int64], most_times: int, *, n_resources: int
) -> bool:
    """True if all resources exist and no sum of amounts can overflow."""
    if table.min() < 0 or table[:, 0].max() >= n_resources:
        return False
    # As a float, which may lose digits but does not wrap around.
    most = float(table[:, 1].max()) * most_times * len(table)
    return most < LARGEST_SUM


def _running_sums(
    groups: NDArray[np.int64], amounts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Cumulative sums that start anew with each group of equal numbers."""
    sums = np.cumsum(amounts)
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    # The sum before a group's first amount is the other groups'.
    before = np.concatenate(([0], sums[first[1:] - 1]))
    sizes = np.diff(np.append(first, len(groups)))
    running: NDArray[np.int64] = sums - np.repeat(before, sizes)
    return running


def slots(history: History) -> Findings:
    """The VMs of each tier against the servers' slots; a lease's VM takes one
    for each core.
    """
    per_job = {
        job_id: job.slots_per_vm for job_id, job in history.jobs.items()
    }
    vms = "VMs"
    if any(n != 1 for n in per_job.values()):
        vms = "VM slots"
    yield from _on_servers(
        history,
        has=history.topology.slots,
        per_job=per_job,
        taken=vms,
        unit="slots",
    )


def memory(history: History) -> Findings:
    """The memory of all VMs against the servers'."""
    per_job = {}
    for job_id, job in history.jobs.items():
        per_job[job_id] = int(job.request.get("memory_mib", 0))
    yield from _on_servers(
        history,
        has=history.topology.memory_mib or [],
        per_job=per_job,
        taken="MiB",
        unit="MiB",
    )


def needs_memory(history: History) -> str | None:
    if history.topology.memory_mib is None:
        return "memory limits nothing here"
    return None


def _on_servers(
    history: History,
    *,
    has: Sequence[int],
    per_job: Mapping[str, int],
    taken: str,
    unit: str,
) -> Findings:
    ran = occupied(history)
    booked = _booked(history)
    # The background's VMs do not take the foreground's slots: each tier has
    # as many.
    tiers = {change.hold.tier for change in chain(ran, booked)}
    for tier in sorted(tiers):
        where = "on" if tier == "foreground" else f"in the {tier} of"
        for changes, word in ((ran, "run"), (booked, "are booked")):
            in_tier = [
                change for change in changes if change.hold.tier == tier
            ]
            yield from _over(
                in_tier,
                amounts=attrgetter("vms_on"),
                per_job=per_job,
                has=has,
                name=history.topology.node,
                say=f"{{}} {taken} {word} {where} {{}}, which has {{}} {unit}",
            )


def links(history: History) -> Findings:
    topology = history.topology
    has = list(map(topology.carries_bps, range(topology.n_directed)))
    once_each = dict.fromkeys(history.jobs, 1)
    # Only the calendar shows a future that is booked beyond capacity and
    # never comes; only the order of the file shows a late kill that
    # overlaps the next job (decision 19).
    for changes, word in (
        (occupied(history), "in use"),
        (_booked(history), "booked"),
    ):
        yield from _over(
            changes,
            amounts=attrgetter("links"),
            per_job=once_each,
            has=has,
            name=topology.link,
            say=f"{{}} bit/s are {word} on {{}}, which carries {{}} bit/s",
        )


def returned(history: History) -> Findings:
    running: dict[str, Change] = {}
    for change in occupied(history):
        job_id = change.event.job_id
        if change.sign > 0:
            running[job_id] = change
        else:
            # What a job gives back is what it held: nothing else can be left.
            running.pop(job_id, None)
    if running:
        yield from _left(history, running)
    for booking in bookings(history):
        event = booking.event
        if booking.end_s is None and event.job_id not in running:
            held = f"the reservation of {event.job_id}"
            yield event, f"{held} was never given back"


def _left(history: History, running: Mapping[str, Change]) -> Findings:
    n_slots = 0
    links_taken: set[int] = set()
    for change in running.values():
        n_slots += sum(n for _, n in change.hold.vms_on)
        links_taken.update(link for link, bps in change.hold.links if bps)
    first = min(
        history.lines[id(change.event)] for change in running.values()
    )
    left = f"{n_slots} VM slots and bandwidth on {len(links_taken)} directed links"
    holders = ", ".join(sorted(running))
    yield (EVENTS, first), f"at the end {left} are still taken by {holders}"
