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

from mininet.log import error

from testbed.backends.emu.mininet_network import AttachedMininet, Prompt
from testbed.backends.emu.open_vswitch import SwitchDaemons
from testbed.errors import RunFailed, TestbedError
from testbed.standing.keeper_protocol import ShowNetwork, ask
from testbed.standing.network_layout import NetworkLayout, ShowLayout
from testbed.standing.network_state import NetworkState


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
        if state.pid != self._keeper:
            raise RunFailed(
                "this network is down, and another is up",
                "leave, and begin again",
            )
        for name in self._vms:
            self.unalias(name)
        vms = [vm for tenant in state.tenants for vm in tenant.vms]
        self._vms = [vm.name for vm in vms]
        for vm in vms:
            self.alias(vm.name, self[Path(vm.netns).name])

    def interact(self) -> Any:
        """Mininet's prompt, until Ctrl-D or ``exit``."""
        return StandingPrompt(self)


def _switches(layout: NetworkLayout) -> dict[str, SwitchDaemons]:
    """Bridge -> the Open vSwitch that it is in, one value for each switch."""
    switches: dict[tuple[str, str | None], SwitchDaemons] = {}
    for place in layout.switches.values():
        run_dir, netns = place
        switches[place] = SwitchDaemons(Path(run_dir), netns)
    return {name: switches[place] for name, place in layout.switches.items()}


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
