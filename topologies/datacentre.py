"""The data centre as frozen arrays: nodes, links, capacities and trees.

Nodes are integers: servers ``0 .. n_servers-1``, then switches, level by level
upward. So ``node < n_servers`` is true for servers alone. Links are integers;
each physical link ``l`` is two *directed* links, ``2*l`` upward (from the lower
end to the upper end) and ``2*l + 1`` downward, with capacities of their own
(full duplex). Tenants are pinned to trees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeAlias, TypeGuard, cast

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

Kind = Literal["tree", "fat-tree", "custom", "flat"]


def frozen_array(values: npt.ArrayLike) -> IntArray:
    """A read-only int64 copy, as every array of a :class:`DataCentre` is."""
    # A copy: a view would change with an array that its caller still
    # writes to.
    out = np.array(values, dtype=np.int64)
    out.setflags(write=False)
    return out


Path: TypeAlias = "tuple[str | int, ...]"

MAX_NODES = 1_000_000
MAX_LINK_BPS = 10**15
MAX_WHOLE = 2**63 - 1
MAX_TREE_ENTRIES = 10_000_000
"""Limit of nodes times trees, at which parents and uplinks take 160 MB."""


class Problems(list[tuple[Path, str]]):
    """Problems of a builder's arguments, each with the argument's path."""

    def report(self, message: str, *path: str | int) -> None:
        self.append((path, message))


class TopologyError(ValueError):
    """All problems of a topology that cannot be built.

    ``problems`` holds ``(path, message)``; the path leads to a builder's
    argument, such as ``("fanout", 2)``.
    """

    def __init__(self, problems: Iterable[tuple[Path, str]]) -> None:
        self.problems = tuple(problems)
        sentences = [
            f"{dotted(path)}: {text}" for path, text in self.problems
        ]
        super().__init__("; ".join(sentences))


def dotted(path: Path) -> str:
    """A path as text: ``links[2].lower``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif text:
            text += f".{part}"
        else:
            text = part
    return text


def up(link: int) -> int:
    """The directed link from a link's lower end to its upper end."""
    return 2 * link


def down(link: int) -> int:
    """The directed link from a link's upper end to its lower end."""
    return 2 * link + 1


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree below one root, to which tenants can be pinned.

    ``parent[v]``: the node above ``v``; ``uplink[v]``: the link between them;
    both are -1 for the root and for nodes outside this tree. ``level[v]``: as
    in the data centre. Shapes ``(n_nodes,)``.
    """

    root: int
    parent: IntArray
    uplink: IntArray
    level: IntArray

    @cached_property
    def child_list(self) -> IntArray:
        """All nodes with a parent, in order of their parent, then of their id.

        The children of a parent make a group; :attr:`child_start` has the
        starts of the groups.
        """
        inside = np.flatnonzero(self.parent >= 0)
        # Stable, so that the children of one parent stay in order of their id.
        order = np.argsort(self.parent[inside], kind="stable")
        return frozen_array(inside[order])

    @cached_property
    def child_start(self) -> IntArray:
        """Starts of the groups of :attr:`child_list`, shape ``(n_nodes + 1,)``.

        ``child_list[child_start[v]:child_start[v + 1]]`` are ``v``'s children.
        """
        parents = self.parent[self.parent >= 0]
        counts = np.bincount(parents, minlength=len(self.parent))
        return frozen_array(np.concatenate(([0], np.cumsum(counts))))

    @cached_property
    def members(self) -> IntArray:
        """Nodes in the tree: the root and everything with a parent, by id."""
        inside = self.parent >= 0
        inside[self.root] = True
        return frozen_array(np.flatnonzero(inside))

    def path_to_root(self, node: int) -> list[int]:
        """``node`` and its ancestors, bottom up, ending at the root."""
        path = [node]
        while path[-1] != self.root:
            above = int(self.parent[path[-1]])
            if above < 0:
                raise ValueError(
                    f"node {node} is not below root {self.root}"
                )
            path.append(above)
        return path


Index: TypeAlias = "slice | IntArray"


def _index(ids: IntArray) -> Index:
    """An index for ``ids``: a slice if they are consecutive.

    With a slice numpy makes a view, with an array a copy.
    """
    if len(ids) and np.array_equal(
        ids, np.arange(ids[0], ids[0] + len(ids))
    ):
        return slice(int(ids[0]), int(ids[0]) + len(ids))
    return frozen_array(ids)


@dataclass(frozen=True, eq=False)
class Layer:
    """The switches of one level, and the edges down to their children.

    Edges are sorted by switch, then by child; ``switches[i]`` has the edges
    ``start[i] .. start[i + 1] - 1``. ``child`` and ``link`` have shape
    ``(n_edges,)``, ``start`` ``(n_switches + 1,)``. A layer holds the edges of
    all trees of a data centre, so a child may be below several switches: in a
    fat-tree, an edge switch is below all aggregation switches of its pod.
    ``link`` is -1 in flat clusters, which have no links.
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
        """True if the edges have links: all edges of a layer, or none."""
        return bool(len(self.link)) and int(self.link[0]) >= 0

    @cached_property
    def segments(self) -> IntArray:
        """First edge of every switch: the indices for ``ufunc.reduceat``."""
        return frozen_array(self.start[:-1])

    @cached_property
    def owner(self) -> IntArray:
        """Index in ``switches`` of every edge's switch."""
        edges_of_switch = np.diff(self.start)
        positions = np.arange(len(self.switches))
        return frozen_array(np.repeat(positions, edges_of_switch))

    @cached_property
    def shared(self) -> bool:
        """True if a child is below more than one of the switches."""
        return len(np.unique(self.child)) < len(self.child)

    @cached_property
    def edges_by_child(self) -> IntArray:
        """Edges sorted by child, then by switch."""
        # A stable sort keeps the order by switch.
        return frozen_array(np.argsort(self.child, kind="stable"))

    @cached_property
    def children_sorted(self) -> IntArray:
        """``child`` in the order of :attr:`edges_by_child`."""
        return frozen_array(self.child[self.edges_by_child])

    def position(self, switch: int) -> int:
        """The index of ``switch`` in ``switches``, which are sorted."""
        return int(np.searchsorted(self.switches, switch))


