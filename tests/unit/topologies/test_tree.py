import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.datacentre import DataCentre, TopologyError
from topologies.tree import tree

GBIT = 10**9

fanouts = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def problems_of(
    *args: object, **kwargs: object
) -> dict[tuple[str | int, ...], str]:
    with pytest.raises(TopologyError) as caught:
        tree(*args, **kwargs)  # type: ignore[arg-type]
    return dict(caught.value.problems)


def test_the_testbed_of_dcloud() -> None:
    dc = tree([4, 2, 2], GBIT, 2)
    assert (dc.n_servers, dc.n_nodes, dc.n_links, dc.total_slots) == (
        16,
        29,
        28,
        32,
    )
    assert np.bincount(dc.level).tolist() == [16, 8, 4, 1]
    assert [dc.names[i] for i in (0, 12, 16, 19, 24, 25, 28)] == [
        "server 0",
        "server 12",
        "rack 0",
        "rack 3",
        "aggregation 0",
        "aggregation 1",
        "core 0",
    ]
    (only,) = dc.trees
    assert only.root == 28
    assert only.path_to_root(7) == [7, 19, 25, 28]
    assert dc.link_name(2 * 19) == "rack 3 -> aggregation 1"
    assert dc.link_name(2 * 19 + 1) == "aggregation 1 -> rack 3"


@given(fanouts, st.integers(1, 5))
def test_every_level_is_dealt_out_evenly(
    fanout: list[int], slots: int
) -> None:
    dc = tree(fanout, GBIT, slots)
    (only,) = dc.trees
    children = np.split(only.child_list, only.child_start[1:-1])
    assert not any(len(children[server]) for server in range(dc.n_servers))
    for switch in range(dc.n_servers, dc.n_nodes):
        level = int(dc.level[switch])
        assert len(children[switch]) == fanout[len(fanout) - level]
        assert all(
            dc.level[child] == level - 1 for child in children[switch]
        )
    below_root = [
        node
        for node in range(dc.n_nodes)
        if only.path_to_root(node)[-1] == only.root
    ]
    assert len(below_root) == dc.n_nodes
    assert dc.total_slots == slots * np.prod(fanout)


@given(fanouts)
def test_links_join_each_node_to_its_parent(fanout: list[int]) -> None:
    dc = tree(fanout, GBIT, 1)
    (only,) = dc.trees
    for link in range(dc.n_links):
        assert only.uplink[dc.link_lower[link]] == link
        assert only.parent[dc.link_lower[link]] == dc.link_upper[link]
    assert only.uplink[only.root] == only.parent[only.root] == -1


def test_capacities_go_from_the_top_down() -> None:
    dc = tree([2, 3, 4], [50, 5, 1], 4)
    (only,) = dc.trees
    capacity_above = {0: 1, 1: 5, 2: 50}
    for node in range(dc.n_nodes - 1):
        assert (
            dc.link_capacity_bps[only.uplink[node]]
            == capacity_above[int(dc.level[node])]
        )
    assert dc.nic_bps.tolist() == [1] * 24
    assert (
        dc.directed_capacity_bps.tolist()
        == np.repeat(dc.link_capacity_bps, 2).tolist()
    )


@pytest.mark.parametrize(
    ("ratios", "aggregation", "rack"),
    [
        ([1, 1], 400 * GBIT, 20 * GBIT),
        ([2, 4], 50 * GBIT, 5 * GBIT),
        ([1, 2.5], 160 * GBIT, 8 * GBIT),
    ],
)
def test_oversubscription_gives_the_upper_capacities(
    ratios: list[float], aggregation: int, rack: int
) -> None:
    by_ratio = tree([20, 20, 20], GBIT, 4, oversubscription=ratios)
    by_capacity = tree([20, 20, 20], [aggregation, rack, GBIT], 4)
    assert (
        by_ratio.link_capacity_bps.tolist()
        == by_capacity.link_capacity_bps.tolist()
    )


def test_each_direction_may_have_its_own_capacity() -> None:
    dc = tree([2, 2], [{"up": 50, "down": 100}, {"up": 9, "down": 9}], 1)
    # Servers' links first: of the same capacity both ways, which is one number.
    assert dc.directed_capacity_bps.tolist() == [9] * 8 + [50, 100] * 2
    assert dc.link_capacity_bps.tolist() == [9] * 4 + [50] * 2
    assert dc.parameters["link_bps"] == [{"up": 50, "down": 100}, 9]
    assert not dc.symmetric
    changed = dc.with_capacity(5, 70, 60)
    assert changed.directed_capacity_bps[8:].tolist() == [50, 100, 70, 60]
    assert changed.link_capacity_bps[5] == 60
    assert tree([2], {"up": 3, "down": 3}, 1).symmetric


