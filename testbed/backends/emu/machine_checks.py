"""Checks of this machine's fitness for the live network, tried, not assumed.

Each comes with a hint. Nothing stays changed: experiments happen in a
throw-away namespace.
"""

from __future__ import annotations

import errno
import os
import platform
import resource
import secrets
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata, util
from operator import le
from pathlib import Path
from typing import Literal

import psutil

from controller.launch import API_PORT, OPENFLOW_PORT
from controller.library import PACKAGES, LibraryMissing, choose_library
from jobs import launcher_commands
from jobs.demand import Demand
from jobs.launcher_commands import LauncherCommand
from jobs.linux import hides_processes
from testbed.backends.emu import open_vswitch, shared_numbers
from testbed.backends.emu.cgroups import (
    OPTIONAL,
    CgroupLayout,
    RunCgroup,
    counts,
    probe_layout,
    remove_groups,
)
from testbed.backends.emu.cleanup import (
    new_doctor_namespace,
    remove_temporary_folders,
)
from testbed.backends.emu.cleanup_journal import journals, machine_lock
from testbed.backends.emu.commands import CommandFailed, run
from testbed.backends.emu.held_ports import port_user
from testbed.backends.emu.open_vswitch import MACHINE
from testbed.backends.emu.switch_preload import is_preloaded
from testbed.backends.emu.vm_process import PINGING
from testbed.errors import (
    MachineCannot,
    RunFailed,
    from_checkout,
    install_hint,
)
from testbed.plan.network_plan import NetworkPlan, network_plan
from testbed.plan.switch_parts import switch_parts
from testbed.plan.vm_limits import VmLimits, vm_limits
from testbed.units import number_of
from topologies.fat_tree import fat_tree

Grade = Literal["ok", "warn", "fail"]
HEAVY_SWITCH_BYTES = 2 << 30
MIN_ROOM_K = 4
TYPICAL_VMS = 32
"""Of a fat-tree of k = 4, two on each server."""
MIN_DISK_BYTES = 1 << 30
LOOPBACK_S = 5.0
# With high-resolution timers the kernel says 1 ns, without them a tick,
# which is a millisecond and more.
COARSE_CLOCK_NS = 1_000
# What a run asks of tc, line by line: qdisc, class, byte-limited queue, filter
# by source.
TC_SAMPLE = (
    "qdisc add dev lo root handle 1: htb default 2",
    "class add dev lo parent 1: classid 1:2 htb rate 1mbit ceil 1mbit burst 15000 cburst 15000",
    "qdisc add dev lo parent 1:2 bfifo limit 60000",
    "filter add dev lo parent 1: protocol ip prio 1 u32 match ip src 10.0.4.0/22 flowid 1:2",
)


@dataclass(frozen=True)
class MachineCheck:
    """The result of one check, with the command that helps where it fails."""

    name: str
    grade: Grade
    sentence: str
    hint: str | None = None

    def to_json(self) -> dict[str, str | None]:
        """As in ``testbed doctor --json``, where the sentence is ``found``."""
        return {
            "name": self.name,
            "grade": self.grade,
            "found": self.sentence,
            "hint": self.hint,
        }


def _graded(
    name: str,
    good: bool,
    sentence: str,
    *,
    otherwise: str = "",
    hint: str | None = None,
    bad: Grade = "warn",
) -> MachineCheck:
    """A check's result; one that is not ``good`` has the grade ``bad``, the
    hint, and the sentence ``otherwise``, if there is any.
    """
    if good:
        return MachineCheck(name, "ok", sentence)
    return MachineCheck(name, bad, otherwise or sentence, hint)


def examine() -> list[MachineCheck]:
    """Every check, in order of a person's interest.

    Most of them need root to say much.
    """
    root = os.geteuid() == 0
    kernel = f"Linux {platform.release()} ({platform.machine()})"
    checks = [
        _root(root),
        MachineCheck("kernel", "ok", kernel),
        *requirements(root),
    ]
    checks += [
        _processors(),
        _clock(),
        _room(),
        _disk(),
        _hidden_processes(),
    ]
    checks += map(_launcher, launcher_commands.COMMANDS)
    if root:
        checks.append(_netem())
    checks.append(_port(OPENFLOW_PORT, "--openflow-port"))
    checks.append(_port(API_PORT, "--api-port"))
    if root:
        checks += [_leftovers(), _temporary_folders()]
    return checks


