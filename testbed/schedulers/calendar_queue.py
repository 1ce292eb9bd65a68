"""The calendar of leases on hosts: buckets of time with sums, and a sorted list in each.

MBFCBS, Section 3.3, after GarQ (Sulistio et al.): time is cut into buckets of ``slot_s``; every
bucket of every host holds how many cores and how much memory are in use (``rv``, ``rm``) and the
leases in it, sorted. Here ``rv`` and ``rm`` are the *greatest* use at any instant of the bucket, so
that a bucket in which one lease follows another is not counted twice; the sorted lists make the
ends of an interval exact (docs/decisions/0441).

Sums are kept twice: of all leases, and of the *firm* ones alone, which nobody can preempt. They
are arrays over buckets and hosts, so that one interval of all hosts is a few vector operations.

With k leases in a bucket and m buckets in an interval: ``add``, ``remove`` and ``used`` are
O(m + k log k) for one host, ``peaks`` is O(m) vector operations over the hosts.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from topologies.datacentre import IntArray

FIRM, PREEMPTIBLE, PREEMPTED = 0, 1, 2
"""The flag of a booking: advance or immediate; best effort; best effort that gave way once."""

_ROWS = 64
_NARROW = 2**30


@dataclass(frozen=True, slots=True, order=True)
class Booking:
    """A lease on one host in ``[start_s, end_s)``: the tuple ⟨ST, FT, NC, RM, JID⟩ and its flag."""

    start_s: float
    lease_id: str
    end_s: float
    cores: int
    memory_mib: int
    flag: int = FIRM
    advance: bool = False


class Use(NamedTuple):
    """Cores and MiB in use, the most of each at any instant of an interval."""

    cores: int
    memory_mib: int


def greatest_use(
    bookings: Iterable[Booking], start_s: float, end_s: float, *, firm: bool = False
) -> Use:
    """The most in use at any instant of ``[start_s, end_s)``; ``firm``: by firm leases alone.

    O(k log k) for k bookings.
    """
    changes: list[tuple[float, int, int]] = []
    for booking in bookings:
        if booking.start_s >= end_s or booking.end_s <= start_s:
            continue
        if firm and booking.flag == PREEMPTIBLE:
            continue
        changes.append((max(booking.start_s, start_s), booking.cores, booking.memory_mib))
        if booking.end_s < end_s:
            changes.append((booking.end_s, -booking.cores, -booking.memory_mib))
    # At equal times what ends (below 0) stands before what begins.
    changes.sort()
    cores = memory = most_cores = most_memory = 0
    for _, more_cores, more_memory in changes:
        cores += more_cores
        memory += more_memory
        most_cores, most_memory = max(most_cores, cores), max(most_memory, memory)
    return Use(most_cores, most_memory)


def greatest_uses(bookings: Iterable[Booking], start_s: float, end_s: float) -> tuple[Use, Use]:
    """As :func:`greatest_use`, by all leases and by the firm ones alone, in one pass."""
    changes: list[tuple[float, int, int, bool]] = []
    for booking in bookings:
        firm = booking.flag != PREEMPTIBLE
        cores, memory, begin_s = booking.cores, booking.memory_mib, booking.start_s
        changes.append((begin_s if begin_s > start_s else start_s, cores, memory, firm))
        if booking.end_s < end_s:
            changes.append((booking.end_s, -cores, -memory, firm))
    changes.sort()
    now = [0, 0, 0, 0]
    most = [0, 0, 0, 0]
    for _, cores, memory, firm in changes:
        now[0] += cores
        now[1] += memory
        if firm:
            now[2] += cores
            now[3] += memory
        if cores > 0:
            most = [a if a > b else b for a, b in zip(most, now, strict=True)]
    return Use(most[0], most[1]), Use(most[2], most[3])


class Calendar:
    """What is booked on hosts of ``cores`` and ``memory_mib`` (shapes ``(hosts,)``)."""

    def __init__(self, cores: IntArray, memory_mib: IntArray, slot_s: float) -> None:
        if not (math.isfinite(slot_s) and slot_s > 0):
            raise ValueError(f"a bucket lasts a finite time above 0 s, not {slot_s}")
        self.cores, self.memory_mib, self.slot_s = cores, memory_mib, slot_s
        self._hosts = len(cores)
        self._first = 0
        # All leases and the firm ones; cores and memory; buckets from _first on; hosts.
        self._dtype = np.int32 if int(memory_mib.max()) < _NARROW else np.int64
        self._sums = np.zeros((2, 2, _ROWS, self._hosts), dtype=self._dtype)
        self._lists: dict[int, dict[int, list[Booking]]] = {}
        self._booked: list[dict[str, Booking]] = [{} for _ in range(self._hosts)]

    def bookings(self, host: int) -> Collection[Booking]:
        """All of a host, in the order in which they were made."""
        return self._booked[host].values()

    def booking(self, host: int, lease_id: str) -> Booking:
        return self._booked[host][lease_id]

    # -- the published operations -------------------------------------------------------------

    def add(self, host: int, booking: Booking) -> None:
        """Insert a booking; it is not checked that it fits. One of a lease on a host."""
        if booking.lease_id in self._booked[host]:
            raise ValueError(f"lease {booking.lease_id} is booked on host {host} already")
        self._booked[host][booking.lease_id] = booking
        self._insert(host, booking)

    def remove(self, host: int, lease_id: str) -> Booking:
        """Take a lease's booking out; what it was."""
        booking = self._booked[host].pop(lease_id)
        first, last = self._span(booking.start_s, booking.end_s)
        for bucket in range(first, last + 1):
            here = self._lists[bucket][host]
            del here[bisect_left(here, booking)]
        self._count(host, booking, first, last, -1)
        return booking

    def used(self, host: int, start_s: float, end_s: float, *, firm: bool = False) -> Use:
        """Search: the most in use on a host at any instant of ``[start_s, end_s)``."""
        first, last = self._span(start_s, end_s)
        if last < first:
            return Use(0, 0)
        ends = (first,) if first == last else (first, last)
        edges = [
            greatest_use(self._list(bucket, host), start_s, end_s, firm=firm) for bucket in ends
        ]
        if last - first > 1:
            inner = self._sums[int(firm), :, self._rows(first + 1, last - 1), host]
            edges.append(Use(int(inner[0].max(initial=0)), int(inner[1].max(initial=0))))
        return Use(max(use.cores for use in edges), max(use.memory_mib for use in edges))

    def fits(
        self, host: int, start_s: float, end_s: float, wanted: Use, *, firm: bool = False
    ) -> bool:
        """Whether a host has ``wanted`` free throughout ``[start_s, end_s)``."""
        cores, memory = self.used(host, start_s, end_s, firm=firm)
        return bool(
            cores + wanted.cores <= self.cores[host]
            and memory + wanted.memory_mib <= self.memory_mib[host]
        )

    def next_start(
        self, host: int, start_s: float, until_s: float, duration_s: float, wanted: Use
    ) -> float | None:
        """Interval search: the earliest start in ``[start_s, until_s]`` for ``duration_s``.

        It is ``start_s`` or the end of a booking. None where there is none.
        """
        ends = {b.end_s for b in self.bookings(host) if start_s < b.end_s <= until_s}
        for begin_s in (start_s, *sorted(ends)):
            if self.fits(host, begin_s, begin_s + duration_s, wanted):
                return begin_s
        return None

    def preemptible(self, host: int, start_s: float, end_s: float) -> list[Booking]:
        """Job search: best-effort bookings with flag 1 that touch ``[start_s, end_s)``."""
        first, last = self._span(start_s, end_s)
        found = {
            booking.lease_id: booking
            for bucket in range(first, last + 1)
            for booking in self._list(bucket, host)
            if booking.flag == PREEMPTIBLE and booking.start_s < end_s and booking.end_s > start_s
        }
        return sorted(found.values())

    # -- all hosts at once ----------------------------------------------------------------------

    def peaks(
        self, start_s: float, end_s: float, *, firm: bool = False, inner: bool = False
    ) -> tuple[IntArray, IntArray]:
        """Cores and memory of every host: the most in any bucket that ``[start_s, end_s)`` touches.

        At least what :meth:`used` says. ``inner``: in the buckets that lie inside as a whole; at
        most what it says.
        """
        first, last = self._span(start_s, end_s)
        rows = self._rows(first + 1, last - 1) if inner else self._rows(first, last)
        sums = self._sums[int(firm), :, rows]
        most = sums.max(axis=1, initial=0)
        return most[0], most[1]

    # -- time -------------------------------------------------------------------------------

    def forget_before(self, now_s: float) -> None:
        """Nothing before ``now_s`` will be asked about again: drop whole buckets."""
        first = self._bucket(now_s)
        gone = first - self._first
        # Moving the sums costs O(hosts) a bucket: do it when half of them are over.
        if gone < self._sums.shape[2] // 2:
            return
        kept = self._sums[:, :, gone:].copy()
        self._sums[:, :, : kept.shape[2]] = kept
        self._sums[:, :, kept.shape[2] :] = 0
        for bucket in [b for b in self._lists if b < first]:
            del self._lists[bucket]
        self._first = first

    def check(self) -> None:
        """Derive every bucket anew; AssertionError where a sum or a list differs."""
        for host in range(self._hosts):
            booked = list(self.bookings(host))
            for row in range(self._sums.shape[2]):
                bucket = row + self._first
                start_s, end_s = bucket * self.slot_s, (bucket + 1) * self.slot_s
                inside = sorted(b for b in booked if b.start_s < end_s and b.end_s > start_s)
                if inside != self._list(bucket, host):
                    raise AssertionError(f"bucket {bucket} of host {host} does not list its leases")
                for firm in (False, True):
                    sums = self._sums[int(firm), :, row, host].tolist()
                    if sums != list(greatest_use(inside, start_s, end_s, firm=firm)):
                        raise AssertionError(f"bucket {bucket} of host {host}: sums are wrong")

    # -- inside -----------------------------------------------------------------------------

    def _bucket(self, at_s: float) -> int:
        return int(at_s // self.slot_s)

    def _span(self, start_s: float, end_s: float) -> tuple[int, int]:
        """First and last bucket of ``[start_s, end_s)`` that is kept; none if last < first."""
        first, last = self._bucket(start_s), self._bucket(end_s)
        if last > first and last * self.slot_s >= end_s:
            last -= 1
        return max(first, self._first), last

    def _rows(self, first: int, last: int) -> slice:
        rows = self._sums.shape[2]
        if last - self._first >= rows:
            more = max(rows, last - self._first + 1 - rows)
            shape = (2, 2, more, self._hosts)
            self._sums = np.concatenate((self._sums, np.zeros(shape, self._dtype)), axis=2)
        return slice(first - self._first, max(first, last + 1) - self._first)

    def _list(self, bucket: int, host: int) -> list[Booking]:
        return self._lists.get(bucket, {}).get(host, [])

    def _insert(self, host: int, booking: Booking) -> None:
        first, last = self._span(booking.start_s, booking.end_s)
        for bucket in range(first, last + 1):
            insort(self._lists.setdefault(bucket, {}).setdefault(host, []), booking)
        self._count(host, booking, first, last, 1)

    def _count(self, host: int, booking: Booking, first: int, last: int, sign: int) -> None:
        """Sums after a booking came or went; where it fills a bucket it just adds to them."""
        if last < first:
            return
        self._rows(first, last)
        for bucket in {first, last}:
            start_s, end_s = bucket * self.slot_s, (bucket + 1) * self.slot_s
            here = self._list(bucket, host)
            self._sums[:, :, bucket - self._first, host] = greatest_uses(here, start_s, end_s)
        if last - first > 1:
            kinds = slice(0, 1 if booking.flag == PREEMPTIBLE else 2)
            inner = slice(first + 1 - self._first, last - self._first)
            self._sums[kinds, 0, inner, host] += sign * booking.cores
            self._sums[kinds, 1, inner, host] += sign * booking.memory_mib
