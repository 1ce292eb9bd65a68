"""Links with delay, jitter and loss on the live network: measured by packets of its own."""

from __future__ import annotations

import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from jobs.linux import inside_network_namespace
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
)
from testbed.backends.emu.commands import run
from testbed.backends.emu.emulated_network import EmulatedNetwork
from testbed.backends.emu.installed_state import (
    differences,
    installed_limits,
    tc_objects,
)
from testbed.backends.emu.traffic_control import NETNS_DIR
from testbed.embedding.placement import Placement
from testbed.plan.limits import network_limits
from testbed.plan.network_plan import (
    NetworkPlan,
    TenantPlan,
    TenantVm,
    network_plan,
    tenant_plan,
)
from topologies.datacentre import PLAIN, DataCentre, LinkQuality
from topologies.tree import tree

pytestmark = pytest.mark.needs("netem")

MBIT = 1_000_000
CONTROLLER_PORT = 6699
PORT = 7000
PACKETS = 1000
GAP_S = 0.002
# Both ends of a transfer are in this process, which may wait for a processor.
TRIES = 3
# Two server links and two core links lie between the racks.
DELAYED = LinkQuality(delay_s=0.020, jitter_s=0.005)
LOSSY = LinkQuality(loss_share=0.10)


def centre(core: LinkQuality, servers: LinkQuality) -> DataCentre:
    return tree([2, 1], 40 * MBIT, 2).with_level_qualities([core, servers])


def placed(datacentre: DataCentre, plan: NetworkPlan) -> TenantPlan:
    """A VM on each of the two servers."""
    slots = tuple(plan.slots_of_server[server][0] for server in (0, 1))
    placement = Placement(datacentre.trees[0].root, ((0, 1), (1, 1)))
    return tenant_plan(
        datacentre, plan, placement, slots, 7, "j", 10 * MBIT
    )


@dataclass
class Arrivals:
    """One-way delays of packets, in order of arrival, and their numbers."""

    numbers: list[int] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)
    all_are_sent: threading.Event = field(default_factory=threading.Event)

    def receive(self, sock: socket.socket) -> None:
        """Until nothing has come for a while after the last was sent."""
        while True:
            is_last = self.all_are_sent.is_set()
            try:
                data = sock.recv(200)
            except TimeoutError:
                if is_last:
                    return
                continue
            now_ns = time.monotonic_ns()
            number, sent_ns = struct.unpack_from("=Qq", data)
            self.numbers.append(number)
            self.delays_s.append((now_ns - sent_ns) / 1e9)


def opened(
    vm: TenantVm, kind: int = socket.SOCK_DGRAM, port: int = PORT
) -> socket.socket:
    with inside_network_namespace(NETNS_DIR / vm.slot.netns):
        sock = socket.socket(socket.AF_INET, kind)
    sock.bind((str(vm.ip), port))
    return sock


def sent_between(tenant: TenantPlan) -> Arrivals:
    """Arrivals of packets from the first VM to the second."""
    sender, receiver = (opened(vm) for vm in tenant.vms)
    receiver.settimeout(3.0)
    arrivals = Arrivals()
    listening = threading.Thread(target=arrivals.receive, args=(receiver,))
    listening.start()
    for number in range(PACKETS):
        body = struct.pack("=Qq", number, time.monotonic_ns()).ljust(150)
        sender.sendto(body, (str(tenant.vms[1].ip), PORT))
        time.sleep(GAP_S)
    arrivals.all_are_sent.set()
    listening.join()
    for sock in (sender, receiver):
        sock.close()
    return arrivals


@pytest.mark.parametrize("slow", [False, True])
def test_packets_are_late_and_lost_as_the_topology_says(
    prefix: str, journal: CleanupJournal, *, slow: bool
) -> None:
    datacentre = centre(PLAIN, PLAIN)
    if slow:
        datacentre = centre(LOSSY, DELAYED)
    plan = network_plan(datacentre, prefix)
    with EmulatedNetwork(plan, journal, CONTROLLER_PORT) as network:
        forward(plan)
        tenant = placed(datacentre, plan)
        network.configure_tenant(tenant)
        sent_between(tenant)  # the switch learns where the VMs are
        arrivals = sent_between(tenant)
        unshaped = network.unshaped_packets()
    delays_s = sorted(arrivals.delays_s)
    kept = len(delays_s) / PACKETS
    print(
        f"slow={slow}: kept {kept:.3f}, one way {delays_s[0] * 1e3:.1f} to"
        f" {delays_s[-1] * 1e3:.1f} ms, median {delays_s[len(delays_s) // 2] * 1e3:.1f}"
    )
    assert unshaped == {}
    # netem lets none overtake another. Two processors may, now and then; with
    # jitter in any order a third would.
    pairs = pairwise(arrivals.numbers)
    assert sum(later < sooner for sooner, later in pairs) <= PACKETS * 0.02
    if not slow:
        assert delays_s[0] < 0.020
        assert kept == 1.0
        return
    # netem is never early; of a thousand packets the soonest met no busy machine.
    assert 0.030 <= delays_s[0] < 0.060
    assert delays_s[-1] - delays_s[0] > 0.002
    # Each is lost on neither of two links: 0.81, and five deviations.
    assert 0.75 < kept < 0.87


