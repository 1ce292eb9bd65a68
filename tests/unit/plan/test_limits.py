"""Limits as text: the exact lines, and the invariants that make a reservation hold."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.request import Enforcement
from testbed.embedding.placement import Placement
from testbed.plan.batch_lines import (
    BatchLine,
    BatchSection,
    ByteFifo,
    HtbClass,
    HtbRoot,
    PrefixFilter,
    batch_text,
    burst_bytes,
)
from testbed.plan.installation import tenant_sysctls
from testbed.plan.limits import (
    CATCH_UP_S,
    DEFAULT_CLASS_MINOR,
    LINK_MINOR,
    LINK_PACKETS_PER_S,
    MIN_PACKETS_PER_S,
    PACKET_MPU_BYTES,
    RESERVED_CATCH_UP_S,
    borrowing_lines,
    capacity_lines,
    largest_packet_bytes,
    network_limits,
    packets_per_s,
    port_queue_bytes,
    removal_lines,
    rerate_lines,
    reroot_lines,
    tenant_limits,
    vm_queue_bytes,
)
from testbed.plan.network_plan import (
    NetworkPlan,
    TenantPlan,
    enforced,
    network_plan,
    on_network,
    proximate_weights,
    rerooted,
    tenant_plan,
)
from tests.support.examples import examples
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.tree import tree

MBIT = 1_000_000


def dumbbell() -> DataCentre:
    """Two racks of one server with two slots each below a core."""
    return tree([2, 1], [400 * MBIT, 1000 * MBIT], 2)


def placed(
    datacentre: DataCentre,
    vms_on: tuple[tuple[int, int], ...],
    rate_bps: int = 100 * MBIT,
    tenant_id: int = 5,
) -> tuple[NetworkPlan, TenantPlan]:
    network = network_plan(datacentre, "hn")
    placement = Placement(datacentre.trees[0].root, vms_on)
    slots = tuple(
        slot
        for server, n in vms_on
        for slot in network.slots_of_server[server][:n]
    )
    return network, tenant_plan(
        datacentre, network, placement, slots, tenant_id, "j", rate_bps
    )


def host_lines(sections: tuple[BatchSection, ...]) -> list[str]:
    return [
        line.text() for s in sections if s.netns is None for line in s.lines
    ]


def test_a_links_limit_is_these_lines() -> None:
    network = network_plan(dumbbell(), "hn")
    lines = host_lines(network_limits(network))
    link = network.links[-1]
    assert (link.up_bps, link.down_bps) == (400 * MBIT, 400 * MBIT)
    dev = link.lower.name
    burst = burst_bytes(400 * MBIT, CATCH_UP_S)
    assert [line for line in lines if f"dev {dev} " in line] == [
        f"qdisc add dev {dev} root handle 1: htb default 0xfffe",
        (
            f"class add dev {dev} parent 1: classid 1:ffff htb rate 400000000bit ceil 400000000bit"
            f" burst {burst} cburst {burst} quantum 60000"
        ),
        (
            f"class add dev {dev} parent 1:ffff classid 1:fffe htb rate 400000bit ceil 400000bit"
            " burst 3028 cburst 3028 quantum 60000"
        ),
        f"qdisc add dev {dev} parent 1:fffe bfifo limit {port_queue_bytes(400_000)}",
    ]


def test_every_end_of_every_link_is_limited_to_its_capacity() -> None:
    network = network_plan(
        fat_tree(4, [1000 * MBIT, 2000 * MBIT, 500 * MBIT], 2), "hn", 0.1
    )
    (section,) = network_limits(network)
    items = [line.item for line in section.lines]
    caps = {
        i.dev: i
        for i in items
        if isinstance(i, HtbClass) and i.minor == LINK_MINOR
    }
    expected = {
        port.name: sends_bps
        for k in network.links
        for port, sends_bps in ((k.lower, k.up_bps), (k.upper, k.down_bps))
    }
    assert {dev: cap.rate_bps for dev, cap in caps.items()} == expected
    assert all(
        cap.ceil_bps == cap.rate_bps and cap.parent_minor == 0
        for cap in caps.values()
    )
    # Without a default class, what no class claims would leave unshaped.
    roots = {i.dev: i for i in items if isinstance(i, HtbRoot)}
    classes = {(i.dev, i.minor) for i in items if isinstance(i, HtbClass)}
    assert set(roots) == set(expected)
    assert all(
        (dev, root.default_minor) in classes for dev, root in roots.items()
    )


def test_a_tenants_lines_on_a_small_tree() -> None:
    network, tenant = placed(dumbbell(), ((0, 2), (1, 1)))
    sections = tenant_limits(network, tenant)
    lines = host_lines(sections)
    # N = 3, two VMs on one side: min(2, 1) * 100 Mbit/s on every link in both directions.
    assert dict(tenant.link_bps) == dict.fromkeys(range(8), 100 * MBIT)
    dev = network.sending_port(0).name
    rack_link = [line for line in lines if f"dev {dev} " in line]
    assert re.fullmatch(
        rf"class add dev {dev} parent 1:ffff classid 1:5 htb rate 100000000bit ceil 100000000bit"
        r" burst \d+ cburst \d+ quantum 60000",
        rack_link[0],
    )
    assert rack_link[1:] == [
        f"qdisc add dev {dev} parent 1:5 bfifo limit {port_queue_bytes(100 * MBIT)}",
        (
            f"filter add dev {dev} parent 1: protocol ip pref 5 u32 match ip src 10.0.20.0/22"
            " flowid 1:5"
        ),
    ]
    assert [s.netns for s in sections] == [
        None,
        "hn-s0v0",
        "hn-s0v1",
        "hn-s1v0",
    ]
    inside = [line.text() for line in sections[1].lines]
    packets_bps = 1_000 * PACKET_MPU_BYTES * 8  # the least
    bucket = burst_bytes(packets_bps)
    assert inside == [
        "qdisc add dev eth0 root handle 1: htb default 0x1",
        (
            f"class add dev eth0 parent 1: classid 1:2 htb rate {packets_bps}bit"
            f" ceil {packets_bps}bit burst {bucket} cburst {bucket} quantum 60000 mpu 65535"
        ),
        (
            "class add dev eth0 parent 1:2 classid 1:1 htb rate 8000bit ceil 100000000bit"
            " burst 3028 cburst 125000 quantum 60000"
        ),
        f"qdisc add dev eth0 parent 1:1 bfifo limit {vm_queue_bytes(100 * MBIT)}",
    ]
    receive = [line for line in lines if "dev hn-s1v0 " in line]
    assert (
        receive[0] == "qdisc add dev hn-s1v0 root handle 1: htb default 0x1"
    )
    assert "rate 100000000bit ceil 100000000bit" in receive[1]


@given(
    rates=st.lists(st.integers(8_000, 10**9), min_size=1, max_size=8),
    uplink=st.integers(8_000, 40 * 10**9),
)
def test_vms_within_a_links_bytes_are_within_its_packets(
    rates: list[int], uplink: int
) -> None:
    rates = [min(rate, uplink // len(rates)) for rate in rates]
    allowed = [packets_per_s(rate, uplink) for rate in rates]
    needed = [rate // (8 * 16_384) for rate in rates]
    assert all(
        p >= MIN_PACKETS_PER_S and p >= n
        for p, n in zip(allowed, needed, strict=True)
    )
    large = [
        p
        for p, n in zip(allowed, needed, strict=True)
        if p > max(MIN_PACKETS_PER_S, n)
    ]
    assert sum(large) <= LINK_PACKETS_PER_S


@given(
    rate=st.integers(8_000, 10**9), uplink=st.integers(8_000, 96_000_000)
)
def test_full_frames_without_offload_are_not_held_up_on_slow_links(
    rate: int, uplink: int
) -> None:
    rate = min(rate, uplink)
    assert (packets_per_s(rate, uplink) + 1) * 1514 * 8 >= rate


def test_a_server_without_a_link_gives_its_vms_the_packets_of_a_whole_one() -> (
    None
):
    _, tenant = placed(dumbbell(), ((0, 2),))
    alone = replace(network_plan(dumbbell(), "hn"), links=())
    packets = [
        line.item.rate_bps // (8 * PACKET_MPU_BYTES)
        for section in tenant_limits(alone, replace(tenant, link_bps=()))
        for line in section.lines
        if isinstance(line.item, HtbClass) and line.item.mpu_bytes
    ]
    assert packets == [LINK_PACKETS_PER_S] * 2


def test_text_has_a_heading_for_each_namespace() -> None:
    network, tenant = placed(dumbbell(), ((0, 1), (1, 1)))
    text = batch_text(tenant_limits(network, tenant))
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == ["# host", "# netns hn-s0v0", "# netns hn-s1v0"]
    assert text.endswith("\n")


def test_a_reservation_catches_up_for_longer_than_who_competes() -> None:
    network, tenant = placed(dumbbell(), ((0, 1), (1, 1)))

    def behind_the_vms(who: TenantPlan) -> set[float]:
        (host, *_) = tenant_limits(network, who)
        return {
            line.item.burst_s
            for line in host.lines
            if isinstance(line.item, HtbClass)
        }

    assert behind_the_vms(tenant) == {RESERVED_CATCH_UP_S}
    assert behind_the_vms(replace(tenant, link_bps=())) == {CATCH_UP_S}


@pytest.mark.parametrize("rate", [300_000, MBIT, 3 * MBIT, 100 * MBIT])
def test_a_reserved_bucket_holds_a_packet_of_each_vm_that_sends(
    rate: int,
) -> None:
    network, tenant = placed(dumbbell(), ((0, 2), (1, 2)), rate)
    tenant = replace(tenant, volume_bytes=1 << 30)
    sections = tenant_limits(network, tenant)
    classes = [
        x.item for x in sections[0].lines if isinstance(x.item, HtbClass)
    ]
    assert {each.rate_bps // rate for each in classes} == {1, 2}
    for each in classes:
        packets_bytes = each.rate_bps // rate * largest_packet_bytes(tenant)
        assert each.burst_bytes >= packets_bytes - 1
        assert each.burst_bytes >= burst_bytes(
            each.rate_bps, RESERVED_CATCH_UP_S
        )


def test_rerating_only_changes_and_touches_nothing_else() -> None:
    network, old = placed(dumbbell(), ((0, 2), (1, 2)), 400 * MBIT)
    links = tuple((d, bps // 2) for d, bps in old.link_bps)
    new = replace(old, rate_bps=old.rate_bps // 2, link_bps=links)
    sections = rerate_lines(network, old, new)
    lines = [line for s in sections for line in s.lines]
    assert {line.verb for line in lines} == {"change"}
    classes = [line for line in lines if isinstance(line.item, HtbClass)]
    assert len(classes) == len(old.link_bps) + 3 * len(old.vms)
    wanted = {
        line.item for s in tenant_limits(network, new) for line in s.lines
    }
    assert all(line.item in wanted for line in lines)


def test_rerating_to_the_same_rate_is_nothing() -> None:
    network, tenant = placed(dumbbell(), ((0, 2), (1, 2)))
    assert rerate_lines(network, tenant, tenant) == ()


def test_a_moved_tenant_is_not_rerated() -> None:
    network, here = placed(dumbbell(), ((0, 2),))
    _, there = placed(dumbbell(), ((1, 2),))
    with pytest.raises(ValueError, match="not a change of rate alone"):
        rerate_lines(network, here, there)


@pytest.mark.parametrize("borrowing", [False, True])
@pytest.mark.parametrize("mode", ["strict", "work-conserving", "none"])
def test_another_capacity_leaves_what_a_new_network_would_have(
    mode: Enforcement, borrowing: bool
) -> None:
    """Every class and queue after the changes, by applying them line by line."""
    network, reserved = placed(dumbbell(), ((0, 2), (1, 2)), 100 * MBIT)
    old = enforced(network, reserved, mode)
    other = network.with_capacity(0, 130 * MBIT, 140 * MBIT)
    other = other.with_capacity(2, 900 * MBIT, 700 * MBIT)
    new = on_network(other, old)
    there = [
        *network_limits(network, borrows=borrowing),
        *tenant_limits(network, old),
    ]
    items = [(s.netns, line.item) for s in there for line in s.lines]
    for section in capacity_lines(
        network, other, [(old, new)], borrowing=borrowing
    ):
        for line in section.lines:
            assert line.verb == "change"
            at = items.index((section.netns, line.before))
            items[at] = (section.netns, line.item)
    wanted = [
        *network_limits(other, borrows=borrowing),
        *tenant_limits(other, new),
    ]
    assert items == [
        (s.netns, line.item) for s in wanted for line in s.lines
    ]
    centre = dumbbell().with_capacity(0, 130 * MBIT, 140 * MBIT)
    centre = centre.with_capacity(2, 900 * MBIT, 700 * MBIT)
    assert network_plan(centre) == other


def test_links_that_borrow_are_those_that_are_changed_to_borrow() -> None:
    network, _ = placed(dumbbell(), ((0, 2), (1, 2)))
    (plain,) = network_limits(network)
    items = [line.item for line in plain.lines]
    for line in borrowing_lines(network)[0].lines:
        items[items.index(line.before)] = line.item
    (borrowing,) = network_limits(network, borrows=True)
    assert items == [line.item for line in borrowing.lines]


@pytest.mark.parametrize("mode", ["strict", "work-conserving", "none"])
def test_on_another_tree_a_tenant_has_other_classes_and_the_same_caps(
    mode: Enforcement,
) -> None:
    datacentre = fat_tree(4, 1000 * MBIT, 2)
    network, reserved = placed(datacentre, ((0, 2), (2, 1), (4, 1)))
    old = enforced(network, reserved, mode)
    there = Placement(datacentre.trees[1].root, ((0, 2), (2, 1), (4, 1)))
    new = rerooted(datacentre, network, old, there)
    made, gone = (
        [x for s in sections for x in s.lines]
        for sections in reroot_lines(network, old, new)
    )
    # From this root to the next one the aggregation switches are the same: two links are others.
    n_ports = 0 if mode == "none" else 4
    assert [x.text().split()[:2] for x in made] == [
        ["class", "add"],
        ["qdisc", "add"],
        ["filter", "add"],
    ] * n_ports
    assert [x.text().split()[:2] for x in gone] == [
        ["filter", "del"]
    ] * n_ports + [["class", "del"]] * n_ports
    before, after = (
        {x.item for s in tenant_limits(network, t) for x in s.lines}
        for t in (old, new)
    )
    left = {
        (x.item.dev, x.item.minor)
        for x in gone
        if isinstance(x.item, HtbClass)
    }
    kept = {
        x
        for x in before
        if isinstance(x, HtbRoot) or (x.dev, x.minor) not in left
    }
    assert kept | {x.item for x in made} == after
    assert reroot_lines(network, old, old) == (
        (BatchSection(None, ()),),
        (BatchSection(None, ()),),
    )


def test_another_tenants_rate_is_not_taken_for_this_ones() -> None:
    network, one = placed(dumbbell(), ((0, 1), (1, 1)), tenant_id=5)
    _, other = placed(dumbbell(), ((0, 1), (1, 1)), tenant_id=6)
    with pytest.raises(ValueError, match="not a change of rate alone"):
        rerate_lines(network, one, other)


def test_removal_names_filters_before_their_classes_and_whole_roots_last() -> (
    None
):
    network, tenant = placed(dumbbell(), ((0, 1), (1, 1)))
    sections = removal_lines(network, tenant)
    host = host_lines(sections)
    n_links = len(tenant.link_bps)
    dev = network.sending_port(0).name
    assert (
        f"filter del dev {dev} parent 1: protocol ip pref 5"
        in host[:n_links]
    )
    assert f"class del dev {dev} classid 1:5" in host[n_links : 2 * n_links]
    assert host[2 * n_links :] == [
        "qdisc del dev hn-s0v0 root",
        "qdisc del dev hn-s1v0 root",
    ]
    assert [line.text() for line in sections[1].lines] == [
        "qdisc del dev eth0 root"
    ]


def test_a_removal_cannot_be_taken_back() -> None:
    assert BatchLine("del", HtbRoot("x", 1)).undo() is None


def test_undoing_a_change_restores_what_was_there() -> None:
    before, after = HtbClass("x", 0, 1, 10, 10), HtbClass("x", 0, 1, 20, 20)
    undone = BatchLine("change", after, before).undo()
    assert undone is not None
    assert undone.text() == BatchLine("change", before).text()
    assert undone.before == after


placements = st.lists(st.integers(0, 2), min_size=16, max_size=16).filter(
    lambda n: sum(n) > 0
)


# The servers below each link of a tree of 4 times 2 racks of 2.
SUBTREES = [
    range(i, i + size) for size in (1, 2, 4) for i in range(0, 16, size)
]


@pytest.mark.slow
@given(
    counts=placements,
    rate=st.integers(8_000, 10**9),
    tenant_id=st.integers(1, (1 << 14) - 1),
)
@examples(60)
def test_what_is_added_is_exactly_what_is_removed(
    counts: list[int], rate: int, tenant_id: int
) -> None:
    datacentre = fat_tree(4, 10**9, 2)
    vms_on = tuple((server, n) for server, n in enumerate(counts) if n)
    network, tenant = placed(datacentre, vms_on, rate, tenant_id)
    added = tenant_limits(network, tenant)
    removed = removal_lines(network, tenant)
    assert [s.netns for s in added] == [s.netns for s in removed]
    for plus, minus in zip(added, removed, strict=True):
        gone = [line.item for line in minus.lines]
        whole = {item.dev for item in gone if isinstance(item, HtbRoot)}
        by_parent = {
            (i.dev, i.minor) for i in gone if isinstance(i, HtbClass)
        }
        for line in plus.lines:
            item = line.item
            if isinstance(item, ByteFifo):
                assert (
                    item.dev in whole or (item.dev, item.minor) in by_parent
                )
            else:
                assert item in gone or item.dev in whole
        assert all(
            item in [line.item for line in plus.lines] for item in gone
        )


@given(counts=placements, rate=st.integers(8_000, 10**9))
@examples(60)
def test_a_tenants_classes_are_its_hose(
    counts: list[int], rate: int
) -> None:
    """min(X, N-X)·B on the port that sends, and a filter and a bounded queue for every class."""
    datacentre = fat_tree(4, 10**9, 2)
    vms_on = tuple((server, n) for server, n in enumerate(counts) if n)
    network, tenant = placed(datacentre, vms_on, rate)
    host = tenant_limits(network, tenant)[0].lines
    vm_devices = {vm.slot.port.name for vm in tenant.vms}
    classes = {
        line.item.dev: line.item.rate_bps
        for line in host
        if isinstance(line.item, HtbClass)
        and line.item.dev not in vm_devices
    }
    expected = {
        network.sending_port(d).name: bps for d, bps in tenant.link_bps
    }
    assert classes == expected
    n = sum(counts)
    assert all(
        bps % rate == 0 and bps // rate <= n // 2
        for bps in classes.values()
    )
    filters = {
        line.item.dev: line.item
        for line in host
        if isinstance(line.item, PrefixFilter)
    }
    queues = {
        line.item.dev for line in host if isinstance(line.item, ByteFifo)
    }
    assert set(filters) == set(classes)
    assert queues == set(classes) | vm_devices
    assert all(f.source == tenant.prefix for f in filters.values())


@given(rate=st.integers(1, 10**11))
def test_buckets_and_queues_are_never_too_small_for_a_frame(
    rate: int,
) -> None:
    assert burst_bytes(rate) >= 2 * 1514
    assert vm_queue_bytes(rate) >= 150_000
    assert port_queue_bytes(rate) >= 60_000
    # A queue is a time: more rate never means a shorter queue in bytes.
    assert port_queue_bytes(rate + 8000) >= port_queue_bytes(rate)


def test_class_numbers_of_tenants_never_meet_the_links_own() -> None:
    assert (1 << 14) - 1 < DEFAULT_CLASS_MINOR < LINK_MINOR <= 0xFFFF


def test_a_tenant_that_counts_by_its_vms_reserves_nothing_and_takes_turns() -> (
    None
):
    centre = tree([2], [1_000_000_000], 3)
    network = network_plan(centre)
    placement = Placement(centre.trees[0].root, ((0, 2), (1, 2)))
    slots = tuple(
        network.slots_of_server[s][i] for s in (0, 1) for i in (0, 1)
    )
    tenant = tenant_plan(
        centre, network, placement, slots, 5, "j", 1_000_000_000
    )
    weights = proximate_weights(centre, placement)
    assert weights == ((0, 2), (1, 2), (2, 2), (3, 2))
    host = tenant_limits(
        network, replace(tenant, link_bps=(), weights=weights)
    )[0]
    classes = [
        line.text() for line in host.lines if "parent 1:ffff" in line.text()
    ]
    assert len(classes) == 4
    assert all(
        "rate 8000bit ceil 1000000000bit" in text for text in classes
    )
    assert all(text.endswith("quantum 32000") for text in classes)


def test_large_tenants_share_a_link_by_their_weights_too() -> None:
    centre = tree([2], [1_000_000_000], 60)
    network = network_plan(centre)
    placement = Placement(centre.trees[0].root, ((0, 52), (1, 1)))
    slots = (
        *network.slots_of_server[0][:52],
        network.slots_of_server[1][0],
    )
    tenant = tenant_plan(
        centre, network, placement, slots, 5, "j", 1_000_000_000
    )
    plan = replace(tenant, link_bps=(), weights=((0, 13), (2, 52)))
    texts = [line.text() for line in tenant_limits(network, plan)[0].lines]
    quanta = [
        int(text.rsplit(" ", 1)[1])
        for text in texts
        if "parent 1:ffff" in text
    ]
    assert quanta == [13 * 16_000, 52 * 16_000]


def test_rates_of_other_links_are_no_change_of_rate() -> None:
    centre = tree([2], [1_000_000_000], 1)
    network = network_plan(centre)
    placement = Placement(centre.trees[0].root, ((0, 1), (1, 1)))
    slots = (network.slots_of_server[0][0], network.slots_of_server[1][0])
    tenant = tenant_plan(
        centre, network, placement, slots, 5, "j", 1_000_000
    )
    other = replace(tenant, link_bps=tuple(reversed(tenant.link_bps)))
    with pytest.raises(ValueError, match="not a change of rate alone"):
        rerate_lines(network, tenant, other)


def test_links_open_and_close_again() -> None:
    network = network_plan(tree([2], [1_000_000_000], 1))
    (opening,) = borrowing_lines(network)
    closing = opening.undo()
    assert len(opening.lines) == 8
    assert "rate 1000000bit ceil 1000000000bit" in opening.lines[0].text()
    assert "rate 1000000bit ceil 1000000bit" in closing.lines[-1].text()
    assert [line.item for line in closing.lines] == [
        line.before for line in opening.lines
    ][::-1]


# ------------------------------------------------------------------------------- enforcement


def test_a_strict_tenant_is_limited_to_its_reservation() -> None:
    network, tenant = placed(dumbbell(), ((0, 2), (1, 1)))
    assert enforced(network, tenant, "strict") is tenant


def test_a_tenant_that_borrows_keeps_its_rate_and_may_have_the_link() -> (
    None
):
    network, tenant = placed(dumbbell(), ((0, 2), (1, 1)))
    lent = enforced(network, tenant, "work-conserving")
    lines = host_lines(tenant_limits(network, lent))
    up, rack = (network.sending_port(directed).name for directed in (0, 4))
    of = {
        dev: [line for line in lines if f"dev {dev} " in line]
        for dev in (up, rack, "hn-s1v0")
    }
    burst, cburst = (
        burst_bytes(100 * MBIT, CATCH_UP_S),
        burst_bytes(1000 * MBIT, CATCH_UP_S),
    )
    assert of[up][:2] == [
        (
            f"class add dev {up} parent 1:ffff classid 1:5 htb rate 100000000bit"
            f" ceil 1000000000bit burst {burst} cburst {cburst} quantum 60000"
        ),
        f"qdisc add dev {up} parent 1:5 bfifo limit {port_queue_bytes(1000 * MBIT) * 5 // 4}",
    ]
    assert "rate 100000000bit ceil 400000000bit" in of[rack][0]
    # Both caps of a VM are its server's link.
    assert "rate 1000000000bit ceil 1000000000bit" in of["hn-s1v0"][1]
    inside = [line.text() for line in tenant_limits(network, lent)[1].lines]
    assert "classid 1:1 htb rate 8000bit ceil 1000000000bit" in inside[2]
    assert (
        inside[3]
        == f"qdisc add dev eth0 parent 1:1 bfifo limit {vm_queue_bytes(1000 * MBIT)}"
    )


def test_a_tenant_without_enforcement_has_no_class_and_the_links_theirs() -> (
    None
):
    network, tenant = placed(dumbbell(), ((0, 2), (1, 1)))
    free = enforced(network, tenant, "none")
    lines = host_lines(tenant_limits(network, free))
    assert not [
        line
        for line in lines
        if "parent 1:ffff" in line or "filter" in line
    ]
    assert {line.split()[3] for line in lines} == {
        vm.slot.port.name for vm in tenant.vms
    }
    assert (
        sum(
            "rate 1000000000bit ceil 1000000000bit" in line
            for line in lines
        )
        == 3
    )


@pytest.mark.slow
@given(
    counts=placements,
    rate=st.integers(8_000, 10**9),
    mode=st.sampled_from(["strict", "work-conserving", "none"]),
)
@examples(60)
def test_in_every_mode_links_keep_their_capacity_and_removal_is_whole(
    counts: list[int], rate: int, mode: Enforcement
) -> None:
    vms_on = tuple((server, n) for server, n in enumerate(counts) if n)
    network, plain = placed(fat_tree(4, 10**9, 2), vms_on, rate)
    tenant = enforced(network, plain, mode)
    sections = tenant_limits(network, tenant)
    items = [line.item for section in sections for line in section.lines]
    classes = [
        i
        for i in items
        if isinstance(i, HtbClass) and i.parent_minor == LINK_MINOR
    ]
    reserved = {
        network.sending_port(d).name: bps for d, bps in plain.link_bps
    }
    # A guarantee is the same whether bandwidth is lent or not; without one there is no class.
    assert {c.dev: c.rate_bps for c in classes} == (
        {} if mode == "none" else reserved
    )
    capacity = network.capacity_of_port
    for each in classes:
        strict_bps = each.rate_bps
        assert each.ceil_bps == (
            strict_bps if mode == "strict" else capacity[each.dev]
        )
    gone = [
        line.item
        for section in removal_lines(network, tenant)
        for line in section.lines
    ]
    assert {i for i in gone if isinstance(i, HtbRoot | PrefixFilter)} == {
        i for i in items if isinstance(i, HtbRoot | PrefixFilter)
    }
    assert rerate_lines(network, tenant, tenant) == ()


def test_a_borrowers_new_rate_leaves_what_it_may_borrow() -> None:
    network, plain = placed(dumbbell(), ((0, 2), (1, 2)), 100 * MBIT)
    old = enforced(network, plain, "work-conserving")
    links = tuple((d, bps // 2) for d, bps in old.link_bps)
    sections = rerate_lines(
        network, old, replace(old, rate_bps=50 * MBIT, link_bps=links)
    )
    changed = [line.item for s in sections for line in s.lines]
    classes = [
        item
        for item in changed
        if isinstance(item, HtbClass) and not item.mpu_bytes
    ]
    assert {item.parent_minor for item in classes} == {LINK_MINOR}
    assert {item.rate_bps for item in classes} == {bps for _, bps in links}
    capacity = network.capacity_of_port
    assert all(item.ceil_bps == capacity[item.dev] for item in classes)


@given(
    counts=placements,
    rate=st.integers(8_000, 10**9),
    links_bps=st.lists(st.integers(10**7, 10**9), min_size=3, max_size=3),
)
@examples(60)
def test_all_that_a_lender_has_on_its_way_over_a_link_fits_its_class_or_is_the_least(
    counts: list[int], rate: int, links_bps: list[int]
) -> None:
    vms_on = tuple((server, n) for server, n in enumerate(counts) if n)
    network, plain = placed(tree([4, 2, 2], links_bps, 2), vms_on, rate)
    assert (
        tenant_sysctls(plain)
        == tenant_sysctls(enforced(network, plain, "none"))
        == ()
    )
    tenant = enforced(network, plain, "work-conserving")
    sections = tenant_limits(network, tenant)
    items = [line.item for section in sections for line in section.lines]
    queues = [
        i.limit_bytes
        for i in items
        if isinstance(i, ByteFifo) and i.minor == tenant.tenant_id
    ]
    if not queues:  # no link is crossed
        assert tenant_sysctls(tenant) == ()
        return
    ((_, value),) = tenant_sysctls(tenant)
    _, begins_bytes, most_bytes = map(int, value.split())
    assert begins_bytes == most_bytes
    n = len(tenant.vms)
    # Brute force: the senders on one side of a link times the receivers on its other.
    below = {sum(counts[s] for s in servers) for servers in SUBTREES}
    connections = max(x * (n - x) for x in below)
    assert most_bytes == 65_536 or most_bytes * connections <= 0.8 * min(
        queues
    )
    assert most_bytes >= 65_536


@given(rate=st.integers(8_000, 10**9), uplink=st.integers(10**7, 10**9))
def test_a_borrower_can_fill_its_link_with_its_packets_and_has_no_more_than_it_needs(
    rate: int, uplink: int
) -> None:
    rate = min(rate, uplink)
    network, plain = placed(tree([2], [uplink], 1), ((0, 1), (1, 1)), rate)
    tenant = enforced(network, plain, "work-conserving")
    (limit,) = {
        line.item.rate_bps // (8 * PACKET_MPU_BYTES)
        for section in tenant_limits(network, tenant)
        for line in section.lines
        if isinstance(line.item, HtbClass) and line.item.mpu_bytes
    }
    assert (limit + 1) * largest_packet_bytes(tenant) * 8 >= uplink
    assert limit == max(packets_per_s(rate, uplink), uplink // (8 * 16_384))
