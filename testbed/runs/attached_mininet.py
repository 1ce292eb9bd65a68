"""Mininet's object and prompt on the network that is up, in a process beside its keeper's.

The keeper says how the network was built, so that it does not matter what has become of the file,
and which VMs there are: names such as ``a.0`` follow tenants that come and go.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mininet.log import error

from testbed.backends.emu.mininet_network import AttachedMininet, Prompt
from testbed.backends.emu.open_vswitch import Switch
from testbed.errors import RunFailed, TestbedError
from testbed.runs.keeper_protocol import ShowNetwork, ask
from testbed.runs.network_layout import NetworkLayout, ShowLayout
from testbed.runs.network_state import NetworkState


class StandingMininet(AttachedMininet):
    """The network that is up; hosts are also found by the names of tenants' VMs.

    Any process of root may have one, several may be in use at a time. Raises NothingUp, RunFailed.
    """

    def __init__(self) -> None:
        layout = ask(ShowLayout(), NetworkLayout)
        of_place = {place: Switch(Path(place[0]), place[1]) for place in layout.switches.values()}
        switches = {bridge: of_place[place] for bridge, place in layout.switches.items()}
        super().__init__(layout.controller_port)
        self.attach(layout.plan, switches)
        self._keeper = layout.pid
        self._vms: list[str] = []
        self.follow_tenants()

    def follow_tenants(self) -> None:
        """Name the hosts after the VMs that are there now. Raises RunFailed for another network."""
        state = ask(ShowNetwork(), NetworkState)
        if state.pid != self._keeper:
            raise RunFailed("this network is down, and another is up", "leave, and begin again")
        for name in self._vms:
            self.unalias(name)
        vms = [vm for tenant in state.tenants for vm in tenant.vms]
        self._vms = [vm.name for vm in vms]
        for vm in vms:
            self.alias(vm.name, self[Path(vm.netns).name])

    def interact(self) -> Any:
        """Mininet's prompt, until Ctrl-D or ``exit``."""
        return StandingPrompt(self)


class StandingPrompt(Prompt):
    """Mininet's prompt, with the tenants that there are when a command begins."""

    def onecmd(self, line: str) -> Any:
        """Run a line; without a network what it says is said by each command."""
        try:
            self.mn.follow_tenants()
        except TestbedError as gone:
            error(f"*** {gone}\n")
        return super().onecmd(line)


class Script(StandingPrompt):
    """The prompt where nobody types: runs lines, until their end or ``exit``.

    Mininet's own passes to a node's command whatever is on standard input, and so the lines after
    it. Here commands have an input on which nothing comes.
    """

    def __init__(self, net: StandingMininet, lines: Iterable[str]) -> None:
        self._lines = lines
        reading, writing = os.pipe()
        with os.fdopen(reading) as nothing, os.fdopen(writing, "w"):
            super().__init__(net, stdin=nothing)

    @classmethod
    def initReadline(cls) -> None:  # noqa: N802 - Mininet's name
        """Nothing: lines of a script are no history."""

    def run(self) -> None:
        """Run the lines, comments left out."""
        for line in self._lines:
            if self.onecmd(self.precmd(line.rstrip("\n"))):
                break
