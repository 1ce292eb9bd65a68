"""Three floods into one tenant's queue, beside another tenant that sends through the same port."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed.backends.emu.emulation import Emulation
from testbed.embedding.placement import Placement
from testbed.plan.network_plan import TenantPlan, tenant_plan
from testbed.spec.experiment import Scale
from tests.emu.test_actions import MBIT
from tests.support.agent_watch import wait_until
from tests.support.scripted_run import small_emulation
from topologies.tree import tree

FLOOD = """
import socket, sys, time
out, until = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), time.monotonic() + 600
while time.monotonic() < until:
    out.sendto(bytes(1400), (sys.argv[1], 9))
"""
PINGS = 100


@pytest.fixture
def own(prefix: str, tmp_path: Path) -> Iterator[Emulation]:
    """Four servers of two VMs below a switch."""
    datacentre = tree([4], [400 * MBIT], 2)
    with small_emulation(
        datacentre, prefix, tmp_path, Scale(rate=0.2)
    ) as emulation:
        yield emulation


def tenant(
    own: Emulation, number: int, servers: tuple[int, ...], rate_bps: int
) -> TenantPlan:
    """A tenant with a VM on each of some servers, in their slots of its number."""
    by_server = own.plan.slots_of_server
    slots = tuple(by_server[server][number - 1] for server in servers)
    root = own.datacentre.trees[0].root
    placement = Placement(root, tuple((server, 1) for server in servers))
    given = own.datacentre, own.plan, placement, slots
    return tenant_plan(*given, number, f"tenant{number}", rate_bps)


def dropped(own: Emulation) -> int:
    """Packets that the flooded tenant's queue has refused at its receiver's port."""
    port = own.plan.sending_port(7).name
    shown = subprocess.run(
        ["tc", "-s", "class", "show", "dev", port],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.search(r"class htb 1:2 .*?dropped (\d+)", shown, re.DOTALL)
    assert found, shown
    return int(found[1])


def test_what_a_full_queue_refuses_takes_nothing_of_others_with_it(
    own: Emulation,
) -> None:
    beside = tenant(own, 1, (0, 3), 30 * MBIT)
    # Each sends at its rate to the last, which receives that of one.
    flooding = tenant(own, 2, (0, 1, 2, 3), 30 * MBIT)
    with ExitStack() as stack:
        for each in (beside, flooding):
            own.admit(each)
            stack.callback(own.dismiss, each)
        *senders, receiver = flooding.vms
        for vm in senders:
            flood = (
                "ip",
                "netns",
                "exec",
                vm.slot.netns,
                sys.executable,
                "-c",
                FLOOD,
            )
            process = subprocess.Popen([*flood, str(receiver.ip)])
            stack.callback(process.wait)
            stack.callback(process.kill)
        # Programs take their time to start on a busy machine.
        wait_until(lambda: dropped(own) > 0, "the flood")
        before = dropped(own)
        here, there = beside.vms
        ping = (
            "ping",
            "-q",
            "-c",
            str(PINGS),
            "-i",
            "0.02",
            "-W",
            "5",
            str(there.ip),
        )
        in_vm = ("ip", "netns", "exec", here.slot.netns)
        said = subprocess.run(
            [*in_vm, *ping], capture_output=True, text=True, check=False
        ).stdout
        meanwhile = dropped(own) - before
    assert meanwhile > PINGS  # there was something to lose them by
    found = re.search(r"(\d+) received", said)
    assert found
    assert int(found[1]) == PINGS, said
