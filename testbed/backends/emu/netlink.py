"""Routing netlink: requests of ``tc`` and ``ip`` as messages, sent without a process for each.

A tenant of 32 VMs needs a limit, an address and 31 neighbours in 32 namespaces. Forking a command
for each takes a second; messages packed once and sent on sockets that stay open take a few
milliseconds. Tests show that the kernel's state afterwards is the same as after the lines' text.

Layouts: linux/netlink.h, rtnetlink.h, pkt_sched.h, pkt_cls.h. Bytes are in host order except for
addresses. Every body has its device's index at one place: see :func:`aimed`.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface

from testbed.plan.limits import (
    ByteFifo,
    HtbClass,
    HtbRoot,
    PrefixFilter,
    TcItem,
    TcLine,
)

NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE = 0x100, 0x200, 0x400
RTM_NEWLINK = 16
RTM_NEWADDR, RTM_DELADDR = 20, 21
RTM_NEWROUTE = 24
RTM_NEWNEIGH, RTM_DELNEIGH = 28, 29
RTM_NEWQDISC, RTM_GETQDISC = 36, 38
RTM_NEWTCLASS, RTM_NEWTFILTER = 40, 44
TCA_KIND, TCA_OPTIONS = 1, 2
TCA_HTB_PARMS, TCA_HTB_INIT, TCA_HTB_RATE64, TCA_HTB_CEIL64 = 1, 2, 6, 7
TCA_U32_CLASSID, TCA_U32_SEL, TC_U32_TERMINAL = 1, 5, 1
IFLA_GSO_MAX_SIZE = 41
TC_H_ROOT, ROOT_HANDLE = 0xFFFFFFFF, 0x10000
ETH_P_IP, IPV4_SOURCE_OFFSET = 0x0800, 12
LINKLAYER_ETHERNET = 1
HTB_VERSION, HTB_RATE2QUANTUM = 3, 10
NUD_PERMANENT = 0x80
RT_TABLE_MAIN, RTPROT_KERNEL, RT_SCOPE_LINK, RTN_UNICAST = 254, 2, 253, 1
RTA_DST, RTA_OIF, RTA_PREFSRC, RTA_METRICS, RTAX_INITCWND = 1, 4, 7, 8, 11
IFF_UP = 0x1
# The scheduler's clock: 64 ns a tick (/proc/net/psched, fixed in the kernel since 2.6.31).
TICKS_PER_S = 15_625_000

HEADER = struct.Struct("=IHHII")
ATTRIBUTE = struct.Struct("=HH")
TCMSG = struct.Struct("=BxxxiIII")
_IFINFO = struct.Struct("=BxHiII")
_IFADDR = struct.Struct("=BBBBi")
_NDMSG = struct.Struct("=BxxxiHBB")
_RTMSG = struct.Struct("=BBBBBBBBI")
_RATESPEC = struct.Struct("=BBHhHI")
_INDEX_AT = HEADER.size + 4


def _attribute(kind: int, payload: bytes) -> bytes:
    size = ATTRIBUTE.size + len(payload)
    return ATTRIBUTE.pack(size, kind) + payload + bytes(-size % 4)


def _message(kind: int, flags: int, body: bytes) -> bytes:
    return HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST | flags, 0, 0) + body


def ticks(rate_bytes: int, size_bytes: int) -> int:
    """The time a bucket lasts at a rate, in the scheduler's ticks: whole microseconds, as in tc."""
    return int(size_bytes / rate_bytes * 1e6) * TICKS_PER_S // 1_000_000


def tc_message(line: TcLine, ifindex: int = 0) -> bytes:
    """A line of a tc batch as one request; :func:`aimed` may name the device later."""
    removing = line.verb == "del"
    kind, handle, parent, info = _place(line.item, removing=removing)
    flags = NLM_F_CREATE | NLM_F_EXCL if line.verb == "add" else 0
    body = TCMSG.pack(socket.AF_UNSPEC, ifindex, handle, parent, info)
    return _message(kind + removing, flags, body if removing else body + _options(line.item))


