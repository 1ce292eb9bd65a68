"""Frames that a program in a VM can make up, root or not: 21 kinds.

All are for a VM of another tenant. A mark in each tells it from the others.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

MARK = b"adversary:"
LEAST_BYTES = 60
UNKNOWN_MAC = "02:48:4e:ff:ff:fe"
BROADCAST = "ff:ff:ff:ff:ff:ff"
ETH_IP, ETH_ARP, ETH_RARP = 0x0800, 0x0806, 0x8035
ETH_VLAN, ETH_IPV6, ETH_MPLS = 0x8100, 0x86DD, 0x8847
ETH_PROVIDER, ETH_LLDP = 0x88A8, 0x88CC


@dataclass(frozen=True)
class Station:
    """Addresses of a VM."""

    ip: str
    mac: str


@dataclass(frozen=True)
class Scene:
    """The attacker, a VM of his own tenant, the victim, and the victim's
    neighbour, whom he may pretend to be.
    """

    attacker: Station
    friend: Station
    victim: Station
    neighbour: Station


def mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def ethernet(to: str, source: str, kind: int, body: bytes) -> bytes:
    head = mac_bytes(to) + mac_bytes(source) + struct.pack("!H", kind)
    return (head + body).ljust(LEAST_BYTES, b"\0")


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071) of data of even length."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return int(~total & 0xFFFF)


def ipv4(
    source: str,
    to: str,
    mark: bytes,
    *,
    options: bytes = b"",
) -> bytes:
    """A datagram with a mark as its payload."""
    payload = struct.pack("!HHHH", 9, 9, 8 + len(mark), 0) + mark
    words = 5 + len(options) // 4
    head = struct.pack(
        "!BBHHHBBH4s4s",
        (4 << 4) | words,
        0,
        4 * words + len(payload),
        0,
        0,
        64,
        socket.IPPROTO_UDP,
        0,
        socket.inet_aton(source),
        socket.inet_aton(to),
    )
    head += options
    total = struct.pack("!H", checksum(head))
    return head[:10] + total + head[12:] + payload


def arp(operation: int, source: Station, to: Station, mark: bytes) -> bytes:
    head = struct.pack("!HHBBH", 1, ETH_IP, 6, 4, operation)
    body = mac_bytes(source.mac) + socket.inet_aton(source.ip)
    body += mac_bytes(to.mac) + socket.inet_aton(to.ip)
    return head + body + mark


Frame = Callable[[Scene, bytes], bytes]


def _own(scene: Scene, mark: bytes) -> bytes:
    return ipv4(scene.attacker.ip, scene.victim.ip, mark)


def _as_neighbour(scene: Scene, mark: bytes) -> bytes:
    return ipv4(scene.neighbour.ip, scene.victim.ip, mark)


def _sent(scene: Scene, kind: int, body: bytes) -> bytes:
    return ethernet(scene.victim.mac, scene.attacker.mac, kind, body)


def _to_group(scene: Scene, mac: str, kind: int, body: bytes) -> bytes:
    return ethernet(mac, scene.attacker.mac, kind, body)


def _source_route(scene: Scene, mark: bytes) -> bytes:
    hop = socket.inet_aton(scene.friend.ip)
    options = struct.pack("!BBB", 131, 7, 4) + hop + b"\0"
    return ipv4(scene.attacker.ip, scene.victim.ip, mark, options=options)


def _tag(
    scene: Scene, tag: int, body: bytes, kind: int = ETH_VLAN
) -> bytes:
    inner = struct.pack("!HH", tag, ETH_IP) + body
    return _sent(scene, kind, inner)


def _double_tag(scene: Scene, mark: bytes) -> bytes:
    inner = struct.pack("!HHH", 1, ETH_VLAN, 1) + struct.pack("!H", ETH_IP)
    return _sent(scene, ETH_PROVIDER, inner + _as_neighbour(scene, mark))


def _ipv6(scene: Scene, mark: bytes) -> bytes:
    all_nodes = bytes.fromhex("ff02" + "00" * 13 + "01")
    own = bytes.fromhex("fe80" + "00" * 13 + "07")
    head = struct.pack("!IHBB", 6 << 28, len(mark), 59, 255)
    body = head + own + all_nodes + mark
    return _to_group(scene, "33:33:00:00:00:01", ETH_IPV6, body)


def _spanning_tree(scene: Scene, mark: bytes) -> bytes:
    body = b"\x42\x42\x03" + bytes(35) + mark
    return _to_group(scene, "01:80:c2:00:00:00", len(body), body)


def _gratuitous(scene: Scene, mark: bytes) -> bytes:
    liar = Station(scene.neighbour.ip, scene.attacker.mac)
    return _to_group(scene, BROADCAST, ETH_ARP, arp(2, liar, liar, mark))


KINDS: dict[str, Frame] = {
    "own addresses": lambda s, m: _sent(s, ETH_IP, _own(s, m)),
    "victim's address": lambda s, m: _sent(
        s, ETH_IP, ipv4(s.victim.ip, s.victim.ip, m)
    ),
    "neighbour's address": lambda s, m: _sent(
        s, ETH_IP, _as_neighbour(s, m)
    ),
    "neighbour's MAC": lambda s, m: ethernet(
        s.victim.mac, s.neighbour.mac, ETH_IP, _own(s, m)
    ),
    "neighbour's address and MAC": lambda s, m: ethernet(
        s.victim.mac, s.neighbour.mac, ETH_IP, _as_neighbour(s, m)
    ),
    "unknown MAC": lambda s, m: ethernet(
        s.victim.mac, UNKNOWN_MAC, ETH_IP, _own(s, m)
    ),
    "MAC of a group": lambda s, m: ethernet(
        s.victim.mac, BROADCAST, ETH_IP, _own(s, m)
    ),
    "broadcast": lambda s, m: _to_group(s, BROADCAST, ETH_IP, _own(s, m)),
    "limited broadcast": lambda s, m: _to_group(
        s, BROADCAST, ETH_IP, ipv4(s.attacker.ip, "255.255.255.255", m)
    ),
    "multicast": lambda s, m: _to_group(
        s, "01:00:5e:00:00:01", ETH_IP, ipv4(s.attacker.ip, "224.0.0.1", m)
    ),
    "priority tag": lambda s, m: _tag(s, 0, _own(s, m)),
    "VLAN tag": lambda s, m: _tag(s, 1, _as_neighbour(s, m)),
    "two tags": _double_tag,
    "ARP request": lambda s, m: _to_group(
        s, BROADCAST, ETH_ARP, arp(1, s.attacker, s.victim, m)
    ),
    "gratuitous ARP": _gratuitous,
    "RARP": lambda s, m: _to_group(
        s, BROADCAST, ETH_RARP, arp(3, s.attacker, s.victim, m)
    ),
    "IPv6": _ipv6,
    "MPLS": lambda s, m: _sent(
        s,
        ETH_MPLS,
        struct.pack("!I", (16 << 12) | (1 << 8) | 64) + _own(s, m),
    ),
    "LLDP": lambda s, m: _to_group(s, "01:80:c2:00:00:0e", ETH_LLDP, m),
    "spanning tree": _spanning_tree,
    "source route": lambda s, m: _sent(s, ETH_IP, _source_route(s, m)),
}
"""Kind -> the frame, of the scene and the mark."""
