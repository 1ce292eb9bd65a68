"""Bandwidth limits of every link, tenant and VM as tc values and text.

Pure. The text of a value is the exact line of a ``tc -batch`` file; the live backend executes
these values and nothing else, so what is stored, shown and tested is what the kernel gets.

- A *link* (each direction, on the port that sends): an HTB root, one class with the link's
  capacity, and below it a small default class. HTB sends a packet without a class unshaped and
  counts it only in ``direct_packets_stat``, therefore the default class.
- A *tenant* on a directed link: one class of min(X, N-X)·B below the link's, found by the source
  prefix (hose model; Oktopus; DCloud, Section II).
- A *VM*: a send cap on ``eth0`` in its namespace and a receive cap on the switch's end.

Queues are limited in bytes: with segmentation offload one packet may be 64 kB.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Literal

from jobs.wire import FRAME_BYTES
from testbed.plan.network_plan import MIN_WIRE_BPS, NetworkPlan, TenantPlan

Mode = Literal["hard", "work-conserving"]
Verb = Literal["add", "change", "del"]

LINK_MINOR = 0xFFFF
DEFAULT_CLASS_MINOR = 0xFFFE
VM_MINOR = 1

# Bytes that a class may send in its turn when it borrows. HTB's default, a tenth of the rate, is
# more than the 200 kB it accepts without a warning or, at a few Mbit/s, less than a TSO packet.
QUANTUM_BYTES = 60_000
# PS-P: the bytes that a class of weight 1 may send in its turn, and the most that HTB accepts.
TURN_BYTES = 16_000
MAX_QUANTUM_BYTES = 200_000
MIN_BURST_BYTES = 2 * FRAME_BYTES
# The bucket of a VM's own cap. HTB earns tokens by the clock but sends by a timer, which a busy
# machine fires late: tokens beyond the bucket are lost. A deeper bucket is a head start (10 ms of
# rate are 0.3 % of a transfer of 3 s).
BURST_S = 0.010
# The bucket of a class behind the VM's own cap. The userspace switch is one thread: while it waits
# for a processor the class sends nothing, and as the next class has the same rate, what is not made
# up for at once is never made up for.
CATCH_UP_S = 0.020
# A reserved class or receive cap: as long as the switch waits for a processor on a machine that
# does other things too. Its arrears then pass at once, and no packet of them is dropped.
RESERVED_CATCH_UP_S = 0.060
VM_QUEUE_S = 0.040
MIN_VM_QUEUE_BYTES = 150_000
PORT_QUEUE_S = 0.030
MIN_PORT_QUEUE_BYTES = 120_000
DEFAULT_CLASS_SHARE = 1000
MIN_DEFAULT_CLASS_BPS = 64_000


def bytes_in(rate_bps: int, duration_s: float) -> int:
    """Bytes that a rate carries in a time, rounded down."""
    return int(rate_bps * duration_s / 8)


def burst_bytes(rate_bps: int, burst_s: float = BURST_S) -> int:
    """HTB's bucket: a time's worth of the rate, at least two full frames."""
    return max(MIN_BURST_BYTES, bytes_in(rate_bps, burst_s))


def vm_queue_bytes(rate_bps: int) -> int:
    """The queue at a VM's send cap, where its own TCP is limited: deep enough never to run dry."""
    return max(MIN_VM_QUEUE_BYTES, bytes_in(rate_bps, VM_QUEUE_S))


def port_queue_bytes(rate_bps: int) -> int:
    """The queue of a switch port: short, since all ports share the switch's send buffer."""
    return max(MIN_PORT_QUEUE_BYTES, bytes_in(rate_bps, PORT_QUEUE_S))


@dataclass(frozen=True)
class HtbRoot:
    """The root queueing discipline of a device; packets without a class go to ``default_minor``.

    A veth has none by default (``noqueue``): packets pass at once, and nothing is counted.
    """

    dev: str
    default_minor: int

    def text(self, verb: Verb) -> str:
        if verb == "del":
            return f"qdisc del dev {self.dev} root"
        return f"qdisc {verb} dev {self.dev} root handle 1: htb default {self.default_minor:#x}"


@dataclass(frozen=True)
class HtbClass:
    """A class ``1:minor`` below ``1:parent_minor`` (0: the root), with both buckets explicit.

    tc would choose buckets for the kernel's timer tick; with TSO they must hold a whole packet.
    """

    dev: str
    parent_minor: int
    minor: int
    rate_bps: int
    ceil_bps: int
    burst_s: float = BURST_S
    quantum_bytes: int = QUANTUM_BYTES

    @property
    def burst_bytes(self) -> int:
        return burst_bytes(self.rate_bps, self.burst_s)

    @property
    def cburst_bytes(self) -> int:
        return burst_bytes(self.ceil_bps, self.burst_s)

    def text(self, verb: Verb) -> str:
        if verb == "del":
            return f"class del dev {self.dev} classid 1:{self.minor:x}"
        parent = f"1:{self.parent_minor:x}" if self.parent_minor else "1:"
        return (
            f"class {verb} dev {self.dev} parent {parent} classid 1:{self.minor:x} htb"
            f" rate {self.rate_bps}bit ceil {self.ceil_bps}bit"
            f" burst {self.burst_bytes} cburst {self.cburst_bytes} quantum {self.quantum_bytes}"
        )


