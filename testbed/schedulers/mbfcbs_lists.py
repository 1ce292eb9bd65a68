"""The resource availability list and the preemption list of MBFCBS (Section 3.3), in order.

Both are searched by bisection, O(log n) for n rows, as the paper's indexed B-trees are. Inserting
and removing moves what stands behind (a few hundred pointers; n is hosts or best-effort leases).
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from testbed.schedulers.calendar_queue import PREEMPTIBLE, Booking, Calendar, Use


class Ordered:
    """Distinct tuples in rising order."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def add(self, row: tuple[Any, ...]) -> None:
        insort(self.rows, row)

    def discard(self, row: tuple[Any, ...]) -> None:
        at = bisect_left(self.rows, row)
        if at < len(self.rows) and self.rows[at] == row:
            del self.rows[at]

    def since(self, row: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """From the first row that is not below ``row`` on."""
        for at in range(bisect_left(self.rows, row), len(self.rows)):
            yield self.rows[at]


@dataclass(frozen=True, slots=True)
class Availability:
    """A host's row: ⟨free cores, free memory, earliest core available, earliest available time⟩.

    ``until_s[k - 1]``: how long k cores stay free, for k up to ``free_cores`` (infinite where
    nothing is booked that would take one). ``available_s[k - 1]``: from when on k cores are free
    for good, Eqs. 1 and 3 (-inf: they are already); empty where the host has an advance
    reservation, whose queue best-effort leases do not join (Algorithm 1, line 4). ``changes_s``:
    when the row is out of date by itself, because a booking begins.
    """

    free_cores: int
    free_memory_mib: int
    until_s: tuple[float, ...]
    available_s: tuple[float, ...]
    changes_s: float


def availability(
    bookings: list[Booking], cores: int, memory_mib: int, now_s: float
) -> Availability:
    """A host's row, from its bookings. O(n log n + cores) for n bookings."""
    changes: list[tuple[float, int]] = []
    in_use = memory = 0
    begins_s = math.inf
    for booking in bookings:
        if booking.end_s <= now_s:
            continue
        if booking.start_s <= now_s:
            in_use += booking.cores
            memory += booking.memory_mib
        else:
            changes.append((booking.start_s, booking.cores))
            begins_s = min(begins_s, booking.start_s)
        changes.append((booking.end_s, -booking.cores))
    changes.sort()
    free = cores - in_use
    until = [math.inf] * free
    available = [-math.inf] * free + [math.inf] * in_use
    low, level = free, free
    # At equal times what ends stands before what begins.
    for at_s, taken in changes:
        for k in range(level, level - taken):
            available[k] = at_s
        level -= taken
        for k in range(level, low):
            until[k] = at_s
        low = min(low, level)
    advance = any(b.advance and b.end_s > now_s for b in bookings)
    return Availability(
        free, memory_mib - memory, tuple(until), () if advance else tuple(available), begins_s
    )


def _order(row: Availability) -> tuple[object, ...]:
    """What decides where a row stands."""
    return row.free_cores, row.until_s, row.available_s


class AvailabilityList:
    """RAL: the hosts' rows, ordered for both questions that MBFCBS asks.

    Which host that is used most has k cores free long enough (one list per k and number of free
    cores, by how long), and which one has k cores first (one list per k). O(C log n) for n hosts of
    C cores.
    """

    def __init__(self, calendar: Calendar, *, most_used_first: bool = True) -> None:
        self._calendar = calendar
        self._most_used_first = most_used_first
        most = int(calendar.cores.max())
        levels = range(most + 1)
        self._free = [[Ordered() for _ in levels] for _ in levels]
        self._first = [Ordered() for _ in levels]
        self._rows: list[Availability | None] = [None] * len(calendar.cores)
        self._stale = set(range(len(calendar.cores)))
        self._changes: list[tuple[float, int]] = []

    def touch(self, host: int) -> None:
        """A host's bookings have changed."""
        self._stale.add(host)

    def update(self, now_s: float) -> None:
        """Bring the rows of touched hosts, and of those where a booking began, up to date."""
        while self._changes and self._changes[0][0] <= now_s:
            self._stale.add(heapq.heappop(self._changes)[1])
        for host in sorted(self._stale):
            self._refresh(host, now_s)
        self._stale.clear()

    def row(self, host: int) -> Availability:
        found = self._rows[host]
        if found is None:
            raise KeyError(f"host {host} has no row yet")
        return found

    def most_used(self, now_s: float, end_s: float, wanted: Use) -> int | None:
        """The host that can hold ``wanted`` from now to ``end_s`` and has the fewest cores free.

        Among equals the one that has them free for the shortest time. Memory is looked at host by
        host.
        """
        need = wanted.cores
        for level in range(need, len(self._free)):
            for _, host in self._free[need][level].since((end_s, -1)):
                if self._has_memory(host, now_s, end_s, wanted):
                    return int(host)
        return None

    def earliest(self, now_s: float, duration_s: float, wanted: Use) -> tuple[float, int] | None:
        """The least earliest available time and its host.

        Among equals the most used host; the first one, unless the list is ``most_used_first``.
        """
        for at_s, _, host in self._first[wanted.cores].rows:
            start_s = max(now_s, at_s)
            if self._has_memory(host, start_s, start_s + duration_s, wanted):
                return float(start_s), int(host)
        return None

    def rows(self) -> Iterator[tuple[int, Availability]]:
        """Every host with its row."""
        return ((host, row) for host, row in enumerate(self._rows) if row is not None)

    def _has_memory(self, host: int, start_s: float, end_s: float, wanted: Use) -> bool:
        if not wanted.memory_mib:
            return True
        used = self._calendar.used(host, start_s, end_s).memory_mib
        return bool(used + wanted.memory_mib <= self._calendar.memory_mib[host])

    def _refresh(self, host: int, now_s: float) -> None:
        calendar = self._calendar
        cores, memory = int(calendar.cores[host]), int(calendar.memory_mib[host])
        new = availability(list(calendar.bookings(host)), cores, memory, now_s)
        old, self._rows[host] = self._rows[host], new
        if old is None or _order(old) != _order(new):
            if old is not None:
                self._enter(host, old, add=False)
            self._enter(host, new, add=True)
        if new.changes_s < math.inf:
            heapq.heappush(self._changes, (new.changes_s, host))

    def _enter(self, host: int, row: Availability, *, add: bool) -> None:
        for k, until_s in enumerate(row.until_s, 1):
            listed = self._free[k][row.free_cores]
            (listed.add if add else listed.discard)((until_s, host))
        for k, at_s in enumerate(row.available_s, 1):
            entry = (at_s, row.free_cores if self._most_used_first else 0, host)
            (self._first[k].add if add else self._first[k].discard)(entry)


class Preemptible(NamedTuple):
    """A row of the preemption list: ⟨host, job, cores, time interval, flag⟩."""

    host: int
    start_s: float
    lease_id: str
    end_s: float
    cores: int
    flag: int


class PreemptionList:
    """PL: the best-effort leases on every host, by host and start."""

    def __init__(self) -> None:
        self._rows = Ordered()

    def add(self, host: int, booking: Booking) -> None:
        self._rows.add(_row(host, booking))

    def discard(self, host: int, booking: Booking) -> None:
        self._rows.discard(_row(host, booking))

    def rows(self) -> list[Preemptible]:
        return [Preemptible(*row) for row in self._rows.rows]

    def preemptible(self, host: int, start_s: float, end_s: float) -> list[Preemptible]:
        """Leases with flag 1 on a host that touch ``[start_s, end_s)``. O(log n + found)."""
        found = []
        for row in self._rows.since((host,)):
            entry = Preemptible(*row)
            if entry.host != host or entry.start_s >= end_s:
                break
            if entry.flag == PREEMPTIBLE and entry.end_s > start_s:
                found.append(entry)
        return found


def _row(host: int, booking: Booking) -> Preemptible:
    return Preemptible(
        host, booking.start_s, booking.lease_id, booking.end_s, booking.cores, booking.flag
    )
