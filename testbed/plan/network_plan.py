"""The live network as values: bridges, ports, links and VM slots of a topology.

Pure. Every name fits an interface name (15 characters), every OpenFlow port
number is fixed here, so flows and tc text can be written before anything
exists.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from controller import values
from jobs.request import Enforcement, JobRequest
from testbed.embedding.placement import (
    Placement,
    hose_bps,
    tree_of,
    vms_below,
)
from testbed.errors import BadInput
from topologies.datacentre import (
    PLAIN,
    DataCentre,
    HostNames,
    LinkQuality,
    QualityPair,
    down,
    up,
)

TENANT_BITS = 10
# The least that tc can pace: a job without bandwidth still has a capped
# interface.
MIN_WIRE_BPS = 8_000
# 10.0.0.0/8 leaves 24 bits: 14 are a tenant's number, TENANT_BITS a VM's in
# it.
MAX_TENANT = (1 << 14) - 1
MAX_TENANT_VMS = (1 << TENANT_BITS) - 3
ANY_ADDRESS = IPv4Network("0.0.0.0/0")
# IFNAMSIZ of the kernel, without the end of the string.
LONGEST_NAME = 15


@dataclass(frozen=True)
class Port:
    """A port of a bridge: the interface's name and its OpenFlow number."""

    bridge: str
    name: str
    number: int


@dataclass(frozen=True)
class Bridge:
    """A switch, or a server's own switch (the hypervisor's).

    ``label``: a switch's name in a topology that names its hosts.
    """

    name: str
    node: int
    dpid: int
    role: values.Role
    label: str = ""


@dataclass(frozen=True)
class Link:
    """A cable: a veth pair whose ends are ports of two bridges.

    Its capacities are those from the lower end to the upper one, and back;
    ``qualities`` are of what leaves by the lower port, and by the upper one.
    """

    lower: Port
    upper: Port
    up_bps: int
    down_bps: int
    qualities: QualityPair = (PLAIN, PLAIN)

    @property
    def narrower_bps(self) -> int:
        """The smaller of its capacities."""
        return min(self.up_bps, self.down_bps)


