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
        tree = tree_of(datacentre, placement.root)
        asked_bps.update(hose_bps(tree, placement, tenant.cap_bps))
    crowded = []
    for link, bps in asked_bps.items():
        if bps > plan.directed_bps(link):
            crowded.append(link)
    return frozenset(crowded)


def meets_others(
    datacentre: DataCentre, placed: Placed, crowded: frozenset[int]
) -> bool:
    """True if a tenant's traffic passes one of these links."""
    if not placed.tenant.edges or not crowded:
        return False
    tree = tree_of(datacentre, placed.placement.root)
    needed = hose_bps(tree, placed.placement, placed.tenant.cap_bps)
    return not crowded.isdisjoint(needed)
