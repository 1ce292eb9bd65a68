"""VMs as hosts (address, permanent neighbours, frame size), and whole plans as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Interface
from pathlib import Path

from controller.flow_rules import BASE_FLOWS, Flow, move_steps, tenant_flows
from jobs.wire import SEGMENT_BYTES
from testbed.plan.batch_lines import (
    Address,
    BatchLine,
    LargestPacket,
    Neighbour,
    PrefixRoute,
    Section,
    batch_text,
    bytes_in,
)
from testbed.plan.limits import (
    LONG_GSO_BYTES,
    largest_packet_bytes,
    network_limits,
    port_queue_bytes,
    reroot_lines,
    tenant_limits,
)
from testbed.plan.network_plan import (
    NetworkPlan,
    TenantPlan,
    controller_switches,
    controller_tenant,
)
from testbed.plan.switch_parts import parts_text

INITIAL_WINDOW_SEGMENTS = 32
# A VM with a reservation: more than is ever in flight, so that neither slow start nor a switch that
# waits for a processor leaves its cap idle. Tokens that a cap does not use are lost.
WINDOW_S = 0.060
MIN_RECEIVE_BUFFER_BYTES = 2 * LONG_GSO_BYTES


def _largest_packet(tenant: TenantPlan) -> LargestPacket:
    return LargestPacket(largest_packet_bytes(tenant))


def initial_window_segments(rate_bps: int, *, reserved: bool) -> int:
    """The window that a VM's connections begin with. Who competes begins with the least."""
    on_its_way = bytes_in(rate_bps, WINDOW_S) // SEGMENT_BYTES if reserved else 0
    return max(INITIAL_WINDOW_SEGMENTS, on_its_way)


def receive_buffer_bytes(tenant: TenantPlan) -> int:
    """The most that each connection of a tenant that borrows may have on its way; 0: as always.

    While a VM may send more than its guarantee, TCP fills the queues behind which that is kept. If
    they drop, the guarantee goes into finding out what to send again: a transfer of 5 s took 5 %
    longer with 70 to 200 packets sent again. So all connections of a link have room in its queue.
    Less would leave it idle when the switch waits for a processor.
    """
    if not (tenant.lent_bps and tenant.link_bps):
        return 0
    n_vms = len(tenant.vms)
    fewer = max(bps // tenant.rate_bps for _, bps in tenant.link_bps)
    room_bytes = port_queue_bytes(min(link.capacity_bps for link in tenant.edges))
    return max(MIN_RECEIVE_BUFFER_BYTES, room_bytes // (fewer * (n_vms - fewer)))


def tenant_sysctls(tenant: TenantPlan) -> tuple[tuple[str, str], ...]:
    """Settings in every VM of a tenant that are not those of all VMs."""
    most_bytes = receive_buffer_bytes(tenant)
    return (("net.ipv4.tcp_rmem", f"4096 {most_bytes} {most_bytes}"),) if most_bytes else ()


def tenant_hosts(tenant: TenantPlan) -> tuple[Section, ...]:
    """Configuration of the tenant's VMs in order, each knowing all the others.

    A VM's cap is known from the first moment, so there is nothing to find out slowly: with the
    kernel's initial window of ten segments the cap idles for the first round trips, 0.5 % of a
    transfer of 4 s. The route to the tenant's other VMs carries a larger one. It is in a section
    of its own: where the address is refused, another's route stays.
    """
    everyone = [BatchLine("replace", Neighbour(vm.ip, vm.slot.mac)) for vm in tenant.vms]
    window = initial_window_segments(tenant.rate_bps, reserved=bool(tenant.link_bps))
    packet = BatchLine("change", _largest_packet(tenant))
    sections = []
    for i, vm in enumerate(tenant.vms):
        address = IPv4Interface((vm.ip, tenant.prefix.prefixlen))
        route = BatchLine("replace", PrefixRoute(address, window))
        sections += [
            Section(vm.slot.netns, (packet, BatchLine("add", Address(address)))),
            Section(vm.slot.netns, (route, *everyone[:i], *everyone[i + 1 :])),
        ]
    return tuple(sections)


def packet_changes(old: TenantPlan, new: TenantPlan) -> tuple[Section, ...]:
    """The VMs' largest packets at a new rate, for connections made from now on."""
    was, now = map(_largest_packet, (old, new))
    return tuple(Section(vm.slot.netns, (BatchLine("change", now, was),)) for vm in new.vms)


# ---------------------------------------------------------------------------------------- text


def tenant_text(network: NetworkPlan, tenant: TenantPlan, app: Path | None = None) -> str:
    """The tc text, host configuration and flows of one tenant, as installed.

    ``app``: the file of a person's controller, whose flows are its own.
    """
    flows: Mapping[int, tuple[Flow, ...]] = {}
    if not tenant.unconnected:
        flows = tenant_flows(controller_tenant(network, tenant))
    sysctls = "".join(f"{key} = {value}\n" for key, value in tenant_sysctls(tenant))
    own = f"# VMs (sysctl -p)\n{sysctls}" if sysctls else ""
    return (
        f"# limits (tc -batch)\n{batch_text(tenant_limits(network, tenant))}"
        f"# hosts (ip -batch)\n{batch_text(tenant_hosts(tenant))}"
        f"{own}"
        f"{flows_text(network, flows, app)}"
    )


def reroot_text(
    network: NetworkPlan, old: TenantPlan, new: TenantPlan, app: Path | None = None
) -> str:
    """A tenant's way to another tree, as it is done: limits, flows in their steps, limits."""
    made, gone = reroot_lines(network, old, new)
    steps = move_steps(*(tenant_flows(controller_tenant(network, each)) for each in (old, new)))
    text = f"# new limits (tc -batch)\n{batch_text(made)}"
    for title, step in zip(("new", "turned", "removed"), steps, strict=True):
        flows = {dpid: tuple(each.flow for each in changes) for dpid, changes in step.items()}
        text += f"# {title} {flows_text(network, flows, app).removeprefix('# ')}"
    return f"{text}# limits to be removed (tc -batch)\n{batch_text(gone)}"


def network_text(network: NetworkPlan, app: Path | None = None) -> str:
    """Text of the network before any tenant: the switch's parts, link limits, base flows."""
    flows = {switch.dpid: BASE_FLOWS for switch in controller_switches(network)}
    return (
        f"{parts_text(network)}"
        f"# limits (tc -batch)\n{batch_text(network_limits(network))}"
        f"{flows_text(network, flows, app)}"
    )


def flows_text(
    network: NetworkPlan, flows: Mapping[int, tuple[Flow, ...]], app: Path | None = None
) -> str:
    """Flows under their switch's name, switches in order; whose they are if not ours."""
    if app is not None:
        return f"# flows: those of {app}\n"
    out = ["# flows (ovs-ofctl add-flow)"]
    for bridge in network.bridges:
        if flows.get(bridge.dpid):
            out.append(f"# {bridge.name}")
            out.extend(flow.text() for flow in flows[bridge.dpid])
    return "".join(f"{line}\n" for line in out)
