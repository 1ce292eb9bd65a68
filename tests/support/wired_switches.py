"""Fake switches with cables between them: what one is told to send, the next hears of.

They have ports, count nothing, and keep every message that came; flows are not interpreted.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

from controller import openflow13
from controller.flow_rules import Match
from tests.support.fake_openflow import FakeConnection
from tests.support.fake_switch import FakeSwitch

PACKET_IN, PORT_STATUS, PACKET_OUT = 10, 12, 13
FLOW_MOD, GROUP_MOD, METER_MOD = 14, 15, 29
OFPMP_PORT_DESC = 13
FLOOD = 0xFFFFFFFB
_PACKET_IN = struct.Struct("!IHBBQ")
_PACKET_OUT = struct.Struct("!IIH6x")
_PORT = struct.Struct("!I4x6s2x16sIIIIIIII")
_OUTPUT = struct.Struct("!HHIH6x")
_PORT_MODIFIED, _LINK_DOWN = 2, 1
_GIGABIT_KBPS = 1_000_000


class WiredSwitch(FakeConnection):
    """A switch of ports 1 to `n_ports`; `wire` connects two of different switches."""

    def __init__(self, dpid: int, n_ports: int, port: int) -> None:
        self.cables: dict[int, tuple[WiredSwitch, int]] = {}
        self.came: list[tuple[int, bytes]] = []
        ports = range(1, n_ports + 1)
        super().__init__(FakeSwitch(dpid, ports), port)

    def bodies(self, kind: int) -> list[bytes]:
        """Messages of a kind that came, without their head."""
        return [data[8:] for known, data in self.came if known == kind]

    def until(self, kind: int, part: bytes) -> bytes:
        """The first message of that kind with that part, once it is there."""
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            for body in self.bodies(kind):
                if part in body:
                    return body
            time.sleep(0.05)
        raise AssertionError((kind, part, self.came))

    def packet_in(self, in_port: int, frame: bytes) -> None:
        """Tells the controller of a frame that no flow matches."""
        head = _PACKET_IN.pack(
            openflow13.OFP_NO_BUFFER, len(frame), 0, 0, 0
        )
        match = openflow13.encode_match(Match(in_port=in_port))
        # OpenFlow has two bytes between match and frame: they align the
        # addresses behind an Ethernet header.
        body = head + match + bytes(2) + frame
        self._send(openflow13.message(PACKET_IN, 5, body))

    def take_down(self, port: int) -> None:
        """Tells the controller that a port has no link."""
        body = struct.pack("!B7x", _PORT_MODIFIED)
        body += self._port(port, _LINK_DOWN)
        self._send(openflow13.message(PORT_STATUS, 6, body))

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            # Its controller has ended.
            self._socket.shutdown(socket.SHUT_RDWR)

    def _port(self, number: int, state: int = 0) -> bytes:
        mac = bytes([2, 0, 0, 1, self.switch.dpid, number])
        speeds = (_GIGABIT_KBPS, _GIGABIT_KBPS)
        # OFPPF_1GB_FD: 1 Gbit/s, full duplex.
        features = (1 << 5,) * 4
        name = f"s{self.switch.dpid}-eth{number}".encode()
        return _PORT.pack(number, mac, name, 0, state, *features, *speeds)

    def _replies(self, kind: int, xid: int, data: bytes) -> Iterator[bytes]:
        self.came.append((kind, data))
        if kind == PACKET_OUT:
            self._forward(data[openflow13.HEADER.size :])
        elif kind != FLOW_MOD:
            yield from super()._replies(kind, xid, data)

    def _forward(self, body: bytes) -> None:
        _, in_port, length = _PACKET_OUT.unpack_from(body)
        frame = body[_PACKET_OUT.size + length :]
        for start in range(_PACKET_OUT.size, _PACKET_OUT.size + length, 16):
            _, _, port, _ = _OUTPUT.unpack_from(body, start)
            ports = [port]
            if port == FLOOD:
                ports = [other for other in self.cables if other != in_port]
            for number in ports:
                if number in self.cables:
                    peer, its_port = self.cables[number]
                    peer.packet_in(its_port, frame)

    def _statistics(self, xid: int, data: bytes) -> Iterator[bytes]:
        asked, _ = openflow13.MULTIPART.unpack_from(
            data, openflow13.HEADER.size
        )
        if asked != OFPMP_PORT_DESC:
            yield from super()._statistics(xid, data)
            return
        body = openflow13.MULTIPART.pack(asked, 0)
        for number in sorted(self.switch.ports):
            body += self._port(number)
        yield openflow13.message(openflow13.OFPT_MULTIPART_REPLY, xid, body)


def wire(
    first: WiredSwitch, port: int, second: WiredSwitch, other: int
) -> None:
    """A cable between two ports."""
    first.cables[port] = (second, other)
    second.cables[other] = (first, port)
