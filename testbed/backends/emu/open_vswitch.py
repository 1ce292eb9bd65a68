"""Open vSwitch: bridges, ports and controllers in one transaction; its daemons
and their settings.

On the userspace datapath three things are decided when ``ovs-vswitchd`` starts
or sends its first packet:

- ``other_config:userspace-tso-enable``: without it every packet of a VM with an offloaded
  checksum is dropped, and switching that offload off costs five sixths of the throughput.
- ``net.core.wmem_default``: all ports send through one socket, made when the first packet is sent,
  with the buffer that is the default at that moment. A small one lets a deep queue on one port
  starve all others, and no counter shows it. In a container the default cannot be changed: there
  a daemon's library sets the buffers.
- the memory that its allocator and its exact-match cache keep of jobs that are over: see
  ``ALLOCATOR`` in :mod:`testbed.backends.emu.switch_preload` and :data:`SETTINGS` here.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import resource
import struct
import subprocess
import time
from collections.abc import (
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from jobs.linux import inside_network_namespace
from testbed.backends.emu.cgroups import lives, release
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
    JournalEntry,
    setting,
)
from testbed.backends.emu.commands import run
from testbed.backends.emu.switch_preload import (
    RECEIVE_BUFFER_BYTES,
    SEND_BUFFER_BYTES,
    preload,
)
from testbed.backends.emu.traffic_control import NETNS_DIR
from testbed.errors import MachineCannot, RunFailed, install_hint
from testbed.plan.network_plan import Bridge, NetworkPlan, Port

Datapath = Literal["netdev", "system"]
RUN_KEY = "hosenet-run"
# Open vSwitch's own is 8 s: for as long a controller that is started again
# would lack switches.
CONTROLLER_MAX_BACKOFF_MS = 1000
# After this long without a message a switch asks the controller for an echo.
# All switches do so at the same time, as they were made together: at OVS's
# default of 5 s agents on a slow machine waited 30 ms each time. The end of a
# controller is noticed without echoes, by its connections.
CONTROLLER_PROBE_MS = 60_000
OVS_TIMEOUT_S = 120
NUMBERS_TIMEOUT_S = 60
DAEMON_TIMEOUT_S = 60
NO_VALUE: object = ["set", []]
"""An empty column, as OVSDB writes it in JSON."""


def datapath_type() -> Datapath:
    """The kernel's datapath where its module is loaded, else the userspace one."""
    loaded = Path("/sys/module/openvswitch").exists()
    return "system" if loaded else "netdev"


def up_arguments(
    network: NetworkPlan,
    bridges: Sequence[Bridge],
    run_tag: str,
    datapath: Datapath,
    *,
    connected: bool = True,
) -> list[str]:
    """``ovs-vsctl`` arguments of one transaction that makes bridges,
    ``connected`` to their controller or not yet.

    Ports get the QoS type ``linux-noop``: with any other, or none, ovs-vswitchd
    deletes the root qdisc, and with it the limits that tc has set. All rows
    carry the run's tag.
    """
    tag = f"external_ids:{RUN_KEY}={run_tag}"
    # Rows: add-br and add-port would each search the whole database.
    commands = [["--id=@noop", "create", "QoS", "type=linux-noop", tag]]
    for bridge in bridges:
        # The bridge's local port, which add-br would have made.
        commands += _port_rows(
            f"{bridge.node}.local", bridge.name, interface="type=internal"
        )
        ids = [f"@p{bridge.node}.local"]
        for port in network.ports_of_bridge[bridge.name]:
            row = f"{bridge.node}.{port.number}"
            ids.append(f"@p{row}")
            commands += _port_rows(
                row,
                port.name,
                interface=f"ofport_request={port.number}",
                port=("qos=@noop", tag),
            )
        bridge_row = _bridge_row(bridge, ids, datapath, tag)
        if connected:
            commands.append(controller_row(f"c{bridge.node}", run_tag))
            bridge_row.append(f"controller=@c{bridge.node}")
        commands.append(bridge_row)
    bridge_ids = [f"@b{bridge.node}" for bridge in bridges]
    commands.append(["add", "Open_vSwitch", ".", "bridges", *bridge_ids])
    return _joined(commands)


