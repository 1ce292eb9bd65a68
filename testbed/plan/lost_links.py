"""Tenants on a network with cables that carry nothing: which VMs still reach which. Pure.

A tenant is pinned to one tree: a lost link of it has no detour but another tree. A cable is named
by the port at its lower end: a link's, or a VM's on its server.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from testbed.plan.network_plan import TenantPlan

MOST_NAMES = 4


def cables_of(tenant: TenantPlan) -> list[str]:
    """Cables that a tenant's packets use: its VMs' own, and those of its tree."""
    ports = [vm.slot.port for vm in tenant.vms] + [edge.lower for edge in tenant.edges]
    return [port.name for port in ports]


def root_of(tenant: TenantPlan) -> str:
    """The bridge at the top of a tenant's edges."""
    lower = {edge.lower.bridge for edge in tenant.edges}
    return next(e.upper.bridge for e in tenant.edges if e.upper.bridge not in lower)


def groups(tenant: TenantPlan, lost: Collection[str]) -> list[list[str]]:
    """The tenant's VMs, by their ports, those together that reach each other; one group: all do."""
    above = {e.lower.bridge: e.upper.bridge for e in tenant.edges if e.lower.name not in lost}
    found: dict[str, list[str]] = {}
    for port in (vm.slot.port for vm in tenant.vms):
        at = port.name if port.name in lost else port.bridge
        while at in above:
            at = above[at]
        found.setdefault(at, []).append(port.name)
    return list(found.values())


def cut_text(
    tenant: TenantPlan, lost: Collection[str], names: Mapping[str, str], *, pinned: bool
) -> str:
    """A sentence about which VMs no longer reach which; empty where all do.

    ``names``: of bridges and of VMs, these by their ports. ``pinned``: say to which root.
    """
    parts, n = groups(tenant, lost), len(tenant.vms)
    if len(parts) == 1:
        return ""
    named = ([names[port] for port in group] for group in parts)
    sides = (vms if len(vms) <= MOST_NAMES else (vms[0], "…", vms[-1]) for vms in named)
    root = f" (pinned to {names[root_of(tenant)]})" if pinned and tenant.edges else ""
    cut, pairs = (n * n - sum(len(group) ** 2 for group in parts)) // 2, n * (n - 1) // 2
    which = " | ".join(map(" ".join, sides))
    return f"tenant {tenant.job_id}{root} is cut: {which}; {cut} of {pairs} pairs"
