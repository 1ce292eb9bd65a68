"""The grid of Algorithm 1: its ends, its order, its degenerate cases."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.schedulers.dcloud import (
    Reshaping,
    exact,
    relaxed_exactly,
    shapes,
)
from tests.support.examples import examples

both = Reshaping()


def test_relaxing_stops_at_the_deadline() -> None:
    assert relaxed_exactly(100.0, Fraction(1000), 0.0) == 100
    # Exactly: in floats 1.12 is above 1.12.
    assert relaxed_exactly(100.0, Fraction(1000), 0.12) == 112
    assert relaxed_exactly(100.0, Fraction(105), 0.12) == 105


@pytest.mark.parametrize(
    ("value", "decimal"),
    [(0.12, Fraction(12, 100)), (1e-7, Fraction(1, 10**7)), (3600.0, 3600)],
)
def test_a_float_is_the_decimal_number_that_it_is_written_as(
    value: float, decimal: Fraction
) -> None:
    assert exact(value) == decimal


def test_figure_2_half_the_bandwidth_doubles_the_duration() -> None:
    rows = shapes(10**9, Fraction(100), Fraction(200), both)
    assert (rows[0][-1].rate_bps, rows[0][-1].duration_s) == (
        5 * 10**8,
        200.0,
    )


def test_eleven_by_eleven_but_the_last_start_has_no_room_to_scale() -> None:
    rows = shapes(10**9, Fraction(100), Fraction(1100), both)
    assert [len(row) for row in rows] == [11] * 10 + [1]
    assert [row[0].delay_s for row in rows] == [
        100.0 * k for k in range(11)
    ]
    assert {row[0].rate_bps for row in rows} == {10**9}
    assert [s.rate_bps for s in rows[0]] == [
        -(-(10**9) * (110 - k * 10) // 110) for k in range(11)
    ]


def test_no_room_is_one_point() -> None:
    assert [
        [s.rate_bps for s in row]
        for row in shapes(7, Fraction(5), Fraction(5), both)
    ] == [[7]]
    (only,) = shapes(7, Fraction(5), Fraction(5), both)[0]
    assert (only.delay_s, only.duration_s) == (0.0, 5.0)


def test_each_mean_can_be_left_out() -> None:
    sliding = shapes(
        1000, Fraction(1), Fraction(11), Reshaping(scales=False)
    )
    assert [len(row) for row in sliding] == [1] * 11
    scaling = shapes(
        1000, Fraction(1), Fraction(11), Reshaping(slides=False)
    )
    assert [len(row) for row in scaling] == [11]
    assert scaling[0] == shapes(1000, Fraction(1), Fraction(11), both)[0]


def test_a_job_without_a_network_only_slides() -> None:
    assert {
        s
        for row in shapes(0, Fraction(1), Fraction(11), both)
        for s in [len(row)]
    } == {1}


def test_too_long_a_job_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        shapes(1, Fraction(2), Fraction(1), both)


@examples(300)
@given(
    b=st.integers(1, 10**11),
    p=st.floats(0.001, 1e6),
    ratio=st.floats(1.0, 50.0),
    gamma=st.floats(0.0, 0.5),
)
def test_every_point_ends_by_the_deadline(
    b: int, p: float, ratio: float, gamma: float
) -> None:
    d = p * ratio
    relaxed = relaxed_exactly(p, exact(d), gamma)
    rows = shapes(b, relaxed, exact(d), both)
    delays = [row[0].delay_s for row in rows]
    assert delays == sorted(delays)
    for row in rows:
        rates = [s.rate_bps for s in row]
        assert rates == sorted(rates, reverse=True)
        assert rates[0] == b
        for shape in row:
            assert shape.duration_s >= float(relaxed)
            assert shape.delay_s + shape.duration_s <= d * (1 + 1e-12)
            assert shape.rate_bps >= 1
            # The true run, p·b/b', never outlasts what is reserved, not by a rounding either.
            assert (
                p * max(1.0, b / shape.rate_bps) <= shape.duration_s
                or gamma == 0.0
                or relaxed == exact(d)
            )
