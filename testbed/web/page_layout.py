"""The data centre as the page draws it: nodes in a tree, links beside them.

Large data centres are drawn by rack: the servers below a switch become one node
with it. The layout is made here, not in the browser, which thus never gets
8,000 servers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_SERVERS = 256
"""The most servers that are drawn one by one."""
MAX_LEVELS = 16
MAX_GROUPS = 100
"""The most nodes for servers without a switch, of a large data centre."""
NO_PARENT = -1
UNKNOWN = -1
"""Stands in ``link_of`` for a link that is not drawn: its nodes are unknown."""
FULL = 10_000
"""Use of a link, in the page's unit, when its whole capacity is used."""

Topology = Mapping[str, Any]


@dataclass(frozen=True)
class PageNode:
    """A switch, a server, a rack (servers and their switch), or a group of
    servers without a switch.

    ``parent``: the drawn node above it, or NO_PARENT. ``level``: 0 for servers.
    ``servers`` and ``slots``: numbers of servers and VM slots in it.
    """

    name: str
    parent: int
    level: int
    servers: int = 0
    slots: int = 0

    def facts(self) -> list[tuple[str, str]]:
        """Facts that the page shows on the node: label and text."""
        return [
            ("servers", f"{self.servers}"),
            ("VM slots", f"{self.slots}"),
        ]


@dataclass(frozen=True)
class PageLink:
    """A link between two drawn nodes, or all links inside a rack.

    ``lower`` and ``upper``: drawn nodes; for links inside a rack, both are the
    rack. ``number``: the data centre's number of the link, or of the first of
    several. ``links``: the number of links that it stands for.
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
    """Drawn nodes and links, and their relation to those of the data centre.

    ``node_of``: drawn node of each node of the data centre. ``link_of``: drawn
    link of each of its links. ``capacity_bps``, ``(2 * n_links,)``: capacities
    of its directed links, upward ones at even indices.
    """

    nodes: tuple[PageNode, ...]
    links: tuple[PageLink, ...]
    node_of: tuple[int, ...]
    link_of: tuple[int, ...]
    capacity_bps: NDArray[np.float64] = field(repr=False)

    @cached_property
    def _drawn(self) -> NDArray[np.int64]:
        """The drawn directed link of each of the data centre's directed links;
        negative for a link that is not drawn.
        """
        links = np.array(self.link_of, np.int64)
        drawn = np.empty(2 * len(links), np.int64)
        # UNKNOWN becomes -2 and -1.
        drawn[0::2] = 2 * links
        drawn[1::2] = 2 * links + 1
        return drawn

    def shares(self, rates_bps: NDArray[np.float64]) -> NDArray[np.float64]:
        """The used share of each drawn directed link's capacity.

        If it stands for several links, the share is that of the fullest.
        ``rates_bps``: like ``capacity_bps``.
        """
        # A damaged folder has capacities of 0.
        shares = np.zeros(len(rates_bps))
        np.divide(
            rates_bps,
            self.capacity_bps,
            out=shares,
            where=self.capacity_bps > 0,
        )
        drawn = np.zeros(2 * len(self.links))
        known = self._drawn >= 0
        # Where an index is repeated, plain indexing would keep the last
        # value.
        np.maximum.at(drawn, self._drawn[known], shares[known])
        return drawn

    def use(self, rates_bps: NDArray[np.float64]) -> list[int]:
        """Use of each drawn directed link, in whole parts of FULL."""
        parts = np.rint(self.shares(rates_bps) * FULL)
        used: list[int] = parts.astype(int).tolist()
        return used

    @cached_property
    def drawn_capacity_bps(self) -> NDArray[np.float64]:
        """Capacity of each drawn directed link, or of the first of several."""
        capacities = [(link.up_bps, link.down_bps) for link in self.links]
        return np.array(capacities, float).reshape(-1)

    def directed_names(self) -> list[str]:
        """Names of drawn directed links, such as ``server 0 -> edge 0``."""
        names = []
        for link in self.links:
            lower = self.nodes[link.lower].name
            upper = self.nodes[link.upper].name
            # The links inside a rack, which may be a single one.
            if link.lower == link.upper:
                lower = f"servers of {lower}"
            names += [f"{lower} -> {upper}", f"{upper} -> {lower}"]
        return names

    def to_json(self) -> dict[str, Any]:
        return {
            "nodes": [asdict(node) for node in self.nodes],
            "links": [asdict(link) for link in self.links],
        }


def page_layout(topology: Topology) -> PageLayout:
    """The layout of a data centre from its record in ``run_started``.

    In a damaged folder, links between unknown nodes are not drawn.
    """
    n_servers = len(topology["slots"])
    above = parents(topology)
    node_of = list(range(len(topology["names"])))
    if n_servers > MAX_SERVERS:
        node_of = _by_rack(above, n_servers)
    nodes = _nodes(topology, above, node_of)
    links, link_of = _links(topology, node_of)
    return PageLayout(
        nodes=tuple(nodes),
        links=tuple(links),
        node_of=tuple(node_of),
        link_of=tuple(link_of),
        capacity_bps=_capacities(topology, len(link_of)),
    )


def parents(topology: Topology) -> list[int]:
    """The node above each node: the upper end of its first link."""
    above = [NO_PARENT] * len(topology["names"])
    for lower, upper in _known_ends(topology):
        if above[lower] == NO_PARENT and lower != upper:
            above[lower] = upper
    return above


def _known_ends(topology: Topology) -> Iterator[tuple[int, int]]:
    """Lower and upper end of each link whose nodes are known."""
    ends = topology["links"]
    # A damaged folder's columns may differ in length.
    for lower, upper in zip(ends["lower"], ends["upper"], strict=False):
        if _is_node(topology, lower) and _is_node(topology, upper):
            yield lower, upper


def _is_node(topology: Topology, node: int) -> bool:
    return 0 <= node < len(topology["names"])


def _by_rack(above: list[int], n_servers: int) -> list[int]:
    """The drawn node of each node: servers and the switch above them share one.

    Racks have the first numbers, in the order of their servers; all other nodes
    follow.
    """
    per_group = math.ceil(n_servers / MAX_GROUPS)
    rack_of: dict[int, int] = {}
    drawn = [NO_PARENT] * len(above)
    for server in range(n_servers):
        switch = above[server]
        if switch == NO_PARENT:
            # Servers without a switch, as in a flat data centre, are drawn in
            # groups. Each group has a number below -1 in place of a switch's.
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
    """The drawn nodes. ``above``: the node above each node of the data centre.
    ``node_of``: its drawn node.
    """
    members: dict[int, list[int]] = {}
    for node, drawn in enumerate(node_of):
        members.setdefault(drawn, []).append(node)
    levels = _levels(topology)
    slots = topology["slots"]
    nodes = []
    # Drawn nodes are numbered in order of their first member.
    for inside in members.values():
        # The switch of a rack: its number is above those of the servers.
        top = inside[-1]
        parent = above[top]
        if parent != NO_PARENT:
            parent = node_of[parent]
        # Servers have the first numbers.
        servers = [node for node in inside if node < len(slots)]
        nodes.append(
            PageNode(
                name=_name(topology["names"], inside, len(slots)),
                parent=parent,
                level=levels[top],
                servers=len(servers),
                slots=sum(slots[server] for server in servers),
            )
        )
    return nodes


def _name(names: list[str], inside: list[int], n_servers: int) -> str:
    """The name of a node, of a rack's switch, or of a group's first and last
    server.
    """
    if len(inside) == 1 or inside[-1] >= n_servers:
        return names[inside[-1]]
    return f"{names[inside[0]]} to {names[inside[-1]]}"


def _levels(topology: Topology) -> list[int]:
    """Each node's level: the number of links on its longest path down."""
    levels = [0] * len(topology["names"])
    # Each pass raises upper ends above their lower ends. In a damaged folder,
    # where links may make a cycle, it would never end without the limit.
    for _ in range(MAX_LEVELS):
        changed = False
        for lower, upper in _known_ends(topology):
            if levels[upper] <= levels[lower] < MAX_LEVELS:
                levels[upper] = levels[lower] + 1
                changed = True
        if not changed:
            break
    return levels