def _port_rows(
    row: str,
    name: str,
    *,
    interface: str,
    port: Sequence[str] = (),
) -> list[list[str]]:
    return [
        [f"--id=@i{row}", "create", "Interface", f"name={name}", interface],
        [
            f"--id=@p{row}",
            "create",
            "Port",
            f"name={name}",
            f"interfaces=@i{row}",
            *port,
        ],
    ]


def controller_socket(run_tag: str) -> str:
    """The name of the controller's socket in a switch's run folder."""
    return f"hosenet-{run_tag}.sock"


def controller_row(row: str, run_tag: str) -> list[str]:
    """The command that creates the row of a bridge's controller.

    ``row``: its name within the transaction.
    """
    # OVS accepts sockets only in its run folder, to which a bare name is
    # relative. In-band control would only add hidden flows.
    return [
        f"--id=@{row}",
        "create",
        "Controller",
        f'target="unix:{controller_socket(run_tag)}"',
        "connection_mode=out-of-band",
        f"max_backoff={CONTROLLER_MAX_BACKOFF_MS}",
        f"inactivity_probe={CONTROLLER_PROBE_MS}",
    ]


def connection_arguments(
    bridges: Sequence[Bridge], run_tag: str
) -> list[str]:
    """One transaction that gives bridges their controller."""
    commands = []
    for bridge in bridges:
        row = f"c{bridge.node}"
        commands.append(controller_row(row, run_tag))
        commands.append(
            ["set", "Bridge", bridge.name, f"controller=@{row}"]
        )
    return _joined(commands)


def _bridge_row(
    bridge: Bridge,
    ports: Sequence[str],
    datapath: Datapath,
    tag: str,
) -> list[str]:
    # fail_mode=secure: rules stay, and traffic flows, while the controller is
    # away.
    return [
        f"--id=@b{bridge.node}",
        "create",
        "Bridge",
        f"name={bridge.name}",
        f"ports={','.join(ports)}",
        f"datapath_type={datapath}",
        "fail_mode=secure",
        "protocols=OpenFlow13",
        f"other_config:datapath-id={bridge.dpid:016x}",
        "other_config:disable-in-band=true",
        tag,
    ]


def deletion_arguments(
    command: Sequence[str], names: Iterable[str]
) -> list[str]:
    """Arguments of one transaction that deletes all of ``names``.

    Names that are gone already are no failure.
    """
    return _joined([["--if-exists", *command, name] for name in names])


def _joined(commands: Sequence[Sequence[str]]) -> list[str]:
    return [
        argument for command in commands for argument in ("--", *command)
    ]


# ------------------------------------------------------------------------------------- asking


@dataclass(frozen=True)
class SwitchSockets:
    """Packet sockets of the userspace datapath.

    ``offload``: frames carry their checksum and segmentation state (userspace
    TSO in effect); None while it has no port to tell by. ``send_buffer_bytes``
    is 0 until a first packet is sent.
    """

    offload: bool | None
    send_buffer_bytes: int


def read_sockets(text: str, pid: int | None) -> SwitchSockets:
    """The switch's packet sockets, from the text of ``ss -0anpme``.

    The one that is bound to no device is its send socket. ``pid``: only sockets
    of this process; None where the switch is alone in its namespace.
    """
    offload: bool | None = None
    buffer_bytes = 0
    # An entry's further lines are indented. The first line names the columns.
    for entry in re.split(r"\n(?=\S)", text)[1:]:
        if pid is not None and f"pid={pid}," not in entry:
            continue
        # ss says "vnethdr" of sockets whose frames come with a header of
        # checksum and segmentation (PACKET_VNET_HDR), and "tb" of the size
        # of the send buffer.
        offload = bool(offload) or "vnethdr" in entry
        size = re.search(r"\btb(\d+)", entry)
        if re.search(r"\[0\]:\*|\*:\*", entry) and size:
            buffer_bytes = max(buffer_bytes, int(size.group(1)))
    return SwitchSockets(offload, buffer_bytes)


