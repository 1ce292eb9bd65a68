"""Open vSwitches of a network that stays up: their bridges, and their start after their end."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import psutil

from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.open_vswitch import Switch
from testbed.errors import BadInput
from testbed.plan.network_plan import TenantPlan
from testbed.runs.keeper_protocol import Watched
from testbed.runs.network_state import SwitchState
from testbed.runs.standing_tenants import StandingTenants
from testbed.spec.document import did_you_mean

ALL = "all"
MACHINE_NAME = "machine"
"""The name of the machine's own switch."""


class StandingSwitches:
    """The parts of the switch, or the machine's own, under one network."""

    def __init__(self, emulation: Emulation, tenants: StandingTenants) -> None:
        self._emulation = emulation
        self._network = emulation.network
        self._tenants = tenants
        self._ends: dict[int, partial[None]] = {}
        for switch in self._network.switches:
            self._watch_switch(switch)
        self._watch_controller()

    def states(self) -> tuple[SwitchState, ...]:
        """All of them as they are now."""
        return tuple(self._state(switch) for switch in self._network.switches)

    def restart(self, name: str) -> tuple[SwitchState, ...]:
        """End and start one, by its name, or that of a bridge or node in it; or ``all``.

        Raises BadInput; MachineCannot where bridges of others are in it; RunFailed.
        """
        return tuple(
            self._started(switch, self._emulation.restart_switch) for switch in self._named(name)
        )

    def watched(self) -> Watched:
        """A file for each, and for the controller, which can be read when it has ended."""
        return {descriptor: partial(self._ended, descriptor) for descriptor in self._ends}

    def _watch(self, pid: int | None, ended: partial[None]) -> None:
        with suppress(OSError):
            self._ends[os.pidfd_open(pid or 0)] = ended

    def _ended(self, descriptor: int) -> None:
        os.close(descriptor)
        self._ends.pop(descriptor)()

    def _watch_switch(self, switch: Switch) -> None:
        for pid in (switch.pid, switch.database_pid):
            self._watch(pid, partial(self._switch_ended, switch))

    def _switch_ended(self, switch: Switch) -> None:
        if not switch.running:
            logging.warning("switch %s has ended", _name(switch))
            self._started(switch, self._emulation.start_switch)

    def _watch_controller(self) -> None:
        self._watch(self._emulation.controller.process.pid, partial(self._controller_ended))

    def _controller_ended(self) -> None:
        if self._emulation.revive_controller():
            logging.warning("the controller had ended, and is started again")
        if self._emulation.own is None:
            self._watch_controller()

    def _started(
        self, switch: Switch, start: Callable[[Switch, Sequence[TenantPlan]], int]
    ) -> SwitchState:
        """Start one, and say what it took."""
        begin_s = time.monotonic()
        missing = start(switch, self._tenants.plans)
        took_s = time.monotonic() - begin_s
        self._watch_switch(switch)
        text = f"started again in {took_s:.2f} s; {missing} of its limits were missing"
        logging.info("switch %s: %s", _name(switch), text)
        return self._state(switch, text)

    def _named(self, name: str) -> list[Switch]:
        known: dict[str, Switch] = {}
        for switch in self._network.switches:
            for alias in (_name(switch), *self._names_of(switch)):
                known[alias] = switch
        if name == ALL:
            return list(self._network.switches)
        if name not in known:
            hint = "sudo testbed switch show lists them"
            raise BadInput(f"unknown switch {name!r}{did_you_mean(name, list(known))}", hint)
        return [known[name]]

    def _names_of(self, switch: Switch) -> Iterator[str]:
        names = self._tenants.names
        for bridge in self._network.bridges_of(switch):
            yield from (names[bridge.name], bridge.name)

    def _state(self, switch: Switch, done: str = "") -> SwitchState:
        names = self._tenants.names
        bridges = [names[bridge.name] for bridge in self._network.bridges_of(switch)]
        pid, since = switch.pid, 0.0
        with suppress(psutil.Error):
            since = psutil.Process(pid).create_time() if pid else 0.0
        return SwitchState(_name(switch), tuple(bridges), pid, since, done)


def _name(switch: Switch) -> str:
    return switch.netns or MACHINE_NAME