def test_oversubscription_is_of_each_direction() -> None:
    dc = tree([2, 4], {"up": 10, "down": 30}, 1, oversubscription=[4])
    assert dc.directed_capacity_bps.tolist() == [10, 30] * 10


@pytest.mark.parametrize(
    ("capacity", "found"),
    [
        ({"up": 5}, {("link_bps",): "down is missing"}),
        ({}, {("link_bps",): "down is missing"}),
        (
            {"up": 0, "down": "5"},
            {
                (
                    "link_bps",
                    "up",
                ): "a link's capacity must be above 0 and at most 1000 Tbit/s, not 0 bit/s",
                (
                    "link_bps",
                    "down",
                ): "a link's capacity is a whole number of bit/s, not '5'",
            },
        ),
        (
            {"up": 5, "down": 5, "left": 5},
            {("link_bps", "left"): "unknown key"},
        ),
    ],
)
def test_what_is_wrong_with_two_capacities(
    capacity: object, found: dict[tuple[str, ...], str]
) -> None:
    assert problems_of([2], capacity, 1) == found


def test_slots_may_differ_by_server() -> None:
    dc = tree([2, 2], GBIT, [1, 0, 3, 2])
    assert dc.slots.tolist() == [1, 0, 3, 2]


def test_one_level_and_four_levels() -> None:
    assert tree([6], GBIT, 4).names[-1] == "core 0"
    assert tree([2, 2], GBIT, 1).names[4:] == ("rack 0", "rack 1", "core 0")
    deep = tree([2, 1, 1, 2], GBIT, 1)
    assert deep.names[4:] == (
        *("rack 0", "rack 1", "aggregation 0", "aggregation 1"),
        *("level-3 0", "level-3 1", "core 0"),
    )
    assert len(set(deep.names)) == deep.n_nodes


def test_all_problems_at_once() -> None:
    found = problems_of([4, 0, 2.5], [GBIT, 0, "fast"], 0)
    assert found == {
        ("fanout", 1): "a fan-out must be at least 1, not 0",
        ("fanout", 2): "a fan-out is a whole number, not 2.5",
        ("link_bps", 1): (
            "a link's capacity must be above 0 and at most 1000 Tbit/s, not 0 bit/s"
        ),
        (
            "link_bps",
            2,
        ): "a link's capacity is a whole number of bit/s, not 'fast'",
        ("slots_per_server",): "slots per server must be at least 1, not 0",
    }


def test_lengths_must_match() -> None:
    assert (
        "2 capacities for 3 levels"
        in problems_of([2, 2, 2], [1, 1], 1)["link_bps",]
    )
    assert (
        "3 slot counts for 4 servers"
        in problems_of([2, 2], 1, [1, 1, 1])["slots_per_server",]
    )
    assert problems_of([2, 2], 1, [0, 0, 0, 0]) == {
        ("slots_per_server",): "no server has a slot"
    }
    assert ("fanout",) in problems_of([], 1, 1)
    assert (
        "1,000,000 nodes" in problems_of([1000, 1000, 10], 1, 1)["fanout",]
    )


def test_numbers_of_thousands_of_digits() -> None:
    assert set(problems_of([10**6] * 800, 1, 1)) == {("fanout",)}
    assert set(problems_of([2], 1, 10**5000)) == {("slots_per_server",)}
    levels = 800
    ratios = [1e-6] * (levels - 1)
    found = problems_of([1] * levels, GBIT, 1, oversubscription=ratios)
    assert found == {
        ("oversubscription",): (
            "an uplink of these ratios has more than 1000 Tbit/s"
        )
    }


def test_oversubscription_is_checked() -> None:
    found = problems_of([2, 2, 2], 1, 1, oversubscription=[1, 2, 3])
    assert "3 ratios for 2 levels" in found["oversubscription",]
    found = problems_of([2, 2, 2], [1, 2, 3], 1, oversubscription=[1, 1])
    assert "one capacity" in found["link_bps",]
    found = problems_of([2, 2, 2], 1, 1, oversubscription=[0, float("nan")])
    assert set(found) == {("oversubscription", 0), ("oversubscription", 1)}
    found = problems_of([2, 2, 2], 1, 1, oversubscription=[1e-7, 1e-6])
    assert set(found) == {("oversubscription", 0)}


def test_a_data_centre_cannot_be_changed() -> None:
    dc: DataCentre = tree([2, 2], GBIT, 1)
    for array in (
        dc.slots,
        dc.link_capacity_bps,
        dc.trees[0].parent,
        dc.layers[0].child,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


def test_a_hundred_thousand_servers() -> None:
    dc = tree([50, 50, 40], [100 * GBIT, 10 * GBIT, GBIT], 4)
    assert dc.n_servers == 100_000
    assert dc.names[99_999] == "server 99999"
    assert [len(layer.child) for layer in dc.layers] == [100_000, 2500, 50]