def requirements(root: bool) -> Iterator[MachineCheck]:
    """Checks that must succeed before a live run is possible."""
    yield from _commands()
    yield from _python()
    yield _controller()
    yield _loopback()
    if root:
        yield _kernel_settings()
        yield _namespaces_and_tc()
        yield from _switch()
        yield _cubic()
    yield _cgroups()


def require_machine() -> None:
    """Raises MachineCannot with the first of the doctor's checks that fails."""
    for check in requirements(root=True):
        if check.grade == "fail":
            raise MachineCannot(
                "this machine cannot run the live network:"
                f" {check.name}: {check.sentence}",
                check.hint,
            )


def _root(root: bool) -> MachineCheck:
    if root:
        return MachineCheck("root", "ok", "running as root")
    # sudo's own PATH has no virtual environment.
    command = 'sudo "$(command -v testbed)" doctor'
    if from_checkout():
        command = "sudo testbed doctor"
    message = "not root: most of what follows cannot be tried"
    return MachineCheck("root", "fail", message, command)


def verdict(checks: list[MachineCheck]) -> tuple[bool, str]:
    """True if a live run is possible here, and the sentence that reports it."""
    failed = [check.name for check in checks if check.grade == "fail"]
    doubts = [check.name for check in checks if check.grade == "warn"]
    if failed:
        sentence = "this machine cannot run the live network yet: "
        sentence += ", ".join(failed)
        if not from_checkout():
            sentence += f"; what it needs is installed by {install_hint()}"
        return False, sentence
    kind = "the userspace"
    if open_vswitch.datapath_type() == "system":
        kind = "the kernel's"
    sentence = f"this machine can run the live network, on {kind} datapath"
    if doubts:
        sentence += f"; look at: {', '.join(doubts)}"
    return True, sentence


def _commands() -> Iterator[MachineCheck]:
    wanted = {
        "ip": "iproute2",
        "tc": "iproute2",
        "ss": "iproute2",
        "ovs-vsctl": "openvswitch-switch",
        "ovs-ofctl": "openvswitch-common",
        "ethtool": "ethtool",
        "iperf3": "iperf3",
        "tcpdump": "tcpdump",
        "mnexec": "mininet",
        "tcc": "tcc",
        "setpriv": "util-linux",
    }
    needed = {"ip", "tc", "ss", "ovs-vsctl", "ovs-ofctl"}
    # Without root the PATH often lacks the folders of ip, tc and ovs-vsctl.
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    missing = [
        name for name in wanted if shutil.which(name, path=path) is None
    ]
    if not missing:
        yield MachineCheck("commands", "ok", ", ".join(wanted))
    for name in missing:
        grade: Grade = "fail" if name in needed else "warn"
        sentence = f"{name} is missing (Debian: {wanted[name]})"
        yield MachineCheck(
            f"command {name}", grade, sentence, install_hint()
        )


def _launcher(command: LauncherCommand) -> MachineCheck:
    """Never a failure: without a launcher all other programs run."""
    if command.is_installed:
        return MachineCheck(command.label, "ok", command.name)
    needs = f"only programs with {command.needed_by} need it"
    return MachineCheck(
        command.label,
        "ok",
        f"{command.missing}: {needs}",
        launcher_commands.install_command([command]),
    )


def require_launchers(demands: Iterable[Demand]) -> None:
    """Raises MachineCannot where programs' launchers are missing."""
    missing = launcher_commands.missing(demands)
    if missing:
        raise MachineCannot(
            "; ".join(command.missing for command in missing),
            launcher_commands.install_command(missing),
        )


def _python() -> Iterator[MachineCheck]:
    wanted = (
        "numba",
        "numpy",
        "psutil",
        "pydantic",
        "yaml",
        "rich",
        "typer",
        "jinja2",
        "matplotlib",
    )
    missing = [name for name in wanted if util.find_spec(name) is None]
    yield _graded(
        "Python packages",
        not missing,
        "all there",
        otherwise=f"missing: {', '.join(missing)}",
        hint=install_hint(),
        bad="fail",
    )
    if util.find_spec("mininet") is None:
        sentence = "not importable: only Mininet topologies need it"
        yield MachineCheck("Mininet", "warn", sentence, install_hint())
    # Numba lists its machine code in .nbi files; without them the first long
    # run compiles the loops.
    sentence = "compiled"
    if not any(Path(__file__).parents[2].glob("*/__pycache__/*.nbi")):
        command = "python -m testbed.play.precompile"
        sentence += f" by the first long run, once ({command} does it now)"
    yield MachineCheck("simulator's inner loops", "ok", sentence)


