"""Hosts with names and addresses of their topology: in the plan, the VMs and the flows."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest

from controller.flow_rules import tenant_flows
from controller.values import Conflict, DesiredState, InvalidValues
from testbed.plan.batch_lines import Address, Neighbour, PrefixRoute
from testbed.plan.installation import tenant_hosts
from testbed.plan.network_plan import (
    ANY_ADDRESS,
    TenantPlan,
    controller_switches,
    controller_tenant,
    network_plan,
    tenant_plan,
    with_topology_addresses,
)
from testbed.standing.tenant_placement import open_placement
from topologies.datacentre import TopologyError
from topologies.mininet_record import MininetRecord
from topologies.mininet_topo import from_mininet, notes_of
from topologies.tree import tree


def star(**hosts: dict[str, Any]) -> MininetRecord:
    """Hosts on one switch."""
    record = MininetRecord(nodes={"s1": {"isSwitch": True}, **hosts})
    record.links = [(name, "s1", {"bw": 10}) for name in hosts]
    return record


def opened(record: MininetRecord) -> TenantPlan:
    """The tenant of an open network."""
    centre = from_mininet(record)
    plan = network_plan(centre)
    made = tenant_plan(
        centre, plan, open_placement(centre), plan.slots, 1, "open", 10**7
    )
    return with_topology_addresses(made)


def test_what_a_topology_does_not_name_is_ours() -> None:
    plan = network_plan(from_mininet(star(a={}, b={"mac": "2:0:0:0:0:b"})))
    assert [slot.host for slot in plan.slots] == ["a", "b"]
    assert [slot.mac for slot in plan.slots] == [
        "02:48:4e:00:00:01",
        "02:00:00:00:00:0b",
    ]
    assert [bridge.label for bridge in plan.bridges] == ["", "", "s1"]
    ours = network_plan(tree([2], 10**7, 1))
    assert not any(slot.host or slot.address for slot in ours.slots)
    assert not any(bridge.label for bridge in ours.bridges)


def test_more_namespaces_than_slots_leave_the_names_where_they_are() -> (
    None
):
    centre = from_mininet(star(a={"slots": 2}, b={}))
    plan = network_plan(centre, namespaces_per_server=[3, 2])
    assert [slot.host for slot in plan.slots] == ["a-0", "a-1", "", "b", ""]


def test_vms_have_the_addresses_and_a_way_to_all_networks() -> None:
    tenant = opened(
        star(
            a={"ip": "192.168.1.7/24"}, b={"ip": "10.0.0.2"}, c={"ip": None}
        )
    )
    assert tenant.prefix == ANY_ADDRESS
    given = [str(vm.ip) for vm in tenant.vms]
    assert given == ["192.168.1.7", "10.0.0.2", "10.0.4.3"]
    items = [
        line.item
        for section in tenant_hosts(tenant)
        for line in section.lines
    ]
    own = [str(item.address) for item in items if isinstance(item, Address)]
    assert own == ["192.168.1.7/24", "10.0.0.2/8", "10.0.4.3/22"]
    routes = [item for item in items if isinstance(item, PrefixRoute)]
    for vm in tenant.vms:
        to = {r.network for r in routes if r.address.ip == vm.ip}
        others = [v.ip for v in tenant.vms if v is not vm]
        assert all(any(ip in network for network in to) for ip in others)
    known = [item.ip for item in items if isinstance(item, Neighbour)]
    assert sorted(set(known)) == sorted(IPv4Address(ip) for ip in given)


def test_a_topology_without_addresses_changes_nothing() -> None:
    tenant = opened(star(a={}, b={}))
    assert tenant.prefix == IPv4Network("10.0.4.0/22")


def test_its_flows_admit_a_vms_own_address_and_no_prefix() -> None:
    record = star(a={"ip": "192.168.1.7/24"}, b={"ip": "10.0.0.2"})
    plan = network_plan(from_mininet(record))
    tenant = controller_tenant(plan, opened(record))
    flows = tenant_flows(tenant)
    text = "\n".join(
        flow.text() for rules in flows.values() for flow in rules
    )
    assert "nw_src=192.168.1.7 actions=goto" in text
    assert "/" not in text.replace("0x0000/0x1fff", "")
    state = DesiredState(controller_switches(plan), (tenant,))
    assert state.tenants == (tenant,)


@pytest.mark.parametrize(
    ("hosts", "problem"),
    [
        ({"a": {"ip": "10.0.0.300"}}, r"a: .*10\.0\.0\.300"),
        ({"a": {"ip": "224.0.0.1"}}, "a: ip 224.0.0.1 is no address of a host"),
        ({"a": {"mac": "01:00:00:00:00:01"}}, "a: mac 01:00:00:00:00:01 is no"),
        ({"a": {"mac": "0:0:0"}}, "a: mac 0:0:0 is no address of a host"),
    ],
)  # fmt: skip
def test_addresses_that_no_host_can_have(
    hosts: dict[str, dict[str, Any]], problem: str
) -> None:
    with pytest.raises(TopologyError, match=problem):
        from_mininet(star(**hosts))


def test_of_two_hosts_with_one_address_the_second_has_one_of_ours() -> None:
    """As students write them; in Mininet one of the two cannot be reached."""
    record = star(
        a={"ip": "192.168.1.1/24", "mac": "2:0:0:0:0:1"},
        b={"ip": "192.168.1.1/16", "mac": "02:00:00:00:00:01"},
        c={"ip": "192.168.1.2"},
    )
    hosts = from_mininet(record).hosts
    assert [host.address for host in hosts] == [
        "192.168.1.1/24",
        "",
        "192.168.1.2/8",
    ]
    assert notes_of(record, hosts) == (
        "b: 192.168.1.1/16 is another host's already; it has one of the testbed's",
        "b: 02:00:00:00:00:01 is another host's already; it has one of the testbed's",
    )
    given = [str(vm.ip) for vm in opened(record).vms]
    assert given == ["192.168.1.1", "10.0.4.2", "192.168.1.2"]


def test_a_tenant_of_any_address_has_the_network_alone() -> None:
    record = star(a={"ip": "10.9.0.1", "slots": 1}, b={}, c={}, d={})
    plan = network_plan(from_mininet(record))
    tenant = controller_tenant(plan, opened(record))
    from dataclasses import replace

    one = replace(tenant, vms=tenant.vms[:1], tree=())
    other = replace(
        one, id=2, prefix="10.0.8.0/22",
        vms=(replace(tenant.vms[1], ip="10.0.8.1"),),
    )  # fmt: skip
    with pytest.raises((Conflict, InvalidValues), match="overlaps that of"):
        DesiredState(controller_switches(plan), (one,)).with_tenant(other)
