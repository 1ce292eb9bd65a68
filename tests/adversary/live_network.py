"""Attacks of a tenant on a live network: frames, rules and processors."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from unittest import mock

from bench.hostile_tenant import LOOPS, beside_loops
from bench.live_network import network, pair
from jobs.linux import inside_network_namespace
from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.traffic_control import NETNS_DIR
from testbed.failures import Failure
from testbed.plan import vm_limits
from testbed.plan.batch_lines import VM_DEVICE
from testbed.plan.network_plan import TenantPlan
from tests.adversary.attack import Attack, Tries
from tests.adversary.frames import KINDS, MARK, Scene, Station
from topologies.tree import tree

LINK_BPS = 200_000_000
ROUNDS = 5
ARRIVE_S = 0.5
PAUSE_S = 0.0005
ETH_P_ALL = 0x0003
# Rules of somebody's, above all of the controller's.
OPEN = "priority=65535,actions=ALL"
MBPS, TRIES = 200, 4
LOST = 0.95
"""Share of what a tenant has alone, below which a neighbour took some."""
HEAVY = 64


def attacks() -> list[Attack]:
    return [
        Attack(
            "frames",
            f"{len(KINDS)} kinds of frames reach another tenant's VMs",
            _closed_frames,
            _open_frames,
            expected_s=30,
        ),
        Attack(
            "rules of others",
            "rules that somebody puts into the switches outlive a controller",
            _rules_before_a_controller,
            _rules_without_one,
            expected_s=30,
        ),
        Attack(
            "processor hogs",
            "busy loops in VMs take a neighbour's bandwidth",
            lambda: _hogs(vm_limits.VM_PROCESSES_PER_CPU),
            lambda: _hogs(HEAVY),
            expected_s=150,
        ),
    ]


@contextmanager
def _two_tenants() -> Iterator[
    tuple[Emulation, tuple[TenantPlan, TenantPlan]]
]:
    """Two tenants of two VMs, which share both of the servers."""
    with network(tree([2], [LINK_BPS], 2), "ha") as emulation:
        tenants = (
            pair(emulation, 1, 0, LINK_BPS // 4),
            pair(emulation, 2, 1, LINK_BPS // 4),
        )
        for tenant in tenants:
            emulation.admit(tenant)
        yield emulation, tenants


def _scenes(
    tenants: tuple[TenantPlan, TenantPlan],
) -> Iterator[tuple[str, Scene]]:
    """Every VM against every one of the other tenant, with its namespace."""
    for own, other in (tenants, tenants[::-1]):
        for number, attacker in enumerate(own.vms):
            for target in range(len(other.vms)):
                stations = [
                    Station(str(vm.ip), vm.slot.mac)
                    for vm in (
                        attacker,
                        own.vms[1 - number],
                        other.vms[target],
                        other.vms[1 - target],
                    )
                ]
                yield attacker.slot.netns, Scene(*stations)


def _opened(netns: str) -> socket.socket:
    with inside_network_namespace(NETNS_DIR / netns):
        opened = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)
        )
    opened.bind((VM_DEVICE, ETH_P_ALL))
    opened.settimeout(0.0)
    return opened


def _sent(
    tenants: tuple[TenantPlan, TenantPlan], rounds: int = ROUNDS
) -> Tries:
    """Frames of all kinds from all VMs; those that a VM of the other tenant
    receives got through.
    """
    tenant_of = {
        vm.slot.netns: tenant.tenant_id
        for tenant in tenants
        for vm in tenant.vms
    }
    sender_of: list[int] = []
    with ExitStack() as stack:
        wires = {
            netns: stack.enter_context(_opened(netns))
            for netns in tenant_of
        }
        token = MARK + os.urandom(6)
        arrived: set[int] = set()
        for _ in range(rounds):
            for netns, scene in _scenes(tenants):
                for kind in KINDS.values():
                    mark = token + struct.pack("!I", len(sender_of)) + b"="
                    sender_of.append(tenant_of[netns])
                    with suppress(BlockingIOError):
                        wires[netns].send(kind(scene, mark))
                    time.sleep(PAUSE_S)
                arrived |= _arrivals(wires, tenant_of, token, sender_of)
        time.sleep(ARRIVE_S)
        arrived |= _arrivals(wires, tenant_of, token, sender_of)
    return Tries(len(sender_of), len(arrived))


def _arrivals(
    wires: dict[str, socket.socket],
    tenant_of: dict[str, int],
    token: bytes,
    sender_of: list[int],
) -> set[int]:
    """Numbers of the frames that VMs of the other tenant have received."""
    arrived = set()
    for netns, wire in wires.items():
        with suppress(BlockingIOError):
            while True:
                frame, where = wire.recvfrom(2048)
                at = frame.find(token)
                if at < 0 or where[2] == socket.PACKET_OUTGOING:
                    continue
                (number,) = struct.unpack_from("!I", frame, at + len(token))
                if sender_of[number] != tenant_of[netns]:
                    arrived.add(number)
    return arrived


def _put_rules(emulation: Emulation) -> None:
    for bridge in emulation.plan.bridges:
        subprocess.run(
            [
                "ovs-ofctl",
                "-O",
                "OpenFlow13",
                "add-flow",
                bridge.name,
                OPEN,
            ],
            check=True,
            timeout=60,
        )


def _closed_frames() -> Tries:
    with _two_tenants() as (_, tenants):
        return _sent(tenants)


def _open_frames() -> Tries:
    with _two_tenants() as (emulation, tenants):
        _put_rules(emulation)
        return _sent(tenants, rounds=1)


def _rules_before_a_controller() -> Tries:
    """Put in while there is none; the next finds them."""
    with _two_tenants() as (emulation, tenants):
        emulation.controller.process.kill()
        emulation.controller.process.wait()
        _put_rules(emulation)
        emulation.fail(Failure(0.0, "controller_killed"), tenants)
        return _sent(tenants, rounds=1)


def _rules_without_one() -> Tries:
    with _two_tenants() as (emulation, tenants):
        emulation.controller.process.kill()
        emulation.controller.process.wait()
        _put_rules(emulation)
        return _sent(tenants, rounds=1)


def _hogs(processes_per_cpu: int) -> Tries:
    """Transfers beside busy loops, each against the tenant's alone right before
    and after.
    """
    weight = mock.patch.object(
        vm_limits, "VM_PROCESSES_PER_CPU", processes_per_cpu
    )
    with weight:
        made = [beside_loops(MBPS, LOOPS) for _ in range(TRIES)]
    return Tries(len(made), sum(one.ratio < LOST for one in made))
