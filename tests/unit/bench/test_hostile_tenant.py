"""Beside busy loops a tenant is judged by pairs: a slow machine is no loss, and a
loss is one on any machine.
"""

from __future__ import annotations

import pytest

from bench.hostile_tenant import LoopRound, alone_row, loops_row

QUIET = [LoopRound(1.001, 1.0, 1.002), LoopRound(1.0, 0.999, 1.001)]
# As seen at a load of 8, with nothing beside it: 0.9702 to 1.002.
BUSY = [
    LoopRound(1.002, 1.001, 0.999),
    LoopRound(0.9702, 0.975, 1.001),
    LoopRound(1.0, 0.9982, 1.001),
]
LOST = [LoopRound(1.0, 0.9, 1.0), LoopRound(1.0, 0.99, 1.0)]
LOST_EVERY_TIME = [LoopRound(0.97, 0.93, 1.0)] * 3
NOTHING_ARRIVED = [LoopRound(0.0, 0.0, 0.0)] * 3


@pytest.mark.parametrize(
    ("rounds", "by_pairs", "before"),
    [
        (QUIET, True, "met"),
        (BUSY, True, "MISSED"),
        (LOST, False, "MISSED"),
        (LOST_EVERY_TIME, False, "MISSED"),
        (NOTHING_ARRIVED, False, "MISSED"),
    ],
)
def test_a_loss_is_one_against_the_share_alone(
    rounds: list[LoopRound], by_pairs: bool, before: str
) -> None:
    row = loops_row("beside", rounds)
    assert row.meets is by_pairs
    assert list(row.extra.values())[-1] == before


def test_the_share_alone_is_in_the_table() -> None:
    row = alone_row(200, BUSY)
    assert (min(row.samples), max(row.samples)) == (0.9702, 1.002)
    assert row.meets is None
    assert "0.9692" in next(iter(row.extra.values()))
