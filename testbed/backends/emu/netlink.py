"""Routing netlink: requests of ``tc`` and ``ip`` as messages to the kernel.

A tenant of 32 VMs needs a limit, an address and 31 neighbours in 32 namespaces.
A process for each would take a second; messages that are packed once and sent
on open sockets take a few milliseconds. Tests compare the kernel's state with
that after the same lines by ``tc`` and ``ip``.

Layouts: linux/netlink.h, rtnetlink.h, pkt_sched.h, pkt_cls.h. Bytes are in host
order except for addresses.
"""

from __future__ import annotations

import errno
import math
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from testbed.plan import batch_lines as lines

NLM_F_REQUEST = 0x1
NLM_F_ECHO = 0x8
NLM_F_DUMP = 0x300
NLM_F_REPLACE = 0x100
NLM_F_EXCL = 0x200
NLM_F_CREATE = 0x400
# RTM_DEL… is RTM_NEW… plus one.
RTM_NEWLINK = 16
RTM_NEWADDR = 20
RTM_NEWROUTE = 24
RTM_NEWNEIGH = 28
RTM_NEWQDISC = 36
RTM_GETQDISC = 38
RTM_NEWTCLASS = 40
RTM_NEWTFILTER = 44
TCA_KIND = 1
TCA_OPTIONS = 2
TCA_HTB_PARMS = 1
TCA_HTB_INIT = 2
TCA_HTB_RATE64 = 6
TCA_HTB_CEIL64 = 7
TCA_NETEM_RATE = 6
TCA_NETEM_LATENCY64 = 10
TCA_NETEM_JITTER64 = 11
TCA_U32_CLASSID = 1
TCA_U32_SEL = 5
TC_U32_TERMINAL = 1
IFLA_GSO_MAX_SIZE = 41
TC_H_ROOT = 0xFFFFFFFF
ROOT_HANDLE = 0x10000
NETEM_HANDLE = 0x20000
ETH_P_IP = 0x0800
IPV4_SOURCE_OFFSET = 12
LINKLAYER_ETHERNET = 1
HTB_VERSION = 3
HTB_RATE2QUANTUM = 10
NUD_PERMANENT = 0x80
RT_TABLE_MAIN = 254
RTPROT_KERNEL = 2
RT_SCOPE_LINK = 253
RTN_UNICAST = 1
RTA_DST = 1
RTA_OIF = 4
RTA_PREFSRC = 7
RTA_METRICS = 8
RTAX_INITCWND = 11
RTAX_CC_ALGO = 16
IFF_UP = 0x1
# The scheduler's clock: 64 ns a tick (/proc/net/psched, fixed in the kernel
# since 2.6.31).
TICKS_PER_S = 15_625_000

HEADER = struct.Struct("=IHHII")
ATTRIBUTE = struct.Struct("=HH")
TCMSG = struct.Struct("=BxxxiIII")
_IFINFO = struct.Struct("=BxHiII")
_IFADDR = struct.Struct("=BBBBi")
_NDMSG = struct.Struct("=BxxxiHBB")
_RTMSG = struct.Struct("=BBBBBBBBI")
_RATESPEC = struct.Struct("=BBHhHI")
_FLAGS: dict[lines.Verb, int] = {
    "add": NLM_F_CREATE | NLM_F_EXCL,
    "replace": NLM_F_CREATE | NLM_F_REPLACE,
    "change": 0,
    "del": 0,
}


def _attribute(kind: int, payload: bytes) -> bytes:
    # Padded to 4 bytes, which the size in its header does not count.
    size = ATTRIBUTE.size + len(payload)
    return ATTRIBUTE.pack(size, kind) + payload + bytes(-size % 4)


def _message(
    kind: int,
    flags: int,
    body: bytes,
) -> bytes:
    size = HEADER.size + len(body)
    # The sequence number is set as it is sent; the sender's port may stay 0.
    return HEADER.pack(size, kind, NLM_F_REQUEST | flags, 0, 0) + body


