"""Lines of ``tc`` and ``ip`` batches as values. Pure.

The text of a value is the exact line of a ``tc -batch`` or ``ip -batch`` file;
the live backend executes these values and nothing else, so what is stored,
shown and tested is what the kernel gets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from itertools import groupby
from typing import ClassVar, Literal

from jobs.wire import FRAME_BYTES

Verb = Literal["add", "change", "replace", "del"]

VM_DEVICE = "eth0"
# Bytes that a class may send in its turn when it borrows. HTB's default, a
# tenth of the rate, is more than the 200 kB it accepts without a warning or, at
# a few Mbit/s, less than a TSO packet.
QUANTUM_BYTES = 60_000
MIN_BURST_BYTES = 2 * FRAME_BYTES
# The bucket of a VM's own cap. HTB earns tokens by the clock but sends by a
# timer, which a busy machine fires late: tokens beyond the bucket are lost. A
# deeper bucket is a head start (10 ms of rate are 0.3 % of a transfer of 3 s).
BURST_S = 0.010


def bytes_in(rate_bps: int, duration_s: float) -> int:
    """Bytes that a rate carries in a time, rounded down."""
    return int(rate_bps * duration_s / 8)


def burst_bytes(rate_bps: int, burst_s: float = BURST_S) -> int:
    """HTB's bucket: a time's worth of the rate, at least two full frames."""
    return max(MIN_BURST_BYTES, bytes_in(rate_bps, burst_s))


class Item:
    """An object of tc or ip. Its lines follow the templates ``added`` and
    ``removed``.
    """

    added: ClassVar[str]
    removed: ClassVar[str] = ""

    def text(self, verb: Verb) -> str:
        template = self.added
        if verb == "del":
            template = self.removed
        return template.format(self, verb=verb)


# ---------------------------------------------------------------------------------------- tc


@dataclass(frozen=True)
class Netem(Item):
    """The delay line of a device: packets wait in it before its limits.

    A line with a constant delay and a limit may change places: what leaves is
    the same. At most ``limit_packets`` are on their way.
    """

    added = "qdisc {verb} dev {0.dev} root handle 2: netem limit {0.limit_packets}{0.effects}"
    removed = "qdisc del dev {0.dev} root"
    dev: str
    limit_packets: int
    delay_ns: int
    jitter_ns: int
    loss_share: float

    @property
    def effects(self) -> str:
        text = ""
        if self.delay_ns or self.jitter_ns:
            text = f" delay {_microseconds(self.delay_ns)}"
        if self.jitter_ns:
            text += f" {_microseconds(self.jitter_ns)}"
        if self.loss_share:
            text += f" loss {self.loss_share * 100:g}%"
        if self.jitter_ns:
            # Of packets with a rate none overtakes another.
            text += f" rate {IN_ORDER_BPS // 10**9}gbit"
        return text


# Far above what any link carries: 64 kB take 16 us.
IN_ORDER_BPS = 32_000_000_000


def _microseconds(duration_ns: int) -> str:
    whole, rest = divmod(duration_ns, 1000)
    text = str(whole)
    if rest:
        text += f".{rest:03}"
    return f"{text}us"


@dataclass(frozen=True)
class HtbRoot(Item):
    """The root queueing discipline of a device, or all that is behind its
    delay line.

    Packets without a class go to ``default_minor``. A veth has none by default
    (``noqueue``): packets pass at once, and nothing is counted.
    """

    added = "qdisc {verb} dev {0.dev} {0.place} handle 1: htb default {0.default_minor:#x}"
    removed = "qdisc del dev {0.dev} {0.place}"
    dev: str
    default_minor: int
    behind_netem: bool = False

    @property
    def place(self) -> str:
        if self.behind_netem:
            return "parent 2:1"
        return "root"


@dataclass(frozen=True)
class HtbClass(Item):
    """A class ``1:minor`` below ``1:parent_minor`` (0: the root).

    Both buckets are explicit: tc would choose buckets for the kernel's timer
    tick; with TSO they must hold a whole packet. ``mpu_bytes`` is what a packet
    counts at least.
    """

    added = (
        "class {verb} dev {0.dev} parent {0.parent} classid 1:{0.minor:x} htb"
        " rate {0.rate_bps}bit ceil {0.ceil_bps}bit"
        " burst {0.burst_bytes} cburst {0.cburst_bytes} quantum {0.quantum_bytes}{0.mpu}"
    )
    removed = "class del dev {0.dev} classid 1:{0.minor:x}"
    dev: str
    parent_minor: int
    minor: int
    rate_bps: int
    ceil_bps: int
    burst_s: float = BURST_S
    quantum_bytes: int = QUANTUM_BYTES
    mpu_bytes: int = 0

    @property
    def mpu(self) -> str:
        if self.mpu_bytes == 0:
            return ""
        return f" mpu {self.mpu_bytes}"

    @property
    def parent(self) -> str:
        if self.parent_minor == 0:
            return "1:"
        return f"1:{self.parent_minor:x}"

    @property
    def burst_bytes(self) -> int:
        return burst_bytes(self.rate_bps, self.burst_s)

    @property
    def cburst_bytes(self) -> int:
        return burst_bytes(self.ceil_bps, self.burst_s)


@dataclass(frozen=True)
class ByteFifo(Item):
    """The queue below class ``1:minor``, of ``limit_bytes``; the rest is
    dropped.
    """

    added = "qdisc {verb} dev {0.dev} parent 1:{0.minor:x} bfifo limit {0.limit_bytes}"
    removed = "qdisc del dev {0.dev} parent 1:{0.minor:x}"
    dev: str
    minor: int
    limit_bytes: int


@dataclass(frozen=True)
class PrefixFilter(Item):
    """Sends packets from a source prefix to class ``1:minor``.

    One preference per filter: a preference names the filter whole, so that it
    can be deleted without knowing the handle that the kernel gave it.
    """

    removed = (
        "filter del dev {0.dev} parent 1: protocol ip pref {0.preference}"
    )
    added = (
        "filter {verb} dev {0.dev} parent 1: protocol ip pref {0.preference}"
        " u32 match ip src {0.source} flowid 1:{0.minor:x}"
    )
    dev: str
    preference: int
    source: IPv4Network
    minor: int


TcItem = Netem | HtbRoot | HtbClass | ByteFifo | PrefixFilter


# ---------------------------------------------------------------------------------------- ip


@dataclass(frozen=True)
class LinkUp(Item):
    """A device that is up."""

    added = "link set {0.dev} up"
    dev: str


@dataclass(frozen=True)
class LargestPacket(Item):
    """The largest packet that a VM's TCP hands down."""

    added = "link set dev {0.dev} gso_max_size {0.size_bytes}"
    size_bytes: int
    dev: str = VM_DEVICE


