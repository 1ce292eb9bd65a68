"""A tenant's VMs as hosts: everyone knows everyone, nobody knows itself, nothing leaks."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from testbed.embedding.placement import Placement
from testbed.plan.batch_lines import (
    Address,
    LargestPacket,
    Neighbour,
    PrefixRoute,
    batch_text,
)
from testbed.plan.installation import (
    INITIAL_WINDOW_SEGMENTS,
    WINDOW_S,
    initial_window_segments,
    packet_changes,
    reroot_text,
    tenant_hosts,
)
from testbed.plan.limits import MAX_GSO_BYTES, MIN_GSO_BYTES, gso_bytes
from testbed.plan.network_plan import (
    TenantPlan,
    network_plan,
    rerooted,
    tenant_plan,
)
from tests.support.examples import examples
from topologies.fat_tree import fat_tree
from topologies.tree import tree

Item = TypeVar("Item")


def tenant(
    counts: dict[int, int], rate_bps: int = 100_000_000
) -> TenantPlan:
    datacentre = tree([2, 2, 2], 10**9, 2)
    network = network_plan(datacentre, "hn")
    vms_on = tuple(sorted(counts.items()))
    slots = tuple(
        s
        for server, n in vms_on
        for s in network.slots_of_server[server][:n]
    )
    placement = Placement(datacentre.trees[0].root, vms_on)
    return tenant_plan(
        datacentre, network, placement, slots, 3, "j", rate_bps
    )


FLOW = "cookie=0x484f534500000003,table={},priority={},ip,"
INSIDE = "nw_src=10.0.12.0/22"


def let_in(port: int) -> str:
    match = f"in_port={port},vlan_tci=0x0000/0x1fff,{INSIDE}"
    return f"{FLOW.format(0, 100)}{match} actions=goto_table:1\n"


def test_a_move_to_another_root_as_text() -> None:
    datacentre = fat_tree(4, 10**9, 1)
    network = network_plan(datacentre, "hn")
    vms_on = ((0, 1), (4, 1))
    slots = tuple(
        network.slots_of_server[server][0] for server, _ in vms_on
    )
    first, second = (
        Placement(tree.root, vms_on) for tree in datacentre.trees[:2]
    )
    old = tenant_plan(
        datacentre, network, first, slots, 3, "j", 100_000_000
    )
    text = reroot_text(
        network, old, rerooted(datacentre, network, old, second)
    )
    _, limits, added, turned, removed, gone = re.split(
        r"^# (?=[a-z ]*\()", text, flags=re.M
    )
    assert limits.startswith(
        "new limits (tc -batch)\n"
        "# host\n"
        "class add dev hn-a0-u1 parent 1:ffff classid 1:3 htb rate 100000000bit"
    )
    assert (
        limits.count("class add dev") == limits.count("filter add dev") == 4
    )
    down = FLOW.format(1, 200) + INSIDE
    assert added == (
        f"new flows (ovs-ofctl add-flow)\n# hn-a0\n{let_in(4)}# hn-a2\n{let_in(4)}"
        f"# hn-c1\n{let_in(1)}{let_in(2)}"
        f"{down},nw_dst=10.0.12.1 actions=output:1\n"
        f"{down},nw_dst=10.0.12.2 actions=output:2\n"
    )
    up = f"{FLOW.format(1, 100)}{INSIDE},nw_dst=10.0.12.0/22 actions=output:4\n"
    assert (
        turned
        == f"turned flows (ovs-ofctl add-flow)\n# hn-a0\n{up}# hn-a2\n{up}"
    )
    assert (
        removed.count("# hn-c0\n")
        == removed.count("nw_dst=10.0.12.1 ")
        == 1
    )
    ends = ("hn-a0-u0", "hn-c0-d0", "hn-a2-u0", "hn-c0-d1")
    assert gone == (
        "limits to be removed (tc -batch)\n# host\n"
        + "".join(
            f"filter del dev {end} parent 1: protocol ip pref 3\n"
            for end in ends
        )
        + "".join(f"class del dev {end} classid 1:3\n" for end in ends)
    )


def of(kind: type[Item], plan: TenantPlan) -> list[Item]:
    """A tenant's items of one kind, by VM."""
    lines = (
        line for section in tenant_hosts(plan) for line in section.lines
    )
    return [line.item for line in lines if isinstance(line.item, kind)]


def test_two_vms_as_text() -> None:
    gso = gso_bytes(100_000_000)
    window = initial_window_segments(100_000_000, gso, reserved=True)
    assert batch_text(tenant_hosts(tenant({0: 1, 7: 1}))) == (
        "# netns hn-s0v0\n"
        f"link set dev eth0 gso_max_size {gso}\n"
        "address add 10.0.12.1/22 dev eth0\n"
        "route replace 10.0.12.0/22 dev eth0 proto kernel scope link src 10.0.12.1"
        f" congctl cubic initcwnd {window}\n"
        "neighbour replace 10.0.12.2 lladdr 02:48:4e:00:00:0f dev eth0 nud permanent\n"
        "# netns hn-s7v0\n"
        f"link set dev eth0 gso_max_size {gso}\n"
        "address add 10.0.12.2/22 dev eth0\n"
        "route replace 10.0.12.0/22 dev eth0 proto kernel scope link src 10.0.12.2"
        f" congctl cubic initcwnd {window}\n"
        "neighbour replace 10.0.12.1 lladdr 02:48:4e:00:00:01 dev eth0 nud permanent\n"
    )


