"""Programs in VMs leave the machine what it has one of."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.live_network import network, pair
from jobs.linux import inside_network_namespace
from testbed.backends.emu.traffic_control import NETNS_DIR
from testbed.plan.network_plan import TenantVm
from topologies.tree import tree

STATISTICS = Path("/proc/net/stat/arp_cache")
MOST = Path("/proc/sys/net/ipv4/neigh/default/gc_thresh3")
SOCKETS, LOOKED_FOR = 60, 1_000


def refused() -> int:
    """Entries that the kernel had no room for, since the machine's start."""
    names, *processors = STATISTICS.read_text().splitlines()
    column = names.split().index("table_fulls")
    return sum(int(line.split()[column], 16) for line in processors)


def look_for_neighbours(vm: TenantVm) -> None:
    """Sends to all addresses of a tenant's network, in use or not."""
    first = int(vm.ip) & ~0x3FF
    with ExitStack() as stack:
        with inside_network_namespace(NETNS_DIR / vm.slot.netns):
            sockets = [
                stack.enter_context(
                    socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                )
                for _ in range(SOCKETS)
            ]
        for number in range(1, LOOKED_FOR):
            address = socket.inet_ntoa((first + number).to_bytes(4, "big"))
            sender = sockets[number % SOCKETS]
            sender.settimeout(0.0)
            try:
                sender.sendto(b"x", (address, 9))
            except OSError:
                # Its own address, or too many that wait for an answer.
                continue


def test_vms_do_not_fill_the_machines_table_of_neighbours(
    prefix: str,
) -> None:
    """It had 1,024 entries for all, which two tenants filled."""
    if not (STATISTICS.exists() and os.access(MOST, os.W_OK)):
        pytest.skip("this container may not change the machine's numbers")
    with network(tree([2], [100_000_000], 2), prefix) as emulation:
        tenants = (
            pair(emulation, 1, 0, 10_000_000),
            pair(emulation, 2, 1, 10_000_000),
        )
        before = refused()
        for tenant in tenants:
            emulation.admit(tenant)
        for tenant in tenants:
            for vm in tenant.vms:
                look_for_neighbours(vm)
        assert refused() == before
