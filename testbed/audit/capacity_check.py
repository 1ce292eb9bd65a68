"""Capacity: placements, hoses and estimates are right, and slots, memory and
links are never taken beyond their capacity.

The holds of jobs are replayed from the events in two independent ways, and
both must fit at every instant. *Occupied*: the holds of running jobs, in the
order of the file. *Booked*: the calendar of reservations, future ones included,
as half-open intervals of time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
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
_hold = attrgetter("hold")
_sign = attrgetter("sign")
_job_id = attrgetter("event.job_id")

# Kinds of events by their effect on a job's hold and bookings.
_GIVES_BACK = frozenset(
    {events.JobPreempted, events.JobRequeued, events.JobEnded}
)
_NEW_NODES = frozenset(
    {events.JobResumed, events.JobTierSwitched, events.JobMigrated}
)
_OCCUPIES = _NEW_NODES | {events.JobStarted, events.JobRescaled}
_CHANGES_HOLD = _NEW_NODES | {
    events.JobReserved,
    events.JobRescaled,
    events.JobRerooted,
}
_CHANGES_BOOKING = (_CHANGES_HOLD | _GIVES_BACK) | {events.JobShortened}


@once
def occupied(history: History) -> list[Change]:
    """Holds that running jobs take and give back, in the order of the file."""
    changes: list[Change] = []
    placed: dict[str, AuditedHold] = {}
    held: dict[str, AuditedHold] = {}
    for event in history.events:
        if not isinstance(event, events.JobEvent):
            continue
        job_id = event.job_id
        kind = type(event)
        if kind in _CHANGES_HOLD:
            placed[job_id] = placed.get(job_id, NOTHING).changed(event)
        takes = kind in _OCCUPIES and job_id in placed
        # A job that is rerooted before its start occupies nothing yet: only
        # its booking changes.
        if kind is events.JobRerooted:
            takes = job_id in held
        # A changed hold is given back in full, then taken anew, so that no part
        # of it is lost.
        if (takes or kind in _GIVES_BACK) and job_id in held:
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
    """All jobs' reservations as intervals, in the order of their events in
    the file.
    """
    # By event, of which each begins one at most: times do not order those that
    # begin at one instant.
    begun: dict[int, BookedHold] = {}
    for job in history.jobs.values():
        for booking in _bookings(job):
            begun[id(booking.event)] = booking
    keys = filter(begun.__contains__, map(id, history.events))
    return list(map(begun.__getitem__, keys))


def _bookings(job: JobHistory) -> Iterator[BookedHold]:
    """One job's intervals: each begins with a reservation or a change and ends
    at the next one.
    """
    current: BookedHold | None = None
    given_back: BookedHold | None = None
    for event in job.events:
        if not isinstance(event, events.JobEvent):
            continue
        kind = type(event)
        if kind not in _CHANGES_BOOKING:
            continue
        # A shortened reservation keeps its hold and ends earlier: no new
        # interval begins.
        if isinstance(event, events.JobShortened):
            if current is not None:
                current = current._replace(end_s=event.until_s)
            continue
        after: BookedHold | None = None
        if kind not in _GIVES_BACK:
            after = _booking_from(event, current, given_back) or current
        if current is not None and after is not current:
            yield from _until(current, event.t)
        # Kept, as a job resumes with its hold before the preemption.
        if kind in _GIVES_BACK:
            given_back = current
        current = after
    if current is not None:
        yield current


def _until(booking: BookedHold, t: float) -> Iterator[BookedHold]:
    """The interval up to instant ``t``, in s; none if it had not begun by then."""
    end_s = t
    if booking.end_s is not None:
        end_s = min(booking.end_s, t)
    start_s, _, event, hold = booking
    if end_s > start_s:
        yield BookedHold(start_s, end_s, event, hold)


def _booking_from(
    event: events.JobEvent,
    current: BookedHold | None,
    given_back: BookedHold | None,
) -> BookedHold | None:
    """The interval that an event begins; None where it begins none.

    ``current`` is the interval until now, ``given_back`` the last one that was
    given back, which a resumed job takes again.
    """
    if isinstance(event, events.JobReserved):
        hold = NOTHING.changed(event)
        return BookedHold(event.start_s, event.end_s, event, hold)
    t = event.t
    if isinstance(event, events.JobMigrated):
        return BookedHold(t, event.end_s, event, NOTHING.changed(event))
    before = given_back if isinstance(event, events.JobResumed) else current
    if before is None:
        return None
    hold = before.hold.changed(event)
    if isinstance(event, events.JobResumed):
        return BookedHold(t, event.end_s, event, hold)
    if isinstance(event, events.JobTierSwitched):
        return BookedHold(t, None, event, hold)
    # Rescaled or rerooted, perhaps before the interval begins.
    return BookedHold(max(t, before.start_s), before.end_s, event, hold)


# -- reservations against hoses, estimates, samples

LARGEST_SUM = 2.0**62
"""Sums below this are exact in 64 bits."""
SAMPLE_SLACK = 0.05
"""Share by which a sample may exceed a rate: neither a counter's interval nor a
limiter's burst is exact.
"""
ROUNDING = 1e-5
"""Share by which a reserved rate may exceed a capacity: rates on the wire are
whole bit/s, and scaling them to the experiment's does not undo the rounding.
"""
PACKET_BITS = 32_768 * 8
"""Size of a slow VM's packet, in bits. After a pause, each VM behind a link may
send one of them beyond its rate.
"""
BUCKET_PACKETS = 2
"""Packets that a VM may send beyond its rate within two samples: one from the
token bucket, and one that began before the samples but is counted in them.
"""


def placements(history: History) -> Findings:
    """Every VM of a request is on a server below the tree's root, and no server
    is named twice.
    """
    misplaced = history.topology.misplaced
    for job in history.requested:
        n_vms = job.request["n_vms"]
        for event in job.events:
            if isinstance(event, events.JobReserved | events.JobMigrated):
                for wrong in misplaced(event.root, event.vms_on, n_vms):
                    yield event, f"{job.job_id}: {wrong}"


def hoses(history: History) -> Findings:
    """Reserved bandwidth on every link is exactly what the job's hose needs."""
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
        # A best-effort job reserves no bandwidth: its list of links is empty.
        if not rate_bps and not event.links:
            continue
        # A faulty placement has a finding of its own.
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
    """Faults of ``links``, the reserved bit/s, against ``need``, the hose's."""
    topology = history.topology
    reserved: dict[int, int] = {}
    for directed, bps in links:
        if directed in reserved:
            yield f"directed link {directed} is named twice"
        reserved[directed] = int(bps)
    # Nearly always equal: links are compared one by one only to name a fault.
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
    """Estimates of running times are p·b/b': duration p, b asked for, b' granted.

    They are p if b' is not below b, and absent for best effort. For a job with
    a profile it is the profile's time at b'.
    """
    for request, event in history.reserved():
        fault = _estimate_fault(request, event)
        if fault:
            yield event, f"{event.job_id}: {fault}"


