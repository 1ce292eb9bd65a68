"""Checks of what this machine can do for the live network, tried rather than assumed.

Each comes with a hint. Nothing stays changed: experiments happen in a throw-away namespace.
"""

from __future__ import annotations

import os
import platform
import resource
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata, util
from operator import le
from pathlib import Path
from typing import Literal

import psutil

from controller.launch import API_PORT, OPENFLOW_PORT
from controller.library import PACKAGES, LibraryMissing, choose_library
from testbed.backends.emu import open_vswitch
from testbed.backends.emu.cgroups import CgroupLayout, RunCgroup, probe_layout, remove_groups
from testbed.backends.emu.cleanup_journal import journals, machine_lock
from testbed.backends.emu.commands import CommandFailed, run
from testbed.backends.emu.open_vswitch import MACHINE
from testbed.backends.emu.switch_preload import is_preloaded
from testbed.errors import MachineCannot, from_checkout, install_hint
from testbed.plan.network_plan import NetworkPlan, network_plan
from testbed.plan.switch_parts import switch_parts
from topologies.fat_tree import fat_tree

Grade = Literal["ok", "warn", "fail"]
HEAVY_SWITCH_BYTES = 2 << 30
MIN_ROOM_K = 4
MIN_DISK_BYTES = 1 << 30
COARSE_CLOCK_NS = 1_000
# What a run asks of tc, line by line: qdisc, class, byte-limited queue, filter by source.
TC_SAMPLE = (
    "qdisc add dev lo root handle 1: htb default 2",
    "class add dev lo parent 1: classid 1:2 htb rate 1mbit ceil 1mbit burst 15000 cburst 15000",
    "qdisc add dev lo parent 1:2 bfifo limit 60000",
    "filter add dev lo parent 1: protocol ip prio 1 u32 match ip src 10.0.4.0/22 flowid 1:2",
)


@dataclass(frozen=True)
class Check:
    """One check: what was found, and the command that helps where it is not well."""

    name: str
    grade: Grade
    found: str
    hint: str | None = None


def _graded(
    name: str, good: bool, found: str, hint: str | None = None, bad: Grade = "warn"
) -> Check:
    return Check(name, "ok", found) if good else Check(name, bad, found, hint)


def examine() -> list[Check]:
    """Every check, in order of a person's interest. Needs root for most of them to say much."""
    root = os.geteuid() == 0
    found = "running as root" if root else "not root: most of what follows cannot be tried"
    again = "sudo testbed doctor" if from_checkout() else 'sudo "$(command -v testbed)" doctor'
    kernel = f"Linux {platform.release()} ({platform.machine()})"
    checks = [
        _graded("root", root, found, again, "fail"),
        Check("kernel", "ok", kernel),
        *_commands(),
        *_python(),
        _controller(),
    ]
    if root:
        checks += [_namespaces_and_tc(), *_switch(), _cubic()]
    checks += [_cgroups(), _processors(), _clock(), _room(), _disk()]
    checks += [_port(OPENFLOW_PORT, "--openflow-port"), _port(API_PORT, "--api-port")]
    return [*checks, _leftovers()] if root else checks


def verdict(checks: list[Check]) -> tuple[bool, str]:
    """True if a live run is possible here, and the sentence that reports it."""
    failed = [check.name for check in checks if check.grade == "fail"]
    if failed:
        sentence = f"this machine cannot run the live network yet: {', '.join(failed)}"
        needs = "" if from_checkout() else f"; what it needs is installed by {install_hint()}"
        return False, sentence + needs
    kind = "the kernel's" if open_vswitch.datapath_type() == "system" else "the userspace"
    doubts = [check.name for check in checks if check.grade == "warn"]
    but = f"; look at: {', '.join(doubts)}" if doubts else ""
    return True, f"this machine can run the live network, on {kind} datapath{but}"


def _commands() -> Iterator[Check]:
    wanted = {
        "ip": "iproute2", "tc": "iproute2", "ss": "iproute2", "ovs-vsctl": "openvswitch-switch",
        "ovs-ofctl": "openvswitch-common", "ethtool": "ethtool", "iperf3": "iperf3",
        "tcpdump": "tcpdump", "mnexec": "mininet", "tcc": "tcc",
    }  # fmt: skip
    needed = {"ip", "tc", "ss", "ovs-vsctl", "ovs-ofctl"}
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    missing = [name for name in wanted if shutil.which(name, path=path) is None]
    if not missing:
        yield Check("commands", "ok", ", ".join(wanted))
    for name in missing:
        grade: Grade = "fail" if name in needed else "warn"
        found = f"{name} is missing (Debian: {wanted[name]})"
        yield Check(f"command {name}", grade, found, install_hint())