def _controller() -> MachineCheck:
    installed = []
    for name, package in PACKAGES.items():
        # A package that is half installed may raise anything.
        with suppress(Exception):
            if util.find_spec(package) is not None:
                installed.append(f"{name} {metadata.version(name)}")
    try:
        chosen = choose_library()
    except LibraryMissing as error:
        return MachineCheck(
            "controller library", "fail", str(error), install_hint()
        )
    sentence = f"{', '.join(installed)}; {chosen} will be used"
    return MachineCheck("controller library", "ok", sentence)


def _loopback() -> MachineCheck:
    trouble = ""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            socket.create_connection(address, LOOPBACK_S).close()
    except OSError as error:
        # A time-out has no strerror.
        reason = error.strerror or error
        trouble = f"{reason}: the controller and its switches meet there"
    return _graded(
        "loopback device",
        not trouble,
        "up",
        otherwise=trouble,
        hint="sudo ip link set lo up",
        bad="fail",
    )


def _kernel_settings() -> MachineCheck:
    """Checks that /proc/sys can be written: VMs' TCP settings go there."""
    # For root, access() says no only where the mount is read-only.
    return _graded(
        "kernel settings",
        os.access(PINGING, os.W_OK),
        "/proc/sys is writable",
        otherwise=(
            "/proc/sys is read-only, as in a container that is not"
            " privileged"
        ),
        hint="start the container with --privileged",
        bad="fail",
    )


@contextmanager
def _scratch_namespace() -> Iterator[str]:
    name = new_doctor_namespace()
    run(["ip", "netns", "add", name])
    try:
        yield name
    finally:
        run(["ip", "netns", "delete", name])


def _namespaces_and_tc() -> MachineCheck:
    # By making them: what a kernel's configuration names may be a module that
    # is not installed.
    try:
        with _scratch_namespace() as name:
            text_in = "".join(f"{line}\n" for line in TC_SAMPLE)
            run(["tc", "-n", name, "-batch", "-"], text_in=text_in)
            ends = ("name", "hn0", "type", "veth", "peer", "name", "hn1")
            run(["ip", "-n", name, "link", "add", *ends])
    except (CommandFailed, MachineCannot) as error:
        hint = (
            "use a kernel with veth, HTB, bfifo and u32 (Debian's has them)"
        )
        if os.strerror(errno.EROFS) in error.message:
            hint = "make /run writable: a container is started --privileged"
        return MachineCheck(
            "namespaces, veth and tc", "fail", error.message, hint
        )
    sentence = "HTB, bfifo and u32 work in a fresh namespace"
    return MachineCheck("namespaces, veth and tc", "ok", sentence)


NETEM_HINT = (
    "sudo modprobe sch_netem, if the kernel has it (Debian's linux-image-amd64"
    " does, so does the Vagrantfile's machine)"
)


def _netem() -> MachineCheck:
    name = "links' delay and loss"
    try:
        works = has_netem()
    except MachineCannot as error:
        return MachineCheck(name, "warn", error.message, error.hint)
    return _graded(
        name,
        works,
        "netem works",
        otherwise=(
            "the kernel has no netem: only links with delay, jitter or"
            " loss need it"
        ),
        hint=NETEM_HINT,
    )


def has_netem() -> bool:
    """Tries a delay line in a namespace of its own. Needs root.

    Raises MachineCannot where a command is missing.
    """
    try:
        with _scratch_namespace() as name:
            line = ("qdisc", "add", "dev", "lo", "root", "netem")
            run(["tc", "-n", name, *line, "delay", "1ms"])
    except CommandFailed:
        return False
    return True


def require_netem(plan: NetworkPlan) -> None:
    """Raises MachineCannot where links are to delay or lose packets, and the
    kernel cannot.
    """
    if plan.needs_netem and not has_netem():
        raise MachineCannot(
            "the topology's links have delay, jitter or loss, and this"
            " machine's kernel has no netem",
            f"{NETEM_HINT}; or leave these keys out; testbed simulate needs"
            " none",
        )