def _estimate_fault(
    request: Mapping[str, Any], event: events.JobReserved
) -> str:
    """The fault of a reservation's estimate; empty where it has none."""
    asked = request["bandwidth_bps"]
    granted = event.rate_bps
    computes = request["kind"] == "compute"
    # 0 bit/s granted means best effort, unless none were asked for. A job that
    # only computes does not use the network.
    best_effort = granted == 0 and asked > 0 and not computes
    estimate_s = event.estimate_s
    if best_effort != (estimate_s is None):
        return f"estimate {estimate_s} s at {granted} bit/s of {asked}"
    if estimate_s is None:
        return ""
    rule = "p·b/b'"
    correct_s = request["duration_s"]
    if 0 < granted < asked:
        correct_s *= asked / granted
    if request.get("profile"):
        rule = "its profile's time"
        correct_s = _profile_time_s(request["profile"]["options"], granted)
    # Compared both ways, as `about` checks only that one is not above.
    if about(estimate_s, correct_s) and about(correct_s, estimate_s):
        return ""
    return f"estimate {estimate_s:.6g} s, {rule} is {correct_s:.6g} s"


def _profile_time_s(options: list[list[float]], rate_bps: float) -> float:
    """Running time at a rate, in s, by a profile's (bit/s, s) options.

    Between two options it is interpolated linearly. Below the least rate it
    grows as that rate over ``rate_bps``, and above the largest it is constant;
    0 at 0 bit/s.
    """
    least_bps, longest_s = options[0]
    if rate_bps < least_bps:
        if rate_bps:
            return longest_s * least_bps / rate_bps
        return 0.0
    for (low_bps, slow_s), (high_bps, fast_s) in pairwise(options):
        if rate_bps <= high_bps:
            saved_s = slow_s - fast_s
            width_bps = high_bps - low_bps
            return slow_s - saved_s * (rate_bps - low_bps) / width_bps
    return options[-1][1]


