"""Netlink messages: shapes that hold whatever the values; what they mean is tested in netns."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from hypothesis import given
from hypothesis import strategies as st

from testbed.backends.emu.netlink import (
    ROOT_HANDLE,
    TC_H_ROOT,
    TICKS_PER_S,
    QdiscCounters,
    address_message,
    aimed,
    gso_message,
    link_up_message,
    neighbour_message,
    prefix_route_message,
    tc_message,
    ticks,
)
from testbed.backends.emu.traffic_control import by_class, by_device, unshaped
from testbed.plan.limits import (
    DEFAULT_CLASS_MINOR,
    ByteFifo,
    HtbClass,
    HtbRoot,
    PrefixFilter,
    TcItem,
    TcLine,
)

ITEMS: tuple[TcItem, ...] = (
    HtbRoot("d", 0xFFFE),
    HtbClass("d", 0xFFFF, 5, 10**8, 10**8),
    ByteFifo("d", 5, 60_000),
    PrefixFilter("d", 5, IPv4Network("10.0.20.0/22"), 5),
)


ADDRESS = IPv4Interface("10.0.20.1/22")


def lines() -> list[TcLine]:
    return [TcLine(verb, item) for item in ITEMS for verb in ("add", "change", "del")]


@given(index=st.integers(1, 2**31 - 1))
def test_a_message_aimed_later_is_the_message_made_for_that_device(index: int) -> None:
    ip, mac = IPv4Address("10.0.20.1"), "02:48:4e:00:00:01"
    for line in lines():
        assert aimed(tc_message(line), index) == tc_message(line, index)
    for add in (True, False):
        assert aimed(address_message(ADDRESS, add=add), index) == address_message(
            ADDRESS, add=add, ifindex=index
        )
        assert aimed(neighbour_message(ip, mac, add=add), index) == neighbour_message(
            ip, mac, add=add, ifindex=index
        )
    assert aimed(gso_message(9000), index) == gso_message(9000, index)
    assert aimed(link_up_message(), index) == link_up_message(index)


def test_lengths_are_true_and_whole_words() -> None:
    ip = IPv4Address("10.0.20.1")
    messages = [tc_message(line) for line in lines()]
    messages += [
        address_message(ADDRESS, add=True),
        neighbour_message(ip, "02:48:4e:00:00:01", add=True),
        prefix_route_message(ADDRESS, 32),
        gso_message(9000),
        link_up_message(),
    ]
    for message in messages:
        assert struct.unpack_from("=I", message)[0] == len(message)
        assert len(message) % 4 == 0


@given(rate=st.integers(8, 10**10), size=st.integers(1, 10**7))
def test_a_buckets_time_is_its_size_over_its_rate_to_a_microsecond(rate: int, size: int) -> None:
    exact = size / rate * TICKS_PER_S
    assert exact - TICKS_PER_S / 1e6 - 1 <= ticks(rate, size) <= exact


def test_the_rates_above_four_gigabytes_go_into_their_own_attributes() -> None:
    slow = tc_message(TcLine("add", HtbClass("d", 0, 1, 34_000_000_000, 34_000_000_000)))
    fast = tc_message(TcLine("add", HtbClass("d", 0, 1, 40_000_000_000, 40_000_000_000)))
    assert len(fast) == len(slow) + 2 * 12
    assert struct.pack("=Q", 5_000_000_000) in fast


def qdisc(index: int, parent: int, kind: str, sent: int, direct: int = 0) -> QdiscCounters:
    return QdiscCounters(index, 0, parent, kind, sent, 1, 2, 3, direct)


DUMP = [
    qdisc(7, TC_H_ROOT, "htb", 100),
    qdisc(7, ROOT_HANDLE | 5, "bfifo", 60),
    qdisc(7, ROOT_HANDLE | DEFAULT_CLASS_MINOR, "bfifo", 40),
    qdisc(8, TC_H_ROOT, "htb", 9, direct=2),
    qdisc(9, TC_H_ROOT, "noqueue", 1000, direct=4),
]


def test_counters_are_sorted_out_by_device_and_by_tenant() -> None:
    directed_of = {7: 0, 8: 1}
    links = by_device(DUMP, directed_of)
    assert {d: c.sent_bytes for d, c in links.items()} == {0: 100, 1: 9}
    counted = links[0]
    assert (counted.drops, counted.overlimits, counted.backlog_bytes) == (1, 2, 3)
    classes = by_class(DUMP, directed_of)
    assert {key: c.sent_bytes for key, c in classes.items()} == {(5, 0): 60}


def test_unshaped_packets_are_those_of_the_networks_own_devices() -> None:
    assert unshaped(DUMP, {7: "a", 8: "b"}) == {"b": 2}
    assert unshaped(DUMP, {}) == {}
