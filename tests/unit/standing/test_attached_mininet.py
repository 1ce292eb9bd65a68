"""Mininet's prompt beside a keeper: tenants that come and go, scripts, another network."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import RunFailed
from testbed.plan.network_plan import Port, network_plan
from testbed.standing.keeper_protocol import (
    KeeperRequest,
    SetCapacity,
    ShowLinks,
    ShowNetwork,
)
from testbed.standing.network_layout import NetworkLayout, ShowLayout
from testbed.standing.network_state import LinkState
from tests.unit.cli.test_standing import a_network, a_tenant
from tests.unit.standing.test_keeper_protocol import served
from topologies.tree import tree

pytestmark = [
    pytest.mark.needs("mininet"),
    pytest.mark.filterwarnings("ignore:.*distutils:DeprecationWarning"),
]

PLAN = network_plan(tree([2, 2], 10**8, 2), "tpn")
KEEPER = 7


def tenant(name: str, *slots: str) -> dict[str, Any]:
    """A tenant with VMs in these slots."""
    made: dict[str, Any] = a_tenant(
        name, *(f"{name}.{i}" for i in range(len(slots)))
    )
    for vm, slot in zip(made["vms"], slots, strict=True):
        vm["netns"] = f"/run/netns/{slot}"
    return made


def a_link(lower: Port, upper: Port) -> LinkState:
    ends = (lower.bridge, upper.bridge)
    ports = (lower.name, upper.name)
    return LinkState(
        " - ".join(ends),
        ends,
        ports,
        up=True,
        capacity_bps=10**8,
        reserved_bps=0,
        tenants=(),
        broken=(),
        capacity_down_bps=2_500_000,
    )


class FakeKeeper:
    """A keeper's replies; ``tenants`` and ``pid`` may change."""

    def __init__(self) -> None:
        self.tenants = [tenant("a", "tpn-s0v0", "tpn-s3v1")]
        self.pid = KEEPER
        self.capacities: list[SetCapacity] = []

    def handle(self, request: KeeperRequest) -> object:
        if isinstance(request, ShowLayout):
            places = {
                bridge.name: ("/run/machine", None)
                for bridge in PLAN.bridges
            }
            return NetworkLayout(
                PLAN,
                places | {"tpn-s0": ("/run/part", "tpn-part0")},
                7001,
                KEEPER,
            )
        if isinstance(request, ShowLinks):
            return [a_link(link.lower, link.upper) for link in PLAN.links]
        if isinstance(request, SetCapacity):
            self.capacities.append(request)
            return a_link(PLAN.links[0].lower, PLAN.links[0].upper)
        assert isinstance(request, ShowNetwork)
        return a_network(*self.tenants, pid=self.pid)


@pytest.fixture
def keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeKeeper]:
    monkeypatch.setenv("HOSENET_STATE_DIR", str(tmp_path))
    (tmp_path / "up").mkdir()
    fake = FakeKeeper()
    with served(tmp_path / "up", fake.handle):
        yield fake


@pytest.fixture
def net(keeper: FakeKeeper) -> Any:
    from testbed.standing.attached_mininet import StandingMininet

    return StandingMininet()


def said(net: Any, monkeypatch: pytest.MonkeyPatch, *lines: str) -> str:
    """The output of Mininet for lines of a script."""
    from mininet.log import lg

    from testbed.standing.attached_mininet import Script

    written = io.StringIO()
    monkeypatch.setattr(lg.handlers[0], "stream", written)
    Script(net, [f"{line}\n" for line in lines])
    return written.getvalue()


def test_it_is_the_network_that_was_built(net: Any) -> None:
    assert [host.name for host in net.hosts] == [
        f"h{i + 1}" for i in range(len(PLAN.slots))
    ]
    inside, outside = net["tpn-s0"], net["tpn-s1"]
    assert (inside.inNamespace, outside.inNamespace) == (True, False)
    assert inside._environment == {
        "NO_COLOR": "1",
        "OVS_RUNDIR": "/run/part",
    }
    assert outside._environment == {
        "NO_COLOR": "1",
        "OVS_RUNDIR": "/run/machine",
    }
    assert net["c0"].port == 7001


