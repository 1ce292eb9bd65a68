"""The ledger against a plain slow twin, and the invariants its users rely on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.embedding.placement import Placement, hose_bps, tree_of
from testbed.reservation.ledger import (
    Ledger,
    LedgerBroken,
    OverCommit,
    footprint,
)
from testbed.reservation.rerooting import other_roots, reroot
from testbed.reservation.timeline import SWEEP
from tests.support.examples import examples
from tests.support.ledger_use import in_use
from tests.support.loops import BOTH_FORMS, loops
from topologies.datacentre import DataCentre, Tree, frozen_array, make_tree

# Two racks of two servers below two roots, and a fifth server that hangs below a root itself.
#   nodes 0..4 servers, 5, 6 racks, 7 and 8 roots; links 0..3 servers, 4..7 racks, 8 and 9 server 4.
LOWER = [0, 1, 2, 3, 5, 6, 5, 6, 4, 4]
UPPER = [5, 5, 6, 6, 7, 7, 8, 8, 7, 8]
CAPACITY = [10, 10, 10, 6, 12, 12, 9, 9, 10, 10]
SLOTS = [4, 4, 3, 4, 2]
LEVEL = frozen_array([0, 0, 0, 0, 0, 1, 1, 2, 2])


def hanging(root: int, links: list[int]) -> Tree:
    return make_tree(
        root=root,
        level=LEVEL,
        nodes=[LOWER[k] for k in links],
        parents=[UPPER[k] for k in links],
        links=links,
    )


def data_centre(wider: Sequence[int] = (0,) * 20) -> DataCentre:
    """``wider``: by how much each directed link carries more than its link."""
    return DataCentre(
        kind="custom",
        names=tuple(
            [f"server {s}" for s in range(5)]
            + ["rack 0", "rack 1", "root 0", "root 1"]
        ),
        level=LEVEL,
        slots=frozen_array(SLOTS),
        link_lower=frozen_array(LOWER),
        link_upper=frozen_array(UPPER),
        directed_capacity_bps=frozen_array(
            np.repeat(CAPACITY, 2) + np.array(wider)
        ),
        trees=(
            hanging(7, [0, 1, 2, 3, 4, 5, 8]),
            hanging(8, [0, 1, 2, 3, 6, 7, 9]),
        ),
    )


@dataclass
class Piece:
    """One hose over one interval."""

    job_id: str
    placement: Placement
    rate_bps: int
    start_s: float
    end_s: float


class Twin:
    """The ledger as anybody would write it first: a list of intervals, added up when asked."""

    def __init__(self, datacentre: DataCentre) -> None:
        self.datacentre = datacentre
        self.pieces: list[Piece] = []
        self.held: dict[str, Piece] = {}
        self.lost_servers: set[int] = set()
        self.lost_links: set[int] = set()

    def used(self, at_s: float) -> tuple[list[int], list[int]]:
        slots = [0] * self.datacentre.n_servers
        bps = [0] * (2 * self.datacentre.n_links)
        for piece in self.pieces:
            if piece.start_s <= at_s < piece.end_s:
                tree = tree_of(self.datacentre, piece.placement.root)
                for server, count in piece.placement.vms_on:
                    slots[server] += count
                for link, amount in hose_bps(
                    tree, piece.placement, piece.rate_bps
                ).items():
                    bps[link] += amount
        return slots, bps

    def residual(
        self, start_s: float, end_s: float
    ) -> tuple[list[int], list[int]]:
        free_slots = [int(m) for m in self.datacentre.slots]
        free_bps = [int(c) for c in self.datacentre.directed_capacity_bps]
        instants = {start_s} | {
            p.start_s for p in self.pieces if start_s < p.start_s < end_s
        }
        for at_s in sorted(instants):
            slots, bps = self.used(at_s)
            for s, m in enumerate(slots):
                free_slots[s] = min(
                    free_slots[s], int(self.datacentre.slots[s]) - m
                )
            for k, used in enumerate(bps):
                left = int(self.datacentre.directed_capacity_bps[k]) - used
                free_bps[k] = min(free_bps[k], left)
        return free_slots, free_bps

    def known_residual(
        self, start_s: float, end_s: float
    ) -> tuple[list[int], list[int]]:
        """The residual with nothing free on what is lost."""
        slots, bps = self.residual(start_s, end_s)
        slots = [
            0 if s in self.lost_servers else n for s, n in enumerate(slots)
        ]
        return slots, [
            0 if k // 2 in self.lost_links else n for k, n in enumerate(bps)
        ]

    def on_lost(self, piece: Piece | None) -> dict[tuple[str, int], int]:
        """The amounts that a piece takes of lost servers and links."""
        if piece is None:
            return {}
        tree = tree_of(self.datacentre, piece.placement.root)
        need = hose_bps(tree, piece.placement, piece.rate_bps)
        slots = {
            ("s", s): n
            for s, n in piece.placement.vms_on
            if s in self.lost_servers
        }
        return slots | {
            ("l", k): n
            for k, n in need.items()
            if k // 2 in self.lost_links
        }

    def fits(self, piece: Piece, own: Piece | None) -> bool:
        had = self.on_lost(own)
        if any(
            n > had.get(part, 0) for part, n in self.on_lost(piece).items()
        ):
            return False
        self.pieces.append(piece)
        slots, bps = self.residual(piece.start_s, piece.end_s)
        self.pieces.pop()
        return min(slots) >= 0 and min(bps) >= 0

    def reserve(self, piece: Piece, own: Piece | None = None) -> bool:
        if not self.fits(piece, own):
            return False
        self.pieces.append(piece)
        self.held[piece.job_id] = piece
        return True

    def release(self, job_id: str, at_s: float) -> None:
        piece = self.held.pop(job_id)
        piece.end_s = max(piece.start_s, min(piece.end_s, at_s))

    def change(
        self, job_id: str, at_s: float, placement: Placement, rate_bps: int
    ) -> bool:
        old = self.held[job_id]
        begin_s = max(at_s, old.start_s)
        new = Piece(job_id, placement, rate_bps, begin_s, old.end_s)
        kept_end_s, old.end_s = old.end_s, begin_s
        if self.reserve(new, own=old):
            return True
        old.end_s = kept_end_s
        return False


def placements() -> st.SearchStrategy[Placement]:
    counts = st.lists(st.integers(0, 3), min_size=5, max_size=5).filter(any)
    return st.builds(
        lambda root, xs: Placement(
            root, tuple((s, x) for s, x in enumerate(xs) if x)
        ),
        st.sampled_from([7, 8]),
        counts,
    )


# Few instants, so that ends and starts meet; open ends among them.
instants = st.integers(0, 8).map(float)
steps = st.one_of(
    st.tuples(
        st.just("reserve"),
        placements(),
        st.integers(0, 6),
        instants,
        st.one_of(st.none(), st.integers(1, 6).map(float)),
    ),
    st.tuples(st.just("release"), st.integers(0, 9), instants),
    st.tuples(
        st.just("rerate"), st.integers(0, 9), instants, st.integers(0, 6)
    ),
    st.tuples(st.just("reroot"), st.integers(0, 9), instants),
    st.tuples(
        st.just("lose"),
        st.sets(st.integers(0, 4), max_size=2),
        st.sets(st.integers(0, 9), max_size=3),
    ),
    st.tuples(st.just("forget"), instants),
)


# Links with a capacity in each direction: by how much it is above the link's.
widths = st.one_of(
    st.just([0] * 20),
    st.lists(st.sampled_from([0, 0, 1, 2, 9]), min_size=20, max_size=20),
)


class Pair:
    """The ledger and its twin, driven by the same steps."""

    def __init__(self, wider: Sequence[int]) -> None:
        self.ledger = Ledger(data_centre(wider))
        self.twin = Twin(data_centre(wider))
        self.forgotten_s = -math.inf
        self.serial = 0

    def do(self, step: tuple) -> None:
        match step:
            case ("reserve", placement, rate, start_s, length_s):
                self._reserve(
                    placement,
                    rate,
                    max(start_s, self.forgotten_s),
                    length_s,
                )
            case ("release", which, at_s):
                if job_id := self._held(which):
                    at_s = max(at_s, self.forgotten_s)
                    self.ledger.release(job_id, at_s)
                    self.twin.release(job_id, at_s)
            case ("rerate", which, at_s, rate):
                if job_id := self._held(which):
                    placement = self.twin.held[job_id].placement
                    self._rerate(job_id, at_s, placement, rate)
            case ("reroot", which, at_s):
                if job_id := self._held(which):
                    self._reroot(job_id, max(at_s, self.forgotten_s))
            case ("lose", servers, links):
                self.ledger.set_lost(servers, links)
                self.twin.lost_servers, self.twin.lost_links = (
                    servers,
                    links,
                )
            case ("forget", at_s):
                self.ledger.forget_before(at_s)
                self.forgotten_s = max(self.forgotten_s, at_s)

    def _held(self, which: int) -> str | None:
        ids = sorted(self.twin.held)
        return ids[which % len(ids)] if ids else None

    def _reserve(
        self,
        placement: Placement,
        rate: int,
        start_s: float,
        length_s: float | None,
    ) -> None:
        job_id = f"j{self.serial}"
        self.serial += 1
        end_s = None if length_s is None else start_s + length_s
        piece = Piece(
            job_id,
            placement,
            rate,
            start_s,
            math.inf if end_s is None else end_s,
        )
        if self.twin.reserve(piece):
            self.ledger.reserve(job_id, placement, rate, start_s, end_s)
        else:
            with pytest.raises(OverCommit):
                self.ledger.reserve(job_id, placement, rate, start_s, end_s)

    def _rerate(
        self, job_id: str, at_s: float, placement: Placement, rate: int
    ) -> None:
        at_s = max(at_s, self.forgotten_s)
        held = self.twin.held[job_id]
        if at_s >= held.end_s:
            return
        if self.twin.change(job_id, at_s, placement, rate):
            self.ledger.rerate(job_id, at_s, rate)
        else:
            with pytest.raises(OverCommit):
                self.ledger.rerate(job_id, at_s, rate)

    def _reroot(self, job_id: str, at_s: float) -> None:
        """To the other root, unless a lost link is on its paths there or it has no room."""
        held, lost = self.twin.held[job_id], self.twin.lost_links
        if at_s >= held.end_s:
            return
        moved = held.placement._replace(root=15 - held.placement.root)
        used = {
            k // 2
            for k in hose_bps(tree_of(data_centre(), moved.root), moved, 1)
        }
        fits = not used & lost and self.twin.change(
            job_id, at_s, moved, held.rate_bps
        )
        found = reroot(self.ledger, job_id, at_s, lost)
        assert found == moved if fits else isinstance(found, str)

    def compare(self) -> None:
        self.ledger.check()
        asked = [t / 2 for t in range(-1, 32) if t / 2 >= self.forgotten_s]
        self.ledger.set_lost(
            (), ()
        )  # what is held does not depend on what is lost
        for at_s in asked:
            slots, bps = self.twin.used(at_s)
            usage = in_use(self.ledger, at_s)
            assert usage.free_slots.tolist() == slots
            assert usage.free_bps.tolist() == bps
        self.ledger.set_lost(self.twin.lost_servers, self.twin.lost_links)
        for start_s in asked[::3]:
            for end_s in [*[t for t in asked[::4] if t > start_s], None]:
                until_s = math.inf if end_s is None else end_s
                slots, bps = self.twin.known_residual(start_s, until_s)
                residual = self.ledger.residual(start_s, end_s)
                assert residual.free_slots.tolist() == slots
                assert residual.free_bps.tolist() == bps
            ends = [t for t in asked[::4] if t > start_s]
            for end_s, found in zip(
                ends, self.ledger.residuals(start_s, ends), strict=True
            ):
                slots, bps = self.twin.known_residual(start_s, end_s)
                assert found.free_slots.tolist() == slots
                assert found.free_bps.tolist() == bps


@pytest.mark.slow
@BOTH_FORMS
@examples(150)
@given(history=st.lists(steps, max_size=25), wider=widths)
def test_agrees_with_the_twin_on_random_histories(
    machine_code: bool, history: list, wider: list[int]
) -> None:
    pair = Pair(wider)
    with loops(machine_code=machine_code):
        for step in history:
            pair.do(step)
        pair.compare()


@pytest.mark.slow
@examples(40)
@given(history=st.lists(steps, max_size=12), wider=widths)
def test_agrees_with_the_twin_after_every_step(
    history: list, wider: list[int]
) -> None:
    pair = Pair(wider)
    for step in history:
        pair.do(step)
        pair.compare()


@pytest.mark.slow
@examples(200)
@given(placement=placements(), rate=st.integers(0, 9))
def test_footprint_is_the_hose(placement: Placement, rate: int) -> None:
    dc = data_centre()
    print_ = footprint(dc, placement, rate)
    held = dict(
        zip(print_.objects.tolist(), print_.amounts.tolist(), strict=True)
    )
    assert list(held) == sorted(held)
    assert {s: m for s, m in held.items() if s < dc.n_servers} == dict(
        placement.vms_on
    )
    hose = hose_bps(tree_of(dc, placement.root), placement, rate)
    assert {
        2 * (o - dc.n_servers): m
        for o, m in held.items()
        if o >= dc.n_servers
    } == {k: m for k, m in hose.items() if k % 2 == 0}


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    made = Ledger(data_centre())
    yield made
    made.check()


ONE_EACH = Placement(7, ((0, 1), (1, 1)))


def test_a_refusal_names_the_place_and_the_numbers(ledger: Ledger) -> None:
    ledger.reserve("a", ONE_EACH, 7, 0.0, 10.0)
    with pytest.raises(
        OverCommit,
        match=r"job b: server 0 -> rack 0: 5 bit/s asked, 3 bit/s free",
    ):
        ledger.reserve("b", ONE_EACH, 5, 9.0, 12.0)
    ledger.reserve("c", Placement(7, ((0, 3),)), 5, 0.0, 10.0)
    with pytest.raises(
        OverCommit, match=r"server 0: 1 slots asked, 0 free from 2 s on"
    ):
        ledger.reserve("d", ONE_EACH, 1, 2.0, None)
    assert list(ledger.holdings()) == ["a", "c"]


@pytest.mark.parametrize(
    ("wider", "name"),
    [
        ((3, 0), "rack 0 -> server 0"),
        ((0, 3), "server 0 -> rack 0"),
    ],
)
def test_a_refusal_names_the_direction_without_room(
    wider: tuple[int, int], name: str
) -> None:
    ledger = Ledger(data_centre((*wider, *(0,) * 18)))
    ledger.reserve("a", ONE_EACH, 7, 0.0, 10.0)
    with pytest.raises(
        OverCommit, match=f"{name}: 5 bit/s asked, 3 bit/s free"
    ):
        ledger.reserve("b", ONE_EACH, 5, 9.0, 12.0)
    free = ledger.residual(0.0, None).free_bps[:2].tolist()
    assert free == [3 + wider[0], 3 + wider[1]]


def test_a_reservation_may_start_when_another_ends(ledger: Ledger) -> None:
    ledger.reserve("a", ONE_EACH, 10, 0.0, 5.0)
    ledger.reserve("b", ONE_EACH, 10, 5.0, None)
    with pytest.raises(OverCommit):
        ledger.reserve("c", ONE_EACH, 1, 4.0, 5.0)


def test_a_window_that_ends_where_a_reservation_starts_sees_nothing_of_it(
    ledger: Ledger,
) -> None:
    ledger.reserve("later", ONE_EACH, 10, 5.0, None)
    assert ledger.residual(0.0, 5.0).free_bps[0] == 10
    assert ledger.residual(0.0, 5.5).free_bps[0] == 0
    assert ledger.residual(0.0, None).free_slots[0] == 3


def test_a_failed_rerate_changes_nothing(ledger: Ledger) -> None:
    ledger.reserve("a", ONE_EACH, 4, 0.0, None)
    ledger.reserve("b", Placement(7, ((2, 1), (3, 1))), 6, 0.0, None)
    before = in_use(ledger, 1.0)
    with pytest.raises(OverCommit, match="server 0 -> rack 0"):
        ledger.rerate("a", 1.0, 11)
    assert np.array_equal(in_use(ledger, 1.0).free_bps, before.free_bps)
    assert ledger.holdings()["a"].placement == ONE_EACH


def test_a_rerate_may_use_what_the_job_itself_gives_back(
    ledger: Ledger,
) -> None:
    ledger.reserve("a", ONE_EACH, 10, 0.0, None)
    ledger.rerate("a", 2.0, 9)
    assert in_use(ledger, 0.5).free_slots[0] == 1
    assert in_use(ledger, 0.5).free_bps[:2].tolist() == [10, 10]
    assert in_use(ledger, 2.0).free_bps[:2].tolist() == [9, 9]


def test_a_lost_link_has_no_room_for_others_and_stays_with_its_holder(
    ledger: Ledger,
) -> None:
    ledger.reserve("a", ONE_EACH, 4, 0.0, None)
    ledger.set_lost((), {0})
    assert ledger.has_lost
    with pytest.raises(
        OverCommit, match="server 0 -> rack 0: 1 bit/s asked, 0 bit/s free"
    ):
        ledger.reserve("b", ONE_EACH, 1, 0.0, None)
    with pytest.raises(
        OverCommit, match="server 0 -> rack 0: 5 bit/s asked, 4 bit/s free"
    ):
        ledger.rerate("a", 1.0, 5)
    ledger.rerate("a", 1.0, 3)
    ledger.set_lost((), ())
    assert not ledger.has_lost
    assert ledger.residual(1.0, None).free_bps[0] == 7


def test_another_root_is_one_with_paths_and_room(ledger: Ledger) -> None:
    apart = Placement(7, ((0, 1), (2, 1)))
    ledger.reserve("a", apart, 6, 0.0, None)
    assert list(other_roots(ledger.datacentre, apart, {4})) == [
        apart._replace(root=8)
    ]
    assert (
        reroot(ledger, "a", 0.0, {4, 6})
        == "no other root has a path without a lost link"
    )
    ledger.reserve("b", Placement(8, ((1, 1), (3, 1))), 4, 0.0, None)
    assert reroot(ledger, "a", 0.0, {4}) == (
        "no other root has room (rack 0 -> root 1: 6 bit/s asked, 5 bit/s free from 0 s on)"
    )
    ledger.release("b", 0.0)
    assert reroot(ledger, "a", 0.0, {4}) == apart._replace(root=8)
    assert ledger.residual(0.0, None).free_bps.reshape(-1, 2).tolist()[4:8] == [
        [12, 12], [12, 12], [3, 3], [3, 3],
    ]  # fmt: skip


def test_everything_comes_back(ledger: Ledger) -> None:
    for k in range(3):
        ledger.reserve(f"j{k}", ONE_EACH, 3, float(k), None if k else 7.0)
    for k in range(3):
        ledger.release(f"j{k}", 4.0)
    assert ledger.residual(4.0, None).free_slots.tolist() == SLOTS
    assert (
        ledger.residual(4.0, None).free_bps.tolist()
        == np.repeat(CAPACITY, 2).tolist()
    )
    assert not ledger.holdings()


def test_releasing_what_ran_out_is_no_error_but_a_stranger_is(
    ledger: Ledger,
) -> None:
    ledger.reserve("a", ONE_EACH, 3, 0.0, 2.0)
    ledger.forget_before(3.0)
    assert not ledger.holdings()
    ledger.release("a", 3.0)
    with pytest.raises(KeyError):
        ledger.release("a", 3.0)


def test_a_refused_reservation_keeps_that_the_first_one_ran_out(
    ledger: Ledger,
) -> None:
    ledger.reserve("a", ONE_EACH, 3, 0.0, 2.0)
    ledger.forget_before(3.0)
    with pytest.raises(OverCommit):
        ledger.reserve("a", ONE_EACH, 11, 3.0, 5.0)
    ledger.release("a", 3.0)
    with pytest.raises(KeyError):
        ledger.release("a", 3.0)


def test_what_makes_no_sense_is_refused(ledger: Ledger) -> None:
    ledger.reserve("a", ONE_EACH, 3, 0.0, 2.0)
    with pytest.raises(ValueError, match="job a holds a reservation"):
        ledger.reserve("a", ONE_EACH, 3, 4.0, 5.0)
    with pytest.raises(ValueError, match="no interval"):
        ledger.reserve("b", ONE_EACH, 3, 4.0, 4.0)
    with pytest.raises(ValueError, match="no interval"):
        ledger.residual(4.0, math.nan)
    ledger.forget_before(1.0)
    with pytest.raises(ValueError, match="forgotten"):
        ledger.residual(0.5, None)


def test_a_server_outside_the_tree_is_named() -> None:
    dc = data_centre()
    alone = replace(dc, trees=(hanging(7, list(range(6))),))
    with pytest.raises(ValueError, match="node 4 is not below root 7"):
        footprint(alone, Placement(7, ((4, 1),)), 1)


def test_check_finds_a_ledger_that_was_tampered_with() -> None:
    ledger = Ledger(data_centre())
    ledger.reserve("a", ONE_EACH, 3, 0.0, 2.0)
    ledger.timeline.free[0] -= 1
    with pytest.raises(LedgerBroken):
        ledger.check()


def test_many_reservations_outgrow_every_array(ledger: Ledger) -> None:
    one = Placement(8, ((4, 1),))
    for k in range(500):
        ledger.reserve(f"j{k}", one, 1, float(k), float(k + 2))
    for k in range(0, 500, 2):
        ledger.release(f"j{k}", k + 0.5)
    ledger.forget_before(250.0)
    for k in range(500, 700):
        ledger.reserve(f"j{k}", one, 1, float(k), float(k + 2))
    ledger.check()
    assert in_use(ledger, 600.5).free_slots[4] == 2


def test_compiled_once() -> None:
    assert SWEEP.machine_code is SWEEP.machine_code
