"""Search for the largest ``scale.rate`` at which a load test fits. Pure.

The load is not proportional to the rate (a pass of the switch has a fixed cost, packets cost
instead of bytes, losses follow an overload), so only a rate that was tested itself is an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

MOST_TESTS = 8
CLOSE = 1.12
"""The answer is less than so many times below the largest rate that fits, if tests suffice."""
NEARLY = 0.97
"""Share of the limit from which on a load is near enough to it."""
CALM, RISING = 1.2, 1.05
"""Times the limit, above which losses distort the load; times a load, what noise is not."""


def fitting_rate(
    test: Callable[[float], float], start: float, most: float, least: float, limit: float
) -> float | None:
    """The largest rate found from ``least`` to ``most`` whose tested load is within ``limit``.

    None where no tested rate fits. ``start`` is tested first, then rates of two figures.
    """
    loads: dict[float, float] = {}
    fit, rate = 0.0, start
    while rate not in loads and len(loads) < MOST_TESTS:
        loads[rate] = test(rate)
        fit = max((r for r, load in loads.items() if load <= limit), default=0.0)
        over = min((r for r, load in loads.items() if load > limit and r > fit), default=inf)
        crossing, sure = _crossing(loads, fit, limit)
        if fit and (loads[fit] >= NEARLY * limit or (crossing if sure else over) <= CLOSE * fit):
            break
        if not fit:  # far down where the load did not fall with the rate
            low, high = over / 8, over * (0.8 if sure or len(loads) == 1 else 0.4)
        elif over == inf:
            low, high = 1.5 * fit, 8 * fit
        else:  # not at the ends, or the bracket would shrink by nearly nothing
            low, high = fit * (over / fit) ** 0.2, fit * (over / fit) ** 0.8
        # At two figures the next rate may be a tenth away.
        rate = max(float(f"{min(max(0.93 * crossing, low), high):.2g}"), float(f"{1.06 * fit:.2g}"))
        rate = min(most, max(least, rate))
    return fit or None


def _crossing(loads: Mapping[float, float], fit: float, limit: float) -> tuple[float, bool]:
    """The rate at which the load would reach the limit.

    By the line through the two rates next to it (True), or in proportion to the load nearest to
    it, where losses or noise leave no such line.
    """
    rates = [rate for rate in sorted(loads) if rate >= fit][:2]
    if len(rates) < 2:
        rates = sorted(loads)[-2:]
    low, high = rates[0], rates[-1]
    if RISING * loads[low] < loads[high] <= CALM * limit:
        return low + (limit - loads[low]) * (high - low) / (loads[high] - loads[low]), True
    rate, load = min(loads.items(), key=lambda one: abs(one[1] - limit))
    return rate * limit / max(load, 0.01), False
