"""The resource availability list of MBFCBS (Section 3.3), in order.

It is searched in O(log n) for n hosts, as the paper's indexed B-trees are: by bisection in sorted
lists of bounded pieces, and in heaps whose outdated entries go when they are on top. The paper's
preemption list is the calendar's (:meth:`~testbed.schedulers.lease_calendar.Calendar.preemptible`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass

from sortedcontainers import SortedList

from testbed.schedulers.lease_calendar import Booking, Calendar, Use


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


class AvailabilityList:
    """RAL: the hosts' rows, ordered for both questions that MBFCBS asks.

    Which host that is used most has k cores free long enough (one list per k and number of free
    cores, by how long), and which one has k cores first (one heap per k). They are kept for those k
    that somebody has asked for. O(C log n) for n hosts of C cores.
    """

    def __init__(self, calendar: Calendar, *, most_used_first: bool = True) -> None:
        self._calendar = calendar
        self._most_used_first = most_used_first
        self._most = int(calendar.cores.max())
        # By k: by free cores: (how long, host).
        self._free: dict[int, list[SortedList]] = {}
        # By k: (from when on, what decides between equals, host), some of them out of date.
        self._first: dict[int, list[tuple[float, int, int]]] = {}
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
        for listed in self._by_until(wanted.cores)[wanted.cores :]:
            for _, host in listed.irange((end_s, -1)):
                if self._has_memory(host, now_s, end_s, wanted):
                    return int(host)
        return None

    def earliest(self, now_s: float, duration_s: float, wanted: Use) -> tuple[float, int] | None:
        """The least earliest available time and its host.

        Among equals the most used host; the first one, unless the list is ``most_used_first``.
        """
        heap, passed = self._by_available(wanted.cores), []
        found: tuple[float, int] | None = None
        while heap:
            at_s, _, host = entry = heap[0]
            if entry == self._entry(wanted.cores, host):
                start_s = max(now_s, at_s)
                if self._has_memory(host, start_s, start_s + duration_s, wanted):
                    found = start_s, host
                    break
                passed.append(entry)
            heapq.heappop(heap)
        for entry in passed:
            heapq.heappush(heap, entry)
        return found

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
        if new.changes_s < math.inf:
            heapq.heappush(self._changes, (new.changes_s, host))
        if old is not None:
            self._list_until(host, old, new)
            self._push_available(host, old, new)

    def _list_until(self, host: int, old: Availability, new: Availability) -> None:
        if old.free_cores == new.free_cores and old.until_s == new.until_s:
            return
        for k, listed in self._free.items():
            if k <= old.free_cores:
                listed[old.free_cores].remove((old.until_s[k - 1], host))
            if k <= new.free_cores:
                listed[new.free_cores].add((new.until_s[k - 1], host))

    def _push_available(self, host: int, old: Availability, new: Availability) -> None:
        if old.free_cores == new.free_cores and old.available_s == new.available_s:
            return
        for k, heap in self._first.items():
            entry = self._entry(k, host)
            if entry is not None:
                heapq.heappush(heap, entry)
            if len(heap) > 2 * len(self._rows):
                self._fill(k, heap)

    def _by_until(self, k: int) -> list[SortedList]:
        if k not in self._free:
            rows: list[list[tuple[float, int]]] = [[] for _ in range(self._most + 1)]
            for host, row in self.rows():
                if k <= row.free_cores:
                    rows[row.free_cores].append((row.until_s[k - 1], host))
            self._free[k] = [SortedList(of) for of in rows]
        return self._free[k]

    def _by_available(self, k: int) -> list[tuple[float, int, int]]:
        if k not in self._first:
            self._first[k] = []
            self._fill(k, self._first[k])
        return self._first[k]

    def _fill(self, k: int, heap: list[tuple[float, int, int]]) -> None:
        """Every host once; what is out of date goes. O(hosts), after as many changes at least."""
        entries = (self._entry(k, host) for host in range(len(self._rows)))
        heap[:] = [entry for entry in entries if entry is not None]
        heapq.heapify(heap)

    def _entry(self, k: int, host: int) -> tuple[float, int, int] | None:
        """Heap entry of a host among those that have k cores first; None: it has none."""
        row = self.row(host)
        if k > len(row.available_s):
            return None
        return row.available_s[k - 1], row.free_cores if self._most_used_first else 0, host
