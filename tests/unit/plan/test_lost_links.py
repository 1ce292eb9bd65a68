"""Which VMs of a tenant still reach which, when cables carry nothing."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.embedding.placement import Placement
from testbed.plan.lost_links import cables_of, cut_text, groups
from testbed.plan.network_plan import (
    NetworkPlan,
    TenantPlan,
    network_plan,
    tenant_plan,
)
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.tree import tree

MBIT = 10**6
TREE = tree([2, 2], [1000 * MBIT] * 2, 2)
FAT_TREE = fat_tree(4, 1000 * MBIT, 2)


def placed(
    datacentre: DataCentre,
    vms_on: tuple[tuple[int, int], ...],
    tree_number: int = 0,
) -> tuple[NetworkPlan, TenantPlan, dict[str, str]]:
    """A tenant on servers, and the names of bridges and VMs."""
    network = network_plan(datacentre)
    slots = [
        slot
        for server, n in vms_on
        for slot in network.slots_of_server[server][:n]
    ]
    placement = Placement(datacentre.trees[tree_number].root, vms_on)
    tenant = tenant_plan(
        datacentre, network, placement, tuple(slots), 1, "a", 10 * MBIT
    )
    names = {
        bridge.name: datacentre.names[bridge.node]
        for bridge in network.bridges
    }
    return (
        network,
        tenant,
        names | {v.slot.port.name: f"a.{v.index}" for v in tenant.vms},
    )


@given(data=st.data(), fat=st.booleans())
def test_vms_are_together_that_the_cables_left_connect(
    data: st.DataObject, *, fat: bool
) -> None:
    datacentre = FAT_TREE if fat else TREE
    counts = data.draw(
        st.lists(st.integers(0, 2), min_size=4, max_size=4).filter(any)
    )
    vms_on = tuple((server, n) for server, n in enumerate(counts) if n)
    network, tenant, _ = placed(
        datacentre, vms_on, data.draw(st.integers(0, int(fat) * 3))
    )
    lost = data.draw(
        st.sets(st.sampled_from([port.name for port in network.ports]))
    )

    left = nx.Graph()
    for vm in tenant.vms:
        left.add_node(vm.slot.port.name)
        if vm.slot.port.name not in lost:
            left.add_edge(vm.slot.port.name, vm.slot.port.bridge)
    for edge in tenant.edges:
        if edge.lower.name not in lost:
            left.add_edge(edge.lower.bridge, edge.upper.bridge)
    ports = {vm.slot.port.name for vm in tenant.vms}
    expected = {
        frozenset(part & ports) for part in nx.connected_components(left)
    }
    found = groups(tenant, lost)
    assert {frozenset(group) for group in found} == expected - {frozenset()}
    if not lost & set(cables_of(tenant)):
        assert len(found) == 1


@pytest.mark.parametrize(
    ("vms_on", "lost", "sentence"),
    [
        (
            ((0, 2), (2, 1)),
            {"hn-r0-u0"},
            "tenant a is cut: a.0 a.1 | a.2; 2 of 3 pairs",
        ),
        (
            ((0, 2), (2, 1)),
            {"hn-s2v0"},
            "tenant a is cut: a.0 a.1 | a.2; 2 of 3 pairs",
        ),
        (((0, 2), (2, 1)), {"hn-r0-d0", "hn-s1-u0"}, ""),
        (((0, 2),), {"hn-s0-u0"}, ""),
        (
            ((0, 1), (1, 1), (2, 1)),
            {"hn-s0-u0", "hn-s1-u0"},
            "a.0 | a.1 | a.2; 3 of 3 pairs",
        ),
        (
            ((0, 2), (1, 2), (2, 2), (3, 1)),
            {"hn-r1-u0"},
            "a.0 a.1 a.2 a.3 | a.4 a.5 a.6; 12 of",
        ),
        (
            ((0, 2), (1, 2), (2, 2), (3, 1)),
            {"hn-s3-u0"},
            "a.0 … a.5 | a.6; 6 of 21 pairs",
        ),
    ],
)
def test_the_sentence_names_both_sides(
    vms_on: tuple[tuple[int, int], ...], lost: set[str], sentence: str
) -> None:
    _, tenant, names = placed(TREE, vms_on)
    text = cut_text(tenant, lost, names, pinned=False)
    assert sentence in text
    assert bool(text) == bool(sentence)


def test_on_a_fat_tree_it_says_where_the_tenant_is_pinned() -> None:
    _, tenant, names = placed(FAT_TREE, ((0, 1), (4, 1)), 2)
    uplink = next(
        k.lower.name for k in tenant.edges if k.upper.bridge == "hn-c2"
    )
    text = cut_text(tenant, {uplink}, names, pinned=True)
    assert (
        text
        == "tenant a (pinned to core 2) is cut: a.0 | a.1; 1 of 1 pairs"
    )
