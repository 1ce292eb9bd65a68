"""The cost of a pass of ovs-vswitchd's main loop, by the bridges and ports that
it looks at.

One daemon on the userspace datapath, in a namespace of its own as a network's
switch parts are: a ping goes over two bridges, beside idle bridges with ports.
Each packet waits for a pass at each hop, so the daemon's processor time per
ping, beyond that without idle bridges, is what they add to the passes that a
ping takes. A least-squares fit says how much a port and a bridge add.

Then the same ping and a TCP stream of 500 Mbit/s under other settings of the
daemon's allocator.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from unittest import mock

import numpy as np
import psutil

from bench.live_cost import cpu_s
from bench.live_network import (
    journalled_run,
    ping_ms,
    start_in_namespace,
)
from bench.progress import Progress, Step
from bench.samples import Result
from testbed.backends.emu import part_switches, switch_preload
from testbed.backends.emu.commands import ip_batch
from testbed.backends.emu.commands import run as run_command
from testbed.backends.emu.emulated_network import EmulatedNetwork
from testbed.backends.emu.open_vswitch import SwitchDaemons, datapath_type
from testbed.errors import MachineCannot
from testbed.plan.network_plan import Bridge, Link, NetworkPlan, Port, Slot
from testbed.plan.switch_parts import SwitchPart

FloatArray = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

PREFIX = "hp"
LINK_BPS = 10_000_000_000
ADDRESSES = ("10.9.9.1", "10.9.9.2")
CASES = ((0, 0), (10, 6), (25, 6), (25, 12), (50, 2), (50, 6), (10, 30))
"""Idle bridges, and ports of each."""
QUICK_CASES = ((0, 0), (10, 6), (50, 2), (10, 30))
ALLOCATOR_CASE = (25, 12)
ALLOCATORS: dict[str, dict[str, str]] = {
    "as a run has it": dict(switch_preload.ALLOCATOR),
    "the C library's": {},
    "jemalloc, memory kept for 1 s": {
        "LD_PRELOAD": "libjemalloc.so.2",
        "MALLOC_CONF": "dirty_decay_ms:1000,muzzy_decay_ms:0,narenas:1",
    },
    "jemalloc, memory given back at once": {
        "LD_PRELOAD": "libjemalloc.so.2",
        "MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0,narenas:1",
    },
}
TCP_MBPS = 500
TCP_S = 4
IDLE_S = 2.0
CASE_S = 15.0
TCP_CASE_S = 21.0


@dataclass(frozen=True)
class Pass:
    """A daemon with its idle bridges: round trips, and its processor time per
    ping.

    ``idle_cores``: processors without traffic. ``tcp_cores``, ``faults_per_s``:
    during the TCP stream that received ``tcp_mbps``.
    """

    bridges: int
    ports: int
    round_trips_ms: tuple[float, ...]
    ms_per_ping: float
    idle_cores: float
    memory_mib: int
    tcp_mbps: float = nan
    tcp_cores: float = nan
    faults_per_s: float = nan


def run(quick: bool) -> list[Result]:
    """All cases with the product's allocator, the fit, then the allocators."""
    if datapath_type() == "system":
        raise MachineCannot(
            "this benchmark is about the userspace datapath"
        )
    cases: Sequence[tuple[int, int]] = CASES
    allocators = ALLOCATORS
    if quick:
        cases = QUICK_CASES
        allocators = {}
    steps = [Step(_named(*case), CASE_S) for case in cases]
    steps += [Step(name, TCP_CASE_S) for name in allocators]
    progress = Progress(steps)
    rows = _case_rows(cases, progress)
    for name, environment in allocators.items():
        with progress.step(), _allocator(environment):
            taken_pass = measured(*ALLOCATOR_CASE, tcp=True)
            rows.append(_stream_row(name, taken_pass))
    return rows


def _case_rows(
    cases: Sequence[tuple[int, int]], progress: Progress
) -> list[Result]:
    """A row for each case, then those of the fit through all of them."""
    taken = []
    rows = []
    for case in cases:
        with progress.step():
            taken_pass = measured(*case)
            taken.append(taken_pass)
            rows.append(_row(_named(*case), taken_pass))
            progress.say(
                f"{taken_pass.ms_per_ping:.2f} ms of the daemon a ping"
            )
    return rows + fit(taken)


def _named(bridges: int, ports: int) -> str:
    if bridges == 0:
        return "no idle bridges"
    return f"{bridges} idle bridges of {ports} ports"


