"""A fat-tree up and down: bridges, veths, link limits, controller connected,
rules in; and Mininet.

Mininet builds the same switches, hosts and limited links in the same run, the
way its users do (``Mininet(topo)``, ``start()``, ``stop()``), in a process of
its own, without a controller.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import psutil

from bench.samples import Result
from controller.process import start_controller
from testbed.backends.emu.cgroups import RunCgroup, probe_layout
from testbed.backends.emu.cleanup import clean_leftovers, remove_run
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
    JournalEntry,
    machine_lock,
)
from testbed.backends.emu.emulated_network import EmulatedNetwork
from testbed.backends.emu.part_switches import switch_in_parts
from testbed.backends.emu.switch_sockets import switch_listeners
from testbed.plan.network_plan import (
    NetworkPlan,
    controller_switches,
    network_plan,
)
from topologies.fat_tree import fat_tree

PREFIX = "hb"
LINK_BPS = 100_000_000
SLOTS = 2
TARGETS_S = {4: 2.0, 8: 15.0}
REPEATS = {4: 5, 8: 3}
CONNECT_TIMEOUT_S = 120.0
# Plain Mininet takes minutes for k=8; it is given up on after this.
MININET_TIMEOUT_S = 1800.0


def run(quick: bool) -> list[Result]:
    """Fat-trees k=4 and k=8; Mininet's k=8 only in full runs."""
    results = []
    for k, target_s in TARGETS_S.items():
        plan = network_plan(fat_tree(k, LINK_BPS, SLOTS), PREFIX)
        up_s, down_s, rss_mib = _measure(plan, 1 if quick else REPEATS[k])
        size = {
            "bridges": len(plan.bridges), "links": len(plan.links), "vm_slots": len(plan.slots),
        }  # fmt: skip
        target = f"median under {target_s:g} s"
        for name, samples in (("up", up_s), ("down", down_s)):
            meets = sorted(samples)[len(samples) // 2] < target_s
            results.append(
                Result(
                    f"fat-tree k={k} {name}",
                    "s",
                    samples=tuple(samples),
                    target=target,
                    meets=meets,
                    extra=size,
                )
            )
        results[-1].extra["switch_memory_mib"] = rss_mib
        if k == 4 or not quick:
            results += _mininet(k)
    return results


def _measure(
    plan: NetworkPlan, repeats: int
) -> tuple[list[float], list[float], int]:
    """Seconds up, seconds down, and what the switch's processes hold in MiB
    while up.
    """
    up_s, down_s, memory = [], [], 0
    with ExitStack() as stack:
        stack.enter_context(machine_lock("benchmark network-up"))
        clean_leftovers()
        journal = CleanupJournal.create("benchmark network-up")
        stack.callback(remove_run, journal)
        cgroup = RunCgroup(probe_layout(), journal.tag.run)
        journal.add(
            [JournalEntry("cgroup", str(path)) for path in cgroup.paths]
        )
        cgroup.create()
        stack.callback(cgroup.leave)
        cgroup.enter()
        folder = Path(
            stack.enter_context(TemporaryDirectory(prefix="hosenet-bench-"))
        )
        log = stack.enter_context((folder / "controller.log").open("ab"))
        for _ in range(repeats):
            up, down, held = _once(plan, journal, log)
            up_s.append(up)
            down_s.append(down)
            memory = max(memory, held)
    return up_s, down_s, memory


def _once(
    plan: NetworkPlan, journal: CleanupJournal, log: IO[bytes]
) -> tuple[float, float, int]:
    """The controller's own start does not count: a run pays it once, whatever
    its network.
    """
    with ExitStack() as stack:
        began = time.perf_counter()
        parts = stack.enter_context(switch_in_parts(plan, journal))
        making_s = time.perf_counter() - began
        ports = ("--openflow-port", "0", "--api-port", "0")
        sockets = stack.enter_context(switch_listeners(parts, journal))
        controller = start_controller(log, *ports, listeners=sockets)
        stack.callback(controller.stop)
        client = stack.enter_context(controller.client())
        client.put_network(controller_switches(plan))
        network = EmulatedNetwork(
            plan, journal, controller.openflow_port, parts
        )
        began = time.perf_counter()
        with network:
            client.wait_connected(timeout_s=CONNECT_TIMEOUT_S)
            up_s = making_s + time.perf_counter() - began
            held = sum(
                psutil.Process(pid).memory_info().rss
                for pid in network.switch_pids
            )
            # At the end of the block: what follows is the way down.
            began = time.perf_counter()
        return up_s, time.perf_counter() - began, held >> 20


def _mininet(k: int) -> list[Result]:
    if importlib.util.find_spec("mininet") is None:
        return []
    command = [sys.executable, "-m", "bench.network_up", str(k)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=MININET_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"Mininet: {done.stderr.strip()[-500:]}")
    seconds = json.loads(done.stdout.splitlines()[-1])
    return [
        Result(f"plain Mininet k={k} {name}", "s", (seconds[name],))
        for name in ("up", "down")
    ]


def mininet_seconds(k: int) -> dict[str, float]:
    """Seconds that plain Mininet takes for the same bridges, links and hosts."""
    from mininet.link import TCLink
    from mininet.net import Mininet
    from mininet.node import OVSSwitch

    from topologies.mininet_topo import mininet_topo

    plan = network_plan(fat_tree(k, LINK_BPS, SLOTS), "mb")
    began = time.perf_counter()
    kind = (
        "user" if not Path("/sys/module/openvswitch").exists() else "kernel"
    )

    def switch(name: str, **options: object) -> OVSSwitch:
        return OVSSwitch(name, datapath=kind, failMode="secure", **options)

    net = Mininet(
        mininet_topo(plan),
        switch=switch,
        controller=None,
        link=TCLink,
        build=False,
    )
    try:
        net.build()
        net.start()
        up_s = time.perf_counter() - began
        began = time.perf_counter()
    finally:
        net.stop()
    return {"up": up_s, "down": time.perf_counter() - began}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(mininet_seconds(int(sys.argv[1]))) + "\n")