@dataclass(frozen=True)
class Address(Item):
    """A VM's address; its prefix brings the route to its tenant's VMs alone."""

    added = "address {verb} {0.address} dev {0.dev}"
    removed = "address delete {0.address} dev {0.dev}"
    address: IPv4Interface
    dev: str = VM_DEVICE


@dataclass(frozen=True)
class PrefixRoute(Item):
    """The route of an address's prefix, or ``to`` another network on the link,
    with a first window, and CUBIC.

    A VM's programs may have no right to choose CUBIC. Debian's default is CUBIC
    as well; with BBR, the default of some machines, a VM was measured 3 % below
    its cap.
    """

    added = (
        "route {verb} {0.network} dev {0.dev} proto kernel scope link"
        " src {0.address.ip} congctl cubic initcwnd {0.window_segments}"
    )
    address: IPv4Interface
    window_segments: int
    dev: str = VM_DEVICE
    to: IPv4Network | None = None

    @property
    def network(self) -> IPv4Network:
        """Where the route leads."""
        return self.to or self.address.network


@dataclass(frozen=True)
class Neighbour(Item):
    """A permanent neighbour entry: no ARP ever leaves a VM.

    It replaces one that may be there: a late packet to a VM that has gone
    leaves one behind.
    """

    added = (
        "neighbour {verb} {0.ip} lladdr {0.mac} dev {0.dev} nud permanent"
    )
    removed = "neighbour delete {0.ip} dev {0.dev}"
    ip: IPv4Address
    mac: str
    dev: str = VM_DEVICE


IpItem = LinkUp | LargestPacket | Address | PrefixRoute | Neighbour


# ------------------------------------------------------------------------------------- lines


@dataclass(frozen=True)
class BatchLine:
    """One line of a batch. ``before`` is what a ``change`` replaces."""

    verb: Verb
    item: TcItem | IpItem
    before: TcItem | IpItem | None = None

    def text(self) -> str:
        return self.item.text(self.verb)

    def undo(self) -> BatchLine | None:
        """The line that takes this one back; None where none is needed.

        A route goes with its VM's address.
        """
        # A neighbour's line is a replace, and what it has made is deleted
        # all the same.
        if self.verb == "add" or isinstance(self.item, Neighbour):
            return BatchLine("del", self.item)
        if self.before is None:
            return None
        return BatchLine("change", self.before, before=self.item)


@dataclass(frozen=True)
class BatchSection:
    """Lines for one network namespace; None: the host's, where switches are."""

    netns: str | None
    lines: tuple[BatchLine, ...]

    def undo(self) -> BatchSection:
        lines = []
        # In reverse: what a line needs was made before it.
        for line in reversed(self.lines):
            undo = line.undo()
            if undo is not None:
                lines.append(undo)
        return BatchSection(self.netns, tuple(lines))


def batch_text(sections: Iterable[BatchSection]) -> str:
    """All sections as text, each namespace's under its name, as in ``plan/``."""
    text = ""
    for netns, same in groupby(sections, key=lambda section: section.netns):
        if netns is None:
            text += "# host\n"
        else:
            text += f"# netns {netns}\n"
        for section in same:
            for line in section.lines:
                text += f"{line.text()}\n"
    return text
