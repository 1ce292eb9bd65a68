from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.flow_rules import tenant_flows
from jobs.demand import Compute
from jobs.request import JobRequest
from testbed.embedding.oktopus import Oktopus
from testbed.embedding.placement import (
    Placement,
    empty_residual,
    hose_bps,
    tree_of,
)
from testbed.errors import BadInput
from testbed.plan.installation import tenant_text
from testbed.plan.network_plan import (
    check_reachable,
    controller_switches,
    controller_tenant,
    network_plan,
    tenant_plan,
    tenant_prefix,
)
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.flat import flat
from topologies.tree import tree

GBIT = 1_000_000_000
CENTRES = {
    "tree": tree([4, 2, 2], [GBIT] * 3, 2),
    "fat-tree": fat_tree(4, GBIT, 2),
    "large": fat_tree(8, GBIT, 2),
}


@pytest.mark.parametrize("centre", CENTRES.values(), ids=CENTRES)
def test_names_fit_and_names_numbers_and_addresses_are_unique(
    centre: DataCentre,
) -> None:
    plan = network_plan(centre, "abcd")
    ports = [s.port for s in plan.slots] + [
        p for k in plan.links for p in (k.lower, k.upper)
    ]
    names = [b.name for b in plan.bridges] + [p.name for p in ports]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 15
    assert len({(p.bridge, p.number) for p in ports}) == len(ports)
    assert len({s.mac for s in plan.slots}) == len(plan.slots)
    assert len({b.dpid for b in plan.bridges}) == len(plan.bridges)


def test_a_fat_tree_of_4_has_what_a_fat_tree_of_4_has() -> None:
    plan = network_plan(CENTRES["fat-tree"])
    roles = [b.role for b in plan.bridges]
    assert (roles.count("server"), len(roles)) == (16, 36)
    assert (len(plan.links), len(plan.slots)) == (48, 32)


def test_capacities_are_scaled_once() -> None:
    assert {
        (k.up_bps, k.down_bps)
        for k in network_plan(CENTRES["tree"], "hn", 0.1).links
    } == {(GBIT // 10, GBIT // 10)}


def test_nodes_of_a_flat_data_centre_stand_alone() -> None:
    plan = network_plan(flat(4, 2))
    assert [bridge.name for bridge in plan.bridges] == [
        "hn-s0",
        "hn-s1",
        "hn-s2",
        "hn-s3",
    ]
    assert not plan.links
    slots = tuple(plan.slots_of_server[server][0] for server in (0, 2))
    tenant = tenant_plan(
        flat(4, 2),
        plan,
        Placement(4, ((0, 1), (2, 1))),
        slots,
        1,
        "far",
        8_000,
    )
    assert tenant.unconnected
    # Limits and addresses, but no flow anywhere: nobody is there to be reached.
    assert tenant_text(plan, tenant).endswith(
        "# flows (ovs-ofctl add-flow)\n"
    )


def test_a_job_that_moves_data_is_refused_where_no_network_is() -> None:
    computes = JobRequest("computes", 0.0, 3, 0, 5.0, demand=Compute())
    moves = JobRequest("moves", 0.0, 2, 1000, 5.0)
    check_reachable(
        flat(4, 2), [computes, JobRequest("alone", 0.0, 1, 1000, 5.0)]
    )
    check_reachable(tree([4], [1000], 2), [moves])
    with pytest.raises(
        BadInput,
        match="job moves moves data between VMs, and a flat topology",
    ):
        check_reachable(flat(4, 2), [computes, moves])


def test_prefixes_of_tenants_are_apart() -> None:
    prefixes = [tenant_prefix(i) for i in (1, 2, 64, 16_383)]
    assert [str(prefix) for prefix in prefixes] == [
        *("10.0.4.0/22", "10.0.8.0/22", "10.1.0.0/22", "10.255.252.0/22")
    ]
    assert not any(
        a.overlaps(b) for a in prefixes for b in prefixes if a != b
    )
    for none in (0, -1, 16_384):
        with pytest.raises(ValueError, match="outside"):
            tenant_prefix(none)


@given(
    data=st.data(),
    kind=st.sampled_from(["tree", "fat-tree"]),
    n=st.integers(1, 20),
)
def test_edges_of_the_pinned_tree_are_the_links_with_vms_on_both_sides(
    data: st.DataObject, kind: str, n: int
) -> None:
    centre = CENTRES[kind]
    rate = data.draw(st.integers(1, 50)) * 1_000_000
    placement = Oktopus().embed(centre, empty_residual(centre), n, rate)
    assert isinstance(placement, Placement)
    plan = network_plan(centre)
    slots = tuple(
        plan.slots_of_server[s][i]
        for s, c in placement.vms_on
        for i in range(c)
    )
    tenant = tenant_plan(centre, plan, placement, slots, 5, "j", rate)
    need = hose_bps(tree_of(centre, placement.root), placement, rate)
    assert dict(tenant.link_bps) == need
    assert set(tenant.edges) == {plan.links[link // 2] for link in need}
    flows = tenant_flows(controller_tenant(plan, tenant))
    known = {switch.dpid for switch in controller_switches(plan)}
    assert set(flows) <= known
    bridge_of = {b.name: b.dpid for b in plan.bridges}
    assert {bridge_of[vm.slot.port.bridge] for vm in tenant.vms} <= set(
        flows
    )
