"""The footprints of intervals in flat arrays, and for every object the intervals that take of it.

A footprint's entries stand together, so that a loop can sweep them; each entry also leads to the
next one of the same object, so that what is asked about a few objects concerns their intervals
alone, however many others there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.compiled import compiled
from testbed.reservation.footprint import Footprint
from topologies.datacentre import IntArray

FloatArray = npt.NDArray[np.float64]

_ROOM = 64
# An object with more intervals than this is better asked about by a sweep over time.
LONGEST = 64


class Chains(NamedTuple):
    """The pool as arrays (compiled loops take it whole).

    Per object the first entry that takes of it, -1: none. Per entry its amount, its interval and
    the next entry of the same object. Per interval the place and number of its entries and when it
    begins and ends. An entry outside its interval's place is of one that is gone.
    """

    head: IntArray
    amount: IntArray
    owner: IntArray
    following: IntArray
    start: IntArray
    length: IntArray
    begin_s: FloatArray
    until_s: FloatArray


class Pool:
    """Intervals by number, with their footprints.

    ``store`` moves as many numbers as the footprint has objects (amortised: gaps are closed when
    the pool is full); ``least_free`` compares the k intervals on each object asked about (k²).
    """

    def __init__(self, n_objects: int, *, compile_loops: bool = True) -> None:
        self.start: IntArray = np.zeros(_ROOM, dtype=np.int64)
        self.length: IntArray = np.zeros(_ROOM, dtype=np.int64)
        self.objects: IntArray = np.empty(16 * _ROOM, dtype=np.int64)
        self.amounts: IntArray = np.empty(16 * _ROOM, dtype=np.int64)
        self._owner: IntArray = np.empty(16 * _ROOM, dtype=np.int64)
        self._following: IntArray = np.empty(16 * _ROOM, dtype=np.int64)
        self._head: IntArray = np.full(n_objects, -1, dtype=np.int64)
        self._begin_s: FloatArray = np.zeros(_ROOM)
        self._until_s: FloatArray = np.zeros(_ROOM)
        self._unused = list(range(_ROOM - 1, -1, -1))
        self._end = 0
        self._used = 0
        self._compile_loops = compile_loops
        self._least: Callable[..., bool] | None = None

    def store(self, footprint: Footprint, begin_s: float, until_s: float) -> int:
        """Keep a footprint in ``[begin_s, until_s)``; the interval's number."""
        if not self._unused:
            self._more_numbers()
        number, size = self._unused.pop(), len(footprint.objects)
        self._make_room(size)
        lo, hi = self._end, self._end + size
        self.objects[lo:hi] = footprint.objects
        self.amounts[lo:hi] = footprint.amounts
        self._owner[lo:hi] = number
        self._following[lo:hi] = self._head[footprint.objects]
        self._head[footprint.objects] = np.arange(lo, hi)
        self.start[number], self.length[number] = lo, size
        self._begin_s[number], self._until_s[number] = begin_s, until_s
        self._end = hi
        self._used += size
        return number

    def end_at(self, number: int, until_s: float) -> None:
        """The interval ends at ``until_s`` instead."""
        self._until_s[number] = until_s

    def discard(self, number: int) -> None:
        """Forget an interval; its number is free for another."""
        self._used -= int(self.length[number])
        self.length[number] = 0
        self._unused.append(number)

    def footprint(self, number: int) -> tuple[IntArray, IntArray]:
        """Objects and amounts of an interval: views, not to be written."""
        lo = int(self.start[number])
        hi = lo + int(self.length[number])
        return self.objects[lo:hi], self.amounts[lo:hi]

    def places(self) -> list[int]:
        """The objects that have a chain."""
        found: list[int] = np.flatnonzero(self._head >= 0).tolist()
        return found

    def taking_of(self, place: int) -> list[tuple[float, float, int]]:
        """Begin, end and amount of every interval on an object, along its chain."""
        out = []
        entry = int(self._head[place])
        while entry >= 0:
            number = int(self._owner[entry])
            if 0 <= entry - self.start[number] < self.length[number]:
                taken = int(self.amounts[entry])
                out.append((float(self._begin_s[number]), float(self._until_s[number]), taken))
            entry = int(self._following[entry])
        return out

    def least_free(
        self, capacity: IntArray, objects: IntArray, start_s: float, end_s: float
    ) -> IntArray | None:
        """The least that is free of each of ``objects`` in ``[start_s, end_s)``.

        None where one of them has so many intervals that a sweep over time is the better way.
        """
        if self._least is None:
            self._least = (compiled(least_loop) if self._compile_loops else None) or least_loop
        low = capacity[objects]
        return low if self._least(self._chains(), objects, start_s, end_s, low) else None

    def _chains(self) -> Chains:
        return Chains(
            self._head,
            self.amounts,
            self._owner,
            self._following,
            self.start,
            self.length,
            self._begin_s,
            self._until_s,
        )

    def _more_numbers(self) -> None:
        size = len(self.start)
        self._unused = list(range(2 * size - 1, size - 1, -1))
        self.start = np.concatenate((self.start, np.zeros_like(self.start)))
        self.length = np.concatenate((self.length, np.zeros_like(self.length)))
        self._begin_s = np.concatenate((self._begin_s, np.zeros_like(self._begin_s)))
        self._until_s = np.concatenate((self._until_s, np.zeros_like(self._until_s)))

    def _make_room(self, size: int) -> None:
        """Room for ``size`` more entries: first by closing gaps, then by growing."""
        if self._end + size <= len(self.objects):
            return
        room = max(2 * (self._used + size), 16 * _ROOM)
        objects, amounts = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
        owner = np.empty(room, dtype=np.int64)
        end = 0
        for number in np.flatnonzero(self.length):
            lo, length = int(self.start[number]), int(self.length[number])
            objects[end : end + length] = self.objects[lo : lo + length]
            amounts[end : end + length] = self.amounts[lo : lo + length]
            owner[end : end + length] = number
            self.start[number] = end
            end += length
        self.objects, self.amounts, self._owner, self._end = objects, amounts, owner, end
        self._link_anew(room)

    def _link_anew(self, room: int) -> None:
        """All chains from the entries that are left."""
        self._following = np.full(room, -1, dtype=np.int64)
        self._head.fill(-1)
        order = np.argsort(self.objects[: self._end], kind="stable")
        sorted_objects = self.objects[order]
        same = sorted_objects[1:] == sorted_objects[:-1]
        self._following[order[1:][same]] = order[:-1][same]
        last = np.concatenate((~same, np.ones(min(1, len(order)), dtype=bool)))
        self._head[sorted_objects[last]] = order[last]


def least_loop(
    chains: Chains, objects: IntArray, start_s: float, end_s: float, low: IntArray
) -> bool:
    """:meth:`Pool.least_free`: ``low`` holds capacities and gets what is free. False: too many.

    Use is greatest at the window's start or where an interval begins inside it. Entries of
    intervals that are gone are taken out on the way.
    """
    begins, untils = np.empty(LONGEST), np.empty(LONGEST)
    taken = np.empty(LONGEST, dtype=np.int64)
    for k in range(len(objects)):
        here = objects[k]
        n, before, entry = 0, -1, chains.head[here]
        while entry >= 0:
            number, next_entry = chains.owner[entry], chains.following[entry]
            place = entry - chains.start[number]
            if place < 0 or place >= chains.length[number]:
                if before < 0:
                    chains.head[here] = next_entry
                else:
                    chains.following[before] = next_entry
                entry = next_entry
                continue
            if chains.begin_s[number] < end_s and chains.until_s[number] > start_s:
                if n == LONGEST:
                    return False
                begins[n], untils[n] = chains.begin_s[number], chains.until_s[number]
                taken[n] = chains.amount[entry]
                n += 1
            before, entry = entry, next_entry
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
