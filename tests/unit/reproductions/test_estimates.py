"""Intervals over seeds, against scipy's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from testbed.sweeps.intervals import estimate
from tests.support.examples import examples

values = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12)


@examples(60)
@given(values)
def test_the_interval_is_student_s(sample: list[float]) -> None:
    found = estimate(sample)
    assert found.mean == pytest.approx(np.mean(sample), abs=1e-6)
    assert found.half_width is not None
    if np.ptp(sample) > 1e-3:
        low, high = stats.t.interval(
            0.95,
            len(sample) - 1,
            loc=np.mean(sample),
            scale=stats.sem(sample),
        )
        assert found.mean - found.half_width == pytest.approx(
            low, rel=1e-6, abs=1e-6
        )
        assert found.mean + found.half_width == pytest.approx(
            high, rel=1e-6, abs=1e-6
        )


def test_of_differences_it_is_the_paired_t_interval() -> None:
    ours, theirs = [80.1, 85.2, 77.0, 81.5], [60.0, 66.1, 55.2, 62.0]
    found = estimate([a - b for a, b in zip(ours, theirs, strict=True)])
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert found.half_width is not None
    assert found.mean - found.half_width == pytest.approx(expected.low)
    assert found.mean + found.half_width == pytest.approx(expected.high)
    # Unpaired, the same samples would leave the comparison over twice as wide.
    apart = estimate(ours).half_width
    assert apart is not None
    assert found.half_width < apart / 2


def test_one_seed_has_no_interval() -> None:
    assert estimate([3.0]).half_width is None
    assert estimate([3.0]).show() == "3.0"
    assert estimate([1.0, 3.0]).show() == "2.0 ± 12.7"
    assert math.isnan(estimate([]).mean)


def test_a_ratio_to_nothing_is_infinite() -> None:
    assert estimate([2.0, math.inf]).mean == math.inf
    assert estimate([math.inf, math.inf]).show() == "∞"
