"""Bandwidth limits of every link, tenant and VM as lines of tc batches. Pure.

- A *link* (each direction, on the port that sends): an HTB root, one class
  with the link's capacity, and below it a small default class. HTB sends a
  packet without a class unshaped and counts it only in
  ``direct_packets_stat``, therefore the default class.
- A *tenant* on a directed link: one class of min(X, N-X)·B below the link's,
  found by the source prefix (hose model; Oktopus; DCloud, Section II).
- A *VM*: a send cap on its ``eth0``, in bytes and packets, and a receive cap on
  the switch's end.

Queues are limited in bytes: with segmentation offload one packet may be 64 kB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from jobs.wire import FRAME_BYTES
from testbed.plan.batch_lines import (
    BURST_S,
    VM_DEVICE,
    BatchLine,
    BatchSection,
    ByteFifo,
    HtbClass,
    HtbRoot,
    Netem,
    PrefixFilter,
    TcItem,
    bytes_in,
)
from testbed.plan.network_plan import (
    MIN_WIRE_BPS,
    NetworkPlan,
    Port,
    TenantPlan,
)
from topologies.datacentre import LinkQuality

MAX_GSO_BYTES = 65_536
LOW_RATE_GSO_BYTES = 16_384
LONG_GSO_BYTES = 32_768
# Six segments of 1,448 bytes, under one header of 66.
MIN_GSO_BYTES = 8_754
GSO_S = 0.005
PACKETS_OF_A_VM = 200

# Above all tenants' numbers (MAX_TENANT), which number their classes.
LINK_MINOR = 0xFFFF
DEFAULT_CLASS_MINOR = 0xFFFE
VM_MINOR = 1
PACKETS_MINOR = 2

# PS-P: the bytes that a class of weight 1 may send in its turn.
TURN_BYTES = 16_000
# The bucket of a class behind the VM's own cap. While the userspace switch, one
# thread, waits for a processor, the class sends nothing. The next class has the
# same rate: what the bucket does not make up for is lost for good.
CATCH_UP_S = 0.020
# The bucket of a reserved class or receive cap: as long as the switch may wait
# for a processor on a machine that does other things too. Arrears then pass at
# once, and none of their packets is dropped.
RESERVED_CATCH_UP_S = 0.060
# A packet costs the userspace switch the same whatever its size; over three
# bridges it carries some 16,000 a second. So a link's packets per second are
# limited like its bytes, and a VM gets the same share of each.
LINK_PACKETS_PER_S = 8_000
MIN_PACKETS_PER_S = 1_000
LEAST_PACKET_BYTES = 16_384
# Each packet counts as the largest that tc takes, whatever its size.
PACKET_MPU_BYTES = 65_535
VM_QUEUE_S = 0.040
MIN_VM_QUEUE_BYTES = 150_000
PORT_QUEUE_S = 0.030
# Nine packets of LONG_GSO_BYTES.
MIN_PORT_QUEUE_BYTES = 300_000
# The delay line of a link: more than tc's own default, as all must be in it.
LEAST_DELAYED_PACKETS = 2_000
DEFAULT_CLASS_SHARE = 1000
MIN_DEFAULT_CLASS_BPS = 64_000


def gso_bytes(rate_bps: int, volume_bytes: int = 0) -> int:
    """The largest packet a VM's TCP hands down: 5 ms of the rate, half a
    bucket.

    One 64 kB packet is 10 ms of 50 Mbit/s: it would sit in a switch port's
    short queue alone, and a bucket would let it pass on credit. At low rates it
    is up to a whole bucket or eleven segments: each packet causes one
    acknowledgement, which takes its 66 bytes from what the receiver may send
    (0.4 % of 16 kB, but 2.2 % of two segments). Six segments are the least (0.7
    %).

    What a switch of the userspace datapath can do is counted in packets. A VM
    that sends much (``volume_bytes``; 0: not known) sends larger ones: the last
    leaves in one piece, so that half a per cent of the volume is the most.
    """
    low_rate = min(LOW_RATE_GSO_BYTES, bytes_in(rate_bps, BURST_S))
    long_transfer = min(LONG_GSO_BYTES, volume_bytes // PACKETS_OF_A_VM)
    wanted = max(bytes_in(rate_bps, GSO_S), low_rate, long_transfer)
    return max(MIN_GSO_BYTES, min(MAX_GSO_BYTES, wanted))


def largest_packet_bytes(tenant: TenantPlan) -> int:
    """The largest packet of a tenant's VMs, as its TCP hands them down.

    A VM that borrows is to fill its server's link within that link's packets.
    """
    largest_bytes = gso_bytes(tenant.rate_bps, tenant.volume_bytes)
    if tenant.lent_bps:
        borrowing_bytes = min(LONG_GSO_BYTES, gso_bytes(tenant.lent_bps))
        largest_bytes = max(largest_bytes, borrowing_bytes)
    return largest_bytes


def vm_queue_bytes(rate_bps: int) -> int:
    """The queue at a VM's send cap: deep enough never to run dry.

    Its own TCP is limited there.
    """
    return max(MIN_VM_QUEUE_BYTES, bytes_in(rate_bps, VM_QUEUE_S))


def port_queue_bytes(rate_bps: int) -> int:
    """The queue of a switch port: short, all ports share one send buffer."""
    return max(MIN_PORT_QUEUE_BYTES, bytes_in(rate_bps, PORT_QUEUE_S))


def network_limits(
    network: NetworkPlan, *, borrows: bool = False
) -> tuple[BatchSection, ...]:
    """The capacity of every link in both directions, on the ports that send.

    ``borrows``: traffic without a reservation may borrow.
    """
    items: list[TcItem] = []
    for link in network.links:
        for port in (link.lower, link.upper):
            items += _port_limits(network, port, borrows=borrows)
    return (_added(None, items),)


def _port_limits(
    network: NetworkPlan, port: Port, *, borrows: bool
) -> list[TcItem]:
    dev = port.name
    capacity_bps = network.capacity_of_port[dev]
    quality = network.quality_of_port[dev]
    items: list[TcItem] = []
    if quality.needs_netem:
        # Packets enter the delay line first: HTB is its child then.
        items.append(delay_line(network, port, quality))
    items.append(HtbRoot(dev, DEFAULT_CLASS_MINOR, quality.needs_netem))
    items.append(_root_class(dev, LINK_MINOR, capacity_bps, CATCH_UP_S))
    items += _default_class(network, dev, borrows=borrows)
    return items


def delay_line(
    network: NetworkPlan, port: Port, quality: LinkQuality
) -> Netem:
    """The delay line of a link's port, with room for all that can be in it."""
    longest_s = quality.delay_s + quality.jitter_s
    # All that can come in while a packet is on its way: what a full line
    # drops would be a loss that no link has.
    bits = network.arriving_bps(port) * longest_s
    packets = math.ceil(bits / (8 * FRAME_BYTES))
    return Netem(
        port.name,
        limit_packets=max(LEAST_DELAYED_PACKETS, packets),
        delay_ns=round(quality.delay_s * 1e9),
        jitter_ns=round(quality.jitter_s * 1e9),
        loss_share=quality.loss_share,
    )


