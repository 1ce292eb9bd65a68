"""Max-min fair rates by water-filling, in numpy: what long TCP flows settle at. Pure.

Unit u wants at most ``cap[u]``; link l carries Σ weight·rate of the units over it, at most its
capacity. In the max-min fair allocation no unit's rate can rise without that of one no faster
falling (Bertsekas and Gallager, "Data Networks", 6.5.2).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from topologies.datacentre import IntArray

FloatArray = npt.NDArray[np.float64]


def max_min_rates(
    capacity: FloatArray, unit: IntArray, link: IntArray, weight: FloatArray, cap: FloatArray
) -> FloatArray:
    """Rates of all units, shape ``cap``.

    Entry e says that ``unit[e]`` loads ``link[e]`` with ``weight[e]`` (above 0) times its rate.
    A link's *share* is what is left of it over the weight of the units not settled yet. Shares
    only rise as units settle, so in every round all units settle that are at their cap, and all
    that cross a link which is the tightest for every unit on it. Each round does numpy work on the
    entries not settled yet; a dozen rounds are usual.
    """
    rate = np.full(len(cap), -1.0)
    left = capacity.astype(np.float64).copy()
    free = np.ones(len(cap), dtype=np.bool_)
    free[unit] = False
    rate[free] = cap[free]
    order = np.argsort(unit, kind="stable")
    unit, link, weight = unit[order], link[order], weight[order]
    while len(unit):
        load = np.bincount(link, weight, minlength=len(left))
        share = np.full(len(left), np.inf)
        np.divide(np.maximum(left, 0.0), load, out=share, where=load > 0)
        entry_share = share[link]
        first = np.flatnonzero(np.concatenate(([True], unit[1:] != unit[:-1])))
        tightest = np.minimum.reduceat(entry_share, first)
        width = np.diff(np.append(first, len(unit)))
        # A link settles when none of its units is held back more elsewhere (by a link or its cap).
        level = np.minimum(tightest, cap[unit[first]])
        elsewhere = np.repeat(level, width) < entry_share
        held_back = np.bincount(link[elsewhere], minlength=len(left)) > 0
        at_link = np.logical_or.reduceat(~held_back[link], first)
        settled = at_link | (cap[unit[first]] <= tightest)
        rate[unit[first][settled]] = level[settled]
        gone = np.repeat(settled, width)
        used = weight[gone] * np.repeat(level, width)[gone]
        left -= np.bincount(link[gone], used, minlength=len(left))
        unit, link, weight = unit[~gone], link[~gone], weight[~gone]
    return rate
