"""The controller in front of Open vSwitch, on each library: the rules, the traffic, the restarts.

Two servers with two slots each and one rack, in namespaces and bridges of the test's own. Frames
go in by raw sockets, so that they can lie about everything; where they leave it is compared with
what the fake network of the unit tests does with the same packets.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from controller.api_client import SwitchesRefused
from controller.flow_rules import COOKIE_TAG, desired_flows, tenant_flows
from controller.process import ControllerProcess, start_controller
from controller.values import (
    AttachedVm,
    DesiredState,
    Switch,
    Tenant,
    TreeEdge,
)
from tests.support.fake_datacentre import FakeDataCentre, Slot, mac_of
from tests.support.fake_switch import Packet, tagged, text_of_dumped_flow
from tests.support.own_addresses import free_port
from tests.support.watching_client import WatchingClient

LIBRARIES = [
    pytest.param("ryu", marks=pytest.mark.needs("ryu")),
    pytest.param("os-ken", marks=pytest.mark.needs("os-ken")),
]
SERVERS, RACK, UPLINK = (1, 2), 3, 9
CONNECT_TIMEOUT_S = 60.0
ARRIVAL_TIMEOUT_S = 60.0


MARK = b"HOSENET:"
# In a namespace: sends the frames it is told in hexadecimal, and says the number in every frame
# with the mark that comes in.
AGENT = r"""
import os, re, select, socket, sys
orders = b""
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind(("eth0", 0))
print("ready", flush=True)
while True:
    ready = select.select([wire, sys.stdin], [], [])[0]
    if wire in ready:
        frame, where = wire.recvfrom(65536)
        number = re.search(sys.argv[1].encode() + rb"([0-9]+);", frame)
        if number and where[2] != socket.PACKET_OUTGOING:
            print(number[1].decode(), flush=True)
    if sys.stdin in ready:
        part = os.read(0, 65536)
        if not part:
            break
        *complete, orders = (orders + part).split(b"\n")
        for order in complete:
            wire.send(bytes.fromhex(order.decode()))
