"""VMs as hosts (address, permanent neighbours, frame size), and whole plans as text. Pure.

The text of a value is the exact line of an ``ip -batch`` file for the VM's namespace. The /22 of
the address brings the route to every VM of the tenant and to nobody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from typing import Literal

from controller.flow_rules import Flow, base_flows, tenant_flows
from jobs.wire import SEGMENT_BYTES
from testbed.plan.limits import BURST_S, bytes_in, limits_text, network_limits, tenant_limits
from testbed.plan.network_plan import (
    NetworkPlan,
    TenantPlan,
    controller_switches,
    controller_tenant,
)

VM_DEVICE = "eth0"
MAX_GSO_BYTES = 65_536
LOW_RATE_GSO_BYTES = 16_384
MIN_GSO_BYTES = 8_754
GSO_S = 0.005
INITIAL_WINDOW_SEGMENTS = 32
# A VM with a reservation: more than is ever in flight, so that neither slow start nor a switch that
# waits for a processor leaves its cap idle. Tokens that a cap does not use are lost.
WINDOW_S = 0.060


def gso_bytes(rate_bps: int) -> int:
    """The largest packet a VM's TCP hands down: five milliseconds of the rate, half a bucket.

    One 64 kB packet is 10 ms of 50 Mbit/s: it would sit in a switch port's short queue alone, and
    a bucket would let it pass on credit. At low rates up to a whole bucket or eleven segments: each
    packet is answered by one acknowledgement, which takes its 66 bytes from what the receiver may
    send (0.4 % of 16 kB, but 2.2 % of two segments). Six segments are the least (0.7 %).
    """
    usual = max(bytes_in(rate_bps, GSO_S), min(LOW_RATE_GSO_BYTES, bytes_in(rate_bps, BURST_S)))
    return max(MIN_GSO_BYTES, min(MAX_GSO_BYTES, usual))


def initial_window_segments(rate_bps: int, *, reserved: bool) -> int:
    """The window that a VM's connections begin with. Who competes begins with the least."""
    on_its_way = bytes_in(rate_bps, WINDOW_S) // SEGMENT_BYTES if reserved else 0
    return max(INITIAL_WINDOW_SEGMENTS, on_its_way)


@dataclass(frozen=True)
class Neighbour:
    """A permanent neighbour entry: no ARP ever leaves a VM."""

    ip: IPv4Address
    mac: str

    def text(self, verb: Literal["add", "delete"]) -> str:
        if verb == "delete":
            return f"neighbour delete {self.ip} dev {VM_DEVICE}"
        return f"neighbour add {self.ip} lladdr {self.mac} dev {VM_DEVICE} nud permanent"


@dataclass(frozen=True)
class VmHost:
    """Configuration of one VM's namespace.

    A VM's cap is known from the first moment, so there is nothing to find out slowly: with the
    kernel's initial window of ten segments the cap idles for the first round trips, 0.5 % of a
    transfer of 4 s. The route to the tenant's other VMs carries a larger one.
    """

    netns: str
    address: IPv4Interface
    neighbours: tuple[Neighbour, ...]
    gso_bytes: int
    window_segments: int = INITIAL_WINDOW_SEGMENTS

    def lines(self) -> tuple[str, ...]:
        address = self.address
        route = (
            f"route replace {address.network} dev {VM_DEVICE} proto kernel scope link"
            f" src {address.ip} initcwnd {self.window_segments}"
        )
        return (
            f"link set dev {VM_DEVICE} gso_max_size {self.gso_bytes}",
            f"address add {address} dev {VM_DEVICE}",
            route,
            *(neighbour.text("add") for neighbour in self.neighbours),
        )

    def removal_lines(self) -> tuple[str, ...]:
        removals = (neighbour.text("delete") for neighbour in self.neighbours)
        return (*removals, f"address delete {self.address} dev {VM_DEVICE}")


def tenant_hosts(tenant: TenantPlan) -> tuple[VmHost, ...]:
    """The tenant's VMs in order, each knowing all the others."""
    everyone = [Neighbour(vm.ip, vm.slot.mac) for vm in tenant.vms]
    window = initial_window_segments(tenant.rate_bps, reserved=bool(tenant.link_bps))
    return tuple(
        VmHost(
            vm.slot.netns,
            IPv4Interface((vm.ip, tenant.prefix.prefixlen)),
            tuple(everyone[:i] + everyone[i + 1 :]),
            gso_bytes(tenant.rate_bps),
            window,
        )
        for i, vm in enumerate(tenant.vms)
    )


def hosts_text(hosts: Iterable[VmHost]) -> str:
    """All VMs as ``ip -batch`` text, each under its namespace's name."""
    out = []
    for host in hosts:
        out.append(f"# netns {host.netns}")
        out.extend(host.lines())
    return "".join(f"{line}\n" for line in out)


# ---------------------------------------------------------------------------------------- text


def tenant_text(network: NetworkPlan, tenant: TenantPlan) -> str:
    """The tc text, host configuration and flows of one tenant, as installed."""
    flows: Mapping[int, tuple[Flow, ...]] = {}
    if not tenant.unconnected:
        flows = tenant_flows(controller_tenant(network, tenant))
    return (
        f"# limits (tc -batch)\n{limits_text(tenant_limits(network, tenant))}"
        f"# hosts (ip -batch)\n{hosts_text(tenant_hosts(tenant))}"
        f"# flows (ovs-ofctl add-flow)\n{flows_text(network, flows)}"
    )


def network_text(network: NetworkPlan) -> str:
    """Text of the network before any tenant: link limits and base flows."""
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
