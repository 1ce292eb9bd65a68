"""Bandwidth limits of every link, tenant and VM as lines of tc batches. Pure.

- A *link* (each direction, on the port that sends): an HTB root, one class with the link's
  capacity, and below it a small default class. HTB sends a packet without a class unshaped and
  counts it only in ``direct_packets_stat``, therefore the default class.
- A *tenant* on a directed link: one class of min(X, N-X)·B below the link's, found by the source
  prefix (hose model; Oktopus; DCloud, Section II).
- A *VM*: a send cap on its ``eth0``, in bytes and packets, and a receive cap on the switch's end.

Queues are limited in bytes: with segmentation offload one packet may be 64 kB.
"""

from __future__ import annotations

from dataclasses import replace

from testbed.plan.batch_lines import (
    BURST_S,
    VM_DEVICE,
    BatchLine,
    ByteFifo,
    HtbClass,
    HtbRoot,
    PrefixFilter,
    Section,
    TcItem,
    bytes_in,
)
from testbed.plan.network_plan import MIN_WIRE_BPS, NetworkPlan, TenantPlan

MAX_GSO_BYTES = 65_536
LOW_RATE_GSO_BYTES = 16_384
LONG_GSO_BYTES = 32_768
MIN_GSO_BYTES = 8_754
GSO_S = 0.005
PACKETS_OF_A_VM = 200

LINK_MINOR = 0xFFFF
DEFAULT_CLASS_MINOR = 0xFFFE
VM_MINOR = 1
PACKETS_MINOR = 2

# PS-P: the bytes that a class of weight 1 may send in its turn, and the most that HTB accepts.
TURN_BYTES = 16_000
MAX_QUANTUM_BYTES = 200_000
# The bucket of a class behind the VM's own cap. The userspace switch is one thread: while it waits
# for a processor the class sends nothing, and as the next class has the same rate, what is not made
# up for at once is never made up for.
CATCH_UP_S = 0.020
# A reserved class or receive cap: as long as the switch waits for a processor on a machine that
# does other things too, or a packet takes: one that comes late is not the less for it. Arrears then
# pass at once, and no packet of them is dropped.
RESERVED_CATCH_UP_S = 0.060
# A packet costs the userspace switch the same whatever its size; over three bridges it carries some
# 16,000 a second. So a link has packets as it has bytes, and a VM the same share of both.
LINK_PACKETS_PER_S = 8_000
MIN_PACKETS_PER_S = 1_000
LEAST_PACKET_BYTES = 16_384
PACKET_MPU_BYTES = 65_535  # each counts as the most that tc takes: its own size is nothing
VM_QUEUE_S = 0.040
MIN_VM_QUEUE_BYTES = 150_000
PORT_QUEUE_S = 0.030
MIN_PORT_QUEUE_BYTES = 300_000
DEFAULT_CLASS_SHARE = 1000
MIN_DEFAULT_CLASS_BPS = 64_000


