"""Free capacity of a few objects, by their own intervals, equals that of a sweep over time."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from testbed.embedding.placement import Placement, VmSize
from testbed.reservation import timeline
from testbed.reservation.ledger import Ledger
from testbed.reservation.timeline import Footprint, Timeline
from tests.support.loops import BOTH_FORMS, loops
from topologies.flat import flat
from topologies.tree import tree

CAPACITY = np.array([50, 40, 30, 60, 20, 1000], dtype=np.int64)


def drawn(rng: random.Random) -> Footprint:
    objects = sorted(
        rng.sample(range(len(CAPACITY)), rng.randint(1, len(CAPACITY)))
    )
    amounts = [rng.randint(1, 9) for _ in objects]
    return Footprint(np.array(objects), np.array(amounts))


@BOTH_FORMS
@pytest.mark.parametrize("seed", range(3))
def test_over_a_long_history(
    monkeypatch: pytest.MonkeyPatch, seed: int, *, machine_code: bool
) -> None:
    """Intervals come, are cut, dropped and forgotten, in arrays that soon are too small."""
    monkeypatch.setattr(timeline, "_ROOM", 2)
    with loops(machine_code=machine_code):
        come_and_go(random.Random(seed))


def come_and_go(rng: random.Random) -> None:
    line = Timeline(CAPACITY)
    held: dict[int, tuple[float, float]] = {}
    now_s = 0.0
    for step in range(600):
        dice = rng.random()
        if dice < 0.5 or not held:
            start_s = now_s + rng.choice((0, 0, rng.randrange(20)))
            end_s = rng.choice((math.inf, start_s + rng.randint(1, 30)))
            held[line.add(drawn(rng), start_s, end_s)] = (start_s, end_s)
        elif dice < 0.8:
            number = rng.choice(sorted(held))
            start_s, end_s = held.pop(number)
            if start_s > now_s:
                line.drop(number, start_s, end_s)
            elif end_s > now_s:
                cut_s = min(end_s, now_s + rng.randrange(3))
                if cut_s < end_s and cut_s > now_s:
                    line.cut(number, end_s, cut_s)
                    held[number] = (start_s, cut_s)
                else:
                    held[number] = (start_s, end_s)
        else:
            now_s += rng.choice((0, 1, 1, 7))
            for number in line.forget_before(now_s):
                held.pop(number)
        if step % 7 == 0:
            since_s = now_s + rng.randrange(10)
            until_s = rng.choice((math.inf, since_s + rng.randint(1, 25)))
            objects = np.array(sorted(rng.sample(range(len(CAPACITY)), 2)))
            by_sweep = line.least_free(since_s, until_s)[objects]
            assert (
                line.least_free_of(objects, since_s, until_s).tolist()
                == by_sweep.tolist()
            )


def test_an_object_with_very_many_intervals_is_swept() -> None:
    line = Timeline(CAPACITY)
    for k in range(timeline.MOST_INTERVALS + 1):
        line.add(
            Footprint(np.array([5]), np.array([1])), float(k), float(k + 2)
        )
    objects = np.array([5])
    assert line.least_free_of(objects, 0.0, math.inf).tolist() == [998]
    assert line.least_free_of(objects, 0.0, 1.0).tolist() == [999]


def test_what_is_free_at_a_placement_is_the_residual_there() -> None:
    centre = tree([2, 2], [1000, 1000], 4)
    ledger = Ledger(centre)
    root = centre.trees[0].root
    ledger.reserve("a", Placement(root, ((0, 2), (2, 2))), 100, 0.0, 10.0)
    ledger.reserve("b", Placement(root, ((1, 1), (2, 1))), 300, 5.0, 20.0)
    there = Placement(root, ((1, 1), (2, 1)))
    for end_s in (4.0, 8.0, None):
        whole, part = (
            ledger.residual(0.0, end_s),
            ledger.free_at(there, 100, 0.0, end_s),
        )
        assert {s: part.free_slots[s] for s in (1, 2)} == {
            s: whole.free_slots[s] for s in (1, 2)
        }
        links = {link for s in (1, 2) for link in _above(centre, s)}
        for directed in (
            way for link in links for way in (2 * link, 2 * link + 1)
        ):
            assert part.free_bps[directed] == whole.free_bps[directed]
        assert part.free_slots[0] == 0
    ledger.check()


def _above(centre, server: int) -> list[int]:  # type: ignore[no-untyped-def]
    found, node, first = [], server, centre.trees[0]
    while node != first.root:
        found.append(int(first.uplink[node]))
        node = int(first.parent[node])
    return found


def test_memory_is_free_there_too() -> None:
    ledger = Ledger(flat(3, 4, 1024))
    place = Placement(ledger.datacentre.trees[0].root, ((1, 1),))
    ledger.reserve("a", place, 0, 0.0, 9.0, VmSize(2, 300))
    part = ledger.free_at(place, 0, 0.0, 5.0, VmSize(1, 1))
    assert part.free_memory_mib is not None
    assert (part.free_slots[1], part.free_memory_mib[1]) == (2, 724)
    assert ledger.free_at(place, 0, 9.0, None).free_slots[1] == 4


def test_of_a_placement_that_is_wrong_there_is_what_there_is() -> None:
    ledger = Ledger(flat(3, 4))
    assert (
        ledger.free_at(
            Placement(77, ((0, 1), (99, 1))), 0, 0.0, 5.0
        ).free_slots[0]
        == 4
    )
