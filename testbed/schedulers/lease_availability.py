"""The resource availability list of MBFCBS (Section 3.3): one row a host, a
column a vector.

The paper's indexed B-trees answer both questions in O(log n) for n hosts; here
each takes a few vector operations over all hosts, as the calendar's do. Memory
is looked at host by host, in the order of the cores. The paper's preemption
list is the calendar's
(:meth:`~testbed.schedulers.lease_calendar.Calendar.preemptible`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from testbed.reservation.timeline import FloatArray
from testbed.schedulers.lease_calendar import Calendar, Use
from topologies.datacentre import IntArray


class AvailabilityList:
    """RAL: ⟨free cores, free memory, earliest core available, earliest
    available time⟩ by host.

    ``free_cores`` and ``free_memory_mib`` are those of now. ``until_s[k - 1]``:
    how long k cores stay free (infinite where nothing is booked that would take
    one; -inf where they are not free). ``available_s[k - 1]``: from when on k
    cores are free for good, Eqs. 1 and 3 (-inf: they are already; infinite:
    never), also where the host has an advance reservation, whose queue
    best-effort leases do not join (Algorithm 1, line 4). The earliest
    available time of a VM is when its memory is free for good as well.
    """

    def __init__(
        self, calendar: Calendar, *, most_used_first: bool = True
    ) -> None:
        hosts = len(calendar.cores)
        most = int(calendar.cores.max())
        self._calendar = calendar
        self._most_used_first = most_used_first
        self.free_cores = np.zeros(hosts, dtype=np.int64)
        self.free_memory_mib = np.zeros(hosts, dtype=np.int64)
        # On hosts with fewer cores than the largest these values stay: so
        # many cores are never free there.
        self.until_s = np.full((most, hosts), -math.inf)
        self.available_s = np.full((most, hosts), math.inf)
        # By host, times in order, and the cores and MiB that are taken then,
        # or given back (below 0).
        self._taken: list[list[tuple[float, int, int]]] = [[]] * hosts
        # When a row is out of date by itself, because a booking begins.
        self._changes: list[tuple[float, int]] = []

    def update(self, now_s: float) -> None:
        """Brings rows up to date: of hosts whose bookings have changed, and
        where one has begun.
        """
        stale = self._calendar.changed
        while self._changes and self._changes[0][0] <= now_s:
            stale.add(heapq.heappop(self._changes)[1])
        # In order of number, so that nothing depends on a set's order.
        for host in sorted(stale):
            self._refresh(host, now_s)
        stale.clear()

    def most_used(
        self, now_s: float, end_s: float, wanted: Use
    ) -> int | None:
        """The host that can hold ``wanted`` from now to ``end_s`` and has the
        fewest cores free.

        Among equals the one that has them free for the shortest time. Memory is
        looked at host by host.
        """
        self.update(now_s)
        until_s = self.until_s[wanted.cores - 1]
        # Where the cores do not stay free long enough the host ranks last,
        # at infinity, and is left out.
        rooms = np.where(until_s >= end_s, self.free_cores, math.inf)
        for host in _ranked(rooms, until_s):
            if self._has_memory(host, now_s, end_s, wanted):
                return host
        return None

    def earliest(
        self, now_s: float, vm: Use, n_vms: int
    ) -> tuple[float, dict[int, int]] | None:
        """The least earliest available time of ``n_vms`` VMs, and the VMs by
        host; None where it is infinite.

        Among hosts that are available equally early, several VMs fill the first
        ones; a single VM goes to the most used host, or to the first one unless
        the list is ``most_used_first``.
        """
        self.update(now_s)
        rooms = list(islice(self._rooms(now_s, vm, n_vms), n_vms))
        if len(rooms) < n_vms:
            return None
        on: dict[int, int] = {}
        for _, host in rooms:
            on[host] = on.get(host, 0) + 1
        return rooms[-1][0], on

    def _rooms(
        self, now_s: float, vm: Use, n_vms: int
    ) -> Iterator[tuple[float, int]]:
        """Times from which on there is room for one more VM for good, each with
        its host; the earliest first.
        """
        # Row m is when a host has the cores for m + 1 VMs. A time that has
        # passed is as early as now.
        rows = self.available_s[vm.cores - 1 : n_vms * vm.cores : vm.cores]
        cores_s = np.maximum(rows, now_s).ravel()
        hosts = rows.shape[1]
        if n_vms == 1 and self._most_used_first:
            then = self.free_cores
        else:
            then = np.tile(np.arange(hosts), len(rows))
        considered: list[tuple[float, int, int]] = []
        for place in _ranked(cores_s, then):
            row, host = divmod(place, hosts)
            least_s = float(cores_s[place])
            tie = int(then[place])
            memory_s = self._memory_s(host, (row + 1) * vm.memory_mib)
            heapq.heappush(considered, (max(least_s, memory_s), tie, place))
            # All that are ranked behind have their cores no earlier.
            while considered and considered[0] <= (least_s, tie, place):
                start_s, _, first = heapq.heappop(considered)
                yield start_s, first % hosts
        for start_s, _, place in sorted(considered):
            if start_s < math.inf:
                yield start_s, place % hosts

    def _memory_s(self, host: int, memory_mib: int) -> float:
        """The time from which on a host has so much memory free for good (-inf:
        already; infinite: never). O(n) for n bookings.
        """
        if not memory_mib:
            return -math.inf
        free_mib = int(self.free_memory_mib[host])
        available_s = -math.inf if free_mib >= memory_mib else math.inf
        for at_s, _, taken_mib in self._taken[host]:
            before_mib = free_mib
            free_mib -= taken_mib
            # A later time overwrites an earlier one, as with cores.
            if before_mib < memory_mib <= free_mib:
                available_s = at_s
        return available_s

    def _has_memory(
        self, host: int, start_s: float, end_s: float, wanted: Use
    ) -> bool:
        if not wanted.memory_mib:
            return True
        used = self._calendar.used(host, start_s, end_s).memory_mib
        return bool(
            used + wanted.memory_mib <= self._calendar.memory_mib[host]
        )

    def _refresh(self, host: int, now_s: float) -> None:
        """A host's row, from its bookings. O(n log n + cores) for n bookings."""
        cores = int(self._calendar.cores[host])
        free = cores
        free_memory_mib = int(self._calendar.memory_mib[host])
        changes: list[tuple[float, int, int]] = []
        next_start_s = math.inf
        has_advance = False
        for booking in self._calendar.bookings(host):
            # Ended, and the policy is not yet notified.
            if booking.end_s <= now_s:
                continue
            booked = booking.cores
            booked_mib = booking.memory_mib
            # At equal times what ends stands before what begins.
            changes.append((booking.end_s, -booked, -booked_mib))
            has_advance |= booking.advance
            if booking.start_s > now_s:
                changes.append((booking.start_s, booked, booked_mib))
                next_start_s = min(next_start_s, booking.start_s)
            else:
                free -= booked
                free_memory_mib -= booked_mib
        changes.sort()
        until_s, available_s = _times(cores, free, changes)
        if has_advance:
            # Best-effort leases do not join its queue (Algorithm 1, line 4).
            available_s = [math.inf] * cores
        self.free_cores[host] = free
        self.free_memory_mib[host] = free_memory_mib
        self._taken[host] = changes
        self.until_s[:cores, host] = until_s
        self.available_s[:cores, host] = available_s
        if next_start_s < math.inf:
            heapq.heappush(self._changes, (next_start_s, host))


