"""The data centre as frozen arrays: nodes, links, capacities, and the trees tenants are pinned to.

Nodes are integers: servers ``0 .. n_servers-1`` first, then switches, level by level upward, so
that a node's number alone tells a server from a switch. Links are integers ``l``; every physical
link is two *directed* links, ``2*l`` upward (lower end to upper end) and ``2*l + 1`` downward,
each with the link's full capacity (full duplex).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

Kind = Literal["tree", "fat-tree", "custom", "flat"]

SERVER_LEVEL = 0


def _frozen(array: npt.ArrayLike) -> IntArray:
    out = np.array(array, dtype=np.int64)
    out.setflags(write=False)
    return out


def up(link: int) -> int:
    """The directed link from a link's lower end to its upper end."""
    return 2 * link


def down(link: int) -> int:
    """The directed link from a link's upper end to its lower end."""
    return 2 * link + 1


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree below one root: where a tenant can be pinned.

    ``parent[v]`` is the node above ``v`` (-1 for the root and for nodes outside this tree),
    ``uplink[v]`` the link between them (-1 likewise). Shapes ``(n_nodes,)``.
    """

    root: int
    parent: IntArray
    uplink: IntArray
    level: IntArray

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of every node, by id; empty for servers and nodes outside the tree."""
        lists: list[list[int]] = [[] for _ in range(len(self.parent))]
        for node, parent in enumerate(self.parent.tolist()):
            if parent >= 0:
                lists[parent].append(node)
        return tuple(tuple(kids) for kids in lists)

    @cached_property
    def members(self) -> IntArray:
        """Nodes in the tree: the root and everything with a parent, by id."""
        inside = self.parent >= 0
        inside[self.root] = True
        return _frozen(np.flatnonzero(inside))

    def path_to_root(self, node: int) -> list[int]:
        """``node`` and its ancestors, bottom up, ending at the root."""
        path = [node]
        while path[-1] != self.root:
            above = int(self.parent[path[-1]])
            if above < 0:
                raise ValueError(f"node {node} is not below root {self.root}")
            path.append(above)
        return path


@dataclass(frozen=True, eq=False)
class DataCentre:
    """Servers with VM slots, switches, and links with capacities in bit/s.

    Arrays: ``level`` and ``pod`` per node (``(n_nodes,)``; level 0 is the servers; pod -1 where
    the word has no meaning), ``slots`` per server (``(n_servers,)``), ``link_lower``,
    ``link_upper``, ``link_capacity_bps`` per link (``(n_links,)``).

    ``trees`` are all the trees a tenant can be pinned to, in order of their root's number: one for
    a tree topology, one per core switch for a fat-tree.
    """

    kind: Kind
    names: tuple[str, ...]
    level: IntArray
    slots: IntArray
    link_lower: IntArray
    link_upper: IntArray
    link_capacity_bps: IntArray
    trees: tuple[Tree, ...]
    parameters: dict[str, object] = field(default_factory=dict)

    @property
    def n_nodes(self) -> int:
        return len(self.level)

    @property
    def n_servers(self) -> int:
        return len(self.slots)

    @property
    def n_links(self) -> int:
        return len(self.link_lower)

    @property
    def n_levels(self) -> int:
        return int(self.level.max()) + 1

    @property
    def total_slots(self) -> int:
        return int(self.slots.sum())

    @cached_property
    def directed_capacity_bps(self) -> IntArray:
        """Capacity of every directed link, shape ``(2 * n_links,)``."""
        return _frozen(np.repeat(self.link_capacity_bps, 2))

    @cached_property
    def nic_bps(self) -> IntArray:
        """Capacity of each server's own links together, shape ``(n_servers,)``."""
        nic = np.zeros(self.n_servers, dtype=np.int64)
        at_server = self.link_lower < self.n_servers
        np.add.at(nic, self.link_lower[at_server], self.link_capacity_bps[at_server])
        return _frozen(nic)

    def is_server(self, node: int) -> bool:
        return node < self.n_servers

    def link_name(self, directed_link: int) -> str:
        """A directed link as people read it, e.g. ``rack 3 -> aggregation 1``."""
        link, downward = divmod(directed_link, 2)
        lower, upper = int(self.link_lower[link]), int(self.link_upper[link])
        ends = (upper, lower) if downward else (lower, upper)
        return f"{self.names[ends[0]]} -> {self.names[ends[1]]}"


def make_tree(root: int, n_nodes: int, edges: dict[int, tuple[int, int]], level: IntArray) -> Tree:
    """A :class:`Tree` from ``{node: (parent, link)}``."""
    parent = np.full(n_nodes, -1, dtype=np.int64)
    uplink = np.full(n_nodes, -1, dtype=np.int64)
    for node, (above, link) in edges.items():
        parent[node] = above
        uplink[node] = link
    return Tree(root=root, parent=_frozen(parent), uplink=_frozen(uplink), level=level)


def frozen_array(values: npt.ArrayLike) -> IntArray:
    """A read-only int64 copy: what every array of a :class:`DataCentre` is."""
    return _frozen(values)
