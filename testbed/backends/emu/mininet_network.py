"""The network that is up, as Mininet's own objects: ``net.get("h3").cmd("ip
addr")``, ``CLI(net)``.

Nodes, links and interfaces are subclasses of Mininet's, attached to what is
there: making them makes nothing on the machine and starts no process. A node's
shell starts when it is first wanted, as root, in the node's network namespace.
``net.stop()`` ends those shells; the network stays.
"""

from __future__ import annotations

import fcntl
import logging
import os
import resource
import signal
import socket
import struct
from collections.abc import (
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from mininet.cli import CLI
from mininet.link import Intf, Link
from mininet.log import error, output
from mininet.net import Mininet
from mininet.node import Host, Node, OVSSwitch, RemoteController
from mininet.util import numCores, waitListening

from controller.launch import OPENFLOW_PORT
from jobs.call_filter import refuse_calls, terminal_program
from jobs.linux import inside_network_namespace
from testbed.backends.emu.interrupts import uninterrupted
from testbed.backends.emu.open_vswitch import MACHINE, SwitchDaemons
from testbed.backends.emu.traffic_control import NETNS_DIR, has_carrier
from testbed.errors import BadInput, RunFailed, TestbedError
from testbed.plan.batch_lines import VM_DEVICE
from testbed.plan.network_plan import Bridge, NetworkPlan, Port, Slot
from testbed.units import number_of

# Mininet has made its own logger, which prints without line ends, that of the
# whole process.
logging.setLoggerClass(logging.Logger)

SHELL = ("shell", "pid", "stdin", "stdout", "pollOut", "master", "slave")
"""Attributes of a node that are there once its shell has started."""
PROBE_PORT = 9
LIMITS_OF_LINKS = frozenset(
    ("bw", "delay", "jitter", "loss", "max_queue_size", "speedup")
)
"""Parameters by which Mininet's TCIntf limits what an interface sends."""
# Requests of netdevice(7) about an interface.
SIOCGIFADDR = 0x8915
SIOCGIFHWADDR = 0x8927


def mininet_network(
    plan: NetworkPlan,
    switches: Mapping[str, SwitchDaemons] | None = None,
    controller_port: int = OPENFLOW_PORT,
) -> AttachedMininet:
    """The network of a plan, which is up, as a ``mininet.net.Mininet``.

    ``switches``: bridge -> its Open vSwitch, where that is not the machine's.
    Any process of root may make one; several may be in use at a time.
    """
    net = AttachedMininet(controller_port)
    net.attach(plan, switches or {})
    return net


# --------------------------------------------------------------------------------------- nodes


# A hang-up, by which Mininet ends shells, ends them even if this was started by
# nohup.
ENDED_BY_HANG_UP = ("env", "--default-signal=HUP")
# `cmd` runs commands on a terminal, where iproute2 6.15 colours what programs
# want to read.
UNCOLOURED = {"NO_COLOR": "1"}


class Attached(Node):  # type: ignore[misc]
    """A node in a namespace that is there.

    ``inside`` takes this thread into the namespace for a block; it raises
    OSError where the network is gone or this is not root. ``environment``:
    additional variables of the node's processes.
    """

    inNamespace: bool
    isSetup = True  # or Mininet would run programs to see whether they are installed

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
        """Have the shell start when it is first wanted (:meth:`__getattr__`)."""
        del mnopts
        if not self.__dict__.get("shell"):
            for name in SHELL:
                self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        """Starts the shell: a part of it is wanted for the first time. Ctrl-C
        waits for it.
        """
        if name not in SHELL:
            raise AttributeError(
                f"{type(self).__name__} has no attribute {name!r}"
            )
        with (
            uninterrupted(),
            self.inside(),
        ):  # before anything is begun: it may be gone
            # The namespace is there: mnexec is not to make another.
            self.shell = None
            in_namespace = self.inNamespace
            self.inNamespace = False
            try:
                super().startShell()
            finally:
                self.inNamespace = in_namespace
        return getattr(self, name)

    @contextmanager
    def _without_shell(self) -> Iterator[None]:
        """``pid`` starts no shell, for the block: it is None until there is
        one.
        """
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
        """As Mininet's: a process in the node's namespace, in a session of its
        own.
        """
        with self._without_shell():
            return super().popen(
                *args, **{"mncmd": ["mnexec", "-d"], **kwargs}
            )

    def _popen(self, cmd: Sequence[str], **params: Any) -> Any:
        params.setdefault("env", {**os.environ, **self._environment})
        params.setdefault("preexec_fn", self._before)
        # A child is where the thread is that starts it; with a preexec_fn
        # Python would lose a Ctrl-C while it forks.
        with self.inside(), uninterrupted():
            return super()._popen([*ENDED_BY_HANG_UP, *cmd], **params)

    @staticmethod
    def _before() -> None:
        """In the child: what runs in the node's shell, perhaps as another user,
        must not type into it.
        """
        refuse_calls(terminal_program)

    def terminate(self) -> None:
        """End the node's shell, if it was started, with what runs in it."""
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


class AttachedSwitch(Attached, OVSSwitch):  # type: ignore[misc]
    """A bridge of the machine's Open vSwitch, or of a part with its own
    database and namespace.
    """

    def __init__(
        self, bridge: Bridge, switch: SwitchDaemons, name: str = ""
    ) -> None:
        self.bridge = bridge
        self._stopped_ports: list[Intf] = []
        super().__init__(
            name or bridge.name,
            switch.inside,
            {
                "OVS_RUNDIR": str(switch.run_dir)
            },  # there ovs-vsctl and ovs-ofctl find their sockets
            dpid=f"{bridge.dpid:016x}",
            protocols="OpenFlow13",
            inNamespace=True,  # or Mininet would configure an interface for its control
        )
        self.inNamespace = switch.netns is not None
        self.controlIntf = AttachedIntf(
            "lo", self, 0, up=None, moveIntfFn=lambda *_: None
        )

    def dpctl(self, *args: Any) -> Any:
        """``ovs-ofctl``, in the version of OpenFlow that the bridges speak."""
        bridge = self.bridge.name
        return self.cmd(
            "ovs-ofctl", "-O", self.protocols, args[0], bridge, *args[1:]
        )

    def vsctl(self, *args: Any, **options: Any) -> Any:
        """``ovs-vsctl``; the bridge has a name of its own there."""
        named = [self.bridge.name if arg is self else arg for arg in args]
        return super().vsctl(*named, **options)

    def start(self, _controllers: Sequence[Node] = ()) -> None:
        """Bring back the links that :meth:`stop` has taken down; else nothing,
        as it runs.
        """
        for port in self._stopped_ports:
            port.ifconfig("up")
        self._stopped_ports = []

    def stop(self, **_options: Any) -> None:
        """Take all its links down: nothing is forwarded here, and whoever keeps
        the network hears of it from the kernel.
        """
        for port in self.ports_to_links():
            if port.isUp():
                port.ifconfig("down")
                self._stopped_ports.append(port)

    def start_again(self) -> None:
        """As :meth:`start`; where another process has stopped it, all its links
        come up.
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
        """Nothing: they run."""
        del run
        return switches

    batchShutdown = batchStartup


class AttachedController(Attached, RemoteController):  # type: ignore[misc]
    """The controller, a process of its own on this machine."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name, nullcontext, {}, port=port)

    def checkListening(self) -> None:
        """Nothing: the switches' connections say whether it is there."""

    def stop(self, *_args: Any, **_kwargs: Any) -> None:
        """End the shell; the controller continues."""
        self.terminate()


# --------------------------------------------------------------------------------------- links


class AttachedIntf(Intf):  # type: ignore[misc]
    """A network device that is there, with the address that it has at the
    moment.
    """

    mac: str | None

    def _asked(self, request: int) -> bytes | None:
        """The kernel's answer about the device, None where there is none."""
        about = struct.pack("40s", self.name.encode())
        with (
            self.node.inside(),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket,
        ):
            try:
                return fcntl.ioctl(any_socket, request, about)[16:]
            except OSError:
                return None

    def IP(self) -> str | None:
        """The first IPv4 address now; a VM slot without a tenant's VM and a
        port have none.
        """
        answer = self._asked(SIOCGIFADDR)
        self.ip = socket.inet_ntoa(answer[4:8]) if answer else None
        return self.ip

    updateIP = IP

    def MAC(self) -> str | None:
        if self.mac is None:
            answer = self._asked(SIOCGIFHWADDR)
            self.mac = answer[2:8].hex(":") if answer else None
        return self.mac

    def isUp(self, setUp: bool = False) -> bool:
        """Up, and so is the other end."""
        if setUp:
            return bool(super().isUp(setUp=True))
        with self.node.inside():
            return has_carrier(self.name)

    def ifconfig(self, *args: Any) -> Any:
        """As Mininet's; but a VM's end of a link goes down and up with the
        switch's end.

        Taken down itself it would lose the permanent neighbours by which VMs
        find each other.
        """
        if isinstance(self.node, AttachedHost) and args in {
            ("up",),
            ("down",),
        }:
            return ""
        return super().ifconfig(*args)

    def config(self, **params: Any) -> Any:
        """As Mininet's, but what limits a link is the network's.

        Raises BadInput.
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
    """A cable that is there. ``mac``: of the first end."""

    set_up: bool | None = None  # as it is
    net: AttachedMininet

    def __init__(
        self,
        node1: Node,
        node2: Node,
        end1: tuple[str, int],
        port2: Port,
        mac: str | None = None,
    ) -> None:
        (name1, port1), name2 = end1, port2.name
        both = {"intf": AttachedIntf, "up": self.set_up}
        super().__init__(
            node1, node2, port1, port2.number, name1, name2, mac, **both
        )

    @classmethod
    def makeIntfPair(cls, *_args: Any, **_kwargs: Any) -> None:
        """Nothing: they are there."""

    def stop(self) -> None:
        """Nothing: it continues."""


# ------------------------------------------------------------------------------------- network


class AttachedMininet(Mininet):  # type: ignore[misc]
    """A network with hosts h1, h2, … in the order of its plan's VM slots, and
    the plan's bridges.

    A host is also found by its slot's name, as ``hn-s0v0``, a bridge by its
    number in the plan, the servers' first, as ``s1``, and both by their
    aliases. Where the plan's topology names its hosts, hosts and switches have
    its names in place of h1 and s1. Nothing can be added by Mininet's means.
    """

    def __init__(self, controller_port: int) -> None:
        numCores.ncores = (
            os.cpu_count()
        )  # Mininet starts a process to count them
        # Its start-up would change kernel settings of the whole machine.
        was = Mininet.inited
        Mininet.inited = True
        super().__init__(build=False)
        Mininet.inited = was
        self.built = True
        # Of its settings these are needed: a shell holds two files.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.controllers = [AttachedController("c0", controller_port)]
        self.nameToNode = {"c0": self.controllers[0]}

    def attach(
        self, plan: NetworkPlan, switches: Mapping[str, SwitchDaemons]
    ) -> None:
        """Take in everything of a plan. ``switches``: as for
        :func:`mininet_network`.
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
        """Makes the hosts and switches known by all their names."""
        nodes = [*self.hosts, *self.switches]
        self._make_room({node.name for node in nodes})
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
        """Gives the controller another name where a topology has taken it."""
        (controller,) = self.controllers
        if controller.name in names:
            del self.nameToNode[controller.name]
            controller.name = "controller"
            self.nameToNode.setdefault(controller.name, controller)

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
        self, node1: Any, node2: Any, *_args: Any, **_more: Any
    ) -> Any:
        """Refused. Raises BadInput."""
        raise _not_added(f"link {node1} - {node2}")

    def delNode(self, node: Node, nodes: Any = None) -> None:
        """Refused. Raises BadInput."""
        del nodes
        raise BadInput(
            f"{node} is part of a network that stays up; switch NAME stop and"
            " link A B down take parts of it down",
            "sudo testbed tenant remove NAME ends a tenant's VMs",
        )

    def linksBetween(self, node1: Node, node2: Node) -> list[Link]:
        """As Mininet's; of a host and a switch above its server's own, the link
        between these two.
        """
        found: list[Link] = super().linksBetween(node1, node2)
        if found:
            return found
        ends = [
            self._at_server(node, node1, node2) for node in (node1, node2)
        ]
        above: list[Link] = super().linksBetween(*ends)
        return above

    def _at_server(self, node: Node, *both: Node) -> Node:
        """The switch of a host's server; of two hosts they stay themselves."""
        hosts = [end for end in both if isinstance(end, AttachedHost)]
        if hosts == [node]:
            return self[node.slot.port.bridge]
        return node

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:
        """As Mininet's; of a host and the switch that its server hangs from,
        their link.
        """
        if src in self and dst in self:
            links = self.linksBetween(self[src], self[dst])
            if links:
                src, dst = (
                    end.node.name
                    for end in (links[0].intf1, links[0].intf2)
                )
        super().configLinkStatus(src, dst, status)

    def cables(self, plan: NetworkPlan) -> Iterator[dict[str, Any]]:
        """Arguments of an :class:`AttachedLink` for each VM slot's cable, then
        for each link.
        """
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
        """Another name for a node, as ``a.0``. Raises BadInput if it is another
        node's.
        """
        if self.nameToNode.setdefault(name, node) is not node:
            raise BadInput(
                f"{name} is the name of {self[name]} already",
                "choose another name",
            )

    def unalias(self, name: str) -> None:
        """Forget another name of a node; one that is unknown is no failure."""
        if name in self and self[name].name != name:
            del self.nameToNode[name]

    def vm_name(self, node: Node) -> str:
        """The name by which ``testbed shell`` knows a node."""
        return str(node.name)

    def build(self) -> None:
        """Nothing: it is built."""

    def interact(self) -> Any:
        """Mininet's prompt, on the network as it is."""
        self.start()
        try:
            return Prompt(self)
        finally:
            self.stop()

    def stopXterms(self) -> None:
        """Kill the terminals of this object; Mininet's own would end other
        people's, too.
        """
        for process in filter(None, self.terms):
            process.kill()

    def _addressed(self, hosts: Sequence[Node] | None) -> list[Node]:
        """Those of the hosts that have an address, of all by default; the
        others are counted.
        """
        asked = list(hosts or self.hosts)
        found = [host for host in asked if host.IP()]
        if len(found) < len(asked):
            hosts = number_of(len(asked) - len(found), "host")
            output(f"*** Left out: {hosts} without a tenant's VM\n")
        return found or asked[:1]  # to Mininet, no hosts at all are all

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
        """As Mininet's: the speeds that server and client report; after the UDP
        rate asked for.

        By default between the first and the last host that have an address.
        Raises RunFailed if the two have no way to each other. Mininet's own
        would wait for ever then, waits for a line that iperf 2.1 does not
        print, and begins by ending every iperf of the machine.
        """
        found = hosts or self._addressed(None)
        client = found[0]
        server = found[-1]
        reason = next(
            (
                f"{host} has no tenant's VM"
                for host in found
                if not host.IP()
            ),
            None,
        )
        if reason or client is server or not _has_route(client, server):
            reason = (
                reason or f"{client} and {server} are not VMs of one tenant"
            )
            raise RunFailed(
                f"no iperf: {reason}", "name two VMs of a tenant"
            )
        output(
            "*** Iperf: testing",
            l4Type,
            "bandwidth between",
            client,
            "and",
            server,
            "\n",
        )
        udp = l4Type == "UDP"
        both = [
            "iperf",
            "-p",
            str(port),
            *(["-u"] if udp else []),
            *(["-f", fmt] if fmt else []),
        ]
        serving = server.popen([*both, "-s"])
        try:
            if not udp:
                waitListening(client, server, port)
            rate = ["-b", udpBw] if udp else []
            sent, _, _ = client.pexec(
                [*both, "-t", str(seconds), "-c", server.IP(), *rate]
            )
            serving.send_signal(
                signal.SIGINT
            )  # it ends when what is on its way has come
            received = serving.communicate(timeout=seconds + 30)[0].decode()
        finally:
            serving.kill()
            serving.wait()
        results = [self._parseIperf(received), self._parseIperf(sent)]
        results = [udpBw, *results] if udp else results
        output(f"*** Results: {results}\n")
        return results


