"""Netlink messages: shapes that hold whatever the values; what they mean is tested in netns."""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.backends.emu.limiter_counters import (
    READ_S,
    CounterReader,
    Limiter,
)
from testbed.backends.emu.netlink import (
    ROOT_HANDLE,
    TC_H_ROOT,
    TICKS_PER_S,
    KernelRefusal,
    RouteSocket,
    packed,
    ticks,
)
from testbed.backends.emu.traffic_control import Side, TrafficControl
from testbed.plan.batch_lines import (
    Address,
    BatchLine,
    BatchSection,
    ByteFifo,
    HtbClass,
    HtbRoot,
    IpItem,
    LargestPacket,
    LinkUp,
    Neighbour,
    PrefixFilter,
    PrefixRoute,
    TcItem,
    Verb,
)

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
def test_messages_for_two_devices_differ_in_the_device_alone(
    index: int,
) -> None:
    for item in ITEMS:
        here, there = (
            packed("add", item, i).hex() for i in (index, 0x5A5A5A5A)
        )
        named = struct.pack("=i", index).hex()
        assert named in here
        assert there.replace("5a5a5a5a", named) == here


def test_lengths_are_true_and_whole_words() -> None:
    for message in (
        packed(verb, item, 7) for item in ITEMS for verb in VERBS
    ):
        assert struct.unpack_from("=I", message)[0] == len(message)
        assert len(message) % 4 == 0


@given(rate=st.integers(8, 10**10), size=st.integers(1, 10**7))
def test_a_buckets_time_is_its_size_over_its_rate_rounded_up(
    rate: int, size: int
) -> None:
    exact = Fraction(size * TICKS_PER_S, rate)
    inexact = exact / 2**50  # floating-point numbers, as in tc
    assert exact - inexact <= ticks(rate, size) < exact + inexact + 1


def test_the_rates_above_four_gigabytes_go_into_their_own_attributes() -> (
    None
):
    slow = packed(
        "add", HtbClass("d", 0, 1, 34_000_000_000, 34_000_000_000), 7
    )
    fast = packed(
        "add", HtbClass("d", 0, 1, 40_000_000_000, 40_000_000_000), 7
    )
    assert len(fast) == len(slow) + 2 * 12
    assert struct.pack("=Q", 5_000_000_000) in fast


def attribute(kind: int, payload: bytes) -> bytes:
    return (
        struct.pack("=HH", 4 + len(payload), kind)
        + payload
        + bytes(-len(payload) % 4)
    )


@dataclass(frozen=True)
class Qdisc:
    """A queueing discipline as the kernel tells of it."""

    ifindex: int
    parent: int = TC_H_ROOT
    kind: str = "bfifo"
    sent: int = 0
    drops: int = 0
    backlog: int = 0
    direct: int = 0
    padding: bytes = (
        b""  # between the two counters: newer kernels may tell more
    )

    def message(self) -> bytes:
        basic = attribute(1, struct.pack("=QI4x", self.sent, 1))
        queue = attribute(
            3, struct.pack("=5I", 1, self.backlog, self.drops, 0, 2)
        )
        init = attribute(2, struct.pack("=5I", 3, 10, 0, 0, self.direct))
        body = struct.pack(
            "=BxxxiIII", 0, self.ifindex, 0x10000, self.parent, 2
        )
        body += attribute(1, self.kind.encode() + b"\0")
        body += attribute(
            2, init if self.kind == "htb" else struct.pack("=I", 1)
        )
        body += attribute(7, basic + self.padding + queue)
        return struct.pack("=IHHII", 16 + len(body), 36, 0, 0, 0) + body


DONE = struct.pack("=IHHIIi", 20, 3, 0, 0, 0, 0)


def side(
    index_of: dict[str, int], *datagrams: bytes, s: float = 0.0
) -> Side:
    """Devices in a namespace that receives only these datagrams, within ``s`` seconds."""
    received = [
        (float(at), at + s, each) for at, each in enumerate(datagrams, 10)
    ]
    route = RouteSocket()
    route.ask = lambda _: received  # type: ignore[method-assign]
    route.close()
    return Side(route, index_of)


def counted(reader: CounterReader) -> list[tuple[float, ...]]:
    return [tuple(row) for row in reader.read().tolist()]