def gso_bytes(rate_bps: int, volume_bytes: int = 0) -> int:
    """The largest packet a VM's TCP hands down: five milliseconds of the rate, half a bucket.

    One 64 kB packet is 10 ms of 50 Mbit/s: it would sit in a switch port's short queue alone, and
    a bucket would let it pass on credit. At low rates up to a whole bucket or eleven segments: each
    packet is answered by one acknowledgement, which takes its 66 bytes from what the receiver may
    send (0.4 % of 16 kB, but 2.2 % of two segments). Six segments are the least (0.7 %).

    What a switch of the userspace datapath can do is counted in packets. A VM that sends much
    (``volume_bytes``; 0: not known) sends larger ones: the last leaves in one piece, so that half a
    per cent of the volume is the most.
    """
    usual = max(bytes_in(rate_bps, GSO_S), min(LOW_RATE_GSO_BYTES, bytes_in(rate_bps, BURST_S)))
    long = min(LONG_GSO_BYTES, volume_bytes // PACKETS_OF_A_VM)
    return max(MIN_GSO_BYTES, min(MAX_GSO_BYTES, max(usual, long)))


def largest_packet_bytes(tenant: TenantPlan) -> int:
    """The largest packet of a tenant's VMs, as its TCP hands them down.

    A VM that borrows is to fill its server's link within that link's packets.
    """
    borrowing = min(LONG_GSO_BYTES, gso_bytes(tenant.lent_bps)) if tenant.lent_bps else 0
    return max(borrowing, gso_bytes(tenant.rate_bps, tenant.volume_bytes))


def vm_queue_bytes(rate_bps: int) -> int:
    """The queue at a VM's send cap, where its own TCP is limited: deep enough never to run dry."""
    return max(MIN_VM_QUEUE_BYTES, bytes_in(rate_bps, VM_QUEUE_S))


def port_queue_bytes(rate_bps: int) -> int:
    """The queue of a switch port: short, since all ports share the switch's send buffer."""
    return max(MIN_PORT_QUEUE_BYTES, bytes_in(rate_bps, PORT_QUEUE_S))


def network_limits(network: NetworkPlan) -> tuple[Section, ...]:
    """The capacity of every link in both directions, on the ports that send."""
    items: list[TcItem] = []
    for dev, capacity_bps in network.capacity_of_port.items():
        items += [
            HtbRoot(dev, DEFAULT_CLASS_MINOR),
            HtbClass(dev, 0, LINK_MINOR, capacity_bps, capacity_bps, CATCH_UP_S),
            *_default_class(dev, capacity_bps, borrows=False),
        ]
    return (_added(None, items),)


def _added(netns: str | None, items: list[TcItem]) -> Section:
    return Section(netns, tuple(BatchLine("add", item) for item in items))


def _default_class(dev: str, capacity_bps: int, *, borrows: bool) -> tuple[HtbClass, ByteFifo]:
    """The class of traffic without a reservation: a trickle, or all that is left of the link."""
    rate_bps = max(MIN_DEFAULT_CLASS_BPS, capacity_bps // DEFAULT_CLASS_SHARE)
    ceil_bps = max(capacity_bps, rate_bps) if borrows else rate_bps
    return (
        HtbClass(dev, LINK_MINOR, DEFAULT_CLASS_MINOR, rate_bps, ceil_bps),
        ByteFifo(dev, DEFAULT_CLASS_MINOR, port_queue_bytes(ceil_bps)),
    )


def borrowing_lines(network: NetworkPlan) -> tuple[Section, ...]:
    """Let jobs without guarantees borrow: they share the default class of every link.

    Reservations come first: a class below its own rate is served before one that borrows.
    """
    lines = []
    for dev, capacity_bps in network.capacity_of_port.items():
        was = _default_class(dev, capacity_bps, borrows=False)
        now = _default_class(dev, capacity_bps, borrows=True)
        lines += [BatchLine("change", now[0], was[0]), BatchLine("change", now[1], was[1])]
    return (Section(None, tuple(lines)),)


def tenant_limits(network: NetworkPlan, tenant: TenantPlan) -> tuple[Section, ...]:
    """A tenant's classes on every directed link it has a reservation on, and its VMs' caps.

    Nobody sends above the reservation, unless bandwidth is lent: a class may then use all that its
    link has left, and a VM all of its server's link. A tenant with ``weights`` reserves nothing and
    shares by them (PS-P).
    """
    cap_bps, rate_bps, uplinks_bps = tenant.cap_bps, tenant.rate_bps, network.uplink_bps
    uplink_bps = max(uplinks_bps.get(vm.slot.port.bridge, rate_bps) for vm in tenant.vms)
    # Packets are the switch's and not the link's: of them only what a TCP that borrows needs.
    packets = max(packets_per_s(rate_bps, uplink_bps), cap_bps // (8 * LEAST_PACKET_BYTES))
    inside = _send_cap(cap_bps, packets)
    host = _added(None, _on_switches(network, tenant))
    return (host, *(_added(vm.slot.netns, inside) for vm in tenant.vms))


def _on_switches(network: NetworkPlan, tenant: TenantPlan) -> list[TcItem]:
    """A tenant's limits on ports of switches: of each port one of a kind."""
    host: list[TcItem] = []
    catch_up_s = reserved_catch_up_s(tenant) if tenant.link_bps else CATCH_UP_S
    for tenant_class in _tenant_classes(network, tenant, catch_up_s):
        dev, minor = tenant_class.dev, tenant.tenant_id
        host.append(tenant_class)
        queue_bytes = port_queue_bytes(tenant_class.ceil_bps)
        # What borrows is to fill it with payload alone: headers and one more packet have room.
        host.append(ByteFifo(dev, minor, queue_bytes * 5 // 4 if tenant.lent_bps else queue_bytes))
        host.append(PrefixFilter(dev, minor, tenant.prefix, minor))
    cap_bps = tenant.cap_bps
    for dev in (vm.slot.port.name for vm in tenant.vms):
        host.append(HtbRoot(dev, VM_MINOR))
        host.append(HtbClass(dev, 0, VM_MINOR, cap_bps, cap_bps, catch_up_s))
        host.append(ByteFifo(dev, VM_MINOR, port_queue_bytes(cap_bps)))
    return host


def reserved_catch_up_s(tenant: TenantPlan) -> float:
    """The bucket of a reserved tenant's classes and receive caps, in s of their rate.

    Of one that borrows it is that of the link: arrears of several would be more than it carries.
    """
    if tenant.lent_bps:
        return CATCH_UP_S
    return max(RESERVED_CATCH_UP_S, 8 * largest_packet_bytes(tenant) / tenant.rate_bps)


def _tenant_classes(network: NetworkPlan, tenant: TenantPlan, catch_up_s: float) -> list[HtbClass]:
    """A class for each reservation; for a weight one that reserves next to nothing and takes turns
    for what is left.
    """
    minor, classes = tenant.tenant_id, []
    for directed, bps in tenant.link_bps:
        dev = network.sending_port(directed).name
        ceil_bps = network.links[directed // 2].capacity_bps if tenant.lent_bps else bps
        classes.append(HtbClass(dev, LINK_MINOR, minor, bps, ceil_bps, catch_up_s))
    for directed, weight in tenant.weights:
        dev = network.sending_port(directed).name
        ceil_bps = network.links[directed // 2].capacity_bps
        turn_bytes = min(MAX_QUANTUM_BYTES, weight * TURN_BYTES)
        classes.append(
            HtbClass(dev, LINK_MINOR, minor, MIN_WIRE_BPS, ceil_bps, CATCH_UP_S, turn_bytes)
        )
    return classes


def packets_per_s(rate_bps: int, uplink_bps: int) -> int:
    """Packets that a VM may send: its share of those of a server's link, or what TCP needs."""
    share = LINK_PACKETS_PER_S * min(rate_bps, uplink_bps) // uplink_bps
    return max(MIN_PACKETS_PER_S, share, rate_bps // (8 * LEAST_PACKET_BYTES))


def _send_cap(rate_bps: int, packets: int) -> list[TcItem]:
    """The VM's cap in bytes as the ceiling of a class that borrows from one limited in packets.

    HTB asks no parent while a class is below its own rate, therefore the least there is.
    """
    bps = packets * PACKET_MPU_BYTES * 8
    return [
        HtbRoot(VM_DEVICE, VM_MINOR),
        HtbClass(VM_DEVICE, 0, PACKETS_MINOR, bps, bps, mpu_bytes=PACKET_MPU_BYTES),
        HtbClass(VM_DEVICE, PACKETS_MINOR, VM_MINOR, MIN_WIRE_BPS, rate_bps),
        ByteFifo(VM_DEVICE, VM_MINOR, vm_queue_bytes(rate_bps)),
    ]


def rerate_lines(network: NetworkPlan, old: TenantPlan, new: TenantPlan) -> tuple[Section, ...]:
    """Changes between two rates of one placed tenant: classes, and queues where they differ.

    Only ``change``: deleting and adding a class would let the tenant send unlimited in between.
    Raises ValueError if the two differ in more than rates.
    """
    if replace(old, rate_bps=0, link_bps=()) != replace(new, rate_bps=0, link_bps=()):
        raise ValueError(f"tenant {new.tenant_id}: not a change of rate alone")
    sections = []
    pairs = zip(tenant_limits(network, old), tenant_limits(network, new), strict=True)
    for was, now in pairs:
        lines = tuple(
            BatchLine("change", b.item, a.item)
            for a, b in zip(was.lines, now.lines, strict=True)
            if a != b
        )
        if lines:
            sections.append(Section(now.netns, lines))
    return tuple(sections)


def reroot_lines(
    network: NetworkPlan, old: TenantPlan, new: TenantPlan
) -> tuple[tuple[Section, ...], tuple[Section, ...]]:
    """Limits of a tenant on another tree, make before break: what is new or has another rate, to
    be set before its flows go there, and what is to be removed after. VMs' caps stay.
    """
    was, now = (_named(_on_switches(network, tenant)) for tenant in (old, new))
    made = [
        BatchLine("change", item, was[name]) if name in was else BatchLine("add", item)
        for name, item in now.items()
        if was.get(name) != item
    ]
    gone = [x for name, x in was.items() if name not in now and not isinstance(x, ByteFifo)]
    gone.sort(key=lambda item: not isinstance(item, PrefixFilter))
    removed = tuple(BatchLine("del", item) for item in gone)
    return (Section(None, tuple(made)),), (Section(None, removed),)


def _named(items: list[TcItem]) -> dict[tuple[type[TcItem], str], TcItem]:
    return {(type(item), item.dev): item for item in items}


def removal_lines(network: NetworkPlan, tenant: TenantPlan) -> tuple[Section, ...]:
    """Removal of :func:`tenant_limits`, filters before the classes they point to.

    With a root goes all that is on its device, with a class its queue.
    """
    sections = []
    for section in tenant_limits(network, tenant):
        items = [line.item for line in section.lines]
        roots = {item.dev: item for item in items if isinstance(item, HtbRoot)}
        filters = [item for item in items if isinstance(item, PrefixFilter)]
        classes = [i for i in items if isinstance(i, HtbClass) and i.dev not in roots]
        doomed: list[TcItem] = [*filters, *classes, *roots.values()]
        sections.append(Section(section.netns, tuple(BatchLine("del", item) for item in doomed)))
    return tuple(sections)
