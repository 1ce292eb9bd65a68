"""Water-filling number by number: what is compiled. The same rounds as in numpy (``maxmin``)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.compiled import inline
from testbed.reservation.maxmin import FloatArray
from topologies.datacentre import IntArray

BoolArray = npt.NDArray[np.bool_]


def fill_loop(
    capacity: FloatArray, start: IntArray, link: IntArray, weight: FloatArray, cap: FloatArray,
    priority: FloatArray,
) -> FloatArray:  # fmt: skip
    """See :func:`testbed.reservation.maxmin.max_min_rates`; equal to it to the last bit."""
    rate = np.empty(len(cap))
    active = np.empty(len(cap), dtype=np.int64)
    n_active = 0
    for unit in range(len(cap)):
        if start[unit + 1] > start[unit]:
            active[n_active] = unit
            n_active += 1
        else:
            rate[unit] = cap[unit]
    left, share = capacity.copy(), np.empty(len(capacity))
    level, at_cap = np.empty(len(cap)), np.empty(len(cap), dtype=np.bool_)
    held_back = np.empty(len(capacity), dtype=np.bool_)
    while n_active > 0:
        units = active[:n_active]
        _shares(units, start, link, weight, priority, left, share)
        held_back[:] = False
        _levels(units, start, link, cap, priority, share, level, at_cap, held_back)
        n_active = _settle(units, start, link, weight, level, at_cap, held_back, left, rate)
        if n_active == len(units):
            # Links hold each other up: the unit with the least offer settles alone.
            least = 0
            for place in range(1, n_active):
                if level[units[place]] < level[units[least]]:
                    least = place
            at_cap[units[least]] = True
            held_back[:] = True
            n_active = _settle(units, start, link, weight, level, at_cap, held_back, left, rate)
    return rate


@inline
def _shares(
    units: IntArray, start: IntArray, link: IntArray, weight: FloatArray, priority: FloatArray,
    left: FloatArray, share: FloatArray,
) -> None:  # fmt: skip
    """What every link has left, over the weight of the units that want it."""
    load = np.zeros(len(left))
    for unit in units:
        for e in range(start[unit], start[unit + 1]):
            load[link[e]] += weight[e] * priority[e]
    for here in range(len(left)):
        share[here] = max(left[here], 0.0) / load[here] if load[here] > 0 else np.inf


@inline
def _levels(
    units: IntArray, start: IntArray, link: IntArray, cap: FloatArray, priority: FloatArray,
    share: FloatArray, level: FloatArray, at_cap: BoolArray, held_back: BoolArray,
) -> None:  # fmt: skip
    """What every unit could have now, and the links that somebody leaves some of."""
    for unit in units:
        tightest = np.inf
        for e in range(start[unit], start[unit + 1]):
            tightest = min(tightest, share[link[e]] * priority[e])
        level[unit] = min(tightest, cap[unit])
        at_cap[unit] = cap[unit] <= tightest
        for e in range(start[unit], start[unit + 1]):
            if level[unit] < share[link[e]] * priority[e]:
                held_back[link[e]] = True


@inline
def _settle(
    units: IntArray, start: IntArray, link: IntArray, weight: FloatArray, level: FloatArray,
    at_cap: BoolArray, held_back: BoolArray, left: FloatArray, rate: FloatArray,
) -> int:  # fmt: skip
    """Units at their cap or at a settled link keep what they have; how many go on, in front."""
    used = np.zeros(len(left))
    kept = 0
    for unit in units:
        settled = at_cap[unit]
        for e in range(start[unit], start[unit + 1]):
            settled = settled or not held_back[link[e]]
        if settled:
            rate[unit] = level[unit]
            for e in range(start[unit], start[unit + 1]):
                used[link[e]] += weight[e] * level[unit]
        else:
            units[kept] = unit
            kept += 1
    for here in range(len(left)):
        left[here] -= used[here]
    return kept
