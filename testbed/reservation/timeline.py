"""Changes of what is free, in time order, as flat arrays that a loop can sweep.

The record of DCloud (Section III.D: "time-varying resource utilization record", RUR) turned on its
side. The paper keeps a list of pieces per server and link; here one sorted list of *changes*
(a reservation begins, a reservation ends) serves all of them, each change with the reservation's
footprint in a common pool. Inserting costs a binary search and a move of a few hundred numbers;
the least that is free in a window is one sweep over the changes inside it, and windows with the
same start share the sweep (running minima). What is asked about a few objects alone goes by their
own intervals (docs/decisions/0461).

Intervals are half-open; at equal times ends stand before starts. All amounts are integers: going
back and forth in time is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from testbed.compiled import compiled
from testbed.reservation.footprint import Footprint
from testbed.reservation.pool import FloatArray, Pool
from topologies.datacentre import IntArray

Number = TypeVar("Number", np.float64, np.int64)

_ROOM = 64
# Of more objects than these a sweep over time tells as quickly.
FEW = 16


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
        self._capacity = np.array(capacity, dtype=np.int64)
        self.free = self._capacity.copy()
        self.cursor_s = -math.inf
        self._sweep: Callable[..., None] | None = None
        self._compile_loops = compile_loops
        # Changes, sorted: time, which interval, and whether it begins (+1) or ends (-1). They stand
        # from _first to _n - 1; what is before was forgotten, and room to move into.
        self._time: FloatArray = np.empty(_ROOM)
        self._what: IntArray = np.empty(_ROOM, dtype=np.int64)
        self._sign: IntArray = np.empty(_ROOM, dtype=np.int64)
        self._first = 0
        self._n = 0
        self._past = 0  # the first change after the cursor
        self._pool = Pool(len(self.free), compile_loops=compile_loops)

    # -- intervals --------------------------------------------------------------------------

    def add(self, footprint: Footprint, start_s: float, end_s: float) -> int:
        """Take ``footprint`` in ``[start_s, end_s)`` (end inf: for ever); the interval's number.

        Checks nothing: whoever calls has seen that it fits.
        """
        number = self._pool.store(footprint, start_s, end_s)
        self._insert(start_s, number, +1)
        if end_s < math.inf:
            self._insert(end_s, number, -1)
        return number

    def cut(self, number: int, end_s: float, at_s: float) -> None:
        """End an interval that would have ended at ``end_s`` at ``at_s`` already."""
        if end_s < math.inf:
            self._remove(end_s, number, -1)
        self._insert(at_s, number, -1)
        self._pool.end_at(number, at_s)

    def drop(self, number: int, start_s: float, end_s: float) -> None:
        """Take an interval out as if it had never been."""
        if end_s < math.inf:
            self._remove(end_s, number, -1)
        self._remove(start_s, number, +1)
        self._pool.discard(number)

    def footprint(self, number: int) -> tuple[IntArray, IntArray]:
        """Objects and amounts of an interval: views, not to be written."""
        return self._pool.footprint(number)

    def places(self) -> list[int]:
        """The objects that an interval was ever on: for checks."""
        return self._pool.places()

    def taking_of(self, place: int) -> list[tuple[float, float, int]]:
        """Begin, end and amount of every interval on an object: for checks."""
        return self._pool.taking_of(place)

    def record(self) -> Record:
        """Everything as arrays: views, to be read before the next change and not to be written."""
        n = self._n
        return Record(
            self._time[:n],
            self._what[:n],
            self._sign[:n],
            self._pool.start,
            self._pool.length,
            self._pool.objects,
            self._pool.amounts,
        )

    def upcoming(self, end_s: float = math.inf) -> tuple[int, int]:
        """Changes ``first .. last - 1`` are those after the cursor and before ``end_s``."""
        last = self._before(end_s)
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
        last = self._before(end_s)
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
            last = self._before(end_s)
            if last > first:
                self.sweep(state, low, first, last)
                first = last
            yield low

    def least_free_of(self, objects: IntArray, start_s: float, end_s: float) -> IntArray:
        """:meth:`least_free` of these objects alone: of a few, by their own intervals."""
        if start_s >= self.cursor_s and self._before(end_s) <= self._past:
            return self.free[objects]  # nothing changes from the cursor to the window's end
        if len(objects) <= FEW:
            low = self._pool.least_free(self._capacity, objects, start_s, end_s)
            if low is not None:
                return low
        return self.least_free(start_s, end_s)[objects]

    def sweep(self, state: IntArray, low: IntArray, first: int, last: int) -> None:
        """Run changes ``first .. last - 1`` over ``state``, keeping its minima in ``low``.

        With ``low`` the same array as ``state`` there are no minima to keep.
        """
        if self._sweep is None:
            fast = compiled(sweep_loop) if self._compile_loops else None
            self._sweep = fast or _sweep_vectors
        self._sweep(self.record(), state, low, first, last)

    def forget_before(self, at_s: float) -> list[int]:
        """Drop changes at or before ``at_s``; the numbers of intervals that were over by then."""
        self.seek(at_s)
        gone = slice(self._first, self._past)
        over: list[int] = self._what[gone][self._sign[gone] < 0].tolist()
        self._first = self._past
        for number in over:
            self._pool.discard(number)
        return over

    # -- inside -----------------------------------------------------------------------------

    def _after(self, at_s: float) -> int:
        """The first change later than ``at_s``."""
        return self._first + int(
            np.searchsorted(self._time[self._first : self._n], at_s, side="right")
        )

    def _before(self, at_s: float) -> int:
        """The first change at ``at_s`` or later."""
        return self._first + int(
            np.searchsorted(self._time[self._first : self._n], at_s, side="left")
        )

    def _apply(self, k: int, direction: int) -> None:
        objects, amounts = self.footprint(int(self._what[k]))
        if int(self._sign[k]) * direction > 0:
            self.free[objects] -= amounts
        else:
            self.free[objects] += amounts

    def _insert(self, time_s: float, number: int, sign: int) -> None:
        if self._n == len(self._time):
            self._move_up()
        lo, hi = self._before(time_s), self._after(time_s)
        # Ends before starts among equals: an end goes behind the ends that are there already.
        at = hi if sign > 0 else lo + int(np.count_nonzero(self._sign[lo:hi] < 0))
        if self._first and at - self._first < self._n - at:
            # Fewer stand before it than after it: those make room.
            self._shift(self._first, at, -1)
            self._first -= 1
            at -= 1
            self._past -= 1
        else:
            self._shift(at, self._n, +1)
            self._n += 1
        self._time[at], self._what[at], self._sign[at] = time_s, number, sign
        if time_s <= self.cursor_s:
            self._past += 1
            self._apply(at, 1)

    def _remove(self, time_s: float, number: int, sign: int) -> None:
        lo, hi = self._before(time_s), self._after(time_s)
        found = np.flatnonzero((self._what[lo:hi] == number) & (self._sign[lo:hi] == sign))
        at = lo + int(found[0])
        past = time_s <= self.cursor_s
        if past:
            self._apply(at, -1)
        if at - self._first < self._n - at:
            self._shift(self._first, at, +1)
            self._first += 1
            self._past += not past
        else:
            self._shift(at + 1, self._n, -1)
            self._n -= 1
            self._past -= past

    def _shift(self, lo: int, hi: int, by: int) -> None:
        """Move the changes ``lo .. hi - 1`` by one place."""
        for array in (self._time, self._what, self._sign):
            array[lo + by : hi + by] = array[lo:hi].copy()

    def _move_up(self) -> None:
        """Room behind the last change: what was forgotten makes way, or the arrays grow."""
        n = self._n - self._first
        self._time = _moved(self._time, self._first, n)
        self._what = _moved(self._what, self._first, n)
        self._sign = _moved(self._sign, self._first, n)
        self._past -= self._first
        self._first, self._n = 0, n


def _moved(array: npt.NDArray[Number], first: int, n: int) -> npt.NDArray[Number]:
    """``n`` numbers from ``first`` on, with as much room again behind them."""
    out = np.empty(max(_ROOM, 2 * n), dtype=array.dtype)
    out[:n] = array[first : first + n]
    return out


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