@dataclass(frozen=True)
class Slot:
    """A VM slot: a host namespace.

    Its ``eth0`` is the other end of a port of its server's bridge. ``host`` and
    ``address`` (with its prefix length): where the topology names them.
    """

    server: int
    index: int
    port: Port
    mac: str
    host: str = ""
    address: str = ""

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
        """Ports of VM slots, then of links, a link's lower end first."""
        ports = [slot.port for slot in self.slots]
        for link in self.links:
            ports += [link.lower, link.upper]
        return tuple(ports)

    @cached_property
    def ports_of_bridge(self) -> dict[str, list[Port]]:
        by_bridge: dict[str, list[Port]] = {
            bridge.name: [] for bridge in self.bridges
        }
        for port in self.ports:
            by_bridge[port.bridge].append(port)
        return by_bridge

    @cached_property
    def capacity_of_port(self) -> dict[str, int]:
        """The capacity of what each port sends to, in bit/s, by port name."""
        capacities = {}
        for link in self.links:
            capacities[link.lower.name] = link.up_bps
            capacities[link.upper.name] = link.down_bps
        return capacities

    @cached_property
    def quality_of_port(self) -> dict[str, LinkQuality]:
        """The quality of what leaves by each port of a link, by port name."""
        qualities = {}
        for link in self.links:
            upward, downward = link.qualities
            qualities[link.lower.name] = upward
            qualities[link.upper.name] = downward
        return qualities

    @property
    def needs_netem(self) -> bool:
        """True if a link delays or loses packets."""
        return any(
            quality.needs_netem for quality in self.quality_of_port.values()
        )

    def arriving_bps(self, port: Port) -> int:
        """The most that can arrive at a bridge to leave by one of its ports.

        VMs send at most what their server's link carries.
        """
        ports = self.ports_of_bridge[port.bridge]
        capacities = [self.capacity_of_port.get(p.name, 0) for p in ports]
        # Every other port may send to this one at once.
        return max(capacities) * (len(ports) - 1)

    @cached_property
    def uplink(self) -> dict[str, Link]:
        """Each bridge's link to what is above."""
        return {link.lower.bridge: link for link in self.links}

    def with_capacity(
        self, number: int, up_bps: int, down_bps: int
    ) -> NetworkPlan:
        """The plan with other capacities of one link, in bit/s of the wire."""
        # A copy has none of the cached properties, which depend on the
        # links.
        links = list(self.links)
        links[number] = replace(
            links[number], up_bps=up_bps, down_bps=down_bps
        )
        return replace(self, links=tuple(links))

    def directed_bps(self, directed_link: int) -> int:
        """The capacity of a directed link, in bit/s of the wire."""
        return self.capacity_of_port[self.sending_port(directed_link).name]

    def sending_port(self, directed_link: int) -> Port:
        """The port whose egress carries a directed link, and so its limit."""
        link = self.links[directed_link // 2]
        # Of the two directions of a link the even one is upward.
        if directed_link % 2 == 0:
            return link.lower
        return link.upper

    def receiving_port(self, directed_link: int) -> Port:
        """The port at the other end of a directed link."""
        # The link's other direction leaves by the port at which this one
        # arrives.
        return self.sending_port(directed_link ^ 1)


@dataclass(frozen=True)
class TenantVm:
    """One VM of a tenant in its slot."""

    index: int
    ip: IPv4Address
    slot: Slot

    def interface(self, prefix: IPv4Network) -> IPv4Interface:
        """Its address with the length of its network, of its tenant's prefix or
        as the topology has it.
        """
        named = self.slot.address
        if named and IPv4Interface(named).ip == self.ip:
            return IPv4Interface(named)
        # Beside hosts with addresses of the topology; a VM without one has
        # the length that tenants have.
        if prefix == ANY_ADDRESS:
            return IPv4Interface((self.ip, 32 - TENANT_BITS))
        return IPv4Interface((self.ip, prefix.prefixlen))


@dataclass(frozen=True)
class TenantPlan:
    """A placed tenant on the live network. Rates are on the emulated wire, in
    bit/s.

    ``link_bps``: directed link -> the hose's reservation min(X, N-X)·B.
    ``edges``: the links of the pinned tree with VMs on both sides, by link
    number. ``weights``: directed link -> what a tenant without a reservation
    counts for there, where tenants count by weight (PS-P). ``volume_bytes``:
    payload that each VM is going to send; 0 where it is not known.
    ``lent_bps``: the most that a VM may send and receive where bandwidth is
    lent; 0: its rate.
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
        """True for VMs on servers without a network between them.

        Such a tenant gets no flows.
        """
        return (
            not self.edges and len({vm.slot.server for vm in self.vms}) > 1
        )


def _letter(level: int, top: int) -> str:
    """The part of a bridge's name that tells its level: s, r, a, c; l3, l4, …"""
    if level == 0:
        return "s"
    if level == top:
        return "c"
    if level < 3:
        return "sra"[level]
    return f"l{level}"


_ROLES: dict[str, values.Role] = {"s": "server", "r": "rack", "c": "core"}


def scaled_bps(rate_bps: int, scale_rate: float) -> int:
    """A rate of the experiment on the emulated wire, at least a trickle."""
    return max(MIN_WIRE_BPS, round(rate_bps * scale_rate))


def check_prefix(prefix: str, option: str) -> None:
    """Raises BadInput for a prefix with which no interface's name can begin."""
    if not re.fullmatch(r"[a-z][a-z0-9]{0,3}", prefix):
        raise BadInput(
            f"{option} {prefix}: 1 to 4 lower-case letters or digits, a letter first"
        )


def check_reachable(
    datacentre: DataCentre, jobs: Iterable[JobRequest]
) -> None:
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
    scale_time: float = 1.0,
) -> NetworkPlan:
    """Names and numbers of the live network.

    ``namespaces_per_server``: where there are to be more VM namespaces than
    slots. ``scale_time`` divides the links' delays, as every time.

    Nodes of a flat data centre stand alone: its one switch is notional
    (:func:`check_reachable`). Raises BadInput when a name would not fit.
    """
    bridges = _bridges(datacentre, prefix)
    numbering = _PortNumbering(bridges)
    if not namespaces_per_server:
        namespaces_per_server = datacentre.slots.tolist()
    # VMs' ports before links': so a server's VMs have its first numbers.
    slots = _slots(datacentre, numbering, namespaces_per_server)
    links = []
    for number in range(datacentre.n_links):
        lower = numbering.new_port(int(datacentre.link_lower[number]), "-u")
        upper = numbering.new_port(int(datacentre.link_upper[number]), "-d")
        up_bps, down_bps = (
            scaled_bps(int(datacentre.directed_capacity_bps[k]), scale_rate)
            for k in (up(number), down(number))
        )
        link = Link(lower, upper, up_bps, down_bps)
        if datacentre.qualities:
            upward = datacentre.qualities[up(number)].scaled(scale_time)
            downward = datacentre.qualities[down(number)].scaled(scale_time)
            link = replace(link, qualities=(upward, downward))
        links.append(link)
    plan = NetworkPlan(prefix, tuple(bridges), tuple(links), tuple(slots))
    _check_name_lengths(plan)
    return plan