def _switch() -> Iterator[MachineCheck]:
    if not MACHINE.running and open_vswitch.is_startable():
        sentence = "not running: a run starts it, and stops it at its end"
        yield MachineCheck("Open vSwitch", "ok", sentence)
        return
    if not MACHINE.running:
        why = "not running"
        if MACHINE.database_pid:
            why = "its switch does not answer"
        yield MachineCheck("Open vSwitch", "fail", why, install_hint())
        return
    try:
        yield from _running_switch()
    except (CommandFailed, MachineCannot) as error:
        hint = error.hint or install_hint()
        yield MachineCheck("Open vSwitch", "fail", error.message, hint)


def _running_switch() -> Iterator[MachineCheck]:
    """Raises CommandFailed or MachineCannot where the switch cannot be asked."""
    yield _switch_scheduling()
    version = str(MACHINE.rows("Open_vSwitch", ["ovs_version"])[0][0])
    if open_vswitch.datapath_type() == "system":
        sentence = f"{version}, kernel datapath"
        yield MachineCheck("Open vSwitch", "ok", sentence)
        return
    lacking = "userspace datapath: the kernel has no openvswitch module"
    yield MachineCheck("Open vSwitch", "ok", f"{version}, {lacking}")
    # The kernel's datapath, above, has neither sockets nor a heap to look at.
    yield from _switch_sockets()
    yield _whole_batches()
    yield _switch_memory()


def _switch_sockets() -> Iterator[MachineCheck]:
    """Settings of a userspace switch, by the sockets of its ports."""
    options = dict(MACHINE.rows("Open_vSwitch", ["other_config"])[0][0][1])
    sockets = MACHINE.sockets()
    wanted = options.get("userspace-tso-enable") == "true"
    # The database may ask for it while the switch runs without: OVS reads the
    # option only when it starts.
    yield _graded(
        "segmentation offload",
        wanted and sockets.offload is not False,
        "on",
        otherwise="off: TCP is slow over the userspace datapath, or dead",
        hint=install_hint(),
    )
    if 0 < sockets.send_buffer_bytes < 1 << 20:
        sentence = f"{sockets.send_buffer_bytes} bytes: a deep queue on one port starves the others"
        yield MachineCheck(
            "switch's send buffer", "warn", sentence, install_hint()
        )


def _switch_scheduling() -> MachineCheck:
    """Checks the switch's scheduling class.

    Under SCHED_IDLE it waits for every other process, and its sockets drop
    packets meanwhile.
    """
    pid = MACHINE.pid
    idle = False
    if pid is not None:
        with suppress(ProcessLookupError):
            idle = os.sched_getscheduler(pid) == os.SCHED_IDLE
    return _graded(
        "switch's scheduling",
        not idle,
        "as other programs",
        otherwise=(
            f"process {pid} is under SCHED_IDLE: all others run before it"
        ),
        hint=f"sudo chrt --all-tasks --other --pid 0 {pid}",
    )


def _whole_batches() -> MachineCheck:
    return _graded(
        "drops of a full queue",
        is_preloaded(MACHINE.pid or 0),
        "stays its tenant's",
        otherwise="takes packets of other tenants with it",
        hint=install_hint(),
    )


def _switch_memory() -> MachineCheck:
    held = 0
    if MACHINE.pid is not None:
        # It may end meanwhile.
        with suppress(psutil.NoSuchProcess):
            held = psutil.Process(MACHINE.pid).memory_info().rss
    sentence = f"{held >> 20} MiB"
    return _graded(
        "switch's memory",
        held <= HEAVY_SWITCH_BYTES,
        sentence,
        otherwise=f"{sentence}; started again it holds less",
        hint="sudo /usr/share/openvswitch/scripts/ovs-ctl restart",
    )


def _cubic() -> MachineCheck:
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
    return _graded(
        "TCP CUBIC",
        "cubic" in available.read_text(encoding="ascii").split(),
        "available; jobs pin it",
        otherwise="not available",
        hint="sudo modprobe tcp_cubic",
        bad="fail",
    )