@dataclass(frozen=True)
class HostNames:
    """Names of a VM slot in a topology that names its hosts.

    ``address``: with its prefix length, as ``10.0.0.1/8``. ``address`` and
    ``mac`` are empty where the topology has none.
    """

    name: str
    address: str = ""
    mac: str = ""


@dataclass(frozen=True)
class LinkQuality:
    """Delay, jitter, loss and queue of one direction of a link.

    With the meaning of Mininet's ``TCLink``: each packet is late by ``delay_s``
    ± ``jitter_s``, and a share ``loss_share`` of packets is lost.
    ``queue_packets`` is the length of the queue in full frames; the testbed
    chooses it where it is 0.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss_share: float = 0.0
    queue_packets: int = 0

    @property
    def needs_netem(self) -> bool:
        """True if packets are to be delayed or lost."""
        return self.delay_s > 0 or self.jitter_s > 0 or self.loss_share > 0

    def scaled(self, scale_time: float) -> LinkQuality:
        """The quality with times divided by ``scale_time``."""
        return replace(
            self,
            delay_s=self.delay_s / scale_time,
            jitter_s=self.jitter_s / scale_time,
        )

    def record(self) -> dict[str, float]:
        """The fields that are not zero."""
        return {name: value for name, value in vars(self).items() if value}

    def __str__(self) -> str:
        """Keys and values of an experiment file: ``delay 20 ms, loss 2 %``."""
        parts = []
        if self.delay_s:
            parts.append(f"delay {time_text(self.delay_s)}")
        if self.jitter_s:
            parts.append(f"jitter {time_text(self.jitter_s)}")
        if self.loss_share:
            parts.append(f"loss {self.loss_share * 100:g} %")
        if self.queue_packets:
            parts.append(f"max_queue_size {self.queue_packets:,}")
        return ", ".join(parts)


PLAIN = LinkQuality()
"""No delay, jitter or loss, and a queue that the testbed chooses."""
QualityPair = tuple[LinkQuality, LinkQuality]
"""Qualities of a link from its first end to its second, and back."""


def time_text(duration_s: float) -> str:
    """A time in its usual unit: ``20 ms``."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if duration_s >= factor:
            return f"{duration_s / factor:g} {unit}"
    return f"{duration_s * 1e6:g} us"