class SwitchDaemons:
    """One Open vSwitch: the machine's own, or a part of a network.

    ``run_dir``: folder of its sockets and pid files; ``netns``: name of its
    network namespace, None for the host's.
    """

    def __init__(self, run_dir: Path, netns: str | None = None) -> None:
        self.run_dir = run_dir
        self.netns = netns

    def inside(self) -> AbstractContextManager[None]:
        """Moves this thread to the switch's network namespace for the block."""
        if self.netns is None:
            return nullcontext()
        return inside_network_namespace(NETNS_DIR / self.netns)

    def vsctl(self, arguments: Sequence[str], *, wait: bool = True) -> str:
        """Runs ``ovs-vsctl``; returns its output.

        ``wait``: until the switch has carried out the change, not only until
        it is in the database.
        """
        flags = [
            f"--db=unix:{self.run_dir}/db.sock",
            f"--timeout={OVS_TIMEOUT_S}",
        ]
        if not wait:
            flags.append("--no-wait")
        # Its own time-out comes first: it names what it waits for.
        return run(
            ["ovs-vsctl", *flags, *arguments], timeout_s=OVS_TIMEOUT_S + 5
        ).stdout

    def rows(
        self,
        table: str,
        columns: Sequence[str],
        *conditions: str,
    ) -> list[list[Any]]:
        """Rows of a table of its database, with sets and maps as in OVSDB's
        JSON.
        """
        verb = "find" if conditions else "list"
        shown = [
            "--format=json",
            f"--columns={','.join(columns)}",
            verb,
            table,
            *conditions,
        ]
        out = self.vsctl(shown, wait=False)
        return list(json.loads(out)["data"]) if out.strip() else []

    def controlled(self) -> set[str]:
        """Names of its bridges whose controller is connected."""
        rows = self.rows("Controller", ["_uuid", "is_connected"])
        connected = [uuid for uuid, is_connected in rows if is_connected]
        bridges = self.rows("Bridge", ["name", "controller"])
        return {
            str(name)
            for name, controller in bridges
            if controller in connected
        }

    @property
    def database_pid(self) -> int | None:
        """The database's process, by its pid file; None if it does not run."""
        return self._pid_of("ovsdb-server")

    @property
    def pid(self) -> int | None:
        """The process that forwards packets, None if it does not run."""
        return self._pid_of("ovs-vswitchd")

    @property
    def running(self) -> bool:
        """Both daemons are there."""
        return self.database_pid is not None and self.pid is not None

    def _pid_of(self, name: str) -> int | None:
        try:
            pid = int(
                (self.run_dir / f"{name}.pid").read_text(encoding="ascii")
            )
            command = (
                Path(f"/proc/{pid}/comm")
                .read_text(encoding="utf-8")
                .strip()
            )
        except (OSError, ValueError):
            return None
        # A crash leaves the file behind, and its number may be another
        # process's by now.
        return pid if command == name and lives(pid) else None

    def sockets(self) -> SwitchSockets:
        """Its packet sockets, as the kernel has them."""
        flags = ["--packet", "--all", "--numeric", "--memory", "--extended"]
        if self.netns is None:
            # ss walks all processes to tell whose sockets they are. A part is
            # alone in its namespace and needs no such walk.
            flags.append("--processes")
        with self.inside():
            return read_sockets(
                run(["ss", *flags]).stdout,
                None if self.netns else self.pid or 0,
            )

    def prime_send_socket(self, port: Port) -> SwitchSockets:
        """Has the switch make its send socket by sending a frame.

        The socket gets the kernel's default buffer of this moment, and keeps it
        until the switch restarts: nothing happens if it exists.
        """
        sockets = self.sockets()
        if sockets.send_buffer_bytes:
            return sockets
        bridge = f"unix:{self.run_dir}/{port.bridge}.mgmt"
        action = f"in_port=local,packet={PROBE_FRAME},actions=output:{port.number}"
        run(
            [
                "ovs-ofctl",
                "--timeout=60",
                "-O",
                "OpenFlow13",
                "packet-out",
                bridge,
                action,
            ]
        )
        return self.sockets()

    def check_ports(self, ports: Sequence[Port]) -> None:
        """Raises RunFailed naming a port that is missing or misnumbered.

        ``ovs-vsctl`` succeeds even if the switch could not open a device. A
        switch that has just started may record port numbers a moment after it
        reported success.
        """
        give_up_s = time.monotonic() + NUMBERS_TIMEOUT_S
        while True:
            fault = self._port_fault(ports)
            if fault is None:
                return
            port, reason, may_pass = fault
            if not may_pass or time.monotonic() > give_up_s:
                raise RunFailed(
                    f"port {port.name} of {port.bridge} should be number {port.number}: {reason}"
                )
            time.sleep(0.05)

    def _port_fault(
        self, ports: Sequence[Port]
    ) -> tuple[Port, str, bool] | None:
        """The first wrong port, why, and whether a moment may bring its number."""
        rows = self.rows("Interface", ["name", "ofport", "error"])
        state_of = {name: state for name, *state in rows}
        missing = (NO_VALUE, "it is not in the switch's database")
        for port in ports:
            number, error = state_of.get(port.name, missing)
            if number == port.number:
                continue
            # No error is an empty set, which is no text.
            if isinstance(error, str):
                return port, error, False
            if number == NO_VALUE:
                return port, "it has no number yet", True
            return port, f"it has number {number}", False
        return None