def _slots(
    datacentre: DataCentre,
    numbering: _PortNumbering,
    namespaces_per_server: Sequence[int],
) -> list[Slot]:
    """The VM slots of all servers, in order."""
    slots: list[Slot] = []
    hosts = _named_hosts(datacentre)
    for server, n_slots in enumerate(namespaces_per_server):
        for index in range(n_slots):
            port = numbering.new_port(server, "v")
            named = hosts.get((server, index), HostNames(""))
            # A locally administered address; its last three bytes number slots.
            serial = (len(slots) + 1).to_bytes(3).hex(":")
            slot = Slot(
                server,
                index,
                port,
                mac=named.mac or f"02:48:4e:{serial}",
                host=named.name,
                address=named.address,
            )
            slots.append(slot)
    return slots


def _named_hosts(
    datacentre: DataCentre,
) -> dict[tuple[int, int], HostNames]:
    """(server, index of its slot) -> the topology's names, if it has any."""
    named = iter(datacentre.hosts)
    hosts = {}
    for server, n_slots in enumerate(datacentre.slots.tolist()):
        for index, host in zip(range(n_slots), named, strict=False):
            hosts[server, index] = host
    return hosts


def _bridges(datacentre: DataCentre, prefix: str) -> list[Bridge]:
    """A bridge for each node; of a flat data centre for its servers alone."""
    n_bridges = datacentre.n_nodes
    if datacentre.kind == "flat":
        n_bridges = datacentre.n_servers
    count_of_letter: Counter[str] = Counter()
    bridges = []
    for node in range(n_bridges):
        letter = _letter(
            int(datacentre.level[node]), datacentre.n_levels - 1
        )
        label = ""
        if datacentre.hosts and node >= datacentre.n_servers:
            label = datacentre.names[node]
        bridge = Bridge(
            name=f"{prefix}-{letter}{count_of_letter[letter]}",
            node=node,
            # A datapath id of 0 is no valid one.
            dpid=node + 1,
            role=_ROLES.get(letter, "aggregation"),
            label=label,
        )
        bridges.append(bridge)
        count_of_letter[letter] += 1
    return bridges


class _PortNumbering:
    """Names and OpenFlow numbers of new ports: both count up on each bridge."""

    def __init__(self, bridges: Sequence[Bridge]) -> None:
        self._bridges = bridges
        self._count_of_kind: Counter[tuple[int, str]] = Counter()
        self._count_of_node: Counter[int] = Counter()

    def new_port(self, node: int, kind: str) -> Port:
        bridge = self._bridges[node].name
        name = f"{bridge}{kind}{self._count_of_kind[node, kind]}"
        self._count_of_kind[node, kind] += 1
        self._count_of_node[node] += 1
        return Port(bridge, name, self._count_of_node[node])


