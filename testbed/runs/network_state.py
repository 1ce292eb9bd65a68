"""A network that is up, its tenants and its links, as people see them."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.request import Enforcement
from testbed.backends.emu.vm_process import VmPlace


@dataclass(frozen=True)
class TenantState:
    """A tenant as people see it: bit/s per VM, in the experiment and on the emulated wire.

    ``links``: directed links and what is reserved there, in bit/s of the experiment. The tenant of
    an open network has the bandwidth of a server's link, the most that a VM can have. ``trouble``:
    which of its VMs links that are down have cut off from which.
    """

    name: str
    bandwidth_bps: int
    wire_bps: int
    vms: tuple[VmPlace, ...]
    links: tuple[tuple[str, int], ...]
    enforcement: Enforcement = "strict"
    trouble: str = ""


@dataclass(frozen=True)
class LinkState:
    """A cable as people see it: a link of the data centre, or that of a VM slot to its server.

    ``ends``: the lower and the upper. ``ports``: the devices that go down and up with it, of a VM's
    cable the switch's alone. Bit/s of the experiment, in the direction with more; 0 of a VM's
    cable. ``tenants`` use it; ``broken``: what its loss has cut; ``moved``: who has another root,
    or its links back, by the change that this is the reply to. A sentence for each.
    """

    name: str
    ends: tuple[str, str]
    ports: tuple[str, ...]
    up: bool
    capacity_bps: int
    reserved_bps: int
    tenants: tuple[str, ...]
    broken: tuple[str, ...]
    moved: tuple[str, ...] = ()


@dataclass(frozen=True)
class SwitchState:
    """An Open vSwitch as people see it: the machine's own, or a part of the network's.

    ``bridges``: as people call them. ``pid``: the process that forwards, None where it has ended.
    ``done``: what a restart took, in the reply to it.
    """

    name: str
    bridges: tuple[str, ...]
    pid: int | None
    since_unix_s: float
    done: str = ""


@dataclass(frozen=True)
class NetworkState:
    """A network that is up: its file, its keeper, its tenants. ``trouble``: what does not work.

    ``busiest_link`` is empty where no bandwidth is reserved. ``open``: all slots are one tenant's,
    without reservations. ``controller``: the file of a person's application whose flows they are;
    empty: flows are the testbed's own.
    """

    file: str
    name: str
    user: str
    pid: int
    since_unix_s: float
    topology: str
    scale_rate: float
    bridges: int
    cables: int
    slots: int
    slots_taken: int
    busiest_link: str
    busiest_share: float
    trouble: str
    tenants: tuple[TenantState, ...]
    open: bool = False
    controller: str = ""