MACHINE = SwitchDaemons(Path("/run/openvswitch"))
"""The machine's switch: its service's, or one that a run has started."""


def switch_version() -> str:
    """Open vSwitch's version as installed, such as ``3.1.0``."""
    return (
        run(["ovs-vswitchd", "--version"])
        .stdout.split("\n")[0]
        .rpartition(" ")[2]
    )


def foreign_bridges(network: NetworkPlan) -> list[str]:
    """Names of the machine's bridges that are not of this network."""
    ours = {bridge.name for bridge in network.bridges}
    rows = MACHINE.rows("Bridge", ["name"])
    return sorted({str(row[0]) for row in rows} - ours)


def owned_by(run_tag: str) -> tuple[list[str], list[str]]:
    """Names of a run's bridges, and UUIDs of its rows of the QoS table."""
    condition = f"external_ids:{RUN_KEY}={run_tag}"
    bridges = [
        str(row[0]) for row in MACHINE.rows("Bridge", ["name"], condition)
    ]
    qos_rows = [
        str(row[0][1]) for row in MACHINE.rows("QoS", ["_uuid"], condition)
    ]
    return sorted(bridges), sorted(qos_rows)


# -------------------------------------------------------------------------------------- daemons


OVS_CTL = Path("/usr/share/openvswitch/scripts/ovs-ctl")
DATABASE = Path("/etc/openvswitch/conf.db")
# A device that the userspace datapath makes. Its fixed name allows one switch
# with bridges per network namespace.
USERSPACE_DEVICE = "ovs-netdev"
DEVICE_TIMEOUT_S = 5
# linux/if_tun.h
TUNSETIFF = 0x400454CA
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000
WMEM_DEFAULT = Path("/proc/sys/net/core/wmem_default")
MAX_FILES = 65_535
RMEM_DEFAULT = Path("/proc/sys/net/core/rmem_default")
# The exact-match cache refers to flows until others take their places, which
# would keep flows of ended jobs in memory: its insertion is off.
SETTINGS = {"userspace-tso-enable": "true", "emc-insert-inv-prob": "0"}
# An Ethernet frame of a type that nobody listens to.
PROBE_FRAME = "02484e00000002484e00000188b5" + "00" * 46