def _python() -> Iterator[Check]:
    wanted = (
        "numba", "numpy", "psutil", "pydantic", "yaml", "rich", "typer", "jinja2", "matplotlib",
    )  # fmt: skip
    missing = [name for name in wanted if util.find_spec(name) is None]
    found = f"missing: {', '.join(missing)}" if missing else "all there"
    yield _graded("Python packages", not missing, found, install_hint(), "fail")
    if util.find_spec("mininet") is None:
        found = "not importable: only Mininet topologies need it"
        yield Check("Mininet", "warn", found, install_hint())
    # Without machine code of the simulator's loops the first long run compiles it, once.
    kept = any(Path(__file__).parents[2].glob("*/__pycache__/*.nbi"))
    command = "python -m testbed.runs.precompile"
    found = "compiled" if kept else f"compiled by the first long run, once ({command} does it now)"
    yield Check("simulator's inner loops", "ok", found)


def _controller() -> Check:
    there = []
    for name, package in PACKAGES.items():
        with suppress(Exception):
            if util.find_spec(package) is not None:
                there.append(f"{name} {metadata.version(name)}")
    try:
        chosen = choose_library()
    except LibraryMissing as error:
        return Check("controller library", "fail", str(error), install_hint())
    return Check("controller library", "ok", f"{', '.join(there)}; {chosen} will be used")


@contextmanager
def _scratch_namespace() -> Iterator[str]:
    name = f"hn-doctor-{secrets.token_hex(3)}"
    run(["ip", "netns", "add", name])
    try:
        yield name
    finally:
        run(["ip", "netns", "delete", name])


def _namespaces_and_tc() -> Check:
    try:
        with _scratch_namespace() as name:
            run(["tc", "-n", name, "-batch", "-"], text_in="".join(f"{x}\n" for x in TC_SAMPLE))
            ends = ("name", "hn0", "type", "veth", "peer", "name", "hn1")
            run(["ip", "-n", name, "link", "add", *ends])
    except (CommandFailed, MachineCannot) as error:
        hint = "use a kernel with veth, HTB, bfifo and u32 (Debian's has them)"
        return Check("namespaces, veth and tc", "fail", error.message, hint)
    return Check("namespaces, veth and tc", "ok", "HTB, bfifo and u32 work in a fresh namespace")


def _switch() -> Iterator[Check]:
    kernel = open_vswitch.datapath_type() == "system"
    if not MACHINE.running:
        why = "not running" if not MACHINE.database_pid else "its switch does not answer"
        yield Check("Open vSwitch", "fail", why, install_hint())
        return
    version = str(MACHINE.rows("Open_vSwitch", ["ovs_version"])[0][0])
    lacking = "userspace datapath: the kernel has no openvswitch module"
    yield Check("Open vSwitch", "ok", f"{version}, {'kernel datapath' if kernel else lacking}")
    if kernel:
        return
    options = dict(MACHINE.rows("Open_vSwitch", ["other_config"])[0][0][1])
    sockets = MACHINE.sockets()
    on = options.get("userspace-tso-enable") == "true" and sockets.offload is not False
    found = "on" if on else "off: TCP is slow over the userspace datapath, or dead"
    yield _graded("segmentation offload", on, found, install_hint())
    if 0 < sockets.send_buffer_bytes < 1 << 20:
        found = f"{sockets.send_buffer_bytes} bytes: a deep queue on one port starves the others"
        yield Check("switch's send buffer", "warn", found, install_hint())
    yield _whole_batches()
    yield _switch_memory()


def _whole_batches() -> Check:
    whole = is_preloaded(MACHINE.pid or 0)
    found = "stays its tenant's" if whole else "takes packets of other tenants with it"
    return _graded("drops of a full queue", whole, found, install_hint())


def _switch_memory() -> Check:
    held = 0 if MACHINE.pid is None else psutil.Process(MACHINE.pid).memory_info().rss
    light = held <= HEAVY_SWITCH_BYTES
    found = f"{held >> 20} MiB{'' if light else '; started again it holds less'}"
    hint = "sudo /usr/share/openvswitch/scripts/ovs-ctl restart"
    return _graded("switch's memory", light, found, hint)


def _cubic() -> Check:
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
    there = "cubic" in available.read_text(encoding="ascii").split()
    found = "available; jobs pin it" if there else "not available"
    return _graded("TCP CUBIC", there, found, "sudo modprobe tcp_cubic", "fail")


def _cgroups() -> Check:
    layout = probe_layout()
    hint = "mount them: cgroup v2, or v1 with cpu, cpuacct and freezer, writable"
    if layout.version == 0:
        return Check("control groups", "fail", layout.lacking, hint)
    found = f"version {layout.version}"
    if os.geteuid() == 0:
        probe = RunCgroup(layout, f"doctor-{secrets.token_hex(3)}")
        try:
            probe.create()
            probe.add_vm(0, 0)
        except OSError as error:
            return Check("control groups", "fail", f"{found}, but {error}", hint)
        finally:
            remove_groups(probe.paths)
    return Check("control groups", "ok", f"{found}: processor quota, weights, freezer")


def _processors() -> Check:
    count = os.cpu_count() or 1
    load = os.getloadavg()[0]
    found = f"{count}, load {load:.1f}"
    if count < 2:
        found = f"{found}: two or more keep the network and jobs apart"
    elif load > count:
        found = f"{found}: busy; live results will be marked suspect"
    return _graded("processors", 2 <= count >= load, found)