@dataclass(frozen=True, eq=False)
class DataCentre:
    """Servers with VM slots, switches, and links with capacities in bit/s.

    - ``level``, ``(n_nodes,)``: 0 for servers; a switch's is above all its
      children's.
    - ``slots``, ``(n_servers,)``.
    - ``link_lower``, ``link_upper``, ``(n_links,)``: nodes at a link's ends.
    - ``directed_capacity_bps``, ``(2 * n_links,)``.
    - ``trees``: all trees to which a tenant can be pinned, sorted by root. A
      tree topology has one, a fat-tree one per core switch.
    - ``parameters``: the builder's arguments, for records.
    - ``memory_mib``, ``(n_servers,)``; None where memory limits nothing.
    - ``hosts``: names of VM slots, in order of servers; empty where the
      topology names none.
    - ``qualities``: of every directed link; empty if all are plain.
    """

    kind: Kind
    names: tuple[str, ...]
    level: IntArray
    slots: IntArray
    link_lower: IntArray
    link_upper: IntArray
    directed_capacity_bps: IntArray
    trees: tuple[Tree, ...]
    parameters: dict[str, object] = field(default_factory=dict)
    memory_mib: IntArray | None = None
    hosts: tuple[HostNames, ...] = ()
    qualities: tuple[LinkQuality, ...] = ()

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
    def link_capacity_bps(self) -> IntArray:
        """Bandwidth that hoses can reserve on every link, shape ``(n_links,)``.

        It is the smaller capacity of the two directions, since a hose reserves
        the same in both.
        """
        # A row has the two directed links of a link.
        both = self.directed_capacity_bps.reshape(-1, 2)
        return frozen_array(both.min(axis=1))

    @cached_property
    def symmetric(self) -> bool:
        """True if every link has the same capacity in both directions."""
        up_bps = self.directed_capacity_bps[0::2]
        down_bps = self.directed_capacity_bps[1::2]
        return np.array_equal(up_bps, down_bps)

    @cached_property
    def nic_bps(self) -> IntArray:
        """Bandwidth that hoses can reserve on each server's links, summed.

        Shape ``(n_servers,)``.
        """
        return self._at_servers(self.link_capacity_bps)

    @cached_property
    def wider_nic_bps(self) -> IntArray:
        """Capacity of each server's links in their wider directions, summed.

        Shape ``(n_servers,)``.
        """
        both = self.directed_capacity_bps.reshape(-1, 2)
        return self._at_servers(both.max(axis=1))

    def _at_servers(self, link_bps: IntArray) -> IntArray:
        """Sum of the bandwidths of each server's uplinks, shape
        ``(n_servers,)``.
        """
        sums_bps = np.zeros(self.n_servers, dtype=np.int64)
        at_server = self.link_lower < self.n_servers
        # `sums_bps[…] += …` would add only one of a server's several uplinks.
        np.add.at(sums_bps, self.link_lower[at_server], link_bps[at_server])
        return frozen_array(sums_bps)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Edges of all trees, level by level upward from level 1.

        Trees that share a switch share all edges below it; each edge occurs
        once.
        """
        if not self.trees:
            return ()
        # They are sorted by parent, so edges of a switch follow each other.
        parent, child, link = _edges(self)
        layers = []
        parent_level = self.level[parent]
        for level in range(1, self.n_levels):
            of_level = np.flatnonzero(parent_level == level)
            if not len(of_level):
                continue
            switches, start = np.unique(parent[of_level], return_index=True)
            layer = Layer(
                level=level,
                switches=frozen_array(switches),
                start=frozen_array(np.append(start, len(of_level))),
                child=frozen_array(child[of_level]),
                link=frozen_array(link[of_level]),
            )
            layers.append(layer)
        return tuple(layers)

    @cached_property
    def uniform_depth(self) -> bool:
        """True if all servers are equally deep: each edge spans one level."""
        for layer in self.layers:
            if np.any(self.level[layer.child] != layer.level - 1):
                return False
        return True

    @cached_property
    def first_root(self) -> IntArray:
        """Root of the first tree that contains each node, shape ``(n_nodes,)``;
        -1 for a node outside all trees.
        """
        first = np.full(self.n_nodes, -1, dtype=np.int64)
        # Backward, so that the first tree overwrites all others.
        for tree in reversed(self.trees):
            first[tree.parent >= 0] = tree.root
            first[tree.root] = tree.root
        return frozen_array(first)

    @cached_property
    def tree_by_root(self) -> dict[int, Tree]:
        return {tree.root: tree for tree in self.trees}

    def with_capacity(
        self, link: int, up_bps: int, down_bps: int
    ) -> DataCentre:
        """The data centre with other capacities of one link."""
        directed_bps = self.directed_capacity_bps.copy()
        directed_bps[up(link)] = up_bps
        directed_bps[down(link)] = down_bps
        return replace(
            self, directed_capacity_bps=frozen_array(directed_bps)
        )

    def with_level_qualities(
        self, per_level: Sequence[LinkQuality]
    ) -> DataCentre:
        """The data centre with link qualities by level, from the top down.

        A single quality is that of all levels.
        """
        if all(quality == PLAIN for quality in per_level):
            return self
        upward = per_level[::-1]
        qualities: list[LinkQuality] = []
        for level in self.level[self.link_lower].tolist():
            # The remainder repeats a single quality at every level.
            qualities += [upward[level % len(upward)]] * 2
        records = [quality.record() for quality in per_level]
        return replace(
            self,
            qualities=tuple(qualities),
            parameters={**self.parameters, "link_quality": records},
        )

    def link_name(self, directed_link: int) -> str:
        """A directed link as text, such as ``rack 3 -> aggregation 1``."""
        link, downward = divmod(directed_link, 2)
        lower = self.names[int(self.link_lower[link])]
        upper = self.names[int(self.link_upper[link])]
        if downward:
            return f"{upper} -> {lower}"
        return f"{lower} -> {upper}"


def _edges(datacentre: DataCentre) -> IntArray:
    """Each edge of the trees once, sorted by parent, then by child.

    Shape ``(3, n_edges)``: parent, child and link.
    """
    edges: list[IntArray] = []
    # A link joins the same nodes in every tree, so it is taken from the first
    # tree that has it. The last entry (index -1) is for edges without a link.
    known = np.zeros(datacentre.n_links + 1, dtype=np.bool_)
    for tree in datacentre.trees:
        new = (tree.parent >= 0) & ~known[tree.uplink]
        child = np.flatnonzero(new)
        edges.append(
            np.stack((tree.parent[child], child, tree.uplink[child]))
        )
        known[tree.uplink[child]] = True
        # Edges without a link are taken from every tree.
        known[-1] = False
    together = np.concatenate(edges, axis=1)
    # A number for each pair (parent, child) drops repeated edges, also of flat
    # clusters, which have no links. np.unique sorts by it too.
    pair = together[0] * datacentre.n_nodes + together[1]
    _, first = np.unique(pair, return_index=True)
    return together[:, first]


def make_tree(
    *,
    root: int,
    level: IntArray,
    nodes: IntArray | Sequence[int],
    parents: IntArray | Sequence[int] | int,
    links: IntArray | Sequence[int] | int,
) -> Tree:
    """A tree with the edges from ``nodes`` up to ``parents`` over ``links``.

    A single number for ``parents`` or ``links`` is that of all nodes: flat
    clusters have one parent, and -1 for no link.
    """
    parent = np.full(len(level), -1, dtype=np.int64)
    uplink = parent.copy()
    parent[nodes] = parents
    uplink[nodes] = links
    # A frozen array is not copied: all trees of a data centre share it.
    if level.flags.writeable:
        level = frozen_array(level)
    return Tree(root, frozen_array(parent), frozen_array(uplink), level)


# -- arguments of the builders -------------------------------------------------


def is_whole_number(value: object) -> TypeGuard[int]:
    """True if ``value`` is an integer and no bool."""
    # Python's True is an int, but `slots: true` is a mistake.
    return isinstance(value, int | np.integer) and not isinstance(
        value, bool
    )


def check_at_least(
    problems: Problems,
    path: Path,
    value: object,
    noun: str,
    *,
    least: int = 1,
) -> bool:
    """Notes a problem unless ``value`` is a whole number of at least ``least``
    that an array holds.
    """
    if not is_whole_number(value):
        problems.report(f"{noun} is a whole number, not {value!r}", *path)
        return False
    if value < least:
        problems.report(
            f"{noun} must be at least {least}, not {value}", *path
        )
        return False
    if value > MAX_WHOLE:
        problems.report(f"{noun} must be at most {MAX_WHOLE:,}", *path)
        return False
    return True


Capacity: TypeAlias = "int | Mapping[str, int]"
"""A link's capacity in bit/s: one for both directions, or
``{"up": …, "down": …}``.

