"""The data centre as frozen arrays: nodes, links, capacities, and the trees tenants are pinned to.

Nodes are integers: servers ``0 .. n_servers-1`` first, then switches, level by level upward, so
that a node's number alone tells a server from a switch. Links are integers ``l``; every physical
link is two *directed* links, ``2*l`` upward (lower end to upper end) and ``2*l + 1`` downward,
each with the link's full capacity (full duplex).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

Kind = Literal["tree", "fat-tree", "custom", "flat"]


def _frozen(array: npt.ArrayLike) -> IntArray:
    out = np.array(array, dtype=np.int64)
    out.setflags(write=False)
    return out


Path: TypeAlias = "tuple[str | int, ...]"


class TopologyError(ValueError):
    """Everything that is wrong with a wanted topology.

    ``problems`` holds ``(path, message)``: where in the builder's arguments (``("fanout", 2)``),
    and what is wrong there.
    """

    def __init__(self, problems: list[tuple[Path, str]]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{_dotted(path)}: {text}" for path, text in problems))


def _dotted(path: Path) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


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
    def child_list(self) -> IntArray:
        """All nodes with a parent, grouped by parent in order of id; see :attr:`child_start`."""
        inside = np.flatnonzero(self.parent >= 0)
        return _frozen(inside[np.argsort(self.parent[inside], kind="stable")])

    @cached_property
    def child_start(self) -> IntArray:
        """``child_list[child_start[v]:child_start[v + 1]]`` are ``v``'s children, by id."""
        counts = np.bincount(self.parent[self.parent >= 0], minlength=len(self.parent))
        return _frozen(np.concatenate(([0], np.cumsum(counts))))

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of every node, by id; empty for servers and nodes outside the tree.

        For walking small trees; work on large ones goes by :attr:`child_start`.
        """
        start, nodes = self.child_start.tolist(), self.child_list.tolist()
        return tuple(tuple(nodes[lo:hi]) for lo, hi in pairwise(start))

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


Index: TypeAlias = "slice | IntArray"


def _index(ids: IntArray) -> Index:
    """``ids`` as a slice where they are consecutive: numpy then copies nothing."""
    if len(ids) and np.array_equal(ids, np.arange(ids[0], ids[0] + len(ids))):
        return slice(int(ids[0]), int(ids[0]) + len(ids))
    return _frozen(ids)


@dataclass(frozen=True, eq=False)
class Layer:
    """The switches of one level, and the edges from each down to its children.

    Shapes: E edges, grouped by switch in order of id and by child within it; n switches, of
    which ``switches[i]`` has the edges ``start[i] .. start[i + 1] - 1``. A child may hang below
    several switches (the edge switches of a fat-tree below all aggregation switches of the pod):
    the layers of a data centre hold all its trees at once. ``link`` is -1 where there is no link
    to limit anything (flat clusters).
    """

    level: int
    switches: IntArray
    start: IntArray
    child: IntArray
    link: IntArray

    @cached_property
    def switch_index(self) -> Index:
        return _index(self.switches)

    @cached_property
    def child_index(self) -> Index:
        return _index(self.child)

    @cached_property
    def link_index(self) -> Index:
        return _index(self.link)

    @cached_property
    def linked(self) -> bool:
        """Whether the edges have links; all of a layer's do, or none."""
        return bool(len(self.link)) and int(self.link[0]) >= 0

    @cached_property
    def segments(self) -> IntArray:
        """First edge of every switch: what ``ufunc.reduceat`` takes."""
        return _frozen(self.start[:-1])

    @cached_property
    def owner(self) -> IntArray:
        """For every edge the position in ``switches`` of its switch."""
        return _frozen(np.repeat(np.arange(len(self.switches)), np.diff(self.start)))

    @cached_property
    def shared(self) -> bool:
        """Whether some child hangs below more than one of the switches."""
        return len(np.unique(self.child)) < len(self.child)

    @cached_property
    def edges_by_child(self) -> IntArray:
        """The edges in order of their child, and of their switch for one child."""
        return _frozen(np.argsort(self.child, kind="stable"))

    @cached_property
    def children_sorted(self) -> IntArray:
        """``child`` in the order of :attr:`edges_by_child`."""
        return _frozen(self.child[self.edges_by_child])

    def position(self, switch: int) -> int:
        """Where ``switch`` stands in ``switches``."""
        return int(np.searchsorted(self.switches, switch))


