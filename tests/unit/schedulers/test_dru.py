"""DRU: the worked example of the paper, and differences against full integration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.embedding.placement import Placement
from testbed.reservation.ledger import Ledger, OverCommit, footprint
from testbed.schedulers.dru import (
    AdmissionOffer,
    Utilisation,
    increases,
    less,
)
from tests.support.examples import examples
from tests.support.full_dru import integral, node_dru
from tests.support.loops import BOTH_FORMS, loops
from topologies.custom import custom
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.flat import flat
from topologies.tree import tree

GIGA = 10**9
THETA = 600.0

# One switch over six servers of four slots, as in Fig. 1: alone, and as one rack of a larger tree.
FIG1 = tree([6], GIGA, 4)
FIG1_INSIDE = tree([2, 2, 6], [4 * GIGA, 4 * GIGA, GIGA], 4)


def one_each(dc: DataCentre) -> AdmissionOffer:
    spread = Placement(dc.trees[0].root, tuple((s, 1) for s in range(6)))
    return AdmissionOffer(spread, GIGA, 0.0, THETA)


def packed(dc: DataCentre) -> AdmissionOffer:
    together = Placement(dc.trees[0].root, ((0, 4), (1, 2)))
    return AdmissionOffer(together, GIGA // 2, 0.0, 2 * THETA)


@pytest.mark.parametrize("dc", [FIG1, FIG1_INSIDE], ids=["alone", "inside"])
def test_figure_1(dc: DataCentre) -> None:
    utilisation = Utilisation(dc)
    switch = dc.n_servers  # the first switch is the rack of servers 0..5

    def dru_integrated(candidate: AdmissionOffer) -> np.ndarray:
        used = np.zeros(dc.n_servers + dc.n_links, dtype=np.int64)
        taken = footprint(dc, candidate.placement, candidate.rate_bps)
        used[taken.objects] += taken.amounts
        return node_dru(utilisation, used)[0] * (
            candidate.end_s - candidate.start_s
        )

    spread, together = (
        dru_integrated(one_each(dc)),
        dru_integrated(packed(dc)),
    )
    assert spread[:6].tolist() == [THETA] * 6
    assert spread[switch] == THETA
    assert together[:6].tolist() == [2 * THETA, 2 * THETA, 0, 0, 0, 0]
    assert together[switch] == pytest.approx(2 * THETA / 3)
    timeline = Ledger(dc).timeline
    timeline.seek(0.0)
    first, second = increases(
        utilisation, timeline, [one_each(dc), packed(dc)]
    ).tolist()
    assert less(second, first)
    assert not less(first, second)


def test_the_maximum_comes_before_the_integral() -> None:
    # A server whose slots are full in one half of the time and whose link is in the other.
    dc = tree([2], 100, 4)
    root = dc.trees[0].root
    slots_full = AdmissionOffer(Placement(root, ((0, 4),)), 0, 0.0, 1.0)
    link_full = AdmissionOffer(
        Placement(root, ((0, 1), (1, 1))), 100, 1.0, 2.0
    )
    total = integral(Utilisation(dc), [slots_full, link_full], 0.0, 2.0)
    assert total.tolist() == [
        1.0 + 2.0
    ]  # not max(4/4 + 1/4, 0 + 1) = 1.25 for server 0


def test_levels_are_those_with_an_uplink_highest_first() -> None:
    assert [len(g) for g in Utilisation(tree([2, 3, 4], 1, 1)).levels] == [
        2,
        6,
        24,
    ]
    assert [len(g) for g in Utilisation(fat_tree(4, 1, 1)).levels] == [
        8,
        8,
        16,
    ]
    assert [len(g) for g in Utilisation(flat(7, 2)).levels] == [7]


@pytest.mark.parametrize(
    ("a", "b", "is_less"),
    [
        ((1.0, 5.0), (2.0, 0.0), True),
        ((1.0, 5.0), (1.0, 5.0), False),
        ((1.0 + 1e-12, 4.0), (1.0, 5.0), True),
        ((1.0, 5.0), (1.0 + 1e-12, 4.0), False),
        ((1.0 + 1e-7, 4.0), (1.0, 5.0), False),
        ((1e-16, 4.0), (0.0, 5.0), True),
        ((1e9, 1.0), (1e9 + 0.5, 2.0), True),
        ((1e9, 2.0), (1e9 + 0.5, 1.0), False),
    ],
)
def test_comparison(
    a: tuple[float, ...], b: tuple[float, ...], is_less: bool
) -> None:
    assert less(a, b) is is_less
    scaled = ([1e6 * x for x in a], [1e6 * y for y in b])
    assert less(*scaled) is is_less


UNEVEN = custom(
    {
        "servers": [
            {"name": "near", "slots": 3},
            {"name": "a", "slots": 2},
            {"name": "b", "slots": 4},
        ],
        "switches": ["top", "mid"],
        "links": [
            {"lower": "near", "upper": "top", "capacity": 30},
            {"lower": "a", "upper": "mid", "capacity": 20},
            {"lower": "b", "upper": "mid", "capacity": 10},
            {"lower": "mid", "upper": "top", "capacity": 25},
        ],
    }
)

CENTRES = {
    "tree": tree([2, 2, 2], [30, 20, 10], 3),
    "uneven": tree([3, 2], [15, 10], [1, 2, 3, 4, 0, 6]),
    "fat-tree": fat_tree(4, 10, 2),
    "flat": flat(5, 3),
    "uneven depth": UNEVEN,
}


@st.composite
def histories(
    draw: st.DrawFn, name: str
) -> tuple[Ledger, list[AdmissionOffer], list[AdmissionOffer]]:
    """A ledger with reservations in it, those reservations, and candidates that fit beside them."""
    dc = CENTRES[name]
    ledger = Ledger(dc)
    held: list[AdmissionOffer] = []
    fits: list[AdmissionOffer] = []
    drawn = draw(
        st.lists(
            st.tuples(
                st.integers(0, len(dc.trees) - 1),
                st.lists(
                    st.integers(0, 2),
                    min_size=dc.n_servers,
                    max_size=dc.n_servers,
                ).filter(any),
                st.integers(0, 6),
                st.integers(0, 9),
                st.integers(1, 9),
                st.booleans(),
            ),
            max_size=14,
        )
    )
    for k, (root, counts, rate, start, length, keep) in enumerate(drawn):
        placement = Placement(
            dc.trees[root].root,
            tuple((s, m) for s, m in enumerate(counts) if m),
        )
        candidate = AdmissionOffer(
            placement, rate, float(start), float(start) + length * 0.7
        )
        try:
            ledger.reserve(
                f"j{k}", placement, rate, candidate.start_s, candidate.end_s
            )
        except OverCommit:
            continue
        if keep:
            held.append(candidate)
        else:
            ledger.release(f"j{k}", 0.0)
            fits.append(candidate)
    # Those that were taken out again fitted then; later ones may have taken their place.
    return ledger, held, fits


@pytest.mark.slow
@BOTH_FORMS
@pytest.mark.parametrize("name", CENTRES)
@examples(30)
@given(data=st.data())
def test_differences_equal_full_integration(
    name: str, data: st.DataObject, *, machine_code: bool
) -> None:
    ledger, held, candidates = data.draw(histories(name))
    utilisation = Utilisation(CENTRES[name])
    ledger.timeline.seek(0.0)
    with loops(machine_code=machine_code):
        found = increases(utilisation, ledger.timeline, candidates)
    end_s = 20.0
    before = integral(utilisation, held, 0.0, end_s)
    for row, candidate in zip(found, candidates, strict=True):
        after = integral(utilisation, [*held, candidate], 0.0, end_s)
        assert row.tolist() == pytest.approx(
            (after - before).tolist(), rel=1e-9, abs=1e-9
        )
        assert np.all(row >= -1e-12)


def test_an_open_ended_reservation_beside_it_does_no_harm() -> None:
    dc = CENTRES["tree"]
    ledger = Ledger(dc)
    root = dc.trees[0].root
    ledger.reserve(
        "service", Placement(root, ((0, 1), (1, 1))), 5, 0.0, None
    )
    ledger.timeline.seek(1.0)
    candidate = AdmissionOffer(
        Placement(root, ((0, 1), (1, 1))), 5, 1.0, 3.0
    )
    (row,) = increases(Utilisation(dc), ledger.timeline, [candidate])
    assert np.all(np.isfinite(row))
    # Servers 0 and 1: from 5/10 to 10/10, for two seconds each.
    assert row[-1] == pytest.approx(2.0)
    assert not math.isnan(row[0])
