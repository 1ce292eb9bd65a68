"""The live network as Mininet's objects, without a network: names, links, ports, no processes."""

from __future__ import annotations

import errno
import gc
import io
import logging
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.backends.emu.open_vswitch import MACHINE, SwitchDaemons
from testbed.errors import BadInput, RunFailed
from testbed.plan.network_plan import network_plan
from tests.support.interrupts import interrupt_at_start
from topologies.fat_tree import fat_tree
from topologies.mininet_record import MininetRecord
from topologies.mininet_topo import from_mininet
from topologies.tree import tree

pytestmark = [
    pytest.mark.needs("mininet"),
    pytest.mark.filterwarnings("ignore:.*distutils:DeprecationWarning"),
]

PLAN = network_plan(tree([2, 2], 10**8, 2), "tpn")
STARTS = {
    "subprocess.Popen",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "os.exec",
}


@pytest.fixture(scope="module")
def module() -> ModuleType:
    from testbed.backends.emu import mininet_network

    return mininet_network


@pytest.fixture
def transcript(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> io.StringIO:
    """The text that Mininet prints."""
    from mininet.log import lg

    written = io.StringIO()
    monkeypatch.setattr(lg.handlers[0], "stream", written)
    return written


@pytest.fixture(scope="session")
def events() -> list[str]:
    """Every process that this one has started since, as Python's own audit hooks tell it."""
    seen: list[str] = []
    sys.addaudithook(
        lambda event, _: seen.append(event) if event in STARTS else None
    )
    return seen


def addresses(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, of: dict[str, str]
) -> None:
    """Have these hosts an address, and no other."""

    def address(intf: Any) -> str | None:
        return of.get(intf.node.name)

    monkeypatch.setattr(module.AttachedIntf, "IP", address)


# ------------------------------------------------------------------------------ the plan's network


topologies = st.one_of(
    st.builds(
        tree,
        st.lists(st.integers(1, 3), min_size=1, max_size=3),
        st.just(10**8),
        st.integers(1, 3),
    ),
    st.builds(
        fat_tree, st.sampled_from([2, 4]), st.just(10**8), st.integers(1, 2)
    ),
)


@pytest.mark.slow
@given(topologies, st.sampled_from(["hn", "x"]))
def test_nodes_links_and_port_numbers_are_the_plans(
    datacentre: Any, prefix: str
) -> None:
    from testbed.backends.emu.mininet_network import mininet_network

    plan = network_plan(datacentre, prefix)
    net = mininet_network(plan)
    assert [host.name for host in net.hosts] == [
        f"h{i + 1}" for i in range(len(plan.slots))
    ]
    assert [switch.name for switch in net.switches] == [
        bridge.name for bridge in plan.bridges
    ]
    assert list(net) == [
        n.name for n in (*net.hosts, *net.switches, *net.controllers)
    ]
    assert net.get(*(f"s{i + 1}" for i in range(len(net.switches)))) == (
        net.switches if len(net.switches) > 1 else net.switches[0]
    )
    for host, slot in zip(net.hosts, plan.slots, strict=True):
        assert net.get(slot.netns) is host is net[host.name]
        assert (host.defaultIntf().name, host.MAC()) == ("eth0", slot.mac)
        ((inner, outer),) = host.connectionsTo(net[slot.port.bridge])
        assert (inner, outer.name) == (host.defaultIntf(), slot.port.name)
    for switch, bridge in zip(net.switches, plan.bridges, strict=True):
        wanted = {
            p.name: p.number for p in plan.ports_of_bridge[bridge.name]
        } | {"lo": 0}
        assert {
            str(intf): number for intf, number in switch.ports.items()
        } == wanted
        assert {
            number: str(intf) for number, intf in switch.intfs.items()
        } == {number: name for name, number in wanted.items()}
        assert int(switch.dpid, 16) == bridge.dpid
    assert len(net.links) == len(plan.slots) + len(plan.links)
    for link in plan.links:
        between = net.linksBetween(
            net[link.lower.bridge], net[link.upper.bridge]
        )
        assert (link.lower.name, link.upper.name) in {
            (str(each.intf1), str(each.intf2)) for each in between
        }
        assert all(
            each.intf1.link is each and each.intf2.link is each
            for each in between
        )


def test_switches_in_parts_are_asked_where_they_are(
    module: ModuleType,
) -> None:
    part = SwitchDaemons(Path("/run/hosenet/r/tpn-part0"), "tpn-part0")
    net = module.mininet_network(PLAN, {"tpn-s0": part})
    inside, outside = net["tpn-s0"], net["tpn-s1"]
    assert (inside.inNamespace, outside.inNamespace) == (True, False)
    assert inside._environment == {
        "NO_COLOR": "1",
        "OVS_RUNDIR": "/run/hosenet/r/tpn-part0",
    }
    assert outside._environment == {
        "NO_COLOR": "1",
        "OVS_RUNDIR": str(MACHINE.run_dir),
    }


# ------------------------------------------------------------------------------------ nothing runs


def test_no_process_is_started_until_a_shell_is_wanted(
    module: ModuleType,
    events: list[str],
    transcript: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mininet.util import dumpNodeConnections

    addresses(module, monkeypatch, {"h1": "10.0.4.1"})
    before = len(events)
    net = module.mininet_network(network_plan(fat_tree(4, 10**8, 2), "tpn"))
    net.build()
    net.start()
    dumpNodeConnections(net.values())
    assert "h1 eth0:tpn-s0v0\n" in transcript.getvalue()
    assert "h1: eth0:10.0.4.1 pid=None" in repr(net["h1"])
    assert "127.0.0.1:6653 pid=None" in repr(net["c0"])
    net.configLinkStatus("h1", "c0", "down")
    net.stop()
    assert events[before:] == []


def test_the_shell_is_started_once_by_whatever_wants_it(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mininet.node import Node

    started: list[Any] = []

    def start(node: Any) -> None:
        started.append((node.name, node.inNamespace))
        node.shell = node.pid = node.stdin = node.stdout = node.pollOut = (
            "there"
        )
        node.master = node.slave = 0

    monkeypatch.setattr(Node, "startShell", start)
    net = module.mininet_network(PLAN)
    for node in (net["tpn-s0"], net["c0"]):
        assert (node.pid, node.stdout, node.shell) == ("there",) * 3
        node.startShell()
        assert node.pid == "there"
    assert started == [("tpn-s0", False), ("c0", False)]
    with pytest.raises(AttributeError, match="no attribute 'cmdd'"):
        _ = net["h1"].cmdd


def test_a_node_whose_network_is_gone_says_so(
    module: ModuleType, events: list[str]
) -> None:
    before = len(events)
    net = module.mininet_network(PLAN)
    for use in (
        lambda h: h.cmd("true"),
        lambda h: h.popen("true"),
        lambda h: h.IP(),
    ):
        with pytest.raises(
            OSError, match=r"/run/netns/tpn-s0v0|not permitted"
        ):
            use(net["h1"])
    assert events[before:] == []


def test_after_stop_commands_are_ignored_as_mininet_does(
    module: ModuleType, transcript: io.StringIO
) -> None:
    net = module.mininet_network(PLAN)
    net.stop()
    assert net["h1"].cmd("true") is None
    assert "h1 exited" in transcript.getvalue()


def test_the_machines_settings_and_other_loggers_stay(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mininet.net

    def changed() -> None:
        pytest.fail("kernel settings would be changed")

    monkeypatch.setattr(mininet.net, "fixLimits", changed)
    monkeypatch.setattr(mininet.net, "ensureRoot", changed)
    was = mininet.net.Mininet.inited
    module.mininet_network(PLAN)
    assert mininet.net.Mininet.inited is was
    assert type(logging.getLogger("tpn.some.other")) is logging.Logger


# ------------------------------------------------------------------------------------ names


def test_a_host_has_as_many_names_as_it_is_given(
    module: ModuleType,
) -> None:
    net = module.mininet_network(PLAN)
    net.alias("a.0", net["h3"])
    net.alias("a.0", net["h3"])
    assert "a.0" in net
    assert net.get("a.0", "h3") == [net["h3"]] * 2
    assert len(net) == len(list(net)) == len(dict(net.items()))
    with pytest.raises(BadInput, match=r"a\.0 is the name of h3"):
        net.alias("a.0", net["h2"])
    net.unalias("a.0")
    net.unalias("a.0")
    net.unalias("h3")
    assert "a.0" not in net
    assert net["h3"].name == "h3"


def test_the_networks_own_links_are_not_deleted(module: ModuleType) -> None:
    net = module.mininet_network(PLAN)
    links = list(net.links)
    with pytest.raises(
        BadInput, match="h1's eth0 is part of a network that stays up"
    ):
        net.delLink(links[0])
    assert net.links == links
    net["h1"].stop(deleteIntfs=True)
    net["tpn-s0"].stop(deleteIntfs=True)
    assert links[0].intf1.link is links[0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda net: net.addHost("h99"), "host h99 cannot be added"),
        (lambda net: net.addSwitch("s99"), "switch s99 cannot be added"),
        (lambda net: net.addLink("h1", "h2"), "link h1 - h2 cannot be added"),
        (lambda net: net.addNAT(), "host nat0 cannot be added"),
        (lambda net: net.addController("c9"), "controller c9 cannot be added"),
        (lambda net: net["h1"].setIP("10.0.0.9/8"), "h1's address cannot be"),
        (lambda net: net["h1"].setMAC("02:00:00:00:00:09"), "h1's MAC address"),
        (lambda net: net.delHost(net["h1"]), "h1 is part of a network that"),
        (lambda net: net["h1"].defaultIntf().config(bw=5), "no 5 Mbit/s"),
        (lambda net: net["s1"].defaultIntf().config(bw=5), "tpn-s0's lo is no link's"),
        (lambda net: net["h1"].defaultIntf().config(delay="5ms"), "delay cannot be"),
        (lambda net: net["h1"].defaultIntf().config(bw=5, loss=1), "bw, loss cannot"),
    ],
)  # fmt: skip
def test_what_would_have_no_effect_is_refused(
    module: ModuleType, change: Callable[[Any], object], sentence: str
) -> None:
    net = module.mininet_network(PLAN)
    before = (list(net.hosts), list(net.switches), list(net.links))
    with pytest.raises(BadInput, match=sentence) as refused:
        change(net)
    assert refused.value.hint
    assert before == (net.hosts, net.switches, net.links)


def test_a_terminal_is_the_testbeds_own_where_there_is_no_display(
    module: ModuleType,
    transcript: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    prompt = module.Prompt.__new__(module.Prompt)
    prompt.mn = module.mininet_network(PLAN)
    for line in ("xterm h1 h2", "gterm h3", "x h1 firefox", "xterm h99"):
        prompt.onecmd(line)
    said = transcript.getvalue().splitlines()
    assert said == [
        "*** no X display for xterm: in another terminal, sudo testbed shell h1",
        "*** no X display for xterm: in another terminal, sudo testbed shell h2",
        "*** no X display for gterm: in another terminal, sudo testbed shell h3",
        "*** no X display for x: in another terminal, sudo testbed shell h1",
        "*** unknown node: 'h99'",
    ]


def test_commands_for_terminals_without_a_node_print_their_usage(
    module: ModuleType,
    transcript: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    prompt = module.Prompt.__new__(module.Prompt)
    prompt.mn = module.mininet_network(PLAN)
    for line in ("xterm", "gterm", "x"):
        prompt.onecmd(line)
    assert transcript.getvalue().splitlines() == [
        "usage: xterm node1 node2 ...",
        "usage: gterm node1 node2 ...",
        "usage: x node [cmd args]...",
    ]


def test_a_switch_is_stopped_however_many_blanks_there_are(
    module: ModuleType,
    transcript: io.StringIO,
    devices: dict[str, bool],
) -> None:
    prompt = module.Prompt.__new__(module.Prompt)
    prompt.mn = module.mininet_network(PLAN)
    prompt.onecmd("switch  s1   stop ")
    assert "*** s1 is stopped" in transcript.getvalue()
    assert not all(devices.values())


def test_switches_are_stopped_by_their_names_alone(
    module: ModuleType, transcript: io.StringIO
) -> None:
    prompt = module.Prompt.__new__(module.Prompt)
    prompt.mn = module.mininet_network(PLAN)
    for line in ("switch s1", "switch h1 stop", "switch s99 stop"):
        prompt.onecmd(line)
    assert transcript.getvalue().splitlines() == [
        "*** usage: switch NAME {start, stop}",
        "*** h1 is no switch",
        "*** unknown node: 's99'",
    ]


@pytest.fixture
def devices(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> dict[str, bool]:
    """Devices of links by name, and whether each is set up; a cable carries if both ends are."""
    up: dict[str, bool] = {}
    peer: dict[str, str] = {}
    for link in PLAN.links:
        peer[link.lower.name] = link.upper.name
        peer[link.upper.name] = link.lower.name
    for slot in PLAN.slots:
        peer[slot.port.name] = slot.port.name
    for name in peer:
        up[name] = True

    def ifconfig(intf: Any, state: str) -> str:
        up[intf.name] = state == "up"
        return ""

    def request(intf: Any, number: int) -> bytes:
        assert number == module.SIOCGIFFLAGS
        # IFF_MULTICAST, IFF_BROADCAST and IFF_UP.
        return struct.pack("=h21x", 0x1002 | up[intf.name])

    def carries(name: str) -> bool:
        return up[name] and up[peer[name]]

    monkeypatch.setattr(module.AttachedIntf, "ifconfig", ifconfig)
    monkeypatch.setattr(module.AttachedIntf, "_asked", request)
    monkeypatch.setattr(module, "has_carrier", carries)
    return up


def test_a_stopped_switch_stays_so_when_a_neighbour_starts_again(
    module: ModuleType, devices: dict[str, bool]
) -> None:
    net = module.mininet_network(PLAN)
    rack, core = net["tpn-r0"], net["tpn-c0"]
    (cable,) = net.linksBetween(rack, core)
    rack.stop()
    core.stop()
    rack.start()
    assert [
        name for name in devices if "-c0" in name and devices[name]
    ] == []
    assert not cable.intf1.isUp()
    core.start()
    assert all(devices.values())


def test_a_link_that_was_down_stays_down_when_its_switch_starts_again(
    module: ModuleType, devices: dict[str, bool]
) -> None:
    net = module.mininet_network(PLAN)
    rack, core = net["tpn-r0"], net["tpn-c0"]
    net.configLinkStatus("tpn-r0", "tpn-c0", "down")
    before = dict(devices)
    for switch in (rack, core):
        switch.stop()
    assert sum(devices.values()) < sum(before.values())
    for switch in (rack, core):
        switch.start()
    assert devices == before


# ------------------------------------------------------------------------ names of a topology


NAMED = MininetRecord(
    nodes={
        "c0": {"isSwitch": True},
        "s2": {"isSwitch": True},
        "s1": {"isSwitch": True},
        "h3": {"ip": "192.168.1.4/24"},
        "h1": {"mac": "00:00:00:00:00:0A"},
        "web": {"slots": 2, "ip": "10.9.0.1"},
    },
    links=[
        ("s1", "c0", {"bw": 10}),
        ("c0", "s2", {"bw": 10}),
        ("s2", "h3", {"bw": 10}),
        ("h1", "s1", {"bw": 10}),
        ("web", "s2", {"bw": 10}),
    ],
)


def test_the_controller_makes_room_for_every_name_of_a_topology(
    module: ModuleType,
) -> None:
    nodes: dict[str, Any] = {"h1": {}, "h2": {}}
    nodes |= {"c0": {"isSwitch": True}, "controller": {"isSwitch": True}}
    links = [("h1", "c0"), ("c0", "controller"), ("controller", "h2")]
    record = MininetRecord(
        nodes=nodes, links=[(*ends, {"bw": 10}) for ends in links]
    )
    net = module.mininet_network(network_plan(from_mininet(record), "tpn"))
    assert net.controllers[0] in net.values()
    assert {*map(str, net.switches)} >= {"c0", "controller"}
    assert len(dict(net.items())) == len(net)


def test_the_controller_makes_room_for_a_label_that_is_an_alias(
    module: ModuleType,
) -> None:
    """As the plain builder adds switches: by their bridges' names."""
    plan = network_plan(from_mininet(NAMED), "tpn")
    net = module.AttachedMininet(6653)
    net.switches = [
        module.AttachedSwitch(bridge, MACHINE) for bridge in plan.bridges
    ]
    net.name_nodes()
    for switch in net.switches:
        if switch.bridge.label:
            net.alias(switch.bridge.label, switch)
    assert net["c0"].bridge.label == "c0"
    assert net["controller"] is net.controllers[0]


def test_a_topology_that_names_its_nodes_has_its_names(
    module: ModuleType,
) -> None:
    plan = network_plan(from_mininet(NAMED), "tpn")
    net = module.mininet_network(plan)
    assert [host.name for host in net.hosts] == [
        "h3",
        "h1",
        "web-0",
        "web-1",
    ]
    assert [net[name].bridge.label for name in ("s1", "s2", "c0")] == [
        "s1",
        "s2",
        "c0",
    ]
    assert net["controller"] is net.controllers[0]
    bridges = {net[name].bridge.name for name in ("s1", "s2")}
    assert bridges == {"tpn-r0", "tpn-r1"}
    assert net["tpn-c0"] is net["c0"]
    assert len({*map(id, net.values())}) == len(net)
    # Neither by our numbers nor by our addresses.
    assert "s3" not in net
    assert net["h1"].slot.mac == "00:00:00:00:00:0a"
    ends = net.linksBetween(net["h1"], net["s1"])[0]
    assert {ends.intf1.node.name, ends.intf2.node.name} == {"tpn-s1", "s1"}
    assert len(net.linksBetween(net["c0"], net["s2"])) == 1
    assert net.linksBetween(net["h1"], net["s2"]) == []
    assert net.linksBetween(net["h1"], net["h3"]) == []


def test_a_named_switch_is_asked_by_its_bridge(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = []

    def cmd(_: Any, *words: Any, **options: Any) -> str:
        commands.append(" ".join(map(str, words)))
        return "true" if "is_connected" in commands[-1] else "[u-1]"

    monkeypatch.setattr("mininet.node.Node.cmd", cmd)
    net = module.mininet_network(network_plan(from_mininet(NAMED), "tpn"))
    switch = net["s1"]
    bridge = switch.bridge.name
    assert switch.connected()
    switch.vsctl("list-ports", switch)
    switch.dpctl("show")
    assert commands == [
        f"ovs-vsctl -- get Bridge {bridge} Controller",
        "ovs-vsctl -- get Controller u-1 is_connected",
        f"ovs-vsctl list-ports {bridge}",
        f"ovs-ofctl -O OpenFlow13 show {bridge}",
    ]


# ------------------------------------------------------------------------------------ ping, iperf


@pytest.fixture
def asked(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[tuple[str, str]]]:
    """Commands of hosts; every ping is answered."""
    commands: list[tuple[str, str]] = []

    def cmd(host: Any, *words: str) -> str:
        commands.append((host.name, " ".join(map(str, words))))
        return "1 packets transmitted, 1 received, 0% packet loss"

    monkeypatch.setattr(module.AttachedHost, "cmd", cmd)
    return commands


def test_hosts_without_an_address_are_left_out_of_pings(
    module: ModuleType,
    transcript: io.StringIO,
    asked: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses(module, monkeypatch, {"h2": "10.0.4.1", "h5": "10.0.4.2"})
    net = module.mininet_network(PLAN)
    both = [("h2", "ping -c1  10.0.4.2"), ("h5", "ping -c1  10.0.4.1")]
    for ping in (
        net.pingAll,
        net.pingPair,
        lambda: net.ping([net["h1"], net["h2"], net["h5"]]),
    ):
        asked.clear()
        assert ping() == 0
        assert asked == both
    assert "6 hosts without a tenant's VM" in transcript.getvalue()
    asked.clear()
    assert [(str(a), str(b)) for a, b, _ in net.pingAllFull()] == [
        ("h2", "h5"),
        ("h5", "h2"),
    ]
    assert len(net.pingPairFull()) == 2


def test_without_any_address_no_ping_is_sent(
    module: ModuleType,
    transcript: io.StringIO,
    asked: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses(module, monkeypatch, {})
    net = module.mininet_network(PLAN)
    assert net.pingAll() == 0
    assert net.pingPair() == 0
    assert net.pingAllFull() == []
    assert asked == []
    assert "No packets sent" in transcript.getvalue()


def test_iperf_without_a_way_is_refused_at_once(
    module: ModuleType,
    transcript: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses(module, monkeypatch, {"h2": "10.0.4.1", "h5": "10.0.4.2"})
    net = module.mininet_network(PLAN)
    with pytest.raises(RunFailed, match="h1 has no tenant's VM"):
        net.iperf((net["h1"], net["h2"]))
    monkeypatch.setattr(module, "_has_route", lambda *_: False)
    with pytest.raises(
        RunFailed, match="h2 and h5 are not VMs of one tenant"
    ):
        net.iperf()
    addresses(module, monkeypatch, {})
    with pytest.raises(RunFailed, match="h1 has no tenant's VM"):
        net.iperf()


def test_iperf_does_not_wait_for_a_server_that_has_ended(
    module: ModuleType,
    transcript: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where iperf is not installed, or a link is down."""
    addresses(module, monkeypatch, {"h2": "127.0.0.1", "h5": "127.0.0.1"})
    monkeypatch.setattr(module, "LISTENS_WITHIN_S", 0.3, raising=False)
    monkeypatch.setattr(module, "_has_route", lambda *_: True)
    attempts: list[str] = []

    def cmd(host: Any, *words: str) -> str:
        attempts.append(host.name)
        assert len(attempts) < 4, "it waits for ever"
        return "telnet: Connection refused"

    monkeypatch.setattr(module.AttachedHost, "cmd", cmd)
    net = module.mininet_network(PLAN)
    for host in (net["h2"], net["h5"]):
        monkeypatch.setattr(host, "inside", nullcontext)
        monkeypatch.setattr(host, "popen", ended_at_once)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(RunFailed, match=r"h5 .* no connection from h2"):
            net.iperf(port=bound.getsockname()[1])


def test_iperf_ends_where_its_server_does_not(
    module: ModuleType,
    transcript: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where a link goes down while data is on its way."""

    def deaf(_: object) -> subprocess.Popen[bytes]:
        script = "trap '' INT; echo ready; exec sleep 60"
        server = subprocess.Popen(
            ["sh", "-c", script], stdout=subprocess.PIPE
        )
        assert server.stdout is not None
        server.stdout.readline()
        return server

    addresses(module, monkeypatch, {"h2": "127.0.0.1", "h5": "127.0.0.1"})
    monkeypatch.setattr(module, "ENDS_WITHIN_S", 0.3, raising=False)
    monkeypatch.setattr(module, "_has_route", lambda *_: True)
    net = module.mininet_network(PLAN)
    monkeypatch.setattr(net["h2"], "pexec", lambda _: ("", "", 0))
    monkeypatch.setattr(net["h5"], "popen", deaf)
    with pytest.raises(RunFailed, match="h5 still waits for data of h2"):
        net.iperf(l4Type="UDP", seconds=0)


def ended_at_once(_: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["true"], stdout=subprocess.DEVNULL)


def test_iperf_refuses_a_protocol_that_it_does_not_know(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses(module, monkeypatch, {"h2": "10.0.4.1", "h5": "10.0.4.2"})
    net = module.mininet_network(PLAN)
    with pytest.raises(BadInput, match="l4Type udp: TCP or UDP"):
        net.iperf(l4Type="udp")


def test_a_prompts_refusal_is_a_sentence(
    module: ModuleType,
    transcript: io.StringIO,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses(module, monkeypatch, {})
    net = module.mininet_network(PLAN)
    script = tmp_path / "script"
    script.write_text(
        "iperf h1 h2\nnodes\ntpn-s0\na.0\nx h99\n"
        "py h1.terminate()\nh1 echo hi\npx n = 7\npy s1.name * n\n"
    )
    with Path("/dev/null").open() as nothing:
        module.Prompt(net, stdin=nothing, script=str(script))
    refused, rest = transcript.getvalue().split("available nodes are: \n")
    assert "*** no iperf: h1 has no tenant's VM\n" in refused
    assert "Please enter a command for node: tpn-s0" in rest
    assert "Unknown command: a.0" in rest
    assert "*** unknown node: 'h99'\n" in rest
    assert "*** no shell any more for h1 echo hi: leave" in rest
    assert rest.endswith("tpn-s0" * 7 + "\n")


def test_a_line_that_fails_an_assertion_is_told_by_what_failed(
    module: ModuleType,
    transcript: io.StringIO,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That a shell is missing is said where one is."""

    def unmet(*_: object) -> None:
        raise AssertionError("no two hosts")

    net = module.mininet_network(PLAN)
    monkeypatch.setattr(net, "pingAll", unmet)
    script = tmp_path / "script"
    script.write_text("pingall\nh1 echo hi\n")
    # A shell that runs a command; one that really starts needs a network.
    monkeypatch.setitem(vars(net["h1"]), "shell", object())
    monkeypatch.setitem(vars(net["h1"]), "waiting", value=True)
    with Path("/dev/null").open() as nothing:
        module.Prompt(net, stdin=nothing, script=str(script))
    told = transcript.getvalue()
    assert "no shell" not in told
    assert re.search(
        r"\*\*\* pingall: no two hosts \(test_mininet_objects\.py:\d+\)\n",
        told,
    )
    assert (
        "*** h1 still runs a command, and cannot run h1 echo hi:"
        " py h1.waitOutput() waits for its end\n" in told
    )


# ------------------------------------------------------------------------------ shells and signals


@pytest.fixture
def controller(module: ModuleType) -> Iterator[Any]:
    """A node whose shell needs neither a network nor root."""
    node = module.mininet_network(PLAN).controllers[0]
    yield node
    node.terminate()


def test_a_ctrl_c_as_a_shell_starts_is_neither_lost_nor_cuts_the_start_short(
    controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened = interrupt_at_start(monkeypatch, "mininet:c0")
    with pytest.raises(KeyboardInterrupt):
        controller.cmd("true")
    assert len(happened) == 1
    pid = controller.pid
    assert controller.cmd("echo $$").strip() == str(
        pid
    )  # the same shell, whole
    controller.terminate()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_shell_of_a_program_that_ignores_hang_ups_is_ended_by_one(
    controller: Any,
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        ignored = controller.cmd("grep SigIgn /proc/$$/status").split()[1]
        popened, _, _ = controller.pexec(
            "grep", "SigIgn", "/proc/self/status"
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    for mask in (ignored, popened.split()[1]):
        assert not int(mask, 16) >> (signal.SIGHUP - 1) & 1


def test_a_shell_that_could_not_start_is_tried_again(
    controller: Any,
    transcript: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "no process left")

    # Files of other tests that nobody holds any more are closed first.
    gc.collect()
    open_before = set(Path("/proc/self/fd").iterdir())
    with monkeypatch.context() as patch:
        patch.setattr("mininet.node.Popen", refused)
        for _ in range(2):
            with pytest.raises(BlockingIOError):
                controller.cmd("true")
    # A thread of an earlier test may close one meanwhile.
    assert set(Path("/proc/self/fd").iterdir()) <= open_before
    assert controller.cmd("echo back").strip() == "back"
    assert "exited" not in transcript.getvalue()
