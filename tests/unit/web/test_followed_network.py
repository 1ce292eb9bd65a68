"""The network that is up, from the lines of its feed."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from controller.flow_rules import tenant_flows
from testbed.backends.emu.vm_process import VmPlace
from testbed.errors import BadInput, RunFailed
from testbed.plan.network_plan import controller_tenant, network_plan
from testbed.standing.network_layout import (
    NetworkLayout,
    TenantPlans,
)
from testbed.standing.network_state import (
    LinkState,
    NetworkState,
    SwitchState,
    TenantState,
)
from testbed.standing.traffic_rates import TrafficRates, TrafficSample
from testbed.web import network_feed
from testbed.web.followed_network import ENDED, FollowedNetwork
from tests.unit.plan.test_lost_links import TREE, placed
from topologies.tree import tree

NETWORK, TENANT, NAMES = placed(TREE, ((0, 2), (2, 1)))
LAYOUT = NetworkLayout(
    NETWORK, {b.name: ("/run/x", None) for b in NETWORK.bridges}, 6653, 1
)
NAME = TENANT.job_id
RATE = 0.5


def state() -> NetworkState:
    servers = ("server 0", "server 0", "server 2")
    vms = tuple(
        VmPlace(f"{NAME}.{i}", server, "10.0.0.1", "/run/n", (), "/h")
        for i, server in enumerate(servers)
    )
    tenant = TenantState(NAME, 100, 50, vms, (), trouble="cut")
    return NetworkState(
        "f.yaml", "up", "me", 1, 0.0, "tree", RATE, 7, 6, 8, 3,
        "", 0.0, "link down; cut", (tenant,),
    )  # fmt: skip


def traffic() -> TrafficSample:
    links = []
    for number in range(2 * len(NETWORK.links)):
        capacity_bps = NETWORK.directed_bps(number) / RATE
        link = TrafficRates(
            f"link {number}", capacity_bps / 2, capacity_bps / 4, 7, 1,
            capacity_bps,
        )  # fmt: skip
        links.append(link)
    tenant = TrafficRates(NAME, 300.0, 150.0, 9, 2)
    return TrafficSample(1.0, tuple(links), (tenant,))


def down_link(name: str, port: str) -> LinkState:
    return LinkState(
        name, ("x", "y"), (port,), up=False, capacity_bps=1,
        reserved_bps=0, tenants=(), broken=(),
    )  # fmt: skip


def asked(request: object, _: object) -> Any:
    lower = NETWORK.links[1].lower.name
    kinds: dict[str, object] = {
        "ShowLayout": LAYOUT,
        "ShowNetwork": state(),
        "ShowPlans": TenantPlans((TENANT,), NAMES, borrowing=False),
        "ShowLinks": (
            down_link("a", lower),
            down_link("vm", "none"),
        ),
        "ShowSwitches": (
            SwitchState("s0", (), 1, 0.0),
            SwitchState("s1", (), None, 0.0),
        ),
    }
    return kinds[type(request).__name__]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All that a feed writes of two seconds, after which the keeper ends."""

    def samples() -> Iterator[tuple[NetworkState, TrafficSample]]:
        yield state(), traffic()
        yield state(), traffic()
        raise RunFailed("the keeper has ended")

    monkeypatch.setattr(network_feed, "ask", asked)
    monkeypatch.setattr(network_feed, "samples", samples)
    first = network_feed._first_line()
    return [f"{json.dumps(line)}\n" for line in network_feed._lines(first)]


@pytest.fixture
def network(lines: list[str]) -> FollowedNetwork:
    followed = FollowedNetwork(lines)
    followed.wait()
    assert followed.refresh()
    return followed