def samples(history: History) -> Findings:
    """Every sample is of a live run, of an existing link and within the link's
    capacity.
    """
    topology = history.topology
    packet_bits = _packet_bits(history)
    for event, vms, _ in sampled(history):
        if history.started.backend != "live":
            yield event, "links are sampled in a run that is not live"
        if event.interval_s <= 0:
            yield event, f"a sample over {event.interval_s} s"
            continue
        packet_bps = packet_bits / event.interval_s
        for directed, sent, reserved in event.links:
            number = int(directed)
            burst_bps = vms.get(number, 0.0) * packet_bps
            if not 0 <= number < topology.n_directed:
                yield event, f"directed link {number} does not exist"
                continue
            capacity = topology.carries_bps(number)
            most_sent_bps = capacity * (1 + SAMPLE_SLACK) + burst_bps
            for bps, most_bps, word in (
                (reserved, capacity * (1 + ROUNDING), "reserved"),
                (sent, most_sent_bps, "sent"),
            ):
                if not 0 <= bps <= most_bps:
                    where = f"{topology.link(number)}, capacity {capacity}"
                    yield event, f"{bps:.0f} bit/s {word} on {where}"


def sampled(
    history: History,
) -> Iterator[tuple[events.LinkSample, Mapping[int, float], bool]]:
    """Every sample, with the number of VMs that send over each directed link at
    its time, and True if a job was rescaled since the sample before.

    A link's number of VMs counts those on the side with fewer of a job's VMs.
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
        # An event without a rate does not change the job's.
        rate_bps = getattr(event, "rate_bps", None) or rates.get(job_id, 0)
        rates[job_id] = rate_bps
        for change in changes.get(id(event), ()):
            vms_of.pop(job_id, None)
            if change.sign > 0:
                vms_of[job_id] = _vms_behind(change.hold, rate_bps)
        if isinstance(event, events.JobRescaled):
            rescaled = True


def _vms_behind(hold: AuditedHold, rate_bps: int) -> dict[int, float]:
    """VMs on the smaller side of each directed link: its bit/s over a VM's."""
    return {link: bps / max(1, rate_bps) for link, bps in hold.links}