def _root_class(
    dev: str, minor: int, rate_bps: int, burst_s: float
) -> HtbClass:
    """The class of all that a device sends, with the rate as its ceiling."""
    return HtbClass(
        dev,
        parent_minor=0,
        minor=minor,
        rate_bps=rate_bps,
        ceil_bps=rate_bps,
        burst_s=burst_s,
    )


def _added(netns: str | None, items: list[TcItem]) -> BatchSection:
    return BatchSection(
        netns, tuple(BatchLine("add", item) for item in items)
    )


def shared_queue_bytes(
    network: NetworkPlan, dev: str, rate_bps: int
) -> int:
    """The queue of a port for traffic without a reservation.

    As many full frames as the topology wants; a VM's largest packet has room.
    """
    frames = network.quality_of_port[dev].queue_packets
    if frames == 0:
        return port_queue_bytes(rate_bps)
    return max(MAX_GSO_BYTES, frames * FRAME_BYTES)


def _default_class(
    network: NetworkPlan, dev: str, *, borrows: bool
) -> tuple[HtbClass, ByteFifo]:
    """The class of traffic without a reservation.

    It has a trickle, or, where it borrows, all that is left of the link.
    """
    capacity_bps = network.capacity_of_port[dev]
    rate_bps = max(
        MIN_DEFAULT_CLASS_BPS, capacity_bps // DEFAULT_CLASS_SHARE
    )
    ceil_bps = rate_bps
    if borrows:
        ceil_bps = max(capacity_bps, rate_bps)
    return (
        HtbClass(
            dev,
            parent_minor=LINK_MINOR,
            minor=DEFAULT_CLASS_MINOR,
            rate_bps=rate_bps,
            ceil_bps=ceil_bps,
        ),
        ByteFifo(
            dev,
            DEFAULT_CLASS_MINOR,
            shared_queue_bytes(network, dev, ceil_bps),
        ),
    )


