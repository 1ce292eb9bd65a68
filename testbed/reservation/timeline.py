"""Changes of free capacity in time order, as flat arrays that a loop can sweep.

DCloud's "time-varying resource utilization record" (RUR, Section III.D), sorted
by time. The paper keeps a list of pieces per server and link; here one sorted
list of *changes* (a reservation begins, a reservation ends) serves all of them,
each change with the reservation's footprint in a common pool. Inserting costs a
binary search and a move of a few hundred numbers; the least that is free in a
window is one sweep over the changes inside it, and windows with the same start
share the sweep (running minima). For a few objects alone their own intervals
are looked up, through a chain of pool entries per object.

Intervals are half-open; at equal times ends stand before starts. All amounts
are integers: going back and forth in time is exact.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.compiled import LazyLoop
from topologies.datacentre import IntArray

FloatArray = npt.NDArray[np.float64]

# Entries at first; arrays double when they are full.
_ROOM = 64
# Of more objects than these a sweep over time is as quick.
FEW = 16
# An object with more intervals than this is better looked up by a sweep over
# time.
LONGEST = 64


@dataclass(frozen=True, eq=False)
class Footprint:
    """``amounts[k]`` (above 0) of object ``objects[k]``; objects by number,
    each once.
    """

    objects: IntArray
    amounts: IntArray


class Record(NamedTuple):
    """The timeline as arrays (compiled loops take it whole).

    Per change, in time order: ``time``, the interval ``what`` and its ``sign``
    (+1 begins, -1 ends). Per interval: its footprint is ``objects`` and
    ``amounts`` from ``start`` on, ``length`` of them; when it begins and ends.
    Per object the first entry that takes of it (``head``, -1: none), per entry
    its interval (``owner``) and the next entry of the same object. An entry
    outside its interval's place is of one that is gone.
    """

    time: FloatArray
    what: IntArray
    sign: IntArray
    start: IntArray
    length: IntArray
    objects: IntArray
    amounts: IntArray
    begin_s: FloatArray
    until_s: FloatArray
    head: IntArray
    owner: IntArray
    following: IntArray


class Timeline:
    """Intervals with footprints over a set of objects, and what they leave
    free.

    ``free`` is what is free at :attr:`cursor_s`, which moves to wherever is
    asked about.
    """

    def __init__(self, capacity: IntArray) -> None:
        self._capacity = np.array(capacity, dtype=np.int64)
        self.free = self._capacity.copy()
        self.cursor_s = -math.inf
        # Changes, sorted: time, which interval, and whether it begins (+1) or
        # ends (-1). They stand from _first to _n - 1; what is before was
        # forgotten, and room to move into.
        self._time: FloatArray = np.empty(_ROOM)
        self._what: IntArray = np.empty(_ROOM, dtype=np.int64)
        self._sign: IntArray = np.empty(_ROOM, dtype=np.int64)
        self._first = 0
        self._n = 0
        self._past = 0  # the first change after the cursor
        self.pool = Pool(len(self.free))

    # -- intervals --------------------------------------------------------------------------

    def add(
        self, footprint: Footprint, start_s: float, end_s: float
    ) -> int:
        """Takes ``footprint`` in ``[start_s, end_s)`` (end inf: for ever); the
        interval's number.

        Checks nothing: the caller has checked that it fits.
        """
        number = self.pool.store(footprint, start_s, end_s)
        self._insert(start_s, number, +1)
        if end_s < math.inf:
            self._insert(end_s, number, -1)
        return number

    def cut(self, number: int, end_s: float, at_s: float) -> None:
        """Ends an interval that would have ended at ``end_s`` at ``at_s``
        already.
        """
        if end_s < math.inf:
            self._remove(end_s, number, -1)
        self._insert(at_s, number, -1)
        self.pool.until_s[number] = at_s

    def drop(self, number: int, start_s: float, end_s: float) -> None:
        """Takes an interval out as if it had never been."""
        if end_s < math.inf:
            self._remove(end_s, number, -1)
        self._remove(start_s, number, +1)
        self.pool.discard(number)

    def record(self) -> Record:
        """Everything as arrays: views, to be read before the next change and
        not to be written.
        """
        n = self._n
        pool = self.pool
        return Record(
            time=self._time[:n],
            what=self._what[:n],
            sign=self._sign[:n],
            start=pool.start,
            length=pool.length,
            objects=pool.objects,
            amounts=pool.amounts,
            begin_s=pool.begin_s,
            until_s=pool.until_s,
            head=pool.head,
            owner=pool.owner,
            following=pool.following,
        )

    def upcoming(self, end_s: float = math.inf) -> tuple[int, int]:
        """Changes ``first .. last - 1`` are those after the cursor and before
        ``end_s``.
        """
        return self._past, max(self._past, self._before(end_s))

    # -- time -------------------------------------------------------------------------------

    def seek(self, at_s: float) -> None:
        """Makes :attr:`free` what is free at ``at_s``."""
        target = self._after(at_s)
        # Forward by the compiled loop. Back are mostly a few changes,
        # undone one by one.
        if target > self._past:
            self.sweep(self.free, self.free, self._past, target)
        for k in range(self._past - 1, target - 1, -1):
            self._apply(k, -1)
        self._past = target
        self.cursor_s = at_s

    def least_free(self, start_s: float, end_s: float) -> IntArray:
        """The least that is free of every object at any instant of ``[start_s,
        end_s)``.

        Looks ahead of the cursor without moving it.
        """
        # Only the past needs the cursor: what lies ahead is swept over in
        # copies.
        if start_s < self.cursor_s:
            self.seek(start_s)
        low = self.free.copy()
        first = max(self._past, self._after(start_s))
        if first > self._past:
            # Up to the window's start there are no minima to keep.
            self.sweep(low, low, self._past, first)
        last = self._before(end_s)
        if last > first:
            self.sweep(low.copy(), low, first, last)
        return low

    def least_free_by_end(
        self, start_s: float, ends_s: Sequence[float]
    ) -> Iterator[IntArray]:
        """:meth:`least_free` of windows with the same start and rising ends, by
        one sweep.

        What is yielded is one array that changes: to be read before the next is
        asked for.
        """
        # The least of an empty window is what is free at its start.
        low = self.least_free(start_s, start_s)
        state = low.copy()
        first = self._after(start_s)
        for end_s in ends_s:
            last = self._before(end_s)
            if last > first:
                self.sweep(state, low, first, last)
                first = last
            yield low

    def least_free_of(
        self, objects: IntArray, start_s: float, end_s: float
    ) -> IntArray:
        """:meth:`least_free` of these objects alone: of a few, by their own
        intervals.
        """
        if start_s >= self.cursor_s and self._before(end_s) <= self._past:
            # Nothing changes from the cursor to the window's end.
            return self.free[objects]
        low = self._capacity[objects]
        # Objects' own intervals are not in time order: every pair of them
        # is compared.
        few = len(objects) <= FEW
        if few and LEAST(
            LONGEST * len(objects),
            self.record(),
            objects,
            start_s,
            end_s,
            low,
        ):
            return low
        return self.least_free(start_s, end_s)[objects]

    def sweep(
        self, state: IntArray, low: IntArray, first: int, last: int
    ) -> None:
        """Runs changes ``first .. last - 1`` over ``state``, keeping its minima
        in ``low``.

        With ``low`` the same array as ``state`` there are no minima to keep.
        """
        record = self.record()
        entries = int(self.pool.length[self._what[first:last]].sum())
        SWEEP(entries, record, state, low, first, last)

    def forget_before(self, at_s: float) -> list[int]:
        """Drops changes at or before ``at_s``; the numbers of intervals that
        were over by then.
        """
        self.seek(at_s)
        gone = slice(self._first, self._past)
        over: list[int] = self._what[gone][self._sign[gone] < 0].tolist()
        self._first = self._past
        for number in over:
            self.pool.discard(number)
        return over

    # -- inside -----------------------------------------------------------------------------

    def _after(self, at_s: float) -> int:
        """The first change later than ``at_s``."""
        return bisect_right(self._time, at_s, self._first, self._n)

    def _before(self, at_s: float) -> int:
        """The first change at ``at_s`` or later."""
        return bisect_left(self._time, at_s, self._first, self._n)

    def _apply(self, k: int, direction: int) -> None:
        print_ = self.pool.footprint(int(self._what[k]))
        self.free[print_.objects] -= (
            int(self._sign[k]) * direction * print_.amounts
        )

    def _insert(self, time_s: float, number: int, sign: int) -> None:
        if self._n == len(self._time):
            self._move_up()
        lo = self._before(time_s)
        hi = self._after(time_s)
        # Ends before starts among equals: an end goes behind the ends that are
        # there already.
        at = hi
        if sign < 0:
            at = lo + int(np.count_nonzero(self._sign[lo:hi] < 0))
        if self._first and at - self._first < self._n - at:
            # Fewer stand before it than after it: those make room.
            self._shift(self._first, at, -1)
            self._first -= 1
            at -= 1
            # The first change after the cursor moved along; for a change of
            # the past it is counted again below.
            self._past -= 1
        else:
            self._shift(at, self._n, +1)
            self._n += 1
        self._time[at] = time_s
        self._what[at] = number
        self._sign[at] = sign
        # Of the past: what is free at the cursor changes with it.
        if time_s <= self.cursor_s:
            self._past += 1
            self._apply(at, 1)

    def _remove(self, time_s: float, number: int, sign: int) -> None:
        lo = self._before(time_s)
        hi = self._after(time_s)
        same = np.flatnonzero(
            (self._what[lo:hi] == number) & (self._sign[lo:hi] == sign)
        )
        at = lo + int(same[0])
        past = time_s <= self.cursor_s
        if past:
            self._apply(at, -1)
        if at - self._first < self._n - at:
            self._shift(self._first, at, +1)
            self._first += 1
            # What stood before the change moved up by one, and with it the
            # first change after the cursor, unless that stood behind it.
            if not past:
                self._past += 1
        else:
            self._shift(at + 1, self._n, -1)
            self._n -= 1
            if past:
                self._past -= 1

    def _shift(self, lo: int, hi: int, by: int) -> None:
        """Moves the changes ``lo .. hi - 1`` by one place."""
        for array in (self._time, self._what, self._sign):
            array[lo + by : hi + by] = array[lo:hi].copy()

    def _move_up(self) -> None:
        """Room behind the last change: what was forgotten makes way, or the
        arrays grow.
        """
        n = self._n - self._first
        _replace(
            self,
            ("_time", "_what", "_sign"),
            slice(self._first, self._n),
            max(_ROOM, 2 * n),
        )
        self._past -= self._first
        self._first = 0
        self._n = n


def _replace(
    of: object, names: Sequence[str], kept: slice | IntArray, size: int
) -> None:
    """Replaces arrays by others of ``size``, which begin with what is kept of
    them.
    """
    for name in names:
        old = getattr(of, name)[kept]
        new = np.zeros(size, dtype=old.dtype)
        new[: len(old)] = old
        setattr(of, name, new)


def sweep_loop(
    record: Record, state: IntArray, low: IntArray, first: int, last: int
) -> None:
    """Runs :meth:`Timeline.sweep` number by number."""
    for k in range(first, last):
        lo = record.start[record.what[k]]
        hi = lo + record.length[record.what[k]]
        if record.sign[k] < 0:
            for j in range(lo, hi):
                state[record.objects[j]] += record.amounts[j]
        else:
            for j in range(lo, hi):
                resource = record.objects[j]
                left = state[resource] - record.amounts[j]
                state[resource] = left
                low[resource] = min(low[resource], left)


class Pool:
    """Intervals by number, with their footprints: see :class:`Record`.

    ``store`` moves as many numbers as the footprint has objects (amortised:
    gaps are closed when the pool is full).
    """

    def __init__(self, n_objects: int) -> None:
        self.start: IntArray = np.zeros(_ROOM, dtype=np.int64)
        self.length: IntArray = np.zeros(_ROOM, dtype=np.int64)
        self.begin_s: FloatArray = np.zeros(_ROOM)
        self.until_s: FloatArray = np.zeros(_ROOM)
        self.objects: IntArray = np.empty(16 * _ROOM, dtype=np.int64)
        self.amounts: IntArray = np.empty(16 * _ROOM, dtype=np.int64)
        self.owner: IntArray = np.empty(16 * _ROOM, dtype=np.int64)
        self.following: IntArray = np.empty(16 * _ROOM, dtype=np.int64)
        self.head: IntArray = np.full(n_objects, -1, dtype=np.int64)
        self._unused = list(range(_ROOM - 1, -1, -1))
        self._end = 0

    def store(
        self, footprint: Footprint, begin_s: float, until_s: float
    ) -> int:
        """Keeps a footprint in ``[begin_s, until_s)``; returns its number."""
        if not self._unused:
            self._more_numbers()
        number = self._unused.pop()
        size = len(footprint.objects)
        if self._end + size > len(self.objects):
            self._make_room(size)
        lo = self._end
        hi = self._end + size
        self.objects[lo:hi] = footprint.objects
        self.amounts[lo:hi] = footprint.amounts
        self.owner[lo:hi] = number
        # New entries stand first in their objects' chains.
        self.following[lo:hi] = self.head[footprint.objects]
        self.head[footprint.objects] = np.arange(lo, hi)
        self.start[number] = lo
        self.length[number] = size
        self.begin_s[number] = begin_s
        self.until_s[number] = until_s
        self._end = hi
        return number

    def discard(self, number: int) -> None:
        """Forgets an interval; frees its number for another."""
        # Its entries stay in their chains; whoever passes takes them out.
        self.length[number] = 0
        self._unused.append(number)

    def footprint(self, number: int) -> Footprint:
        """Objects and amounts of an interval: views, not to be written."""
        lo = int(self.start[number])
        hi = lo + int(self.length[number])
        return Footprint(self.objects[lo:hi], self.amounts[lo:hi])

    def _more_numbers(self) -> None:
        size = len(self.start)
        self._unused = list(range(2 * size - 1, size - 1, -1))
        _replace(
            self,
            ("start", "length", "begin_s", "until_s"),
            slice(None),
            2 * size,
        )

    def _make_room(self, size: int) -> None:
        """Closes gaps, and makes room for ``size`` more entries."""
        owner = self.owner[: self._end]
        # An entry is alive if its interval's footprint reaches over it: a
        # number that was given away again starts elsewhere.
        place = np.arange(self._end) - self.start[owner]
        live = np.flatnonzero((place >= 0) & (place < self.length[owner]))
        room = max(2 * (len(live) + size), 16 * _ROOM)
        _replace(self, ("objects", "amounts", "owner"), live, room)
        self._end = len(live)
        # Live entries keep their order, so an interval begins at the first
        # of its entries.
        numbers, first = np.unique(
            self.owner[: self._end], return_index=True
        )
        self.start[numbers] = first
        self._link_anew(room)

    def _link_anew(self, room: int) -> None:
        """All chains from the entries that are left."""
        self.following = np.full(room, -1, dtype=np.int64)
        self.head.fill(-1)
        # Stable: within one object the newest entry stays last and heads
        # its chain, as after single insertions.
        order = np.argsort(self.objects[: self._end], kind="stable")
        sorted_objects = self.objects[order]
        same = sorted_objects[1:] == sorted_objects[:-1]
        self.following[order[1:][same]] = order[:-1][same]
        last = np.concatenate(
            (~same, np.ones(min(1, len(order)), dtype=bool))
        )
        self.head[sorted_objects[last]] = order[last]


def least_loop(
    record: Record,
    objects: IntArray,
    start_s: float,
    end_s: float,
    low: IntArray,
) -> bool:
    """:meth:`Timeline.least_free_of`: ``low`` holds capacities, and gets what
    is free.

    False where an object has so many intervals that a sweep over time is the
    better way.

    Use is greatest at the window's start or where an interval begins inside it.
    Entries of intervals that are gone are taken out on the way.
    """
    begins = np.empty(LONGEST)
    untils = np.empty(LONGEST)
    taken = np.empty(LONGEST, dtype=np.int64)
    for k in range(len(objects)):
        resource = objects[k]
        n = 0
        before = -1
        entry = record.head[resource]
        while entry >= 0:
            number = record.owner[entry]
            next_entry = record.following[entry]
            place = entry - record.start[number]
            if place < 0 or place >= record.length[number]:
                if before < 0:
                    record.head[resource] = next_entry
                else:
                    record.following[before] = next_entry
                entry = next_entry
                continue
            if (
                record.begin_s[number] < end_s
                and record.until_s[number] > start_s
            ):
                # Room for a fixed number, so that nothing is allocated in
                # the loop.
                if n == LONGEST:
                    return False
                begins[n] = record.begin_s[number]
                untils[n] = record.until_s[number]
                taken[n] = record.amounts[entry]
                n += 1
            before = entry
            entry = next_entry
        # Where none begins inside, the start of the window is one of these
        # instants.
        most = 0
        for i in range(n):
            at_s = max(begins[i], start_s)
            together = 0
            for j in range(n):
                if begins[j] <= at_s < untils[j]:
                    together += taken[j]
            most = max(most, together)
        low[k] -= most
    return True


SWEEP = LazyLoop(sweep_loop)
LEAST = LazyLoop(least_loop)
