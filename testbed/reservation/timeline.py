"""Changes of what is free, in time order, as flat arrays that a loop can sweep.

The record of DCloud (Section III.D: "time-varying resource utilization record", RUR) turned on its
side. The paper keeps a list of pieces per server and link; here one sorted list of *changes*
(a reservation begins, a reservation ends) serves all of them, each change with the reservation's
footprint in a common pool. Inserting costs a binary search and a move of a few hundred numbers;
the least that is free in a window is one sweep over the changes inside it, and windows with the
same start share the sweep (running minima).

Intervals are half-open; at equal times ends stand before starts. All amounts are integers: going
back and forth in time is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.compiled import compiled
from testbed.reservation.footprint import Footprint
from topologies.datacentre import IntArray

FloatArray = npt.NDArray[np.float64]

_ROOM = 64


class Record(NamedTuple):
    """The timeline as arrays (compiled loops take it whole).

    Per change, in time order: ``time``, the interval ``what`` and its ``sign`` (+1 begins, -1
    ends). Per interval: its footprint is ``objects`` and ``amounts`` from ``start`` on, ``length``
    of them.
    """

    time: FloatArray
    what: IntArray
    sign: IntArray
    start: IntArray
    length: IntArray
    objects: IntArray
    amounts: IntArray


class Timeline:
    """Intervals with footprints over a set of objects, and what they leave free.

    ``free`` is what is free at :attr:`cursor_s`, which moves to wherever is asked about.
    """

    def __init__(self, capacity: IntArray, *, compile_loops: bool = True) -> None:
        self.free = np.array(capacity, dtype=np.int64)
        self.cursor_s = -math.inf
        self._sweep: Callable[..., None] | None = None
        self._compile_loops = compile_loops
        # Changes, sorted: time, which interval, and whether it begins (+1) or ends (-1).
        self._time: FloatArray = np.empty(_ROOM)
        self._what: IntArray = np.empty(_ROOM, dtype=np.int64)
        self._sign: IntArray = np.empty(_ROOM, dtype=np.int64)
        self._n = 0
        self._past = 0  # changes at or before the cursor
        # Intervals by number: where their footprint is in the pool.
        self._start: IntArray = np.zeros(_ROOM, dtype=np.int64)
        self._length: IntArray = np.zeros(_ROOM, dtype=np.int64)
        self._unused = list(range(_ROOM - 1, -1, -1))
        self._pool_object: IntArray = np.empty(16 * _ROOM, dtype=np.int64)
        self._pool_amount: IntArray = np.empty(16 * _ROOM, dtype=np.int64)
        self._pool_end = 0
        self._pool_used = 0

    # -- intervals --------------------------------------------------------------------------

    def add(self, footprint: Footprint, start_s: float, end_s: float) -> int:
        """Take ``footprint`` in ``[start_s, end_s)`` (end inf: for ever); the interval's number.

        Checks nothing: whoever calls has seen that it fits.
        """
        number = self._store(footprint)
        self._insert(start_s, number, +1)
        if end_s < math.inf:
            self._insert(end_s, number, -1)
        return number

    def cut(self, number: int, end_s: float, at_s: float) -> None:
        """End an interval that would have ended at ``end_s`` at ``at_s`` already."""
        if end_s < math.inf:
            self._remove(end_s, number, -1)
        self._insert(at_s, number, -1)

    def drop(self, number: int, start_s: float, end_s: float) -> None:
        """Take an interval out as if it had never been."""
        if end_s < math.inf:
            self._remove(end_s, number, -1)
        self._remove(start_s, number, +1)
        self._discard(number)

    def footprint(self, number: int) -> tuple[IntArray, IntArray]:
        """Objects and amounts of an interval: views, not to be written."""
        lo = int(self._start[number])
        hi = lo + int(self._length[number])
        return self._pool_object[lo:hi], self._pool_amount[lo:hi]

    def record(self) -> Record:
        """Everything as arrays: views, to be read before the next change and not to be written."""
        n = self._n
        return Record(
            self._time[:n],
            self._what[:n],
            self._sign[:n],
            self._start,
            self._length,
            self._pool_object,
            self._pool_amount,
        )

    def upcoming(self, end_s: float = math.inf) -> tuple[int, int]:
        """Changes ``first .. last - 1`` are those after the cursor and before ``end_s``."""
        last = int(np.searchsorted(self._time[: self._n], end_s, side="left"))
        return self._past, max(self._past, last)

    # -- time -------------------------------------------------------------------------------

    def seek(self, at_s: float) -> None:
        """Make :attr:`free` what is free at ``at_s``."""
        target = self._after(at_s)
        if target > self._past:
            self.sweep(self.free, self.free, self._past, target)
        for k in range(self._past - 1, target - 1, -1):
            self._apply(k, -1)
        self._past, self.cursor_s = target, at_s

    def least_free(self, start_s: float, end_s: float) -> IntArray:
        """The least that is free of every object at any instant of ``[start_s, end_s)``.

        Looks ahead of the cursor without moving it.
        """
        if start_s < self.cursor_s:
            self.seek(start_s)
        low = self.free.copy()
        first = max(self._past, self._after(start_s))
        if first > self._past:
            self.sweep(low, low, self._past, first)
        last = int(np.searchsorted(self._time[: self._n], end_s, side="left"))
        if last > first:
            self.sweep(low.copy(), low, first, last)
        return low

    def least_free_by_end(self, start_s: float, ends_s: Sequence[float]) -> Iterator[IntArray]:
        """:meth:`least_free` of windows with the same start and rising ends, by one sweep.

        What is yielded is one array that changes: to be read before the next is asked for.
        """
        low = self.least_free(start_s, start_s)
        state = low.copy()
        first = self._after(start_s)
        for end_s in ends_s:
            last = int(np.searchsorted(self._time[: self._n], end_s, side="left"))
            if last > first:
                self.sweep(state, low, first, last)
                first = last
            yield low

    def sweep(self, state: IntArray, low: IntArray, first: int, last: int) -> None:
        """Run changes ``first .. last - 1`` over ``state``, keeping its minima in ``low``.

        With ``low`` the same array as ``state`` there are no minima to keep.
        """
        if self._sweep is None:
            fast = compiled(sweep_loop) if self._compile_loops else None
            self._sweep = fast or _sweep_vectors
        self._sweep(self.record(), state, low, first, last)

    def quiet(self, start_s: float, end_s: float) -> bool:
        """Whether nothing changes inside ``(start_s, end_s)``."""
        return int(np.searchsorted(self._time[: self._n], end_s, side="left")) <= self._after(
            start_s
        )

    def forget_before(self, at_s: float) -> list[int]:
        """Drop changes at or before ``at_s``; the numbers of intervals that were over by then."""
        self.seek(at_s)
        gone = self._past
        over = [int(k) for k in self._what[:gone][self._sign[:gone] < 0]]
        keep = slice(gone, self._n)
        for array in (self._time, self._what, self._sign):
            array[: self._n - gone] = array[keep].copy()
        self._n -= gone
        self._past = 0
        for number in over:
            self._discard(number)
        return over

    # -- inside -----------------------------------------------------------------------------

    def _after(self, at_s: float) -> int:
        """The first change later than ``at_s``."""
        return int(np.searchsorted(self._time[: self._n], at_s, side="right"))

    def _apply(self, k: int, direction: int) -> None:
        objects, amounts = self.footprint(int(self._what[k]))
        if int(self._sign[k]) * direction > 0:
            self.free[objects] -= amounts
        else:
            self.free[objects] += amounts

    def _insert(self, time_s: float, number: int, sign: int) -> None:
        if self._n == len(self._time):
            self._time = np.concatenate((self._time, np.empty_like(self._time)))
            self._what = np.concatenate((self._what, np.empty_like(self._what)))
            self._sign = np.concatenate((self._sign, np.empty_like(self._sign)))
        n = self._n
        lo = int(np.searchsorted(self._time[:n], time_s, side="left"))
        hi = int(np.searchsorted(self._time[:n], time_s, side="right"))
        # Ends before starts among equals: an end goes behind the ends that are there already.
        at = hi if sign > 0 else lo + int(np.count_nonzero(self._sign[lo:hi] < 0))
        for array in (self._time, self._what, self._sign):
            array[at + 1 : n + 1] = array[at:n].copy()
        self._time[at], self._what[at], self._sign[at] = time_s, number, sign
        self._n += 1
        if time_s <= self.cursor_s:
            self._past += 1
            self._apply(at, 1)

    def _remove(self, time_s: float, number: int, sign: int) -> None:
        n = self._n
        lo = int(np.searchsorted(self._time[:n], time_s, side="left"))
        hi = int(np.searchsorted(self._time[:n], time_s, side="right"))
        found = np.flatnonzero((self._what[lo:hi] == number) & (self._sign[lo:hi] == sign))
        at = lo + int(found[0])
        if time_s <= self.cursor_s:
            self._apply(at, -1)
            self._past -= 1
        for array in (self._time, self._what, self._sign):
            array[at : n - 1] = array[at + 1 : n].copy()
        self._n -= 1

    def _store(self, footprint: Footprint) -> int:
        if not self._unused:
            size = len(self._start)
            self._unused = list(range(2 * size - 1, size - 1, -1))
            self._start = np.concatenate((self._start, np.zeros_like(self._start)))
            self._length = np.concatenate((self._length, np.zeros_like(self._length)))
        number, size = self._unused.pop(), len(footprint.objects)
        self._make_room(size)
        lo, hi = self._pool_end, self._pool_end + size
        self._pool_object[lo:hi] = footprint.objects
        self._pool_amount[lo:hi] = footprint.amounts
        self._start[number], self._length[number] = lo, size
        self._pool_end = hi
        self._pool_used += size
        return number

    def _discard(self, number: int) -> None:
        self._pool_used -= int(self._length[number])
        self._length[number] = 0
        self._unused.append(number)

    def _make_room(self, size: int) -> None:
        """Room for ``size`` more in the pool: first by closing gaps, then by growing."""
        if self._pool_end + size <= len(self._pool_object):
            return
        room = max(2 * (self._pool_used + size), 16 * _ROOM)
        objects = np.empty(room, dtype=np.int64)
        amounts = np.empty(room, dtype=np.int64)
        end = 0
        for number in np.flatnonzero(self._length):
            lo, length = int(self._start[number]), int(self._length[number])
            objects[end : end + length] = self._pool_object[lo : lo + length]
            amounts[end : end + length] = self._pool_amount[lo : lo + length]
            self._start[number] = end
            end += length
        self._pool_object, self._pool_amount, self._pool_end = objects, amounts, end


def sweep_loop(record: Record, state: IntArray, low: IntArray, first: int, last: int) -> None:
    """:meth:`Timeline.sweep`, number by number: what is compiled."""
    for k in range(first, last):
        lo = record.start[record.what[k]]
        hi = lo + record.length[record.what[k]]
        if record.sign[k] < 0:
            for j in range(lo, hi):
                state[record.objects[j]] += record.amounts[j]
        else:
            for j in range(lo, hi):
                here = record.objects[j]
                left = state[here] - record.amounts[j]
                state[here] = left
                low[here] = min(low[here], left)


def _sweep_vectors(record: Record, state: IntArray, low: IntArray, first: int, last: int) -> None:
    for k in range(first, last):
        lo = int(record.start[record.what[k]])
        hi = lo + int(record.length[record.what[k]])
        objects, amounts = record.objects[lo:hi], record.amounts[lo:hi]
        if record.sign[k] < 0:
            state[objects] += amounts
        else:
            left = state[objects] - amounts
            state[objects] = left
            low[objects] = np.minimum(low[objects], left)