@dataclass(frozen=True)
class ByteFifo:
    """The queue below class ``1:minor``; what does not fit into ``limit_bytes`` is dropped."""

    dev: str
    minor: int
    limit_bytes: int

    def text(self, verb: Verb) -> str:
        where = f"qdisc {verb} dev {self.dev} parent 1:{self.minor:x}"
        return where if verb == "del" else f"{where} bfifo limit {self.limit_bytes}"


@dataclass(frozen=True)
class PrefixFilter:
    """Sends packets from a source prefix to class ``1:minor``.

    One preference per filter: a preference names the filter whole, so that it can be deleted
    without knowing the handle that the kernel gave it.
    """

    dev: str
    preference: int
    source: IPv4Network
    minor: int

    def text(self, verb: Verb) -> str:
        where = f"filter {verb} dev {self.dev} parent 1: protocol ip pref {self.preference}"
        if verb == "del":
            return where
        return f"{where} u32 match ip src {self.source} flowid 1:{self.minor:x}"


TcItem = HtbRoot | HtbClass | ByteFifo | PrefixFilter


@dataclass(frozen=True)
class TcLine:
    """One line of a tc batch. ``before`` is what a ``change`` replaces."""

    verb: Verb
    item: TcItem
    before: TcItem | None = None

    def text(self) -> str:
        return self.item.text(self.verb)

    def undo(self) -> TcLine:
        """The line that takes this one back. Raises ValueError for a removal."""
        if self.verb == "add":
            return TcLine("del", self.item)
        if self.before is None:
            raise ValueError(f"not to be taken back: {self.text()}")
        return TcLine("change", self.before, self.item)


@dataclass(frozen=True)
class Section:
    """Lines for one network namespace; None is the host's own, where the switches are."""

    netns: str | None
    lines: tuple[TcLine, ...]


def limits_text(sections: Iterable[Section]) -> str:
    """All sections as text, each under its namespace's name, as stored in ``plan/``."""
    out = []
    for section in sections:
        out.append(f"# netns {section.netns}" if section.netns else "# host")
        out.extend(line.text() for line in section.lines)
    return "".join(f"{line}\n" for line in out)


def network_limits(network: NetworkPlan) -> tuple[Section, ...]:
    """The capacity of every link in both directions, on the ports that send."""
    lines = []
    for link in network.links:
        for port in (link.lower, link.upper):
            lines += [TcLine("add", item) for item in _link_items(port.name, link.capacity_bps)]
    return (Section(None, tuple(lines)),)


def _link_items(dev: str, capacity_bps: int) -> tuple[TcItem, ...]:
    return (
        HtbRoot(dev, DEFAULT_CLASS_MINOR),
        HtbClass(dev, 0, LINK_MINOR, capacity_bps, capacity_bps, CATCH_UP_S),
        *_default_class(dev, capacity_bps, borrows=False),
    )


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
    lines: list[TcLine] = []
    for link in network.links:
        for port in (link.lower, link.upper):
            was = _default_class(port.name, link.capacity_bps, borrows=False)
            now = _default_class(port.name, link.capacity_bps, borrows=True)
            lines += [TcLine("change", now[0], was[0]), TcLine("change", now[1], was[1])]
    return (Section(None, tuple(lines)),)


def no_borrowing_lines(network: NetworkPlan) -> tuple[Section, ...]:
    """The inverse of :func:`borrowing_lines`."""
    return tuple(
        Section(section.netns, tuple(line.undo() for line in section.lines))
        for section in borrowing_lines(network)
    )


def tenant_limits(
    network: NetworkPlan, tenant: TenantPlan, mode: Mode = "hard"
) -> tuple[Section, ...]:
    """A tenant's classes on every directed link it has a reservation on, and its VMs' caps.

    ``hard``: nobody sends above the reservation. ``work-conserving``: the reservation is a
    minimum; what is free on a link, and a VM's whole NIC, may be used on top (FairCloud,
    ElasticSwitch, EyeQ). A tenant with ``weights`` reserves nothing and shares by them (PS-P).
    """
    host: list[TcLine] = []
    reserved = [_tenant_class(network, tenant, k, bps, mode) for k, bps in tenant.link_bps]
    taking_turns = [_weighted_class(network, tenant, k, weight) for k, weight in tenant.weights]
    for tenant_class in (*reserved, *taking_turns):
        dev, minor = tenant_class.dev, tenant.tenant_id
        host.append(TcLine("add", tenant_class))
        host.append(TcLine("add", ByteFifo(dev, minor, port_queue_bytes(tenant_class.ceil_bps))))
        host.append(TcLine("add", PrefixFilter(dev, minor, tenant.prefix, minor)))
    inside: list[Section] = []
    caps_bps = _vm_caps_bps(network, tenant, mode)
    catch_up_s = RESERVED_CATCH_UP_S if mode == "hard" and tenant.link_bps else CATCH_UP_S
    for vm in tenant.vms:
        cap_bps = caps_bps[vm.slot.server]
        dev = vm.slot.port.name
        host += _cap_lines(dev, cap_bps, catch_up_s, port_queue_bytes(cap_bps))
        lines = _cap_lines("eth0", cap_bps, BURST_S, vm_queue_bytes(cap_bps))
        inside.append(Section(vm.slot.netns, lines))
    return (Section(None, tuple(host)), *inside)


