"""The product's size and shape stay within their budgets (``python -m tests.support.shape``)."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import pytest

from tests.support import shape

LINES, NAMES, DEPTH = "lines", "module names", "import depth"
MEDIAN, P90 = "function length, median", "function length, 90th percentile"


def _p90() -> int:
    lengths = shape.function_lengths()
    return lengths[int(0.9 * len(lengths))]


BUDGETS: dict[str, tuple[Callable[[], float], float]] = {
    LINES: (lambda: sum(map(shape.lines, shape.counted())), 36_000),
    NAMES: (lambda: len(shape.repeated_names()), 0),
    DEPTH: (lambda: len(shape.longest_chain()), 14),
    MEDIAN: (lambda: median(shape.function_lengths()), 7),
    P90: (_p90, 20),
}

# Budgets that hold and are to hold. One is added when the product is within it.
IN_FORCE = (MEDIAN, P90)


@pytest.mark.parametrize("name", IN_FORCE)
def test_the_product_is_within_its_budgets(name: str) -> None:
    measured, budget = BUDGETS[name]
    assert measured() <= budget


def test_every_static_figure_can_be_measured() -> None:
    assert all(measured() >= 0 for measured, _ in BUDGETS.values())


def test_every_module_is_counted_once() -> None:
    assert len(set(shape.files())) == len(shape.files())
    assert set(shape.counted()) <= set(shape.files())