def _check_name_lengths(plan: NetworkPlan) -> None:
    names = [bridge.name for bridge in plan.bridges]
    names += [port.name for port in plan.ports]
    for name in names:
        if len(name) > LONGEST_NAME:
            raise BadInput(
                f"the topology is too large for interface names: {name!r} has"
                f" over {LONGEST_NAME} characters",
                "use a shorter prefix or a smaller topology",
            )


def tenant_prefix(tenant_id: int) -> IPv4Network:
    """The tenant's own of the /22s into which 10.0.0.0/8 is cut."""
    if not 1 <= tenant_id <= MAX_TENANT:
        raise ValueError(f"tenant id {tenant_id} outside 1 .. {MAX_TENANT}")
    # The filters on links and the controller's flows go by this prefix.
    address = (10 << 24) + (tenant_id << TENANT_BITS)
    return IPv4Network((address, 32 - TENANT_BITS))


def with_topology_addresses(tenant: TenantPlan) -> TenantPlan:
    """A tenant alone on its network, with the addresses that the topology names.

    They may be any, and so its prefix holds all; without such addresses it is
    as before.
    """
    vms = []
    for vm in tenant.vms:
        named = vm
        if vm.slot.address:
            named = replace(vm, ip=IPv4Interface(vm.slot.address).ip)
        vms.append(named)
    if tuple(vms) == tenant.vms:
        return tenant
    return replace(tenant, prefix=ANY_ADDRESS, vms=tuple(vms))


def tenant_plan(
    datacentre: DataCentre,
    network: NetworkPlan,
    placement: Placement,
    slots: tuple[Slot, ...],
    tenant_id: int,
    job_id: str,
    rate_bps: int,
) -> TenantPlan:
    """A placement as a tenant in free ``slots``, in order of their servers.

    ``rate_bps`` is already on the emulated wire. Raises BadInput for a tenant
    of too many VMs.
    """
    servers: list[int] = []
    for server, n_vms in placement.vms_on:
        servers += [server] * n_vms
    if [slot.server for slot in slots] != servers:
        raise ValueError(f"job {job_id}: slots do not match the placement")
    if len(slots) > MAX_TENANT_VMS:
        raise BadInput(
            f"job {job_id}: {len(slots)} VMs, a live tenant has at most {MAX_TENANT_VMS}"
        )
    prefix = tenant_prefix(tenant_id)
    # The prefix's first address is the network's own.
    vms = tuple(
        TenantVm(index, ip=prefix[index + 1], slot=slot)
        for index, slot in enumerate(slots)
    )
    # Whole multiples of the rate on the wire: a change of the rate divides
    # by it.
    need = hose_bps(
        tree_of(datacentre, placement.root), placement, rate_bps
    )
    return TenantPlan(
        tenant_id=tenant_id,
        job_id=job_id,
        prefix=prefix,
        vms=vms,
        rate_bps=rate_bps,
        link_bps=tuple(sorted(need.items())),
        edges=_edges(datacentre, network, placement),
    )


def _edges(
    datacentre: DataCentre, network: NetworkPlan, placement: Placement
) -> tuple[Link, ...]:
    """Links of the placement's tree with VMs on both sides."""
    below = vms_below_links(datacentre, placement)
    return tuple(network.links[number] for number in below)


def rerooted(
    datacentre: DataCentre,
    network: NetworkPlan,
    tenant: TenantPlan,
    placement: Placement,
) -> TenantPlan:
    """A tenant on the tree of another root.

    Its VMs and their slots, addresses and rate stay.
    """
    moved = replace(tenant, edges=_edges(datacentre, network, placement))
    # What a hose reserves depends on the VMs below each link, and another
    # root has other links.
    if tenant.link_bps:
        tree = tree_of(datacentre, placement.root)
        need = hose_bps(tree, placement, tenant.rate_bps)
        moved = replace(moved, link_bps=tuple(sorted(need.items())))
    if tenant.weights:
        weights = proximate_weights(datacentre, placement)
        moved = replace(moved, weights=weights)
    return moved