def _row(name: str, taken_pass: Pass) -> Result:
    about = {
        "daemon, ms a ping": round(taken_pass.ms_per_ping, 3),
        "daemon idle, cores": round(taken_pass.idle_cores, 4),
        "daemon's memory, MiB": taken_pass.memory_mib,
    }
    return Result(
        f"ping beside {name}", "ms", taken_pass.round_trips_ms, extra=about
    )


def _stream_row(name: str, taken_pass: Pass) -> Result:
    about = {
        "daemon, ms a ping": round(taken_pass.ms_per_ping, 3),
        "daemon, cores": round(taken_pass.tcp_cores, 3),
        "page faults a second": round(taken_pass.faults_per_s),
        "daemon's memory, MiB": taken_pass.memory_mib,
    }
    stream = f"{name}: TCP at {TCP_MBPS} Mbit/s"
    return Result(stream, "Mbit/s", (taken_pass.tcp_mbps,), extra=about)


def fit(taken: Sequence[Pass]) -> list[Result]:
    """Least squares: the daemon's time per ping, by idle ports and bridges; and
    its memory.
    """
    # A row for each pass: the constant, idle ports, idle bridges.
    idle = []
    ping_us = []
    memory_mib = []
    for taken_pass in taken:
        n_ports = taken_pass.bridges * taken_pass.ports
        idle.append([1.0, n_ports, taken_pass.bridges])
        ping_us.append(1e3 * taken_pass.ms_per_ping)
        memory_mib.append(float(taken_pass.memory_mib))
    matrix = np.array(idle)
    return [
        *_ping_rows(matrix, np.array(ping_us)),
        *_memory_rows(matrix, np.array(memory_mib)),
    ]


def _ping_rows(matrix: FloatArray, ping_us: FloatArray) -> list[Result]:
    solution, *_ = np.linalg.lstsq(matrix, ping_us, rcond=None)
    # The fit is trusted as far as its worst pass is near to it.
    residual_us = float(np.abs(ping_us - matrix @ solution).max())
    alone, port, bridge = map(float, solution)
    return [
        Result(
            "a ping, without idle bridges",
            "µs",
            (alone,),
            extra={"largest residual, µs": round(residual_us)},
        ),
        Result("a port adds to a ping", "µs", (port,)),
        Result("a bridge adds to a ping", "µs", (bridge,)),
        Result("a bridge, in ports", "ratio", (bridge / port,)),
    ]


def _memory_rows(
    matrix: FloatArray, memory_mib: FloatArray
) -> list[Result]:
    solution, *_ = np.linalg.lstsq(matrix, memory_mib, rcond=None)
    empty, port, bridge = map(float, solution)
    return [
        Result("daemon's memory, two bridges", "MiB", (empty,)),
        Result("a port adds to the memory", "MiB", (port,)),
        Result("a bridge adds to the memory", "MiB", (bridge,)),
    ]


@contextmanager
def _allocator(environment: dict[str, str]) -> Iterator[None]:
    with mock.patch.dict(switch_preload.ALLOCATOR, environment, clear=True):
        yield


def measured(bridges: int, ports: int, *, tcp: bool = False) -> Pass:
    """One daemon with its idle bridges, up and down again."""
    with one_daemon(bridges, ports) as (pid, netns):
        # What the daemon takes without traffic is not the ping's.
        idle = Usage(pid)
        time.sleep(IDLE_S)
        idle_cores = idle.cores()
        pinging = Usage(pid)
        trips = ping_ms(netns[0], ADDRESSES[1])
        spent_s = pinging.cpu_s() - idle_cores * pinging.wall_s()
        taken_pass = Pass(
            bridges=bridges,
            ports=ports,
            round_trips_ms=trips,
            # The three pings that find their way cost the daemon as much.
            ms_per_ping=1e3 * spent_s / (len(trips) + 3),
            idle_cores=idle_cores,
            memory_mib=psutil.Process(pid).memory_info().rss >> 20,
        )
        if tcp:
            return _with_tcp(taken_pass, pid, netns)
        return taken_pass


