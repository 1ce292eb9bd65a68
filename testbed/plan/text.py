"""A plan as the exact text that is installed: tc, ip and flow lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from controller.flows import Flow, base_flows, tenant_flows
from testbed.plan.fabric import controller_switches, controller_tenant
from testbed.plan.hosts import hosts_text, tenant_hosts
from testbed.plan.limits import limits_text, network_limits, tenant_limits
from testbed.plan.network import NetworkPlan, TenantPlan


def tenant_text(network: NetworkPlan, tenant: TenantPlan) -> str:
    """The tc text, host configuration and flows of one tenant, as installed."""
    flows: Mapping[int, tuple[Flow, ...]] = {}
    if not tenant.apart:
        flows = tenant_flows(controller_tenant(network, tenant))
    return (
        f"# limits (tc -batch)\n{limits_text(tenant_limits(network, tenant))}"
        f"# hosts (ip -batch)\n{hosts_text(tenant_hosts(tenant))}"
        f"# flows (ovs-ofctl add-flow)\n{flows_text(network, flows)}"
    )


def network_text(network: NetworkPlan) -> str:
    """What the network gets before any tenant: link limits and base flows."""
    flows = {switch.dpid: base_flows(switch) for switch in controller_switches(network)}
    return (
        f"# limits (tc -batch)\n{limits_text(network_limits(network))}"
        f"# flows (ovs-ofctl add-flow)\n{flows_text(network, flows)}"
    )


def flows_text(network: NetworkPlan, flows: Mapping[int, tuple[Flow, ...]]) -> str:
    """Flows under their switch's name, switches in order."""
    out = []
    for bridge in network.bridges:
        if flows.get(bridge.dpid):
            out.append(f"# {bridge.name}")
            out.extend(flow.text() for flow in flows[bridge.dpid])
    return "".join(f"{line}\n" for line in out)
