"""Tenants on a network whose cables are partly lost: pairs of VMs cut apart.

Pure. A tenant is pinned to one tree: a lost link of it has no detour but
another tree. A cable is named by the port at its lower end: a link's, or a VM's
on its server.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from testbed.plan.network_plan import TenantPlan

MOST_NAMES = 4


def cables_of(tenant: TenantPlan) -> list[str]:
    """Cables that a tenant's packets use: its VMs' own, and those of its tree."""
    cables = [vm.slot.port.name for vm in tenant.vms]
    cables += [edge.lower.name for edge in tenant.edges]
    return cables


def root_of(tenant: TenantPlan) -> str:
    """The bridge at the top of a tenant's edges."""
    lower = {edge.lower.bridge for edge in tenant.edges}
    return next(
        edge.upper.bridge
        for edge in tenant.edges
        if edge.upper.bridge not in lower
    )


def groups(tenant: TenantPlan, lost: Collection[str]) -> list[list[str]]:
    """Groups of the tenant's VMs that reach each other, each VM by its port.

    A single group: all VMs reach all.
    """
    above = {}
    # A tree's cables lead upward from each bridge to one other at most.
    for edge in tenant.edges:
        if edge.lower.name not in lost:
            above[edge.lower.bridge] = edge.upper.bridge
    by_highest: dict[str, list[str]] = {}
    for vm in tenant.vms:
        port = vm.slot.port
        # The highest bridge that a VM reaches tells its group; a VM whose own
        # cable is lost reaches none and is a group by itself.
        highest = port.bridge
        if port.name in lost:
            highest = port.name
        # Up the pinned tree, as far as no cable is lost.
        while highest in above:
            highest = above[highest]
        by_highest.setdefault(highest, []).append(port.name)
    return list(by_highest.values())


def cut_text(
    tenant: TenantPlan,
    lost: Collection[str],
    names: Mapping[str, str],
    *,
    pinned: bool,
) -> str:
    """A sentence about the VMs that no longer reach each other; empty if none.

    ``names``: of bridges and of VMs, these by their ports. ``pinned``: the
    sentence names the root.
    """
    parts = groups(tenant, lost)
    if len(parts) == 1:
        return ""
    sides = [_side(group, names) for group in parts]
    root = ""
    if pinned and tenant.edges:
        root = f" (pinned to {names[root_of(tenant)]})"
    pairs = math.comb(len(tenant.vms), 2)
    reached = sum(math.comb(len(group), 2) for group in parts)
    return (
        f"tenant {tenant.job_id}{root} is cut: {' | '.join(sides)};"
        f" {pairs - reached} of {pairs} pairs"
    )


def _side(group: Sequence[str], names: Mapping[str, str]) -> str:
    """The names of a group's VMs; of a large group the first and the last."""
    vms = [names[port] for port in group]
    if len(vms) > MOST_NAMES:
        vms = [vms[0], "…", vms[-1]]
    return " ".join(vms)
