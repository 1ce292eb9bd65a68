"""Max-min fair rates by water-filling, in numpy: what long TCP flows settle at. Pure.

Unit u wants at most ``cap[u]``; link l carries Σ weight·rate of the units over it, at most its
capacity. In the max-min fair allocation no unit's rate can rise without that of one no faster
falling (Bertsekas and Gallager, "Data Networks", 6.5.2).
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
    *,
    compile_loops: bool = True,
) -> FloatArray:
    """Rates of all units, shape ``cap``.

    Unit u loads ``link[e]`` with ``weight[e]`` (above 0) times its rate, for e from ``start[u]``
    to ``start[u + 1] - 1``.

    A link's *share* is what is left of it over the weight of the units not settled yet. Shares
    only rise as units settle, so in every round all units settle that are at their cap, and all
    that cross a link which is the tightest for every unit on it. Each round works on the entries
    not settled yet; a dozen rounds are usual.
    """
    if compile_loops and numba_available():
        from testbed.backends.sim.fill_loop import fill_loop

        fill = compiled(fill_loop)
        if fill is not None:
            rates: FloatArray = fill(capacity, start, link, weight, cap)
            return rates
    return _fill_vectors(capacity, start, link, weight, cap)


def _fill_vectors(
    capacity: FloatArray, start: IntArray, link: IntArray, weight: FloatArray, cap: FloatArray
) -> FloatArray:
    unit = np.repeat(np.arange(len(cap)), np.diff(start))
    rate = np.where(np.diff(start) > 0, -1.0, cap)
    left = capacity.copy()
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