def ticks(rate_bytes: int, size_bytes: int) -> int:
    """Time in which a bucket drains at a rate, in the scheduler's ticks.

    Rounded up as by iproute2 6.15. Older versions round down, first to whole
    microseconds: their buckets are up to 17 ticks smaller.
    """
    return math.ceil(1e6 * (size_bytes / rate_bytes) * (TICKS_PER_S / 1e6))


@lru_cache(maxsize=4096)
def packed(
    verb: lines.Verb,
    item: lines.TcItem | lines.IpItem,
    ifindex: int,
) -> bytes:
    """A line of a batch as one request.

    Cached, since all VMs of a tenant get the same lines.
    """
    removing = verb == "del"
    if isinstance(item, lines.TcItem):
        kind, named, settings = _tc(item, ifindex, removing=removing)
    else:
        kind, named, settings = _ip(item, ifindex)
    body = named if removing else named + settings
    return _message(kind + removing, _FLAGS[verb], body)


def _tc(
    item: lines.TcItem,
    ifindex: int,
    *,
    removing: bool,
) -> tuple[int, bytes, bytes]:
    """Kind of message, identification of the object, and its settings.

    A removal identifies a qdisc or filter by its parent, a class by its handle.
    """
    info = 0
    match item:
        case lines.Netem():
            kind = RTM_NEWQDISC
            handle = NETEM_HANDLE
            parent = TC_H_ROOT
            settings = _options(b"netem", _netem_options(item))
        case lines.HtbRoot():
            kind = RTM_NEWQDISC
            handle = ROOT_HANDLE
            parent = NETEM_HANDLE | 1 if item.behind_netem else TC_H_ROOT
            settings = _options(b"htb", _htb_root_options(item))
        case lines.HtbClass():
            kind = RTM_NEWTCLASS
            handle = ROOT_HANDLE | item.minor
            parent = ROOT_HANDLE | item.parent_minor
            settings = _options(b"htb", _htb_class_options(item))
        case lines.ByteFifo():
            # The kernel gives it a handle: nobody names it by one.
            kind = RTM_NEWQDISC
            handle = 0
            parent = ROOT_HANDLE | item.minor
            limit = struct.pack("=I", item.limit_bytes)
            settings = _options(b"bfifo", limit)
        case lines.PrefixFilter():
            kind = RTM_NEWTFILTER
            handle = 0
            parent = ROOT_HANDLE
            # tcm_info holds a filter's priority above its protocol, and
            # this in network order.
            info = item.preference << 16 | socket.htons(ETH_P_IP)
            settings = _options(b"u32", _u32_options(item))
        case _:
            assert_never(item)
    if removing and kind == RTM_NEWQDISC:
        handle = 0
    if removing and kind == RTM_NEWTCLASS:
        parent = 0
    named = TCMSG.pack(socket.AF_UNSPEC, ifindex, handle, parent, info)
    return kind, named, settings


def _ip(item: lines.IpItem, ifindex: int) -> tuple[int, bytes, bytes]:
    """As :func:`_tc`; addresses and neighbours are identified by attributes."""
    settings = b""
    match item:
        case lines.LinkUp():
            kind = RTM_NEWLINK
            # The flags, and which of them are to change.
            named = _IFINFO.pack(0, 0, ifindex, IFF_UP, IFF_UP)
        case lines.LargestPacket():
            kind = RTM_NEWLINK
            named = _IFINFO.pack(0, 0, ifindex, 0, 0)
            size = struct.pack("=I", item.size_bytes)
            settings = _attribute(IFLA_GSO_MAX_SIZE, size)
        case lines.Address():
            kind = RTM_NEWADDR
            address = item.address
            length = address.network.prefixlen
            named = _IFADDR.pack(socket.AF_INET, length, 0, 0, ifindex)
            # IFA_LOCAL and IFA_ADDRESS: the same, but on point-to-point links.
            named += _attribute(2, address.packed)
            named += _attribute(1, address.packed)
        case lines.PrefixRoute():
            kind = RTM_NEWROUTE
            named = _prefix_route(item, ifindex)
        case lines.Neighbour():
            # Permanent: ARP meets no rule of the controller's.
            kind = RTM_NEWNEIGH
            named = _NDMSG.pack(
                socket.AF_INET, ifindex, NUD_PERMANENT, 0, 0
            )
            named += _attribute(1, item.ip.packed)
            mac = bytes.fromhex(item.mac.replace(":", ""))
            settings = _attribute(2, mac)
        case _:
            assert_never(item)
    return kind, named, settings