def _summed(vms_of: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
    """VMs of all jobs, by directed link."""
    vms: dict[int, float] = defaultdict(float)
    for of_job in vms_of.values():
        for link, n in of_job.items():
            vms[link] += n
    return vms


def strict(history: History) -> Findings:
    """Over any two consecutive samples, no directed link carries more than is
    reserved on it.

    A single sample may exceed it by a limiter's burst. Samples during which a
    job was rescaled are not checked.
    """
    burst_bits_per_vm = BUCKET_PACKETS * _packet_bits(history)
    before: dict[int, tuple[float, float]] = {}
    for event, vms, rescaled in sampled(history):
        # When the rate changed during this sample is not known.
        if rescaled:
            before = {}
            continue
        now = _bits_on_links(event)
        for link in sorted(before.keys() & now.keys()):
            sent_bits = before[link][0] + now[link][0]
            most_bits = before[link][1] + now[link][1]
            burst_bits = vms.get(link, 0.0) * burst_bits_per_vm
            if sent_bits > most_bits * (1 + SAMPLE_SLACK) + burst_bits:
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
    """Size of a packet on the wire, in bits at the experiment's scale.

    ``scale.time`` divides times on the wire, and ``scale.rate`` multiplies
    rates.
    """
    scale = history.stated("scale")
    try:
        return PACKET_BITS * float(scale["time"]) / float(scale["rate"])
    except (LookupError, TypeError, ValueError, ArithmeticError):
        # A damaged file has a finding of its own.
        return PACKET_BITS


# -- slots, memory and links at every instant


@once
def _booked_changes(history: History) -> list[Change]:
    """The calendar as changes in order of time.

    Intervals are half-open: at one instant, ends come before beginnings.
    """
    changes = []
    for start_s, end_s, event, hold in bookings(history):
        changes.append(Change(start_s, event, sign=1, hold=hold))
        if end_s is not None:
            changes.append(Change(end_s, event, sign=-1, hold=hold))
    # The sort is stable: beginnings at one instant keep the file's order.
    changes.sort(key=attrgetter("t", "sign"))
    return changes


def _excesses(
    changes: Sequence[Change],
    *,
    amounts: Callable[[AuditedHold], Pairs],
    per_job: Mapping[str, int],
    rooms: Sequence[int],
    name: Callable[[int], str],
    say: str,
) -> Findings:
    """One finding each time the amount taken of a resource comes to exceed its
    room.

    ``amounts`` lists a hold's (resource, amount) pairs; ``per_job`` is a job's
    factor for its amounts; ``rooms`` and ``name`` are by resource. ``say`` is a
    format of the amount taken, the resource's name and its room.
    """
    # Change by change only if the fast check finds an excess or is unsure.
    if _all_fit(changes, amounts, rooms, per_job):
        return
    resources: dict[int, _Resource] = {}
    for change in changes:
        for number, amount in amounts(change.hold):
            if number not in resources:
                # A resource that does not exist has no room, so that its use
                # is a finding.
                exists = 0 <= number < len(rooms)
                resources[number] = _Resource(
                    rooms[number] if exists else 0
                )
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
    """A server's slots or memory, or a directed link's bandwidth, with the
    amount taken and the jobs that hold some of it.
    """

    room: int
    taken: int = 0
    holders: set[str] = field(default_factory=set)

    def take(self, change: Change, amount: int) -> bool:
        """Takes an amount or gives it back; True if it exceeds the room only
        now.
        """
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
    rooms: Sequence[int],
    per_job: Mapping[str, int],
) -> bool:
    """True if no resource is ever taken beyond its room; False also if unsure.

    A fast check for the usual case. It forms all running sums at once, exactly,
    as 64-bit integers.
    """
    pairs = list(map(amounts, map(_hold, changes)))
    if not any(pairs):
        return True
    flat = chain.from_iterable(chain.from_iterable(pairs))
    of_jobs = map(per_job.__getitem__, map(_job_id, changes))
    try:
        table = _integers(flat).reshape(-1, 2)
        limits = _integers(rooms)
        factors = _integers(of_jobs) * _integers(map(_sign, changes))
    except OverflowError:
        return False
    most_times = int(abs(factors).max())
    if not _can_be_summed(table, most_times, n_resources=len(rooms)):
        return False
    resources = table[:, 0]
    signed = table[:, 1] * factors.repeat(_integers(map(len, pairs)))
    # A stable sort by resource keeps each resource's changes in their order.
    # It is quick on small types.
    small = resources.astype(np.min_scalar_type(len(rooms)))
    order = small.argsort(kind="stable")
    resources = resources[order]
    sums = _running_sums(resources, signed[order])
    return bool((sums <= limits[resources]).all())


