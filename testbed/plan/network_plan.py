"""The live network as values: bridges, ports, links, VM slots, named and numbered from a topology.

Pure. Every name fits an interface name (15 characters), every OpenFlow port number is fixed here,
so flows and tc text can be written before anything exists.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network
from itertools import count

from controller import values
from jobs.request import Enforcement, JobRequest
from testbed.embedding.placement import Placement, hose_bps, tree_of, vms_below
from testbed.errors import BadInput
from topologies.datacentre import DataCentre

TENANT_BITS = 10
# The least that tc can pace: a job without bandwidth still has a capped interface.
MIN_WIRE_BPS = 8_000
MAX_TENANT = (1 << 14) - 1
MAX_TENANT_VMS = (1 << TENANT_BITS) - 3


@dataclass(frozen=True)
class Port:
    """A port of a bridge: the interface's name and its OpenFlow number."""

    bridge: str
    name: str
    number: int


@dataclass(frozen=True)
class Bridge:
    """A switch, or a server's own switch (the hypervisor's)."""

    name: str
    node: int
    dpid: int
    role: values.Role


@dataclass(frozen=True)
class Link:
    """A cable: a veth pair whose ends are ports of two bridges. Capacity per direction."""

    lower: Port
    upper: Port
    capacity_bps: int


@dataclass(frozen=True)
class Slot:
    """A VM slot: a host namespace whose ``eth0`` is the other end of a server bridge's port."""

    server: int
    index: int
    port: Port
    mac: str

    @property
    def netns(self) -> str:
        """Named as the port."""
        return self.port.name