def _prefix_route(item: lines.PrefixRoute, ifindex: int) -> bytes:
    prefix = item.network
    body = _RTMSG.pack(
        socket.AF_INET,
        prefix.prefixlen,
        0,
        0,
        RT_TABLE_MAIN,
        RTPROT_KERNEL,
        RT_SCOPE_LINK,
        RTN_UNICAST,
        0,
    )
    metrics = _attribute(
        RTAX_INITCWND, struct.pack("=I", item.window_segments)
    )
    metrics += _attribute(RTAX_CC_ALGO, b"cubic\0")
    for kind, value in (
        (RTA_DST, prefix.network_address.packed),
        (RTA_OIF, struct.pack("=i", ifindex)),
        (RTA_PREFSRC, item.address.packed),
        (RTA_METRICS, metrics),
    ):
        body += _attribute(kind, value)
    return body


def _options(kind: bytes, options: bytes) -> bytes:
    name = _attribute(TCA_KIND, kind + b"\0")
    return name + _attribute(TCA_OPTIONS, options)


def _htb_root_options(item: lines.HtbRoot) -> bytes:
    glob = struct.pack(
        "=IIIII", HTB_VERSION, HTB_RATE2QUANTUM, item.default_minor, 0, 0
    )
    return _attribute(TCA_HTB_INIT, glob)


def _u32_options(item: lines.PrefixFilter) -> bytes:
    """One comparison of the IPv4 source address; a match ends the search."""
    target = _attribute(
        TCA_U32_CLASSID, struct.pack("=I", ROOT_HANDLE | item.minor)
    )
    selector = struct.pack(
        "=BBBxHHhhI", TC_U32_TERMINAL, 0, 1, 0, 0, 0, 0, 0
    )
    mask = item.source.netmask.packed
    value = item.source.network_address.packed
    key = struct.pack("=4s4sii", mask, value, IPV4_SOURCE_OFFSET, 0)
    return target + _attribute(TCA_U32_SEL, selector + key)


