"""Slots, memory and directed links within capacity at every instant, and all of it back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.results.audit.findings import Finding
from testbed.results.audit.history import History
from testbed.results.audit.holding import Booking, Change, Pairs, bookings, occupied
from testbed.results.folder import EVENTS

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
    for booking in bookings(history):
        out.append(_change(booking, booking.start_s, 1))
        if booking.end_s is not None:
            out.append(_change(booking, booking.end_s, -1))
    return sorted(out, key=lambda change: (change.t, change.sign, change.line))


def _change(booking: Booking, t: float, sign: int) -> Change:
    return Change(
        t, booking.line, booking.job_id, sign, booking.vms_on, booking.links, booking.tier
    )


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
    yield from _on_servers(history, history.world.slots, each, what, "slots")


def memory(history: History) -> Iterator[Finding]:
    """The memory of all VMs against the servers'."""
    each = {job_id: job.memory_per_vm_mib for job_id, job in history.jobs.items()}
    yield from _on_servers(history, history.world.memory_mib or [], each, "MiB", "MiB")


def has_memory(history: History) -> str | None:
    return None if history.world.memory_mib is not None else "memory limits nothing here"


def _on_servers(
    history: History, has: Sequence[int], each: Mapping[str, int], taken: str, unit: str
) -> Iterator[Finding]:
    world = history.world

    def capacity(server: int) -> int:
        return has[server] if 0 <= server < len(has) else 0

    def say(word: str) -> Callable[[int, int, int], str]:
        return lambda server, amount, room: (
            f"{amount} {taken} {word} "
            f"{world.node(server) if 0 <= server < world.n_nodes else server}, "
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
    world = history.world

    def capacity(directed: int) -> int:
        return world.capacity_bps[directed // 2] if 0 <= directed < world.n_directed else 0

    def say(word: str) -> Callable[[int, int, int], str]:
        return lambda directed, taken, has: (
            f"{taken} bit/s are {word} on "
            f"{world.link(directed) if 0 <= directed < world.n_directed else directed}, "
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
