"""Switches and a network of them in memory, for tests: rules in, packets through.

An interpreter of what OpenFlow 1.3 says about the few features `flows` uses: tables in order,
the highest priority wins, adds replace, deletes by cookie and mask, a bundle is all or nothing,
a packet never leaves by the port it came in by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from ipaddress import IPv4Address, IPv4Network

from controller.flow_rules import (
    AddFlow,
    Change,
    Flow,
    FlowReport,
    Goto,
    Match,
    Output,
    RemoveByCookie,
    RemoveFlow,
)

_ETHERTYPE_IPV4 = 0x0800
_MOST_HOPS = 64


class AmbiguousFlows(AssertionError):
    """Two rules of equal priority fit the same packet and do different things."""


class ForwardingLoop(AssertionError):
    """A packet went round in a circle."""


class TableFull(ValueError):
    """The switch has no room for the rules of a bundle."""


@dataclass(frozen=True)
class Packet:
    """As much of a frame as the rules look at."""

    eth_src: str
    ip_src: str
    ip_dst: str
    eth_type: int = _ETHERTYPE_IPV4
    vlan: int | None = None


@dataclass(frozen=True)
class Delivery:
    """A packet that left the network: where, and the switches it came through, in order."""

    dpid: int
    port: int
    path: tuple[int, ...]


class FakeSwitch:
    """One switch. `capacity` is how many rules fit."""

    def __init__(
        self, dpid: int, ports: Iterable[int], capacity: int = 1_000_000
    ) -> None:
        self.dpid = dpid
        self.ports = frozenset(ports)
        self.capacity = capacity
        self._flows: dict[tuple[int, int, Match], Flow] = {}

    @property
    def flows(self) -> frozenset[Flow]:
        """The rules it has."""
        return frozenset(self._flows.values())

    def report(self) -> FlowReport:
        """The rules it has, as it would tell the controller."""
        return FlowReport(tuple(self._flows.values()))

    def apply(self, changes: Iterable[Change]) -> None:
        """Carry out a bundle, all of it or, if `TableFull` is raised, nothing."""
        flows = dict(self._flows)
        for change in changes:
            if isinstance(change, AddFlow):
                flows[change.flow.key] = change.flow
            elif isinstance(change, RemoveFlow):
                flows.pop(change.flow.key, None)
            else:
                flows = {
                    key: f
                    for key, f in flows.items()
                    if not _cookie_fits(f, change)
                }
        if len(flows) > self.capacity:
            raise TableFull(f"{len(flows)} rules, room for {self.capacity}")
        self._flows = flows

    def process(self, packet: Packet, in_port: int) -> tuple[int, ...]:
        """The ports a packet leaves by that came in by `in_port`: none or one."""
        table = 0
        while True:
            action = self._action(table, packet, in_port)
            # By OpenFlow a packet moves to higher tables alone, so that it
            # comes to an end.
            if isinstance(action, Goto) and action.table > table:
                table = action.table
            elif isinstance(action, Output) and action.port != in_port:
                return (action.port,) if action.port in self.ports else ()
            else:
                return ()

    def _action(self, table: int, packet: Packet, in_port: int) -> object:
        fitting = [
            flow
            for flow in self._flows.values()
            if flow.table == table and fits(flow.match, packet, in_port)
        ]
        if not fitting:
            return None
        top = max(flow.priority for flow in fitting)
        actions = {flow.action for flow in fitting if flow.priority == top}
        if len(actions) > 1:
            raise AmbiguousFlows(
                f"switch {self.dpid}: {packet} meets {sorted(map(str, actions))}"
            )
        return actions.pop()


def fits(match: Match, packet: Packet, in_port: int) -> bool:
    """True if a match accepts this packet at this port."""
    ipv4 = packet.eth_type == _ETHERTYPE_IPV4
    return (
        (match.in_port is None or match.in_port == in_port)
        and (not match.untagged or packet.vlan is None)
        and (match.eth_src is None or match.eth_src == packet.eth_src)
        and (not match.ipv4 or ipv4)
        and _within(match.nw_src, packet.ip_src, ipv4=ipv4)
        and _within(match.nw_dst, packet.ip_dst, ipv4=ipv4)
    )


def _within(prefix: str | None, address: str, *, ipv4: bool) -> bool:
    if prefix is None:
        return True
    if not ipv4:
        return False
    base, mask = _base_and_mask(prefix)
    return _integer(address) & mask == base


@cache
def _base_and_mask(prefix: str) -> tuple[int, int]:
    network = IPv4Network(prefix)
    return int(network.network_address), int(network.netmask)


@cache
def _integer(address: str) -> int:
    return int(IPv4Address(address))


def _cookie_fits(flow: Flow, change: RemoveByCookie) -> bool:
    return flow.cookie & change.mask == change.cookie & change.mask


@dataclass(frozen=True)
class FakeNetwork:
    """Switches and the links between their ports: (dpid, port) -> (dpid, port), both ways."""

    switches: Mapping[int, FakeSwitch]
    links: Mapping[tuple[int, int], tuple[int, int]]

    def send(
        self, packet: Packet, dpid: int, port: int
    ) -> tuple[Delivery, ...]:
        """Put a packet in at a port; all places where it (or a copy) leaves the network."""
        return self._forward(packet, dpid, port, ())

    def _forward(
        self, packet: Packet, dpid: int, port: int, path: Sequence[int]
    ) -> tuple[Delivery, ...]:
        if len(path) > _MOST_HOPS:
            raise ForwardingLoop(f"{packet} went through {path}")
        came = (*path, dpid)
        deliveries: list[Delivery] = []
        for out_port in self.switches[dpid].process(packet, port):
            far_end = self.links.get((dpid, out_port))
            if far_end is None:
                deliveries.append(Delivery(dpid, out_port, came))
            else:
                deliveries.extend(self._forward(packet, *far_end, came))
        return tuple(deliveries)


def tagged(packet: Packet, vlan: int) -> Packet:
    """The same packet behind a VLAN tag."""
    return replace(packet, vlan=vlan)


_STATISTICS = re.compile(
    r"(?:duration|n_packets|n_bytes|idle_age|hard_age)=[^ ,]+$"
)


def text_of_dumped_flow(line: str) -> str:
    """One line of `ovs-ofctl -O OpenFlow13 dump-flows` in the form of `Flow.text`.

    Drops counters; everything else stays, so that a rule somebody added by hand becomes a line that
    no `Flow.text` gives.
    """
    head, separator, actions = line.strip().partition(" actions=")
    kept = [
        part
        for part in (
            field.strip()
            for field in re.split(r", (?=\S)| (?=priority=)", head)
        )
        if not _STATISTICS.match(part)
    ]
    return ",".join(kept) + separator + actions
