"""Both forms of the compiled loops, for tests that compare them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from testbed.reservation.maxmin import FILL, FloatArray
from testbed.reservation.timeline import LEAST, SWEEP
from testbed.schedulers.dcloud_search import PLACE
from testbed.schedulers.dru import INCREASES
from topologies.datacentre import IntArray

BOTH_FORMS = pytest.mark.parametrize("machine_code", [False, True])
LOOPS = (SWEEP, LEAST, FILL, PLACE, INCREASES)


@contextmanager
def loops(*, machine_code: bool) -> Iterator[None]:
    """Runs all loops in one form, whatever they have done before."""
    with pytest.MonkeyPatch.context() as patch:
        for loop in LOOPS:
            patch.setattr(
                loop,
                "_run",
                loop.machine_code if machine_code else loop.python,
            )
        yield


def fill_vectors(
    capacity: FloatArray,
    start: IntArray,
    link: IntArray,
    weight: FloatArray,
    cap: FloatArray,
    priority: FloatArray | None = None,
) -> FloatArray:
    """Max-min fair rates in numpy: the same rounds as ``max_min_rates``, by vectors."""
    if priority is None:
        priority = np.ones(len(link))
    unit = np.repeat(np.arange(len(cap)), np.diff(start))
    rate = np.where(np.diff(start) > 0, -1.0, cap)
    left = capacity.copy()
    while len(unit):
        load = np.bincount(link, weight * priority, minlength=len(left))
        share = np.full(len(left), np.inf)
        np.divide(np.maximum(left, 0.0), load, out=share, where=load > 0)
        offer = share[link] * priority
        first = np.flatnonzero(
            np.concatenate(([True], unit[1:] != unit[:-1]))
        )
        tightest = np.minimum.reduceat(offer, first)
        width = np.diff(np.append(first, len(unit)))
        # A link settles when none of its units is held back more elsewhere (by a link or its cap).
        level = np.minimum(tightest, cap[unit[first]])
        elsewhere = np.repeat(level, width) < offer
        slack = np.bincount(link[elsewhere], minlength=len(left)) > 0
        at_link = np.logical_or.reduceat(~slack[link], first)
        settled = at_link | (cap[unit[first]] <= tightest)
        if not settled.any():
            # For want of one, by rounding, the tightest: every round has to
            # end.
            settled[int(np.argmin(level))] = True
        rate[unit[first][settled]] = level[settled]
        gone = np.repeat(settled, width)
        used = weight[gone] * np.repeat(level, width)[gone]
        left -= np.bincount(link[gone], used, minlength=len(left))
        unit, link = unit[~gone], link[~gone]
        weight, priority = weight[~gone], priority[~gone]
    return rate
