"""The count of slots says of every placement what the capacity check says, and nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.embedding.check import check_placement
from testbed.embedding.placement import Placement, Residual
from testbed.engine.tier_reservations import (
    SingleSlotCounters,
    SlotCounters,
)
from tests.support.examples import examples
from topologies.flat import flat

SLOTS = (1, 2, 1, 3)
ONES = (1, 1, 1, 1)
PAIRS = st.tuples(st.integers(-2, len(SLOTS) + 1), st.integers(-1, 4))
PLACEMENTS = st.builds(
    Placement,
    st.sampled_from([len(SLOTS), 0]),
    st.lists(PAIRS, max_size=5).map(tuple),
    st.sampled_from([(), (0, 1), (1, 0), (0, 0), (2, 0, 1)]),
)
SOUND = st.lists(st.sampled_from(range(len(SLOTS))), max_size=4).map(
    lambda servers: Placement(
        len(SLOTS),
        tuple((s, servers.count(s)) for s in sorted(set(servers))),
    )
)


def free_of(count: SlotCounters) -> Residual:
    return Residual(np.array(count.free), np.zeros(0, dtype=np.int64))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "slots"),
    [
        (SlotCounters, SLOTS),
        (SlotCounters, ONES),
        (SingleSlotCounters, ONES),
    ],
)
@examples(80)
@given(
    asked=st.lists(
        st.tuples(PLACEMENTS | SOUND, st.integers(0, 5)), max_size=8
    )
)
def test_a_placement_is_held_exactly_where_the_check_finds_nothing_wrong(
    kind: type[SlotCounters],
    slots: tuple[int, ...],
    asked: list[tuple[Placement, int]],
) -> None:
    machine = flat(len(slots), slots)
    count = kind(machine)
    for number, (placement, n_vms) in enumerate(asked):
        before = list(count.free)
        wrong = check_placement(
            machine, free_of(count), placement, n_vms, 0
        )
        assert count.reserve(f"job {number}", n_vms, placement, 0) == (
            not wrong
        )
        if wrong:
            assert count.free == before
        count.check()
    for job_id in list(count.held):
        count.release(job_id)
    assert count.free == list(slots)


def test_who_holds_something_holds_nothing_more() -> None:
    count = SlotCounters(flat(len(SLOTS), SLOTS))
    one = Placement(len(SLOTS), ((0, 1),))
    assert count.reserve("a", 1, one, 0)
    assert not count.reserve("a", 1, Placement(len(SLOTS), ((1, 1),)), 0)
    assert count.free == [0, 2, 1, 3]
