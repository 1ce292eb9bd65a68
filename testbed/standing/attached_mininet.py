"""Mininet's object and prompt on the standing network, outside its keeper.

The keeper says how the network was built, so that it does not matter what has
become of the file, and which VMs there are: names such as ``a.0`` follow
tenants that come and go.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mininet.log import error, output

from testbed.backends.emu.mininet_network import AttachedMininet, Prompt
from testbed.backends.emu.open_vswitch import SwitchDaemons
from testbed.errors import BadInput, RunFailed, TestbedError
from testbed.standing.keeper_protocol import (
    SetCapacity,
    ShowLinks,
    ShowNetwork,
    Way,
    ask,
)
from testbed.standing.network_layout import NetworkLayout, ShowLayout
from testbed.standing.network_state import LinkState, NetworkState
from testbed.units import human_capacity


class StandingMininet(AttachedMininet):
    """The network that is up, with hosts also by the names of tenants' VMs.

    Any process of root may have one, several may be in use at a time. Raises
    NothingUp, RunFailed.
    """

    def __init__(self) -> None:
        layout = ask(ShowLayout(), NetworkLayout)
        super().__init__(layout.controller_port)
        self.attach(layout.plan, _switches(layout))
        self._keeper = layout.pid
        self._vms: list[str] = []
        self.follow_tenants()

    def follow_tenants(self) -> None:
        """Names the hosts after the VMs of this moment.

        Raises RunFailed for another network.
        """
        state = ask(ShowNetwork(), NetworkState)
        # Its nodes would be another network's namespaces.
        if state.pid != self._keeper:
            raise RunFailed(
                "this network is down, and another is up",
                "leave, and begin again",
            )
        # All of them, also of tenants that stay: another tenant may have a
        # name that is free again.
        for name in self._vms:
            self.unalias(name)
        vms = [vm for tenant in state.tenants for vm in tenant.vms]
        self._vms = [vm.name for vm in vms]
        for vm in vms:
            self.alias(vm.name, self[Path(vm.netns).name])

    def vm_name(self, node: Any) -> str:
        """The VM in a node's slot, if there is one."""
        for vm in self._vms:
            if self[vm] is node:
                return vm
        return super().vm_name(node)

    def set_capacity(self, interface: Any, mbit: float) -> None:
        """Changes the capacity of what an interface sends, as ``testbed link
        set`` does with ``--up`` or ``--down``; ``mbit``: in the file's Mbit/s.

        A host of a topology that names its hosts has its server's link. Raises
        BadInput, DoesNotFit, RunFailed.
        """
        link = interface.link
        ports = self._ports_of_link(link)
        # The first end of a cable is the lower one.
        way: Way = "up" if interface is link.intf1 else "down"
        states = ask(ShowLinks(), tuple[LinkState, ...])
        ends = [state.ends for state in states if set(state.ports) == ports]
        if not ends:
            raise BadInput(
                f"{link}: a VM's rate is its tenant's; sudo testbed tenant rerate"
                " NAME RATE changes it",
                "sudo testbed link set A B RATE changes a link's",
            )
        request = SetCapacity(ends[0], round(mbit * 10**6), way)
        state = ask(request, LinkState)
        carries = human_capacity(
            state.capacity_bps, state.capacity_down_bps
        )
        output(f"*** link {state.name} carries {carries}\n")

    def _ports_of_link(self, link: Any) -> set[str]:
        """Devices of a link's ends; of a named host's cable those of its
        server's link.
        """
        host = link.intf1.node
        if getattr(host, "slot", None) and host.slot.host:
            server = link.intf2.node
            above = [up for up in self.links if up.intf1.node is server]
            if len(above) == 1:
                (link,) = above
        return {link.intf1.name, link.intf2.name}

    def close(self) -> None:
        """Ends the shells of this object."""
        super().stop()

    def stop(self) -> None:
        """Ends the shells of this object, and says that the network stays."""
        self.close()
        output(
            "*** The network stays up: sudo testbed down takes it down\n"
        )

    def interact(self) -> Any:
        """Mininet's prompt, until Ctrl-D or ``exit``."""
        return StandingPrompt(self)


def _switches(layout: NetworkLayout) -> dict[str, SwitchDaemons]:
    """Bridge -> the Open vSwitch that it is in, one value for each switch."""
    switches: dict[tuple[str, str | None], SwitchDaemons] = {}
    for place in layout.switches.values():
        run_dir, netns = place
        switches[place] = SwitchDaemons(Path(run_dir), netns)
    return {
        name: switches[place] for name, place in layout.switches.items()
    }


class StandingPrompt(Prompt):
    """Mininet's prompt, with the tenants that there are at each command."""

    def onecmd(self, line: str) -> Any:
        """Runs a line; without a network, after a message that says so."""
        try:
            self.mn.follow_tenants()
        except TestbedError as gone:
            error(f"*** {gone}\n")
        return super().onecmd(line)


class Script(StandingPrompt):
    """The prompt without a terminal: runs lines, to their end or ``exit``.

    Mininet's own passes to a node's command whatever is on standard input, and
    so the lines after it. Here commands have an input on which nothing comes.
    """

    def __init__(
        self,
        net: StandingMininet,
        lines: Iterable[str],
    ) -> None:
        self._lines = lines
        # A pipe without a writer: reading from it ends at once.
        reading, writing = os.pipe()
        with os.fdopen(reading) as nothing, os.fdopen(writing, "w"):
            super().__init__(net, stdin=nothing)

    @classmethod
    def initReadline(cls) -> None:  # noqa: N802 - Mininet's name
        """Does nothing: lines of a script are no history."""

    def run(self) -> None:
        """Runs the lines, comments left out."""
        for line in self._lines:
            if self.onecmd(self.precmd(line.rstrip("\n"))):
                break
