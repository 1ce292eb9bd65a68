"""A network that is up as it was built, and its tenants' plans: all that it should be."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.plan.network_plan import NetworkPlan, TenantPlan
from testbed.runs.keeper_protocol import Request


@dataclass(frozen=True)
class ShowLayout(Request):
    """Asks for :class:`NetworkLayout`."""


@dataclass(frozen=True)
class ShowPlans(Request):
    """Asks for :class:`TenantPlans`."""


@dataclass(frozen=True)
class NetworkLayout:
    """A network as it was built, whatever has become of its file.

    ``switches``: bridge -> run folder and network namespace (None: the host's) of the Open vSwitch
    that it is in. ``pid``: the keeper's.
    """

    plan: NetworkPlan
    switches: dict[str, tuple[str, str | None]]
    controller_port: int
    pid: int


@dataclass(frozen=True)
class TenantPlans:
    """Tenants as they should be on the network: limits and flows follow from these values.

    ``names``: of bridges and of VMs, these by their ports, as people call them. ``borrowing``:
    traffic without a reservation may borrow. ``app``: the file of a person's controller, whose
    flows nobody knows beforehand; empty: flows are ours.
    """

    tenants: tuple[TenantPlan, ...]
    names: dict[str, str]
    borrowing: bool
    app: str = ""
