"""VMs as hosts: address, neighbours, frame size; whole plans as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Interface

from controller.flow_rules import BASE_FLOWS, Flow, move_steps, tenant_flows
from jobs.wire import SEGMENT_BYTES
from testbed.plan.batch_lines import (
    Address,
    BatchLine,
    BatchSection,
    LargestPacket,
    Neighbour,
    PrefixRoute,
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
from testbed.plan.path_delay import added_s, delay_text, path_delay
from testbed.plan.switch_parts import parts_text

INITIAL_WINDOW_SEGMENTS = 32
# A VM with a reservation: more than is ever in flight, so that neither slow
# start nor a switch that waits for a processor leaves its cap idle. Tokens that
# a cap does not use are lost.
WINDOW_S = 0.060
# Every limit on the way passes a packet on when it has it whole: with fewer of
# them on their way than that one waits for the next, and the cap is idle until
# the window has grown, by a segment a round trip.
PACKETS_ON_THE_WAY = 4
MIN_RECEIVE_BUFFER_BYTES = 2 * LONG_GSO_BYTES
# Of a receive buffer half is the window, and a window holds a round trip and
# the queues. Below the first of these, VMs have it anyway (VM_SYSCTLS).
BUFFER_SHARE = 4
RECEIVE_BUFFER_BYTES = 1 << 20
# What the kernel lets a receive buffer grow to by default.
MOST_BUFFER_BYTES = 6 << 20
# The kernel keeps these sizes as signed numbers of 32 bits.
LARGEST_SIZE_BYTES = (1 << 31) - 1


def initial_window_segments(
    rate_bps: int,
    packet_bytes: int,
    *,
    reserved: bool,
    round_trip_s: float = 0.0,
) -> int:
    """The window with which a VM's connections begin.

    It holds some of its largest packets, of ``packet_bytes``, and what its cap
    sends in :data:`WINDOW_S` and a round trip. A VM that competes with others
    begins with the least.
    """
    if not reserved:
        return INITIAL_WINDOW_SEGMENTS
    in_time_bytes = bytes_in(rate_bps, WINDOW_S + round_trip_s)
    in_packets_bytes = PACKETS_ON_THE_WAY * packet_bytes
    on_its_way = max(in_time_bytes, in_packets_bytes) // SEGMENT_BYTES
    return max(INITIAL_WINDOW_SEGMENTS, on_its_way)


def receive_buffer_bytes(tenant: TenantPlan) -> int:
    """The most that a connection of a borrowing tenant may have on its way.

    0: the kernel's own. While a VM may send more than its guarantee, TCP fills
    the queues behind which that is kept. If they drop, the guarantee goes into
    finding out what to send again: a transfer of 5 s took 5 % longer with 70 to
    200 packets sent again. So all connections of a link have room in its queue.
    Less would leave it idle when the switch waits for a processor.
    """
    if not (tenant.lent_bps and tenant.link_bps):
        return 0
    narrowest_bps = min(link.narrower_bps for link in tenant.edges)
    # The hose of a link is min(X, N-X)·B: its VMs on the smaller side.
    fewer = max(bps // tenant.rate_bps for _, bps in tenant.link_bps)
    # Each VM on one side may have a connection to each on the other.
    connections = fewer * (len(tenant.vms) - fewer)
    on_the_way = bytes_in(narrowest_bps, path_delay(tenant).round_trip_s)
    queue_bytes = port_queue_bytes(narrowest_bps)
    # Delayed packets are in no queue: there is that much more room.
    share_bytes = (queue_bytes + on_the_way) // connections
    share_bytes = min(share_bytes, LARGEST_SIZE_BYTES)
    return max(MIN_RECEIVE_BUFFER_BYTES, share_bytes)


def tenant_sysctls(tenant: TenantPlan) -> tuple[tuple[str, str], ...]:
    """Settings in every VM of a tenant that are not those of all VMs."""
    most_bytes = receive_buffer_bytes(tenant)
    # tcp(7): the least, what a connection begins with, and what its buffer
    # may grow to.
    if most_bytes:
        return (("net.ipv4.tcp_rmem", f"4096 {most_bytes} {most_bytes}"),)
    round_trip_s = path_delay(tenant).round_trip_s
    if not tenant.link_bps or round_trip_s == 0.0:
        return ()
    on_the_way = bytes_in(tenant.rate_bps, WINDOW_S + round_trip_s)
    buffer_bytes = min(BUFFER_SHARE * on_the_way, LARGEST_SIZE_BYTES)
    if buffer_bytes <= RECEIVE_BUFFER_BYTES:
        return ()
    most_bytes = max(MOST_BUFFER_BYTES, buffer_bytes)
    return (
        ("net.ipv4.tcp_rmem", f"4096 {buffer_bytes} {most_bytes}"),
        ("net.ipv4.tcp_wmem", f"4096 16384 {most_bytes}"),
    )


def first_window(tenant: TenantPlan) -> int:
    """The first window of a tenant's connections, in segments."""
    return initial_window_segments(
        tenant.rate_bps,
        largest_packet_bytes(tenant),
        reserved=bool(tenant.link_bps),
        round_trip_s=path_delay(tenant).round_trip_s,
    )


