"""Links that running jobs may fill together. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from testbed.embedding.placement import Placement, hose_bps, tree_of
from testbed.plan.network_plan import NetworkPlan, TenantPlan
from topologies.datacentre import DataCentre


class Placed(NamedTuple):
    """A tenant and the servers of its VMs."""

    tenant: TenantPlan
    placement: Placement


def crowded_links(
    datacentre: DataCentre, plan: NetworkPlan, running: Iterable[Placed]
) -> frozenset[int]:
    """Directed links that carry less than VMs may send over them by their caps.

    Rates are on the emulated wire. O(tenants · links of their trees).
    """
    asked_bps: Counter[int] = Counter()
    for tenant, placement in running:
        # VMs of one server, or of a flat data centre, send over no link.
        if not tenant.edges:
            continue
        # Not by reservations: a VM without one sends as much as its cap
        # allows.
        tree = tree_of(datacentre, placement.root)
        asked_bps.update(hose_bps(tree, placement, tenant.cap_bps))
    return frozenset(
        link
        for link, bps in asked_bps.items()
        if bps > plan.directed_bps(link)
    )


def crowded_by_vm(
    datacentre: DataCentre, placed: Placed, crowded: frozenset[int]
) -> dict[int, frozenset[int]]:
    """Crowded links over which traffic comes to each VM, by the VM's index.

    VMs to which none of the links leads are absent.
    """
    if not placed.tenant.edges or not crowded:
        return {}
    tree = tree_of(datacentre, placed.placement.root)
    needed = hose_bps(tree, placed.placement, placed.tenant.cap_bps)
    result = {}
    for vm in placed.tenant.vms:
        path = tree.path_to_root(vm.slot.server)
        above = {int(tree.uplink[node]) for node in path}
        leading = set()
        for directed_link in crowded.intersection(needed):
            link, is_down = divmod(directed_link, 2)
            # Traffic comes down the links above the VM, and up all others.
            if is_down == (link in above):
                leading.add(directed_link)
        if leading:
            result[vm.index] = frozenset(leading)
    return result