def borrowing_lines(network: NetworkPlan) -> tuple[BatchSection, ...]:
    """Changes that let jobs without guarantees borrow.

    They share the default class of every link. Reservations come first: a class
    below its own rate is served before one that borrows.
    """
    lines = []
    for dev in network.capacity_of_port:
        before = _default_class(network, dev, borrows=False)
        after = _default_class(network, dev, borrows=True)
        lines.append(BatchLine("change", after[0], before=before[0]))
        lines.append(BatchLine("change", after[1], before=before[1]))
    return (BatchSection(None, tuple(lines)),)


def tenant_limits(
    network: NetworkPlan, tenant: TenantPlan
) -> tuple[BatchSection, ...]:
    """A tenant's classes on the directed links that it uses, and its VMs' caps.

    Nobody sends above the reservation, unless bandwidth is lent: a class may
    then use all that its link has left, and a VM all of its server's link. A
    tenant with ``weights`` reserves nothing and shares by them (PS-P).
    """
    send_cap = _send_cap(tenant.cap_bps, _vm_packets_per_s(network, tenant))
    sections = [_added(None, _on_switches(network, tenant))]
    for vm in tenant.vms:
        sections.append(_added(vm.slot.netns, send_cap))
    return tuple(sections)


def _vm_packets_per_s(network: NetworkPlan, tenant: TenantPlan) -> int:
    # Its own rate stands for the link of a server without one, as of a flat
    # data centre: no share can be above 1.
    uplinks_bps = [tenant.rate_bps]
    for vm in tenant.vms:
        link = network.uplink.get(vm.slot.port.bridge)
        if link is not None:
            uplinks_bps.append(link.narrower_bps)
    # Packets are the switch's and not the link's: of them a tenant that borrows
    # gets only what its TCP needs.
    return max(
        packets_per_s(tenant.rate_bps, max(uplinks_bps)),
        tenant.cap_bps // (8 * LEAST_PACKET_BYTES),
    )


def _on_switches(network: NetworkPlan, tenant: TenantPlan) -> list[TcItem]:
    """A tenant's limits on ports of switches: of each port one of a kind."""
    items: list[TcItem] = []
    minor = tenant.tenant_id
    catch_up_s = switch_catch_up_s(tenant)
    for tenant_class in _tenant_classes(network, tenant, catch_up_s):
        dev = tenant_class.dev
        items.append(tenant_class)
        queue_bytes = _class_queue_bytes(network, tenant, tenant_class)
        items.append(ByteFifo(dev, minor, queue_bytes))
        # A preference per tenant: it can be deleted without the filter's
        # handle.
        items.append(
            PrefixFilter(
                dev, preference=minor, source=tenant.prefix, minor=minor
            )
        )
    cap_bps = tenant.cap_bps
    for vm in tenant.vms:
        dev = vm.slot.port.name
        items.append(HtbRoot(dev, VM_MINOR))
        items.append(_root_class(dev, VM_MINOR, cap_bps, catch_up_s))
        items.append(ByteFifo(dev, VM_MINOR, port_queue_bytes(cap_bps)))
    return items


