"""A run to be killed: builds a network, takes tenants in and out, takes it down, again and again.

Usage: ``killed_run.py PREFIX MOST_WEIGHT [BUILDER]``, the most that a part of the switch may weigh.
Says ``going`` when it begins. Not a test by itself: others start it and end it, at any moment.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

from bench.live_network import journalled_run
from testbed.backends.emu.cleanup_journal import JournalEntry, start_ticks
from testbed.backends.emu.emulation import Builder, network_kind
from testbed.backends.emu.part_switches import switch_in_parts
from testbed.embedding.placement import Placement
from testbed.plan.network_plan import network_plan, tenant_plan
from topologies.tree import tree

CONTROLLER_PORT = 6699
# Known by its last argument.
CHILD = [sys.executable, "-c", "import time; time.sleep(3000)"]


def main(
    prefix: str, most_weight: int, builder: Builder = "batched"
) -> None:
    datacentre = tree([2, 2], 1_000_000_000, 2)
    plan = network_plan(datacentre, prefix, 0.1)
    vms_on = ((0, 2), (1, 2), (3, 1))
    slots = tuple(
        slot
        for server, n in vms_on
        for slot in plan.slots_of_server[server][:n]
    )
    placement = Placement(datacentre.trees[0].root, vms_on)
    kind = network_kind(builder, plan, lambda _: None)
    tenant = tenant_plan(
        datacentre, plan, placement, slots, 5, "j", 10_000_000
    )
    with ExitStack() as stack:
        journal = journalled_run(stack, f"kill me {prefix}")
        sys.stdout.write(f"going {journal.tag.run}\n")
        sys.stdout.flush()
        while True:
            # One child in the journal, one that is not recorded.
            with ExitStack() as round_stack:
                for listed in (True, False):
                    child = subprocess.Popen([*CHILD, f"{prefix}-child"])
                    round_stack.callback(child.wait)
                    round_stack.callback(child.kill)
                    if listed:
                        journal.add(
                            [
                                JournalEntry(
                                    "process",
                                    "child",
                                    pid=child.pid,
                                    start_ticks=start_ticks(child.pid) or 0,
                                )
                            ]
                        )
                parts = round_stack.enter_context(
                    switch_in_parts(plan, journal, most_weight)
                )
                network = kind(plan, journal, CONTROLLER_PORT, parts)
                round_stack.enter_context(network)
                network.configure_tenant(tenant)
                network.remove_tenant(tenant)


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])  # type: ignore[arg-type]
    except KeyboardInterrupt:
        sys.exit(130)
