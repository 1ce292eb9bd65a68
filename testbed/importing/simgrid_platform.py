"""Platforms of SimGrid, as Batsim reads them: zones, clusters, hosts and links.

SimGrid lists the links of a route, but no switches. The network has a switch
for each zone, to which the zone's hosts and the switches of inner zones are
linked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from testbed.importing.imported import (
    NO_BANDWIDTHS,
    Names,
    Notes,
    in_one_line,
    refusal,
    stated_capacity,
)
from testbed.importing.network_graph import MOST_NODES, Edge, Graph
from testbed.importing.safe_documents import Element
from testbed.units import number_of
from topologies.link_quality import MOST_DELAY_S

_ZONES = ("zone", "AS", "cluster")
_ZONE_ROUTES = ("zoneRoute", "ASroute", "ASRoute")
_PREFIXES = {
    "": 1,
    "k": 10**3,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_AMOUNT = re.compile(
    r"([0-9]{1,30}(?:\.[0-9]{0,30})?(?:[eE][-+]?[0-9]{1,2})?)"
    r"\s*([kKMGTPE]?i?)(Bps|bps|f|)"
)
_TIME = re.compile(
    r"([0-9]{1,9}(?:\.[0-9]{0,30})?(?:[eE][-+]?[0-9]{1,2})?)\s*(ns|us|ms|s|)"
)
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}
_LEAST_DELAY_S = 1e-6
_RADICAL = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
MASTER = "master_host"
"""Batsim's name of the host that schedules and runs no job."""
_ROLES_ASIDE = frozenset(("master", "storage"))


def amount(text: str) -> float | None:
    """The number of a text with a prefix and a unit; None for another text.

    Bit/s of ``125MBps`` and ``1Gbps``, flop/s of ``98.095Mf``.
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        return None
    number, prefix, unit = match.groups()
    factor = _PREFIXES.get(prefix)
    if factor is None:
        return None
    # bps is bits, Bps bytes: the case alone tells.
    if unit == "Bps":
        factor *= 8
    return float(number) * factor


def _bandwidth(text: str) -> int | None:
    value = amount(text)
    if value is None:
        return None
    # A bare number is bytes a second, as SimGrid has it.
    if not text.strip().endswith(("bps", "Bps")):
        value *= 8
    return round(value)


def _latency(text: str) -> float:
    """Seconds of ``50us`` or of a bare number; 0 for another text, and for a
    delay that no link may have.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return 0.0
    number, unit = match.groups()
    seconds = float(number) * _SECONDS[unit]
    if not _LEAST_DELAY_S <= seconds <= MOST_DELAY_S:
        return 0.0
    return seconds