Upward is from the lower end to the upper end, which is nearer to the root.
"""

DIRECTIONS = ("up", "down")


def both_directions(value: Capacity) -> tuple[int, int]:
    """A link's capacities upward and downward, in bit/s."""
    if isinstance(value, Mapping):
        return int(value["up"]), int(value["down"])
    return int(value), int(value)


def capacity_of(up_bps: int, down_bps: int) -> Capacity:
    """A capacity from its two directions; one number if they are equal."""
    if up_bps == down_bps:
        return up_bps
    return {"up": up_bps, "down": down_bps}


def directed_array(values: Sequence[Capacity]) -> IntArray:
    """Capacities of directed links, from capacities of links in order."""
    # Row by row, so that link l is at 2l and 2l + 1.
    both = list(map(both_directions, values))
    return frozen_array(np.array(both, dtype=np.int64).ravel())


def check_capacity(problems: Problems, path: Path, value: object) -> bool:
    """Notes a problem unless ``value`` is a usable link capacity in bit/s."""
    if not isinstance(value, Mapping):
        return _check_one_way(problems, path, value)
    all_good = True
    for key in sorted(value.keys() - DIRECTIONS):
        problems.report("unknown key", *path, key)
        all_good = False
    for key in DIRECTIONS:
        if key not in value:
            problems.report(f"{key} is missing", *path)
            all_good = False
        elif not _check_one_way(problems, (*path, key), value[key]):
            all_good = False
    return all_good