def _integers(values: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(values, dtype=np.int64)


def _can_be_summed(
    table: NDArray[np.int64], most_times: int, *, n_resources: int
) -> bool:
    """True if all resources exist and no sum of amounts can overflow."""
    if table.min() < 0 or table[:, 0].max() >= n_resources:
        return False
    # As a float, which may be inexact but does not wrap around.
    most = float(table[:, 1].max()) * most_times * len(table)
    return most < LARGEST_SUM


def _running_sums(
    groups: NDArray[np.int64], amounts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Cumulative sums that start anew with each group of equal numbers."""
    sums = np.cumsum(amounts)
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    # The sum of all earlier groups, to be subtracted from a group's sums.
    before = np.concatenate(([0], sums[first[1:] - 1]))
    sizes = np.diff(np.append(first, len(groups)))
    running: NDArray[np.int64] = sums - np.repeat(before, sizes)
    return running


def slots(history: History) -> Findings:
    """Each tier's VMs fit the servers' slots; a lease's VM takes a slot a core."""
    per_job = {
        job_id: job.slots_per_vm for job_id, job in history.jobs.items()
    }
    vms = "VMs"
    if any(n != 1 for n in per_job.values()):
        vms = "VM slots"
    yield from _on_servers(
        history,
        rooms=history.topology.slots,
        per_job=per_job,
        taken=vms,
        unit="slots",
    )


def memory(history: History) -> Findings:
    """The memory of each tier's VMs fits the servers'."""
    per_job = {}
    for job_id, job in history.jobs.items():
        per_job[job_id] = int(job.request.get("memory_mib", 0))
    yield from _on_servers(
        history,
        rooms=history.topology.memory_mib or [],
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
    rooms: Sequence[int],
    per_job: Mapping[str, int],
    taken: str,
    unit: str,
) -> Findings:
    """Excesses over the servers' ``rooms``; ``taken`` and ``unit`` are the words
    for an amount and a room in messages.
    """
    ran = occupied(history)
    booked = _booked_changes(history)
    # The tiers do not share slots: each has all slots of every server.
    tiers = {change.hold.tier for change in chain(ran, booked)}
    for tier in sorted(tiers):
        where = "on" if tier == "foreground" else f"in the {tier} of"
        for changes, word in ((ran, "run"), (booked, "are booked")):
            in_tier = [
                change for change in changes if change.hold.tier == tier
            ]
            yield from _excesses(
                in_tier,
                amounts=attrgetter("vms_on"),
                per_job=per_job,
                rooms=rooms,
                name=history.topology.node,
                say=f"{{}} {taken} {word} {where} {{}}, which has {{}} {unit}",
            )


def links(history: History) -> Findings:
    """Bandwidth in use and bandwidth booked fit every directed link."""
    topology = history.topology
    rooms = list(map(topology.carries_bps, range(topology.n_directed)))
    once_each = dict.fromkeys(history.jobs, 1)
    # Both are needed (decision 19). Only the calendar shows an excess that is
    # booked ahead and never runs. Only the order of the file shows a job that
    # is killed too late, when the next one has started.
    for changes, word in (
        (occupied(history), "in use"),
        (_booked_changes(history), "booked"),
    ):
        yield from _excesses(
            changes,
            amounts=attrgetter("links"),
            per_job=once_each,
            rooms=rooms,
            name=topology.link,
            say=f"{{}} bit/s are {word} on {{}}, which carries {{}} bit/s",
        )


def returned(history: History) -> Findings:
    """Every hold and every reservation is given back by the end of the run."""
    running: dict[str, Change] = {}
    for change in occupied(history):
        job_id = change.event.job_id
        if change.sign > 0:
            running[job_id] = change
        else:
            # A job gives back its whole hold, so that no part can be left.
            running.pop(job_id, None)
    if running:
        yield from _not_returned(history, running)
    for booking in bookings(history):
        event = booking.event
        if booking.end_s is None and event.job_id not in running:
            held = f"the reservation of {event.job_id}"
            yield event, f"{held} was never given back"


def _not_returned(
    history: History, running: Mapping[str, Change]
) -> Findings:
    """One finding on all holds at the end, at the first of their events."""
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
