"""Metrics in words: one place for all pages."""

from __future__ import annotations

import math

import pytest

from testbed.report.metric_words import metric_words
from testbed.sweeps.sweep_plan import METRICS


def test_every_metric_of_a_sweep_has_words() -> None:
    for key in METRICS:
        name = metric_words(key).name
        assert "_" not in name
        # A word that is the key itself, such as migrations, says it all.
        assert name != key or key.isalpha()


def test_parts_of_a_spread_are_told_apart() -> None:
    names = {
        metric_words(f"estimate_ratio.{part}").name
        for part in ("min", "median", "p95", "max")
    }
    assert len(names) == 4
    assert all(name.startswith("measured / estimate, ") for name in names)


def test_a_key_of_another_version_is_its_own_name() -> None:
    assert metric_words("made_up_later").heading == "Made_up_later"


@pytest.mark.parametrize(
    ("key", "largest", "title"),
    [
        ("wait_mean_s", 86915.0, "Mean wait [h]"),
        ("wait_mean_s", 900.0, "Mean wait [min]"),
        ("wait_mean_s", 12.0, "Mean wait [s]"),
        ("acceptance_rate", 0.5, "Jobs accepted [%]"),
        ("finished", 200.0, "Jobs finished"),
    ],
)
def test_an_axis_has_one_unit_that_fits(
    key: str, largest: float, title: str
) -> None:
    words = metric_words(key)
    assert words.scale(largest).titled(words.heading) == title


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("wait_mean_s", 13490.0, "3 h 45 min"),
        ("wait_mean_s", 0.0, "0 s"),
        ("acceptance_rate", 0.989, "98.9 %"),
        ("finished", 1234.0, "1,234"),
        ("bounded_slowdown_mean", 2.5, "2.50"),
        ("bounded_slowdown_mean", math.inf, "inf"),
    ],
)
def test_a_value_has_its_unit(key: str, value: float, text: str) -> None:
    assert metric_words(key).text(value) == text