def _netem_options(item: lines.Netem) -> bytes:
    """The structure of netem, then its attributes."""
    lost = round(item.loss_share * 0xFFFFFFFF)
    # The attributes' delay and jitter, in ns, override the structure's, which
    # are in ticks.
    options = struct.pack("=IIIIII", 0, item.limit_packets, lost, 0, 0, 0)
    for kind, value_ns in (
        (TCA_NETEM_LATENCY64, item.delay_ns),
        (TCA_NETEM_JITTER64, item.jitter_ns),
    ):
        if value_ns:
            options += _attribute(kind, struct.pack("=q", value_ns))
    # Jitter without a rate has netem reorder, which TCP takes for loss.
    if item.jitter_ns:
        rate = struct.pack("=IiIi", lines.IN_ORDER_BPS // 8, 0, 0, 0)
        options += _attribute(TCA_NETEM_RATE, rate)
    return options


def _htb_class_options(item: lines.HtbClass) -> bytes:
    # With a link layer the kernel computes transmission times itself; without,
    # it would want a rate table. The overhead is 0, since a frame counts with
    # its 14-byte header, as in jobs.wire.
    rate = item.rate_bps // 8
    ceil = item.ceil_bps // 8
    wide = b""
    parameters = b""
    for kind, value in ((TCA_HTB_RATE64, rate), (TCA_HTB_CEIL64, ceil)):
        # The structure has 32 bits: 34 Gbit/s. Beyond, an attribute counts.
        low = min(value, 0xFFFFFFFF)
        parameters += _RATESPEC.pack(
            0, LINKLAYER_ETHERNET, 0, 0, item.mpu_bytes, low
        )
        if value != low:
            wide += _attribute(kind, struct.pack("=Q", value))
    buffer = ticks(rate, item.burst_bytes)
    cbuffer = ticks(ceil, item.cburst_bytes)
    parameters += struct.pack(
        "=IIIII", buffer, cbuffer, item.quantum_bytes, 0, 0
    )
    return wide + _attribute(TCA_HTB_PARMS, parameters)


# ----------------------------------------------------------------------------------- sockets


NLMSG_ERROR = 2
NLM_F_ACK_TLVS = 0x200
SOL_NETLINK = 270
NETLINK_CAP_ACK = 10
NETLINK_EXT_ACK = 11
NLMSGERR_ATTR_MSG = 1
TCA_STATS2 = 7
TCA_STATS_BASIC = 1
TCA_STATS_QUEUE = 3

RTMGRP_LINK = 1

_SEQUENCE_AT = 8
_AT_ONCE = 200  # requests in one datagram, of 60 to 160 bytes each
GONE = frozenset({errno.ENOENT, errno.EADDRNOTAVAIL, errno.ENODEV})
_BUFFER_BYTES = 1 << 20
_RECEIVE_BYTES = 1 << 16  # the kernel's own datagrams have 32 KiB at most


@dataclass(frozen=True)
class KernelRefusal:
    """A request that the kernel refused.

    ``position``: its place among the requests sent, from 0; ``number``: the
    errno.
    """

    position: int
    number: int
    reason: str


# Interface 0: of all devices.
QDISC_DUMP = _message(RTM_GETQDISC, NLM_F_DUMP, TCMSG.pack(0, 0, 0, 0, 0))


def qdisc_request(ifindex: int, parent: int) -> bytes:
    """A request for the counters of a device's root qdisc, or a class's queue.

    Older kernels reply only with the echo flag.
    """
    return _message(
        RTM_GETQDISC, NLM_F_ECHO, TCMSG.pack(0, ifindex, 0, parent, 0)
    )


class DeviceEvents:
    """The kernel's events of devices: up, down, carrier, removal.

    They are of the network namespace in which this thread is when it makes the
    object.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE
        )
        self._socket.bind((0, RTMGRP_LINK))
        self._socket.settimeout(0)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def any(self) -> bool:
        """True if a device has, or may have, changed since the last call."""
        changed = False
        while True:
            try:
                changed |= bool(self._socket.recv(_RECEIVE_BYTES))
            except BlockingIOError:
                return changed
            except OSError:
                # ENOBUFS: events were lost, as the socket's buffer was full.
                return True


class RouteSocket:
    """A routing socket, closed on exec.

    It belongs to the network namespace in which this thread is when it makes
    the object.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE
        )
        self._socket.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES
        )
        # Refusals carry the kernel's message, but not the refused request.
        self._socket.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        self._socket.settimeout(0)

    def close(self) -> None:
        self._socket.close()

    def request(self, messages: Sequence[bytes]) -> list[KernelRefusal]:
        """Has the kernel carry out requests in order; returns the refused ones.

        Requests after a refused one are carried out, too.
        """
        refused: list[KernelRefusal] = []
        for first in range(0, len(messages), _AT_ONCE):
            data = bytearray()
            batch = messages[first : first + _AT_ONCE]
            for position, message in enumerate(batch, first):
                # Packed once for all VMs: the number alone is a request's own.
                number_at = len(data) + _SEQUENCE_AT
                data += message
                struct.pack_into("=I", data, number_at, position)
            for *_, datagram in self.ask(data):
                refused += refusals(datagram)
        return refused

    def unshaped(self) -> dict[int, int]:
        """Packets that HTB sent unshaped for want of a class, by interface.

        Raises OSError.
        """
        packets_of: dict[int, int] = {}
        for *_, datagram in self.ask(QDISC_DUMP):
            raise_unless_gone(datagram)
            for kind, _, _, qdisc in _read(datagram):
                if kind != RTM_NEWQDISC:
                    continue
                packets = _direct_packets(qdisc)
                if packets:
                    packets_of[TCMSG.unpack_from(qdisc)[1]] = packets
        return packets_of

    def ask(
        self, request: bytes | bytearray
    ) -> list[tuple[float, float, bytes]]:
        """The kernel's replies: earliest and latest instant in s, and datagram.

        The kernel makes a reply inside a system call: the first one while the
        request is sent, each later one while the one before it is received. So
        the time of its counters lies between two known instants, although this
        process may lose its processor between any two calls. Raises OSError.
        """
        number = self._socket.fileno()
        replies = []
        earliest_s = time.monotonic()
        os.write(number, request)
        with suppress(BlockingIOError):
            while True:
                latest_s = time.monotonic()
                data = os.read(number, _RECEIVE_BYTES)
                replies.append((earliest_s, latest_s, data))
                earliest_s = latest_s
        return replies