def ensure_running(journal: CleanupJournal) -> None:
    """Starts the daemons if they do not run.

    The run's journal records the start, so that its end stops them again.
    Raises MachineCannot with the command that helps.
    """
    if MACHINE.running:
        return
    if has_service():
        hint = "sudo systemctl start openvswitch-switch"
        raise MachineCannot("Open vSwitch is not running", hint)
    journal.add([JournalEntry("daemon", "openvswitch")])
    start()


def start() -> None:
    """Starts both daemons; for the userspace datapath with segmentation offload.

    Raises MachineCannot, also if another switch has the userspace datapath.
    """
    if not OVS_CTL.exists():
        raise MachineCannot("Open vSwitch is not installed", install_hint())
    options = ("--system-id=random", "--no-mlockall")
    if datapath_type() == "system":
        _ovs_ctl(*options, "start")
    else:
        # A switch that has just ended may still have it.
        _wait_for_datapath()
        # The database by itself: the switch reads these settings only as it
        # starts.
        _ovs_ctl(*options, "--no-ovs-vswitchd", "start")
        settings = [
            f"other_config:{key}={value}" for key, value in SETTINGS.items()
        ]
        MACHINE.vsctl(["set", "Open_vSwitch", ".", *settings], wait=False)
        _start_userspace()
    _release_daemons()


def is_startable() -> bool:
    """True where a run may start the switch itself."""
    return OVS_CTL.exists() and not has_service()


def has_service() -> bool:
    """True where systemd starts and stops the machine's switch."""
    return Path("/run/systemd/system").exists()


def start_again() -> None:
    """Starts ovs-vswitchd again after its end, by systemd on machines that have it.

    Raises MachineCannot.
    """
    if has_service():
        detached(["systemctl", "restart", "ovs-vswitchd"])
    elif datapath_type() == "system":
        _ovs_ctl("--no-ovsdb-server", "--no-mlockall", "restart")
    else:
        _wait_for_datapath()
        _start_userspace()
    _release_daemons()


def _start_userspace() -> None:
    with preload() as library:
        command = switch_command(MACHINE.run_dir, library.environment)
        detached([*command, "--monitor"], files=library.files)


def _release_daemons() -> None:
    """Moves the started daemons out of the run's control groups.

    Raises MachineCannot if they do not run.
    """
    if not MACHINE.running:
        raise MachineCannot(
            "Open vSwitch does not start", f"sudo {OVS_CTL} start"
        )
    for pid in (MACHINE.database_pid, MACHINE.pid):
        _release(pid)


def _wait_for_datapath() -> None:
    """Waits until no other switch holds the datapath's device.

    While one does, a second switch cannot make bridges. A killed switch
    releases it a moment later. Raises MachineCannot.
    """
    give_up_s = time.monotonic() + DEVICE_TIMEOUT_S
    while _is_datapath_held():
        if time.monotonic() > give_up_s:
            raise MachineCannot(
                f"another Open vSwitch has the userspace datapath (device {USERSPACE_DEVICE})",
                "remove its bridges (ovs-vsctl list-br, ovs-vsctl del-br BRIDGE) or stop it",
            )
        time.sleep(0.05)


def _is_datapath_held() -> bool:
    """True if another process holds the tap device: attaching to it fails."""
    if not Path("/sys/class/net", USERSPACE_DEVICE).exists():
        return False
    # struct ifreq: name and flags, 40 bytes in all. Where the device can be
    # attached to, closing the file lets go of it.
    request = struct.pack(
        "16sH22x", USERSPACE_DEVICE.encode(), IFF_TAP | IFF_NO_PI
    )
    try:
        with Path("/dev/net/tun").open("rb", buffering=0) as device:
            fcntl.ioctl(device, TUNSETIFF, request)
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


