"""Open vSwitch started by a run and stopped at its end, away from the machine's own.

Usage: ``unshare --mount own_switch.py PREFIX STATE``: the daemons' folders are replaced first. Not
a test by itself: see test_daemon.py. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

from testbed.backends.emu.cgroups import (
    RunCgroup,
    probe_layout,
    remove_groups,
)
from testbed.backends.emu.cleanup import remove_run
from testbed.backends.emu.cleanup_journal import CleanupJournal
from testbed.backends.emu.emulated_network import EmulatedNetwork
from testbed.backends.emu.open_vswitch import (
    MACHINE,
    ensure_running,
    start,
    stop_if_idle,
)
from testbed.plan.network_plan import network_plan
from topologies.tree import tree

FOLDERS = ("/run/openvswitch", "/etc/openvswitch", "/var/log/openvswitch")


def dead_switch(network: EmulatedNetwork, prefix: str) -> list[str]:
    """Leftovers on the machine when the network goes after its switch has been killed."""
    network.up()
    pid = MACHINE.pid or 0
    # First its parent, the monitor: it would start the daemon anew.
    for victim in (psutil.Process(pid).ppid(), pid):
        os.kill(victim, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)
    network.down()
    left = [
        name
        for _, name in socket.if_nameindex()
        if name.startswith(f"{prefix}-")
    ]
    left += [str(row[0]) for row in MACHINE.rows("Bridge", ["name"])]
    start()
    return left


def main(prefix: str, state: str) -> dict[str, object]:
    for folder in FOLDERS:
        subprocess.run(["mount", "-t", "tmpfs", "own", folder], check=True)
    observed: dict[str, object] = {"before": MACHINE.running}
    journal = CleanupJournal.create("own switch", Path(state))
    group = RunCgroup(probe_layout(), journal.tag.run)
    group.create()
    group.enter()
    try:
        ensure_running(journal)
        observed["running"] = MACHINE.running
        observed["listed"] = any(
            entry.kind == "daemon" for entry in journal.entries
        )
        pid = MACHINE.pid or 0
        observed["in_group"] = (
            journal.tag.run in Path(f"/proc/{pid}/cgroup").read_text()
        )
        limits = Path(f"/proc/{pid}/limits").read_text()
        observed["files"] = next(
            x for x in limits.splitlines() if "open files" in x
        ).split()[3]
        plan = network_plan(tree([2, 1], 10**8, 1), prefix)
        with EmulatedNetwork(plan, journal, 6699) as network:
            conditions = network.conditions
            assert conditions is not None
            observed["datapath"] = conditions.datapath
            observed["offload"] = conditions.sockets.offload
            observed["send_buffer_bytes"] = (
                conditions.sockets.send_buffer_bytes
            )
            observed["allocator"] = (
                "libjemalloc" in Path(f"/proc/{pid}/maps").read_text()
            )
            observed["settings"] = dict(
                MACHINE.rows("Open_vSwitch", ["other_config"])[0][0][1]
            )
        observed["after_a_dead_switch"] = dead_switch(
            EmulatedNetwork(plan, journal, 6699), prefix
        )
    finally:
        group.leave()
        remove_groups(group.paths)
        observed["survives_group"] = MACHINE.running
        MACHINE.vsctl(
            [
                "add-br",
                f"{prefix}-x",
                "--",
                "set",
                "Bridge",
                f"{prefix}-x",
                "datapath_type=netdev",
            ]
        )
        observed["spared"] = not stop_if_idle() and MACHINE.running
        MACHINE.vsctl(["del-br", f"{prefix}-x"])
        observed["removed"] = [thing.what for thing in remove_run(journal)]
        observed["after"] = MACHINE.running
    return observed


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:3])) + "\n")