def host_names(plan: NetworkPlan) -> dict[str, str]:
    """Slot's namespace -> the host's name: the topology's, else h1, h2, …"""
    taken = {slot.host for slot in plan.slots}
    names = {}
    for number, slot in enumerate(plan.slots, 1):
        name = slot.host or f"h{number}"
        if not slot.host and name in taken:
            name = slot.netns
        names[slot.netns] = name
    return names


def _not_added(what: str) -> BadInput:
    return BadInput(
        f"{what} cannot be added: a network that is up is its file's; add it to"
        " the file or its Topo, then sudo testbed down and up",
        "VMs in free slots come by sudo testbed tenant add",
    )


def _has_route(client: Node, server: Node) -> bool:
    """False where the client's kernel knows no way to the server. Sends
    nothing.
    """
    if not isinstance(client, Attached):
        return True
    with (
        client.inside(),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
    ):
        return probe.connect_ex((server.IP(), PROBE_PORT)) == 0


class Prompt(CLI):  # type: ignore[misc]
    """Mininet's prompt, in which a command may begin with any name: ``a.0``,
    ``hn-s0``.
    """

    identchars = CLI.identchars + "-."

    def getLocals(self) -> Any:
        """Nodes by all their names that Python can read, for ``py`` and ``px``."""
        known = self.mn.nameToNode.items()
        self.locals.update(
            {name: node for name, node in known if name.isidentifier()}
        )
        return super().getLocals()

    def do_switch(self, line: str) -> None:
        """Stop a switch, so that it forwards nothing, or start it again.
        Usage: switch NAME {start, stop}
        """
        name, _, command = line.strip().partition(" ")
        if command not in ("start", "stop"):
            error("*** usage: switch NAME {start, stop}\n")
            return
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
        if os.environ.get("DISPLAY"):
            super().do_xterm(line, term)
            return
        for name in line.split():
            vm = self.mn.vm_name(self.mn[name])
            error(
                f"*** no X display for {term}: in another terminal,"
                f" sudo testbed shell {vm}\n"
            )

    def do_x(self, line: str) -> None:
        """Run an X11 client on a node; without a display, say what to do."""
        if os.environ.get("DISPLAY"):
            super().do_x(line)
        else:
            self.do_xterm(line.strip().partition(" ")[0], "x")

    def onecmd(self, line: str) -> Any:
        """Run a line; what is refused is said, and the prompt continues."""
        try:
            return super().onecmd(line)
        except (TestbedError, OSError) as refused:
            error(f"*** {refused}\n")
        except KeyError as unknown:
            error(f"*** unknown node: {unknown}\n")
        return None
