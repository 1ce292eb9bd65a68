"""VMs that take several cores and memory: checked, booked and given back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.embedding.check import check_placement
from testbed.embedding.placement import Placement, VmSize, empty_residual
from testbed.reservation.ledger import Ledger, OverCommit
from tests.support.examples import examples
from tests.support.ledger_use import in_use
from topologies.datacentre import TopologyError
from topologies.flat import flat

ROOT = 3
DC = flat(3, 4, memory_mib=[1000, 2000, 3000])


def on(server: int, count: int = 1) -> Placement:
    return Placement(ROOT, ((server, count),))


def test_memory_and_cores_are_checked_independently_of_the_ledger() -> None:
    free = empty_residual(DC)
    assert check_placement(DC, free, on(1, 2), 2, 0, VmSize(2, 1000)) == []
    assert check_placement(DC, free, on(1, 2), 2, 0, VmSize(3, 1001)) == [
        "server 1: 6 slots asked, 4 free",
        "server 1: 2002 MiB asked, 2000 MiB free",
    ]


def test_what_is_booked_is_gone_and_comes_back() -> None:
    ledger = Ledger(DC)
    ledger.reserve("a", on(2, 2), 0, 10.0, 20.0, VmSize(2, 1400))
    usage = in_use(ledger, 10.0)
    assert usage.free_slots.tolist() == [0, 0, 4]
    assert usage.free_memory_mib is not None
    assert usage.free_memory_mib.tolist() == [0, 0, 2800]
    free = ledger.residual(0.0, None)
    assert free.free_memory_mib is not None
    assert (free.free_slots.tolist(), free.free_memory_mib.tolist()) == (
        [4, 4, 0],
        [1000, 2000, 200],
    )
    ledger.check()
    ledger.release("a", 15.0)
    assert ledger.residual(15.0, None).free_slots.tolist() == [4, 4, 4]


def test_too_much_memory_is_refused_with_the_place_and_the_time() -> None:
    ledger = Ledger(DC)
    ledger.reserve("a", on(0), 0, 5.0, 9.0, VmSize(1, 600))
    with pytest.raises(
        OverCommit,
        match=r"server 0: 500 MiB asked, 400 MiB free from 0 s to 6 s",
    ):
        ledger.reserve("b", on(0), 0, 0.0, 6.0, VmSize(1, 500))
    ledger.reserve("b", on(0), 0, 0.0, 5.0, VmSize(1, 500))
    ledger.check()


def test_without_memory_in_the_data_centre_nothing_is_asked_of_it() -> None:
    plain = flat(2, 4)
    assert (
        check_placement(
            plain,
            empty_residual(plain),
            Placement(2, ((0, 1),)),
            1,
            0,
            VmSize(4, 10**9),
        )
        == []
    )
    assert Ledger(plain).residual(0.0, None).free_memory_mib is None


BOOKINGS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(1, 3),
        st.integers(1, 900),
        st.integers(0, 9),
        st.integers(1, 9),
    ),
    max_size=25,
)


@given(BOOKINGS)
@examples(40)
def test_the_ledger_books_exactly_what_fits_second_by_second(
    wanted: list[tuple[int, int, int, int, int]],
) -> None:
    ledger = Ledger(DC)
    assert DC.memory_mib is not None
    free = np.stack(
        [
            np.repeat(DC.slots[:, None], 20, 1),
            np.repeat(DC.memory_mib[:, None], 20, 1),
        ]
    )
    for number, (server, cores, memory, start, length) in enumerate(wanted):
        part = free[:, server, start : start + length]
        fits = bool(np.all(part >= np.array([[cores], [memory]])))
        try:
            ledger.reserve(
                str(number),
                on(server),
                0,
                float(start),
                float(start + length),
                VmSize(cores, memory),
            )
            booked = True
        except OverCommit:
            booked = False
        assert booked == fits
        if fits:
            part -= np.array([[cores], [memory]])
    ledger.check()


def test_memory_is_a_number_for_every_node() -> None:
    with pytest.raises(TopologyError) as error:
        flat(2, 1, memory_mib=[5, 5, 5])
    assert [path for path, _ in error.value.problems] == [("memory_mib",)]