def _place(item: TcItem, *, removing: bool) -> tuple[int, int, int, int]:
    """Kind of message (a removal's is the next number), handle, parent, and a filter's priority.

    What is removed is named by its parent alone, a class by its handle.
    """
    match item:
        case HtbRoot():
            return RTM_NEWQDISC, 0 if removing else ROOT_HANDLE, TC_H_ROOT, 0
        case HtbClass():
            parent = 0 if removing else ROOT_HANDLE | item.parent_minor
            return RTM_NEWTCLASS, ROOT_HANDLE | item.minor, parent, 0
        case ByteFifo():
            return RTM_NEWQDISC, 0, ROOT_HANDLE | item.minor, 0
        case PrefixFilter():
            info = item.preference << 16 | socket.htons(ETH_P_IP)
            return RTM_NEWTFILTER, 0, ROOT_HANDLE, info


def _options(item: TcItem) -> bytes:
    match item:
        case HtbRoot():
            glob = struct.pack("=IIIII", HTB_VERSION, HTB_RATE2QUANTUM, item.default_minor, 0, 0)
            return _kind(b"htb") + _attribute(TCA_OPTIONS, _attribute(TCA_HTB_INIT, glob))
        case HtbClass():
            return _kind(b"htb") + _attribute(TCA_OPTIONS, _htb_class_options(item))
        case ByteFifo():
            return _kind(b"bfifo") + _attribute(TCA_OPTIONS, struct.pack("=I", item.limit_bytes))
        case PrefixFilter():
            return _kind(b"u32") + _attribute(TCA_OPTIONS, _u32_options(item))


def _u32_options(item: PrefixFilter) -> bytes:
    """One comparison of the IPv4 source address; a match ends the search."""
    target = _attribute(TCA_U32_CLASSID, struct.pack("=I", ROOT_HANDLE | item.minor))
    selector = struct.pack("=BBBxHHhhI", TC_U32_TERMINAL, 0, 1, 0, 0, 0, 0, 0)
    mask, value = item.source.netmask.packed, item.source.network_address.packed
    key = struct.pack("=4s4sii", mask, value, IPV4_SOURCE_OFFSET, 0)
    return target + _attribute(TCA_U32_SEL, selector + key)


def _kind(name: bytes) -> bytes:
    return _attribute(TCA_KIND, name + b"\0")


def _htb_class_options(item: HtbClass) -> bytes:
    rate, ceil = item.rate_bps // 8, item.ceil_bps // 8
    buffers = (ticks(rate, item.burst_bytes), ticks(ceil, item.cburst_bytes))
    parameters = _ratespec(rate) + _ratespec(ceil)
    parameters += struct.pack("=IIIII", *buffers, item.quantum_bytes, 0, 0)
    out = b""
    for kind, value in ((TCA_HTB_RATE64, rate), (TCA_HTB_CEIL64, ceil)):
        if value > 0xFFFFFFFF:
            out += _attribute(kind, struct.pack("=Q", value))
    return out + _attribute(TCA_HTB_PARMS, parameters)


def _ratespec(rate_bytes: int) -> bytes:
    # With the link layer named, the kernel computes times itself and wants no rate table. Neither
    # mpu nor overhead: a frame counts with its 14-byte header, as in jobs.wire.
    return _RATESPEC.pack(0, LINKLAYER_ETHERNET, 0, 0, 0, min(rate_bytes, 0xFFFFFFFF))


def link_up_message(ifindex: int = 0) -> bytes:
    """``ip link set DEV up``."""
    return _message(RTM_NEWLINK, 0, _IFINFO.pack(0, 0, ifindex, IFF_UP, IFF_UP))


def gso_message(size_bytes: int, ifindex: int = 0) -> bytes:
    """``ip link set DEV gso_max_size SIZE``."""
    size = _attribute(IFLA_GSO_MAX_SIZE, struct.pack("=I", size_bytes))
    return _message(RTM_NEWLINK, 0, _IFINFO.pack(0, 0, ifindex, 0, 0) + size)


