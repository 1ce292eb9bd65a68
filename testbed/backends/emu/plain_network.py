"""The network of a plan, built by Mininet's own addHost, addLink and start.

Names, numbers and settings are those of the batched builder, and so are
journal, limits, tenants and removal. Each node costs a shell and each cable two
processes: for small networks.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

from mininet.node import Node

from testbed.backends.emu.cleanup_journal import OwnershipTag
from testbed.backends.emu.commands import run
from testbed.backends.emu.emulated_network import EmulatedNetwork, up_lines
from testbed.backends.emu.interrupts import uninterrupted
from testbed.backends.emu.mininet_network import (
    Attached,
    AttachedHost,
    AttachedLink,
    AttachedMininet,
    AttachedSwitch,
    host_names,
)
from testbed.backends.emu.open_vswitch import (
    MACHINE,
    RUN_KEY,
    SwitchDaemons,
    controller_row,
    datapath_type,
)
from testbed.errors import BadInput, RunFailed
from testbed.plan.network_plan import Bridge, NetworkPlan, Port, Slot
from testbed.plan.switch_parts import switch_parts


class BuiltHost(AttachedHost):
    """A VM slot whose namespace Mininet makes, with the host's shell.

    The namespace then gets the slot's name, by which processes enter it as with
    the batched builder.
    """

    def __init__(
        self,
        name: str,
        slot: Slot,
        **_params: Any,
    ) -> None:
        """Drops Mininet's parameters: the address is its tenant's to set."""
        super().__init__(name, slot)

    def startShell(self, mnopts: str | None = None) -> None:
        """Starts the shell at once, in a new namespace."""
        # The shell makes the namespace, which has no name yet to enter it by:
        # the shell starts without entering one.
        inside = self.inside
        self.inside = nullcontext
        super(Attached, self).startShell(mnopts)
        run(["ip", "netns", "attach", self.slot.netns, str(self.pid)])
        self.inside = inside


class BuiltSwitch(AttachedSwitch):
    """A bridge that Mininet makes, in the machine's Open vSwitch.

    ``run_tag``: the run that owns it.
    """

    def __init__(
        self,
        name: str,
        bridge: Bridge,
        run_tag: str,
        **_params: Any,
    ) -> None:
        del name  # the bridge has it
        super().__init__(bridge, MACHINE)
        self.run_tag = run_tag
        self.tag = f"external_ids:{RUN_KEY}={run_tag}"
        self.datapath = "kernel"
        if datapath_type() == "netdev":
            self.datapath = "user"

    def start(self, _controllers: Sequence[Node] = ()) -> None:
        """Makes the bridge, its ports and controller. Raises RunFailed."""
        # Without Mininet's controllers, which it knows only by TCP.
        super(AttachedSwitch, self).start([])
        controller = controller_row("c", self.run_tag)
        setting = ["set", "Bridge", self.name, "controller=@c"]
        MACHINE.vsctl(["--", *controller, "--", *setting])

    def stop(self, **_options: Any) -> None:
        """Does nothing: the network's removal deletes the bridge."""

    def vsctl(self, *arguments: Any, **_options: Any) -> str:
        """Runs ``ovs-vsctl`` without the node's shell."""
        # The shell's terminal takes no line of over 4,095 characters.
        return MACHINE.vsctl(shlex.split(" ".join(map(str, arguments))))

    @classmethod
    def isOldOVS(cls) -> bool:
        """False, without Mininet's question: version 1.10 is of 2013."""
        return False

    def bridgeOpts(self) -> str:
        """Mininet's options, with the tag and the datapath's name."""
        noop = f"--id=@noop create QoS type=linux-noop {self.tag}"
        return f"{super().bridgeOpts()} datapath_type={datapath_type()} {self.tag} -- {noop}"

    def intfOpts(self, intf: Any) -> str:
        """Mininet's options, and a QoS that leaves the port's limits alone."""
        return f"{super().intfOpts(intf)} -- set Port {intf} qos=@noop {self.tag}"