def test_a_reserved_vm_may_have_as_much_on_its_way_as_its_cap_sends_in_sixty_milliseconds() -> (
    None
):
    assert initial_window_segments(
        60_000_000, 32_768, reserved=True
    ) == int(60e6 * WINDOW_S / 8 / 1448)
    assert (
        initial_window_segments(2_000_000, 8_688, reserved=True)
        == INITIAL_WINDOW_SEGMENTS
    )


def test_a_reserved_vm_may_have_four_of_its_largest_packets_on_their_way() -> (
    None
):
    # 60 ms of 6 Mbit/s are 31 segments: a packet and a half of 32 kB.
    assert initial_window_segments(6_000_000, 32_768, reserved=True) == 90


def test_who_competes_begins_with_the_least_window() -> None:
    assert (
        initial_window_segments(900_000_000, 65_536, reserved=False)
        == INITIAL_WINDOW_SEGMENTS
    )
    competing = replace(tenant({0: 1, 7: 1}), link_bps=())
    assert [
        route.window_segments for route in of(PrefixRoute, competing)
    ] == [
        32,
        32,
    ]


def test_removal_takes_away_what_was_added() -> None:
    first, second = tenant_hosts(tenant({0: 2, 1: 1}))[:2]
    assert [
        line.text()
        for section in (second, first)
        for line in section.undo().lines
    ] == [
        "neighbour delete 10.0.12.3 dev eth0",
        "neighbour delete 10.0.12.2 dev eth0",
        "address delete 10.0.12.1/22 dev eth0",
    ]


@given(
    counts=st.dictionaries(
        st.integers(0, 7), st.integers(1, 2), min_size=1, max_size=8
    )
)
@examples(50)
def test_every_vm_knows_all_others_by_their_slots_macs(
    counts: dict[int, int],
) -> None:
    plan = tenant(counts)
    sections = tenant_hosts(plan)
    assert len(sections) == 2 * len(plan.vms) == 2 * sum(counts.values())
    assert [own.address.ip for own in of(Address, plan)] == [
        vm.ip for vm in plan.vms
    ]
    mac_of = {vm.ip: vm.slot.mac for vm in plan.vms}
    assert len(set(mac_of.values())) == len(plan.vms)
    for vm, section in zip(plan.vms, sections[1::2], strict=True):
        assert section.netns == vm.slot.netns
        neighbours = [
            x.item for x in section.lines if isinstance(x.item, Neighbour)
        ]
        known = {neighbour.ip: neighbour.mac for neighbour in neighbours}
        assert known == {
            ip: mac for ip, mac in mac_of.items() if ip != vm.ip
        }


@given(rate=st.integers(1, 10**11), volume=st.integers(0, 10**12))
def test_a_packet_is_never_longer_than_the_kernel_takes_nor_shorter_than_two_segments(
    rate: int, volume: int
) -> None:
    assert MIN_GSO_BYTES <= gso_bytes(rate, volume) <= MAX_GSO_BYTES
    assert gso_bytes(rate + 1_000_000, volume) >= gso_bytes(rate, volume)
    assert gso_bytes(rate, volume + 1_000_000) >= gso_bytes(rate, volume)


@given(
    rate=st.integers(1, 10**11),
    volume=st.integers(MIN_GSO_BYTES * 200, 10**12),
)
def test_a_volume_makes_packets_longer_by_half_a_per_cent_of_it_at_most(
    rate: int, volume: int
) -> None:
    assert gso_bytes(rate, volume) <= max(gso_bytes(rate), volume / 200)


def test_a_slow_vm_that_sends_much_sends_large_packets() -> None:
    slow = tenant({0: 1}, 3_000_000)
    assert gso_bytes(3_000_000) < 9_000
    assert (
        of(LargestPacket, replace(slow, volume_bytes=6_000_000))[
            0
        ].size_bytes
        == 30_000
    )


def test_the_frame_size_follows_the_tenants_rate() -> None:
    slow, fast = tenant({0: 1}, 10_000_000), tenant({0: 1}, 10_000_000_000)
    assert of(LargestPacket, slow)[0].size_bytes == gso_bytes(10_000_000)
    assert of(LargestPacket, fast)[0].size_bytes == MAX_GSO_BYTES
    (change,) = packet_changes(slow, replace(slow, rate_bps=10**10))[
        0
    ].lines
    assert change.item == LargestPacket(MAX_GSO_BYTES)
    assert change.before == LargestPacket(gso_bytes(10_000_000))
