"""Routing sockets: requests sent to the kernel without a process for each, counters read back.

A tenant of 32 VMs needs a limit, an address and 31 neighbours in 32 namespaces. Forking a command
for each takes a second; messages packed once (:mod:`testbed.backends.emu.messages`) and sent on
sockets that stay open take a few milliseconds.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.backends.emu.messages import ATTRIBUTE, HEADER, TCMSG, dump_message

NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_ACK, NLM_F_ACK_TLVS = 0x4, 0x200
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK, NLMSGERR_ATTR_MSG = 270, 10, 11, 1
TCA_KIND, TCA_OPTIONS, TCA_STATS2, TCA_HTB_INIT = 1, 2, 7, 2
TCA_STATS_BASIC, TCA_STATS_QUEUE = 1, 3
CLONE_NEWNET = 0x40000000

_BASIC = struct.Struct("=QI")
_QUEUE = struct.Struct("=IIIII")
_FLAGS_AT, _SEQUENCE_AT = 6, 8
_SEND_BYTES = 32_768
_RECEIVE_BYTES = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def inside(netns: Path) -> Iterator[None]:
    """This thread in another network namespace. Python 3.11 has no ``os.setns``."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _setns(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _setns(home)
    finally:
        os.close(home)


def _setns(descriptor: int) -> None:
    if _libc.setns(descriptor, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@dataclass(frozen=True)
class QdiscCounters:
    """What one queueing discipline has counted. ``direct_packets`` is HTB's: sent unshaped."""

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
        # Refusals with the kernel's words, without the request they are about.
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
        """One datagram. Only its last request asks to be acknowledged: refusals come anyway."""
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
    """The kernel's own words where it has any."""
    if flags & NLM_F_ACK_TLVS:
        said = _attributes(payload[4 + HEADER.size :]).get(NLMSGERR_ATTR_MSG)
        if said is not None:
            return bytes(said).rstrip(b"\0").decode(errors="replace")
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
