"""Forwarding by the rules of several tenants, in random trees and in fat-trees.

The oracle walks the tenant's tree by itself; it shares no line with `controller.flow_rules`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.flow_rules import (
    AddFlow,
    RemoveByCookie,
    desired_flows,
    difference,
    move_steps,
    tenant_cookie,
    tenant_flows,
)
from controller.values import AttachedVm, DesiredState, Tenant
from tests.support.fake_datacentre import (
    FakeDataCentre,
    fat_tree_datacentre,
    tree_datacentre,
)
from tests.support.fake_switch import Packet, tagged

FAT_TREE = fat_tree_datacentre(4, slots_per_server=2)


@st.composite
def datacentres(draw: st.DrawFn) -> FakeDataCentre:
    if draw(st.booleans()):
        return FAT_TREE
    fanout = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    return tree_datacentre(fanout, draw(st.integers(1, 3)))


def _tenant(
    draw: st.DrawFn,
    datacentre: FakeDataCentre,
    tenant_id: int,
    slots: list[tuple[int, int]],
) -> Tenant:
    def choose(count: int) -> int:
        return draw(st.integers(0, count - 1))

    return datacentre.tenant(tenant_id, slots, choose)


@st.composite
def populated(draw: st.DrawFn) -> tuple[FakeDataCentre, DesiredState]:
    """A datacentre with one to four tenants at random slots."""
    datacentre = draw(datacentres())
    slots = draw(st.permutations(datacentre.slots))[
        : draw(st.integers(1, 14))
    ]
    cuts = sorted(draw(st.sets(st.integers(1, len(slots)), max_size=3)))
    bounds = zip([0, *cuts], [*cuts, len(slots)], strict=True)
    groups = [slots[low:high] for low, high in bounds if slots[low:high]]
    ids = draw(
        st.lists(
            st.integers(1, 16383),
            min_size=len(groups),
            max_size=len(groups),
            unique=True,
        )
    )
    state = DesiredState().with_network(datacentre.switches)
    for tenant_id, group in zip(ids, groups, strict=True):
        state = state.with_tenant(
            _tenant(draw, datacentre, tenant_id, group)
        )
    return datacentre, state


def path_along_tree(
    tenant: Tenant, source: AttachedVm, target: AttachedVm
) -> tuple[int, ...]:
    """The switches between two VMs: upward from both until the ways meet."""
    parent = {edge.child_dpid: edge.parent_dpid for edge in tenant.tree}

    def upward(dpid: int) -> list[int]:
        way = [dpid]
        while way[-1] in parent:
            way.append(parent[way[-1]])
        return way

    up, down = upward(source.dpid), upward(target.dpid)
    meeting = next(dpid for dpid in up if dpid in down)
    return (
        *up[: up.index(meeting)],
        *reversed(down[: down.index(meeting) + 1]),
    )


def packet(source: AttachedVm, target: AttachedVm) -> Packet:
    return Packet(source.mac, source.ip, target.ip)


@given(populated())
def test_every_vm_reaches_every_other_once_along_the_pinned_tree(
    case: tuple[FakeDataCentre, DesiredState],
) -> None:
    datacentre, state = case
    network = datacentre.network(state)
    for tenant in state.tenants:
        for source in tenant.vms:
            for target in tenant.vms:
                if source is target:
                    continue
                came = network.send(
                    packet(source, target), source.dpid, source.port
                )
                assert [(d.dpid, d.port) for d in came] == [
                    (target.dpid, target.port)
                ]
                assert came[0].path == path_along_tree(
                    tenant, source, target
                )


@given(populated())
def test_nothing_of_one_tenant_reaches_another(
    case: tuple[FakeDataCentre, DesiredState],
) -> None:
    datacentre, state = case
    network = datacentre.network(state)
    vms = [(tenant, vm) for tenant in state.tenants for vm in tenant.vms]
    for tenant, source in vms:
        for other, target in vms:
            if other is tenant:
                continue
            honest = packet(source, target)
            for sent in (honest, replace(honest, ip_src=target.ip)):
                assert network.send(sent, source.dpid, source.port) == ()


@pytest.mark.slow
@given(populated())
def test_a_vm_that_says_it_is_another_is_not_heard(
    case: tuple[FakeDataCentre, DesiredState],
) -> None:
    datacentre, state = case
    network = datacentre.network(state)
    for tenant in state.tenants:
        for source in tenant.vms:
            for target in tenant.vms:
                # Claims to be another VM, of its own tenant or of another; in address, in MAC,
                # or in both.
                for claimed in (
                    vm
                    for t in state.tenants
                    for vm in t.vms
                    if vm is not source
                ):
                    honest = packet(source, target)
                    for sent in (
                        replace(honest, ip_src=claimed.ip),
                        replace(honest, eth_src=claimed.mac),
                        replace(
                            honest, ip_src=claimed.ip, eth_src=claimed.mac
                        ),
                    ):
                        assert (
                            network.send(sent, source.dpid, source.port)
                            == ()
                        )


@given(populated(), st.data())
def test_what_is_not_plain_ipv4_between_vms_of_a_tenant_goes_nowhere(
    case: tuple[FakeDataCentre, DesiredState], data: st.DataObject
) -> None:
    datacentre, state = case
    network = datacentre.network(state)
    tenant = data.draw(st.sampled_from(state.tenants))
    source, target = (
        data.draw(st.sampled_from(tenant.vms)) for _ in range(2)
    )
    honest = packet(source, target)
    used = {vm.ip for vm in tenant.vms}
    nobody = next(
        str(address)
        for address in reversed(list(tenant.network))
        if str(address) not in used
    )
    for sent in (
        tagged(honest, 5),
        tagged(honest, 0),
        replace(honest, eth_type=0x0806),
        replace(honest, eth_type=0x86DD),
        replace(honest, ip_dst=nobody),
        replace(honest, ip_dst="255.255.255.255"),
        replace(honest, ip_dst="8.8.8.8"),
        replace(honest, ip_src="0.0.0.0"),  # noqa: S104 - an address in a packet
    ):
        assert network.send(sent, source.dpid, source.port) == ()


@given(populated(), st.data())
def test_a_port_without_a_vm_is_deaf(
    case: tuple[FakeDataCentre, DesiredState], data: st.DataObject
) -> None:
    datacentre, state = case
    network = datacentre.network(state)
    tenant = data.draw(st.sampled_from(state.tenants))
    source, target = (
        data.draw(st.sampled_from(tenant.vms)) for _ in range(2)
    )
    taken = {place for t in state.tenants for place in t.vm_ports}
    for dpid, port in set(datacentre.slots) - taken:
        assert network.send(packet(source, target), dpid, port) == ()


@given(populated(), st.data())
def test_removing_a_tenant_leaves_exactly_what_was_there_before(
    case: tuple[FakeDataCentre, DesiredState], data: st.DataObject
) -> None:
    datacentre, state = case
    gone = data.draw(st.sampled_from(state.tenants))
    before = datacentre.network(state.without_tenant(gone.id))
    after = datacentre.network(state)
    for switch in after.switches.values():
        switch.apply((RemoveByCookie(tenant_cookie(gone.id)),))
    for dpid, switch in after.switches.items():
        assert switch.flows == before.switches[dpid].flows


@pytest.mark.slow
@given(populated(), populated())
def test_any_state_turns_into_any_other_by_the_difference(
    first: tuple[FakeDataCentre, DesiredState],
    second: tuple[FakeDataCentre, DesiredState],
) -> None:
    """Also between different datacentres: a bridge may have had another place in an earlier run."""
    network = first[0].network(first[1])
    wanted = desired_flows(second[1])
    for dpid in sorted(network.switches.keys() & wanted.keys()):
        switch = network.switches[dpid]
        unchanged = switch.flows & set(wanted[dpid])
        changes = difference(wanted[dpid], switch.report())
        assert not set(changes) & set(map(AddFlow, unchanged)), (
            "what is right is left alone"
        )
        switch.apply(changes)
        assert switch.flows == set(wanted[dpid])
        assert difference(wanted[dpid], switch.report()) == ()


@pytest.mark.slow
@given(st.data())
def test_on_the_way_to_another_tree_every_packet_arrives_once(
    data: st.DataObject,
) -> None:
    """Whichever switches have done the step that is under way, of each step in its turn."""
    slots = data.draw(st.permutations(FAT_TREE.slots))[
        : data.draw(st.integers(2, 8))
    ]
    roots = range(len(FAT_TREE.roots_for(dpid for dpid, _ in slots)))
    here, there = (data.draw(st.sampled_from(roots)) for _ in range(2))
    old, new = (
        FAT_TREE.tenant(1, slots, lambda _, root=root: root)
        for root in (here, there)
    )
    state = DesiredState().with_network(FAT_TREE.switches)
    network = FAT_TREE.network(state.with_tenant(old))
    unaffected = {
        dpid: switch.flows for dpid, switch in network.switches.items()
    }
    for step in move_steps(tenant_flows(old), tenant_flows(new)):
        for dpid in data.draw(st.permutations(sorted(step))):
            network.switches[dpid].apply(step[dpid])
            for source in old.vms:
                for target in (vm for vm in old.vms if vm is not source):
                    came = network.send(
                        packet(source, target), source.dpid, source.port
                    )
                    assert [(d.dpid, d.port) for d in came] == [
                        (target.dpid, target.port)
                    ]
    after = FAT_TREE.network(state.with_tenant(new))
    for dpid, switch in network.switches.items():
        assert switch.flows == after.switches[dpid].flows
        assert here != there or switch.flows == unaffected[dpid]


@pytest.mark.parametrize("k", [2, 4])
def test_a_fat_tree_has_the_numbers_of_the_literature(k: int) -> None:
    datacentre = fat_tree_datacentre(k, slots_per_server=1)
    roles = [switch.role for switch in datacentre.switches]
    assert roles.count("core") == k * k // 4
    assert roles.count("aggregation") == roles.count("rack") == k * k // 2
    assert roles.count("server") == len(datacentre.slots) == k**3 // 4
    assert len(datacentre.links) == 3 * k**3 // 4


def test_tables_stay_small_where_many_vms_are_elsewhere() -> None:
    """A switch knows the VMs below it one by one, and all others by one rule."""
    datacentre = FAT_TREE
    tenant = datacentre.tenant(1, datacentre.slots, lambda _count: 0)
    state = (
        DesiredState().with_network(datacentre.switches).with_tenant(tenant)
    )
    for switch in datacentre.switches:
        flows = [
            f
            for f in desired_flows(state)[switch.dpid]
            if f.cookie & 0xFFFFFFFF
        ]
        below = datacentre.servers_below(switch.dpid)
        vms = [vm for vm in tenant.vms if vm.dpid in below] if flows else []
        ports = {
            p
            for d, p in tenant.tree_ports | tenant.vm_ports
            if d == switch.dpid
        }
        has_parent = any(
            edge.child_dpid == switch.dpid for edge in tenant.tree
        )
        assert len(flows) == len(ports) + len(vms) + has_parent
