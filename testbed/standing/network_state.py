"""States of a standing network, its tenants, links and switches, as reported.

``testbed status``, ``tenant``, ``link`` and ``switch`` print these values with
``--json`` by the names of their fields.
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.request import Enforcement
from testbed.backends.emu.vm_process import VmPlace


@dataclass(frozen=True)
class TenantState:
    """A tenant: its VMs, and the bandwidth of each, in bit/s.

    ``bandwidth_bps`` is in the experiment's units, ``wire_bps`` on the emulated
    wire. ``links``: directed links and the bandwidth reserved there, in the
    experiment's units. The tenant of an open network has the bandwidth of a
    server's link, the most that a VM can have. ``trouble``: a sentence about
    VMs that cannot reach each other, as links are down.
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
    """A cable: a link of the data centre, or a VM slot's to its server.

    ``ends``: names of the lower and the upper end. ``ports``: the devices that
    go down and up with the cable; of a VM's cable the switch's alone.
    ``capacity_bps`` (upward), ``capacity_down_bps`` and ``reserved_bps`` (in
    either direction): bit/s of the experiment; 0 of a VM's cable. ``tenants``:
    names of those that use it. ``broken``: a sentence for each tenant that the
    cable's loss has cut.

    ``moved``, in the reply to a change of the link only: a sentence for each
    tenant that has moved to another root, or has its links back.
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
    capacity_down_bps: int = 0


@dataclass(frozen=True)
class SwitchState:
    """An Open vSwitch: the machine's own, or a part of the network's.

    ``bridges``: names of the data centre's nodes in it. ``pid``: the process
    that forwards; None where it has ended. ``done``: duration and repairs of a
    restart, in the reply to it only.
    """

    name: str
    bridges: tuple[str, ...]
    pid: int | None
    since_unix_s: float
    done: str = ""


@dataclass(frozen=True)
class NetworkState:
    """A standing network: its file, its keeper's process, sizes and tenants.

    ``trouble``: sentences about parts that do not work. ``busiest_link`` is
    empty where no bandwidth is reserved. ``open``: one tenant has all slots,
    without reservations. ``controller``: a person's applications that install
    the flows; empty: the testbed's own controller does. ``pages``: addresses of
    their web pages. ``removed``: a sentence about flow rules of others that
    were on its bridges.
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
    pages: str = ""
    removed: str = ""
