"""Links of a network that stays up: found by name, taken down, and said whom that cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import BadInput, DoesNotFit, RunFailed
from testbed.standing import keeper_protocol
from testbed.standing.keeper_protocol import (
    AddTenant,
    read_reply,
    reply_line,
)
from testbed.standing.network_layout import NetworkLayout, TenantPlans
from testbed.standing.network_state import LinkState, TenantState
from testbed.standing.standing_links import StandingLinks
from testbed.standing.standing_tenants import StandingTenants
from tests.support.fake_emulation import SCALE_RATE, FakeEmulation
from topologies.fat_tree import fat_tree
from topologies.tree import tree

MBIT = 10**6
GBIT = 10**9


class Network:
    """Two racks of two servers of two slots; a link has 1 Gbit/s."""

    def __init__(self, folder: Path, datacentre: Any = None) -> None:
        self.fake = FakeEmulation(
            datacentre or tree([2, 2], [GBIT, GBIT], 2)
        )
        emulation: Any = self.fake
        self.tenants = StandingTenants(
            emulation, SCALE_RATE, "oktopus", folder
        )
        self.links = StandingLinks(emulation, self.tenants)

    def add(
        self,
        name: str,
        n_vms: int,
        bandwidth_bps: int,
        at: Sequence[tuple[str, int]] = (),
        enforcement: str | None = None,
    ) -> TenantState:
        """Admit a tenant."""
        return self.tenants.add(
            AddTenant(
                name,
                n_vms,
                bandwidth_bps,
                at=tuple(at),
                enforcement=enforcement,
            )
        )

    def link(self, name: str) -> LinkState:
        return next(
            state for state in self.links.states() if state.name == name
        )


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return Network(tmp_path)


def test_links_have_their_capacity_their_reservation_and_their_tenants(
    network: Network,
) -> None:
    network.add("a", 4, 100 * MBIT, at=[("0", 2), ("2", 2)])
    network.add("b", 2, 300 * MBIT, at=[("1", 2)])
    states = network.links.states()
    assert [s.name for s in states if s.capacity_bps] == [
        "server 0 - rack 0", "server 1 - rack 0", "server 2 - rack 1", "server 3 - rack 1",
        "rack 0 - core 0", "rack 1 - core 0",
    ]  # fmt: skip
    core = network.link("rack 0 - core 0")
    assert (core.up, core.capacity_bps, core.reserved_bps) == (
        True,
        GBIT,
        200 * MBIT,
    )
    assert core.tenants == ("a",)
    assert core.ports == ("hn-r0-u0", "hn-c0-d0")
    assert network.link("server 1 - rack 0").tenants == ()
    assert network.link("b.1 - server 1").ports == ("hn-s1v1",)
    assert all(state.up and not state.broken for state in states)


@pytest.mark.parametrize(
    "names",
    [
        ("rack 0", "core 0"),
        ("core 0", "rack 0"),
        ("rack 0 - core 0",),
        ("core 0 -> rack 0",),
    ],
)
def test_a_link_goes_down_by_any_of_its_names(
    network: Network, names: tuple[str, ...]
) -> None:
    network.add("a", 3, 100 * MBIT, at=[("0", 2), ("2", 1)])
    network.add("b", 2, 100 * MBIT, at=[("1", 2)])
    state = network.links.change(names, up=False)
    cut = "tenant a is cut: a.0 a.1 | a.2; 2 of 3 pairs; a tree has no other path"
    assert (state.name, state.up, state.broken) == (
        "rack 0 - core 0",
        False,
        (cut,),
    )
    assert network.fake.lost == {"hn-r0-u0", "hn-c0-d0"}
    assert [one.trouble for one in network.tenants.states()] == [cut, ""]
    assert network.links.trouble() == [
        f"link rack 0 - core 0 is down; {cut}"
    ]
    back = network.links.change(names, up=True)
    assert back == replace(
        network.link("rack 0 - core 0"),
        moved=("tenant a has its links back",),
    )
    assert network.fake.lost == set()
    assert network.links.trouble() == []
    assert network.tenants.state("a").trouble == ""


def test_of_a_vms_cable_the_switchs_end_goes_down(network: Network) -> None:
    network.add("a", 2, 100 * MBIT, at=[("0", 1), ("1", 1)])
    state = network.links.change(["a.1"], up=False)
    assert (state.name, state.ports) == ("a.1 - server 1", ("hn-s1v0",))
    assert state.broken == ("tenant a is cut: a.0 | a.1; 1 of 1 pairs",)


def test_a_links_capacity_changes_in_ledger_and_limits(
    network: Network,
) -> None:
    network.add("a", 2, 400 * MBIT, at=[("0", 1), ("2", 1)])
    state = network.links.set_capacity(("rack 0", "core 0"), 500 * MBIT)
    assert (state.capacity_bps, state.reserved_bps) == (
        500 * MBIT,
        400 * MBIT,
    )
    ((_, plan, pairs),) = network.fake.capacities
    wires = {
        link.lower.name: (link.up_bps, link.down_bps) for link in plan.links
    }
    assert wires["hn-r0-u0"] == (500 * MBIT * SCALE_RATE,) * 2
    assert wires["hn-r1-u0"] == (GBIT * SCALE_RATE,) * 2
    assert [old.job_id for old, _ in pairs] == ["a"]
    # What is reserved is still there, and what is left is what the link has.
    with pytest.raises(DoesNotFit, match=r"rack 0 -> core 0.*100 Mbit/s"):
        network.add("b", 2, 200 * MBIT, at=[("1", 1), ("3", 1)])
    network.links.set_capacity(("rack 0 - core 0",), 2 * GBIT)
    network.links.set_capacity(("rack 1", "core 0"), 2 * GBIT)
    network.add("b", 2, 900 * MBIT, at=[("1", 1), ("3", 1)])
    network.tenants.remove("a")
    assert network.link("rack 0 - core 0").reserved_bps == 900 * MBIT
    network.tenants.ledger.check()


def test_hosts_of_an_open_network_may_use_what_a_link_gains(
    network: Network,
) -> None:
    network.tenants.open()
    network.links.set_capacity(("server 0", "rack 0"), 2 * GBIT)
    ((_, _, pairs),) = network.fake.capacities
    caps_bps = [[plan.cap_bps for plan in pair] for pair in pairs]
    assert caps_bps == [[GBIT * SCALE_RATE, 2 * GBIT * SCALE_RATE]]


def test_a_capacity_below_what_is_reserved_is_refused(
    network: Network,
) -> None:
    network.add("a", 4, 200 * MBIT, at=[("0", 2), ("2", 2)])
    reason = (
        "399 Mbit/s is below the 400 Mbit/s that tenants reserve on rack 0"
    )
    with pytest.raises(DoesNotFit, match=reason):
        network.links.set_capacity(("rack 0", "core 0"), 399 * MBIT)
    assert network.fake.capacities == []
    assert network.link("rack 0 - core 0").capacity_bps == GBIT
    state = network.links.set_capacity(("rack 0", "core 0"), 400 * MBIT)
    assert state.capacity_bps == state.reserved_bps


def test_a_direction_has_a_capacity_of_its_own(network: Network) -> None:
    network.add("a", 4, 200 * MBIT, at=[("0", 2), ("2", 2)])
    ends = ("rack 0", "core 0")
    for way, name in (
        ("up", "rack 0 -> core 0"),
        ("down", "core 0 -> rack 0"),
    ):
        with pytest.raises(DoesNotFit, match=f"reserve on {name}"):
            network.links.set_capacity(ends, 399 * MBIT, way)
    state = network.links.set_capacity(ends, 2 * GBIT, "down")
    assert (state.capacity_bps, state.capacity_down_bps) == (GBIT, 2 * GBIT)
    state = network.links.set_capacity(ends, 450 * MBIT, "up")
    assert (state.capacity_bps, state.capacity_down_bps) == (
        450 * MBIT,
        2 * GBIT,
    )
    _, plan, _ = network.fake.capacities[-1]
    link = next(k for k in plan.links if k.lower.name == "hn-r0-u0")
    assert link.up_bps == 450 * MBIT * SCALE_RATE
    assert link.down_bps == 2 * GBIT * SCALE_RATE
    # A hose takes as much of both: the narrower direction has no room.
    with pytest.raises(DoesNotFit, match=r"rack 0 -> core 0.*50 Mbit/s"):
        network.add("b", 2, 60 * MBIT, at=[("1", 1), ("3", 1)])
    network.add("b", 2, 50 * MBIT, at=[("1", 1), ("3", 1)])
    network.tenants.ledger.check()
    free = network.tenants.ledger.residual(0.0, None).free_bps
    number = plan.links.index(link)
    assert free[2 * number : 2 * number + 2].tolist() == [0, 1550 * MBIT]


def test_a_capacity_that_the_network_refuses_changes_nothing(
    network: Network,
) -> None:
    network.fake.refuses_capacities = True
    with pytest.raises(RunFailed, match="refused"):
        network.links.set_capacity(("rack 0", "core 0"), 2 * GBIT)
    assert network.link("rack 0 - core 0").capacity_bps == GBIT


def test_the_capacity_of_a_vms_cable_is_its_tenants(
    network: Network,
) -> None:
    network.add("a", 2, 100 * MBIT)
    with pytest.raises(BadInput, match=r"a\.0 - server 0 is a VM's cable"):
        network.links.set_capacity(("a.0",), GBIT)


@pytest.mark.parametrize(
    ("names", "message", "hint"),
    [
        (
            ("rack 7", "core 0"),
            "no link ends at 'rack 7' (did you mean 'rack 1'?)",
            "link show",
        ),
        (
            ("rac 0", "core 0"),
            "no link ends at 'rac 0' (did you mean 'rack 0'?)",
            "link show",
        ),
        (
            ("server 0", "core 0"),
            "no link is between server 0 and core 0",
            "hn-s0v0, hn-s0v1",
        ),
        (
            ("rack 0",),
            "name both ends",
            "rack 0 has links to server 0, server 1, core 0",
        ),
        (("",), "no link ends at ''", "link show"),
        (
            ("rack 0", "core 0", "rack 1"),
            "no link is between rack 0 and core 0 and rack 1",
            "rack",
        ),
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


def test_no_tenant_is_admitted_over_a_link_that_is_down(
    network: Network,
) -> None:
    network.links.change(["rack 0", "core 0"], up=False)
    with pytest.raises(DoesNotFit) as refused:
        network.add("a", 2, 100 * MBIT, at=[("0", 1), ("2", 1)])
    assert refused.value.message == (
        "tenant a does not fit: it would use the link rack 0 - core 0, which is down"
    )
    with pytest.raises(DoesNotFit, match="tenant a does not fit"):
        network.add("a", 6, 100 * MBIT)
    assert network.tenants.states() == ()
    network.tenants.ledger.check()
    network.add("a", 4, 100 * MBIT)
    network.links.change(["rack 0", "core 0"], up=True)
    network.add("b", 2, 100 * MBIT, at=[("2", 1), ("3", 1)])


def test_a_rate_that_the_network_refuses_is_as_before_on_a_lost_link(
    network: Network,
) -> None:
    network.add("a", 2, 400 * MBIT, at=[("0", 1), ("2", 1)])
    network.links.change(["rack 0", "core 0"], up=False)
    before = network.tenants.state("a")
    network.fake.refused_bps = {round(300 * MBIT * SCALE_RATE)}
    with pytest.raises(RunFailed, match="tc refused"):
        network.tenants.rerate("a", 300 * MBIT)
    assert network.tenants.state("a") == before
    # The ledger still has nothing free on that link.
    with pytest.raises(DoesNotFit):
        network.tenants.rerate("a", 500 * MBIT)
    network.tenants.ledger.check()


def test_on_a_fat_tree_a_tenant_is_placed_on_a_core_that_is_whole(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, fat_tree(4, GBIT, 1))
    network.add("a", 16, 10 * MBIT)
    (root,) = {
        state.ends[1]
        for state in network.links.states()
        if state.ends[1].startswith("core") and state.tenants
    }
    network.tenants.remove("a")
    network.links.change(["aggregation 0", root], up=False)
    network.add("a", 16, 10 * MBIT)
    assert network.tenants.state("a").trouble == ""
    used = {
        s.ends[1]
        for s in network.links.states()
        if s.tenants and s.ends[1].startswith("core")
    }
    assert len(used) == 1
    assert used != {root}


def test_plans_travel_whole(network: Network) -> None:
    """A process that verifies or watches has the plans that the keeper has."""
    network.add("a", 3, 100 * MBIT)
    layout = NetworkLayout(
        network.fake.plan, {"hn-r0": ("/run", None)}, 6653, 1
    )
    _ = (
        network.fake.plan.ports
    )  # a property that is cached is no part of it
    plans = TenantPlans(
        network.tenants.plans, network.tenants.names, borrowing=False
    )
    assert read_reply(reply_line(layout), NetworkLayout) == layout
    assert read_reply(reply_line(plans), TenantPlans) == plans
    links = network.links.states()
    assert read_reply(reply_line(links), tuple[LinkState, ...]) == links
    with pytest.MonkeyPatch.context() as patched:
        # Ctrl-C while pydantic builds one would be lost: none is built anew.
        patched.setattr(keeper_protocol, "TypeAdapter", None)
        assert read_reply(reply_line(layout), NetworkLayout) == layout


def test_a_reply_of_another_version_is_told_as_such() -> None:
    for value in (None, {"name": "a"}, [1, 2]):
        with pytest.raises(RunFailed, match="another version") as raised:
            read_reply(reply_line(value), NetworkLayout)
        assert "sudo testbed down" in (raised.value.hint or "")


# ------------------------------------------------------------------------- to another root


ACROSS = [("0", 1), ("2", 1), ("4", 1)]


@pytest.fixture
def fat(tmp_path: Path) -> Network:
    """Four pods of two edges of two servers of four slots, below four cores of two links."""
    return Network(tmp_path, fat_tree(4, GBIT, 4))


def pinned(network: Network, name: str) -> str:
    """The core that a tenant uses; its plan and the ledger agree."""
    network.tenants.ledger.check()
    (core,) = {
        s.ends[1]
        for s in network.links.states()
        if name in s.tenants and "core" in s.name
    }
    assert any(
        core in link for link, _ in network.tenants.state(name).links
    )
    return core


def test_a_tenant_whose_tree_loses_a_link_moves_to_another_root(
    fat: Network,
) -> None:
    fat.add("a", 3, 300 * MBIT, at=ACROSS)
    vms = fat.tenants.state("a").vms
    assert pinned(fat, "a") == "core 0"
    state = fat.links.change(["aggregation 0", "core 0"], up=False)
    assert state.moved == ("tenant a has moved from core 0 to core 1",)
    assert state.broken == state.tenants == ()
    assert pinned(fat, "a") == "core 1"
    assert (fat.tenants.state("a").vms, fat.tenants.state("a").trouble) == (
        vms,
        "",
    )
    assert fat.link("aggregation 0 - core 0").reserved_bps == 0
    # Back, it stays where it is: nobody moves without need.
    assert (
        fat.links.change(["aggregation 0", "core 0"], up=True).moved == ()
    )
    assert pinned(fat, "a") == "core 1"


def test_who_finds_no_room_says_why_and_is_tried_again_where_there_is_some(
    fat: Network,
) -> None:
    """Of the four ways into the first pod two are down, and others have taken a third."""
    fat.add("a", 2, 600 * MBIT, at=[("0", 1), ("4", 1)])
    for core in ("core 2", "core 3"):
        fat.links.change(["aggregation 1", core], up=False)
    fat.add("b", 2, 600 * MBIT, at=[("2", 1), ("6", 1)])
    assert (pinned(fat, "a"), pinned(fat, "b")) == ("core 0", "core 1")
    cut = "tenant a (pinned to core 0) is cut: a.0 | a.1; 1 of 1 pairs"
    full = "no other root has room (aggregation 0 -> core 1: 600 Mbit/s asked, 400 Mbit/s free"
    down = fat.links.change(["aggregation 0", "core 0"], up=False)
    assert down.moved == ()
    assert down.broken[0].startswith(f"{cut}; {full}")
    assert fat.tenants.state("a").trouble == down.broken[0]
    assert (
        fat.links.trouble()[0]
        == f"link aggregation 0 - core 0 is down; {down.broken[0]}"
    )
    # Not enough is given up, then enough.
    fat.tenants.rerate("b", 500 * MBIT)
    assert "500 Mbit/s free" in fat.tenants.state("a").trouble
    fat.tenants.rerate("b", 400 * MBIT)
    assert pinned(fat, "a") == "core 1"
    assert [state.trouble for state in fat.tenants.states()] == ["", ""]


def test_a_tenant_that_leaves_makes_room_for_one_that_is_cut(
    fat: Network,
) -> None:
    fat.add("a", 2, 600 * MBIT, at=[("0", 1), ("4", 1)])
    for core in ("core 2", "core 3"):
        fat.links.change(["aggregation 1", core], up=False)
    fat.add("b", 2, 600 * MBIT, at=[("2", 1), ("6", 1)])
    fat.links.change(["aggregation 0", "core 0"], up=False)
    fat.tenants.remove("b")
    assert pinned(fat, "a") == "core 1"


def test_where_no_other_root_has_a_path_the_tenant_waits_for_its_link(
    fat: Network,
) -> None:
    fat.add("a", 3, 300 * MBIT, at=ACROSS)
    down = fat.links.change(["server 0", "edge 0"], up=False)
    cut = "tenant a (pinned to core 0) is cut: a.0 | a.1 a.2; 2 of 3 pairs"
    assert down.broken == (
        f"{cut}; no other root has a path without a lost link",
    )
    assert down.moved == ()
    back = fat.links.change(["server 0", "edge 0"], up=True)
    assert back.moved == ("tenant a has its links back",)
    assert fat.tenants.state("a").trouble == ""
    assert pinned(fat, "a") == "core 0"


def test_what_the_network_refuses_leaves_tenant_and_ledger_where_they_were(
    fat: Network,
) -> None:
    fat.add("a", 3, 300 * MBIT, at=ACROSS)
    fat.fake.reroot_refused = {"a"}
    down = fat.links.change(["aggregation 0", "core 0"], up=False)
    assert down.moved == ()
    assert down.broken[0].endswith("2 of 3 pairs; tc refused a")
    assert pinned(fat, "a") == "core 0"
    fat.fake.reroot_refused = set()
    assert fat.tenants.follow_links() == (
        "tenant a has moved from core 0 to core 1",
    )


def test_of_a_persons_own_controller_flows_are_not_moved(
    fat: Network,
) -> None:
    fat.fake.own_controller = object()
    fat.add("a", 3, 300 * MBIT, at=ACROSS)
    assert (
        fat.links.change(["aggregation 0", "core 0"], up=False).moved == ()
    )
    assert pinned(fat, "a") == "core 0"


def test_an_open_network_moves_as_a_whole(tmp_path: Path) -> None:
    fat = Network(tmp_path, fat_tree(4, GBIT, 1))
    fat.tenants.open()
    down = fat.links.change(["aggregation 0", "core 0"], up=False)
    assert down.moved == ("tenant open has moved from core 0 to core 1",)


def test_a_move_that_failed_is_tried_again_to_the_root_that_is_booked(
    fat: Network,
) -> None:
    """Where its old place went to another tenant, it has the new one booked."""
    fat.add("a", 2, 600 * MBIT, at=[("0", 1), ("4", 1)])
    fat.add("b", 2, 600 * MBIT, at=[("6", 1), ("8", 1)])
    assert (pinned(fat, "a"), pinned(fat, "b")) == ("core 0", "core 1")
    fat.fake.reroot_refused = {"a"}
    # Of the ways into the first pod only that by core 2 is left.
    fat.fake.lost = {
        port
        for port, ends in fat.tenants.cables.items()
        if ends
        in {
            ("aggregation 0", "core 0"),
            ("aggregation 0", "core 1"),
            ("aggregation 1", "core 3"),
            ("aggregation 4", "core 1"),
        }
    }
    assert fat.tenants.follow_links() == (
        "tenant b has moved from core 1 to core 0",
    )
    assert "tc refused a" in fat.tenants.state("a").trouble
    fat.fake.reroot_refused = set()
    assert fat.tenants.follow_links() == (
        "tenant a has moved from core 0 to core 2",
    )
    assert fat.tenants.state("a").trouble == ""
    assert pinned(fat, "a") == "core 2"
