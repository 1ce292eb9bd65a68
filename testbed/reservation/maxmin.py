"""Max-min fair rates by water-filling: the steady state of long TCP flows.

A *unit* is a flow, or several flows with one rate. Unit u wants at most
``cap[u]``. A link carries Σ weight·rate over the units that cross it, at most
its capacity. The allocation is max-min fair if a unit's rate can rise only by
lowering the rate of a unit that is as slow or slower (Bertsekas and Gallager,
"Data Networks", 6.5.2).

A unit has a ``priority`` on each of its links. A full link divides its capacity
as weighted fair queueing does, by rates in proportion to these priorities;
units that are limited elsewhere, by their cap or another link, get less.
FairCloud's PS-P needs different priorities on different links.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.compiled import LazyLoop
from topologies.datacentre import IntArray

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def max_min_rates(
    capacity: FloatArray,
    start: IntArray,
    link: IntArray,
    weight: FloatArray,
    cap: FloatArray,
    priority: FloatArray | None = None,
) -> FloatArray:
    """Max-min fair rates of all units, shape ``cap``.

    Entries e from ``start[u]`` to ``start[u + 1] - 1`` are unit u's links: it
    loads ``link[e]`` with ``weight[e]`` (above 0) times its rate, at
    ``priority[e]`` (above 0; default 1).

    Rates are fixed in rounds. A link's *share* is its capacity left, divided by
    the sum of weight·priority over its units without a rate. The link *offers*
    each of these its priority times the share; the least offer of a unit's
    links, at most its cap, is the unit's *level*. A round fixes, at their
    levels, the units that reach their cap and all units on a bottleneck: a link
    whose offer is the level of each of its units. That is safe because shares
    never fall from round to round. A dozen rounds are usual.

    With equal priorities every round fixes a unit. With others it may fix none;
    then the unit with the lowest level is fixed alone, the first of equal ones.
    Every unit gets at least its level of the first round.
    """
    if priority is None:
        priority = np.ones(len(link))
    # The expected steps, by which LazyLoop decides to compile: a dozen rounds
    # over all entries.
    rates: FloatArray = FILL(
        12 * len(link), capacity, start, link, weight, cap, priority
    )
    return rates


def even_rates(
    capacity: FloatArray,
    start: IntArray,
    link: IntArray,
    weight: FloatArray,
    cap: FloatArray,
) -> FloatArray:
    """Rates of all units, shape ``cap``, if every link offers the same rate to
    all its units: a unit gets the least offer of its links, at most its cap.

    What a unit does not use of an offer is wasted. Arguments: see
    :func:`max_min_rates`.
    """
    load = np.bincount(link, weight, minlength=len(capacity))
    share = np.maximum(capacity[link], 0.0) / load[link]
    rates = np.asarray(cap, dtype=np.float64).copy()
    unit = np.repeat(np.arange(len(cap)), np.diff(start))
    np.minimum.at(rates, unit, share)
    return rates


def fill_loop(
    capacity: FloatArray,
    start: IntArray,
    link: IntArray,
    weight: FloatArray,
    cap: FloatArray,
    priority: FloatArray,
) -> FloatArray:
    """:func:`max_min_rates` as a loop over numbers, for compiling.

    ``active`` begins with the ``n_active`` units that have no rate yet.
    """
    rate = np.empty(len(cap))
    active = np.empty(len(cap), dtype=np.int64)
    n_active = 0
    for unit in range(len(cap)):
        # A unit that crosses no link is bounded by its cap alone.
        if start[unit + 1] > start[unit]:
            active[n_active] = unit
            n_active += 1
        else:
            rate[unit] = cap[unit]
    left = capacity.copy()
    share = np.empty(len(capacity))
    level = np.empty(len(cap))
    at_cap = np.empty(len(cap), dtype=np.bool_)
    slack = np.empty(len(capacity), dtype=np.bool_)
    while n_active > 0:
        units = active[:n_active]
        _shares(units, start, link, weight, priority, left, share)
        slack[:] = False
        _levels(
            units, start, link, cap, priority, share, level, at_cap, slack
        )
        n_active = _fix_rates(
            units, start, link, weight, level, at_cap, slack, left, rate
        )
        if n_active == len(units):
            # Nothing was fixed: the unit with the lowest level is fixed alone,
            # by being marked as one at its cap.
            least = 0
            for place in range(1, n_active):
                if level[units[place]] < level[units[least]]:
                    least = place
            at_cap[units[least]] = True
            # With slack everywhere no link is a bottleneck, so that no other
            # unit is fixed with it.
            slack[:] = True
            n_active = _fix_rates(
                units, start, link, weight, level, at_cap, slack, left, rate
            )
    return rate


def _shares(
    units: IntArray,
    start: IntArray,
    link: IntArray,
    weight: FloatArray,
    priority: FloatArray,
    left: FloatArray,
    share: FloatArray,
) -> None:
    """Writes every link's share into ``share``; infinite without active units."""
    load = np.zeros(len(left))
    for unit in units:
        for e in range(start[unit], start[unit + 1]):
            load[link[e]] += weight[e] * priority[e]
    for number in range(len(left)):
        if load[number] > 0:
            # By rounding a little more than all may have been given away.
            share[number] = max(left[number], 0.0) / load[number]
        else:
            share[number] = np.inf


def _levels(
    units: IntArray,
    start: IntArray,
    link: IntArray,
    cap: FloatArray,
    priority: FloatArray,
    share: FloatArray,
    level: FloatArray,
    at_cap: BoolArray,
    slack: BoolArray,
) -> None:
    """Writes each unit's level, and whether that is its cap; marks in ``slack``
    the links that offer some unit more than its level.
    """
    for unit in units:
        tightest = np.inf
        for e in range(start[unit], start[unit + 1]):
            tightest = min(tightest, share[link[e]] * priority[e])
        level[unit] = min(tightest, cap[unit])
        at_cap[unit] = cap[unit] <= tightest
        for e in range(start[unit], start[unit + 1]):
            if level[unit] < share[link[e]] * priority[e]:
                slack[link[e]] = True


def _fix_rates(
    units: IntArray,
    start: IntArray,
    link: IntArray,
    weight: FloatArray,
    level: FloatArray,
    at_cap: BoolArray,
    slack: BoolArray,
    left: FloatArray,
    rate: FloatArray,
) -> int:
    """Fixes the units that are at their cap or on a bottleneck.

    The others are moved to the beginning of ``units``; returns their number.
    """
    # Subtracted at the end: all units of a round compare the same shares.
    used = np.zeros(len(left))
    kept = 0
    for unit in units:
        fixed = at_cap[unit]
        for e in range(start[unit], start[unit + 1]):
            # A link without slack is a bottleneck.
            fixed = fixed or not slack[link[e]]
        if fixed:
            rate[unit] = level[unit]
            for e in range(start[unit], start[unit + 1]):
                used[link[e]] += weight[e] * level[unit]
        else:
            # Never behind the unit that is being read.
            units[kept] = unit
            kept += 1
    left -= used
    return kept


FILL = LazyLoop(fill_loop)
