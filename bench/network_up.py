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
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from bench.live_network import journalled_run, switch_memory_bytes
from bench.samples import Result
from controller.process import start_controller
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
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
# Plain Mininet takes minutes for k=8; after this it is killed.
MININET_TIMEOUT_S = 1800.0


def run(quick: bool) -> list[Result]:
    """Fat-trees k=4 and k=8; Mininet's k=8 only in full runs."""
    results = []
    for k in TARGETS_S:
        repeats = REPEATS[k]
        if quick:
            repeats = 1
        results += _rows(k, repeats)
        if k == 4 or not quick:
            results += _mininet(k)
    return results


def _rows(k: int, repeats: int) -> list[Result]:
    plan = network_plan(fat_tree(k, LINK_BPS, SLOTS), PREFIX)
    taken = _measure(plan, repeats)
    size = {
        "bridges": len(plan.bridges),
        "links": len(plan.links),
        "vm_slots": len(plan.slots),
        "switch_memory_mib": max(once.memory_mib for once in taken),
    }
    up_s = [once.up_s for once in taken]
    down_s = [once.down_s for once in taken]
    return [
        _row(f"fat-tree k={k} up", up_s, TARGETS_S[k], size),
        _row(f"fat-tree k={k} down", down_s, TARGETS_S[k], size),
    ]


def _row(
    name: str, samples: list[float], target_s: float, extra: dict[str, int]
) -> Result:
    median_s = sorted(samples)[len(samples) // 2]
    return Result(
        name,
        "s",
        samples=tuple(samples),
        target=f"median under {target_s:g} s",
        meets=median_s < target_s,
        extra=extra,
    )


@dataclass(frozen=True)
class Once:
    """Seconds up and down of a network, and the memory of the switch's
    processes while it is up.
    """

    up_s: float
    down_s: float
    memory_mib: int


def _measure(plan: NetworkPlan, repeats: int) -> list[Once]:
    with ExitStack() as stack:
        journal = journalled_run(stack, "benchmark network-up")
        folder = TemporaryDirectory(prefix="hosenet-bench-")
        path = Path(stack.enter_context(folder)) / "controller.log"
        log = stack.enter_context(path.open("ab"))
        return [_once(plan, journal, log) for _ in range(repeats)]


def _once(
    plan: NetworkPlan, journal: CleanupJournal, log: IO[bytes]
) -> Once:
    """One network up and down. The controller's start is not counted: a run
    pays it once, whatever its network.
    """
    with ExitStack() as stack:
        began = time.perf_counter()
        parts = stack.enter_context(switch_in_parts(plan, journal))
        making_s = time.perf_counter() - began
        # Port 0: whichever is free.
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
            memory = switch_memory_bytes(network)
            # At the end of the block: what follows is the way down.
            began = time.perf_counter()
        down_s = time.perf_counter() - began
        return Once(up_s, down_s, memory >> 20)


def _mininet(k: int) -> list[Result]:
    """Plain Mininet's rows; none where it is not installed."""
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
        Result(f"plain Mininet k={k} up", "s", (seconds["up"],)),
        Result(f"plain Mininet k={k} down", "s", (seconds["down"],)),
    ]


def mininet_seconds(k: int) -> dict[str, float]:
    """Seconds that plain Mininet takes for the same bridges, links and hosts."""
    from mininet.link import TCLink
    from mininet.net import Mininet
    from mininet.node import OVSSwitch

    from topologies.mininet_topo import mininet_topo

    plan = network_plan(fat_tree(k, LINK_BPS, SLOTS), "mb")
    began = time.perf_counter()
    kind = "user"
    if Path("/sys/module/openvswitch").exists():
        kind = "kernel"

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
