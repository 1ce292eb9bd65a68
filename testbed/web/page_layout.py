"""The data centre as the page draws it: nodes in a tree, links beside them.

Large ones are drawn by rack: the servers below one switch become one node, on
the server's side, so that a browser never gets 8,000 of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_SERVERS = 256
"""The most servers that are drawn one by one."""
MAX_LEVELS = 16
MAX_GROUPS = 100
"""Groups of servers that no switch connects."""
NO_PARENT = -1
UNKNOWN = -1
"""The drawn link of a link between unknown nodes."""
FULL = 10_000
"""A link's use when all of its capacity is used, as the page gets it."""

Topology = Mapping[str, Any]


@dataclass(frozen=True)
class PageNode:
    """A switch, a server, or the servers of a rack.

    ``parent``: the node above in the drawn tree, or NO_PARENT. ``level``: 0 for
    servers.
    """

    name: str
    parent: int
    level: int
    servers: int = 0
    slots: int = 0


@dataclass(frozen=True)
class PageLink:
    """A link between two drawn nodes; the links inside a rack are one, with both
    ends there.

    ``lower`` and ``upper``: nodes; ``number``: of the link, of the first of
    several.
    """

    name: str
    number: int
    lower: int
    upper: int
    up_bps: int
    down_bps: int
    links: int = 1