def _cgroups() -> MachineCheck:
    layout = probe_layout()
    name = "control groups"
    hint = (
        "mount them: cgroup v2, or v1 with cpu, cpuacct and freezer, writable; "
        "with memory and pids for limits of VMs"
    )
    if layout.version == 0:
        return MachineCheck(name, "fail", layout.lacking, hint)
    sentence = f"version {layout.version}"
    if os.geteuid() == 0:
        probe = RunCgroup(layout, f"doctor-{secrets.token_hex(3)}")
        # Mounted is not writable: in many containers they are not.
        try:
            probe.create()
            probe.add_vm(0, 0)
        except OSError as error:
            return MachineCheck(
                name, "fail", f"{sentence}, but {error}", hint
            )
        finally:
            remove_groups(probe.paths)
    sentence += ": processor quota, weights, freezer"
    lacking = [limit for limit in OPTIONAL if limit not in layout.mounts]
    if lacking:
        sentence += (
            f"; without {' and '.join(lacking)}: VMs have no such limit"
        )
        return MachineCheck(name, "warn", sentence, hint)
    limits = machine_limits([2] * (TYPICAL_VMS // 2))
    sentence += f"; of {TYPICAL_VMS} VMs each may have {limits}"
    return MachineCheck(name, "ok", sentence)


def _processors() -> MachineCheck:
    count = os.cpu_count() or 1
    load = os.getloadavg()[0]
    sentence = f"{count}, load {load:.1f}"
    if count < 2:
        sentence = (
            f"{sentence}: two or more keep the network and jobs apart"
        )
    elif load > count:
        sentence = f"{sentence}: busy; a live run then asks for more of its evidence"
    return _graded("processors", count >= max(2, load), sentence)


def _clock() -> MachineCheck:
    """Checks the timers' resolution.

    HTB releases packets by timers; where these are coarse, packets leave in
    bursts of a tick.
    """
    source = Path(
        "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    )
    name = "unknown"
    if source.exists():
        name = source.read_text(encoding="ascii").strip()
    resolution_ns = time.clock_getres(time.CLOCK_MONOTONIC) * 1e9
    sentence = f"{name}, resolution {resolution_ns:.0f} ns"
    return _graded(
        "clock",
        resolution_ns <= COARSE_CLOCK_NS,
        sentence,
        otherwise=f"{sentence}: too coarse for limits to be exact",
        hint="boot without highres=off and nohz=off",
    )


def _room() -> MachineCheck:
    have = room(probe_layout())
    k = largest_fat_tree(have)
    sentence = f"{have[0]} MiB available; a fat-tree of k = {k} fits, two VMs a server"
    return _graded("room for a network", k >= MIN_ROOM_K, sentence)


def _disk() -> MachineCheck:
    free = shutil.disk_usage(Path.cwd()).free
    sentence = f"{free >> 20} MiB free here"
    return _graded("disk", free >= MIN_DISK_BYTES, sentence)


def _hidden_processes() -> MachineCheck:
    return _graded(
        "processes",
        hides_processes(),
        "programs in VMs see their own processes alone",
        otherwise=(
            "programs in VMs see the names of all processes: Linux before"
            " 5.8"
        ),
        hint="take a newer kernel",
    )


def _port(port: int, option: str) -> MachineCheck:
    with socket.socket() as probe:
        # Otherwise connections in TIME_WAIT would make a free port look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            sentence = f"cannot be used: {error.strerror}"
            if error.errno == errno.EADDRINUSE:
                sentence = f"taken by {port_user(port)}"
            hint = f"testbed run {option} OTHER"
            return MachineCheck(f"port {port}", "warn", sentence, hint)
    return MachineCheck(f"port {port}", "ok", "free")


def _leftovers() -> MachineCheck:
    try:
        with machine_lock("testbed doctor"):
            left = [journal.tag.name for journal in journals()]
    except MachineCannot as error:
        return MachineCheck("other runs", "warn", error.message)
    except RunFailed as error:
        hint = "sudo testbed clean"
        return MachineCheck("other runs", "warn", error.message, hint)
    return _graded(
        "other runs",
        not left,
        "none, and nothing left behind",
        otherwise=f"left behind by {', '.join(left)}",
        hint="sudo testbed clean",
    )


def _temporary_folders() -> MachineCheck:
    left = [
        folder.name for folder in remove_temporary_folders(dry_run=True)
    ]
    sentence = "none is left behind"
    if left:
        count = number_of(len(left), "folder")
        sentence = f"{count} left behind by killed commands, as {left[0]}"
    return _graded(
        "temporary folders", not left, sentence, hint="sudo testbed clean"
    )


# ------------------------------------------------------------------ room for a network


# Measured at little traffic (docs/decisions/40): a network needs at least
# this much.
BASE_BYTES = 100 << 20
PART_BYTES = 24 << 20
PORT_BYTES = 100_000
AGENT_BYTES = 3_500_000
PART_THREADS = 12  # of a part's two daemons
OTHERS = 100  # threads, and open files, of everything else
HINTS = {
    "MiB of memory": "end other programs; or fewer slots_per_server, a smaller k, fewer VMs",
    "network namespaces": "sudo sysctl user.max_net_namespaces=NUMBER",
    "processes": "sudo sysctl kernel.pid_max=NUMBER; a container's limit is its pids.max",
    "open files": "raise the hard limit, ulimit -Hn",
}
"""Hints by amounts that may be short, as :func:`needed` orders them."""


def needed(network: NetworkPlan, n_agents: int) -> tuple[int, ...]:
    """Amounts that a network takes while ``n_agents`` VMs are in use."""
    n_parts = len(switch_parts(network))
    n_slots = len(network.slots)
    size_bytes = BASE_BYTES
    size_bytes += n_parts * PART_BYTES
    size_bytes += len(network.ports) * PORT_BYTES
    size_bytes += n_agents * AGENT_BYTES
    processes = n_agents + n_parts * PART_THREADS + OTHERS
    # ``ip -batch`` has the most files open at once: it keeps each namespace
    # that a line names open until it ends.
    files = len(network.ports) + n_slots + OTHERS
    return size_bytes >> 20, n_slots + n_parts, processes, files


def room(
    layout: CgroupLayout, proc_sys: Path = shared_numbers.SYSTEM
) -> tuple[int, ...]:
    """Amounts left on the machine, or, if less, in its control group.

    In a container, the topmost group that can be seen is the container's own.
    """
    size_bytes = psutil.virtual_memory().available
    if group := layout.mounts.get("memory"):
        size_bytes = min(size_bytes, _group_room(group, layout))
    processes = _most_processes(layout, proc_sys) - len(psutil.pids())
    namespaces = _limit(proc_sys / "user/max_net_namespaces")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return size_bytes >> 20, namespaces, processes, files


def _most_processes(layout: CgroupLayout, proc_sys: Path) -> int:
    """The most processes that may run, by the kernel and the control groups."""
    most = [_limit(proc_sys / "kernel/pid_max")]
    most += [_limit(root / "pids.max") for root in layout.roots]
    return min(most)


def _group_room(group: Path, layout: CgroupLayout) -> int:
    """Bytes that a control group may still take.

    Page cache does not count as used: the kernel drops it before it refuses
    memory.
    """
    used = "total_rss" if layout.version == 1 else "anon"
    # Older kernels have no such file in the topmost group.
    used_bytes = counts(group / "memory.stat").get(used, 0)
    return _limit(group / layout.memory_limit) - used_bytes


def _limit(path: Path) -> int:
    """The number in a file.

    A very large one stands for no limit: no file, or the text ``max``.
    """
    text = path.read_text("ascii").strip() if path.exists() else "max"
    return int(text) if text.isdecimal() else 1 << 62


def machine_limits(slots: Sequence[int]) -> VmLimits:
    """Limits of a VM, from this machine's memory and process numbers.

    ``slots``: VM slots of each server.
    """
    memory_bytes = psutil.virtual_memory().total
    layout = probe_layout()
    if group := layout.mounts.get("memory"):
        limit_bytes = _limit(group / layout.memory_limit)
        memory_bytes = min(memory_bytes, limit_bytes)
    return vm_limits(
        slots, memory_bytes, _most_processes(layout, shared_numbers.SYSTEM)
    )


def require_room(network: NetworkPlan, n_agents: int) -> None:
    """Lets this process open the files that the network needs.

    Raises MachineCannot where the network does not fit.
    """
    need = needed(network, n_agents)
    have = room(probe_layout())
    for (amount, hint), wanted, left in zip(
        HINTS.items(), need, have, strict=True
    ):
        if wanted > left:
            message = f"the network needs {wanted:,} {amount}, {left:,} are left on this machine"
            raise MachineCannot(message, hint)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, need[-1]), hard))


def largest_fat_tree(have: tuple[int, ...]) -> int:
    """Largest k, up to 16, of a fat-tree that fits with two VMs a server.

    0 where not even k = 2 fits.
    """
    largest = 0
    for k in range(2, 17, 2):
        plan = network_plan(fat_tree(k, 1_000_000_000, 2))
        # Amount by amount, in the order of HINTS.
        if all(map(le, needed(plan, len(plan.slots)), have)):
            largest = k
    return largest
