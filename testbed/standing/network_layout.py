"""The standing network as it was built and its tenants' plans, on request."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.plan.network_plan import NetworkPlan, TenantPlan
from testbed.standing.keeper_protocol import KeeperRequest


# These requests have a module of their own, as it needs the plans of networks,
# which most clients of the keeper do without.
@dataclass(frozen=True)
class ShowLayout(KeeperRequest):
    """Asks for :class:`NetworkLayout`."""


@dataclass(frozen=True)
class ShowPlans(KeeperRequest):
    """Asks for :class:`TenantPlans`."""


@dataclass(frozen=True)
class NetworkLayout:
    """A network as it was built, whatever has become of its file since.

    ``switches``: bridge -> run folder and network namespace (None: the host's)
    of the Open vSwitch that it is in. ``pid``: the keeper's.
    """

    plan: NetworkPlan
    switches: dict[str, tuple[str, str | None]]
    controller_port: int
    pid: int


@dataclass(frozen=True)
class TenantPlans:
    """The plans that limits and flows of the tenants follow from.

    ``names``: bridge -> node, and port of a VM -> VM, as users call them.
    ``borrowing``: traffic without a reservation may borrow. ``app``: the file
    of a person's controller, whose flows cannot be predicted; empty: the
    testbed's controller installs them.
    """

    tenants: tuple[TenantPlan, ...]
    names: dict[str, str]
    borrowing: bool
    app: str = ""
