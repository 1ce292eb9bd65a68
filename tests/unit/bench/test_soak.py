"""The soak's rules: what grows is missed, what is noisy is not."""

from __future__ import annotations

import pytest

from bench.soak import Samples, quarters, rows
from testbed.errors import RunFailed

HOUR_S = 3600.0
USUAL = {
    "add": 25.0,
    "remove": 30.0,
    "measure": 6_000.0,
    "add processor": 20.0,
    "remove processor": 15.0,
    "measure processor": 900.0,
    "keeper": 60.0,
    "controller": 50.0,
    "switch": 300.0,
    "journal": 90.0,
    "load": 3.0,
    "ratio": 1.0,
}
ANEW_AT = 40
"""The round in which the journal is written anew."""


def sampled(grows: str = "", by: float = 0.0) -> Samples:
    """A sample a minute; one kind grows evenly over the hour."""
    samples: Samples = {}
    for what, value in USUAL.items():
        slope = by * (what == grows)
        samples[what] = [
            (60.0 * n, value + (n % 3) / 10 + slope * n / 60)
            for n in range(60)
        ]
    samples["journal file"] = []
    for n in range(60):
        file = 5 if n < ANEW_AT else 6
        samples["journal file"].append((60.0 * n, file))
    return samples


def missed(samples: Samples) -> list[str]:
    return [row.name for row in rows(samples, HOUR_S) if row.meets is False]


def test_what_is_flat_is_met() -> None:
    assert missed(sampled()) == []


@pytest.mark.parametrize(
    ("grows", "by"),
    [
        ("add processor", 12.0),
        ("remove processor", 9.0),
        ("measure processor", 540.0),
        ("keeper", 12.0),
        ("controller", 12.0),
        ("switch", 24.0),
        ("journal", 200.0),
    ],
)
def test_what_grows_is_missed(grows: str, by: float) -> None:
    assert missed(sampled(grows, by)) == [grows]
    assert missed(sampled(grows, by / 6)) == []


def test_quarters_are_those_of_the_time_and_need_rounds() -> None:
    samples = [(10.0, 1.0), (80.0, 5.0), (90.0, 7.0)]
    assert quarters(samples, 100.0) == (1.0, 6.0)
    with pytest.raises(RunFailed, match="no round"):
        quarters(samples, 1_000.0)


def test_the_clock_stands_beside_the_load_and_not_judged() -> None:
    by_name = {row.name: row for row in rows(sampled("add", 500.0), HOUR_S)}
    assert by_name["add"].meets is None
    extra = by_name["add"].extra
    assert extra["last_quarter"] > 5 * extra["first_quarter"]
    assert extra["load_first_quarter"] == extra["load_last_quarter"] == 3.1


def test_a_journal_that_is_never_written_anew_is_missed() -> None:
    samples = sampled()
    anew = {row.name: row for row in rows(samples, HOUR_S)}["journal anew"]
    assert anew.samples == (1,)
    samples["journal file"] = samples["journal file"][:ANEW_AT]
    assert missed(samples) == ["journal anew"]
