"""The calendar of leases on hosts: buckets of time with sums, and a sorted list
in each.

MBFCBS, Section 3.3, after GarQ (Sulistio et al.): time is cut into buckets of
``slot_s``; every bucket of every host holds how many cores and how much memory
are in use (``rv``, ``rm``) and the leases in it, sorted. Here ``rv`` and ``rm``
are the *greatest* use at any instant of the bucket, so that a bucket in which
one lease follows another is not counted twice; the sorted lists make the ends
of an interval exact.

Sums are kept twice: of all leases, and of the *firm* ones alone, which nobody
can preempt. The sums of one host are contiguous in memory. The cores that they
leave free are kept too, in an array in which the hosts of one bucket are
contiguous: all hosts are compared in a few vector operations over one byte per
host and bucket (``bench mbfcbs-100k``).

With k leases in a bucket and m buckets in an interval: ``add``, ``remove`` and
``used`` are O(m + k log k) for one host; ``most_used_first`` and ``emptiest``
are O(m) vector operations.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from topologies.datacentre import IntArray

FreeCores: TypeAlias = npt.NDArray[np.signedinteger[Any]]

# Flags of a booking.
FIRM = 0
"""Advance or immediate."""
PREEMPTIBLE = 1
"""Best effort."""
PREEMPTED = 2
"""Best effort that was preempted once."""

# Buckets at first; they double when a booking lies behind the last.
_ROWS = 64
# Places on the axis of resources.
_CORES = 0
_MEMORY = 1
# MiB of a host below which sums fit 32 bits, so that vector operations move
# half as much.
_NARROW = 2**30


@dataclass(frozen=True, slots=True, order=True)
class Booking:
    """A lease on one host in ``[start_s, end_s)``: the tuple ⟨ST, FT, NC, RM,
    JID⟩ and its flag.
    """

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
    bookings: Iterable[Booking], start_s: float, end_s: float
) -> Use:
    """The most in use at any instant of ``[start_s, end_s)``; O(k log k) for k
    bookings.
    """
    changes: list[tuple[float, int, int]] = []
    for booking in bookings:
        begin_s = booking.start_s
        until_s = booking.end_s
        if begin_s >= end_s or until_s <= start_s:
            continue
        cores = booking.cores
        memory = booking.memory_mib
        changes.append(
            (begin_s if begin_s > start_s else start_s, cores, memory)
        )
        if until_s < end_s:
            changes.append((until_s, -cores, -memory))
    # At equal times what ends (below 0) stands before what begins.
    changes.sort()
    cores = memory = most_cores = most_memory = 0
    for _, more_cores, more_memory in changes:
        cores += more_cores
        memory += more_memory
        most_cores = max(most_cores, cores)
        most_memory = max(most_memory, memory)
    return Use(most_cores, most_memory)


def firm_ones(bookings: Iterable[Booking]) -> list[Booking]:
    """The bookings that nobody can preempt."""
    return [booking for booking in bookings if booking.flag != PREEMPTIBLE]


class Calendar:
    """Bookings on hosts of ``cores`` and ``memory_mib`` (shapes ``(hosts,)``)."""

    def __init__(
        self, cores: IntArray, memory_mib: IntArray, slot_s: float
    ) -> None:
        if not (math.isfinite(slot_s) and slot_s > 0):
            raise ValueError(
                f"a bucket lasts a finite time above 0 s, not {slot_s}"
            )
        self.cores = cores
        self.memory_mib = memory_mib
        self.slot_s = slot_s
        self._hosts = len(cores)
        self._first = 0
        # Hosts; all leases and the firm ones; cores and memory; buckets from
        # _first on.
        narrow = int(memory_mib.max()) < _NARROW
        dtype = np.int32 if narrow else np.int64
        self._sums = np.zeros((self._hosts, 2, 2, _ROWS), dtype)
        # All leases and the firm ones; buckets; hosts. Differences of two fit
        # as well.
        self._capacity = cores.astype(
            np.min_scalar_type(-2 * int(cores.max()) - 1)
        )
        self._free = np.empty(
            (2, 0, self._hosts), dtype=self._capacity.dtype
        )
        self._extend_free(_ROWS)
        self._lists: dict[int, dict[int, list[Booking]]] = {}
        self._booked: list[dict[str, Booking]] = [
            {} for _ in range(self._hosts)
        ]
        # Hosts whose bookings have changed: whoever looks at them clears it.
        self.changed = set(range(self._hosts))

    def bookings(self, host: int) -> Collection[Booking]:
        """All of a host, in the order in which they were made."""
        return self._booked[host].values()

    # -- the published operations -------------------------------------------------------------

    def add(self, host: int, booking: Booking) -> None:
        """Inserts a lease's booking on a host, without checking that it fits."""
        if booking.lease_id in self._booked[host]:
            raise ValueError(
                f"lease {booking.lease_id} is booked on host {host} already"
            )
        self._booked[host][booking.lease_id] = booking
        buckets = self._buckets(booking.start_s, booking.end_s)
        for bucket in buckets:
            listed = self._lists.setdefault(bucket, {}).setdefault(host, [])
            insort(listed, booking)
        self._count(host, booking, buckets, sign=+1)

    def remove(self, host: int, lease_id: str) -> Booking:
        """Takes a lease's booking out; returns it."""
        booking = self._booked[host].pop(lease_id)
        buckets = self._buckets(booking.start_s, booking.end_s)
        for bucket in buckets:
            listed = self._list(bucket, host)
            del listed[bisect_left(listed, booking)]
        self._count(host, booking, buckets, sign=-1)
        return booking

    def used(
        self, host: int, start_s: float, end_s: float, *, firm: bool = False
    ) -> Use:
        """Search: the most in use on a host at any instant of ``[start_s,
        end_s)``.
        """
        most = Use(0, 0)
        for use in self._parts(host, start_s, end_s, firm=firm):
            most = Use(*map(max, most, use))
        return most

    def fits(
        self,
        host: int,
        start_s: float,
        end_s: float,
        wanted: Use,
        *,
        firm: bool = False,
    ) -> bool:
        """True where a host has ``wanted`` free throughout ``[start_s,
        end_s)``.
        """
        cores = int(self.cores[host]) - wanted.cores
        memory = int(self.memory_mib[host]) - wanted.memory_mib
        if cores < 0 or memory < 0:
            return False
        for use in self._parts(host, start_s, end_s, firm=firm):
            if use.cores > cores or use.memory_mib > memory:
                return False
        return True

    def preemptible(
        self, host: int, start_s: float, end_s: float
    ) -> list[Booking]:
        """Job search: best-effort bookings with flag 1 that touch ``[start_s,
        end_s)``, in order.

        O(k log k) for k bookings of the host.
        """
        touching = []
        for booking in self.bookings(host):
            overlaps = booking.start_s < end_s and booking.end_s > start_s
            if overlaps and booking.flag == PREEMPTIBLE:
                touching.append(booking)
        return sorted(touching)

    # -- all hosts at once ----------------------------------------------------------------------

    def most_used_first(
        self,
        start_s: float,
        end_s: float,
        wanted: Use,
        *,
        firm: bool = False,
    ) -> Iterator[int]:
        """Hosts with room in every bucket that ``[start_s, end_s)`` touches.

        By what the fullest of these buckets leaves of their cores, the least
        first; equals by their number. They have room in the interval itself,
        and there may be more such hosts.
        """
        kind = int(firm)
        rows = self._rows(self._buckets(start_s, end_s))
        # What is left beyond the wanted; where it is below 0, a large number.
        spare = self._left(kind, rows)
        # Seen as unsigned numbers, negative ones are above all others, so
        # that one argmin finds the least that is not negative.
        spare -= wanted.cores
        ranked = spare.view(f"u{spare.itemsize}")
        first = int(ranked.argmin())
        if spare[first] < 0:
            return
        # Nearly always the first one has the memory too, and nobody asks for
        # another.
        yield from self._with_memory(
            np.array([first]), kind, rows, wanted.memory_mib
        )
        n_fitting = int(np.count_nonzero(spare >= 0))
        order = np.argsort(ranked, kind="stable")[1:n_fitting]
        # In growing batches: few are looked at where an early one will do.
        bounds = [2**k for k in range(4, len(order).bit_length())]
        for batch in np.split(order, bounds):
            yield from self._with_memory(
                batch, kind, rows, wanted.memory_mib
            )

    def perhaps_room(
        self,
        start_s: float,
        end_s: float,
        wanted: Use,
        *,
        firm: bool = False,
    ) -> Iterator[int]:
        """Hosts with the cores in all buckets that lie inside ``[start_s,
        end_s)`` as a whole.

        In the order of :meth:`most_used_first`. All that have room in the
        interval are among them.
        """
        buckets = self._buckets(start_s, end_s)
        inside = self._left(int(firm), self._rows(buckets[1:-1]))
        perhaps = np.flatnonzero(inside >= wanted.cores)
        left = self._left(int(firm), self._rows(buckets))[perhaps]
        yield from perhaps[np.argsort(left, kind="stable")].tolist()

    def emptiest(
        self, start_s: float, end_s: float, *, firm: bool = False
    ) -> int:
        """The host with the most cores left in the fullest bucket that the
        interval touches.
        """
        rows = self._rows(self._buckets(start_s, end_s))
        return int(self._left(int(firm), rows).argmax())

    # -- time -------------------------------------------------------------------------------

    def forget_before(self, now_s: float) -> None:
        """Drops the buckets before ``now_s``, which no later query reads."""
        first = self._bucket(now_s)
        rows = self._sums.shape[3]
        # Moving the sums costs O(hosts) a bucket: do it when half of them are
        # over.
        if first - self._first < rows // 2:
            return
        gone = min(first - self._first, rows)
        # Both ends of the move overlap, hence the copy.
        self._sums[..., : rows - gone] = self._sums[..., gone:].copy()
        self._sums[..., rows - gone :] = 0
        self._free = self._free[:, gone:]
        self._extend_free(gone)
        for bucket in [b for b in self._lists if b < first]:
            del self._lists[bucket]
        self._first = first

    # -- inside -----------------------------------------------------------------------------

    def _bucket(self, at_s: float) -> int:
        return int(at_s // self.slot_s)

    def _buckets(self, start_s: float, end_s: float) -> range:
        """The buckets that ``[start_s, end_s)`` touches and that are kept."""
        first = self._bucket(start_s)
        last = self._bucket(end_s)
        # The end is not in the interval: a bucket that begins there is not
        # touched.
        if last > first and last * self.slot_s >= end_s:
            last -= 1
        return range(max(first, self._first), last + 1)

    def _rows(self, buckets: range) -> slice:
        """Rows of the buckets; in those behind the last row nothing is booked."""
        first = buckets.start - self._first
        return slice(first, first + len(buckets))

    def _reach(self, n_rows: int) -> None:
        """Makes room for that many rows."""
        rows = self._sums.shape[3]
        if n_rows > rows:
            # Twice as many at least, so that growing costs O(1) a bucket.
            more = max(rows, n_rows - rows)
            zeros = np.zeros((self._hosts, 2, 2, more), self._sums.dtype)
            self._sums = np.concatenate((self._sums, zeros), axis=3)
            self._extend_free(more)

    def _extend_free(self, rows: int) -> None:
        """More buckets at the end, in which all is free."""
        more = np.broadcast_to(self._capacity, (2, rows, self._hosts))
        self._free = np.concatenate((self._free, more), axis=1)

    def _left(self, kind: int, rows: slice) -> FreeCores:
        """Of every host, the cores that the fullest of the buckets leaves."""
        free = self._free[kind, rows]
        if not len(free):
            return self._capacity.copy()
        least: FreeCores = free.min(axis=0)
        return least

    def _with_memory(
        self, hosts: IntArray, kind: int, rows: slice, memory_mib: int
    ) -> list[int]:
        """Those of the hosts that have the memory in every one of the buckets."""
        if memory_mib:
            used = self._sums[hosts, kind, _MEMORY, rows].max(
                axis=1, initial=0
            )
            hosts = hosts[used + memory_mib <= self.memory_mib[hosts]]
        return list(map(int, hosts))

    def _parts(
        self, host: int, start_s: float, end_s: float, *, firm: bool
    ) -> Iterator[Use]:
        """The most in use in the first bucket's part of the interval, the last
        one's, and between.

        Lazy: a caller that finds the first too full does not need the others.
        """
        buckets = self._buckets(start_s, end_s)
        # The first and the last bucket, or the only one: a step of 0 would
        # raise.
        for bucket in buckets[:: max(len(buckets) - 1, 1)]:
            listed = self._list(bucket, host)
            if firm:
                listed = firm_ones(listed)
            yield greatest_use(listed, start_s, end_s)
        if len(buckets) > 2:
            rows = self._rows(buckets[1:-1])
            inner = self._sums[host, int(firm), :, rows]
            yield Use(*inner.max(axis=1, initial=0).tolist())

    def _list(self, bucket: int, host: int) -> list[Booking]:
        return self._lists.get(bucket, {}).get(host, [])

    def _count(
        self, host: int, booking: Booking, buckets: range, *, sign: int
    ) -> None:
        """Sums after a booking came or went; where it fills a bucket it just
        adds to them.
        """
        self.changed.add(host)
        # It lies wholly in buckets that are forgotten.
        if not buckets:
            return
        rows = self._rows(buckets)
        self._reach(rows.stop)
        sums = self._sums[host]
        # At the ends of a booking a bucket is in use for a part of its time
        # only: its leases are gone through.
        for bucket in {buckets[0], buckets[-1]}:
            start_s = bucket * self.slot_s
            end_s = (bucket + 1) * self.slot_s
            listed = self._list(bucket, host)
            for kind, counted in enumerate((listed, firm_ones(listed))):
                sums[kind, :, bucket - self._first] = greatest_use(
                    counted, start_s, end_s
                )
        # What can be preempted is in the sums of all leases alone.
        kinds = 1 if booking.flag == PREEMPTIBLE else 2
        inner = self._rows(buckets[1:-1])
        sums[:kinds, _CORES, inner] += sign * booking.cores
        sums[:kinds, _MEMORY, inner] += sign * booking.memory_mib
        self._free[:kinds, rows, host] = (
            self._capacity[host] - sums[:kinds, _CORES, rows]
        )
