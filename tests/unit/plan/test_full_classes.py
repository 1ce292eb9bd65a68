"""Drops of a class that was full, each condition by itself (docs/decisions/02)."""

from __future__ import annotations

from math import nan

import pytest

from testbed.embedding.placement import Placement
from testbed.plan.full_classes import (
    ClassCount,
    ClassDrops,
    FullClass,
    converging_links,
    drops_of,
)
from testbed.plan.limits import largest_packet_bytes, port_queue_bytes
from testbed.plan.network_plan import network_plan, tenant_plan
from topologies.datacentre import down
from topologies.tree import tree

RATE_BPS = 18_000_000
CENTRE = tree([2, 2], [100_000_000, 100_000_000], 4)
ROOT = CENTRE.trees[0].root
PLAN = network_plan(CENTRE, "hn", 1.0)
PLACEMENT = Placement(ROOT, ((0, 1), (1, 1), (2, 1), (3, 1)))
SLOTS = tuple(slots[0] for slots in PLAN.slots_of_server.values())
TENANT = tenant_plan(CENTRE, PLAN, PLACEMENT, SLOTS, 1, "job", RATE_BPS)
PACKET = largest_packet_bytes(TENANT)
LIMIT = port_queue_bytes(RATE_BPS)


def incast(
    *,
    share: float = 1.0,
    queue: int = LIMIT - PACKET,
    waited_s: float = 0.01,
    stretches: int = 1,
    counts: int = 10,
    late: float = 1.0,
) -> FullClass:
    """An incast: in each stretch the queue is there for so many counts, at
    0.1 s, and a packet is dropped before each; then a second of nothing.

    ``share``: of its rate that the class sends; ``late``: of that in the first
    half of the last stretch.
    """
    one = FullClass(TENANT)
    at_s = 0.0
    sent = 0.0
    drops = 0
    waits_s = 0.0
    one.take(ClassCount(at_s, 0, 0, 0, waits_s), RATE_BPS)
    for stretch in range(stretches):
        for number in range(counts):
            at_s += 0.1
            pace = share
            if stretch == stretches - 1 and number < counts / 2:
                pace = share * late
            sent += pace * RATE_BPS / 8 * 0.1
            drops += 1
            waits_s += waited_s
            count = ClassCount(at_s, int(sent), drops, queue, waits_s)
            one.take(count, RATE_BPS)
        at_s += 1.0
        # What was in the queue leaves.
        sent += queue
        one.take(ClassCount(at_s, int(sent), drops, 0, waits_s), RATE_BPS)
    return one


def taken(**how: float) -> ClassDrops:
    """The drops of one such class."""
    return drops_of({7: incast(**how)})[7]  # type: ignore[arg-type]


def test_a_class_that_sends_at_its_rate_with_a_full_queue_drops_by_design() -> (
    None
):
    assert taken() == ClassDrops(10, 10)
    assert taken(stretches=3) == ClassDrops(30, 30)


@pytest.mark.parametrize("share", [0.4, 0.5, 0.9, 0.95])
def test_a_limiter_that_is_too_slow_drops_nothing_by_design(
    share: float,
) -> None:
    assert taken(share=share) == ClassDrops(10, 0)
    assert taken(share=share, stretches=3) == ClassDrops(30, 0)