def test_the_state_is_that_of_the_last_sample(
    network: FollowedNetwork,
) -> None:
    frame = network.frame()
    assert frame["at_s"] == 2.0
    assert set(frame["reserved"]) == {5_000}
    assert set(frame["sent"]) == {2_500}
    assert frame["placed"] == {0: [[NAME, 2]], 2: [[NAME, 1]]}
    assert frame["down"] == {"links": [1], "nodes": []}
    assert "ended: s1" in frame["controller"]
    # What the network's trouble has already is not said again.
    assert [text for _, text in frame["log"]] == ["link down; cut"]
    assert len(network.header()["curves"]) == 2


def test_the_end_is_told(network: FollowedNetwork) -> None:
    assert network.ended
    assert network.trouble == "the keeper has ended"
    assert not network.refresh()


def test_a_feed_that_breaks_off_is_told(lines: list[str]) -> None:
    followed = FollowedNetwork(lines[:-1])
    followed.wait()
    followed.refresh()
    assert followed.trouble == ENDED


def test_a_feed_that_breaks_off_within_a_line_is_told(
    lines: list[str],
) -> None:
    followed = FollowedNetwork([*lines[:-1], lines[-1][:9]])
    followed.wait()
    followed.refresh()
    assert followed.trouble == ENDED


def test_counters_that_cannot_be_read_are_the_reason_of_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def samples() -> Iterator[tuple[NetworkState, TrafficSample]]:
        yield state(), traffic()
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(network_feed, "ask", asked)
    monkeypatch.setattr(network_feed, "samples", samples)
    *_, last = network_feed._lines(network_feed._first_line())
    assert last["end"] == (
        "the network's counters cannot be read: [Errno 24] Too many open"
        " files: run testbed watch up again"
    )


def test_servers_without_slots_are_servers() -> None:
    plan = network_plan(tree([2, 2], [1000, 1000], [0, 2, 1, 0]))
    names = {bridge.name: bridge.name for bridge in plan.bridges}
    topology = network_feed.standing_topology(plan, names, 1.0)
    assert topology["slots"] == [0, 2, 1, 0]


def test_items(network: FollowedNetwork) -> None:
    tenant = network.item("job", NAME)
    assert tenant["command"] == f"sudo testbed tenant show {NAME}"
    assert (
        "class add" in tenant["text"] or "class replace" in tenant["text"]
    )
    link = network.item("link", "0")
    upward = link["curves"][0]
    capacity_bps = NETWORK.directed_bps(0) / RATE
    assert upward["reserved_bps"] == pytest.approx([capacity_bps / 2] * 2)
    assert dict(link["facts"])["dropped"] == "2 packets"
    assert network.item("node", "0")["title"] == "server 0"
    only = f"# tenant {NAME}"
    of_link = link["text"].splitlines()
    ends = NETWORK.links[0].lower.name, NETWORK.links[0].upper.name
    assert of_link[0] == only
    devices = {line.split(" dev ")[1].split()[0] for line in of_link[1:]}
    assert devices == set(ends)
    server = network.item("node", "0")["text"]
    (bridge,) = [bridge for bridge in NETWORK.bridges if bridge.node == 0]
    assert f"# flows of {bridge.name}\ncookie=" in server
    assert f"class add dev {bridge.name}v0 " in server
    # Nothing of others: each line is this switch's.
    flows = tenant_flows(controller_tenant(NETWORK, TENANT))
    assert server.count("cookie=") == len(flows[bridge.dpid])
    # Without a VM of the tenant nothing is installed there.
    assert network.item("node", "1")["text"] == ""
    for kind in ("job", "link", "node"):
        with pytest.raises(BadInput):
            network.item(kind, "nothing")


def test_gauges_are_of_the_last_sample(network: FollowedNetwork) -> None:
    gauges = {gauge.name: gauge for gauge in network.gauges()}
    assert gauges["tenant_sent"].samples == [((NAME,), 150.0)]
    assert gauges["parts_down"].samples == [(("link",), 1.0)]
    sent = np.array([value for _, value in gauges["link_sent"].samples])
    capacity = [value for _, value in gauges["link_capacity"].samples]
    assert sent == pytest.approx(np.array(capacity) / 4)