def switch_command(
    run_dir: Path, environment: Mapping[str, str]
) -> list[str]:
    """Command that starts ovs-vswitchd as a daemon.

    Without ovs-ctl, which insists on the kernel's module. The switch opens
    three files per bridge and at least one per port.
    """
    # In a container root may not raise the hard limit.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = MAX_FILES
    if hard != resource.RLIM_INFINITY:
        files = min(hard, MAX_FILES)
    return [
        "prlimit",
        f"--nofile={files}:",
        "env",
        *(f"{key}={value}" for key, value in environment.items()),
        "ovs-vswitchd",
        f"unix:{run_dir}/db.sock",
        "-vconsole:emer",
        "-vsyslog:err",
        "-vfile:info",
        "--no-chdir",
        "--log-file",
        "--pidfile",
        "--detach",
    ]


def _release(pid: int | None) -> None:
    """Moves a daemon and its monitor out of the run's control groups.

    They serve the machine, and must not end with the run that started them.
    """
    if pid is None:
        return
    release(pid)
    daemon = psutil.Process(pid)
    monitor = daemon.parent()
    if (
        monitor is not None
        and monitor.pid > 1
        and monitor.name() == daemon.name()
    ):
        release(monitor.pid)


def stop_if_idle(
    ignored: Container[str] = (), *, dry_run: bool = False
) -> bool:
    """Stops both daemons unless a bridge exists; True if they are stopped.

    ``ignored``: names of bridges that do not count. A dry run only returns
    whether the daemons would be stopped.
    """
    if MACHINE.database_pid:
        for row in MACHINE.rows("Bridge", ["name"]):
            if row[0] not in ignored:
                return False
    if OVS_CTL.exists() and not dry_run:
        _ovs_ctl("stop")
    return True


@contextmanager
def ovsdb_for_a_while() -> Iterator[bool]:
    """Starts the switch's database for the block, if it does not run.

    After a reboot it may still hold a dead run's bridges. Yields False where
    the machine has no such database.
    """
    if MACHINE.database_pid:
        yield True
    elif not OVS_CTL.exists() or not DATABASE.exists():
        yield False
    else:
        _ovs_ctl("--no-ovs-vswitchd", "--system-id=random", "start")
        try:
            yield True
        finally:
            _ovs_ctl("--no-ovs-vswitchd", "stop")


def _ovs_ctl(*arguments: str) -> None:
    detached([str(OVS_CTL), *arguments])


def detached(
    command: list[str],
    environment: Mapping[str, str] | None = None,
    files: Sequence[int] = (),
) -> None:
    """Runs a command that leaves a daemon behind.

    ``files``: descriptors that the daemon inherits. Raises MachineCannot.
    """
    text = " ".join(command)
    hint = "see /var/log/openvswitch/ovs-vswitchd.log"
    try:
        # No pipes: a daemon keeps what it inherits open, and whoever reads
        # its output would wait for its end.
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            pass_fds=files,
            timeout=DAEMON_TIMEOUT_S,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise MachineCannot(
            f"{text} has not ended in {DAEMON_TIMEOUT_S} s", hint
        ) from None
    except OSError as error:
        raise MachineCannot(
            f"cannot run {command[0]}: {error.strerror}", install_hint()
        ) from error
    if done.returncode != 0:
        raise MachineCannot(f"{text} ended with {done.returncode}", hint)


def at_least(
    path: Path,
    size_bytes: int,
    journal: CleanupJournal,
) -> AbstractContextManager[None]:
    """Raises a kernel setting to at least this size for the block.

    Does nothing where it cannot be written, as in a container.
    """
    if not os.access(path, os.W_OK):
        return nullcontext()
    present = int(path.read_text(encoding="ascii"))
    return setting(path, str(max(size_bytes, present)), journal)


@contextmanager
def large_buffers(journal: CleanupJournal) -> Iterator[None]:
    """Gives packet sockets that are made in the block large buffers.

    The kernel's default of 208 kB holds a few milliseconds of a fast link.
    Packets that arrive while the switch's thread waits for a processor would be
    lost, which only a counter of the socket shows. Where the settings cannot be
    changed, the switch's preloaded library sets each socket's buffer.
    """
    with (
        at_least(RMEM_DEFAULT, RECEIVE_BUFFER_BYTES, journal),
        at_least(WMEM_DEFAULT, SEND_BUFFER_BYTES, journal),
    ):
        yield