@dataclass(frozen=True)
class NetworkPlan:
    """Everything that exists while the network is up."""

    prefix: str
    bridges: tuple[Bridge, ...]
    links: tuple[Link, ...]
    slots: tuple[Slot, ...]

    @cached_property
    def bridge_of_node(self) -> dict[int, Bridge]:
        return {bridge.node: bridge for bridge in self.bridges}

    @cached_property
    def slots_of_server(self) -> dict[int, tuple[Slot, ...]]:
        by_server: dict[int, list[Slot]] = {}
        for slot in self.slots:
            by_server.setdefault(slot.server, []).append(slot)
        return {server: tuple(slots) for server, slots in by_server.items()}

    @cached_property
    def ports(self) -> tuple[Port, ...]:
        """Every port but the bridges' own: VM slots', then links', the lower end first."""
        ends = (port for link in self.links for port in (link.lower, link.upper))
        return (*(slot.port for slot in self.slots), *ends)

    @cached_property
    def ports_of_bridge(self) -> dict[str, list[Port]]:
        by_bridge: dict[str, list[Port]] = {bridge.name: [] for bridge in self.bridges}
        for port in self.ports:
            by_bridge[port.bridge].append(port)
        return by_bridge

    @cached_property
    def capacity_of_port(self) -> dict[str, int]:
        """The capacity that leaves by each end of each link, in bit/s, by the port's name."""
        return {end.name: k.capacity_bps for k in self.links for end in (k.lower, k.upper)}

    @cached_property
    def uplink_bps(self) -> dict[str, int]:
        """The capacity of each bridge's link upward, in bit/s."""
        return {link.lower.bridge: link.capacity_bps for link in self.links}

    def sending_port(self, directed_link: int) -> Port:
        """The port whose egress carries a directed link: where its limit is set."""
        link = self.links[directed_link // 2]
        return link.upper if directed_link % 2 else link.lower


@dataclass(frozen=True)
class TenantVm:
    """One VM of a tenant in its slot."""

    index: int
    ip: IPv4Address
    slot: Slot


@dataclass(frozen=True)
class TenantPlan:
    """A placed tenant on the live network. Rates are on the emulated wire, in bit/s.

    ``link_bps``: directed link -> the hose's reservation min(X, N-X)·B. ``edges``: the links of
    the pinned tree with VMs on both sides, by link number. ``weights``: directed link -> what a
    tenant without a reservation counts for there, where tenants count by weight (PS-P).
    ``volume_bytes``: payload that each VM is going to send; 0 where it is not known. ``lent_bps``:
    the most that a VM may send and receive where bandwidth is lent; 0: its rate.
    """

    tenant_id: int
    job_id: str
    prefix: IPv4Network
    vms: tuple[TenantVm, ...]
    rate_bps: int
    link_bps: tuple[tuple[int, int], ...]
    edges: tuple[Link, ...]
    weights: tuple[tuple[int, int], ...] = ()
    volume_bytes: int = 0
    lent_bps: int = 0

    @property
    def cap_bps(self) -> int:
        """The most that each VM may send, and receive."""
        return max(self.rate_bps, self.lent_bps)

    @property
    def unconnected(self) -> bool:
        """True if its VMs are on servers with no network between them: it gets no flows."""
        return not self.edges and len({vm.slot.server for vm in self.vms}) > 1


def _letter(level: int, top: int) -> str:
    if level == top:
        return "s" if top == 0 else "c"
    return "sra"[level] if level < 3 else f"l{level}"


_ROLES: dict[str, values.Role] = {"s": "server", "r": "rack", "c": "core"}


def scaled_bps(rate_bps: int, scale_rate: float) -> int:
    """A rate of the experiment on the emulated wire; a VM that asks for none gets a trickle."""
    return max(MIN_WIRE_BPS, round(rate_bps * scale_rate))


def check_prefix(prefix: str, option: str) -> None:
    """Raises BadInput, which names the option, for what no name on the machine can begin with."""
    if not re.fullmatch(r"[a-z][a-z0-9]{0,3}", prefix):
        raise BadInput(f"{option} {prefix}: 1 to 4 lower-case letters or digits, a letter first")


def check_reachable(datacentre: DataCentre, jobs: Iterable[JobRequest]) -> None:
    """Raises BadInput where VMs are to talk and no network is between them."""
    if datacentre.kind != "flat":
        return
    for job in jobs:
        if job.n_vms > 1 and job.demand.network:
            raise BadInput(
                f"job {job.id} moves data between VMs, and a {datacentre.kind} topology has no "
                "network to emulate",
                "run it with testbed simulate, or give it links: kind: tree",
            )


def network_plan(
    datacentre: DataCentre,
    prefix: str = "hn",
    scale_rate: float = 1.0,
    namespaces_per_server: Sequence[int] | None = None,
) -> NetworkPlan:
    """Names and numbers of the live network.

    ``namespaces_per_server``: where there are to be more VM namespaces than slots.

    Nodes of a flat data centre stand alone: its one switch is notional (:func:`check_reachable`).
    Raises BadInput when a name would not fit.
    """
    serial: defaultdict[object, Iterator[int]] = defaultdict(count)
    bridges = []
    for node in range(datacentre.n_servers if datacentre.kind == "flat" else datacentre.n_nodes):
        letter = _letter(int(datacentre.level[node]), datacentre.n_levels - 1)
        name = f"{prefix}-{letter}{next(serial[letter])}"
        bridges.append(Bridge(name, node, node + 1, _ROLES.get(letter, "aggregation")))

    def take(node: int, kind: str) -> Port:
        name = bridges[node].name
        return Port(name, f"{name}{kind}{next(serial[node, kind])}", next(serial[node]) + 1)

    slots: list[Slot] = []
    for server, n_slots in enumerate(namespaces_per_server or datacentre.slots.tolist()):
        for index in range(n_slots):
            mac = f"02:48:4e:{(len(slots) + 1).to_bytes(3).hex(':')}"
            slots.append(Slot(server, index, take(server, "v"), mac))
    links = []
    for link in range(datacentre.n_links):
        low = take(int(datacentre.link_lower[link]), "-u")
        high = take(int(datacentre.link_upper[link]), "-d")
        capacity = scaled_bps(int(datacentre.link_capacity_bps[link]), scale_rate)
        links.append(Link(low, high, capacity))
    plan = NetworkPlan(prefix, tuple(bridges), tuple(links), tuple(slots))
    names = [bridge.name for bridge in plan.bridges] + [port.name for port in plan.ports]
    too_long = next((name for name in names if len(name) > 15), None)
    if too_long is not None:
        raise BadInput(
            f"the topology is too large for interface names: {too_long!r} has over 15 characters",
            "use a shorter prefix or a smaller topology",
        )
    return plan


def tenant_prefix(tenant_id: int) -> IPv4Network:
    """10.0.0.0/8 cut into /22s, one a tenant."""
    if not 1 <= tenant_id <= MAX_TENANT:
        raise ValueError(f"tenant id {tenant_id} outside 1 .. {MAX_TENANT}")
    return IPv4Network(((10 << 24) + (tenant_id << TENANT_BITS), 32 - TENANT_BITS))


def tenant_plan(
    datacentre: DataCentre,
    network: NetworkPlan,
    placement: Placement,
    slots: tuple[Slot, ...],
    tenant_id: int,
    job_id: str,
    rate_bps: int,
) -> TenantPlan:
    """A placement in given free slots (in order of the placement's servers) as a tenant.

    ``rate_bps`` is already on the emulated wire.
    """
    wanted = [server for server, count in placement.vms_on for _ in range(count)]
    if [slot.server for slot in slots] != wanted:
        raise ValueError(f"job {job_id}: slots do not match the placement")
    if len(slots) > MAX_TENANT_VMS:
        raise BadInput(
            f"job {job_id}: {len(slots)} VMs, a live tenant has at most {MAX_TENANT_VMS}"
        )
    prefix = tenant_prefix(tenant_id)
    vms = tuple(TenantVm(i, prefix[i + 1], slot) for i, slot in enumerate(slots))
    edges = tuple(network.links[link] for link in _vms_below_links(datacentre, placement))
    need = hose_bps(tree_of(datacentre, placement.root), placement, rate_bps)
    return TenantPlan(tenant_id, job_id, prefix, vms, rate_bps, tuple(sorted(need.items())), edges)


def rerooted(
    datacentre: DataCentre, network: NetworkPlan, tenant: TenantPlan, placement: Placement
) -> TenantPlan:
    """A tenant on the tree of another root: its VMs and their slots, addresses and rate stay."""
    edges = tuple(network.links[link] for link in _vms_below_links(datacentre, placement))
    need = hose_bps(tree_of(datacentre, placement.root), placement, tenant.rate_bps)
    link_bps = tuple(sorted(need.items())) if tenant.link_bps else ()
    weights = proximate_weights(datacentre, placement) if tenant.weights else ()
    return replace(tenant, edges=edges, link_bps=link_bps, weights=weights)


def enforced(network: NetworkPlan, tenant: TenantPlan, enforcement: Enforcement) -> TenantPlan:
    """A reserved tenant under an enforcement: VMs that borrow have their server's link, and under
    ``none`` no link has a reservation of theirs.
    """
    if enforcement == "strict":
        return tenant
    lent_bps = max(network.uplink_bps.get(vm.slot.port.bridge, 0) for vm in tenant.vms)
    link_bps = tenant.link_bps if enforcement == "work-conserving" else ()
    return replace(tenant, lent_bps=lent_bps, link_bps=link_bps)


def _vms_below_links(datacentre: DataCentre, placement: Placement) -> dict[int, int]:
    """Links of a placement's tree with VMs on both sides, from its leaves up -> VMs below."""
    tree = tree_of(datacentre, placement.root)
    below = {int(tree.uplink[node]): x for node, x in sorted(vms_below(tree, placement).items())}
    return {link: x for link, x in below.items() if link >= 0 and 0 < x < placement.n_vms}


def proximate_weights(datacentre: DataCentre, placement: Placement) -> tuple[tuple[int, int], ...]:
    """Weights of a tenant on the links of its tree under PS-P: its VMs below each.

    W = α·W_X/N_X with X the side that is nearer, every VM's W being 1 and shared by all it talks to
    through the link (FairCloud; JSA, Section V.A).
    """
    below = _vms_below_links(datacentre, placement)
    return tuple((2 * link + up, x) for link, x in sorted(below.items()) for up in (0, 1))


def controller_switches(network: NetworkPlan) -> tuple[values.Switch, ...]:
    """Every bridge with its ports' numbers."""
    ports = network.ports_of_bridge
    return tuple(
        values.Switch(b.dpid, b.name, b.role, tuple(port.number for port in ports[b.name]))
        for b in network.bridges
    )


def controller_tenant(network: NetworkPlan, tenant: TenantPlan) -> values.Tenant:
    """A placed tenant with the tree it is pinned to."""
    dpid = {bridge.name: bridge.dpid for bridge in network.bridges}
    return values.Tenant(
        id=tenant.tenant_id,
        name=tenant.job_id,
        prefix=str(tenant.prefix),
        vms=tuple(
            values.TenantVm(
                vm.index, str(vm.ip), vm.slot.mac, dpid[vm.slot.port.bridge], vm.slot.port.number
            )
            for vm in tenant.vms
        ),
        tree=tuple(
            values.TreeEdge(
                dpid[edge.lower.bridge],
                edge.lower.number,
                dpid[edge.upper.bridge],
                edge.upper.number,
            )
            for edge in tenant.edges
        ),
    )