def _class_queue_bytes(
    network: NetworkPlan, tenant: TenantPlan, tenant_class: HtbClass
) -> int:
    queue_bytes = port_queue_bytes(tenant_class.ceil_bps)
    if tenant.weights:
        queue_bytes = shared_queue_bytes(
            network, tenant_class.dev, tenant_class.ceil_bps
        )
    if tenant.lent_bps:
        # What borrows is to fill the queue with payload alone: headers and
        # one more packet have room.
        queue_bytes = queue_bytes * 5 // 4
    return queue_bytes


def switch_catch_up_s(tenant: TenantPlan) -> float:
    """The bucket of a tenant's limits on switches, in s of their rate."""
    if not tenant.link_bps:
        return CATCH_UP_S
    return reserved_catch_up_s(tenant)


def reserved_catch_up_s(tenant: TenantPlan) -> float:
    """The bucket of a reserved tenant's classes and caps, in s of their rate.

    Of a tenant that borrows it is that of the link: arrears of several would be
    more than the link carries.
    """
    if tenant.lent_bps:
        return CATCH_UP_S
    # A bucket that does not hold a packet sends it on credit, and a late
    # one would be lost to its class.
    packet_s = 8 * largest_packet_bytes(tenant) / tenant.rate_bps
    return max(RESERVED_CATCH_UP_S, packet_s)


def _tenant_classes(
    network: NetworkPlan, tenant: TenantPlan, catch_up_s: float
) -> list[HtbClass]:
    """A class for each reservation, and for each weight.

    That of a weight reserves next to nothing and takes turns for what is left.
    """
    classes = []
    for directed, rate_bps in tenant.link_bps:
        ceil_bps = rate_bps
        if tenant.lent_bps:
            ceil_bps = network.directed_bps(directed)
        reserved = HtbClass(
            dev=network.sending_port(directed).name,
            parent_minor=LINK_MINOR,
            minor=tenant.tenant_id,
            rate_bps=rate_bps,
            ceil_bps=ceil_bps,
            burst_s=catch_up_s,
        )
        classes.append(reserved)
    for directed, weight in tenant.weights:
        # HTB serves classes that borrow in turns, each for its quantum: by
        # that they share in proportion to their weights.
        weighted = HtbClass(
            dev=network.sending_port(directed).name,
            parent_minor=LINK_MINOR,
            minor=tenant.tenant_id,
            rate_bps=MIN_WIRE_BPS,
            ceil_bps=network.directed_bps(directed),
            burst_s=CATCH_UP_S,
            quantum_bytes=weight * TURN_BYTES,
        )
        classes.append(weighted)
    return classes


def packets_per_s(rate_bps: int, uplink_bps: int) -> int:
    """Packets that a VM may send in a second.

    They are its share of those of a server's link, or what TCP needs.
    """
    share = LINK_PACKETS_PER_S * min(rate_bps, uplink_bps) // uplink_bps
    return max(
        MIN_PACKETS_PER_S, share, rate_bps // (8 * LEAST_PACKET_BYTES)
    )


def _send_cap(rate_bps: int, packets: int) -> list[TcItem]:
    """The VM's cap in bytes and packets.

    The cap in bytes is the ceiling of a class that borrows from one limited in
    packets. HTB asks no parent while a class is below its own rate: therefore
    that rate is the least there is.
    """
    packets_bps = packets * PACKET_MPU_BYTES * 8
    packets_class = HtbClass(
        VM_DEVICE,
        parent_minor=0,
        minor=PACKETS_MINOR,
        rate_bps=packets_bps,
        ceil_bps=packets_bps,
        mpu_bytes=PACKET_MPU_BYTES,
    )
    bytes_class = HtbClass(
        VM_DEVICE,
        parent_minor=PACKETS_MINOR,
        minor=VM_MINOR,
        rate_bps=MIN_WIRE_BPS,
        ceil_bps=rate_bps,
    )
    return [
        HtbRoot(VM_DEVICE, VM_MINOR),
        packets_class,
        bytes_class,
        ByteFifo(VM_DEVICE, VM_MINOR, vm_queue_bytes(rate_bps)),
    ]