class BuiltLink(AttachedLink):
    """A cable that Mininet makes.

    ``line``: the batched builder's line for ``ip`` that makes the veth pair.
    """

    set_up = True

    def __init__(
        self,
        node1: Node,
        node2: Node,
        line: str,
        end1: tuple[str, int],
        port2: Port,
        **params: Any,
    ) -> None:
        if complaint := node2.cmd("ip", line):
            message = f"Mininet's ip refused {line!r}: {complaint.strip()}"
            raise RunFailed(message)
        super().__init__(
            node1, node2, end1=end1, port2=port2, mac=params.get("mac")
        )


class PlainMininet(AttachedMininet):
    """The network of a plan, which :meth:`add` and :meth:`start` make."""

    _started = False

    def add(self, plan: NetworkPlan, tag: OwnershipTag) -> None:
        """Adds hosts with their namespaces, switches and cables.

        The switches have no bridges yet.
        """
        # Mininet's own methods: AttachedMininet's refuse to add anything. Ctrl-C
        # waits for each host and cable, since the removal would not know a
        # half-made host's shell, nor wait for a running ip.
        make: Any = super(AttachedMininet, self)
        names = host_names(plan)
        for slot in plan.slots:
            with uninterrupted():
                make.addHost(names[slot.netns], BuiltHost, slot=slot)
        for bridge in plan.bridges:
            with uninterrupted():
                make.addSwitch(
                    bridge.name, BuiltSwitch, bridge=bridge, run_tag=tag.run
                )
        self.name_nodes()
        for switch in self.switches:
            if switch.bridge.label:
                self.alias(switch.bridge.label, switch)
        _, lines = up_lines(plan, tag.group, {})
        for line, ends in zip(lines, self.cables(plan), strict=True):
            with uninterrupted():
                link = make.addLink(**ends, cls=BuiltLink, line=line)
                link.net = self

    def build(self) -> None:
        """Configures the hosts, as Mininet does."""
        super(AttachedMininet, self).build()

    def start(self) -> None:
        """Makes the bridges; later calls do nothing, as it is up."""
        if not self._started:
            self._started = True
            super().start()


class PlainNetwork(EmulatedNetwork):
    """The live network of a plan, built by its :attr:`mininet`."""

    builder = "plain"

    @cached_property
    def mininet(self) -> PlainMininet:
        return PlainMininet(self._controller_port)

    def _make_cables(self, group: int) -> None:
        del group  # it is the tag's
        self.mininet.add(self.plan, self._journal.tag)
        self.mininet.build()

    def _start_bridges(
        self, switch: SwitchDaemons, bridges: Sequence[Bridge]
    ) -> None:
        del switch, bridges  # all of them, in the machine's switch
        self.mininet.start()

    def _connect_bridges(
        self, switch: SwitchDaemons, bridges: Sequence[Bridge]
    ) -> None:
        del switch, bridges  # Mininet has connected each as it started


# Seconds that Mininet takes on two processors for a node's shell and a cable. A
# cable takes longer the more ports the switch has.
NODE_S = 0.03
CABLE_S = 0.04
PORT_S = 0.0004


def built_in_s(plan: NetworkPlan) -> float:
    """Approximate time that Mininet takes to build a network."""
    cables = len(plan.slots) + len(plan.links)
    nodes = len(plan.slots) + len(plan.bridges)
    return NODE_S * nodes + CABLE_S * cables + PORT_S * cables**2


def refuse_parts(plan: NetworkPlan) -> None:
    """Raises BadInput where the network needs more than Mininet's one switch."""
    n_parts = len(switch_parts(plan))
    if n_parts > 1 and datapath_type() != "system":
        cables = len(plan.slots) + len(plan.links)
        raise BadInput(
            f"--builder plain: a network of {cables:,} links needs {n_parts} switch parts on the"
            " userspace datapath, and Mininet builds one switch",
            "leave --builder out: the batched builder makes the parts; or take a smaller topology,"
            " as a fat-tree of k = 4 with two slots a server (80 links)",
        )
