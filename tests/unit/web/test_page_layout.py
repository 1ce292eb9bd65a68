"""The drawn data centre: nodes, links, and racks in place of many servers."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from testbed.record.topology_record import topology_record
from testbed.web.page_layout import (
    FULL,
    MAX_GROUPS,
    MAX_SERVERS,
    NO_PARENT,
    UNKNOWN,
    PageLayout,
    page_layout,
)
from topologies.fat_tree import fat_tree
from topologies.tree import tree

GBIT = 1_000_000_000


def small() -> dict[str, Any]:
    return topology_record(tree([2, 2], GBIT, 2))


def large() -> PageLayout:
    return page_layout(topology_record(tree([4, 10, 20], GBIT, 3)))


def test_a_small_tree_is_drawn_node_by_node() -> None:
    layout = page_layout(small())
    assert [node.servers for node in layout.nodes[:4]] == [1] * 4
    assert [node.level for node in layout.nodes] == [0, 0, 0, 0, 1, 1, 2]
    assert layout.nodes[-1].parent == NO_PARENT
    assert layout.link_of == tuple(range(6))
    assert layout.directed_names()[:2] == [
        "server 0 -> rack 0",
        "rack 0 -> server 0",
    ]


def test_switches_of_a_fat_tree_have_their_levels() -> None:
    layout = page_layout(topology_record(fat_tree(4, GBIT, 2)))
    levels = [node.level for node in layout.nodes]
    assert levels == [0] * 16 + [1] * 8 + [2] * 8 + [3] * 4


def test_many_servers_are_drawn_by_rack() -> None:
    layout = large()
    assert len(layout.node_of) == 800 + 40 + 4 + 1
    racks = [node for node in layout.nodes if node.servers]
    assert len(racks) == 40
    assert {(rack.servers, rack.slots) for rack in racks} == {(20, 60)}
    assert racks[1].name == "rack 1"
    assert len(layout.nodes) == 40 + 4 + 1
    # A rack's own links are one; those of racks and aggregation are as they are.
    assert len(layout.links) == 40 + 40 + 4
    assert layout.links[0].links == 20
    assert layout.node_of[0] == layout.node_of[19] == layout.node_of[800]
    assert layout.node_of[20] != layout.node_of[0]


def test_of_a_racks_links_the_fullest_is_shown() -> None:
    layout = large()
    rates = np.zeros(len(layout.capacity_bps))
    rates[2 * 3] = GBIT / 4
    rates[2 * 7] = GBIT / 2
    rates[2 * 7 + 1] = GBIT
    use = layout.use(rates)
    assert use[:2] == [FULL // 2, FULL]
    assert sum(use) == FULL // 2 + FULL


@pytest.mark.parametrize("n", [MAX_SERVERS + 1, 4 * MAX_SERVERS, 1999])
def test_servers_without_a_switch_are_drawn_in_groups(n: int) -> None:
    topology = {
        "names": [f"node {i}" for i in range(n)],
        "slots": [1] * n,
        "links": {"lower": [], "upper": [], "capacity_bps": []},
    }
    layout = page_layout(topology)
    assert sum(node.servers for node in layout.nodes) == n
    assert len(layout.nodes) <= MAX_GROUPS
    assert layout.use(np.zeros(0)) == []


@pytest.mark.parametrize("wrong", [-1, 10**6])
def test_links_between_unknown_nodes_belong_to_none(wrong: int) -> None:
    topology = copy.deepcopy(small())
    topology["links"]["upper"][2] = wrong
    layout = page_layout(topology)
    assert layout.link_of[2] == UNKNOWN
    use = layout.use(layout.capacity_bps)
    assert use == [FULL] * 10


def test_circles_of_a_damaged_folder_end() -> None:
    topology = copy.deepcopy(small())
    topology["links"]["lower"][5] = 6
    topology["links"]["upper"][5] = 4
    assert len(page_layout(topology).nodes) == 7


def test_a_rack_of_one_server_keeps_its_links_name() -> None:
    layout = page_layout(topology_record(tree([300, 1], GBIT, 1)))
    assert layout.links[0].name == "server 0 – rack 0"
    assert layout.directed_names()[:2] == [
        "servers of rack 0 -> rack 0",
        "rack 0 -> servers of rack 0",
    ]