def rerate_lines(
    network: NetworkPlan, old: TenantPlan, new: TenantPlan
) -> tuple[BatchSection, ...]:
    """Changes of classes and queues between two rates of a placed tenant.

    Only ``change``: deleting and adding a class would let the tenant send
    unlimited in between. Raises ValueError if the two differ in more than
    rates.
    """
    rerated = replace(old, rate_bps=new.rate_bps, link_bps=new.link_bps)
    links = [link for link, _ in old.link_bps]
    if rerated != new or links != [link for link, _ in new.link_bps]:
        raise ValueError(
            f"tenant {new.tenant_id}: not a change of rate alone"
        )
    return _changes(
        tenant_limits(network, old), tenant_limits(network, new)
    )


def capacity_lines(
    old: NetworkPlan,
    new: NetworkPlan,
    tenants: Sequence[tuple[TenantPlan, TenantPlan]],
    *,
    borrowing: bool,
) -> tuple[BatchSection, ...]:
    """Changes between two networks that differ in capacities of links alone.

    ``tenants``: before and after, as their limits too may follow from a link's
    capacity. ``borrowing``: traffic without a reservation may borrow.
    """
    before = [*network_limits(old, borrows=borrowing)]
    after = [*network_limits(new, borrows=borrowing)]
    for old_tenant, new_tenant in tenants:
        before += tenant_limits(old, old_tenant)
        after += tenant_limits(new, new_tenant)
    return _changes(before, after)


def _changes(
    old_limits: Sequence[BatchSection], new_limits: Sequence[BatchSection]
) -> tuple[BatchSection, ...]:
    """``change`` lines between two lists of the same classes and queues."""
    sections = []
    for before, after in zip(old_limits, new_limits, strict=True):
        changed = tuple(
            BatchLine("change", new.item, before=old.item)
            for old, new in zip(before.lines, after.lines, strict=True)
            if old != new
        )
        if changed:
            sections.append(BatchSection(after.netns, changed))
    return tuple(sections)


def reroot_lines(
    network: NetworkPlan, old: TenantPlan, new: TenantPlan
) -> tuple[tuple[BatchSection, ...], tuple[BatchSection, ...]]:
    """Limits of a tenant that moves to another tree, make before break.

    First the lines to be applied before its flows go there, for limits that are
    new or have another rate; second the removals to be applied after. VMs' caps
    stay.
    """
    before = _by_kind_and_device(_on_switches(network, old))
    after = _by_kind_and_device(_on_switches(network, new))
    made = []
    for key, item in after.items():
        if key not in before:
            made.append(BatchLine("add", item))
        elif before[key] != item:
            made.append(BatchLine("change", item, before=before[key]))
    gone = []
    for key, item in before.items():
        # A queue goes with its class.
        if key not in after and not isinstance(item, ByteFifo):
            gone.append(BatchLine("del", item))
    # The kernel refuses to delete a class that a filter points to.
    gone.sort(key=lambda line: not isinstance(line.item, PrefixFilter))
    return (BatchSection(None, tuple(made)),), (
        BatchSection(None, tuple(gone)),
    )


def _by_kind_and_device(
    items: list[TcItem],
) -> dict[tuple[type[TcItem], str], TcItem]:
    return {(type(item), item.dev): item for item in items}


def removal_lines(
    network: NetworkPlan, tenant: TenantPlan
) -> tuple[BatchSection, ...]:
    """Removal of :func:`tenant_limits`.

    Filters go before the classes they point to. With a root goes all that is on
    its device, with a class its queue.
    """
    sections = []
    for section in tenant_limits(network, tenant):
        filters: list[TcItem] = []
        classes: list[HtbClass] = []
        roots: dict[str, HtbRoot] = {}
        for line in section.lines:
            match line.item:
                case PrefixFilter() as tenant_filter:
                    filters.append(tenant_filter)
                case HtbClass() as limited_class:
                    classes.append(limited_class)
                case HtbRoot() as root:
                    roots[root.dev] = root
        # A VM's port is its tenant's alone and loses all with its root; a
        # link's root is of all tenants, and stays.
        below_no_root = [item for item in classes if item.dev not in roots]
        doomed = [*filters, *below_no_root, *roots.values()]
        lines = tuple(BatchLine("del", item) for item in doomed)
        sections.append(BatchSection(section.netns, lines))
    return tuple(sections)