# In struct tcp_info (linux/tcp.h): the smallest round trip, in us, and times in
# us that a sender had data, and was held by the window or by its own buffer.
MSS_AT, CWND_AT, MIN_RTT_AT, TIMES_AT = 16, 80, 148, 168


def test_a_reserved_transfers_windows_hold_its_round_trips(
    prefix: str, journal: CleanupJournal
) -> None:
    datacentre = centre(PLAIN, LinkQuality(delay_s=0.050))
    plan = network_plan(datacentre, prefix)
    with EmulatedNetwork(plan, journal, CONTROLLER_PORT) as network:
        forward(plan)
        tenant = placed(datacentre, plan)
        network.configure_tenant(tenant)
        held: list[str] = []
        while len(held) < TRIES and "" not in held:
            held.append(held_up(tenant, PORT + len(held)))
    assert "" in held, held


def held_up(tenant: TenantPlan, port: int) -> str:
    """Whatever held up a transfer of four seconds beside its rate; empty:
    nothing.
    """
    receiver = opened(tenant.vms[1], socket.SOCK_STREAM, port)
    receiver.listen()
    sender = opened(tenant.vms[0], socket.SOCK_STREAM, port)
    sender.connect((str(tenant.vms[1].ip), port))
    accepted, _ = receiver.accept()
    taken = threading.Thread(target=drained, args=(accepted,))
    # As agents do, before they send.
    sender.sendall(b"hello")
    accepted.sendall(b"welcome")
    sender.recv(7)
    taken.start()
    began_s = time.monotonic()
    sender.sendall(bytes(tenant.rate_bps // 8 * 4))
    info = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    sender.shutdown(socket.SHUT_WR)
    taken.join()
    took_s = time.monotonic() - began_s
    for sock in (sender, receiver, accepted):
        sock.close()
    (mss,) = struct.unpack_from("=I", info, MSS_AT)
    (cwnd,) = struct.unpack_from("=I", info, CWND_AT)
    (min_rtt_us,) = struct.unpack_from("=I", info, MIN_RTT_AT)
    busy, by_window, by_buffer = struct.unpack_from("=QQQ", info, TIMES_AT)
    said = (
        f"round trips of {min_rtt_us / 1e3:.1f} ms, window {cwnd * mss:,} bytes; of"
        f" {busy / 1e6:.2f} s {by_window / 1e6:.2f} held by the receiver's window,"
        f" {by_buffer / 1e6:.2f} by the sender's buffer; 4 s of the rate took {took_s:.2f} s"
    )
    print(said)
    assert min_rtt_us >= 200_000
    assert cwnd * mss >= tenant.rate_bps * 0.2 / 8
    # The kernel opens a receiver's window beyond the 64 kB of a handshake as
    # data come: the first round trip is held by it, and no later one.
    is_held = by_window > 1.5 * min_rtt_us or by_buffer > 0.05 * busy
    return said if is_held else ""


def drained(sock: socket.socket) -> None:
    while sock.recv(1 << 16):
        pass


def forward(plan: NetworkPlan) -> None:
    """Has the bridges forward as plain switches do: a tree has no loops."""
    for bridge in plan.bridges:
        run(
            [
                "ovs-ofctl",
                "-OOpenFlow13",
                "add-flow",
                bridge.name,
                "actions=NORMAL",
            ]
        )


def test_the_kernel_has_what_was_planned(
    prefix: str, journal: CleanupJournal
) -> None:
    datacentre = centre(LOSSY, DELAYED)
    plan = network_plan(datacentre, prefix)
    with EmulatedNetwork(plan, journal, CONTROLLER_PORT) as network:
        assert faults(network.plan) == []
        wider = plan.with_capacity(0, 80 * MBIT, 60 * MBIT)
        network.set_capacities(wider, [])
        assert network.plan == wider
        assert faults(wider) == []
        assert faults(plan) != []


def faults(plan: NetworkPlan) -> list[tuple[str, str]]:
    (section,) = network_limits(plan)
    devices = [
        port.name
        for link in plan.links
        for port in (link.lower, link.upper)
    ]
    planned = tc_objects([line.text() for line in section.lines])
    return list(differences(planned, installed_limits(None, devices)))
