"""Search for the largest ``scale.rate`` at which a load test fits. Pure.

The load is not proportional to the rate (a pass of the switch costs what it costs, packets cost
instead of bytes, losses follow an overload), so only a rate that was tested itself is an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor, inf, log10

MOST_TESTS = 8
CLOSE = 1.15
"""The answer is sought until the largest rate that fits is less than so many times as large."""
NEARLY = 0.97
"""Share of the limit from which on a load is near enough to it, whatever the rates' line says."""
CALM = 1.2
"""Times the limit: above it, losses say nothing of how the load rises with the rate."""
COLLAPSED = 1.4
AIM = 0.93
FARTHEST = 8.0

Tested = tuple[float, float]
"""A rate and its load."""


def fitting_rate(
    test: Callable[[float], float], start: float, most: float, least: float, limit: float
) -> float | None:
    """The largest rate found, ``most`` at most, whose tested load is within ``limit``.

    ``start`` is tested first, and at most :data:`MOST_TESTS` rates in all, each but ``start``,
    ``most`` and ``least`` of two figures. None where no tested rate fits.
    """
    tested: list[Tested] = []
    rate: float | None = start
    while rate is not None and len(tested) < MOST_TESTS:
        tested.append((rate, test(rate)))
        rate = _next(tested, most, least, limit)
    return max((rate for rate, load in tested if load <= limit), default=None)


def _next(tested: Sequence[Tested], most: float, least: float, limit: float) -> float | None:
    """The rate to be tested next; None where the search is over."""
    fit, fit_load = max((t for t in tested if t[1] <= limit), default=(0.0, 0.0))
    over, over_load = min((t for t in tested if t[1] > limit and t[0] > fit), default=(inf, inf))
    crossing, on_a_line = _crossing(tested, limit)
    if fit and (fit >= most or fit_load >= NEARLY * limit or over <= CLOSE * fit):
        return None
    if fit and on_a_line and crossing <= CLOSE * fit:
        return None
    if fit and over < inf:
        # Not at the bracket's ends, or it would shrink by nearly nothing.
        low, high = fit * (over / fit) ** 0.2, fit * (over / fit) ** 0.8
    elif fit:
        low, high = fit, min(FARTHEST * fit, most)
    else:
        low, high = over / FARTHEST, over * (0.5 if over_load > COLLAPSED * limit else 0.8)
    guess = two_figures(min(max(AIM * crossing, low), high))
    if fit and guess <= fit:
        guess = two_figures(fit + 1.001 * _figure(fit))
    guess = min(most, max(guess, least)) if fit or over > least else 0.0
    return guess if guess and guess not in (rate for rate, _ in tested) else None


def _crossing(tested: Sequence[Tested], limit: float) -> tuple[float, bool]:
    """The rate at which the load would reach the limit.

    By the line through the two loads next to it (True), or in proportion, where losses or noise
    leave no such line.
    """
    near = sorted(tested, key=lambda t: abs(t[1] - limit))[:2]
    (rate, load), (higher, its_load) = min(near), max(near)
    if rate < higher and load < its_load <= CALM * limit:
        return rate + (limit - load) * (higher - rate) / (its_load - load), True
    rate, load = near[0]
    return rate * limit / max(load, 0.01), False


def _figure(rate: float) -> float:
    """The worth of the second figure."""
    return 10.0 ** (floor(log10(rate)) - 1)


def two_figures(rate: float) -> float:
    """A positive rate rounded down to two figures."""
    figure = _figure(rate)
    return float(f"{floor(rate / figure + 1e-9) * figure:.2g}")
