import networkx as nx
import numpy as np
import pytest

from topologies.datacentre import DataCentre, TopologyError
from topologies.fat_tree import fat_tree

GBIT = 10**9


def graph_of(dc: DataCentre) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(range(dc.n_nodes))
    graph.add_edges_from(
        zip(dc.link_lower.tolist(), dc.link_upper.tolist(), strict=True)
    )
    return graph


@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_counts(k: int) -> None:
    dc = fat_tree(k, GBIT, 2)
    half = k // 2
    assert np.bincount(dc.level).tolist() == [
        k**3 // 4,
        k * half,
        k * half,
        half**2,
    ]
    assert dc.n_links == 3 * k**3 // 4
    assert len(dc.trees) == half**2
    degrees = dict(graph_of(dc).degree)
    assert all(degrees[server] == 1 for server in range(dc.n_servers))
    assert all(
        degrees[switch] == k for switch in range(dc.n_servers, dc.n_nodes)
    )


@pytest.mark.parametrize("k", [2, 4, 6])
def test_every_tree_spans_all_servers_and_uses_only_its_core(
    k: int,
) -> None:
    dc = fat_tree(k, GBIT, 1)
    cores = np.flatnonzero(dc.level == 3).tolist()
    assert [tree.root for tree in dc.trees] == cores
    for tree in dc.trees:
        used = nx.Graph()
        for node in range(dc.n_nodes):
            link = int(tree.uplink[node])
            if link >= 0:
                ends = (dc.link_lower[link], dc.link_upper[link])
                assert ends == (node, tree.parent[node])
                used.add_edge(node, int(tree.parent[node]))
        assert nx.is_tree(used)
        assert set(range(dc.n_servers)) <= set(used)
        assert [node for node in used if dc.level[node] == 3] == [tree.root]
        assert sorted(used) == tree.members.tolist()


def test_cores_of_one_group_share_their_aggregation_switches() -> None:
    dc = fat_tree(4, GBIT, 1)
    aggregations = [
        [node for node in tree.members.tolist() if dc.level[node] == 2]
        for tree in dc.trees
    ]
    assert aggregations == [
        [24, 26, 28, 30],
        [24, 26, 28, 30],
        [25, 27, 29, 31],
        [25, 27, 29, 31],
    ]
    assert dc.first_root[[0, 16, 24, 25, 32, 35]].tolist() == [
        32,
        32,
        32,
        34,
        32,
        35,
    ]


def test_the_core_is_joined_to_every_pod_once() -> None:
    dc = fat_tree(6, GBIT, 1)
    graph = graph_of(dc)
    first_aggregation = int(np.flatnonzero(dc.level == 2)[0])
    for core in np.flatnonzero(dc.level == 3).tolist():
        pods = [
            (aggregation - first_aggregation) // 3
            for aggregation in sorted(graph[core])
        ]
        assert pods == [0, 1, 2, 3, 4, 5]


def test_names_and_capacities() -> None:
    dc = fat_tree(4, [40, 10, 1], 8)
    assert [dc.names[i] for i in (0, 19, 25, 32)] == [
        "server 0",
        "edge 3",
        "aggregation 1",
        "core 0",
    ]
    assert dc.link_capacity_bps.tolist() == [1] * 16 + [10] * 16 + [40] * 16
    assert dc.total_slots == 128


def test_layers_hold_all_trees_at_once() -> None:
    dc = fat_tree(4, GBIT, 1)
    servers, edges, aggregations = dc.layers
    assert (
        len(servers.child),
        len(edges.child),
        len(aggregations.child),
    ) == (
        16,
        16,
        16,
    )
    assert [layer.shared for layer in dc.layers] == [False, True, True]
    assert dc.uniform_depth
    for layer in dc.layers:
        owners = layer.switches[layer.owner]
        for child, switch, link in zip(
            layer.child.tolist(),
            owners.tolist(),
            layer.link.tolist(),
            strict=True,
        ):
            assert (dc.link_lower[link], dc.link_upper[link]) == (
                child,
                switch,
            )


@pytest.mark.parametrize(
    ("k", "message"),
    [
        (3, "even"),
        (0, "at least 2"),
        (2.0, "whole number"),
        (44, "at most 42"),
    ],
)
def test_impossible_port_counts(k: int, message: str) -> None:
    with pytest.raises(TopologyError, match=message) as caught:
        fat_tree(k, GBIT, 1)
    assert [path for path, _ in caught.value.problems] == [("k",)]


def test_all_problems_at_once() -> None:
    with pytest.raises(TopologyError) as caught:
        fat_tree(5, [1, -1, 1], [])
    assert {path for path, _ in caught.value.problems} >= {
        ("k",),
        ("link_bps", 1),
    }


def test_pooled_is_one_tree_that_carries_what_the_parallel_links_do() -> (
    None
):
    apart, pooled = (
        fat_tree(4, [40, 10, 1], 8, reading)
        for reading in ("tree", "pooled")
    )
    assert pooled.kind == "fat-tree"
    assert pooled.names[16] == "edge 0"
    assert np.bincount(pooled.level).tolist() == [16, 8, 4, 1]
    for level, width in ((0, 1), (1, 2), (2, 4)):
        lower = pooled.level[pooled.link_lower] == level
        assert set(pooled.link_capacity_bps[lower].tolist()) == {
            width * [1, 10, 40][level]
        }
        # All capacity between the two layers is there, neither more nor less.
        total = apart.link_capacity_bps[
            apart.level[apart.link_lower] == level
        ].sum()
        assert pooled.link_capacity_bps[lower].sum() == total


def test_only_the_servers_own_links_bind_where_a_fat_tree_is_pooled() -> (
    None
):
    # Any hoses that the servers' links carry, the links above carry too.
    rng = np.random.default_rng(5)
    dc = fat_tree(4, 12, 4, "pooled")
    (tree,) = dc.trees
    for _ in range(20):
        left = np.array(dc.link_capacity_bps)
        for _ in range(12):
            counts = rng.integers(0, 4, 16)
            n, rate = int(counts.sum()), int(rng.integers(1, 4))
            below = {}
            for server in range(16):
                for node in tree.path_to_root(server)[:-1]:
                    below[node] = below.get(node, 0) + int(counts[server])
            need = {
                int(tree.uplink[v]): min(x, n - x) * rate
                for v, x in below.items()
            }
            if all(
                left[link] >= bps for link, bps in need.items() if link < 16
            ):
                for link, bps in need.items():
                    left[link] -= bps
        assert left.min() >= 0


def test_pooled_links_beyond_reason_and_unknown_interpretations() -> None:
    with pytest.raises(TopologyError, match="above 1000 Tbit/s"):
        fat_tree(4, 5 * 10**14, 1, "pooled")
    with pytest.raises(TopologyError, match="must be one of tree, pooled"):
        fat_tree(4, 1, 1, "both")  # type: ignore[arg-type]