def _clock() -> Check:
    """Limits are timers: with the kernel's coarse ones they come in bursts."""
    source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    name = source.read_text(encoding="ascii").strip() if source.exists() else "unknown"
    resolution_ns = time.clock_getres(time.CLOCK_MONOTONIC) * 1e9
    fine = resolution_ns <= COARSE_CLOCK_NS
    found = f"{name}, resolution {resolution_ns:.0f} ns"
    found = found if fine else f"{found}: too coarse for limits to be exact"
    return _graded("clock", fine, found, "boot without highres=off and nohz=off")


def _room() -> Check:
    have = room(probe_layout())
    k = largest_fat_tree(have)
    found = f"{have[0]} MiB available; a fat-tree of k = {k} fits, two VMs a server"
    return _graded("room for a network", k >= MIN_ROOM_K, found)


def _disk() -> Check:
    free = shutil.disk_usage(Path.cwd()).free
    return _graded("disk", free >= MIN_DISK_BYTES, f"{free >> 20} MiB free here")


def _port(port: int, option: str) -> Check:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            found = f"taken by {_listener(port)}"
            return Check(f"port {port}", "warn", found, f"testbed run {option} OTHER")
    return Check(f"port {port}", "ok", "free")


def _listener(port: int) -> str:
    """The process that listens on a port, where that may be seen."""
    with suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    return "another process"


def _leftovers() -> Check:
    try:
        with machine_lock("testbed doctor"):
            left = [journal.tag.name for journal in journals()]
    except MachineCannot as error:
        return Check("other runs", "warn", error.message)
    found = f"left behind by {', '.join(left)}" if left else "none, and nothing left behind"
    return _graded("other runs", not left, found, "sudo testbed clean")


# ------------------------------------------------------------------ room for a network


# Taken at little traffic, as measured (docs/decisions/40): the least that a network needs.
BASE_BYTES, PART_BYTES, PORT_BYTES, AGENT_BYTES = 100 << 20, 24 << 20, 100_000, 3_500_000
# Threads of a part's two daemons; threads, and open files, of everything else.
PART_THREADS, OTHERS = 12, 100
HINTS = {
    "MiB of memory": "end other programs; or fewer slots_per_server, a smaller k, fewer VMs",
    "network namespaces": "sudo sysctl user.max_net_namespaces=NUMBER",
    "processes": "sudo sysctl kernel.pid_max=NUMBER; a container's limit is its pids.max",
    "open files": "raise the hard limit, ulimit -Hn",
}
"""Amounts that may be short, in the order of :func:`needed` and :func:`room`, and hints."""


def needed(network: NetworkPlan, n_agents: int) -> tuple[int, ...]:
    """Amounts that a network takes while ``n_agents`` VMs are in use."""
    n_parts, n_slots = len(switch_parts(network)), len(network.slots)
    size_bytes = BASE_BYTES + n_parts * PART_BYTES + len(network.ports) * PORT_BYTES
    size_bytes += n_agents * AGENT_BYTES
    processes = n_agents + n_parts * PART_THREADS + OTHERS
    # Most at once has ``ip -batch``: every namespace that a line names stays open to its end.
    files = len(network.ports) + n_slots + OTHERS
    return size_bytes >> 20, n_slots + n_parts, processes, files


def room(layout: CgroupLayout, proc_sys: Path = Path("/proc/sys")) -> tuple[int, ...]:
    """Amounts left on the machine, and in the topmost control group to be seen (a container's)."""
    size_bytes = psutil.virtual_memory().available
    if group := layout.mounts.get("memory"):
        names = {1: ("memory.limit_in_bytes", "total_rss"), 2: ("memory.max", "anon")}
        limit, used = names[layout.version]
        stat = dict(map(str.split, (group / "memory.stat").read_text("ascii").splitlines()))
        size_bytes = min(size_bytes, _limit(group / limit) - int(stat[used]))
    most = [proc_sys / "kernel/pid_max", *(root / "pids.max" for root in layout.roots)]
    processes = min(map(_limit, most)) - len(psutil.pids())
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return size_bytes >> 20, _limit(proc_sys / "user/max_net_namespaces"), processes, files


def _limit(path: Path) -> int:
    """The number in a file; where there is none, or no limit, a very large one."""
    text = path.read_text("ascii").strip() if path.exists() else "max"
    return int(text) if text.isdecimal() else 1 << 62


def require_room(network: NetworkPlan, n_agents: int) -> None:
    """Raises MachineCannot where the network does not fit; lets this process open its files."""
    need, have = needed(network, n_agents), room(probe_layout())
    for (what, hint), wanted, there in zip(HINTS.items(), need, have, strict=True):
        if wanted > there:
            message = f"the network needs {wanted:,} {what}, {there:,} are left on this machine"
            raise MachineCannot(message, hint)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, need[-1]), hard))


def largest_fat_tree(have: tuple[int, ...]) -> int:
    """The largest k, up to 16, of one with two VMs in use on each server; 0: not even k = 2."""
    plans = ((k, network_plan(fat_tree(k, 1_000_000_000, 2))) for k in range(2, 17, 2))
    needs = ((k, needed(plan, len(plan.slots))) for k, plan in plans)
    return max((k for k, need in needs if all(map(le, need, have))), default=0)