def address_message(address: IPv4Interface, *, add: bool, ifindex: int = 0) -> bytes:
    """``ip address add|delete IP/LEN dev DEV``."""
    body = _IFADDR.pack(socket.AF_INET, address.network.prefixlen, 0, 0, ifindex)
    body += _attribute(2, address.packed) + _attribute(1, address.packed)
    flags = NLM_F_CREATE | NLM_F_EXCL if add else 0
    return _message(RTM_NEWADDR if add else RTM_DELADDR, flags, body)


def prefix_route_message(address: IPv4Interface, initcwnd: int, *, ifindex: int = 0) -> bytes:
    """``ip route replace PREFIX dev DEV proto kernel scope link src IP initcwnd SEGMENTS``."""
    prefix = address.network
    window = _attribute(RTAX_INITCWND, struct.pack("=I", initcwnd))
    body = _RTMSG.pack(
        socket.AF_INET, prefix.prefixlen, 0, 0, RT_TABLE_MAIN, RTPROT_KERNEL, RT_SCOPE_LINK,
        RTN_UNICAST, 0,
    )  # fmt: skip
    body += _attribute(RTA_DST, prefix.network_address.packed) + _attribute(
        RTA_OIF, struct.pack("=i", ifindex)
    )
    body += _attribute(RTA_PREFSRC, address.packed) + _attribute(RTA_METRICS, window)
    return _message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, body)


def neighbour_message(ip: IPv4Address, mac: str, *, add: bool, ifindex: int = 0) -> bytes:
    """``ip neighbour add IP lladdr MAC dev DEV nud permanent``, or its deletion."""
    body = _NDMSG.pack(socket.AF_INET, ifindex, NUD_PERMANENT, 0, 0) + _attribute(1, ip.packed)
    if not add:
        return _message(RTM_DELNEIGH, 0, body)
    body += _attribute(2, bytes.fromhex(mac.replace(":", "")))
    return _message(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_EXCL, body)


def dump_message() -> bytes:
    """Every queueing discipline of the namespace, with what it has counted."""
    return _message(RTM_GETQDISC, NLM_F_DUMP, TCMSG.pack(0, 0, 0, 0, 0))


def aimed(message: bytes, ifindex: int) -> bytes:
    """The same request for another device: every body here has its index at one place."""
    return message[:_INDEX_AT] + struct.pack("=i", ifindex) + message[_INDEX_AT + 4 :]


# ----------------------------------------------------------------------------------- sockets


NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_ACK, NLM_F_ACK_TLVS = 0x4, 0x200
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK, NLMSGERR_ATTR_MSG = 270, 10, 11, 1
TCA_STATS2 = 7
TCA_STATS_BASIC, TCA_STATS_QUEUE = 1, 3

_BASIC = struct.Struct("=QI")
_QUEUE = struct.Struct("=IIIII")
_FLAGS_AT, _SEQUENCE_AT = 6, 8
_SEND_BYTES = 32_768
_RECEIVE_BYTES = 1 << 20


@dataclass(frozen=True)
class QdiscCounters:
    """Counters of one queueing discipline. ``direct_packets`` is HTB's: sent unshaped."""

    ifindex: int
    handle: int
    parent: int
    kind: str
    sent_bytes: int
    drops: int
    overlimits: int
    backlog_bytes: int
    direct_packets: int


@dataclass(frozen=True)
class Refusal:
    """One request that the kernel refused: its place in what was sent, from 0, and why."""

    position: int
    number: int
    reason: str