@dataclass(frozen=True, eq=False)
class DataCentre:
    """Servers with VM slots, switches, and links with capacities in bit/s.

    Arrays: ``level`` per node (``(n_nodes,)``; level 0 is the servers, a switch stands above all
    its children), ``slots`` per server (``(n_servers,)``), ``link_lower``, ``link_upper``,
    ``link_capacity_bps`` per link (``(n_links,)``).

    ``trees`` are all the trees a tenant can be pinned to, in order of their root's number: one for
    a tree topology, one per core switch for a fat-tree. ``memory_mib`` is the memory of every
    server (``(n_servers,)``); None where memory limits nothing.
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
    memory_mib: IntArray | None = None

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

    @cached_property
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

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """All trees at once, level by level upward: ``layers[0]`` is the switches of level 1.

        Raises ValueError when two trees disagree on what hangs below a switch they share.
        """
        return _layers(self)

    @cached_property
    def uniform_depth(self) -> bool:
        """Whether every edge spans exactly one level, so that all servers are equally deep."""
        return all(bool(np.all(self.level[k.child] == k.level - 1)) for k in self.layers)

    @cached_property
    def first_root(self) -> IntArray:
        """For every node the root of the first tree that holds it (-1: none)."""
        first = np.full(self.n_nodes, -1, dtype=np.int64)
        for tree in reversed(self.trees):
            first[tree.members] = tree.root
        return _frozen(first)

    @cached_property
    def tree_by_root(self) -> dict[int, Tree]:
        return {tree.root: tree for tree in self.trees}

    def is_server(self, node: int) -> bool:
        return node < self.n_servers

    def link_name(self, directed_link: int) -> str:
        """A directed link as people read it, e.g. ``rack 3 -> aggregation 1``."""
        link, downward = divmod(directed_link, 2)
        lower, upper = int(self.link_lower[link]), int(self.link_upper[link])
        ends = (upper, lower) if downward else (lower, upper)
        return f"{self.names[ends[0]]} -> {self.names[ends[1]]}"


def _layers(datacentre: DataCentre) -> tuple[Layer, ...]:
    n = datacentre.n_nodes
    edges: list[IntArray] = []
    for tree in datacentre.trees:
        child = np.flatnonzero(tree.parent >= 0)
        edges.append(np.stack((tree.parent[child], child, tree.uplink[child])))
    if not edges:
        return ()
    together = np.concatenate(edges, axis=1)
    key = together[0] * n + together[1]
    _, first = np.unique(key, return_index=True)
    parent, child, link = together[:, first]
    degree = np.bincount(parent, minlength=n)
    _agree(datacentre, degree, dict(zip(key[first].tolist(), link.tolist(), strict=True)))
    layers = []
    parent_level = datacentre.level[parent]
    for level in range(1, datacentre.n_levels):
        # np.unique sorted by (parent, child), so each level's edges are grouped by switch.
        here = np.flatnonzero(parent_level == level)
        if not len(here):
            continue
        switches, start = np.unique(parent[here], return_index=True)
        layers.append(
            Layer(
                level=level,
                switches=_frozen(switches),
                start=_frozen(np.append(start, len(here))),
                child=_frozen(child[here]),
                link=_frozen(link[here]),
            )
        )
    return tuple(layers)


def _agree(datacentre: DataCentre, degree: IntArray, link_of: dict[int, int]) -> None:
    """Every tree has, below each switch it holds, all the edges that any tree has there."""
    if len(datacentre.trees) < 2:
        return
    n = datacentre.n_nodes
    for tree in datacentre.trees:
        child = np.flatnonzero(tree.parent >= 0)
        own = np.bincount(tree.parent[child], minlength=n)
        held = tree.members
        wrong = held[own[held] != degree[held]]
        keys = (tree.parent[child] * n + child).tolist()
        if len(wrong) or any(
            link_of[key] != link
            for key, link in zip(keys, tree.uplink[child].tolist(), strict=True)
        ):
            name = datacentre.names[int(wrong[0])] if len(wrong) else datacentre.names[tree.root]
            raise ValueError(f"the trees of this data centre disagree on what is below {name}")


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