def rerate_lines(
    network: NetworkPlan, old: TenantPlan, new: TenantPlan, mode: Mode = "hard"
) -> tuple[Section, ...]:
    """Changes between two rates of one placed tenant: classes, and queues where they differ.

    Only ``change``: deleting and adding a class would let the tenant send unlimited in between.
    Raises ValueError if the two differ in more than rates.
    """
    before, after = tenant_limits(network, old, mode), tenant_limits(network, new, mode)
    sections = []
    for was, now in zip(before, after, strict=True):
        if was.netns != now.netns or len(was.lines) != len(now.lines):
            raise ValueError(f"tenant {new.tenant_id}: not a change of rate alone")
        lines = []
        for a, b in zip(was.lines, now.lines, strict=True):
            if a == b:
                continue
            if not _differ_in_rate_alone(a.item, b.item):
                raise ValueError(f"tenant {new.tenant_id}: not a change of rate alone")
            lines.append(TcLine("change", b.item, a.item))
        if lines:
            sections.append(Section(now.netns, tuple(lines)))
    return tuple(sections)


def _differ_in_rate_alone(a: TcItem, b: TcItem) -> bool:
    if isinstance(a, HtbClass) and isinstance(b, HtbClass):
        return (a.dev, a.parent_minor, a.minor) == (b.dev, b.parent_minor, b.minor)
    if isinstance(a, ByteFifo) and isinstance(b, ByteFifo):
        return (a.dev, a.minor) == (b.dev, b.minor)
    return False


def removal_lines(
    network: NetworkPlan, tenant: TenantPlan, mode: Mode = "hard"
) -> tuple[Section, ...]:
    """Removal of :func:`tenant_limits`, filters before the classes they point to."""
    sections = []
    for section in tenant_limits(network, tenant, mode):
        items = [line.item for line in section.lines]
        roots = {item.dev for item in items if isinstance(item, HtbRoot)}
        filters = [item for item in items if isinstance(item, PrefixFilter)]
        classes = [i for i in items if isinstance(i, HtbClass) and i.dev not in roots]
        whole = [item for item in items if isinstance(item, HtbRoot)]
        doomed: list[TcItem] = [*filters, *classes, *whole]
        lines = tuple(TcLine("del", item) for item in doomed)
        sections.append(Section(section.netns, lines))
    return tuple(sections)


def _weighted_class(
    network: NetworkPlan, tenant: TenantPlan, directed: int, weight: int
) -> HtbClass:
    """A class that reserves next to nothing and takes turns for what is left, by its weight."""
    capacity_bps = network.links[directed // 2].capacity_bps
    return HtbClass(
        network.sending_port(directed).name,
        LINK_MINOR,
        tenant.tenant_id,
        MIN_WIRE_BPS,
        capacity_bps,
        CATCH_UP_S,
        min(MAX_QUANTUM_BYTES, weight * TURN_BYTES),
    )


def _tenant_class(
    network: NetworkPlan, tenant: TenantPlan, directed: int, rate_bps: int, mode: Mode
) -> HtbClass:
    dev = network.sending_port(directed).name
    capacity_bps = network.links[directed // 2].capacity_bps
    if mode == "hard":
        minor = tenant.tenant_id
        return HtbClass(dev, LINK_MINOR, minor, rate_bps, rate_bps, RESERVED_CATCH_UP_S)
    ceil_bps = max(rate_bps, capacity_bps)
    return HtbClass(dev, LINK_MINOR, tenant.tenant_id, rate_bps, ceil_bps, CATCH_UP_S)


def _vm_caps_bps(network: NetworkPlan, tenant: TenantPlan, mode: Mode) -> dict[int, int]:
    """Server -> what each of the tenant's VMs on it may send and receive."""
    caps = {vm.slot.server: tenant.rate_bps for vm in tenant.vms}
    if mode == "hard":
        return caps
    server_of = {network.bridge_of_node[server].name: server for server in caps}
    nic_bps = dict.fromkeys(caps, 0)
    for link in network.links:
        server = server_of.get(link.lower.bridge)
        if server is not None:
            nic_bps[server] += link.capacity_bps
    return {server: max(cap, nic_bps[server]) for server, cap in caps.items()}


def _cap_lines(dev: str, rate_bps: int, burst_s: float, queue_bytes: int) -> tuple[TcLine, ...]:
    return (
        TcLine("add", HtbRoot(dev, VM_MINOR)),
        TcLine("add", HtbClass(dev, 0, VM_MINOR, rate_bps, rate_bps, burst_s)),
        TcLine("add", ByteFifo(dev, VM_MINOR, queue_bytes)),
    )
