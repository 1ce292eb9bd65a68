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

# Importing Mininet makes its logger class, which prints without line ends, that
# of the whole process.
logging.setLoggerClass(logging.Logger)

SHELL = ("shell", "pid", "stdin", "stdout", "pollOut", "master", "slave")
"""Attributes that a node has only once its shell has started."""
PROBE_PORT = 9
LISTENS_WITHIN_S = 10.0
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


# Mininet ends shells by SIGHUP, which they would ignore, as inherited, if this
# process was started by nohup.
ENDED_BY_HANG_UP = ("env", "--default-signal=HUP")
# cmd() runs commands on a terminal, for which iproute2 6.15 colours its output;
# programs that parse it want none.
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
        # Mininet's constructor, which calls this, has set them to None, and
        # Python looks for __getattr__ only where an attribute is missing.
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
            # Mininet first asks whether there is a shell: without the
            # attribute that would come here again.
            self.shell = None
            # Without inNamespace, mnexec makes no namespace: the child inherits
            # this thread's.
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

        Mininet would take None for a shell that has ended, and ignore commands.
        """
        for name in ("master", "slave"):
            if name in self.__dict__:
                os.close(self.__dict__[name])
        self.startShell()

    @contextmanager
    def _without_shell(self) -> Iterator[None]:
        """Lets ``pid`` be None for the block, instead of starting a shell."""
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
        # Mininet writes the pid into its own mncmd before it looks at the
        # one given, whose -d makes a session.
        with self._without_shell():
            return super().popen(
                *args, **{"mncmd": ["mnexec", "-d"], **kwargs}
            )

    def _popen(self, cmd: Sequence[str], **params: Any) -> Any:
        params.setdefault("env", {**os.environ, **self._environment})
        params.setdefault("preexec_fn", self._before)
        # A child inherits the namespace of the thread that starts it. With a
        # preexec_fn Python would lose a Ctrl-C while it forks.
        with self.inside(), uninterrupted():
            return super()._popen([*ENDED_BY_HANG_UP, *cmd], **params)

    @staticmethod
    def _before() -> None:
        """In the child: forbid typing into a terminal (TIOCSTI).

        A program of another user in the node's shell could otherwise type
        commands for root.
        """
        refuse_calls(terminal_program)

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
            # By which ovs-vsctl and ovs-ofctl find the part's sockets.
            {"OVS_RUNDIR": str(switch.run_dir)},
            dpid=f"{bridge.dpid:016x}",
            protocols="OpenFlow13",
            # Otherwise Mininet configures an interface for the control network.
            inNamespace=True,
        )
        self.inNamespace = switch.netns is not None
        self.controlIntf = AttachedIntf(
            "lo", self, 0, up=None, moveIntfFn=lambda *_: None
        )

    def dpctl(self, *args: Any) -> Any:
        """``ovs-ofctl``, in the version of OpenFlow that the bridges speak."""
        return self.cmd(
            "ovs-ofctl", "-O", self.protocols, args[0], self, *args[1:]
        )

    def cmd(self, *args: Any, **options: Any) -> Any:
        """As Mininet's, with the bridge's name where an argument is this node.

        Mininet's own methods name a switch to Open vSwitch by it.
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
            # A port that is down before is not for `start` to bring up. One
            # whose neighbour is stopped goes down too: that may start first.
            if port.is_set_up():
                port.ifconfig("down")
                self._stopped_ports.append(port)

    def start_again(self) -> None:
        """As :meth:`start`, also if another process stopped the switch.

        Then all its links come up.
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
        """The kernel's answer about the device, None if it refuses.

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
        answer = self._asked(SIOCGIFADDR)
        # A sockaddr_in: family and port, two bytes each, then the address.
        self.ip = socket.inet_ntoa(answer[4:8]) if answer else None
        return self.ip

    # Mininet's starts ifconfig and reads its text.
    updateIP = IP

    def MAC(self) -> str | None:
        if self.mac is None:
            answer = self._asked(SIOCGIFHWADDR)
            # A sockaddr: two bytes of family, then the address.
            self.mac = answer[2:8].hex(":") if answer else None
        return self.mac

    def isUp(self, setUp: bool = False) -> bool:
        """True if the device and the other end of its cable are up."""
        if setUp:
            return bool(super().isUp(setUp=True))
        with self.node.inside():
            return has_carrier(self.name)

    def is_set_up(self) -> bool:
        """True if the device is up, whatever the other end of its cable."""
        answer = self._asked(SIOCGIFFLAGS)
        # A union whose first two bytes are the flags.
        return bool(answer and struct.unpack_from("=H", answer)[0] & IFF_UP)

    def ifconfig(self, *args: Any) -> Any:
        """As Mininet's, but leaves a VM's end of a link as it is.

        The switch's end takes the link down and up. Taken down itself, a VM's
        device would lose the permanent neighbours by which VMs find each other.
        """
        if isinstance(self.node, AttachedHost) and args in {
            ("up",),
            ("down",),
        }:
            return ""
        return super().ifconfig(*args)

    def config(self, **params: Any) -> Any:
        """As Mininet's, but limits of links are the network's to set.

        A capacity goes to :meth:`AttachedMininet.set_capacity`. Raises BadInput
        for others.
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
        self.link.net.set_capacity(self, params["bw"])
        return {}

    def delete(self) -> None:
        """Refused. Raises BadInput."""
        hint = "net.configLinkStatus(…, 'down') takes a link down; a new plan has other links"
        raise BadInput(
            f"{self.node}'s {self} is part of a network that stays up;"
            " link A B down takes a link down",
            hint,
        )


class AttachedLink(Link):  # type: ignore[misc]
    """An existing cable. ``mac``: address of its first end."""

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
        both = {"intf": AttachedIntf, "up": self.set_up}
        super().__init__(
            node1,
            node2,
            port1,
            port2.number,
            name1,
            port2.name,
            mac,
            **both,
        )

    @classmethod
    def makeIntfPair(cls, *_args: Any, **_kwargs: Any) -> None:
        """Does nothing: the devices exist."""

    def stop(self) -> None:
        """Does nothing: the cable stays."""


# ------------------------------------------------------------------------------------- network


class AttachedMininet(Mininet):  # type: ignore[misc]
    """A network with a host per VM slot of its plan, and the plan's bridges.

    Hosts are h1, h2, … in the order of slots, or have the topology's names.
    They are also found by their slot's name, as ``hn-s0v0``; bridges by their
    number in the plan, servers first, as ``s1``, unless the topology names
    them; both by aliases. Nothing can be added by Mininet's means.
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
        # The one setting of it that is needed: a shell holds two files.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.controllers = [AttachedController("c0", controller_port)]
        self.nameToNode = {"c0": self.controllers[0]}

    def attach(
        self, plan: NetworkPlan, switches: Mapping[str, SwitchDaemons]
    ) -> None:
        """Attach to the hosts, bridges and cables of a plan.

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
        """Register hosts and switches by all their names."""
        nodes = [*self.hosts, *self.switches]
        names = {node.name for node in nodes}
        # Mininet's own builder has switches with the names of their bridges.
        names |= {switch.bridge.label for switch in self.switches}
        self._make_room(names)
        self.nameToNode |= {node.name: node for node in nodes}
        named = any(switch.bridge.label for switch in self.switches)
        for number, switch in enumerate(self.switches, 1):
            if switch.name != switch.bridge.name:
                self.alias(switch.bridge.name, switch)
            elif not named:
                self.alias(f"s{number}", switch)
        for host in self.hosts:
            self.alias(host.slot.netns, host)

    def _make_room(self, names: Collection[str]) -> None:
        """Rename the controller if a node of the topology has its name."""
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

    def addHost(
        self,
        name: str,
        *_args: Any,
        **_options: Any,
    ) -> Any:
        """Refused. Raises BadInput."""
        raise _not_added(f"host {name}")

    def addSwitch(
        self,
        name: str,
        *_args: Any,
        **_options: Any,
    ) -> Any:
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

        In a topology's terms a host hangs from a rack's switch. Here its
        server's bridge is between them: the link is that from the bridge to the
        rack.
        """
        direct: list[Link] = super().linksBetween(node1, node2)
        if direct:
            return direct
        ends = [
            self._at_server(node, node1, node2) for node in (node1, node2)
        ]
        from_server: list[Link] = super().linksBetween(*ends)
        return from_server

    def _at_server(self, node: Node, *both: Node) -> Node:
        """The server's switch of a host, if it is the only host of the two."""
        hosts = [end for end in both if isinstance(end, AttachedHost)]
        if hosts == [node]:
            return self[node.slot.port.bridge]
        return node

    def configLinkStatus(
        self,
        src: str,
        dst: str,
        status: str,
    ) -> None:
        """As Mininet's, with :meth:`linksBetween` to find the link."""
        if src in self and dst in self:
            links = self.linksBetween(self[src], self[dst])
            if links:
                src, dst = (
                    end.node.name
                    for end in (links[0].intf1, links[0].intf2)
                )
        super().configLinkStatus(src, dst, status)

    def cables(self, plan: NetworkPlan) -> Iterator[dict[str, Any]]:
        """Arguments of :class:`AttachedLink`: for VM slots, then for links."""
        for host in self.hosts:
            port = host.slot.port
            inner = (VM_DEVICE, host.portBase)
            ends = {
                "node1": host,
                "node2": self[port.bridge],
                "end1": inner,
                "port2": port,
            }
            yield {**ends, "mac": host.slot.mac}
        for link in plan.links:
            low = link.lower
            high = link.upper
            ends = {"node1": self[low.bridge], "node2": self[high.bridge]}
            yield {**ends, "end1": (low.name, low.number), "port2": high}

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
        """As Mininet's: speeds by server and client, for UDP after ``udpBw``.

        By default between the first and the last host that have an address.
        Replaces Mininet's method, which kills every iperf of the machine, waits
        for a line that iperf 2.1 does not print, and waits for ever if the two
        cannot reach each other. Raises RunFailed in that case, and BadInput for
        a protocol other than TCP and UDP.
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
        both = ["iperf", "-p", str(port)]
        if udp:
            both.append("-u")
        if fmt:
            both += ["-f", fmt]
        sending = [*both, "-t", str(seconds), "-c", server.IP()]
        if udp:
            sending += ["-b", udpBw]
        with server.popen([*both, "-s"]) as serving:
            try:
                if not udp:
                    _wait_until_listening(client, server, port)
                sent, _, _ = client.pexec(sending)
                # The server ends after it has read what is on its way.
                serving.send_signal(signal.SIGINT)
                output_bytes, _ = serving.communicate(timeout=seconds + 30)
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
    reason = ""
    for host in ends:
        if not host.IP():
            reason = f"{host} has no tenant's VM"
            break
    else:
        client = ends[0]
        server = ends[-1]
        if client is server or not _has_route(client, server):
            reason = f"{client} and {server} are not VMs of one tenant"
    if reason:
        raise RunFailed(f"no iperf: {reason}", "name two VMs of a tenant")


def _has_route(client: Node, server: Node) -> bool:
    """False if the client's kernel has no route to the server. Sends nothing."""
    with (
        client.inside(),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
    ):
        # For datagrams connect() looks up the route, and any port will do.
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

    # Python's cmd takes a line's first word for the command, up to a
    # character that is not among these.
    identchars = CLI.identchars + "-."

    def getLocals(self) -> Any:
        """Nodes by those of their names that are Python's, for ``py`` and ``px``."""
        known = self.mn.nameToNode.items()
        self.locals.update(
            {name: node for name, node in known if name.isidentifier()}
        )
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
    """A sentence on a line of the prompt that ended in an assertion of
    Mininet's, or of a file's own code.
    """
    *_, (frame, line_number) = walk_tb(failed.__traceback__)
    node = frame.f_locals.get("self")
    # It demands a shell that waits for a command.
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