def _check_one_way(problems: Problems, path: Path, value: object) -> bool:
    """Notes a problem unless ``value`` is a usable capacity of a direction."""
    if not is_whole_number(value):
        problems.report(
            f"a link's capacity is a whole number of bit/s, not {value!r}",
            *path,
        )
        return False
    if not 0 < value <= MAX_LINK_BPS:
        problems.report(
            f"a link's capacity must be above 0 and at most 1000 Tbit/s, not {value} bit/s",
            *path,
        )
        return False
    return True


def capacities(
    problems: Problems, link_bps: Capacity | Sequence[Capacity], levels: int
) -> list[Capacity]:
    """Capacity per level from the top down; one capacity serves all levels.

    Notes problems. Invalid capacities are replaced by 1 bit/s, so that other
    problems are found too.
    """
    if isinstance(link_bps, int | np.integer | Mapping):
        if not check_capacity(problems, ("link_bps",), link_bps):
            return [1] * levels
        return [_normalised(link_bps)] * levels
    if len(link_bps) not in (1, levels):
        problems.report(
            f"{len(link_bps)} capacities for {levels} levels of links: give {levels}, or one",
            "link_bps",
        )
    all_good = len(link_bps) > 0
    for i, value in enumerate(link_bps):
        all_good &= check_capacity(problems, ("link_bps", i), value)
    if not all_good:
        return [1] * levels
    if len(link_bps) == 1:
        return [_normalised(link_bps[0])] * levels
    return list(map(_normalised, link_bps))


def _normalised(value: Capacity) -> Capacity:
    """A capacity as Python's integers; one if both directions are equal."""
    return capacity_of(*both_directions(value))


def slot_array(
    problems: Problems,
    slots: int | Sequence[int],
    n_servers: int | None,
    name: str,
) -> IntArray:
    """Slots of every server, shape ``(n_servers,)``, from one number or a list.

    ``n_servers`` is None if a problem leaves it unknown. Problems are noted
    under ``name``; the result of a wrong list is zeros.
    """
    no_slots = np.zeros(n_servers or 0, dtype=np.int64)
    if is_whole_number(slots):
        if not check_at_least(problems, (name,), slots, "slots per server"):
            return no_slots
        return np.full_like(no_slots, slots)
    is_text = isinstance(cast("object", slots), str)
    if is_text or not isinstance(slots, Sequence | np.ndarray):
        problems.report(
            f"slots are a whole number or a list of them, not {slots!r}",
            name,
        )
        return no_slots
    if n_servers is not None and len(slots) != n_servers:
        problems.report(
            f"{len(slots)} slot counts for {n_servers} servers", name
        )
    all_good = len(slots) == n_servers
    for i, count in enumerate(slots):
        all_good &= check_at_least(
            problems, (name, i), count, "a slot count", least=0
        )
    if not all_good:
        return no_slots
    if not any(slots):
        problems.report("no server has a slot", name)
    return np.array(slots, dtype=np.int64)


def one_or_all(values: IntArray) -> int | list[int]:
    """The number that all servers share, or the list of their numbers."""
    # Python's integers, since JSON cannot have numpy's.
    listed: list[int] = values.tolist()
    if len(set(listed)) == 1:
        return listed[0]
    return listed