class RouteSocket:
    """A routing socket in the namespace this thread is in when it is made; closed on exec."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        # Refusals with the kernel's message, without the request they are about.
        self._socket.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        self._socket.settimeout(10.0)
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def request(self, messages: Sequence[bytes]) -> list[Refusal]:
        """Have the kernel do all of it, in order; returns what it refused.

        A refused request does not keep those after it from being done.
        """
        refused: list[Refusal] = []
        data = bytearray()
        first = 0
        for position, message in enumerate(messages):
            data += message
            if len(data) > _SEND_BYTES or position == len(messages) - 1:
                refused += self._exchange(data, first)
                data = bytearray()
                first = position + 1
        return refused

    def _exchange(self, data: bytearray, first: int) -> list[Refusal]:
        """One datagram. Only its last request sets NLM_F_ACK: errors are reported without it."""
        before = self._sequence
        at = last_at = 0
        while at < len(data):
            (size,) = struct.unpack_from("=I", data, at)
            self._sequence += 1
            struct.pack_into("=I", data, at + _SEQUENCE_AT, self._sequence)
            last_at, at = at, at + size
        (flags,) = struct.unpack_from("=H", data, last_at + _FLAGS_AT)
        struct.pack_into("=H", data, last_at + _FLAGS_AT, flags | NLM_F_ACK)
        self._socket.send(data)
        refused = []
        while True:
            for kind, flags, sequence, payload in self._receive():
                if kind != NLMSG_ERROR or sequence <= before:
                    continue
                number = -struct.unpack_from("=i", payload)[0]
                if number:
                    position = first + sequence - before - 1
                    refused.append(Refusal(position, number, _reason(number, flags, payload)))
                if sequence == self._sequence:
                    return refused

    def qdiscs(self) -> list[QdiscCounters]:
        """Counters of every queueing discipline in the namespace, in one dump."""
        self._sequence += 1
        message = bytearray(dump_message())
        struct.pack_into("=I", message, 8, self._sequence)
        self._socket.send(message)
        found: list[QdiscCounters] = []
        while True:
            for kind, flags, sequence, payload in self._receive():
                if sequence != self._sequence:
                    continue
                if kind == NLMSG_DONE:
                    return found
                if kind == NLMSG_ERROR:
                    number = -struct.unpack_from("=i", payload)[0]
                    raise OSError(number, _reason(number, flags, payload))
                found.append(_counters(payload))

    def _receive(self) -> Iterator[tuple[int, int, int, memoryview]]:
        try:
            data = memoryview(self._socket.recv(_RECEIVE_BYTES))
        except TimeoutError as error:
            raise OSError(errno.ETIMEDOUT, "the kernel did not answer a netlink request") from error
        at = 0
        while at < len(data):
            size, kind, flags, sequence, _ = HEADER.unpack_from(data, at)
            yield kind, flags, sequence, data[at + HEADER.size : at + size]
            at += (size + 3) & ~3


def _reason(number: int, flags: int, payload: memoryview) -> str:
    """The kernel's own message where it has any."""
    if flags & NLM_F_ACK_TLVS:
        message = _attributes(payload[4 + HEADER.size :]).get(NLMSGERR_ATTR_MSG)
        if message is not None:
            return bytes(message).rstrip(b"\0").decode(errors="replace")
    return os.strerror(number)


def _attributes(data: memoryview) -> dict[int, memoryview]:
    out = {}
    at = 0
    while at + 4 <= len(data):
        size, kind = ATTRIBUTE.unpack_from(data, at)
        out[kind & 0x3FFF] = data[at + 4 : at + size]
        at += (size + 3) & ~3
    return out


def _counters(payload: memoryview) -> QdiscCounters:
    _, ifindex, handle, parent, _ = TCMSG.unpack_from(payload)
    attributes = _attributes(payload[TCMSG.size :])
    kind = bytes(attributes[TCA_KIND]).rstrip(b"\0").decode()
    sent = backlog = drops = overlimits = direct = 0
    if TCA_STATS2 in attributes:
        stats = _attributes(attributes[TCA_STATS2])
        sent = _BASIC.unpack_from(stats[TCA_STATS_BASIC])[0]
        _, backlog, drops, _, overlimits = _QUEUE.unpack_from(stats[TCA_STATS_QUEUE])
    if kind == "htb":
        init = _attributes(attributes[TCA_OPTIONS])[TCA_HTB_INIT]
        direct = struct.unpack_from("=I", init, 16)[0]
    return QdiscCounters(ifindex, handle, parent, kind, sent, drops, overlimits, backlog, direct)
