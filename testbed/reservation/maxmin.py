"""Max-min fair rates by water-filling, in numpy: what long TCP flows settle at. Pure.

Unit u wants at most ``cap[u]``; link l carries Σ weight·rate of the units over it, at most its
capacity. In the max-min fair allocation no unit's rate can rise without that of one no faster
falling (Bertsekas and Gallager, "Data Networks", 6.5.2).

A unit may count for more on one link than on another (``priority``): then a link that is full gives
its units rates in proportion to their priorities there, as weighted fair queueing would, but for
those that some other link or their cap holds to less (docs/decisions/0434).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.compiled import compiled, numba_available
from topologies.datacentre import IntArray

FloatArray = npt.NDArray[np.float64]


def max_min_rates(
    capacity: FloatArray,
    start: IntArray,
    link: IntArray,
    weight: FloatArray,
    cap: FloatArray,
    priority: FloatArray | None = None,
    *,
    compile_loops: bool = True,
) -> FloatArray:
    """Rates of all units, shape ``cap``.

    Unit u loads ``link[e]`` with ``weight[e]`` (above 0) times its rate, for e from ``start[u]``
    to ``start[u + 1] - 1``, and has ``priority[e]`` (above 0; by default 1) there.

    A link's *share* is what is left of it over weight times priority of the units not settled yet;
    it offers a unit its priority times that. Shares only rise as units settle, so in every round
    all units settle that are at their cap, and all that cross a link which is the tightest for
    every unit on it. Each round works on the entries not settled yet; a dozen rounds are usual.

    With equal priorities some link is always the tightest for all its units. Otherwise links may
    hold each other up; then the unit with the least offer settles at it, the first of equal ones.
    No unit ever gets less than the least that its links offer it at the start.
    """
    if priority is None:
        priority = np.ones(len(link))
    if compile_loops and numba_available():
        from testbed.reservation.fill_loop import fill_loop

        fill = compiled(fill_loop)
        if fill is not None:
            rates: FloatArray = fill(capacity, start, link, weight, cap, priority)
            return rates
    return _fill_vectors(capacity, start, link, weight, cap, priority)


def _fill_vectors(
    capacity: FloatArray,
    start: IntArray,
    link: IntArray,
    weight: FloatArray,
    cap: FloatArray,
    priority: FloatArray,
) -> FloatArray:
    unit = np.repeat(np.arange(len(cap)), np.diff(start))
    rate = np.where(np.diff(start) > 0, -1.0, cap)
    left = capacity.copy()
    while len(unit):
        load = np.bincount(link, weight * priority, minlength=len(left))
        share = np.full(len(left), np.inf)
        np.divide(np.maximum(left, 0.0), load, out=share, where=load > 0)
        offer = share[link] * priority
        first = np.flatnonzero(np.concatenate(([True], unit[1:] != unit[:-1])))
        tightest = np.minimum.reduceat(offer, first)
        width = np.diff(np.append(first, len(unit)))
        # A link settles when none of its units is held back more elsewhere (by a link or its cap).
        level = np.minimum(tightest, cap[unit[first]])
        elsewhere = np.repeat(level, width) < offer
        held_back = np.bincount(link[elsewhere], minlength=len(left)) > 0
        at_link = np.logical_or.reduceat(~held_back[link], first)
        settled = at_link | (cap[unit[first]] <= tightest)
        if not settled.any():
            settled[int(np.argmin(level))] = True
        rate[unit[first][settled]] = level[settled]
        gone = np.repeat(settled, width)
        used = weight[gone] * np.repeat(level, width)[gone]
        left -= np.bincount(link[gone], used, minlength=len(left))
        unit, link = unit[~gone], link[~gone]
        weight, priority = weight[~gone], priority[~gone]
    return rate