def _ranked(
    first: FloatArray, then: FloatArray | IntArray
) -> Iterator[int]:
    """Hosts in rising order of two keys, equals by number, but those at
    infinity in the first.

    Nearly always the best of them is taken, and nobody asks for another.
    """
    least = first.min()
    if least == math.inf:
        return
    equal = np.flatnonzero(first == least)
    yield int(equal[then[equal].argmin()])
    order = np.lexsort((then, first))
    yield from order[1 : np.count_nonzero(first < math.inf)].tolist()


def _times(
    cores: int, free: int, changes: Iterable[tuple[float, int, int]]
) -> tuple[list[float], list[float]]:
    """Until when k cores stay free, and from when on for good (Eqs. 1 and 3),
    for k from 1 on.

    ``changes``: times in order, and the cores and MiB that are taken then, or
    given back (below 0).
    """
    until_s = [math.inf] * free + [-math.inf] * (cores - free)
    available_s = [-math.inf] * free + [math.inf] * (cores - free)
    level = free
    low = free
    for at_s, taken, _ in changes:
        # A later end overwrites an earlier one: for good is after the last
        # booking that needs these cores.
        # Given back (taken is below 0): from here on these cores are free.
        for k in range(level, level - taken):
            available_s[k] = at_s
        level -= taken
        # Taken, for the first time: until here they were free.
        for k in range(level, low):
            until_s[k] = at_s
        low = min(low, level)
    return until_s, available_s