def test_a_queue_that_was_half_full_drops_nothing_by_design() -> None:
    """So if its limit is half of the planned one, and where little was sent."""
    quiet = {"counts": 4, "share": 0.2}
    assert taken(queue=LIMIT // 3, **quiet).full == 0
    one = FullClass(TENANT)
    one.take(ClassCount(0.0, 0, 0, LIMIT // 2, 0.0), RATE_BPS)
    one.take(ClassCount(0.05, 112_500, 3, LIMIT // 2, 0.0), RATE_BPS)
    one.take(ClassCount(3.0, 6_750_000, 3, LIMIT // 2, 0.0), RATE_BPS)
    assert drops_of({0: one})[0] == ClassDrops(3, 0)


def test_a_class_that_held_less_than_a_queue_drops_nothing_by_design() -> (
    None
):
    assert taken(queue=PACKET) == ClassDrops(10, 0)


@pytest.mark.parametrize(
    ("waited_s", "full"), [(0.029, 10), (0.031, 1), (0.1, 0), (nan, 0)]
)
def test_a_switch_that_waits_passes_its_arrears_on(
    waited_s: float, full: int
) -> None:
    """The wait between two counts and between those before counts; at first
    there are none before.
    """
    assert taken(waited_s=waited_s).full == full


@pytest.mark.parametrize(("share", "full"), [(0.4, 10), (0.6, 1), (0.9, 1)])
def test_short_waits_add_up_however_often_a_class_is_read(
    share: float, full: int
) -> None:
    """Read every 25 ms: no wait between two counts is above 60 ms."""
    one = FullClass(TENANT)
    queue = LIMIT - PACKET
    for number in range(41):
        at_s = 0.025 * number
        # In each fourth count, from the second on, where little came before.
        drops = (number + 3) // 4
        sent = int(RATE_BPS / 8 * at_s)
        one.take(
            ClassCount(at_s, sent, drops, queue, share * at_s), RATE_BPS
        )
    assert drops_of({0: one})[0] == ClassDrops(10, full)


def test_one_stretch_below_the_rate_has_its_own_drops_alone() -> None:
    found = taken(stretches=20, late=0.9)
    assert found == ClassDrops(200, 190)


def test_too_little_of_its_rate_was_seen() -> None:
    """One count with a queue says nothing of the rate."""
    assert taken(counts=1, stretches=3) == ClassDrops(3, 0)
    assert taken(counts=2).full == 0
    assert taken(counts=5) == ClassDrops(5, 5)


def test_all_classes_of_a_job_have_been_seen_at_their_rates() -> None:
    """One that had its queue for a moment by the others; a slow one for all."""
    at_rate = incast()
    short = incast(counts=2)
    assert drops_of({3: short}) == {3: ClassDrops(2, 0)}
    assert drops_of({1: at_rate, 3: short}) == {
        1: ClassDrops(10, 10),
        3: ClassDrops(2, 2),
    }
    slow = incast(share=0.9)
    assert drops_of({1: at_rate, 5: slow}) == {
        1: ClassDrops(10, 0),
        5: ClassDrops(10, 0),
    }


def test_what_no_reading_has_on_its_own_is_a_doubt() -> None:
    one = FullClass(TENANT)
    assert drops_of({0: one})[0] == ClassDrops(0, 0)
    one.take(ClassCount(nan, 0, 9, 0, 0.0), RATE_BPS)
    one.take(ClassCount(0.0, 0, 2, 0, 0.0), RATE_BPS)
    one.take(ClassCount(1.0, -1, 0, 0, 0.0), RATE_BPS)
    one.take(ClassCount(1.1, 300_000, 5, 0, 0.0), RATE_BPS)
    assert drops_of({0: one})[0] == ClassDrops(3, 0)


def test_drops_between_two_rates_are_of_neither() -> None:
    one = FullClass(TENANT)
    queue = LIMIT - PACKET
    one.take(ClassCount(0.0, 0, 0, queue, 0.0), 2 * RATE_BPS)
    one.take(ClassCount(0.1, 225_000, 1, queue, 0.0), RATE_BPS)
    one.take(ClassCount(1.1, 2_475_000, 3, queue, 0.0), RATE_BPS)
    assert drops_of({0: one})[0] == ClassDrops(3, 2)


def test_more_come_than_fit_only_towards_the_fewer_vms() -> None:
    """One VM a server: three send to one, and two racks are alike."""
    to_servers = {
        down(int(CENTRE.trees[0].uplink[server])) for server in range(4)
    }
    assert converging_links(CENTRE, PLACEMENT) == to_servers
    pair = Placement(ROOT, ((0, 1), (2, 1)))
    assert converging_links(CENTRE, pair) == frozenset()
    # Two of three VMs are below one server: what leaves it converges.
    three = Placement(ROOT, ((0, 2), (1, 1)))
    up_0 = 2 * int(CENTRE.trees[0].uplink[0])
    down_1 = 2 * int(CENTRE.trees[0].uplink[1]) + 1
    assert converging_links(CENTRE, three) == {up_0, down_1}
