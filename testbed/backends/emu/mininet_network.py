"""A network that is up, as Mininet's objects.

``net.get("h3").cmd("ip addr")`` and ``CLI(net)`` work on them. Nodes, links and
interfaces are subclasses of Mininet's that are attached to existing ones: making
them changes nothing on the machine and starts no process. A node's shell starts
on first use, as root, in the node's network namespace. ``net.stop()`` ends those
shells; the network stays.
"""

from __future__ import annotations

import fcntl
import logging
import os
import resource
import signal
import socket
import struct
import subprocess
import time
from collections.abc import (
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from traceback import walk_tb
from typing import Any

from mininet.cli import CLI
from mininet.link import Intf, Link
from mininet.log import error, output
from mininet.net import Mininet
from mininet.node import Host, Node, OVSSwitch, RemoteController
from mininet.util import numCores

from controller.launch import OPENFLOW_PORT
from jobs.call_filter import refuse_calls, terminal_program
from jobs.linux import inside_network_namespace
from testbed.backends.emu.interrupts import uninterrupted
from testbed.backends.emu.netlink import IFF_UP
from testbed.backends.emu.open_vswitch import MACHINE, SwitchDaemons
from testbed.backends.emu.traffic_control import NETNS_DIR, has_carrier
from testbed.errors import BadInput, RunFailed, TestbedError
from testbed.plan.batch_lines import VM_DEVICE
from testbed.plan.network_plan import Bridge, NetworkPlan, Port, Slot
from testbed.units import number_of

# Importing Mininet sets the logger class of the whole process to its own, which
# prints without line ends.
logging.setLoggerClass(logging.Logger)

SHELL = ("shell", "pid", "stdin", "stdout", "pollOut", "master", "slave")
"""Attributes that a node has only once its shell has started."""
PROBE_PORT = 9
"""Any port: nothing is sent to it."""
LISTENS_WITHIN_S = 10.0
"""The longest that a server of iperf may take until it listens."""
ENDS_WITHIN_S = 30.0
"""The longest that it may take to end after its client, besides ``seconds``."""
LIMITS_OF_LINKS = frozenset(
    ("bw", "delay", "jitter", "loss", "max_queue_size", "speedup")
)
"""Parameters by which Mininet's TCIntf limits what an interface sends."""
# Requests of netdevice(7) about an interface.
SIOCGIFFLAGS = 0x8913
SIOCGIFADDR = 0x8915
SIOCGIFHWADDR = 0x8927


def mininet_network(
    plan: NetworkPlan,
    switches: Mapping[str, SwitchDaemons] | None = None,
    controller_port: int = OPENFLOW_PORT,
) -> AttachedMininet:
    """The network of a plan, which is up, as a ``mininet.net.Mininet``.

    ``switches``: Open vSwitch of each bridge, where it is not the machine's.
    Any process of root may attach to the network, several at a time.
    """
    net = AttachedMininet(controller_port)
    net.attach(plan, switches or {})
    return net


# --------------------------------------------------------------------------------------- nodes


# Mininet ends shells by SIGHUP. A process that nohup started ignores it, and a
# shell would inherit that.
ENDED_BY_HANG_UP = ("env", "--default-signal=HUP")
# cmd() runs commands on a terminal, and iproute2 6.15 colours what it writes to
# one: callers parse it.
UNCOLOURED = {"NO_COLOR": "1"}


class Attached(Node):  # type: ignore[misc]
    """A node in an existing namespace.

    ``inside`` moves this thread into the namespace for a block; it raises
    OSError where the network is gone or this process is not root's.
    ``environment``: additional variables of the node's processes.
    """

    inNamespace: bool
    # Otherwise Mininet runs programs to see whether they are installed.
    isSetup = True

    def __init__(
        self,
        name: str,
        inside: Callable[[], AbstractContextManager[None]],
        environment: Mapping[str, str],
        **params: Any,
    ) -> None:
        self.inside = inside
        self._environment = UNCOLOURED | dict(environment)
        super().__init__(name, **params)

    def startShell(self, mnopts: str | None = None) -> None:
        """Does not start a shell: :meth:`__getattr__` does, on first use."""
        del mnopts
        # Mininet's constructor sets these attributes to None before it calls
        # this, and Python calls __getattr__ only for missing ones.
        if not self.__dict__.get("shell"):
            for name in SHELL:
                self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        """Starts the shell at the first use of an attribute in SHELL.

        Ctrl-C waits for the start.
        """
        if name not in SHELL:
            raise AttributeError(
                f"{type(self).__name__} has no attribute {name!r}"
            )
        # Entering comes first: it fails if the network is gone.
        with uninterrupted(), self.inside():
            # Mininet's method begins by reading it: a missing attribute would
            # lead here again.
            self.shell = None
            # Where it is False, mnexec makes no new namespace, and the shell
            # inherits this thread's.
            in_namespace = self.inNamespace
            self.inNamespace = False
            try:
                super().startShell()
            finally:
                self.inNamespace = in_namespace
                if self.shell is None:
                    self._forget_terminal()
        return getattr(self, name)

    def _forget_terminal(self) -> None:
        """After a shell that did not start: the next use tries again.

        Mininet takes None for a shell that has ended, and would ignore commands.
        """
        for name in {"master", "slave"} & self.__dict__.keys():
            os.close(self.__dict__[name])
        # Not a subclass' method, which may start a shell at once.
        Attached.startShell(self)

    @contextmanager
    def _without_shell(self) -> Iterator[None]:
        """Lets ``pid`` be None for the block, so that reading it starts no shell."""
        if "pid" in self.__dict__:
            yield
            return
        self.pid = None
        try:
            yield
        finally:
            del self.pid

    def __repr__(self) -> str:
        with self._without_shell():
            return str(super().__repr__())

    def popen(self, *args: Any, **kwargs: Any) -> Any:
        """As Mininet's: a process in the node's namespace and a new session."""
        # Mininet reads the shell's pid for its default of mncmd, even where
        # another one is passed. mnexec -d makes the session.
        with self._without_shell():
            return super().popen(
                *args, **{"mncmd": ["mnexec", "-d"], **kwargs}
            )

    def _popen(self, cmd: Sequence[str], **params: Any) -> Any:
        params.setdefault("env", {**os.environ, **self._environment})
        # A program of another user in the node's shell could otherwise type
        # commands for root into its terminal (TIOCSTI).
        refuse_typing = partial(refuse_calls, terminal_program)
        params.setdefault("preexec_fn", refuse_typing)
        # A child inherits the namespace of the thread that starts it. With a
        # preexec_fn Python would lose a Ctrl-C while it forks.
        with self.inside(), uninterrupted():
            return super()._popen([*ENDED_BY_HANG_UP, *cmd], **params)

    def terminate(self) -> None:
        """Ends the node's shell, if it was started, with what runs in it."""
        # By the dictionary: the attribute would start a shell to end it.
        if self.__dict__.setdefault("shell", None):
            super().terminate()


class AttachedHost(Attached, Host):  # type: ignore[misc]
    """A VM slot. It has an address only while a tenant's VM is there."""

    def __init__(self, name: str, slot: Slot) -> None:
        self.slot = slot
        super().__init__(
            name,
            partial(inside_network_namespace, NETNS_DIR / slot.netns),
            {},
        )

    def setIP(self, *_args: Any, **_options: Any) -> Any:
        """Refused. Raises BadInput."""
        raise _not_set(f"{self}'s address")

    def setMAC(self, *_args: Any, **_options: Any) -> Any:
        """Refused. Raises BadInput."""
        raise _not_set(f"{self}'s MAC address")


class AttachedSwitch(Attached, OVSSwitch):  # type: ignore[misc]
    """A bridge of an Open vSwitch: the machine's, or one of a network's parts."""

    def __init__(
        self,
        bridge: Bridge,
        switch: SwitchDaemons,
        name: str = "",
    ) -> None:
        self.bridge = bridge
        self._stopped_ports: list[Intf] = []
        super().__init__(
            name or bridge.name,
            switch.inside,
            # There ovs-vsctl and ovs-ofctl find the sockets.
            {"OVS_RUNDIR": str(switch.run_dir)},
            dpid=f"{bridge.dpid:016x}",
            protocols="OpenFlow13",
            # For the constructor alone, which would otherwise configure the
            # loopback device.
            inNamespace=True,
        )
        self.inNamespace = switch.netns is not None
        # up=None leaves the device as it is, and nothing moves it.
        self.controlIntf = AttachedIntf(
            "lo", self, 0, up=None, moveIntfFn=lambda *_: None
        )

    def dpctl(self, *args: Any) -> Any:
        """``ovs-ofctl``, in the version of OpenFlow that the bridges speak."""
        return self.cmd(
            "ovs-ofctl", "-O", self.protocols, args[0], self, *args[1:]
        )

    def cmd(self, *args: Any, **options: Any) -> Any:
        """As Mininet's; an argument that is this node stands for its bridge.

        Mininet's own methods pass the node where Open vSwitch wants a bridge.
        """
        named = [self.bridge.name if arg is self else arg for arg in args]
        return super().cmd(*named, **options)

    def start(self, _controllers: Sequence[Node] = ()) -> None:
        """Brings up the links that :meth:`stop` took down."""
        for port in self._stopped_ports:
            port.ifconfig("up")
        self._stopped_ports = []

    def stop(self, **_options: Any) -> None:
        """Takes all links of the switch down, so that it forwards nothing.

        The network's keeper learns of it from the kernel's events.
        """
        for port in self.ports_to_links():
            # `start` must not bring up a port that was down before. The port
            # to a stopped neighbour is up, without a carrier: the neighbour
            # may start first.
            if port.is_set_up():
                port.ifconfig("down")
                self._stopped_ports.append(port)

    def start_again(self) -> None:
        """As :meth:`start`, also after a stop by another process.

        All links of the switch then come up: which it took down is unknown.
        """
        if not self._stopped_ports:
            self._stopped_ports = self.ports_to_links()
        self.start()

    def ports_to_links(self) -> list[Intf]:
        return [port for port in self.intfList() if port.name != "lo"]

    @classmethod
    def batchStartup(
        cls, switches: Sequence[Node], run: object = None
    ) -> Sequence[Node]:
        """Does nothing: the switches run."""
        del run
        return switches

    batchShutdown = batchStartup


class AttachedController(Attached, RemoteController):  # type: ignore[misc]
    """The controller, a process of its own on this machine."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name, nullcontext, {}, port=port)

    def checkListening(self) -> None:
        """Does nothing: the switches' connections are what counts."""

    def stop(self, *_args: Any, **_kwargs: Any) -> None:
        """Ends the shell; the controller continues."""
        self.terminate()


# --------------------------------------------------------------------------------------- links


class AttachedIntf(Intf):  # type: ignore[misc]
    """An existing network device, with its present address."""

    mac: str | None

    def _asked(self, request: int) -> bytes | None:
        """The kernel's reply about the device, None if it refuses.

        ``request``: an ioctl of netdevice(7).
        """
        # struct ifreq: 16 bytes of name, then a union of 24.
        ifreq = struct.pack("40s", self.name.encode())
        with (
            self.node.inside(),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket,
        ):
            try:
                return fcntl.ioctl(any_socket, request, ifreq)[16:]
            except OSError:
                return None

    def IP(self) -> str | None:
        """The present IPv4 address.

        None for switch ports, and for a VM slot without a tenant's VM.
        """
        reply = self._asked(SIOCGIFADDR)
        # A sockaddr_in: family and port, two bytes each, then the address.
        self.ip = socket.inet_ntoa(reply[4:8]) if reply else None
        return self.ip

    # Mininet's starts ifconfig and reads its text.
    updateIP = IP

    def MAC(self) -> str | None:
        if self.mac is None:
            reply = self._asked(SIOCGIFHWADDR)
            # A sockaddr: two bytes of family, then the address.
            self.mac = reply[2:8].hex(":") if reply else None
        return self.mac

    def isUp(self, setUp: bool = False) -> bool:
        """True if the device and the other end of its cable are up."""
        if setUp:
            return bool(super().isUp(setUp=True))
        with self.node.inside():
            return has_carrier(self.name)

    def is_set_up(self) -> bool:
        """True if the device is up, whatever the other end of its cable."""
        reply = self._asked(SIOCGIFFLAGS)
        # A union whose first two bytes are the flags.
        return bool(reply and struct.unpack_from("=H", reply)[0] & IFF_UP)

    def ifconfig(self, *args: Any) -> Any:
        """As Mininet's, but leaves a VM's end of a link up.

        The switch's end alone takes the link down and up: a VM's device that
        goes down loses the permanent neighbours by which VMs find each other.
        """
        if isinstance(self.node, AttachedHost) and args in {
            ("up",),
            ("down",),
        }:
            return ""
        return super().ifconfig(*args)

    def config(self, **params: Any) -> Any:
        """As Mininet's, but sets no limits on the device.

        ``bw`` goes to :meth:`AttachedMininet.set_capacity`, in Mbit/s; the rest
        is set as Mininet sets it. Raises BadInput for other limits, and for a
        device that is no link's.
        """
        limits = sorted(LIMITS_OF_LINKS & params.keys())
        if not limits:
            return super().config(**params)
        if limits != ["bw"]:
            raise BadInput(
                f"{self.node}'s {self}: {', '.join(limits)} cannot be set on a"
                " network that is up: give it in the file or its Topo, then sudo"
                " testbed down and up; config(bw=…) changes a capacity",
                "bw is in the file's Mbit/s",
            )
        # Mininet's defaultIntf of a switch is its loopback device.
        if self.link is None:
            raise BadInput(
                f"{self.node}'s {self} is no link's: it has no capacity",
                f"{self.node}.intfNames() are the names of its devices",
            )
        self.link.net.set_capacity(self, params.pop("bw"))
        # A link that is down stays down, which Mininet's default would not.
        params.setdefault("up", None)
        return super().config(**params)

    def delete(self) -> None:
        """Refused. Raises BadInput."""
        raise BadInput(
            f"{self.node}'s {self} is part of a network that stays up;"
            " link A B down takes a link down",
            "net.configLinkStatus(…, 'down') takes a link down; a new plan has"
            " other links",
        )


class AttachedLink(Link):  # type: ignore[misc]
    """An existing cable.

    ``end1``: device and port number of its first end. ``mac``: that device's
    address.
    """

    # None: the ends stay up or down as they are.
    set_up: bool | None = None
    net: AttachedMininet

    def __init__(
        self,
        node1: Node,
        node2: Node,
        end1: tuple[str, int],
        port2: Port,
        mac: str | None = None,
    ) -> None:
        name1, port1 = end1
        super().__init__(
            node1,
            node2,
            port1,
            port2.number,
            intfName1=name1,
            intfName2=port2.name,
            addr1=mac,
            intf=AttachedIntf,
            up=self.set_up,
        )

    @classmethod
    def makeIntfPair(cls, *_args: Any, **_kwargs: Any) -> None:
        """Does nothing: the devices exist."""

    def stop(self) -> None:
        """Does nothing: the cable stays."""


# ------------------------------------------------------------------------------------- network


class AttachedMininet(Mininet):  # type: ignore[misc]
    """A network with a host per VM slot of its plan, and the plan's bridges.

    Hosts and switches have the topology's names. Where it has none, hosts are
    h1, h2, … in the order of slots, and switches are called as their bridges,
    with an alias by number, servers first: ``s1``. The other aliases are names
    of slots, as ``hn-s0v0``, of bridges, and those of :meth:`alias`. Mininet's
    methods that add or delete nodes and links raise BadInput.
    """

    def __init__(self, controller_port: int) -> None:
        # Otherwise Mininet starts a process to count processors.
        numCores.ncores = os.cpu_count()
        # Mininet's initialization would change kernel settings of the whole
        # machine: it is skipped.
        initialized = Mininet.inited
        Mininet.inited = True
        super().__init__(build=False)
        Mininet.inited = initialized
        self.built = True
        # Of that initialization one setting is needed: a shell holds two
        # files.
        _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
        self.controllers = [AttachedController("c0", controller_port)]
        self.nameToNode = {"c0": self.controllers[0]}

    def attach(
        self, plan: NetworkPlan, switches: Mapping[str, SwitchDaemons]
    ) -> None:
        """Makes objects of the hosts, bridges and cables of a plan.

        ``switches``: as for :func:`mininet_network`.
        """
        names = host_names(plan)
        for slot in plan.slots:
            self.hosts.append(AttachedHost(names[slot.netns], slot))
        for bridge in plan.bridges:
            switch = switches.get(bridge.name, MACHINE)
            self.switches.append(
                AttachedSwitch(bridge, switch, bridge.label)
            )
        self.name_nodes()
        for ends in self.cables(plan):
            link = AttachedLink(**ends)
            link.net = self
            self.links.append(link)

    def name_nodes(self) -> None:
        """Registers hosts and switches by all their names."""
        nodes = [*self.hosts, *self.switches]
        names = {node.name for node in nodes}
        # Mininet's own builder has switches with the names of their bridges.
        names |= {switch.bridge.label for switch in self.switches}
        self._make_room(names)
        self.nameToNode |= {node.name: node for node in nodes}
        topology_has_names = any(
            switch.bridge.label for switch in self.switches
        )
        for number, switch in enumerate(self.switches, 1):
            if switch.name != switch.bridge.name:
                self.alias(switch.bridge.name, switch)
            # `s1` may be another switch's name in a topology that has names.
            elif not topology_has_names:
                self.alias(f"s{number}", switch)
        for host in self.hosts:
            self.alias(host.slot.netns, host)

    def _make_room(self, names: Collection[str]) -> None:
        """Renames the controller if a node of the topology has its name."""
        (controller,) = self.controllers
        if controller.name not in names:
            return
        del self.nameToNode[controller.name]
        controller.name = "controller"
        while controller.name in names:
            controller.name += "0"
        self.nameToNode[controller.name] = controller

    def set_capacity(self, interface: AttachedIntf, mbit: float) -> None:
        """Refused here. Raises BadInput."""
        raise BadInput(
            f"the capacity of {interface.link} is its plan's, and no {mbit} Mbit/s; on a"
            " network of testbed up: sudo testbed link set A B RATE",
            "config without bw changes addresses alone",
        )

    def addHost(self, name: str, *_args: Any, **_options: Any) -> Any:
        """Refused. Raises BadInput."""
        raise _not_added(f"host {name}")

    def addSwitch(self, name: str, *_args: Any, **_options: Any) -> Any:
        """Refused. Raises BadInput."""
        raise _not_added(f"switch {name}")

    def addLink(
        self,
        node1: Any,
        node2: Any,
        *_args: Any,
        **_more: Any,
    ) -> Any:
        """Refused. Raises BadInput."""
        raise _not_added(f"link {node1} - {node2}")

    def addController(
        self,
        name: Any = "c0",
        *_args: Any,
        **_o: Any,
    ) -> Any:
        """Refused. Raises BadInput."""
        raise BadInput(
            f"controller {name} cannot be added: a network that is up is its"
            " file's; controller: {app: …} or {remote: tcp:…} there is another",
            "sudo testbed down and up",
        )

    def delNode(self, node: Node, nodes: Any = None) -> None:
        """Refused. Raises BadInput."""
        del nodes
        raise BadInput(
            f"{node} is part of a network that stays up; switch NAME stop and"
            " link A B down take parts of it down",
            "sudo testbed tenant remove NAME ends a tenant's VMs",
        )

    def linksBetween(self, node1: Node, node2: Node) -> list[Link]:
        """As Mininet's, but a host stands for its server where needed.

        A topology's host hangs from a rack's switch. Here its server's bridge
        is between them: the link is that from the bridge to the rack.
        """
        links: list[Link] = super().linksBetween(node1, node2)
        hosts = [
            node
            for node in (node1, node2)
            if isinstance(node, AttachedHost)
        ]
        if links or len(hosts) != 1:
            return links
        (host,) = hosts
        server = self[host.slot.port.bridge]
        rack = node2 if host is node1 else node1
        return list(super().linksBetween(server, rack))

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:
        """As Mininet's, with :meth:`linksBetween` to find the link."""
        if src in self and dst in self:
            links = self.linksBetween(self[src], self[dst])
            if links:
                src = links[0].intf1.node.name
                dst = links[0].intf2.node.name
        super().configLinkStatus(src, dst, status)

    def cables(self, plan: NetworkPlan) -> Iterator[dict[str, Any]]:
        """Arguments of :class:`AttachedLink`: for VM slots, then for links."""
        for host in self.hosts:
            slot = host.slot
            yield {
                "node1": host,
                "node2": self[slot.port.bridge],
                "end1": (VM_DEVICE, host.portBase),
                "port2": slot.port,
                "mac": slot.mac,
            }
        for link in plan.links:
            lower = link.lower
            yield {
                "node1": self[lower.bridge],
                "node2": self[link.upper.bridge],
                "end1": (lower.name, lower.number),
                "port2": link.upper,
            }

    def alias(self, name: str, node: Node) -> None:
        """Adds a name for a node, such as ``a.0``.

        Raises BadInput if another node has it.
        """
        if self.nameToNode.setdefault(name, node) is not node:
            raise BadInput(
                f"{name} is the name of {self[name]} already",
                "choose another name",
            )

    def unalias(self, name: str) -> None:
        """Removes an alias; an unknown one is no failure."""
        if name in self and self[name].name != name:
            del self.nameToNode[name]

    def vm_name(self, node: Node) -> str:
        """The name by which ``testbed shell`` knows a node."""
        return str(node.name)

    def build(self) -> None:
        """Does nothing: the network is built."""

    def interact(self) -> Any:
        """Opens Mininet's prompt on the network; returns at its end."""
        self.start()
        try:
            return Prompt(self)
        finally:
            self.stop()

    def stopXterms(self) -> None:
        """Kills the terminals of this object.

        Mininet's own method would end other people's, too.
        """
        for process in filter(None, self.terms):
            process.kill()

    def _addressed(self, hosts: Sequence[Node] | None) -> list[Node]:
        """Hosts that have an address, out of ``hosts`` or of all.

        Prints the number of the others.
        """
        candidates = list(hosts or self.hosts)
        addressed = [host for host in candidates if host.IP()]
        if len(addressed) < len(candidates):
            left_out = number_of(len(candidates) - len(addressed), "host")
            output(f"*** Left out: {left_out} without a tenant's VM\n")
        # Never empty: Mininet takes an empty list for all hosts.
        return addressed or candidates[:1]

    def ping(
        self, hosts: Sequence[Node] | None = None, timeout: Any = None
    ) -> Any:
        """As Mininet's, among those of the hosts that have an address."""
        return super().ping(self._addressed(hosts), timeout)

    def pingFull(
        self, hosts: Sequence[Node] | None = None, timeout: Any = None
    ) -> Any:
        """As Mininet's, among those of the hosts that have an address."""
        return super().pingFull(self._addressed(hosts), timeout)

    def pingPair(self) -> Any:
        """As Mininet's, between the first two hosts that have an address."""
        return self.ping(self._addressed(None)[:2])

    def pingPairFull(self) -> Any:
        """As Mininet's, between the first two hosts that have an address."""
        return self.pingFull(self._addressed(None)[:2])

    def iperf(
        self,
        hosts: Sequence[Node] | None = None,
        l4Type: str = "TCP",
        udpBw: str = "10M",
        fmt: str | None = None,
        seconds: float = 5,
        port: int = 5001,
    ) -> list[str]:
        """As Mininet's: the speeds that server and client print.

        For UDP, ``udpBw`` comes before them. Without ``hosts``, between the
        first and the last host that have an address. Mininet's own method kills
        every iperf of the machine, waits for a line that iperf 2.1 does not
        print, and waits for ever if the two cannot reach each other. Raises
        RunFailed in that case, or if the server does not end, and BadInput for
        another protocol than TCP and UDP.
        """
        if l4Type not in ("TCP", "UDP"):
            raise BadInput(f"iperf with l4Type {l4Type}: TCP or UDP")
        ends = hosts or self._addressed(None)
        client = ends[0]
        server = ends[-1]
        _require_reachable(ends)
        output(
            f"*** Iperf: testing {l4Type} bandwidth between {client}"
            f" and {server} \n"
        )
        udp = l4Type == "UDP"
        command = ["iperf", "-p", str(port)]
        if udp:
            command.append("-u")
        if fmt:
            command += ["-f", fmt]
        sending = [*command, "-t", str(seconds), "-c", server.IP()]
        if udp:
            sending += ["-b", udpBw]
        with server.popen([*command, "-s"]) as serving:
            try:
                if not udp:
                    _wait_until_listening(client, server, port)
                sent, _, _ = client.pexec(sending)
                # The server ends after it has read what is on its way.
                serving.send_signal(signal.SIGINT)
                output_bytes, _ = serving.communicate(
                    timeout=seconds + ENDS_WITHIN_S
                )
            except subprocess.TimeoutExpired:
                raise RunFailed(
                    f"no iperf: {server} still waits for data of {client}",
                    "a link between them may be down",
                ) from None
            finally:
                serving.kill()
        received = output_bytes.decode()
        results = [self._parseIperf(received), self._parseIperf(sent)]
        if udp:
            results.insert(0, udpBw)
        output(f"*** Results: {results}\n")
        return results


def host_names(plan: NetworkPlan) -> dict[str, str]:
    """Names of hosts by the namespaces of their slots.

    The topology's names, or else h1, h2, …
    """
    taken = {slot.host for slot in plan.slots}
    names = {}
    for number, slot in enumerate(plan.slots, 1):
        name = slot.host or f"h{number}"
        if not slot.host and name in taken:
            name = slot.netns
        names[slot.netns] = name
    return names


def _not_set(what: str) -> BadInput:
    return BadInput(
        f"{what} cannot be set: flows and limits go by it; give it in the file"
        " or its Topo, then sudo testbed down and up",
        "a Topo's addHost(…, ip=…, mac=…) are those of an open network",
    )


def _not_added(node: str) -> BadInput:
    return BadInput(
        f"{node} cannot be added: a network that is up is its file's; add it to"
        " the file or its Topo, then sudo testbed down and up",
        "VMs in free slots come by sudo testbed tenant add",
    )


def _require_reachable(ends: Sequence[Node]) -> None:
    """Raises RunFailed where the first host cannot reach the last one."""
    hint = "name two VMs of a tenant"
    for host in ends:
        if not host.IP():
            raise RunFailed(f"no iperf: {host} has no tenant's VM", hint)
    client = ends[0]
    server = ends[-1]
    if client is server or not _has_route(client, server):
        raise RunFailed(
            f"no iperf: {client} and {server} are not VMs of one tenant",
            hint,
        )


def _has_route(client: Node, server: Node) -> bool:
    """True if the client's kernel has a route to the server. Sends nothing."""
    with (
        client.inside(),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
    ):
        # For datagrams connect() only looks up the route.
        return probe.connect_ex((server.IP(), PROBE_PORT)) == 0


def _wait_until_listening(client: Node, server: Node, port: int) -> None:
    """Returns once the server takes a TCP connection from the client.

    Raises RunFailed after LISTENS_WITHIN_S.
    """
    give_up_s = time.monotonic() + LISTENS_WITHIN_S
    while time.monotonic() < give_up_s:
        with client.inside(), socket.socket() as probe:
            # Over a link that is down it would try for two minutes.
            probe.settimeout(1.0)
            if probe.connect_ex((server.IP(), port)) == 0:
                return
        time.sleep(0.1)
    raise RunFailed(
        f"no iperf: {server} takes no connection from {client}",
        "a link between them may be down, or iperf not installed",
    )


class Prompt(CLI):  # type: ignore[misc]
    """Mininet's prompt, whose commands may begin with ``a.0`` or ``hn-s0``."""

    # Python's cmd ends a line's first word, the command, at the first
    # character that is not among these.
    identchars = CLI.identchars + "-."

    def getLocals(self) -> Any:
        """Variables of ``py`` and ``px``: also nodes by names that Python allows."""
        for name, node in self.mn.nameToNode.items():
            if name.isidentifier():
                self.locals[name] = node
        return super().getLocals()

    def do_switch(self, line: str) -> None:
        """Stop a switch, so that it forwards nothing, or start it again.
        Usage: switch NAME {start, stop}
        """
        words = line.split()
        if len(words) != 2 or words[1] not in ("start", "stop"):
            error("*** usage: switch NAME {start, stop}\n")
            return
        name, command = words
        switch = self.mn[name]
        if switch not in self.mn.switches:
            error(f"*** {name} is no switch\n")
            return
        if command == "stop":
            switch.stop(deleteIntfs=False)
            output(
                f"*** {name} is stopped: all its links are down;"
                f" switch {name} start brings them back\n"
            )
        else:
            switch.start_again()
            output(f"*** {name} forwards again: its links are up\n")

    def do_source(self, line: str) -> None:
        """Read commands from a text file.
        Usage: source FILE
        """
        names = line.split()
        if len(names) != 1:
            error("*** usage: source FILE\n")
            return
        # Mininet's own command ends the prompt where the file cannot be read.
        try:
            with Path(names[0]).open(encoding="utf-8") as commands:
                for command in commands:
                    self.onecmd(command)
        except UnicodeDecodeError:
            error(f"*** {names[0]} is not a text file in UTF-8\n")

    def do_xterm(self, line: str, term: str = "xterm") -> None:
        """Spawn xterms for nodes; without a display, say what to do.
        Usage: xterm NODE…
        """
        names = line.split()
        if os.environ.get("DISPLAY") or not names:
            super().do_xterm(line, term)
            return
        for name in names:
            vm = self.mn.vm_name(self.mn[name])
            error(
                f"*** no X display for {term}: in another terminal,"
                f" sudo testbed shell {vm}\n"
            )

    def do_x(self, line: str) -> None:
        """Run an X11 client on a node; without a display, say what to do."""
        words = line.split()
        if os.environ.get("DISPLAY") or not words:
            super().do_x(line)
        else:
            self.do_xterm(words[0], "x")

    def onecmd(self, line: str) -> Any:
        """Runs a line; an error is printed, and the prompt continues."""
        try:
            return super().onecmd(line)
        except (TestbedError, OSError) as refused:
            error(f"*** {refused}\n")
        except KeyError as unknown:
            error(f"*** unknown node: {unknown}\n")
        except AssertionError as failed:
            error(f"*** {_failed_assertion(line.strip(), failed)}\n")
        return None


def _failed_assertion(line: str, failed: AssertionError) -> str:
    """The reason for which a line of the prompt failed, in a sentence.

    The assertion is Mininet's, or one of a file's own code.
    """
    *_, (frame, line_number) = walk_tb(failed.__traceback__)
    node = frame.f_locals.get("self")
    # Mininet's sendCmd asserts that the shell waits for a command.
    if frame.f_code.co_name == "sendCmd" and isinstance(node, Node):
        if node.shell is None:
            return f"no shell any more for {line}: leave, and come back"
        return (
            f"{node.name} still runs a command, and cannot run {line}:"
            f" py {node.name}.waitOutput() waits for its end"
        )
    where = f"{Path(frame.f_code.co_filename).name}:{line_number}"
    reason = str(failed) or "an assertion does not hold"
    return f"{line}: {reason} ({where})"
