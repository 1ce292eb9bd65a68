import subprocess
import sys

import pytest

from testbed.plan.network_plan import network_plan
from topologies.fat_tree import fat_tree
from topologies.mininet_topo import mininet_topo
from topologies.tree import tree


def test_importing_it_does_not_import_mininet() -> None:
    code = "import sys, topologies.mininet_topo; sys.exit('mininet' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], timeout=60, check=False
        ).returncode
        == 0
    )


@pytest.mark.needs("mininet")
def test_switches_hosts_and_links_are_those_of_the_plan() -> None:
    plan = network_plan(
        tree([2, 2], [40_000_000_000, 500_000_000], 2), "tq"
    )
    topo = mininet_topo(plan)
    assert sorted(topo.switches()) == sorted(
        bridge.name for bridge in plan.bridges
    )
    assert sorted(topo.hosts()) == sorted(slot.netns for slot in plan.slots)
    assert topo.nodeInfo("tq-s1")["dpid"] == f"{2:016x}"
    assert topo.nodeInfo("tq-s1v1")["mac"] == plan.slots[3].mac
    links = {
        (info["intfName1"], info["intfName2"]): info
        for _, _, info in topo.links(withInfo=True)
        if "intfName1" in info
    }
    assert len(topo.links()) == len(plan.links) + len(plan.slots)
    for link in plan.links:
        info = links[link.lower.name, link.upper.name]
        assert (info["node1"], info["node2"]) == (
            link.lower.bridge,
            link.upper.bridge,
        )
        assert (info["port1"], info["port2"]) == (
            link.lower.number,
            link.upper.number,
        )
        # Mininet shapes nothing above 1 Gbit/s.
        assert info.get("bw") == (
            500.0 if link.up_bps == 500_000_000 else None
        )


@pytest.mark.needs("mininet")
def test_an_interface_sends_what_its_direction_carries() -> None:
    centre = tree([2], [{"up": 10**7, "down": 2 * 10**9}], 1)
    plan = network_plan(centre, "tq")
    topo = mininet_topo(plan)
    shaped = [
        (info["params1"], info["params2"])
        for _, _, info in topo.links(withInfo=True)
        if "params1" in info
    ]
    sends = {"bw": 10.0, "use_htb": True}
    assert shaped == [(sends, {"capacity_mbit": 2000.0})] * 2


@pytest.mark.needs("mininet")
def test_without_limits() -> None:
    topo = mininet_topo(
        network_plan(fat_tree(4, 10**9, 1), "tq"), limits=False
    )
    assert len(topo.switches()) == 36
    assert len(topo.links()) == 48 + 16
    assert not any("bw" in info for _, _, info in topo.links(withInfo=True))