def _read(data: bytes) -> Iterator[tuple[int, int, int, memoryview]]:
    """Kind, flags, sequence number and payload of each message of a datagram."""
    at = 0
    while at < len(data):
        size, kind, flags, sequence, _ = HEADER.unpack_from(data, at)
        payload = memoryview(data)[at + HEADER.size : at + size]
        yield kind, flags, sequence, payload
        # Messages, as attributes, are aligned to 4 bytes.
        at += (size + 3) & ~3


def refusals(data: bytes) -> Iterator[KernelRefusal]:
    """Refused requests in a datagram.

    Without NLM_F_ACK the kernel sends no reply to successful ones.
    """
    for kind, flags, sequence, payload in _read(data):
        if kind != NLMSG_ERROR:
            continue
        number = -struct.unpack_from("=i", payload)[0]
        reason = os.strerror(number)
        # What the kernel says of it, where it says more than a number.
        if flags & NLM_F_ACK_TLVS:
            # After the errno comes the request's header, and by
            # NETLINK_CAP_ACK no more of it.
            attributes = _attributes(payload[4 + HEADER.size :])
            message = bytes(attributes.get(NLMSGERR_ATTR_MSG, b""))
            text = message.rstrip(b"\0").decode(errors="replace")
            reason = text or reason
        yield KernelRefusal(sequence, number, reason)


def raise_unless_gone(data: bytes) -> None:
    """Raises OSError for the first refusal, unless its object is gone."""
    for refusal in refusals(data):
        if refusal.number not in GONE:
            raise OSError(refusal.number, refusal.reason)


def _attributes(data: memoryview) -> dict[int, memoryview]:
    attributes = {}
    for kind, begin, end in places(data, 0, len(data)):
        attributes[kind] = data[begin:end]
    return attributes


def places(
    data: memoryview,
    at: int,
    end: int,
) -> Iterator[tuple[int, int, int]]:
    """Kind of each attribute, with begin and end of its value in ``data``."""
    while at + ATTRIBUTE.size <= end:
        size, kind = ATTRIBUTE.unpack_from(data, at)
        # The two highest bits say that it is nested, or in network order.
        yield kind & 0x3FFF, at + ATTRIBUTE.size, at + size
        at += (size + 3) & ~3


def _direct_packets(qdisc: memoryview) -> int:
    """``direct_packets_stat`` of a queueing discipline, if it is HTB."""
    attributes = _attributes(qdisc[TCMSG.size :])
    if bytes(attributes[TCA_KIND]) != b"htb\0":
        return 0
    init = _attributes(attributes[TCA_OPTIONS])[TCA_HTB_INIT]
    # The last of the five numbers of struct tc_htb_glob.
    return int(struct.unpack_from("=I", init, 16)[0])