def _links(
    topology: Topology, node_of: list[int]
) -> tuple[list[PageLink], list[int]]:
    """The drawn links, and the index of the drawn link of each link."""
    links = topology["links"]
    drawn: list[PageLink] = []
    link_of_rack: dict[int, int] = {}
    link_of = []
    ends = zip(links["lower"], links["upper"], strict=False)
    n_links = min(len(links["capacity_bps"]), len(_downward_bps(topology)))
    for number, (lower, upper) in zip(range(n_links), ends, strict=False):
        if not (_is_node(topology, lower) and _is_node(topology, upper)):
            link_of.append(UNKNOWN)
            continue
        rack = node_of[lower]
        # Only a damaged folder has a link from a node to itself.
        in_rack = rack == node_of[upper] and lower != upper
        if in_rack and rack in link_of_rack:
            link_of.append(link_of_rack[rack])
            continue
        link_of.append(len(drawn))
        if in_rack:
            link_of_rack[rack] = len(drawn)
        drawn.append(_link(topology, node_of, number, in_rack=in_rack))
    return drawn, link_of


def _link(
    topology: Topology,
    node_of: list[int],
    number: int,
    *,
    in_rack: bool,
) -> PageLink:
    """The drawn link for a link; ``in_rack``: for all links of its rack."""
    names = topology["names"]
    lower = topology["links"]["lower"][number]
    upper = topology["links"]["upper"][number]
    name = f"{names[lower]} – {names[upper]}"
    n_links = 1
    if in_rack:
        # Every node of a rack except the switch has a link to the switch.
        n_links = node_of.count(node_of[lower]) - 1
    if n_links > 1:
        name = f"{n_links} links of {names[upper]}, the fullest"
    return PageLink(
        name=name,
        number=number,
        lower=node_of[lower],
        upper=node_of[upper],
        up_bps=topology["links"]["capacity_bps"][number],
        down_bps=_downward_bps(topology)[number],
        links=n_links,
    )


def _downward_bps(topology: Topology) -> Sequence[int]:
    """Downward capacities. Older runs record the upward ones for both."""
    links = topology["links"]
    downward: Sequence[int] = links.get(
        "capacity_down_bps", links["capacity_bps"]
    )
    return downward


def _capacities(topology: Topology, n_links: int) -> NDArray[np.float64]:
    """Capacities of directed links, upward ones at even indices."""
    capacities = np.empty(2 * n_links)
    capacities[0::2] = topology["links"]["capacity_bps"][:n_links]
    capacities[1::2] = _downward_bps(topology)[:n_links]
    return capacities
