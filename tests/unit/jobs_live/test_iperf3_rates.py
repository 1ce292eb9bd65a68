"""iperf3's document of a receiver: the bandwidth of the test's own time."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.live.iperf3 import received_bps


def document(
    *intervals: tuple[float, float, int], omitted: int = 0, lasts_s: int = 2
) -> Any:
    """``intervals``: start and length in s, bytes; the first of them are omitted."""
    sums = [
        {
            "start": start,
            "seconds": seconds,
            "bytes": count,
            "omitted": number < omitted,
        }
        for number, (start, seconds, count) in enumerate(intervals)
    ]
    mean_bps = (
        8
        * sum(count for _, _, count in intervals)
        / sum(one[1] for one in intervals)
    )
    return {
        "start": {"test_start": {"duration": lasts_s}},
        "intervals": [{"sum": one} for one in sums],
        "end": {"sum_received": {"bits_per_second": mean_bps}},
    }


def test_what_arrives_after_the_tests_time_does_not_count() -> None:
    found = document((0.0, 1.0, 500_000), (0.0, 1.0, 1_000_000), (1.0, 1.0, 1_000_000),
                     (2.0, 0.15, 20_000), omitted=1)  # fmt: skip
    assert received_bps(found) == pytest.approx(8_000_000)


def test_a_pause_within_its_time_counts() -> None:
    found = document(
        (0.0, 1.0, 1_000_000), (1.0, 1.0, 500_000), (2.0, 0.01, 0)
    )
    assert received_bps(found) == pytest.approx(6_000_000)


def test_an_end_that_is_not_to_count_does_not() -> None:
    found = document(
        (0.0, 1.0, 1_000_000), (1.0, 1.0, 500_000), (2.0, 0.01, 0)
    )
    assert received_bps(found, 1) == pytest.approx(8_000_000)


def test_without_whole_intervals_its_own_mean_counts() -> None:
    found = document((0.0, 1.0, 1_000_000), omitted=1, lasts_s=1)
    assert received_bps(found) == pytest.approx(8_000_000)
