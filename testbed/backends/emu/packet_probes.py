"""Packets between tenants' VMs that must arrive, and packets that must not.

Each is an ICMP echo request with a mark and a number. It is crafted, since a VM's own kernel sends
nothing forged, passes by the VM's cap, and is looked for at the devices of all VMs; the kernel of
its receiver answers.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Literal, TypeVar

from jobs.linux import inside_network_namespace
from testbed.backends.emu.traffic_control import NETNS_DIR
from testbed.plan.batch_lines import VM_DEVICE

ETH_P_ALL, ETH_P_IP, ETH_P_VLAN = 0x0003, 0x0800, 0x8100
SOL_PACKET, PACKET_QDISC_BYPASS, PACKET_IGNORE_OUTGOING = 263, 20, 23
SO_ATTACH_FILTER = 26
ECHO_REQUEST = 8
FRAME_BYTES = 334
"""Of every probe: a length that the kernel can tell it by before anything is copied."""
_ETHERNET, _ICMP = struct.Struct("!6s6sH"), struct.Struct("!BBHHH")
_IP = struct.Struct("!BBHHHBBH4s4s")
FORGED_MAC = "02:48:4e:ff:ff:fe"
# All pairs of few things; of more, each with its neighbours in a ring.
MOST_IN_PAIRS = 8
ROUNDS, ROUND_S, AT_ONCE = 5, 0.3, 64
# A packet that must not arrive is sent in as many rounds: one may be lost for another reason.
FORBIDDEN_ROUNDS = 2

Kind = Literal["reachability", "isolation", "anti-spoofing"]
Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Vm:
    """A tenant's VM; ``netns`` is the name of its namespace."""

    name: str
    netns: str
    ip: str
    mac: str


@dataclass(frozen=True)
class Probe:
    """A packet from one VM to another. ``forged``: which of its own it does not have; then its
    source address, MAC and VLAN tag (0: none) say what in their place.
    """

    kind: Kind
    sender: Vm
    receiver: Vm
    source_ip: str
    source_mac: str
    vlan: int = 0
    forged: str = ""

    def __str__(self) -> str:
        return f"{self.sender.name} to {self.receiver.name}{self.forged}"

    def frame(self, mark: bytes) -> bytes:
        """The whole frame; a VLAN tag comes on top of its length."""
        body = mark.ljust(FRAME_BYTES - _ETHERNET.size - _IP.size - _ICMP.size, b"\0")
        icmp = _checked(_ICMP.pack(ECHO_REQUEST, 0, 0, 1, 1) + body, at=2)
        ends = socket.inet_aton(self.source_ip), socket.inet_aton(self.receiver.ip)
        fixed = 0x45, 0, _IP.size + len(icmp), 0, 0, 64, socket.IPPROTO_ICMP, 0
        macs = [bytes.fromhex(x.replace(":", "")) for x in (self.receiver.mac, self.source_mac)]
        tag = struct.pack("!HH", ETH_P_VLAN, self.vlan) if self.vlan else b""
        kind = ETH_P_IP.to_bytes(2, "big")
        return b"".join((*macs, tag, kind, _checked(_IP.pack(*fixed, *ends), at=10), icmp))