@dataclass
class Platform:
    """The graph of a platform, as it is read."""

    path: Path
    graph: Graph = field(default_factory=Graph)
    set_aside: list[str] = field(default_factory=list)
    _names: Names = field(default_factory=Names)
    _links: dict[str, Element] = field(default_factory=dict)
    _unread: dict[str, None] = field(default_factory=dict)

    def read(self, root: Element, notes: Notes) -> None:
        """Takes the zones of the root element. Raises BadInput."""
        # Links first: routes that name them may stand before them.
        for element in root:
            if element.tag == "link":
                self._links[element.get("id")] = element
        for zone in root.below(*_ZONES):
            self._zone(zone)
        hosts = len(self.graph.hosts)
        if not hosts:
            raise refusal(self.path, "has no host that runs jobs")
        zones = len(self.graph.switches)
        notes.taken.append(
            f"{number_of(hosts, 'host')} of a slot each, {number_of(zones, 'zone')}"
        )
        notes.leave_out(self.set_aside, "hosts that run no jobs in Batsim")
        notes.leave_out(self._unread, NO_BANDWIDTHS)
        self._note_tags(root, notes)

    def _note_tags(self, root: Element, notes: Notes) -> None:
        tags = {element.tag for element in root}
        if not tags.isdisjoint(("route", *_ZONE_ROUTES)):
            notes.not_taken.append(
                "which links several routes share: a host has the bandwidth of"
                " its widest route"
            )
        for cluster in root.with_tag("cluster"):
            shape = in_one_line(cluster.get("topology", "FLAT"))
            if shape != "FLAT":
                notes.not_taken.append(
                    f"the {shape[:20]} inside a cluster: its hosts hang from"
                    " one switch"
                )
        notes.not_taken.append(
            "latencies of routes, cores, energy, storage, and links that both"
            " directions share"
        )

    # -- zones

    def _zone(self, zone: Element) -> str | None:
        """The switch of a zone; None where no host is below it."""
        switch = self._names.of(zone.get("id", "zone"))
        edges = list(self._edges(zone, switch))
        below = {edge.first for edge in edges}
        if not edges:
            return None
        # A zone with a single inner zone needs no switch of its own.
        if len(edges) == 1 and below <= self.graph.switches.keys():
            return edges[0].first
        self.graph.switches[switch] = None
        self.graph.edges += edges
        return switch

    def _edges(self, zone: Element, switch: str) -> Iterator[Edge]:
        """Links from a zone's switch to its hosts and to the zones in it."""
        routes = self._widest_routes(zone)
        if zone.tag == "cluster":
            yield from self._numbered_hosts(zone, switch)
        for child in zone.children:
            if child.tag == "cabinet":
                yield from self._numbered_hosts(child, switch)
            elif child.tag in ("host", "peer"):
                yield from self._host(child, switch, routes)
            elif child.tag in _ZONES:
                below = self._zone(child)
                if below is not None:
                    uplink = self._uplink(child, routes)
                    yield Edge(below, switch, uplink)

    def _numbered_hosts(
        self, element: Element, switch: str
    ) -> Iterator[Edge]:
        """The hosts of a cluster or a cabinet: PREFIX NUMBER SUFFIX."""
        capacity = self._bandwidth(element, "bw")
        delay_s = _latency(element.get("lat"))
        for number in self._numbers(element):
            name = f"{element.get('prefix')}{number}{element.get('suffix')}"
            host = self._add_host(element, name)
            if host is not None:
                yield Edge(host, switch, capacity, delay_s)

    def _numbers(self, element: Element) -> Iterator[int]:
        """The numbers of ``0-3,8``."""
        for part in element.get("radical").split(","):
            match = _RADICAL.fullmatch(part.strip())
            if match is None:
                why = f"radical {part!r:.50} is no range as 0-511"
                raise refusal(self.path, why, element.line)
            first, last = match.groups()
            yield from range(int(first), int(last or first) + 1)

    def _host(
        self, element: Element, switch: str, routes: dict[str, int]
    ) -> Iterator[Edge]:
        name = element.get("id")
        host = self._add_host(element, name)
        if host is None:
            return
        # A peer has its own link; the narrower of its directions is taken.
        capacities = [routes.get(name)]
        for key in ("bw_in", "bw_out"):
            capacities.append(self._bandwidth(element, key))
        delay_s = _latency(element.get("lat"))
        yield Edge(host, switch, _least(capacities), delay_s)

    def _add_host(self, element: Element, foreign: str) -> str | None:
        """The host's name; None for one that runs no jobs."""
        # Checked at each host: "0-999999999" is a short text.
        if len(self.graph.hosts) + len(self.set_aside) >= MOST_NODES:
            why = f"has more than {MOST_NODES:,} hosts"
            raise refusal(self.path, why, element.line)
        if foreign.startswith(MASTER) or _is_set_aside(element):
            self.set_aside.append(foreign)
            return None
        # A host may list speeds of several power states; the first is the
        # default.
        speed = element.get("speed").partition(",")[0]
        flops = amount(speed)
        if flops:
            slowest = self.graph.speed_flops or flops
            self.graph.speed_flops = min(flops, slowest)
        name = self._names.of(foreign)
        # Batsim gives a host to one job, whatever its cores.
        self.graph.hosts[name] = 1
        return name

    def _bandwidth(self, element: Element, key: str) -> int | None:
        """Bit/s of an attribute; None, and noted, for a text that is none."""
        text = element.get(key)
        capacity = _bandwidth(text)
        if text and not capacity:
            self._unread[stated_capacity(key, text)] = None
        return capacity

    # -- routes

    def _widest_routes(self, zone: Element) -> dict[str, int]:
        """The bandwidth of the widest route of each host and zone."""
        widest: dict[str, int] = {}
        for route in zone.below("route", *_ZONE_ROUTES):
            ends = {route.get(key) for key in ("src", "dst")}
            links = route.below("link_ctn")
            narrowest = self._narrowest(link.get("id") for link in links)
            # A route from a host to itself is in its memory.
            if narrowest is not None and len(ends) == 2:
                for end in ends:
                    widest[end] = max(narrowest, widest.get(end, 0))
        for link in zone.below("host_link"):
            narrowest = self._narrowest([link.get("up"), link.get("down")])
            if narrowest is not None:
                widest[link.get("id")] = narrowest
        return widest

    def _narrowest(self, ids: Iterable[str]) -> int | None:
        # A route is as wide as its narrowest link.
        capacities = []
        for identity in ids:
            link = self._links.get(identity)
            if link is not None:
                capacities.append(self._bandwidth(link, "bandwidth"))
        return _least(capacities)

    def _uplink(self, zone: Element, routes: dict[str, int]) -> int | None:
        """The capacity of a zone's uplink: that of its backbone or of its widest
        route, whichever is smaller.
        """
        capacities = [
            routes.get(zone.get("id")),
            self._bandwidth(zone, "bb_bw"),
        ]
        for backbone in zone.below("backbone"):
            capacities.append(self._bandwidth(backbone, "bandwidth"))
        return _least(capacities)


def _least(capacities: Iterable[int | None]) -> int | None:
    known = [capacity for capacity in capacities if capacity]
    return min(known, default=None)


def _is_set_aside(element: Element) -> bool:
    for prop in element.below("prop"):
        key = prop.get("id")
        value = prop.get("value").lower()
        if key == "role" and value in _ROLES_ASIDE:
            return True
        if key == "excluded" and value == "true":
            return True
    return False
