"""Mininet topologies as data centres: ours come back the same, others as they are meant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.plan.network_plan import network_plan
from tests.support.examples import examples
from topologies import mininet_topo as mininet_topo_module
from topologies.datacentre import (
    PLAIN,
    DataCentre,
    LinkQuality,
    TopologyError,
)
from topologies.fat_tree import fat_tree
from topologies.mininet_record import MininetRecord
from topologies.mininet_topo import from_mininet, mininet_topo, notes_of
from topologies.tree import tree

pytestmark = pytest.mark.needs("mininet")

# From the least that the live network paces, over what Mininet can limit, to far beyond.
ONE_WAY = st.integers(8_000, 400 * 10**9)
CAPACITIES = st.one_of(
    ONE_WAY, st.fixed_dictionaries({"up": ONE_WAY, "down": ONE_WAY})
)
LOOP = (
    "joins switches of one level: a loop, and no multi-rooted tree; leave it out, or write"
    " kind: custom with roots"
)


def topo(
    *links: tuple[Any, ...], hosts: str = "", switches: str = ""
) -> Any:
    """A Topo of links ``(end, end, bw)``; nodes whose name begins with ``h`` are hosts."""
    from mininet.topo import Topo

    made = Topo()
    for name in [
        *hosts.split(),
        *switches.split(),
        *(end for link in links for end in link[:2]),
    ]:
        if name not in made.g.node:
            (made.addHost if name.startswith("h") else made.addSwitch)(name)
    for a, b, *bw in links:
        made.addLink(a, b, **({"bw": bw[0]} if bw else {}))
    return made


def leaf_spine(n_leaves: int, n_spines: int, n_hosts: int) -> Any:
    spines = [f"spine{i}" for i in range(n_spines)]
    leaves = [f"leaf{i}" for i in range(n_leaves)]
    return topo(
        *((spine, leaf, 40) for spine in spines for leaf in leaves),
        *(
            (f"h{i}", leaves[i * n_leaves // n_hosts], 10)
            for i in range(n_hosts)
        ),
    )


def roots(dc: DataCentre) -> list[str]:
    return [dc.names[one.root] for one in dc.trees]


def problems(made: Any, slots_per_server: Any = 1) -> list[str]:
    with pytest.raises(TopologyError) as caught:
        from_mininet(made, slots_per_server)
    return [message for _, message in caught.value.problems]


def assert_same(found: DataCentre, wanted: DataCentre) -> None:
    """Same but for the kind and the names."""
    for name in (
        "level",
        "slots",
        "link_lower",
        "link_upper",
        "directed_capacity_bps",
    ):
        assert np.array_equal(
            getattr(found, name), getattr(wanted, name)
        ), name
    assert len(found.trees) == len(wanted.trees)
    for one, other in zip(found.trees, wanted.trees, strict=True):
        assert one.root == other.root
        assert np.array_equal(one.parent, other.parent)
        assert np.array_equal(one.uplink, other.uplink)


@examples(60)
@given(
    st.data(),
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.booleans(),
)
def test_a_tree_comes_back(
    data: st.DataObject, fanout: list[int], limits: bool
) -> None:
    capacities = data.draw(
        st.lists(CAPACITIES, min_size=len(fanout), max_size=len(fanout))
    )
    n_servers = int(np.prod(fanout))
    slots = data.draw(
        st.lists(st.integers(1, 3), min_size=n_servers, max_size=n_servers)
    )
    dc = tree(fanout, capacities, slots)
    assert_same(
        from_mininet(mininet_topo(network_plan(dc), limits=limits)), dc
    )


QUALITIES = st.builds(
    LinkQuality,
    delay_s=st.sampled_from([0.0, 0.005, 0.07, 1.234567]),
    jitter_s=st.sampled_from([0.0, 0.0003]),
    loss_share=st.sampled_from([0.0, 0.07, 0.015]),
    queue_packets=st.sampled_from([0, 50]),
)


@examples(40)
@given(st.lists(QUALITIES, min_size=6, max_size=6), st.booleans())
def test_delay_jitter_loss_and_queues_come_back(
    qualities: list[LinkQuality], limits: bool
) -> None:
    dc = replace(
        tree([3], [{"up": 10**7, "down": 2 * 10**9}], 1),
        qualities=tuple(qualities),
    )
    found = from_mininet(mininet_topo(network_plan(dc), limits=limits))
    assert_same(found, dc)
    plain = all(quality == PLAIN for quality in qualities)
    assert found.qualities == (() if plain else dc.qualities)


@examples(12)
@given(
    st.sampled_from([2, 4, 6]),
    st.lists(CAPACITIES, min_size=3, max_size=3),
    st.integers(1, 3),
)
def test_a_fat_tree_comes_back(
    k: int, capacities: list[int], slots: int
) -> None:
    dc = fat_tree(k, capacities, slots)
    found = from_mininet(mininet_topo(network_plan(dc)))
    assert_same(found, dc)
    assert found.names == tuple(
        bridge.name for bridge in network_plan(dc).bridges
    )


def test_hosts_are_servers_and_names_are_theirs() -> None:
    links = (
        ("h2", "r1", 100),
        ("h1", "r1", 0.5),
        ("r1", "c1", 1.5),
        ("c1", "h3", 40_000),
    )
    made = topo(
        *links, switches="c1"
    )  # two in the middle: the first is the root
    made.setNodeInfo("h1", {"slots": 4})
    dc = from_mininet(made, 2)
    assert dc.names == ("h2", "h1", "h3", "r1", "c1")
    assert dc.slots.tolist() == [2, 4, 2]
    assert dc.nic_bps.tolist() == [100_000_000, 500_000, 40_000_000_000]
    assert dc.link_capacity_bps.tolist() == [
        100_000_000,
        500_000,
        40_000_000_000,
        1_500_000,
    ]


def test_more_slots_than_can_have_names_have_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mininet_topo_module, "MOST_HOSTS", 5)
    star = topo(("h1", "s1", 10), ("h2", "s1", 10))
    assert from_mininet(star, slots_per_server=2).hosts
    centre = from_mininet(star, slots_per_server=3)
    assert (centre.hosts, centre.total_slots) == ((), 6)


def test_a_slot_count_that_no_array_holds() -> None:
    made = topo(("h1", "s1", 10), ("h2", "s1", 10))
    made.addHost("h3", slots=2**63)
    made.addLink("h3", "s1", bw=10)
    with pytest.raises(
        TopologyError, match="slot count of h3 must be at most"
    ):
        from_mininet(made)


def test_options_of_the_topo_count() -> None:
    from mininet.topo import SingleSwitchTopo

    dc = from_mininet(
        SingleSwitchTopo(k=3, lopts={"bw": 10}, hopts={"slots": 5})
    )
    assert dc.slots.tolist() == [5, 5, 5]
    assert set(dc.link_capacity_bps.tolist()) == {10_000_000}


@pytest.mark.parametrize(("n_leaves", "n_spines"), [(2, 2), (3, 2), (4, 3)])
def test_a_leaf_spine_has_a_tree_below_each_spine(
    n_leaves: int, n_spines: int
) -> None:
    dc = from_mininet(leaf_spine(n_leaves, n_spines, 2 * n_leaves))
    assert roots(dc) == [f"spine{i}" for i in range(n_spines)]
    assert dc.n_links == n_leaves * n_spines + 2 * n_leaves


@pytest.mark.parametrize(
    ("k", "n", "root"),
    [(1, 2, "s1"), (2, 1, "s1"), (3, 2, "s2"), (5, 1, "s3"), (8, 1, "s4")],
)
def test_a_chain_hangs_from_its_middle(k: int, n: int, root: str) -> None:
    from mininet.topo import LinearTopo

    dc = from_mininet(LinearTopo(k=k, n=n, lopts={"bw": 10}))
    assert roots(dc) == [root]
    assert dc.n_levels == k // 2 + 2


def test_a_dead_end_is_the_root_or_refused() -> None:
    assert roots(
        from_mininet(
            topo(("h1", "s1", 1), ("h2", "s1", 1), ("s1", "s2", 1))
        )
    ) == ["s2"]
    both = topo(("h1", "s1", 1), ("s1", "s2", 1), ("s1", "s3", 1))
    assert problems(both) == ["switch s3 has nothing below it"]


def test_all_problems_of_nodes_and_links_at_once() -> None:
    made = topo(
        ("h1", "s1"), ("s1", "s2"), ("s1", "s2", 10), ("h2", "s1", 10), ("h2", "s2", -1),
        ("h3", "s1", "fast"), ("h4", "h5", 5), hosts="h6",
    )  # fmt: skip
    made.setNodeInfo("h3", {"slots": 0})
    needed = (
        "a link needs bw, a number of Mbit/s above 0 and up to 10**9: addLink(..., bw=100),"
        " or topology: {default_bw: 100 Mbit/s} for all without"
    )
    assert problems(made, "two") == [
        "slots per server is a whole number, not 'two'",
        "the slot count of h3 must be at least 1, not 0",
        f"h1<->s1, s1<->s2, h2<->s2 (bw=-1), h3<->s1 (bw='fast'): {needed}",
        "s1<->s2: a second link; add its bw to that of the first",
        "h6 (to nothing), h2 (to s1, s2), h4 (to h5), h5 (to h4): a host has one link, to a switch",
    ]


@pytest.mark.parametrize(
    "bw", [0, -5, "10", float("nan"), float("inf"), 2e9, [100]]
)
def test_a_bw_that_is_none(bw: Any) -> None:
    (message,) = problems(topo(("h1", "s1", bw)))
    assert message.startswith(f"h1<->s1 (bw={bw!r}): a link needs bw")


def test_many_of_one_problem_are_one_message() -> None:
    (message,) = problems(topo(*((f"h{i}", "s1") for i in range(1000))))
    assert "h3<->s1" in message
    assert " and 995 more: a link needs bw" in message


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ([], "the Topo has no hosts"),
        ([("s1", "s2", 1)], "the Topo has no hosts"),
        (
            [("h1", "s1", 1), ("h2", "s2", 1), ("s2", "s3", 1)],
            "h2, s2, s3: disconnected: nothing leads to h1",
        ),
        (
            [("h1", "s1", 1), ("h2", "s2", 1), ("h3", "s3", 1),
             ("s1", "s2", 1), ("s2", "s3", 1), ("s1", "s3", 1)],
            f"s1<->s2, s1<->s3, s2<->s3: {LOOP}",
        ),
        (
            [("h1", "s1", 1), ("s1", "s2", 1), ("s2", "s3", 1), ("s3", "s4", 1), ("s4", "s1", 1)],
            "no tree: below s3, s1 hangs from s2 and s4",
        ),
    ],
    ids=["empty", "no hosts", "two parts", "triangle", "square"],
)  # fmt: skip
def test_what_no_tenant_can_be_pinned_to(
    links: list[tuple[Any, ...]], message: str
) -> None:
    assert problems(topo(*links)) == [message]


def test_a_link_from_a_node_to_itself() -> None:
    assert problems(topo(("h1", "s1", 1), ("s1", "s1", 1))) == [
        f"s1<->s1: {LOOP}"
    ]


def test_options_without_an_effect_are_told() -> None:
    record = MininetRecord()
    record.nodes = {
        "s": {"isSwitch": True, "dpid": "1", "protocols": "OpenFlow13"},
        "h": {"ip": "10.0.0.1", "defaultRoute": "via 10.0.0.9", "cpu": 0.5},
        "i": {"mac": "02:00:00:00:00:01", "cpu": 0.25, "sched": None},
    }
    record.links = [
        ("h", "s", {"bw": 10, "enable_ecn": True, "enable_red": False}),
        ("i", "s", {"bw": 10, "params1": {"enable_ecn": True, "loss": 1}}),
    ]
    assert notes_of(record) == (
        "left out, options of links: enable_ecn (2)",
        "left out, options of nodes: cpu (2), defaultRoute (1), dpid (1)",
    )
    record.nodes = {"s": {"isSwitch": True}, "h": {"ip": "10.0.0.1"}}
    record.links = [("h", "s", {"bw": 10, "use_htb": True, "port1": 3})]
    assert notes_of(record) == ()
