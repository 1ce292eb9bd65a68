"""Max-min fair rates by water-filling, the steady state of long TCP flows.
Pure.

Unit u wants at most ``cap[u]``; link l carries Σ weight·rate of the units over
it, at most its capacity. In the max-min fair allocation no unit's rate can rise
without that of one no faster falling (Bertsekas and Gallager, "Data Networks",
6.5.2).

A unit may count for more on one link than on another (``priority``): then a
link that is full gives its units rates in proportion to their priorities there,
as weighted fair queueing would, but for those that some other link or their cap
limits to less (FairCloud's PS-P needs it).
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
    """Rates of all units, shape ``cap``.

    Unit u loads ``link[e]`` with ``weight[e]`` (above 0) times its rate, for e
    from ``start[u]`` to ``start[u + 1] - 1``, and has ``priority[e]`` (above 0;
    by default 1) there.

    A link's *share* is what is left of it over weight times priority of the
    units without a rate; it offers a unit its priority times that. Shares only
    rise as rates are fixed, so in every round all units get theirs that are at
    their cap, and all that cross a bottleneck: a link which is the tightest for
    every unit on it. Each round works on the units left; a dozen rounds are
    usual.

    With equal priorities there is always a bottleneck. Otherwise links may wait
    for each other; then the unit with the least offer gets it, the first of
    equal ones. No unit ever gets less than the least that its links offer it at
    the start.
    """
    if priority is None:
        priority = np.ones(len(link))
    # A guess of the steps, by which the loop is compiled or not: a dozen
    # rounds over all entries.
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
    """Rates of all units, shape ``cap``, where a link's capacity is divided
    evenly: the least share of a unit's links, at most its cap.

    What a unit cannot use of its share is wasted. Arguments as above.
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
    """Runs :func:`max_min_rates` number by number."""
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
            # Links wait for each other: the unit with the least offer is fixed
            # alone.
            least = 0
            for place in range(1, n_active):
                if level[units[place]] < level[units[least]]:
                    least = place
            at_cap[units[least]] = True
            # No link counts as a bottleneck for this one call, so that no
            # other unit is fixed with it.
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
    """Computes every link's share: what it has left over the weight of its
    active units.
    """
    load = np.zeros(len(left))
    for unit in units:
        for e in range(start[unit], start[unit + 1]):
            load[link[e]] += weight[e] * priority[e]
    for number in range(len(left)):
        if load[number] > 0:
            # Rounding may leave a little less than nothing.
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
    """Computes each unit's best rate now, and the links with slack: those not
    used up by it.
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
    """Fixes units at their cap or at a bottleneck; returns how many stay
    active, the first ones.
    """
    # Taken off at the end: within a round all units are judged by the same
    # shares.
    used = np.zeros(len(left))
    kept = 0
    for unit in units:
        fixed = at_cap[unit]
        for e in range(start[unit], start[unit + 1]):
            # A link without slack is the tightest of all that cross it.
            fixed = fixed or not slack[link[e]]
        if fixed:
            rate[unit] = level[unit]
            for e in range(start[unit], start[unit + 1]):
                used[link[e]] += weight[e] * level[unit]
        else:
            units[kept] = unit
            kept += 1
    left -= used
    return kept


FILL = LazyLoop(fill_loop)