@dataclass(frozen=True)
class PageLayout:
    """Nodes and links of the page, and where the data centre's belong.

    ``node_of``: drawn node of each node of the data centre. ``link_of``: drawn
    link of each link.
    """

    nodes: tuple[PageNode, ...]
    links: tuple[PageLink, ...]
    node_of: tuple[int, ...]
    link_of: tuple[int, ...]
    capacity_bps: NDArray[np.float64] = field(repr=False)
    """Of each directed link."""

    @cached_property
    def _drawn(self) -> NDArray[np.int64]:
        """The drawn directed link of each directed link."""
        links = np.array(self.link_of, np.int64).reshape(-1)
        drawn = np.empty(2 * len(links), np.int64)
        drawn[0::2] = 2 * links
        drawn[1::2] = np.where(links < 0, UNKNOWN, 2 * links + 1)
        return drawn

    def shares(self, rates_bps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Used shares of the capacities of the drawn directed links: of several
        links, that of the fullest.
        """
        shares = np.zeros(len(rates_bps))
        np.divide(
            rates_bps,
            self.capacity_bps,
            out=shares,
            where=self.capacity_bps > 0,
        )
        drawn = np.zeros(2 * len(self.links))
        known = self._drawn >= 0
        np.maximum.at(drawn, self._drawn[known], shares[known])
        return drawn

    def use(self, rates_bps: NDArray[np.float64]) -> list[int]:
        """Use of each drawn directed link, in parts of FULL."""
        parts = np.rint(self.shares(rates_bps) * FULL)
        used: list[int] = parts.astype(int).tolist()
        return used

    @cached_property
    def drawn_capacity_bps(self) -> NDArray[np.float64]:
        """Capacity of each drawn directed link; of several links, of the first."""
        capacities = []
        for link in self.links:
            capacities += [link.up_bps, link.down_bps]
        return np.array(capacities, float)

    def directed_names(self) -> list[str]:
        """Names of the drawn directed links: ``server 0 -> edge 0``."""
        names = []
        for link in self.links:
            lower = self.nodes[link.lower].name
            upper = self.nodes[link.upper].name
            if link.links > 1:
                lower = f"servers of {lower}"
            names += [f"{lower} -> {upper}", f"{upper} -> {lower}"]
        return names

    def to_json(self) -> dict[str, Any]:
        return {
            "nodes": [asdict(node) for node in self.nodes],
            "links": [asdict(link) for link in self.links],
        }


def page_layout(topology: Topology) -> PageLayout:
    """The layout of a data centre as ``run_started`` records it.

    Links between unknown nodes, in a damaged folder, belong to none.
    """
    n_servers = len(topology["slots"])
    above = parents(topology)
    node_of = list(range(len(topology["names"])))
    if n_servers > MAX_SERVERS:
        node_of = _by_rack(above, n_servers)
    nodes = _nodes(topology, above, node_of)
    links, link_of = _links(topology, node_of)
    return PageLayout(
        tuple(nodes),
        tuple(links),
        tuple(node_of),
        tuple(link_of),
        _capacities(topology, len(link_of)),
    )


def parents(topology: Topology) -> list[int]:
    """The node above each node: the upper end of its first link."""
    above = [NO_PARENT] * len(topology["names"])
    ends = topology["links"]
    for lower, upper in zip(ends["lower"], ends["upper"], strict=False):
        known = _is_node(topology, lower) and _is_node(topology, upper)
        if known and above[lower] == NO_PARENT and lower != upper:
            above[lower] = upper
    return above


def _is_node(topology: Topology, node: int) -> bool:
    return 0 <= node < len(topology["names"])


def _by_rack(above: list[int], n_servers: int) -> list[int]:
    """The drawn node of each node: servers and the switch above them are one.

    Racks come first, in the order of their servers, then all other nodes.
    """
    per_group = max(1, n_servers // MAX_GROUPS)
    rack_of: dict[int, int] = {}
    drawn = [NO_PARENT] * len(above)
    for server in range(n_servers):
        switch = above[server]
        if switch == NO_PARENT:
            # A number of no switch.
            switch = -2 - server // per_group
        drawn[server] = rack_of.setdefault(switch, len(rack_of))
    n_drawn = len(rack_of)
    for node in range(n_servers, len(above)):
        if node in rack_of:
            drawn[node] = rack_of[node]
        else:
            drawn[node] = n_drawn
            n_drawn += 1
    return drawn


def _nodes(
    topology: Topology, above: list[int], node_of: list[int]
) -> list[PageNode]:
    names = topology["names"]
    slots = topology["slots"]
    members: dict[int, list[int]] = {}
    for node, drawn in enumerate(node_of):
        members.setdefault(drawn, []).append(node)
    levels = _levels(topology)
    nodes = []
    for inside in members.values():
        # Of a rack the switch, whose number is above its servers'.
        top = inside[-1]
        parent = above[top]
        if parent != NO_PARENT:
            parent = node_of[parent]
        servers = [node for node in inside if node < len(slots)]
        nodes.append(
            PageNode(
                _name(names, inside, len(slots)),
                parent,
                levels[top],
                len(servers),
                sum(slots[server] for server in servers),
            )
        )
    return nodes


def _name(names: list[str], inside: list[int], n_servers: int) -> str:
    """A rack's is that of its switch; of a group its servers' names."""
    if len(inside) == 1 or inside[-1] >= n_servers:
        return names[inside[-1]]
    return f"{names[inside[0]]} to {names[inside[-1]]}"


def _levels(topology: Topology) -> list[int]:
    """Height of each node over what is below it; 0 for servers."""
    levels = [0] * len(topology["names"])
    ends = topology["links"]
    # A link's ends differ by a level or more; a damaged folder has circles.
    for _ in range(MAX_LEVELS):
        changed = False
        for lower, upper in zip(ends["lower"], ends["upper"], strict=False):
            known = _is_node(topology, lower) and _is_node(topology, upper)
            if known and levels[upper] <= levels[lower] < MAX_LEVELS:
                levels[upper] = levels[lower] + 1
                changed = True
        if not changed:
            break
    return levels


def _links(
    topology: Topology, node_of: list[int]
) -> tuple[list[PageLink], list[int]]:
    """Drawn links, and the one of each link."""
    names = topology["names"]
    ends = topology["links"]
    downward = ends.get("capacity_down_bps", ends["capacity_bps"])
    drawn: list[PageLink] = []
    inside: dict[int, int] = {}
    link_of = []
    each_link = zip(
        ends["lower"],
        ends["upper"],
        ends["capacity_bps"],
        downward,
        strict=False,
    )
    for number, (lower, upper, up_bps, down_bps) in enumerate(each_link):
        if not (_is_node(topology, lower) and _is_node(topology, upper)):
            link_of.append(UNKNOWN)
            continue
        ends_drawn = (node_of[lower], node_of[upper])
        in_rack = ends_drawn[0] == ends_drawn[1] and lower != upper
        if in_rack and ends_drawn[0] in inside:
            link_of.append(inside[ends_drawn[0]])
            continue
        link_of.append(len(drawn))
        name = f"{names[lower]} – {names[upper]}"
        n_links = 1
        if in_rack:
            inside[ends_drawn[0]] = len(drawn)
            n_links = node_of.count(ends_drawn[0]) - 1
            name = f"{n_links} links of {names[upper]}, the fullest"
        drawn.append(
            PageLink(name, number, *ends_drawn, up_bps, down_bps, n_links)
        )
    return drawn, link_of


def _capacities(topology: Topology, n_links: int) -> NDArray[np.float64]:
    ends = topology["links"]
    downward = ends.get("capacity_down_bps", ends["capacity_bps"])
    capacities = np.empty(2 * n_links)
    capacities[0::2] = ends["capacity_bps"][:n_links]
    capacities[1::2] = downward[:n_links]
    return capacities