def on_network(network: NetworkPlan, tenant: TenantPlan) -> TenantPlan:
    """A placed tenant on the same network with other capacities of its links."""
    links = {link.lower.name: link for link in network.links}
    edges = tuple(links[edge.lower.name] for edge in tenant.edges)
    moved = replace(tenant, edges=edges)
    if tenant.lent_bps:
        moved = replace(
            moved, lent_bps=_largest_uplink_bps(network, tenant)
        )
    return moved


def _largest_uplink_bps(network: NetworkPlan, tenant: TenantPlan) -> int:
    """The most that a server's link carries in a direction; where it carries
    less in the other, the link's own limit is below the VMs' caps.
    """
    largest_bps = 0
    for vm in tenant.vms:
        link = network.uplink.get(vm.slot.port.bridge)
        if link is not None:
            largest_bps = max(largest_bps, link.up_bps, link.down_bps)
    return largest_bps


def enforced(
    network: NetworkPlan, tenant: TenantPlan, enforcement: Enforcement
) -> TenantPlan:
    """A reserved tenant under an enforcement.

    VMs that borrow may use their server's whole link; under ``none`` no link
    has a reservation of theirs.
    """
    if enforcement == "strict":
        return tenant
    lent_bps = _largest_uplink_bps(network, tenant)
    borrowing = replace(tenant, lent_bps=lent_bps)
    if enforcement == "work-conserving":
        return borrowing
    return replace(borrowing, link_bps=())


def vms_below_links(
    datacentre: DataCentre, placement: Placement
) -> dict[int, int]:
    """VMs below each link of a placement's tree that has VMs on both sides.

    From the tree's leaves up.
    """
    tree = tree_of(datacentre, placement.root)
    below = {}
    for node, n_below in sorted(vms_below(tree, placement).items()):
        link = int(tree.uplink[node])
        # The root has no link upward: -1.
        if link >= 0 and 0 < n_below < placement.n_vms:
            below[link] = n_below
    return below


def proximate_weights(
    datacentre: DataCentre, placement: Placement
) -> tuple[tuple[int, int], ...]:
    """Weights of a tenant on its tree's directed links under PS-P.

    On a link it is the number of its VMs below:
    W = α·W_X/N_X with X the side that is nearer, every VM's W being 1 and
    shared by all it talks to through the link (FairCloud; JSA, Section V.A).
    """
    below = vms_below_links(datacentre, placement)
    weights = []
    for link, n_below in sorted(below.items()):
        weights += [(2 * link, n_below), (2 * link + 1, n_below)]
    return tuple(weights)


def controller_switches(network: NetworkPlan) -> tuple[values.Switch, ...]:
    """Every bridge with its ports' numbers."""
    switches = []
    for bridge in network.bridges:
        ports = network.ports_of_bridge[bridge.name]
        numbers = tuple(port.number for port in ports)
        switches.append(
            values.Switch(bridge.dpid, bridge.name, bridge.role, numbers)
        )
    return tuple(switches)


def controller_tenant(
    network: NetworkPlan, tenant: TenantPlan
) -> values.Tenant:
    """A placed tenant, with its tree, in the controller's own values."""
    dpid = {bridge.name: bridge.dpid for bridge in network.bridges}
    vms = []
    for vm in tenant.vms:
        attached = values.AttachedVm(
            index=vm.index,
            ip=str(vm.ip),
            mac=vm.slot.mac,
            dpid=dpid[vm.slot.port.bridge],
            port=vm.slot.port.number,
        )
        vms.append(attached)
    tree = []
    for edge in tenant.edges:
        tree_edge = values.TreeEdge(
            dpid[edge.lower.bridge],
            edge.lower.number,
            dpid[edge.upper.bridge],
            edge.upper.number,
        )
        tree.append(tree_edge)
    return values.Tenant(
        id=tenant.tenant_id,
        name=tenant.job_id,
        prefix=str(tenant.prefix),
        vms=tuple(vms),
        tree=tuple(tree),
    )
