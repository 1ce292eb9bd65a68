"""Links of a network that stays up: found by name, taken down, and said whom that cuts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.errors import BadInput, DoesNotFit
from testbed.runs.keeper_protocol import read_reply, reply_line
from testbed.runs.network_layout import NetworkLayout, TenantPlans
from testbed.runs.network_state import LinkState
from testbed.runs.standing_links import StandingLinks
from testbed.runs.standing_tenants import StandingTenants
from tests.support.fake_emulation import SCALE_RATE, FakeEmulation
from topologies.fat_tree import fat_tree
from topologies.tree import tree

MBIT = 10**6
GBIT = 10**9


class Network:
    """Two racks of two servers of two slots; a link has 1 Gbit/s."""

    def __init__(self, folder: Path, datacentre: Any = None) -> None:
        self.fake = FakeEmulation(datacentre or tree([2, 2], [GBIT, GBIT], 2))
        emulation: Any = self.fake
        self.tenants = StandingTenants(emulation, SCALE_RATE, "oktopus", folder)
        self.links = StandingLinks(emulation, self.tenants)

    def link(self, name: str) -> LinkState:
        return next(state for state in self.links.states() if state.name == name)


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return Network(tmp_path)


def test_links_have_their_capacity_their_reservation_and_their_tenants(network: Network) -> None:
    network.tenants.add("a", 4, 100 * MBIT, at=[("0", 2), ("2", 2)])
    network.tenants.add("b", 2, 300 * MBIT, at=[("1", 2)])
    states = network.links.states()
    assert [s.name for s in states if s.capacity_bps] == [
        "server 0 - rack 0", "server 1 - rack 0", "server 2 - rack 1", "server 3 - rack 1",
        "rack 0 - core 0", "rack 1 - core 0",
    ]  # fmt: skip
    core = network.link("rack 0 - core 0")
    assert (core.up, core.capacity_bps, core.reserved_bps) == (True, GBIT, 200 * MBIT)
    assert core.tenants == ("a",)
    assert core.ports == ("hn-r0-u0", "hn-c0-d0")
    assert network.link("server 1 - rack 0").tenants == ()
    assert network.link("b.1 - server 1").ports == ("hn-s1v1",)
    assert all(state.up and not state.broken for state in states)


@pytest.mark.parametrize(
    "names",
    [("rack 0", "core 0"), ("core 0", "rack 0"), ("rack 0 - core 0",), ("core 0 -> rack 0",)],
)
def test_a_link_goes_down_by_any_of_its_names(network: Network, names: tuple[str, ...]) -> None:
    network.tenants.add("a", 3, 100 * MBIT, at=[("0", 2), ("2", 1)])
    network.tenants.add("b", 2, 100 * MBIT, at=[("1", 2)])
    state = network.links.change(names, up=False)
    cut = "tenant a is cut: a.0 a.1 | a.2; 2 of 3 pairs"
    assert (state.name, state.up, state.broken) == ("rack 0 - core 0", False, (cut,))
    assert network.fake.lost == {"hn-r0-u0", "hn-c0-d0"}
    assert [one.trouble for one in network.tenants.states()] == [cut, ""]
    assert network.links.trouble() == [f"link rack 0 - core 0 is down; {cut}"]
    assert network.links.change(names, up=True) == network.link("rack 0 - core 0")
    assert network.fake.lost == set()
    assert network.links.trouble() == []
    assert network.tenants.state("a").trouble == ""


def test_of_a_vms_cable_the_switchs_end_goes_down(network: Network) -> None:
    network.tenants.add("a", 2, 100 * MBIT, at=[("0", 1), ("1", 1)])
    state = network.links.change(["a.1"], up=False)
    assert (state.name, state.ports) == ("a.1 - server 1", ("hn-s1v0",))
    assert state.broken == ("tenant a is cut: a.0 | a.1; 1 of 1 pairs",)


@pytest.mark.parametrize(
    ("names", "message", "hint"),
    [
        (("rack 7", "core 0"), "no link ends at 'rack 7' (did you mean 'rack 1'?)", "link show"),
        (("rac 0", "core 0"), "no link ends at 'rac 0' (did you mean 'rack 0'?)", "link show"),
        (("server 0", "core 0"), "no link is between server 0 and core 0", "hn-s0v0, hn-s0v1"),
        (("rack 0",), "name both ends", "rack 0 has links to server 0, server 1, core 0"),
        (("",), "no link ends at ''", "link show"),
        (("rack 0", "core 0", "rack 1"), "no link is between rack 0 and core 0 and rack 1", "rack"),
    ],
)
def test_an_unknown_link_gets_a_sentence(
    network: Network, names: tuple[str, ...], message: str, hint: str
) -> None:
    with pytest.raises(BadInput) as refused:
        network.links.change(names, up=False)
    assert message in refused.value.message
    assert hint in (refused.value.hint or "")
    assert network.fake.lost == set()


def test_no_tenant_is_admitted_over_a_link_that_is_down(network: Network) -> None:
    network.links.change(["rack 0", "core 0"], up=False)
    with pytest.raises(DoesNotFit) as refused:
        network.tenants.add("a", 2, 100 * MBIT, at=[("0", 1), ("2", 1)])
    assert refused.value.message == (
        "tenant a does not fit: it would use the link rack 0 - core 0, which is down"
    )
    with pytest.raises(DoesNotFit, match="tenant a does not fit"):
        network.tenants.add("a", 6, 100 * MBIT)
    assert network.tenants.states() == ()
    network.tenants.ledger.check()
    network.tenants.add("a", 4, 100 * MBIT)
    network.links.change(["rack 0", "core 0"], up=True)
    network.tenants.add("b", 2, 100 * MBIT, at=[("2", 1), ("3", 1)])


def test_on_a_fat_tree_a_tenant_is_placed_on_a_core_that_is_whole(tmp_path: Path) -> None:
    network = Network(tmp_path, fat_tree(4, GBIT, 1))
    network.tenants.add("a", 16, 10 * MBIT)
    (root,) = {
        state.ends[1]
        for state in network.links.states()
        if state.ends[1].startswith("core") and state.tenants
    }
    network.tenants.remove("a")
    network.links.change(["aggregation 0", root], up=False)
    network.tenants.add("a", 16, 10 * MBIT)
    assert network.tenants.state("a").trouble == ""
    used = {s.ends[1] for s in network.links.states() if s.tenants and s.ends[1].startswith("core")}
    assert len(used) == 1
    assert used != {root}
    network.links.change(["aggregation 0", used.pop()], up=False)
    (text,) = [text for text in (network.tenants.state("a").trouble,) if text]
    assert "tenant a (pinned to core " in text


def test_plans_travel_whole(network: Network) -> None:
    """A process that verifies or watches has the plans that the keeper has."""
    network.tenants.add("a", 3, 100 * MBIT)
    layout = NetworkLayout(network.fake.plan, {"hn-r0": ("/run", None)}, 6653, 1)
    _ = network.fake.plan.ports  # a property that is cached is no part of it
    plans = TenantPlans(network.tenants.plans, network.tenants.names, borrowing=False)
    assert read_reply(reply_line(layout), NetworkLayout) == layout
    assert read_reply(reply_line(plans), TenantPlans) == plans
    links = network.links.states()
    assert read_reply(reply_line(links), tuple[LinkState, ...]) == links