class Usage:
    """Processor time and page faults of a process from now on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._faults = _minor_faults(pid)
        self._began_s = time.monotonic()
        self._cpu_s = cpu_s(pid)

    def wall_s(self) -> float:
        return time.monotonic() - self._began_s

    def cpu_s(self) -> float:
        return cpu_s(self._pid) - self._cpu_s

    def cores(self) -> float:
        return self.cpu_s() / self.wall_s()

    def faults_per_s(self) -> float:
        return (_minor_faults(self._pid) - self._faults) / self.wall_s()


def _with_tcp(taken_pass: Pass, pid: int, netns: tuple[str, str]) -> Pass:
    """The pass with the figures of a TCP stream between the two VMs."""
    to = ("iperf3", "-c", ADDRESSES[1])
    stream = ("-t", str(TCP_S), "-b", f"{TCP_MBPS}M", "-J")
    with ExitStack() as processes:
        start_in_namespace(processes, netns[1], "iperf3", "-s", "-1")
        time.sleep(0.3)
        usage = Usage(pid)
        shown = run_command(
            ["ip", "netns", "exec", netns[0], *to, *stream]
        ).stdout
        cores = usage.cores()
        faults_per_s = usage.faults_per_s()
    received = json.loads(shown)["end"]["sum_received"]
    return replace(
        taken_pass,
        memory_mib=psutil.Process(pid).memory_info().rss >> 20,
        tcp_mbps=received["bits_per_second"] / 1e6,
        tcp_cores=cores,
        faults_per_s=faults_per_s,
    )


def _minor_faults(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    # Fields count from the name's end, as it may hold blanks and brackets.
    return int(text.rpartition(")")[2].split()[7])


# --------------------------------------------------------------------------------- the daemon


def idle_plan(bridges: int, ports: int) -> NetworkPlan:
    """Two bridges with a VM each and a cable between them, and idle bridges,
    each cabled to itself.

    The last bridge is a part by itself: a network of one part has no parts.
    """
    names = ["x", "y", *(f"i{i}" for i in range(bridges)), "o"]
    planned = []
    for i, name in enumerate(names):
        planned.append(Bridge(f"{PREFIX}-{name}", i, i + 1, "rack"))
    first, second, *idle, other = planned
    cable = Link(
        Port(first.name, f"{first.name}-u0", 2),
        Port(second.name, f"{second.name}-d0", 2),
        LINK_BPS,
        LINK_BPS,
    )
    links = [cable]
    for bridge in idle:
        links += _looped(bridge.name, ports)
    slots = []
    for i, bridge in enumerate((first, second, other)):
        port = Port(bridge.name, f"{bridge.name}v0", 1)
        slots.append(Slot(i, 0, port, f"02:48:4e:00:00:{i + 1:02x}"))
    return NetworkPlan(PREFIX, tuple(planned), tuple(links), tuple(slots))


def _looped(bridge: str, ports: int) -> list[Link]:
    """Cables from each odd port of a bridge to its next one."""
    links = []
    for odd in range(1, ports + 1, 2):
        lower = Port(bridge, f"{bridge}p{odd}", odd)
        upper = Port(bridge, f"{bridge}p{odd + 1}", odd + 1)
        links.append(Link(lower, upper, LINK_BPS, LINK_BPS))
    return links


@contextmanager
def one_daemon(
    bridges: int, ports: int
) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yields the process of the daemon that forwards, and the namespaces of the
    two VMs.
    """
    plan = idle_plan(bridges, ports)
    with ExitStack() as stack:
        journal = journalled_run(stack, "benchmark switch-pass")
        stack.enter_context(
            mock.patch.object(
                part_switches,
                "switch_parts",
                return_value=_two_parts(plan),
            )
        )
        parts = stack.enter_context(
            part_switches.switch_in_parts(plan, journal)
        )
        network = stack.enter_context(
            EmulatedNetwork(plan, journal, 0, parts)
        )
        _forward(parts[0].switch, plan)
        # The stream is no tenant's: without borrowing it would have a
        # thousandth of the link.
        network.allow_borrowing()
        pid = network.switch_pids[0]
        if pid is None:
            raise MachineCannot("the daemon has ended")
        yield pid, (plan.slots[0].netns, plan.slots[1].netns)


def _two_parts(plan: NetworkPlan) -> tuple[SwitchPart, SwitchPart]:
    """All bridges but the last, which is a part by itself."""
    *watched, other = (bridge.node for bridge in plan.bridges)
    return (
        SwitchPart(f"{PREFIX}-part0", tuple(watched)),
        SwitchPart(f"{PREFIX}-part1", (other,)),
    )


def _forward(switch: SwitchDaemons, plan: NetworkPlan) -> None:
    """Makes the first two bridges learn, and removes all controllers, which the
    daemon would call again and again.
    """
    alone: list[str] = []
    for bridge in plan.bridges[:-1]:
        alone += ("--", "del-controller", bridge.name)
    switch.vsctl(alone)
    add_flow = ("ovs-ofctl", "-O", "OpenFlow13", "add-flow")
    for bridge in plan.bridges[:2]:
        at = f"unix:{switch.run_dir}/{bridge.name}.mgmt"
        run_command([*add_flow, at, "actions=normal"])
    for slot, address in zip(plan.slots, ADDRESSES, strict=False):
        ip_batch([f"addr add {address}/24 dev eth0"], slot.netns)
