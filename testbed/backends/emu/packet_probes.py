"""Packets between tenants' VMs that must arrive, and packets that must not.

A probe is an ICMP echo request with a mark and a number, which the receiver's
kernel returns. This module makes the frame itself, because a VM's kernel would
forge none. The frame bypasses the VM's cap. The devices of all VMs are watched
for its arrival.
"""

from __future__ import annotations

import ctypes
import os
import resource
import selectors
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from jobs.linux import inside_network_namespace
from testbed.backends.emu.traffic_control import NETNS_DIR
from testbed.plan.batch_lines import VM_DEVICE

# From <linux/if_ether.h>, <linux/if_packet.h> and <asm/socket.h>.
ETH_P_ALL = 0x0003
ETH_P_IP = 0x0800
ETH_P_VLAN = 0x8100
SOL_PACKET = 263
PACKET_QDISC_BYPASS = 20
PACKET_IGNORE_OUTGOING = 23
SO_ATTACH_FILTER = 26
ECHO_REQUEST = 8
FRAME_BYTES = 334
"""Length of every probe without a VLAN tag. Hardly any other frame has it, so
that the sockets' filters can pass frames by their length.
"""
ETHERNET_BYTES = 14
_ICMP = struct.Struct("!BBHHH")
_IP = struct.Struct("!BBHHHBBH4s4s")
FORGED_MAC = "02:48:4e:ff:ff:fe"
# All pairs of up to so many things are tried; of more, neighbours in a ring.
MOST_IN_PAIRS = 8
ROUNDS = 5
# How long a round waits for arrivals, round trips by links' delay not counted.
ROUND_S = 0.3
# For each socket: more frames than its buffer holds.
LATE_FRAMES = 1_000
# So many probes are sent before arrivals are read.
AT_ONCE = 64
# A packet that must not arrive is sent in so many rounds: a single one may get
# lost for another reason.
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
    """A packet from one VM to another.

    The frame has ``source_ip``, ``source_mac`` and, unless ``vlan`` is 0, a VLAN
    tag. ``forged`` says in words which of them is forged; empty if none is.
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
        """The whole frame: FRAME_BYTES, and 4 more with a VLAN tag."""
        head_bytes = ETHERNET_BYTES + _IP.size + _ICMP.size
        body = mark.ljust(FRAME_BYTES - head_bytes, b"\0")
        echo = _ICMP.pack(ECHO_REQUEST, 0, 0, 1, 1)
        icmp = _with_checksum(echo + body, at=2)
        ip = _IP.pack(
            0x45,  # version 4, five words of header
            0,  # type of service
            _IP.size + len(icmp),
            0,  # identification
            0,  # flags, offset of a fragment
            64,  # hops
            socket.IPPROTO_ICMP,
            0,  # checksum, set below
            socket.inet_aton(self.source_ip),
            socket.inet_aton(self.receiver.ip),
        )
        frame = _mac_bytes(self.receiver.mac) + _mac_bytes(self.source_mac)
        if self.vlan:
            frame += struct.pack("!HH", ETH_P_VLAN, self.vlan)
        frame += ETH_P_IP.to_bytes(2, "big")
        return frame + _with_checksum(ip, at=10) + icmp


def _mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def _with_checksum(data: bytes, at: int) -> bytes:
    """Data with their Internet checksum (RFC 1071) in the two bytes from ``at``
    on, which have to be 0. The length of the data has to be even.
    """
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return data[:at] + struct.pack("!H", ~total & 0xFFFF) + data[at + 2 :]


def pairs(things: Sequence[Thing]) -> Iterator[tuple[Thing, Thing]]:
    """Ordered pairs: all pairs of a few things; of more than MOST_IN_PAIRS, each
    with its two neighbours in a ring.
    """
    n = len(things)
    steps: Sequence[int] = range(1, n)
    if n > MOST_IN_PAIRS:
        steps = (1, n - 1)
    for i, thing in enumerate(things):
        for step in steps:
            yield thing, things[(i + step) % n]


def probes(tenants: Sequence[Sequence[Vm]]) -> Iterator[Probe]:
    """Probes among the VMs of tenants: within a tenant, which must arrive, and
    forged ones and those between tenants, which must not.
    """
    for vms in tenants:
        for sender, receiver in pairs(vms):
            yield _probe("reachability", sender, receiver)
        # Each VM sends forged probes to the next VM, the last VM to the first.
        for index, sender in enumerate(vms):
            receiver = vms[(index + 1) % len(vms)]
            if sender is not receiver:
                yield from _forged_probes(sender, receiver)
    # All pairs of VMs would be too many: of each pair of tenants one VM sends
    # to one VM, and a tenant's VMs take turns.
    for number, (senders, receivers) in enumerate(pairs(tenants)):
        sender = senders[number % len(senders)]
        receiver = receivers[number % len(receivers)]
        yield _probe("isolation", sender, receiver)
        yield _with_receivers_address(sender, receiver)


def _probe(kind: Kind, sender: Vm, receiver: Vm) -> Probe:
    return Probe(
        kind,
        sender,
        receiver,
        source_ip=sender.ip,
        source_mac=sender.mac,
    )


def _with_receivers_address(sender: Vm, receiver: Vm) -> Probe:
    probe = _probe("anti-spoofing", sender, receiver)
    forged = " with the receiver's address"
    return replace(probe, source_ip=receiver.ip, forged=forged)


def _forged_probes(sender: Vm, receiver: Vm) -> Iterator[Probe]:
    probe = _probe("anti-spoofing", sender, receiver)
    yield _with_receivers_address(sender, receiver)
    yield replace(probe, source_mac=FORGED_MAC, forged=" with another MAC")
    yield replace(probe, vlan=1, forged=" with a VLAN tag")


def faults(tried: Sequence[Probe], round_trip_s: float = 0.0) -> list[str]:
    """Sends probes; returns for each the fault of its arrival, empty if there is
    none.

    ``round_trip_s``: the longest round trip by links' delay. Raises OSError
    where a VM's namespace is gone.
    """
    with ExitStack() as stack:
        rounds = _Rounds(stack, tried)
        for number in range(ROUNDS):
            # After a round without a probe no later round has one.
            if not rounds.send(number):
                break
            rounds.receive(ROUND_S + round_trip_s)
    arrivals = rounds.arrivals
    return [arrivals.fault(n, probe) for n, probe in enumerate(tried)]


class _Rounds:
    """Sockets on the devices of all VMs, by which probes are sent and watched.

    ``stack`` closes them.
    """

    def __init__(self, stack: ExitStack, tried: Sequence[Probe]) -> None:
        self.arrivals = ProbeArrivals(os.urandom(8))
        self._tried = tried
        self._sockets: dict[str, socket.socket] = {}
        # A socket for each VM: more files than the 1,024 of many a shell.
        _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
        self._selector = stack.enter_context(selectors.DefaultSelector())
        for probe in tried:
            for vm in (probe.sender, probe.receiver):
                if vm.name in self._sockets:
                    continue
                opened = _listening(vm, stack)
                self._selector.register(
                    opened, selectors.EVENT_READ, vm.name
                )
                self._sockets[vm.name] = opened

    def send(self, round_number: int) -> int:
        """Sends the probes of a round; returns their number, in which those count
        too that a device did not take.
        """
        n_probes = 0
        for number, probe in enumerate(self._tried):
            if not self.arrivals.wants(number, probe, round_number):
                continue
            # Without room in the device's queue the next round tries again.
            with suppress(OSError):
                frame = probe.frame(self.arrivals.mark(number))
                self._sockets[probe.sender.name].send(frame)
                self.arrivals.sent.add(number)
            n_probes += 1
            # Sockets' buffers hold few frames: arrivals are read in between.
            if n_probes % AT_ONCE == 0:
                self.receive(timeout_s=0.0)
        return n_probes

    def receive(self, timeout_s: float) -> None:
        _receive(self._selector, self.arrivals, timeout_s)


def _receive(
    selector: selectors.BaseSelector,
    arrivals: ProbeArrivals,
    timeout_s: float,
) -> None:
    """Notes arrivals until the time is over, and then the frames that still wait
    to be read.

    Their number is bounded, as a program in a VM may send frames of a probe's
    length without end. Their time is not: if this process had no processor for
    long, many frames wait.
    """
    until_s = time.monotonic() + timeout_s
    late_frames = LATE_FRAMES * len(selector.get_map())
    while late_frames > 0:
        left_s = max(0.0, until_s - time.monotonic())
        ready = selector.select(left_s)
        if not ready:
            return
        if left_s == 0.0:
            late_frames -= len(ready)
        for key, _ in ready:
            # Once a device is taken down, its socket's next read fails.
            with suppress(OSError):
                frame = os.read(key.fd, 2 * FRAME_BYTES)
                arrivals.note(key.data, frame)


class ProbeArrivals:
    """Arrivals of probes, as requests and as replies, at VMs.

    A probe's number is its place in the list of all.
    ``token``: eight bytes that no other packet has.
    """

    def __init__(self, token: bytes) -> None:
        self._token = token
        self.sent: set[int] = set()
        """Numbers of probes that a device took."""
        # VMs that a probe's request or reply has reached, by the probe's number
        # and True for the request, False for the reply.
        self._vms_reached: dict[tuple[int, bool], set[str]] = defaultdict(
            set
        )

    def mark(self, number: int) -> bytes:
        """The beginning of a probe's body, by which its arrivals are known."""
        return self._token + number.to_bytes(4, "big")

    def note(self, vm: str, frame: bytes) -> None:
        """Records a frame's arrival at a VM, if it is that of a probe."""
        headers, token, after = frame.partition(self._token)
        if not token or len(headers) < _ICMP.size:
            return
        number = int.from_bytes(after[:4], "big")
        # A reply has the request's body, but another ICMP type: the first byte
        # of the ICMP header, which is the last header.
        is_request = headers[-_ICMP.size] == ECHO_REQUEST
        self._vms_reached[number, is_request].add(vm)

    def wants(self, number: int, probe: Probe, round_number: int) -> bool:
        """True if a probe is to be sent in a round. The first round is 0."""
        if probe.kind == "reachability":
            return bool(self.fault(number, probe))
        return round_number < FORBIDDEN_ROUNDS or number not in self.sent

    def fault(self, number: int, probe: Probe) -> str:
        """The fault of a probe's arrival so far; empty if there is none."""
        asked = self._vms_reached[number, True]
        answered = self._vms_reached[number, False]
        if probe.kind != "reachability":
            if number not in self.sent:
                return f"{probe}: could not be sent"
            places = " ".join(sorted(asked | answered))
            return f"{probe}: arrives at {places}" if places else ""
        if probe.receiver.name not in asked:
            return f"{probe}: nothing arrives"
        if probe.sender.name not in answered:
            return f"{probe}: no answer arrives"
        return ""


def _listening(vm: Vm, stack: ExitStack) -> socket.socket:
    """A packet socket at a VM's device, for frames as long as a probe; ``stack``
    closes it.
    """
    # Classic BPF. A jump skips as many lines as its second number says if the
    # length is equal, else as many as its third.
    program = (
        (0x80, 0, 0, 0),  # load the frame's length
        (0x15, 1, 0, FRAME_BYTES),  # jump
        (0x15, 0, 1, FRAME_BYTES + 4),  # jump: the length with a VLAN tag
        (0x06, 0, 0, 0xFFFF),  # pass the frame
        (0x06, 0, 0, 0),  # drop it
    )
    lines = [struct.pack("HBBI", *line) for line in program]
    # A variable: setsockopt reads the buffer by its address.
    code = ctypes.create_string_buffer(b"".join(lines))
    fprog = struct.pack("HL", len(program), ctypes.addressof(code))
    with inside_network_namespace(NETNS_DIR / vm.netns):
        # Protocol 0: it receives nothing until it has its filter and is bound.
        opened = stack.enter_context(
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        )
    opened.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, fprog)
    opened.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
    # Otherwise a probe would seem to have arrived at its own sender.
    opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    opened.bind((VM_DEVICE, ETH_P_ALL))
    return opened
