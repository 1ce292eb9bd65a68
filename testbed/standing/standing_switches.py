"""Open vSwitches of a standing network: their bridges, and their restart."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import psutil

from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.open_vswitch import SwitchDaemons
from testbed.errors import BadInput
from testbed.plan.network_plan import TenantPlan
from testbed.spec.document import did_you_mean
from testbed.standing.keeper_protocol import Watched
from testbed.standing.network_state import SwitchState
from testbed.standing.standing_tenants import StandingTenants

ALL = "all"
# The name of the machine's own switch.
MACHINE_NAME = "machine"


class StandingSwitches:
    """The parts of the switch, or the machine's own, under one network."""

    def __init__(
        self, emulation: Emulation, tenants: StandingTenants
    ) -> None:
        self._emulation = emulation
        self._network = emulation.network
        self._tenants = tenants
        # Descriptors of processes, and what to call when one has ended.
        self._callbacks: dict[int, Callable[[], None]] = {}
        for switch in self._network.switches:
            self._watch_switch(switch)
        self._watch_controller()

    def states(self) -> tuple[SwitchState, ...]:
        """All of them as they are now."""
        return tuple(map(self._state, self._network.switches))

    def restart(self, name: str) -> tuple[SwitchState, ...]:
        """Ends and starts a switch, by its name or that of a bridge or node.

        ``all``: every one. Raises BadInput; MachineCannot where bridges of
        others are in it; RunFailed.
        """
        return tuple(
            self._started(switch, self._emulation.restart_switch)
            for switch in self._named(name)
        )

    def watched(self) -> Watched:
        """Descriptors that become readable when a process ends, and callbacks.

        The processes are those of the switches, and the controller's.
        """
        return {
            descriptor: partial(self._ended, descriptor)
            for descriptor in self._callbacks
        }

    def _watch(
        self,
        pid: int | None,
        callback: Callable[[], None],
    ) -> None:
        if pid is None:
            return
        with suppress(OSError):  # it has ended meanwhile
            self._callbacks[os.pidfd_open(pid)] = callback

    def _ended(self, descriptor: int) -> None:
        # The descriptor of an ended process stays readable: unread and unclosed
        # it would be reported for ever.
        os.close(descriptor)
        # Out of the table before the callback, which watches the new
        # process, perhaps by a descriptor of the same number.
        callback = self._callbacks.pop(descriptor)
        callback()

    def _watch_switch(self, switch: SwitchDaemons) -> None:
        # A switch is two processes: the one that forwards, and its database.
        for pid in (switch.pid, switch.database_pid):
            self._watch(pid, partial(self._switch_ended, switch))

    def _switch_ended(self, switch: SwitchDaemons) -> None:
        # Both of its processes may have ended: the first to be seen starts it.
        if not switch.running:
            logging.warning("switch %s has ended", _name(switch))
            self._started(switch, self._emulation.start_switch)

    def _watch_controller(self) -> None:
        pid = self._emulation.controller.process.pid
        self._watch(pid, self._controller_ended)

    def _controller_ended(self) -> None:
        if self._emulation.revive_controller():
            logging.warning(
                "the controller had ended, and is started again"
            )
        # A person's own controller is reported as trouble, and not started.
        if self._emulation.own_controller is None:
            self._watch_controller()

    def _started(
        self,
        switch: SwitchDaemons,
        start: Callable[[SwitchDaemons, Sequence[TenantPlan]], int],
    ) -> SwitchState:
        """The state of a switch after its start, with duration and repairs."""
        begin_s = time.monotonic()
        missing = start(switch, self._tenants.plans)
        took_s = time.monotonic() - begin_s
        self._watch_switch(switch)
        # How many were missing shows what outlives a switch's end, and what
        # not.
        done = (
            f"started again in {took_s:.2f} s; "
            f"{missing} of its limits were missing"
        )
        logging.info("switch %s: %s", _name(switch), done)
        return self._state(switch, done)

    def _named(self, name: str) -> list[SwitchDaemons]:
        if name == ALL:
            return list(self._network.switches)
        known: dict[str, SwitchDaemons] = {}
        for switch in self._network.switches:
            for alias in (_name(switch), *self._names_of(switch)):
                known[alias] = switch
        if name not in known:
            raise BadInput(
                f"unknown switch {name!r}{did_you_mean(name, list(known))}",
                "sudo testbed switch show lists them",
            )
        return [known[name]]

    def _names_of(self, switch: SwitchDaemons) -> Iterator[str]:
        names = self._tenants.names
        for bridge in self._network.bridges_of(switch):
            yield names[bridge.name]
            yield bridge.name

    def _state(self, switch: SwitchDaemons, done: str = "") -> SwitchState:
        names = self._tenants.names
        bridges = self._network.bridges_of(switch)
        pid = switch.pid
        since_unix_s = 0.0
        if pid:
            # It may have ended since its number was read.
            with suppress(psutil.Error):
                since_unix_s = psutil.Process(pid).create_time()
        return SwitchState(
            name=_name(switch),
            bridges=tuple(names[bridge.name] for bridge in bridges),
            pid=pid,
            since_unix_s=since_unix_s,
            done=done,
        )


def _name(switch: SwitchDaemons) -> str:
    return switch.netns or MACHINE_NAME