"""


@dataclass
class Agent:
    """Sends and hears raw frames in one namespace."""

    process: subprocess.Popen[str]
    heard: list[int] = field(default_factory=list)
    output: bytes = b""

    def send(self, frame: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(frame.hex() + "\n")
        self.process.stdin.flush()

    def hear_until(self, number: int) -> None:
        """Wait for a frame."""
        assert self.process.stdout is not None
        while number not in self.heard:
            ready, _, _ = select.select(
                [self.process.stdout], [], [], ARRIVAL_TIMEOUT_S
            )
            assert ready, f"frame {number} has not come"
            *lines, self.output = (
                self.output + os.read(ready[0].fileno(), 65536)
            ).split(b"\n")
            self.heard += [int(line) for line in lines]


def frame_of(packet: Packet, number: int) -> bytes:
    """The packet on the wire, with its number as payload."""
    payload = MARK + f"{number};".encode()
    body = struct.pack(
        "!BBHHHBBH4s4s",
        *(0x45, 0, 28 + len(payload), 0, 0, 64, socket.IPPROTO_UDP, 0),
        *(socket.inet_aton(packet.ip_src), socket.inet_aton(packet.ip_dst)),
    )
    body += struct.pack("!HHHH", 9, 9, 8 + len(payload), 0) + payload
    tag = (
        b""
        if packet.vlan is None
        else struct.pack("!HH", 0x8100, packet.vlan)
    )
    macs = bytes.fromhex("020000000000" + packet.eth_src.replace(":", ""))
    return macs + tag + struct.pack("!H", packet.eth_type) + body


def run(*command: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, (
        f"{' '.join(command)}: {done.stderr.strip()}"
    )
    return done.stdout


def vsctl(*arguments: str) -> str:
    return run("ovs-vsctl", "--timeout=60", *arguments)


def ofctl(*arguments: str) -> str:
    return run("ovs-ofctl", "-O", "OpenFlow13", *arguments)


def datapath_type() -> str:
    return (
        "system" if Path("/sys/module/openvswitch").exists() else "netdev"
    )


@dataclass
class Fabric:
    """The live network. Bridges and links are named after the test's prefix."""

    prefix: str
    stack: ExitStack
    agents: dict[Slot, Agent] = field(default_factory=dict)

    @property
    def datacentre(self) -> FakeDataCentre:
        server_ports = (1, 2, UPLINK)
        switches = [
            *(
                Switch(dpid, self.bridge(dpid), "server", server_ports)
                for dpid in SERVERS
            ),
            Switch(RACK, self.bridge(RACK), "rack", SERVERS),
        ]
        links = tuple(
            TreeEdge(server, UPLINK, RACK, server) for server in SERVERS
        )
        slots = tuple(
            (server, port) for server in SERVERS for port in (1, 2)
        )
        return FakeDataCentre(tuple(switches), links, slots)

    def bridge(self, dpid: int) -> str:
        return f"{self.prefix}-b{dpid}"

    def namespace(self, slot: Slot) -> str:
        return f"{self.prefix}-n{slot[0]}{slot[1]}"

    def build(self) -> None:
        for switch in self.datacentre.switches:
            self.add_bridge(switch)
        for link in self.datacentre.links:
            lower, upper = (
                f"{self.prefix}-u{link.child_dpid}",
                f"{self.prefix}-d{link.child_dpid}",
            )
            run(
                "ip",
                "link",
                "add",
                lower,
                "type",
                "veth",
                "peer",
                "name",
                upper,
            )
            self.stack.callback(run, "ip", "link", "delete", lower)
            self.add_port(link.child_dpid, link.child_port, lower)
            self.add_port(link.parent_dpid, link.parent_port, upper)
        for slot in self.datacentre.slots:
            self.add_slot(slot)

    def add_bridge(self, switch: Switch) -> None:
        vsctl(
            *("add-br", switch.name, "--", "set", "bridge", switch.name),
            *(
                f"datapath_type={datapath_type()}",
                "fail_mode=secure",
                "protocols=OpenFlow13",
            ),
            f"other_config:datapath-id={switch.dpid:016x}",
        )
        self.stack.callback(vsctl, "del-br", switch.name)

    def add_port(self, dpid: int, port: int, device: str) -> None:
        run("ip", "link", "set", device, "up")
        vsctl(
            *("add-port", self.bridge(dpid), device),
            *("--", "set", "interface", device, f"ofport_request={port}"),
        )

    def add_slot(self, slot: Slot) -> None:
        namespace, device = (
            self.namespace(slot),
            f"{self.prefix}-v{slot[0]}{slot[1]}",
        )
        run("ip", "netns", "add", namespace)
        self.stack.callback(run, "ip", "netns", "delete", namespace)
        run(
            *("ip", "link", "add", device, "type", "veth"),
            *(
                "peer",
                "name",
                "eth0",
                "address",
                mac_of(slot),
                "netns",
                namespace,
            ),
        )
        self.inside(slot, "ip", "link", "set", "eth0", "up")
        # The userspace datapath does not fill in the checksums that a veth leaves open.
        self.inside(slot, "ethtool", "-K", "eth0", "tx", "off")
        self.add_port(*slot, device)

    def inside(self, slot: Slot, *command: str) -> str:
        return run("ip", "netns", "exec", self.namespace(slot), *command)

    def agent(self, slot: Slot) -> Agent:
        """The agent of a slot; started at first use."""
        if slot not in self.agents:
            self.agents[slot] = Agent(
                self.start_inside(slot, AGENT, MARK.decode())
            )
        return self.agents[slot]

    def start_inside(
        self, slot: Slot, *program: str
    ) -> subprocess.Popen[str]:
        """Start a Python program in a namespace; it has said that it is ready."""
        process = self.stack.enter_context(
            subprocess.Popen(
                [
                    "ip",
                    "netns",
                    "exec",
                    self.namespace(slot),
                    sys.executable,
                    "-c",
                    *program,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
        )
        self.stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def move_in(self, tenant: Tenant) -> None:
        """Give the namespaces a tenant's addresses, and its VMs each other's."""
        for vm in tenant.vms:
            slot = (vm.dpid, vm.port)
            self.inside(
                slot, "ip", "address", "add", f"{vm.ip}/22", "dev", "eth0"
            )
            for other in tenant.vms:
                self.inside(
                    slot,
                    *(
                        "ip",
                        "neighbour",
                        "replace",
                        other.ip,
                        "lladdr",
                        other.mac,
                    ),
                    *("nud", "permanent", "dev", "eth0"),
                )

    def connect(self, port: int) -> None:
        for switch in self.datacentre.switches:
            vsctl(
                *("set-controller", switch.name, f"tcp:127.0.0.1:{port}"),
                *(
                    "--",
                    "set",
                    "controller",
                    switch.name,
                    "max_backoff=1000",
                ),
            )

    def dumped(self, dpid: int) -> list[str]:
        lines = ofctl("dump-flows", self.bridge(dpid)).splitlines()
        return sorted(
            text_of_dumped_flow(line) for line in lines if "cookie=" in line
        )

    def assert_flows(self, state: DesiredState) -> None:
        for dpid, flows in desired_flows(state).items():
            assert self.dumped(dpid) == sorted(
                flow.text() for flow in flows
            )


@pytest.fixture
def fabric(prefix: str) -> Iterator[Fabric]:
    with ExitStack() as stack:
        fabric = Fabric(prefix, stack)
        fabric.build()
        yield fabric


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def tenants(fabric: Fabric) -> tuple[Tenant, Tenant]:
    """Two tenants, each with a VM on both servers."""
    slots = fabric.datacentre.slots
    return (
        fabric.datacentre.tenant(3, [slots[0], slots[2]], lambda _count: 0),
        fabric.datacentre.tenant(4, [slots[1], slots[3]], lambda _count: 0),
    )


def bring_up(fabric: Fabric, client: WatchingClient) -> DesiredState:
    state = DesiredState().with_network(fabric.datacentre.switches)
    client.put_network(fabric.datacentre.switches)
    client.wait_connected(timeout_s=CONNECT_TIMEOUT_S)
    for tenant in tenants(fabric):
        client.add_tenant(tenant)
        fabric.move_in(tenant)
        state = state.with_tenant(tenant)
    return state


def wait_disconnected(client: WatchingClient, dpid: int) -> None:
    """Until the controller has noticed that a switch is gone."""
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    while any(
        s.connected for s in client.state().switches if s.dpid == dpid
    ):
        assert time.monotonic() < deadline, "its end is not noticed"
        time.sleep(0.01)


def started(
    fabric: Fabric, library: str, *more: str
) -> tuple[ControllerProcess, WatchingClient]:
    options = (
        "--openflow-port",
        "0",
        "--api-port",
        "0",
        "--library",
        library,
        *more,
    )
    with tempfile.TemporaryFile() as log:
        process = fabric.stack.enter_context(
            start_controller(log, *options)
        )
    return process, fabric.stack.enter_context(WatchingClient.of(process))


@dataclass(frozen=True)
class Case:
    """A packet, and the slot it is sent from."""

    slot: Slot
    packet: Packet


def lies(state: DesiredState) -> list[Case]:
    """Everything a VM could try: all pairs, each honestly and with each kind of lie."""
    vms = [vm for tenant in state.tenants for vm in tenant.vms]
    cases = []
    for source in vms:
        slot = (source.dpid, source.port)
        for target in vms:
            honest = Packet(source.mac, source.ip, target.ip)
            packets = [
                honest,
                replace(honest, eth_type=0x0806),
                replace(honest, eth_type=0x86DD),
                replace(honest, ip_dst="255.255.255.255"),
                tagged(honest, 0),
                tagged(honest, 7),
            ]
            for other in vms:
                packets += [
                    replace(honest, ip_src=other.ip),
                    replace(honest, eth_src=other.mac),
                    replace(honest, ip_src=other.ip, eth_src=other.mac),
                ]
            cases += [Case(slot, packet) for packet in packets]
    return cases


def deliveries(
    fabric: Fabric,
    cases: list[Case],
    honest: list[tuple[AttachedVm, AttachedVm]],
) -> dict[Slot, list[int]]:
    """Send all cases; who heard which. `honest` pairs can talk, and close the experiment.

    What goes in at a port is dealt with in order: when the closing frames have come from every
    source that can reach anybody, nothing that was sent before is still to come.
    """
    for number, case in enumerate(cases):
        fabric.agent(case.slot).send(frame_of(case.packet, number))
    for closing, (source, target) in enumerate(honest, len(cases)):
        packet = Packet(source.mac, source.ip, target.ip)
        fabric.agent((source.dpid, source.port)).send(
            frame_of(packet, closing)
        )
    for closing, (_, target) in enumerate(honest, len(cases)):
        fabric.agent((target.dpid, target.port)).hear_until(closing)
    heard = {}
    for slot, agent in sorted(fabric.agents.items()):
        heard[slot] = sorted(
            number for number in agent.heard if number < len(cases)
        )
        agent.heard.clear()
    return heard


def expected_deliveries(
    fabric: Fabric, state: DesiredState, cases: list[Case]
) -> dict[Slot, list[int]]:
    """Deliveries of the same packets in the fake network."""
    network = fabric.datacentre.network(state)
    heard: dict[Slot, list[int]] = {
        slot: [] for slot in sorted(fabric.datacentre.slots)
    }
    for number, case in enumerate(cases):
        for delivery in network.send(case.packet, *case.slot):
            heard[delivery.dpid, delivery.port].append(number)
    return heard


@pytest.mark.smoke
def test_rules_and_traffic(fabric: Fabric, library: str) -> None:
    process, client = started(fabric, library)
    fabric.connect(process.openflow_port)
    state = bring_up(fabric, client)
    fabric.assert_flows(state)
    assert client.state().library == library
    assert client.flows() == {
        fabric.bridge(dpid): tuple(flow.text() for flow in flows)
        for dpid, flows in desired_flows(state).items()
    }
    for slot in fabric.datacentre.slots:
        fabric.agent(slot)
    cases = lies(state)
    pairs = [
        (a, b)
        for t in state.tenants
        for a in t.vms
        for b in t.vms
        if a is not b
    ]
    heard = deliveries(fabric, cases, pairs)
    assert heard == expected_deliveries(fabric, state, cases)
    assert [len(numbers) for _, numbers in sorted(heard.items())] == [
        4,
        4,
        4,
        4,
    ]

    client.remove_tenant(3)
    state = state.without_tenant(3)
    fabric.assert_flows(state)
    pairs = [
        (a, b)
        for t in state.tenants
        for a in t.vms
        for b in t.vms
        if a is not b
    ]
    assert deliveries(fabric, cases, pairs) == expected_deliveries(
        fabric, state, cases
    )


# Sends a numbered datagram every 10 ms until its input ends, then says how many.
SENDER = """
import select, socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sent = 0
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.01)[0]:
    out.sendto(sent.to_bytes(4, "big"), (sys.argv[1], 9000))
    sent += 1
print(sent)
"""
# Takes datagrams until it has as many as it is histories, or nothing comes any more; says which.
RECEIVER = """
import select, socket, sys
into = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
into.bind((sys.argv[1], 9000))
print("ready", flush=True)
got, inputs, wanted, patience = [], [into, sys.stdin], None, None
while True:
    if wanted is not None:
        patience = 20.0 if len(got) < wanted else 0.1
    ready = select.select(inputs, [], [], patience)[0]
    if not ready:
        break
    if into in ready:
        got.append(int.from_bytes(into.recv(64), "big"))
    if sys.stdin in ready:
        wanted = int(sys.stdin.readline())
        inputs.remove(sys.stdin)
print(len(got), got == sorted(set(got)))
"""


@dataclass
class Stream:
    """Datagrams from one VM to another until it is asked what came of them."""

    sender: subprocess.Popen[str]
    receiver: subprocess.Popen[str]

    def result(self) -> tuple[int, int, bool]:
        """Numbers of packets sent and received, and if each came once and in order."""
        sent, _ = self.sender.communicate(timeout=60)
        received, _ = self.receiver.communicate(sent, timeout=60)
        count, in_order = received.split()
        return int(sent), int(count), in_order == "True"


def stream(
    fabric: Fabric, source: AttachedVm, target: AttachedVm
) -> Stream:
    receiver = fabric.start_inside(
        (target.dpid, target.port), RECEIVER, target.ip
    )
    return Stream(
        fabric.start_inside((source.dpid, source.port), SENDER, target.ip),
        receiver,
    )


def assert_heard(
    fabric: Fabric, source: AttachedVm, target: AttachedVm
) -> None:
    listener = fabric.agent((target.dpid, target.port))
    packet = Packet(source.mac, source.ip, target.ip)
    fabric.agent((source.dpid, source.port)).send(frame_of(packet, 0))
    listener.hear_until(0)


def test_traffic_does_not_notice_a_restart_of_the_controller(
    fabric: Fabric, library: str, tmp_path: Path
) -> None:
    folder = str(tmp_path / "state")
    # One of the kernel's own could be another program's while nobody listens.
    port = str(free_port())
    kept = ("--state-dir", folder, "--openflow-port", port)
    process, client = started(fabric, library, *kept)
    fabric.connect(process.openflow_port)
    state = bring_up(fabric, client)
    source, target = state.tenants[0].vms
    running = stream(fabric, source, target)
    process.process.kill()
    process.process.wait(60)
    fabric.assert_flows(state)
    # While it is away somebody tampers: a rule of a tenant goes, one in our name comes.
    victim = fabric.bridge(RACK)
    ofctl("del-flows", victim, "table=1,ip,nw_src=10.0.16.0/22")
    ofctl(
        "add-flow",
        victim,
        f"cookie={COOKIE_TAG | 77:#x},table=0,priority=9,arp,actions=normal",
    )
    assert fabric.dumped(RACK) != sorted(
        f.text() for f in desired_flows(state)[RACK]
    )

    _, client = started(fabric, library, *kept)
    client.wait_connected(timeout_s=CONNECT_TIMEOUT_S)
    fabric.assert_flows(state)
    sent, received, in_order = running.result()
    assert sent > 0
    assert (received, in_order) == (sent, True)
    other = state.tenants[1].vms
    assert_heard(fabric, other[0], other[1])


@pytest.mark.short("ryu")
def test_foreign_changes_are_repaired_on_reconnecting_and_on_request(
    fabric: Fabric, library: str
) -> None:
    process, client = started(fabric, library)
    fabric.connect(process.openflow_port)
    state = bring_up(fabric, client)
    source, target = state.tenants[0].vms
    victim = fabric.bridge(source.dpid)

    def tamper() -> None:
        ofctl("del-flows", victim, "table=0,ip,in_port=1")
        ofctl(
            "add-flow",
            victim,
            f"cookie={COOKIE_TAG | 3:#x},table=1,priority=5,udp,actions=2",
        )

    tamper()
    vsctl("del-controller", victim)
    wait_disconnected(client, source.dpid)
    fabric.connect(process.openflow_port)
    client.wait_connected(timeout_s=CONNECT_TIMEOUT_S)
    fabric.assert_flows(state)
    assert_heard(fabric, source, target)

    tamper()
    ofctl(
        "add-flow", victim, "cookie=0x5,table=0,priority=5,arp,actions=drop"
    )
    (repaired,) = client.reconcile()
    # The rule in our name has a shape that we never use: its tenant's rules are all put in anew.
    tenants_rules = tenant_flows(state.tenants[0])[source.dpid]
    # And the rule of others is removed.
    assert (repaired.name, repaired.added, repaired.removed) == (
        victim,
        len(tenants_rules),
        2,
    )
    fabric.assert_flows(state)
    assert client.reconcile() == []


@pytest.mark.short("ryu")
def test_a_bridge_whose_table_is_full_refuses_and_nothing_stays(
    fabric: Fabric, library: str
) -> None:
    process, client = started(fabric, library)
    fabric.connect(process.openflow_port)
    state = bring_up(fabric, client).without_tenant(4)
    client.remove_tenant(4)
    fabric.assert_flows(state)
    room = sum(flow.table == 1 for flow in desired_flows(state)[RACK]) + 1
    vsctl(
        *("--", "--id=@full", "create", "Flow_Table", f"flow_limit={room}"),
        *(
            "overflow_policy=refuse",
            "--",
            "set",
            "bridge",
            fabric.bridge(RACK),
            "flow_tables:1=@full",
        ),
    )
    with pytest.raises(SwitchesRefused) as caught:
        client.add_tenant(tenants(fabric)[1])
    assert caught.value.refused == (
        (fabric.bridge(RACK), "OpenFlow error type 5, code 1"),
    )
    fabric.assert_flows(state)
    vsctl("clear", "bridge", fabric.bridge(RACK), "flow_tables")
    client.add_tenant(tenants(fabric)[1])
    fabric.assert_flows(state.with_tenant(tenants(fabric)[1]))


@pytest.mark.short("ryu")
def test_a_bridge_that_is_made_anew_gets_its_rules(
    fabric: Fabric, library: str
) -> None:
    process, client = started(fabric, library)
    fabric.connect(process.openflow_port)
    state = bring_up(fabric, client)
    rack = next(
        switch
        for switch in fabric.datacentre.switches
        if switch.dpid == RACK
    )
    vsctl("del-br", rack.name)
    wait_disconnected(client, RACK)
    with ExitStack() as aside:
        # The bridge's own removal stays with the fabric; only its making is repeated.
        Fabric(fabric.prefix, aside).add_bridge(rack)
        aside.pop_all()
    for link in fabric.datacentre.links:
        fabric.add_port(
            RACK, link.parent_port, f"{fabric.prefix}-d{link.child_dpid}"
        )
    fabric.connect(process.openflow_port)
    client.wait_connected([RACK], timeout_s=CONNECT_TIMEOUT_S)
    fabric.assert_flows(state)
    source, target = state.tenants[0].vms
    assert_heard(fabric, source, target)