U32 = st.integers(0, 2**32 - 1)
QDISCS = st.builds(
    Qdisc,
    st.integers(1, 5),
    st.sampled_from(
        [TC_H_ROOT, *(ROOT_HANDLE | minor for minor in range(1, 4))]
    ),
    st.sampled_from(["bfifo", "htb", "noqueue"]),
    sent=st.integers(0, 2**62),
    drops=U32,
    backlog=U32,
    # The last makes a bfifo's message as long as one of HTB's: one size, two layouts.
    padding=st.sampled_from(
        [b"", attribute(9, b""), attribute(8, bytes(12))]
    ),
)


@pytest.mark.slow
@given(dump=st.lists(st.lists(QDISCS, max_size=6), max_size=4))
def test_of_a_dump_each_limiters_counters_are_found(
    dump: list[list[Qdisc]],
) -> None:
    datagrams = [
        b"".join(qdisc.message() for qdisc in qdiscs) for qdiscs in dump
    ]
    devices = {f"d{index}": index for index in range(1, 5)}
    wanted = [
        Limiter(None, device, minor)
        for device in devices
        for minor in (None, 1, 2)
    ]
    reader = CounterReader([side(devices, *datagrams, DONE)], {}, wanted)
    expected: dict[Limiter, tuple[float, ...]] = {}
    for at, qdiscs in enumerate(dump, 10):
        for q in qdiscs:
            minor = None if q.parent == TC_H_ROOT else q.parent & 0xFFFF
            expected[Limiter(None, f"d{q.ifindex}", minor)] = (
                at,
                q.sent,
                q.drops,
                q.backlog,
            )
    for _ in range(2):  # the second time with the layouts known
        for limiter, found in zip(wanted, counted(reader), strict=True):
            if limiter in expected:
                assert found == expected[limiter]
            else:
                assert np.isnan(found[0])
                assert found[1:] == (-1, 0, 0)


def test_a_vm_is_asked_in_its_namespace_and_a_device_that_is_gone_is_unread() -> (
    None
):
    refused = struct.pack("=IHHIIi16x", 36, 2, 0, 0, 0, -errno.ENODEV)
    vms = {
        "here": side({"eth0": 2}, Qdisc(2, kind="htb", sent=7).message()),
        "gone": side({"eth0": 2}, refused),
        "bare": side({}),
    }
    reader = CounterReader([], vms, [Limiter(name, "eth0") for name in vms])
    here, *others = counted(reader)
    assert here == (10.0, 7, 0, 0)
    assert all(np.isnan(at_s) for at_s, *_ in others)
    vms["here"] = side(
        {"eth0": 2},
        refused.replace(*map(minus, (errno.ENODEV, errno.EPERM))),
    )
    with pytest.raises(OSError, match=r"not permitted"):
        CounterReader([], vms, [Limiter("here", "eth0")]).read()


def minus(number: int) -> bytes:
    return struct.pack("=i", -number)


def test_counters_that_took_long_are_of_an_unknown_time() -> None:
    slow = side({"a": 7}, Qdisc(7, sent=5).message(), s=2 * READ_S)
    ((at_s, sent, *_),) = counted(
        CounterReader([slow], {}, [Limiter(None, "a")])
    )
    assert np.isnan(at_s)
    assert sent == 5


def test_unshaped_packets_are_those_of_the_networks_own_devices() -> None:
    dump = [
        Qdisc(7, kind="htb", direct=0),
        Qdisc(8, kind="htb", direct=2),
        Qdisc(8, ROOT_HANDLE | 5),
        Qdisc(9, kind="htb", direct=4),
        Qdisc(7, kind="noqueue"),
    ]
    datagram = b"".join(qdisc.message() for qdisc in dump)
    assert side({"a": 7, "b": 8}, datagram, DONE).unshaped() == {"b": 2}
    assert side({}, datagram).unshaped() == {}


class Refusing:
    """A routing socket that takes ``n`` requests and refuses the last one."""

    n = 0

    def request(self, messages: list[bytes]) -> list[KernelRefusal]:
        self.n = len(messages)
        return [KernelRefusal(self.n - 1, 22, "no")]


def test_a_line_goes_to_the_side_that_has_its_device_and_a_refusal_keeps_its_place() -> (
    None
):
    routes = Refusing(), Refusing()
    sides = [
        Side(cast(RouteSocket, r), {d: 1})
        for r, d in zip(routes, "ab", strict=True)
    ]
    lines = tuple(
        BatchLine("add", HtbRoot(device, 1)) for device in "ababa"
    )
    refused = TrafficControl(sides, {})._send(BatchSection(None, lines))
    assert [route.n for route in routes] == [3, 2]
    assert sorted(refusal.position for refusal in refused) == [3, 4]
