"""Links with delay, jitter and loss on the live network: measured by packets of its own."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jobs.linux import inside_network_namespace
from testbed.backends.emu.cleanup import remove_run
from testbed.backends.emu.cleanup_journal import (
    STATE_VARIABLE,
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
# Two server links and two core links lie between the racks.
DELAYED = LinkQuality(delay_s=0.020, jitter_s=0.005)
LOSSY = LinkQuality(loss_share=0.10)


def centre(core: LinkQuality, servers: LinkQuality) -> DataCentre:
    return tree([2, 1], 40 * MBIT, 2).with_level_qualities([core, servers])


@pytest.fixture
def journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CleanupJournal]:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    made = CleanupJournal.create("test")
    yield made
    remove_run(made)


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

    def receive(self, sock: socket.socket) -> None:
        while True:
            try:
                data = sock.recv(200)
            except TimeoutError:
                return
            now_ns = time.monotonic_ns()
            number, sent_ns = struct.unpack_from("=Qq", data)
            self.numbers.append(number)
            self.delays_s.append((now_ns - sent_ns) / 1e9)


def opened(vm: TenantVm) -> socket.socket:
    with inside_network_namespace(NETNS_DIR / vm.slot.netns):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((str(vm.ip), PORT))
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
        for bridge in plan.bridges:
            # As plain switches do: a tree has no loops.
            run(
                [
                    "ovs-ofctl",
                    "-OOpenFlow13",
                    "add-flow",
                    bridge.name,
                    "actions=NORMAL",
                ]
            )
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
    # None overtakes another, whatever the jitter.
    assert arrivals.numbers == sorted(set(arrivals.numbers))
    if not slow:
        assert delays_s[0] < 0.020
        assert kept == 1.0
        return
    # netem is never early; of a thousand packets the soonest met no busy machine.
    assert 0.030 <= delays_s[0] < 0.060
    assert delays_s[-1] - delays_s[0] > 0.002
    # Each is lost on neither of two links: 0.81, and five deviations.
    assert 0.75 < kept < 0.87


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
