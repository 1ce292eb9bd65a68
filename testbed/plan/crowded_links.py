"""Links that running jobs may fill together. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from testbed.embedding.placement import Placement, hose_bps, tree_of
from testbed.plan.network_plan import NetworkPlan, TenantPlan
from topologies.datacentre import DataCentre


class Placed(NamedTuple):
    """A tenant and where it is."""

    tenant: TenantPlan
    placement: Placement


def crowded_links(
    datacentre: DataCentre, plan: NetworkPlan, running: Iterable[Placed]
) -> frozenset[int]:
    """Directed links that carry less than what VMs' caps let through to them.

    Rates are on the emulated wire. O(tenants · links of their trees).
    """
    asked_bps: Counter[int] = Counter()
    for tenant, placement in running:
        # VMs of one server, or of a flat data centre, meet on no link.
        if not tenant.edges:
            continue
        # By their caps, not by what they reserve: a VM without a
        # reservation sends as much as its cap lets it.
        tree = tree_of(datacentre, placement.root)
        asked_bps.update(hose_bps(tree, placement, tenant.cap_bps))
    crowded = []
    for link, bps in asked_bps.items():
        if bps > plan.directed_bps(link):
            crowded.append(link)
    return frozenset(crowded)


def crowded_by_vm(
    datacentre: DataCentre, placed: Placed, crowded: frozenset[int]
) -> dict[int, frozenset[int]]:
    """Of these directed links those by which traffic comes to each VM.

    By the VM's index; VMs that none of them leads to are absent.
    """
    if not placed.tenant.edges or not crowded:
        return {}
    tree = tree_of(datacentre, placed.placement.root)
    needed = hose_bps(tree, placed.placement, placed.tenant.cap_bps)
    result = {}
    for vm in placed.tenant.vms:
        path = tree.path_to_root(vm.slot.server)
        above = {int(tree.uplink[node]) for node in path}
        # Down the links above it, up all others.
        leading = {
            link
            for link in crowded.intersection(needed)
            if (link // 2 in above) == (link % 2 == 1)
        }
        if leading:
            result[vm.index] = frozenset(leading)
    return result
