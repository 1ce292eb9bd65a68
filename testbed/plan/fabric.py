"""The network and its tenants as the controller takes them. Pure."""

from __future__ import annotations

from typing import Literal, cast

from controller.values import Switch, Tenant, TenantVm, TreeEdge
from testbed.plan.network import NetworkPlan, TenantPlan

Role = Literal["server", "rack", "aggregation", "core"]


def controller_switches(network: NetworkPlan) -> tuple[Switch, ...]:
    """Every bridge with its ports' numbers."""
    ports: dict[str, list[int]] = {bridge.name: [] for bridge in network.bridges}
    for slot in network.slots:
        ports[slot.port.bridge].append(slot.port.number)
    for link in network.links:
        ports[link.lower.bridge].append(link.lower.number)
        ports[link.upper.bridge].append(link.upper.number)
    return tuple(
        Switch(bridge.dpid, bridge.name, cast(Role, bridge.role), tuple(ports[bridge.name]))
        for bridge in network.bridges
    )


def controller_tenant(network: NetworkPlan, tenant: TenantPlan) -> Tenant:
    """A placed tenant with the tree it is pinned to."""
    dpid = {bridge.name: bridge.dpid for bridge in network.bridges}
    return Tenant(
        id=tenant.tenant_id,
        name=tenant.job_id,
        prefix=str(tenant.prefix),
        vms=tuple(
            TenantVm(
                vm.index, str(vm.ip), vm.slot.mac, dpid[vm.slot.port.bridge], vm.slot.port.number
            )
            for vm in tenant.vms
        ),
        tree=tuple(
            TreeEdge(
                dpid[edge.lower.bridge],
                edge.lower.number,
                dpid[edge.upper.bridge],
                edge.upper.number,
            )
            for edge in tenant.edges
        ),
    )
