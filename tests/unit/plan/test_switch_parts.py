"""Parts of the switch: every bridge once, alike in weight, whole pods; one for small networks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.plan.installation import network_text
from testbed.plan.network_plan import NetworkPlan, network_plan
from testbed.plan.switch_parts import (
    BRIDGE_WEIGHT,
    MOST_WEIGHT,
    bridge_weights,
    by_subtree,
    pass_interval_s,
    switch_parts,
)
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.tree import tree


def plan(datacentre: DataCentre) -> NetworkPlan:
    return network_plan(datacentre, "tsp")


@st.composite
def datacentres(draw: st.DrawFn) -> DataCentre:
    if draw(st.booleans()):
        return fat_tree(
            draw(st.sampled_from((2, 4, 6))), 10**9, draw(st.integers(1, 4))
        )
    fanouts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    return tree(fanouts, [10**9] * len(fanouts), draw(st.integers(1, 4)))


@settings(deadline=None)
@given(datacentres(), st.integers(10, 600))
def test_every_bridge_is_in_one_part_and_no_part_is_too_heavy(
    datacentre: DataCentre, most_weight: int
) -> None:
    network = plan(datacentre)
    weights = bridge_weights(network)
    parts = switch_parts(network, most_weight)
    assert sorted(node for part in parts for node in part.nodes) == sorted(
        weights
    )
    assert len({part.netns for part in parts}) == len(parts)
    # Cut to the nearest bridge: half of one more at each end.
    share = sum(weights.values()) / len(parts)
    assert all(
        abs(sum(weights[node] for node in part.nodes) - share)
        <= max(weights.values())
        for part in parts
    )
    if sum(weights.values()) <= most_weight:
        assert len(parts) == 1


def test_a_bridge_weighs_what_it_costs_a_pass() -> None:
    network = plan(tree([2], [10**9], 3))
    server, top = BRIDGE_WEIGHT + 3 + 1, BRIDGE_WEIGHT + 2
    assert bridge_weights(network) == {0: server, 1: server, 2: top}


@pytest.mark.parametrize("k", [4, 6, 8])
def test_pods_stay_together(k: int) -> None:
    """In order: a pod's racks with their servers, its aggregation switches; the core at the end."""
    network = plan(fat_tree(k, 10**9, 2))
    order = by_subtree(network)
    pod_size = k // 2 * (k // 2) + k
    names = [
        network.bridge_of_node[node].name.split("-")[1][0] for node in order
    ]
    assert "".join(names[:pod_size]) == ("s" * (k // 2) + "r") * (
        k // 2
    ) + "a" * (k // 2)
    assert names[:pod_size] * k == names[: pod_size * k]
    assert set(names[pod_size * k :]) == {"c"}


def test_passes_over_a_larger_network_are_fewer_and_cost_as_much() -> None:
    small, large = plan(fat_tree(4, 10**9, 8)), plan(fat_tree(8, 10**9, 4))
    weights = [
        sum(bridge_weights(network).values()) for network in (small, large)
    ]
    intervals_s = [
        pass_interval_s(network, 2) for network in (small, large)
    ]
    assert intervals_s[1] / intervals_s[0] == pytest.approx(
        weights[1] / weights[0]
    )
    assert pass_interval_s(large, 8) == pytest.approx(intervals_s[1] / 4)


@pytest.mark.slow
def test_parts_are_text_in_the_plan_and_one_part_is_none() -> None:
    small, large = (
        plan(tree([2, 2], [10**9] * 2, 4)),
        plan(fat_tree(8, 10**9, 4)),
    )
    assert "switch parts" not in network_text(small)
    lines = network_text(large).splitlines()
    assert (
        lines[0]
        == "# switch parts, on the userspace datapath (namespace: bridges)"
    )
    parts = switch_parts(large)
    told = dict(line.split(": ") for line in lines[1 : 1 + len(parts)])
    assert {name for names in told.values() for name in names.split()} == {
        bridge.name for bridge in large.bridges
    }
    weight = sum(bridge_weights(large).values())
    assert weight / len(parts) <= MOST_WEIGHT
