"""Links with delay, jitter and loss as tc text: a delay line before the limits."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.backends.emu.installed_state import differences, tc_objects
from testbed.backends.emu.netlink import packed
from testbed.plan.batch_lines import ByteFifo, HtbRoot, Netem, TcItem
from testbed.plan.limits import (
    DEFAULT_CLASS_MINOR,
    MAX_GSO_BYTES,
    borrowing_lines,
    capacity_lines,
    network_limits,
)
from testbed.plan.network_plan import NetworkPlan, network_plan
from topologies.datacentre import DataCentre, LinkQuality
from topologies.tree import tree

MBIT = 1_000_000
SLOW = LinkQuality(0.02, 0.001, 0.02)
PLAIN = LinkQuality()


def slow_tree(
    core: LinkQuality, servers: LinkQuality = PLAIN
) -> DataCentre:
    plain = tree([2, 2], [400 * MBIT, 100 * MBIT], 1)
    return plain.with_level_qualities([core, servers])


def items_of(network: NetworkPlan) -> dict[str, list[TcItem]]:
    """Limits of each device, in their order."""
    found: dict[str, list[TcItem]] = {}
    (section,) = network_limits(network)
    for line in section.lines:
        assert isinstance(line.item, TcItem)
        found.setdefault(line.item.dev, []).append(line.item)
    return found


def test_a_delayed_links_lines_are_these() -> None:
    network = network_plan(slow_tree(SLOW))
    dev = network.links[-1].lower.name
    first, second, *_ = (
        item.text("add") for item in items_of(network)[dev]
    )
    assert first == (
        f"qdisc add dev {dev} root handle 2: netem limit 2000"
        " delay 20000us 1000us loss 2% rate 32gbit"
    )
    assert (
        second
        == f"qdisc add dev {dev} parent 2:1 handle 1: htb default 0xfffe"
    )


def test_only_links_with_delay_or_loss_have_a_delay_line() -> None:
    network = network_plan(slow_tree(SLOW, LinkQuality(queue_packets=100)))
    assert network.needs_netem
    for link in network.links:
        slow = link.up_bps == 400 * MBIT
        for port in (link.lower, link.upper):
            items = items_of(network)[port.name]
            assert isinstance(items[0], Netem) == slow
            (root,) = (item for item in items if isinstance(item, HtbRoot))
            assert root.behind_netem == slow
    plain = network_plan(slow_tree(LinkQuality(queue_packets=100)))
    assert not plain.needs_netem


@given(
    st.floats(0, 10),
    st.floats(0, 10),
    st.integers(1, 40),
    st.floats(0.01, 1),
)
def test_a_delay_line_holds_all_that_can_arrive(
    delay_s: float, jitter_s: float, fanout: int, rate: float
) -> None:
    quality = LinkQuality(delay_s, jitter_s, 0.5)
    centre = tree([fanout, 2], 100 * MBIT, 1).with_level_qualities(
        [quality]
    )
    network = network_plan(centre, "hn", rate)
    items = items_of(network)
    for bridge in network.bridges:
        ports = network.ports_of_bridge[bridge.name]
        for port in ports:
            if port.name not in network.quality_of_port:
                continue
            line = items[port.name][0]
            assert isinstance(line, Netem)
            # Each other port brings at most a link's capacity, in frames.
            others = len(ports) - 1
            bits = others * 100 * MBIT * rate * (delay_s + jitter_s)
            assert line.limit_packets >= bits * 0.999 / (8 * 1514)


def test_times_are_divided_by_the_scale() -> None:
    network = network_plan(slow_tree(SLOW), "hn", 0.1, None, 10.0)
    line = items_of(network)[network.links[-1].lower.name][0]
    assert isinstance(line, Netem)
    assert (line.delay_ns, line.jitter_ns) == (2_000_000, 100_000)
    assert line.loss_share == 0.02


@pytest.mark.parametrize(
    ("frames", "limit_bytes"),
    [(0, 300_000), (10, MAX_GSO_BYTES), (100, 151_400), (1000, 1_514_000)],
)
def test_a_queue_is_that_of_traffic_without_a_reservation(
    frames: int, limit_bytes: int
) -> None:
    centre = slow_tree(LinkQuality(), LinkQuality(queue_packets=frames))
    network = network_plan(centre)
    dev = network.links[0].lower.name
    (queue,) = (
        i for i in items_of(network)[dev] if isinstance(i, ByteFifo)
    )
    assert queue == ByteFifo(dev, DEFAULT_CLASS_MINOR, limit_bytes)
    if frames:
        (section,) = borrowing_lines(network)
        borrowed = [line.item for line in section.lines]
        assert queue in borrowed


def test_another_capacity_changes_and_adds_nothing() -> None:
    network = network_plan(slow_tree(replace(SLOW, delay_s=1.0)))
    faster = network.with_capacity(4, 800 * MBIT, 800 * MBIT)
    sections = capacity_lines(network, faster, [], borrowing=False)
    lines = [line for section in sections for line in section.lines]
    assert {line.verb for line in lines} == {"change"}
    assert any(isinstance(line.item, Netem) for line in lines)


@given(
    st.integers(0, 10**10),
    st.integers(0, 10**10),
    st.floats(0, 0.99),
    st.integers(1, 10**6),
)
def test_a_message_says_what_its_line_says(
    delay_ns: int, jitter_ns: int, loss: float, limit: int
) -> None:
    line = Netem("d", limit, delay_ns, jitter_ns, loss)
    message = packed("add", line, 7)
    size, kind = struct.unpack_from("=IH", message)
    assert (size, kind) == (len(message), 36)
    family, index, handle, parent = struct.unpack_from(
        "=Bxxxiii", message, 16
    )
    assert (family, index, handle, parent) == (0, 7, 0x20000, -1)
    attributes = dict(attributes_in(message[36:]))
    assert attributes[1] == b"netem\0"
    options = attributes[2]
    fixed = struct.unpack_from("=IIIIII", options)
    assert fixed[1] == limit
    assert fixed[2] / 0xFFFFFFFF == pytest.approx(loss, abs=1e-9)
    more = dict(attributes_in(options[24:]))
    assert more.get(10, bytes(8)) == struct.pack("=q", delay_ns)
    assert more.get(11, bytes(8)) == struct.pack("=q", jitter_ns)
    assert (6 in more) == (jitter_ns > 0)


def attributes_in(data: bytes) -> list[tuple[int, bytes]]:
    found = []
    while data:
        size, kind = struct.unpack_from("=HH", data)
        found.append((kind, data[4:size]))
        data = data[(size + 3) & ~3 :]
    return found


SHOWN = """\
qdisc netem 2: root refcnt 3 limit 2000 delay 20ms  1ms loss 2% rate 32Gbit
qdisc htb 1: parent 2:1 r2q 10 default 0xfffe direct_packets_stat 0 ver 3.17 direct_qlen 1000
class netem 2:1 root leaf 1:
"""


@pytest.mark.parametrize(
    ("was", "now", "faults"),
    [
        ("", "", []),
        ("20ms", "20.0ms", []),
        ("20ms", "2ms", ["delay 2000, expected 20000"]),
        ("  1ms", "", ["jitter 0, expected 1000"]),
        ("loss 2%", "loss 3%", ["loss 3, expected 2"]),
        ("limit 2000", "limit 100", ["limit 100, expected 2000"]),
        ("stat 0", "stat 8", ["direct_packets_stat 8, expected 0"]),
    ],
)
def test_what_the_kernel_has_is_compared(
    was: str, now: str, faults: list[str]
) -> None:
    items = (Netem("d", 2000, 20_000_000, 1_000_000, 0.02),
             HtbRoot("d", 0xFFFE, behind_netem=True))  # fmt: skip
    expected = tc_objects([item.text("add") for item in items])
    shown = SHOWN.replace(was, now) if was else SHOWN
    installed = tc_objects(shown.splitlines(), ["d"])
    assert [
        fault for _, fault in differences(expected, installed)
    ] == faults
