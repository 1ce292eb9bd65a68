"""Netlink messages: shapes that hold whatever the values; what they mean is tested in netns."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from testbed.backends.emu.netlink import (
    ROOT_HANDLE,
    TC_H_ROOT,
    TICKS_PER_S,
    Counters,
    Refusal,
    RouteSocket,
    packed,
    ticks,
)
from testbed.backends.emu.traffic_control import (
    Side,
    TrafficControl,
    by_class,
    by_device,
    unshaped,
)
from testbed.plan.batch_lines import (
    Address,
    BatchLine,
    ByteFifo,
    HtbClass,
    HtbRoot,
    IpItem,
    LargestPacket,
    LinkUp,
    Neighbour,
    PrefixFilter,
    PrefixRoute,
    Section,
    TcItem,
    Verb,
)
from testbed.plan.limits import DEFAULT_CLASS_MINOR

ADDRESS = IPv4Interface("10.0.20.1/22")
ITEMS: tuple[TcItem | IpItem, ...] = (
    HtbRoot("d", 0xFFFE),
    HtbClass("d", 0xFFFF, 5, 10**8, 10**8),
    ByteFifo("d", 5, 60_000),
    PrefixFilter("d", 5, IPv4Network("10.0.20.0/22"), 5),
    LinkUp("d"),
    LargestPacket(9000),
    Address(ADDRESS),
    PrefixRoute(ADDRESS, 32),
    Neighbour(IPv4Address("10.0.20.1"), "02:48:4e:00:00:01"),
)
VERBS: tuple[Verb, ...] = ("add", "change", "del")


@given(index=st.integers(1, 2**31 - 1))
def test_messages_for_two_devices_differ_in_the_device_alone(index: int) -> None:
    for item in ITEMS:
        here, there = (packed("add", item, i).hex() for i in (index, 0x5A5A5A5A))
        named = struct.pack("=i", index).hex()
        assert named in here
        assert there.replace("5a5a5a5a", named) == here


def test_lengths_are_true_and_whole_words() -> None:
    for message in (packed(verb, item, 7) for item in ITEMS for verb in VERBS):
        assert struct.unpack_from("=I", message)[0] == len(message)
        assert len(message) % 4 == 0


@given(rate=st.integers(8, 10**10), size=st.integers(1, 10**7))
def test_a_buckets_time_is_its_size_over_its_rate_to_a_microsecond(rate: int, size: int) -> None:
    exact = size / rate * TICKS_PER_S
    assert exact - TICKS_PER_S / 1e6 - 1 <= ticks(rate, size) <= exact


def test_the_rates_above_four_gigabytes_go_into_their_own_attributes() -> None:
    slow = packed("add", HtbClass("d", 0, 1, 34_000_000_000, 34_000_000_000), 7)
    fast = packed("add", HtbClass("d", 0, 1, 40_000_000_000, 40_000_000_000), 7)
    assert len(fast) == len(slow) + 2 * 12
    assert struct.pack("=Q", 5_000_000_000) in fast


def qdisc(index: int, parent: int, kind: str, sent: int, direct: int = 0) -> Counters:
    return Counters(sent, 1, 3, 2, kind, index, parent, direct)


DUMP = [
    qdisc(7, TC_H_ROOT, "htb", 100),
    qdisc(7, ROOT_HANDLE | 5, "bfifo", 60),
    qdisc(7, ROOT_HANDLE | DEFAULT_CLASS_MINOR, "bfifo", 40),
    qdisc(8, TC_H_ROOT, "htb", 9, direct=2),
    qdisc(9, TC_H_ROOT, "noqueue", 1000, direct=4),
]


def side(index_of: dict[str, int]) -> Side:
    """A switch's devices in a namespace where :data:`DUMP` is all that there is."""
    return Side(cast(RouteSocket, SimpleNamespace(qdiscs=lambda: DUMP)), index_of)


def test_counters_are_sorted_out_by_device_and_by_tenant() -> None:
    qdiscs = list(side({"a": 7, "b": 8}).qdiscs())
    devices = by_device(qdiscs)
    assert {name: c.sent_bytes for name, c in devices.items()} == {"a": 100, "b": 9}
    counted = devices["a"]
    assert (counted.drops, counted.overlimits, counted.backlog_bytes) == (1, 2, 3)
    classes = by_class(qdiscs, {"a": 0, "b": 1})
    assert {key: c.sent_bytes for key, c in classes.items()} == {(5, 0): 60}


def test_unshaped_packets_are_those_of_the_networks_own_devices() -> None:
    assert unshaped(side({"a": 7, "b": 8}).qdiscs()) == {"b": 2}
    assert unshaped(side({}).qdiscs()) == {}


class Refusing:
    """A routing socket that takes ``n`` requests and refuses the last one."""

    n = 0

    def request(self, messages: list[bytes]) -> list[Refusal]:
        self.n = len(messages)
        return [Refusal(self.n - 1, 22, "no")]


def test_a_line_goes_to_the_side_that_has_its_device_and_a_refusal_keeps_its_place() -> None:
    routes = Refusing(), Refusing()
    sides = [Side(cast(RouteSocket, r), {d: 1}) for r, d in zip(routes, "ab", strict=True)]
    lines = tuple(BatchLine("add", HtbRoot(device, 1)) for device in "ababa")
    refused = TrafficControl(sides, {})._send(Section(None, lines))
    assert [route.n for route in routes] == [3, 2]
    assert sorted(refusal.position for refusal in refused) == [3, 4]
