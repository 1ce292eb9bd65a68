"""Free capacity over time, as flat arrays that a compiled loop can sweep.

This is DCloud's "time-varying resource utilization record" (RUR, Section
III.D). The paper keeps a list of intervals per server and link, here called
*objects*. Here one list of *changes*, sorted by time, serves all objects: at a
change an *interval* (a reservation) begins or ends. The interval's *footprint*,
its amounts by object, is in a common pool.

Inserting takes a binary search and moves a few hundred numbers. The least that
is free in a window takes one sweep over the changes inside it; windows with the
same start share one sweep. For a few objects their own intervals are looked up,
through a chain of pool entries per object.

Intervals are half-open, so that at equal times ends precede beginnings. Amounts
are integers, so that moving back and forth in time is exact.
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

# The initial length of arrays; they double when they are full.
_ROOM = 64
# The look-up by objects' own intervals is for at most so many objects, each with
# at most so many intervals in the window. Beyond, a sweep is as fast.
FEW_OBJECTS = 16
MOST_INTERVALS = 64


@dataclass(frozen=True, eq=False)
class Footprint:
    """Takes ``amounts[k]`` (above 0) of object ``objects[k]``, a number; each
    object occurs once.
    """

    objects: IntArray
    amounts: IntArray


class Record(NamedTuple):
    """The arrays of a timeline, for compiled loops.

    Per change, in time order: ``time`` in s, the number of its interval
    (``what``), and ``sign`` (+1 begins, -1 ends).

    Per interval, by number: its footprint is the pool entries ``start`` to
    ``start + length - 1``; it lasts from ``begin_s`` to ``until_s``.

    Per pool entry: ``objects`` and ``amounts``, the object and how much of it is
    taken; ``owner``, the interval; ``following``, the next entry of the same
    object (-1: none). ``head``, per object, is the first entry of this chain.

    Entries of intervals that are gone stay in their chains for a while: such an
    entry is outside the footprint of its ``owner``.
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
    """Intervals with footprints, and what they leave free of every object.

    ``free`` is the free amount per object at the instant :attr:`cursor_s`;
    queries may move this cursor.
    """

    def __init__(self, capacity: IntArray) -> None:
        self._capacity = np.array(capacity, dtype=np.int64)
        self.free = self._capacity.copy()
        self.cursor_s = -math.inf
        # Per change as in Record. The changes stand from _first to _end - 1;
        # places before _first are of forgotten ones, and free to move into.
        self._time: FloatArray = np.empty(_ROOM)
        self._what: IntArray = np.empty(_ROOM, dtype=np.int64)
        self._sign: IntArray = np.empty(_ROOM, dtype=np.int64)
        self._first = 0
        self._end = 0
        # The first change after the cursor.
        self._next = 0
        self.pool = Pool(len(self.free))

    # -- intervals --------------------------------------------------------------------------

    def add(
        self, footprint: Footprint, start_s: float, end_s: float
    ) -> int:
        """Adds an interval ``[start_s, end_s)`` (inf: it never ends); returns its
        number.

        The caller has checked that its footprint fits.
        """
        number = self.pool.store(footprint, start_s, end_s)
        self._insert(start_s, number, +1)
        if end_s < math.inf:
            self._insert(end_s, number, -1)
        return number

    def cut(self, number: int, end_s: float, at_s: float) -> None:
        """Moves an interval's end from ``end_s`` to the earlier ``at_s``."""
        if end_s < math.inf:
            self._remove(end_s, number, -1)
        self._insert(at_s, number, -1)
        self.pool.until_s[number] = at_s

    def drop(self, number: int, start_s: float, end_s: float) -> None:
        """Removes an interval as if it had never been added."""
        if end_s < math.inf:
            self._remove(end_s, number, -1)
        self._remove(start_s, number, +1)
        self.pool.discard(number)

    def record(self) -> Record:
        """The arrays as views: read-only, and valid until the next change."""
        end = self._end
        pool = self.pool
        return Record(
            time=self._time[:end],
            what=self._what[:end],
            sign=self._sign[:end],
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
        """``(first, last)``: changes ``first`` to ``last - 1`` are those after the
        cursor and before ``end_s``.
        """
        return self._next, max(self._next, self._before(end_s))

    # -- time -------------------------------------------------------------------------------

    def seek(self, at_s: float) -> None:
        """Moves the cursor, and with it :attr:`free`, to ``at_s``."""
        target = self._after(at_s)
        # Forward by the compiled loop. Backward there are mostly few changes,
        # which are undone one by one.
        if target > self._next:
            self.sweep(self.free, self.free, self._next, target)
        for k in range(self._next - 1, target - 1, -1):
            self._apply(k, -1)
        self._next = target
        self.cursor_s = at_s

    def least_free(self, start_s: float, end_s: float) -> IntArray:
        """The least that is free during ``[start_s, end_s)``, per object.

        The cursor moves only for a window that begins before it.
        """
        # Later windows are swept in copies of what is free at the cursor.
        if start_s < self.cursor_s:
            self.seek(start_s)
        low = self.free.copy()
        first = max(self._next, self._after(start_s))
        if first > self._next:
            # To the window's start: without minima, which begin there.
            self.sweep(low, low, self._next, first)
        last = self._before(end_s)
        if last > first:
            self.sweep(low.copy(), low, first, last)
        return low

    def least_free_by_end(
        self, start_s: float, ends_s: Sequence[float]
    ) -> Iterator[IntArray]:
        """:meth:`least_free` of windows with the same start and rising ends, by
        one sweep.

        Yields the same array each time, with new values.
        """
        # For an empty window: what is free at the start.
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
        """:meth:`least_free` of some objects, shape ``objects``; for few objects
        computed from their own intervals.
        """
        if start_s >= self.cursor_s and self._before(end_s) <= self._next:
            # Nothing changes from the cursor to the window's end.
            return self.free[objects]
        low = self._capacity[objects]
        # Few, because an object's own intervals are not in time order: every
        # pair of them is compared.
        few = len(objects) <= FEW_OBJECTS
        if few and LEAST(
            MOST_INTERVALS * len(objects),
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
        """Applies changes ``first`` to ``last - 1`` to ``state``, free amounts per
        object; keeps their minima in ``low``.

        A caller that needs no minima passes ``state`` as ``low``, too.
        """
        record = self.record()
        entries = int(self.pool.length[self._what[first:last]].sum())
        SWEEP(entries, record, state, low, first, last)

    def forget_before(self, at_s: float) -> list[int]:
        """Drops changes at or before ``at_s``, and intervals that have ended by
        then; returns their numbers.
        """
        self.seek(at_s)
        gone = slice(self._first, self._next)
        ended: list[int] = self._what[gone][self._sign[gone] < 0].tolist()
        self._first = self._next
        for number in ended:
            self.pool.discard(number)
        return ended

    # -- inside -----------------------------------------------------------------------------

    def _after(self, at_s: float) -> int:
        """The first change later than ``at_s``."""
        return bisect_right(self._time, at_s, self._first, self._end)

    def _before(self, at_s: float) -> int:
        """The first change at ``at_s`` or later."""
        return bisect_left(self._time, at_s, self._first, self._end)

    def _apply(self, k: int, direction: int) -> None:
        """Applies change ``k`` to ``free`` (``direction`` +1) or undoes it (-1)."""
        footprint = self.pool.footprint(int(self._what[k]))
        self.free[footprint.objects] -= (
            int(self._sign[k]) * direction * footprint.amounts
        )

    def _insert(self, time_s: float, number: int, sign: int) -> None:
        if self._end == len(self._time):
            self._move_up()
        lo = self._before(time_s)
        hi = self._after(time_s)
        # Of changes at the same time ends come first: a new end goes after the
        # ends, a new beginning after all.
        at = hi
        if sign < 0:
            at = lo + int(np.count_nonzero(self._sign[lo:hi] < 0))
        if self._first and at - self._first < self._end - at:
            # The changes before it are fewer than those after it: they move.
            self._shift(self._first, at, -1)
            self._first -= 1
            at -= 1
            # Before a future change, the first change after the cursor has
            # moved as well. For a past one it has not: see below.
            self._next -= 1
        else:
            self._shift(at, self._end, +1)
            self._end += 1
        self._time[at] = time_s
        self._what[at] = number
        self._sign[at] = sign
        # A past change has an effect on what is free at the cursor.
        if time_s <= self.cursor_s:
            self._next += 1
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
        if at - self._first < self._end - at:
            self._shift(self._first, at, +1)
            self._first += 1
            # Before a future change, the past ones have moved up, and the
            # index after them rises. For a past one it stays.
            if not past:
                self._next += 1
        else:
            self._shift(at + 1, self._end, -1)
            self._end -= 1
            if past:
                self._next -= 1

    def _shift(self, lo: int, hi: int, by: int) -> None:
        """Moves changes ``lo`` to ``hi - 1`` up (``by`` +1) or down (-1)."""
        for array in (self._time, self._what, self._sign):
            array[lo + by : hi + by] = array[lo:hi].copy()

    def _move_up(self) -> None:
        """Moves all changes to the beginning of new arrays, with room after
        them.
        """
        n = self._end - self._first
        _resize(
            self,
            ("_time", "_what", "_sign"),
            slice(self._first, self._end),
            max(_ROOM, 2 * n),
        )
        self._next -= self._first
        self._first = 0
        self._end = n


def _resize(
    of: object, names: Sequence[str], kept: slice | IntArray, size: int
) -> None:
    """Replaces the array attributes ``names`` by arrays of ``size`` that begin
    with the ``kept`` elements.
    """
    for name in names:
        old = getattr(of, name)[kept]
        new = np.zeros(size, dtype=old.dtype)
        new[: len(old)] = old
        setattr(of, name, new)


def sweep_loop(
    record: Record, state: IntArray, low: IntArray, first: int, last: int
) -> None:
    """:meth:`Timeline.sweep` as a loop over numbers, for compiling."""
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
    """Intervals by number, with their footprints; arrays as in :class:`Record`.

    ``store`` takes amortised O(objects of the footprint): the entries of
    discarded intervals are removed only when the pool is full.
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
        """Adds an interval ``[begin_s, until_s)``; returns its number."""
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
        # New entries become the first of their objects' chains.
        self.following[lo:hi] = self.head[footprint.objects]
        self.head[footprint.objects] = np.arange(lo, hi)
        self.start[number] = lo
        self.length[number] = size
        self.begin_s[number] = begin_s
        self.until_s[number] = until_s
        self._end = hi
        return number

    def discard(self, number: int) -> None:
        """Forgets an interval; another may get its number."""
        # Its entries stay in their chains until least_loop passes them or the
        # pool is full.
        self.length[number] = 0
        self._unused.append(number)

    def footprint(self, number: int) -> Footprint:
        """An interval's footprint, as read-only views."""
        lo = int(self.start[number])
        hi = lo + int(self.length[number])
        return Footprint(self.objects[lo:hi], self.amounts[lo:hi])

    def _more_numbers(self) -> None:
        size = len(self.start)
        self._unused = list(range(2 * size - 1, size - 1, -1))
        _resize(
            self,
            ("start", "length", "begin_s", "until_s"),
            slice(None),
            2 * size,
        )

    def _make_room(self, size: int) -> None:
        """Removes entries of discarded intervals, and makes room for ``size``
        more.
        """
        owner = self.owner[: self._end]
        # An entry is live if it lies in its owner's footprint. The footprint of
        # a discarded interval is empty; if its number was used again, the new
        # footprint lies elsewhere.
        place = np.arange(self._end) - self.start[owner]
        live = np.flatnonzero((place >= 0) & (place < self.length[owner]))
        room = max(2 * (len(live) + size), 16 * _ROOM)
        _resize(self, ("objects", "amounts", "owner"), live, room)
        self._end = len(live)
        # The live entries kept their order, so each footprint starts at the
        # first entry of its owner.
        numbers, first = np.unique(
            self.owner[: self._end], return_index=True
        )
        self.start[numbers] = first
        self._rebuild_chains(room)

    def _rebuild_chains(self, room: int) -> None:
        """Builds the chains of all objects anew."""
        self.following = np.full(room, -1, dtype=np.int64)
        self.head.fill(-1)
        # A stable sort keeps an object's entries from old to new. A chain runs
        # from new to old, as after single insertions.
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
    """:meth:`Timeline.least_free_of` from the objects' own intervals.

    ``low`` holds the objects' capacities; their greatest use in the window is
    subtracted. False, with ``low`` to be ignored, if an object has more than
    :data:`MOST_INTERVALS` in the window.

    The use of an object rises only where an interval begins. So it is greatest
    at the window's start or at a beginning inside the window. Entries of
    discarded intervals are unlinked on the way.
    """
    begins = np.empty(MOST_INTERVALS)
    untils = np.empty(MOST_INTERVALS)
    taken = np.empty(MOST_INTERVALS, dtype=np.int64)
    for k in range(len(objects)):
        resource = objects[k]
        n = 0
        previous = -1
        entry = record.head[resource]
        while entry >= 0:
            number = record.owner[entry]
            next_entry = record.following[entry]
            place = entry - record.start[number]
            if place < 0 or place >= record.length[number]:
                # Of a discarded interval: its chain goes around it.
                if previous < 0:
                    record.head[resource] = next_entry
                else:
                    record.following[previous] = next_entry
                entry = next_entry
                continue
            if (
                record.begin_s[number] < end_s
                and record.until_s[number] > start_s
            ):
                # The arrays have a fixed size, so that the loop allocates
                # nothing.
                if n == MOST_INTERVALS:
                    return False
                begins[n] = record.begin_s[number]
                untils[n] = record.until_s[number]
                taken[n] = record.amounts[entry]
                n += 1
            previous = entry
            entry = next_entry
        # An interval that began before the window counts at the window's start.
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