def transfer_added_s(tenant: TenantPlan) -> tuple[float, float]:
    """By how much its links' delay lets a transfer end after its estimate.

    At least, and at most; of the wire's time.
    """
    window_bytes = first_window(tenant) * SEGMENT_BYTES
    return added_s(tenant.rate_bps, path_delay(tenant), window_bytes)


def tenant_hosts(tenant: TenantPlan) -> tuple[BatchSection, ...]:
    """Configuration of the tenant's VMs in order, each knowing all the others.

    A VM's cap is known from the first moment, so there is nothing to find out
    slowly: with the kernel's initial window of ten segments the cap idles for
    the first round trips, 0.5 % of a transfer of 4 s. The route to the tenant's
    other VMs carries a larger one. It is in a section of its own: where the
    address is refused, another's route stays.
    """
    all_neighbours = [
        BatchLine("replace", Neighbour(vm.ip, vm.slot.mac))
        for vm in tenant.vms
    ]
    packet = LargestPacket(largest_packet_bytes(tenant))
    packet_line = BatchLine("change", packet)
    addresses = [vm.interface(tenant.prefix) for vm in tenant.vms]
    sections = []
    for i, vm in enumerate(tenant.vms):
        device = (packet_line, BatchLine("add", Address(addresses[i])))
        routes = _routes(tenant, addresses, addresses[i])
        neighbours = [*all_neighbours[:i], *all_neighbours[i + 1 :]]
        sections.append(BatchSection(vm.slot.netns, device))
        sections.append(BatchSection(vm.slot.netns, (*routes, *neighbours)))
    return tuple(sections)


def _routes(
    tenant: TenantPlan,
    addresses: Sequence[IPv4Interface],
    own_address: IPv4Interface,
) -> list[BatchLine]:
    """Routes of a VM to the networks of all addresses of its tenant."""
    window = first_window(tenant)
    # A topology may give its hosts addresses of several networks.
    networks = dict.fromkeys(address.network for address in addresses)
    routes = []
    for network in networks:
        route = PrefixRoute(own_address, window, to=network)
        routes.append(BatchLine("replace", route))
    return routes


def packet_changes(
    old: TenantPlan, new: TenantPlan
) -> tuple[BatchSection, ...]:
    """The VMs' largest packets at a new rate, for connections made from now on."""
    change = BatchLine(
        "change",
        LargestPacket(largest_packet_bytes(new)),
        before=LargestPacket(largest_packet_bytes(old)),
    )
    return tuple(BatchSection(vm.slot.netns, (change,)) for vm in new.vms)


# ---------------------------------------------------------------------------------------- text


def tenant_text(
    network: NetworkPlan, tenant: TenantPlan, controller: object = None
) -> str:
    """The tc text, host configuration and flows of one tenant, as installed.

    ``controller``: a person's, whose flows are its own.
    """
    flows: Mapping[int, tuple[Flow, ...]] = {}
    if not tenant.unconnected:
        flows = tenant_flows(controller_tenant(network, tenant))
    sysctls = ""
    for key, value in tenant_sysctls(tenant):
        sysctls += f"{key} = {value}\n"
    if sysctls:
        sysctls = f"# VMs (sysctl -p)\n{sysctls}"
    delays = delay_text(
        path_delay(tenant),
        transfer_added_s(tenant),
        first_window(tenant) * SEGMENT_BYTES,
    )
    return (
        f"{delays}"
        f"# limits (tc -batch)\n{batch_text(tenant_limits(network, tenant))}"
        f"# hosts (ip -batch)\n{batch_text(tenant_hosts(tenant))}"
        f"{sysctls}"
        f"{flows_text(network, flows, controller)}"
    )


def reroot_text(
    network: NetworkPlan,
    old: TenantPlan,
    new: TenantPlan,
    controller: object = None,
) -> str:
    """A tenant's move to another tree, in its order: limits, flows, limits."""
    made, gone = reroot_lines(network, old, new)
    steps = move_steps(
        tenant_flows(controller_tenant(network, old)),
        tenant_flows(controller_tenant(network, new)),
    )
    text = f"# new limits (tc -batch)\n{batch_text(made)}"
    for title, step in zip(
        ("new", "turned", "removed"), steps, strict=True
    ):
        flows = {
            dpid: tuple(change.flow for change in changes)
            for dpid, changes in step.items()
        }
        step_text = flows_text(network, flows, controller).removeprefix(
            "# "
        )
        text += f"# {title} {step_text}"
    return f"{text}# limits to be removed (tc -batch)\n{batch_text(gone)}"


def network_text(network: NetworkPlan, controller: object = None) -> str:
    """The network before any tenant: switch parts, link limits, base flows."""
    flows = {
        switch.dpid: BASE_FLOWS for switch in controller_switches(network)
    }
    return (
        f"{parts_text(network)}"
        f"# limits (tc -batch)\n{batch_text(network_limits(network))}"
        f"{flows_text(network, flows, controller)}"
    )


def flows_text(
    network: NetworkPlan,
    flows: Mapping[int, tuple[Flow, ...]],
    controller: object = None,
) -> str:
    """Flows under their switch's name, or whose they are."""
    if controller is not None:
        return f"# flows: those of {controller}\n"
    text = "# flows (ovs-ofctl add-flow)\n"
    for bridge in network.bridges:
        of_bridge = flows.get(bridge.dpid, ())
        if of_bridge:
            text += f"# {bridge.name}\n"
        for flow in of_bridge:
            text += f"{flow.text()}\n"
    return text