def test_names_follow_tenants_that_come_and_go(
    net: Any, keeper: FakeKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert net["a.1"].slot.netns == "tpn-s3v1"
    keeper.tenants = [tenant("a", "tpn-s1v0"), tenant("b", "tpn-s0v0")]
    assert said(net, monkeypatch, "py net['b.0'].name") == "h1\n"
    assert net["a.0"].slot.netns == "tpn-s1v0"
    assert "a.1" not in net
    keeper.tenants = []
    assert "Unknown command: b.0" in said(net, monkeypatch, "b.0 id")


def test_a_script_ends_with_its_lines_or_by_exit(
    net: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (
        "# a comment",
        "",
        "frobnicate",
        "py 1 + 1  # two",
        "x h99",
        "py 3",
        "exit",
        "py 4",
    )
    assert said(net, monkeypatch, *lines) == (
        "*** Unknown command: frobnicate\n2\n*** unknown node: 'h99'\n3\n"
    )
    assert said(net, monkeypatch, "py 5") == "5\n"


def test_another_network_is_not_taken_for_this_one(
    net: Any, keeper: FakeKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper.pid = KEEPER + 1
    with pytest.raises(
        RunFailed, match="this network is down, and another is up"
    ):
        net.follow_tenants()
    assert said(net, monkeypatch, "exit", "py 1") == (
        "*** this network is down, and another is up\n"
    )


def test_an_interfaces_bandwidth_is_its_links_capacity_where_it_sends(
    net: Any, keeper: FakeKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (
        "py net.linksBetween(net['s1'], net['s5'])[0].intf2.config(bw=2.5)"
    )
    carries = "carries 100 Mbit/s up, 2.50 Mbit/s down"
    assert carries in said(net, monkeypatch, asked)
    ends = ("tpn-s0", "tpn-r0")
    assert keeper.capacities == [SetCapacity(ends, 2_500_000, "down")]
    said(net, monkeypatch, asked.replace("intf2", "intf1"))
    assert keeper.capacities[1:] == [SetCapacity(ends, 2_500_000, "up")]
    # A slot of no Topo's host: what limits it is its tenant.
    refused = said(
        net, monkeypatch, "py net['h1'].defaultIntf().config(bw=5)"
    )
    assert "sudo testbed tenant rerate NAME RATE" in refused
    assert len(keeper.capacities) == 2


def test_a_capacity_is_set_beside_other_parameters_of_an_interface(
    net: Any, keeper: FakeKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_addresses = []
    monkeypatch.setattr(
        "mininet.link.Intf.setMAC",
        lambda interface, mac: set_addresses.append((str(interface), mac)),
    )
    interface = net.linksBetween(net["s1"], net["s5"])[0].intf2
    interface.config(bw=2.5, mac="02:00:00:00:00:07")
    assert keeper.capacities[0].capacity_bps == 2_500_000
    assert set_addresses == [(str(interface), "02:00:00:00:00:07")]


def test_lines_of_a_file_are_run_and_one_that_cannot_be_read_is_named(
    net: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("py 1\npy 2\n", "utf-8")
    assert said(net, monkeypatch, f"source {lines}", "py 3") == "1\n2\n3\n"
    missing = said(net, monkeypatch, f"source {lines}.txt", "py 3")
    assert "No such file" in missing
    assert missing.endswith("3\n")
    lines.write_bytes(b"\xff\xfe\x00")
    assert said(net, monkeypatch, f"source {lines}", "py 3") == (
        f"*** {lines} is not a text file in UTF-8\n3\n"
    )
    assert (
        said(net, monkeypatch, "source a b") == "*** usage: source FILE\n"
    )


def test_stop_says_that_the_network_stays(
    net: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays = "*** The network stays up: sudo testbed down takes it down\n"
    assert stays in said(net, monkeypatch, "py net.stop()")
    assert said(net, monkeypatch, "py 1") == "1\n"


def test_a_terminal_is_in_the_tenants_vm(
    net: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    assert "sudo testbed shell a.0\n" in said(net, monkeypatch, "xterm h1")