def _checked(data: bytes, at: int) -> bytes:
    """Data of an even number of bytes with its Internet checksum (RFC 1071) in the place of 0."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return data[:at] + struct.pack("!H", ~total & 0xFFFF) + data[at + 2 :]


def pairs(things: Sequence[Thing]) -> Iterator[tuple[Thing, Thing]]:
    """Ordered pairs: all of a few; of more, each with both neighbours in a ring."""
    n = len(things)
    steps = range(1, n) if n <= MOST_IN_PAIRS else (1, n - 1)
    return ((things[i], things[(i + step) % n]) for i in range(n) for step in steps)


def probes(tenants: Sequence[Sequence[Vm]]) -> Iterator[Probe]:
    """Packets that have to be tried between the VMs of tenants."""
    for vms in tenants:
        for a, b in pairs(vms):
            yield Probe("reachability", a, b, a.ip, a.mac)
        for a, b in zip(vms, (*vms[1:], vms[0]), strict=True):
            if a is not b:
                yield Probe("anti-spoofing", a, b, b.ip, a.mac, 0, " with the receiver's address")
                yield Probe("anti-spoofing", a, b, a.ip, FORGED_MAC, 0, " with another MAC")
                yield Probe("anti-spoofing", a, b, a.ip, a.mac, 1, " with a VLAN tag")
    for number, (ours, others) in enumerate(pairs(tenants)):
        a, b = ours[number % len(ours)], others[number % len(others)]
        yield Probe("isolation", a, b, a.ip, a.mac)
        yield Probe("anti-spoofing", a, b, b.ip, a.mac, 0, " with the receiver's address")


def faults(tried: Sequence[Probe]) -> list[str]:
    """Send the packets; returns for each what is wrong with its arrival, empty if nothing.

    Raises OSError where a VM's namespace is gone.
    """
    vms = {vm.name: vm for probe in tried for vm in (probe.sender, probe.receiver)}
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        sockets = {name: stack.enter_context(_listening(vm)) for name, vm in vms.items()}
        for name, each in sockets.items():
            selector.register(each, selectors.EVENT_READ, name)
        seen = Arrivals(os.urandom(8))
        for attempt in range(ROUNDS):
            wanted = [n for n, probe in enumerate(tried) if seen.wants(n, probe, attempt)]
            for i, n in enumerate(wanted):
                with suppress(OSError):  # no room: the next round comes
                    sockets[tried[n].sender.name].send(tried[n].frame(seen.mark(n)))
                if i % AT_ONCE == AT_ONCE - 1:
                    _take(selector, seen, 0.0)
            _take(selector, seen, ROUND_S if wanted else 0.0)
    return [seen.fault(n, probe) for n, probe in enumerate(tried)]


def _take(selector: selectors.BaseSelector, seen: Arrivals, timeout_s: float) -> None:
    until = time.monotonic() + timeout_s
    while ready := selector.select(max(0.0, until - time.monotonic())):
        for key, _ in ready:
            seen.note(key.data, os.read(key.fd, 2 * FRAME_BYTES))


class Arrivals:
    """Which probes have arrived at which VMs, as requests and as answers."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._at: dict[tuple[int, bool], set[str]] = defaultdict(set)

    def mark(self, number: int) -> bytes:
        """The beginning of a probe's body."""
        return self._token + number.to_bytes(4, "big")

    def note(self, vm: str, frame: bytes) -> None:
        """Take in a frame, if it is a probe of ours."""
        at = frame.find(self._token)
        if at >= _ICMP.size:
            number = int.from_bytes(frame[at + 8 : at + 12], "big")
            self._at[number, frame[at - _ICMP.size] == ECHO_REQUEST].add(vm)

    def wants(self, number: int, probe: Probe, attempt: int) -> bool:
        """True if a probe is to be sent in this round, the first being 0."""
        if probe.kind == "reachability":
            return bool(self.fault(number, probe))
        return attempt < FORBIDDEN_ROUNDS

    def fault(self, number: int, probe: Probe) -> str:
        """The fault of a probe's arrival so far; empty if there is none."""
        asked, answered = self._at[number, True], self._at[number, False]
        if probe.kind != "reachability":
            where = " ".join(sorted(asked | answered))
            return f"{probe}: arrives at {where}" if where else ""
        if probe.receiver.name not in asked:
            return f"{probe}: nothing arrives"
        return "" if probe.sender.name in answered else f"{probe}: no answer arrives"


def _listening(vm: Vm) -> socket.socket:
    """A packet socket at a VM's device, for what comes in and is as long as a probe."""
    # Load the length; if it is neither of the two go to the last line, which drops.
    lengths = (0x15, 1, 0, FRAME_BYTES), (0x15, 0, 1, FRAME_BYTES + 4)
    program = (0x80, 0, 0, 0), *lengths, (0x06, 0, 0, 0xFFFF), (0x06, 0, 0, 0)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    with inside_network_namespace(NETNS_DIR / vm.netns):
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    fprog = struct.pack("HL", len(program), ctypes.addressof(code))
    opened.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, fprog)
    for option in (PACKET_QDISC_BYPASS, PACKET_IGNORE_OUTGOING):
        opened.setsockopt(SOL_PACKET, option, 1)
    opened.bind((VM_DEVICE, ETH_P_ALL))
    return opened
