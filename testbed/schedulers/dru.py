"""Dominant resource utilisation, DRU (DCloud, Section III.C): a measure of how
hard it will be to place the next request.

Definition. At an instant the DRU of a server is the larger of the utilisations
of its slots and its uplink (Eq. 2); that of a switch is the larger of the mean
DRU of its children and the utilisation of its uplink (Eq. 3). Over time a
node's DRU is the integral of these values (Eq. 4): the maximum is taken first,
then the integral. The network's DRU, U, is the tuple of sums over the nodes of
each level below the core, highest level first; tuples are compared
lexicographically.

The paper has trees alone. In a fat-tree the uplinks of a node count as one
uplink of their total capacity, and a node is a child of all its parents.

Computation. Admitting a job changes the DRU only of the servers of its VMs and
of the switches above them, while the job runs. For each of these nodes there is
a list of *pieces*: intervals in which its state is constant. A switch's piece
ends wherever a piece of one of its children ends. So the increase in a child's
piece changes whole pieces of its parents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from testbed.compiled import LazyLoop
from testbed.embedding.placement import Placement
from testbed.reservation.ledger import capacities
from testbed.reservation.timeline import FloatArray, Record, Timeline
from topologies.datacentre import DataCentre, IntArray

RELATIVE_TOLERANCE = 1e-9
"""Components of U that differ by less count as equal, or rounding would decide
ties.
"""

# Rounding leaves up to this share of the largest component where a component
# should be 0. It must count as 0, so that the next level decides.
_NEGLIGIBLE = 1e-12

STEPS_PER_NODE = 20
"""Estimated loop steps per node and per server of a candidate, for
:class:`LazyLoop`.
"""


class Nodes(NamedTuple):
    """A data centre as flat arrays, for compiled loops.

    Per node: ``level``; ``component``, the component of U to which it belongs
    (-1: none, as for roots). ``parent[t][v]`` is the parent of node v in tree t
    (-1: none); ``above[above_start[v] : above_start[v + 1]]`` are its parents in
    all trees, at most ``most_above``.

    Factors that give utilisations: ``per_inner`` is 1 / slots of a server or 1 /
    children of a switch, ``per_uplink`` 1 / capacity of a node's uplinks (0
    without one).

    ``upward`` has all nodes, children before parents: servers by id, then
    switches by level and id. Per link, ``lower`` is its lower end. ``capacity``
    is that of the ledger's objects: servers, then links.
    """

    n_servers: int
    n_levels: int
    n_components: int
    most_above: int
    level: IntArray
    component: IntArray
    parent: IntArray
    above_start: IntArray
    above: IntArray
    upward: IntArray
    per_inner: FloatArray
    per_uplink: FloatArray
    lower: IntArray
    capacity: IntArray


@dataclass(frozen=True, eq=False)
class Utilisation:
    """Capacities per node and nodes by level of a data centre, for its DRU."""

    datacentre: DataCentre

    @cached_property
    def slots(self) -> FloatArray:
        """Slots per server; 1 for a server without slots, whose utilisation is
        then 0.
        """
        return np.maximum(self.datacentre.slots, 1).astype(np.float64)

    @cached_property
    def uplink_bps(self) -> FloatArray:
        """Total capacity of each node's uplinks; infinite for a node without."""
        dc = self.datacentre
        total = np.bincount(
            dc.link_lower, dc.link_capacity_bps, minlength=dc.n_nodes
        )
        return np.where(total > 0, total, np.inf)

    @cached_property
    def levels(self) -> tuple[IntArray, ...]:
        """Nodes below the core (with a parent) by level, highest level first."""
        dc = self.datacentre
        parents = np.stack([tree.parent for tree in dc.trees])
        below = (parents >= 0).any(axis=0)
        levels = []
        for height in reversed(range(dc.n_levels)):
            group = np.flatnonzero(below & (dc.level == height))
            if len(group):
                levels.append(group)
        return tuple(levels)

    @cached_property
    def component(self) -> IntArray:
        """Index into :attr:`levels` of every node's group; -1 for roots."""
        component = np.full(self.datacentre.n_nodes, -1, dtype=np.int64)
        for k, group in enumerate(self.levels):
            component[group] = k
        return component

    @cached_property
    def nodes(self) -> Nodes:
        """The data centre as flat arrays."""
        dc = self.datacentre
        inner = np.ones(dc.n_nodes)
        inner[: dc.n_servers] = self.slots
        for layer in dc.layers:
            inner[layer.switch_index] = np.diff(layer.start)
        switches = [layer.switches for layer in dc.layers]
        child = np.concatenate([layer.child for layer in dc.layers])
        above = np.concatenate(
            [layer.switches[layer.owner] for layer in dc.layers]
        )
        n_above = np.bincount(child, minlength=dc.n_nodes)
        return Nodes(
            n_servers=dc.n_servers,
            n_levels=dc.n_levels,
            n_components=len(self.levels),
            most_above=int(n_above.max(initial=1)),
            level=np.array(dc.level),
            component=self.component,
            parent=np.stack([tree.parent for tree in dc.trees]),
            above_start=np.concatenate(([0], np.cumsum(n_above))),
            # Sorted by child, so that the parents of a node are adjacent.
            above=above[np.argsort(child, kind="stable")],
            upward=np.concatenate([np.arange(dc.n_servers), *switches]),
            per_inner=1.0 / inner,
            per_uplink=1.0 / self.uplink_bps,
            lower=np.array(dc.link_lower),
            capacity=capacities(dc),
        )


@dataclass(frozen=True, eq=False)
class AdmissionOffer:
    """A candidate: a job's placement at a rate per VM, in ``[start_s, end_s)``."""

    placement: Placement
    rate_bps: int
    start_s: float
    end_s: float


def less(a: Sequence[float], b: Sequence[float]) -> bool:
    """True if ``a`` is lexicographically smaller than ``b``; both are U's.

    Components within the tolerance count as equal, and components negligible
    beside the largest of all as 0.
    """
    largest = max(map(abs, [*a, *b]), default=0.0)
    negligible = _NEGLIGIBLE * largest
    for x, y in zip(a, b, strict=True):
        tolerance = RELATIVE_TOLERANCE * max(abs(x), abs(y))
        if abs(x - y) > tolerance + negligible:
            return x < y
    return False


def increases(
    utilisation: Utilisation,
    timeline: Timeline,
    candidates: Sequence[AdmissionOffer],
) -> FloatArray:
    """The increase of U by each candidate, shape (candidates, levels).

    All candidates start at or after the timeline's cursor.
    """
    if not candidates:
        return np.zeros((0, len(utilisation.levels)))
    points = _points(utilisation.datacentre, candidates)
    return increases_of(utilisation, timeline, points)


def _points(dc: DataCentre, candidates: Sequence[AdmissionOffer]) -> Points:
    """The candidates as arrays, in order."""
    roots = [tree.root for tree in dc.trees]
    trees = []
    vms_on: list[tuple[int, int]] = []
    for candidate in candidates:
        trees.append(roots.index(candidate.placement.root))
        vms_on.extend(candidate.placement.vms_on)
    width = np.array([len(c.placement.vms_on) for c in candidates])
    servers, counts = zip(*vms_on, strict=True)
    return Points(
        tree=np.array(trees),
        n_vms=np.array([c.placement.n_vms for c in candidates]),
        offset=np.cumsum(width) - width,
        width=width,
        servers=np.array(servers),
        counts=np.array(counts),
        rate=np.array([c.rate_bps for c in candidates], dtype=np.int64),
        begin=np.array([c.start_s for c in candidates], dtype=np.float64),
        end=np.array([c.end_s for c in candidates], dtype=np.float64),
    )


def increases_of(
    utilisation: Utilisation, timeline: Timeline, points: Points
) -> FloatArray:
    """:func:`increases` of candidates as arrays."""
    # Changes after the end of all candidates affect no increase.
    changes = timeline.upcoming(float(points.end.max()))
    steps = STEPS_PER_NODE * (
        utilisation.datacentre.n_nodes + len(points.servers)
    )
    raised: FloatArray = INCREASES(
        steps,
        utilisation.nodes,
        timeline.record(),
        timeline.free,
        changes,
        timeline.cursor_s,
        points,
    )
    return raised


# -- the compiled loop ---------------------------------------------------------


class Pieces(NamedTuple):
    """Intervals of constant state: those of node v are ``first[v]`` to
    ``first[v + 1] - 1``, in time order.

    ``time`` is a piece's beginning in s; it ends at the next one's, and the
    last never. The state is ``inner``, a server's used slots or the sum of DRU
    of a switch's children, and ``carried``, the bit/s on the uplinks.
    """

    first: IntArray
    time: FloatArray
    inner: FloatArray
    carried: FloatArray


class _PieceLog(NamedTuple):
    """Pieces of all nodes in time order; ``n[0]`` is their number."""

    n: IntArray
    time: FloatArray
    node: IntArray
    inner: FloatArray
    carried: FloatArray


class _Dirty(NamedTuple):
    """Nodes whose state changes at the present instant.

    ``listed[h, : length[h]]`` are those of level h. ``stamp``, per node, is the
    group of changes in which it was listed last; a group is the changes of one
    instant, named after the first of them.
    """

    listed: IntArray
    length: IntArray
    stamp: IntArray


class Points(NamedTuple):
    """Candidates as arrays; each is a point of a policy's search.

    Point k places ``counts[i]`` VMs on ``servers[i]``, for the ``width[k]``
    indices i from ``offset[k]`` on. ``tree[k]`` is the index of the tree to which
    it is pinned. It runs from ``begin[k]`` to ``end[k]`` in s, at ``rate[k]``
    bit/s per VM.
    """

    tree: IntArray
    n_vms: IntArray
    offset: IntArray
    width: IntArray
    servers: IntArray
    counts: IntArray
    rate: IntArray
    begin: FloatArray
    end: FloatArray


def increases_loop(
    nodes: Nodes,
    record: Record,
    free: IntArray,
    changes: tuple[int, int],
    now_s: float,
    points: Points,
) -> FloatArray:
    """The increase of U by each point, shape (points, components)."""
    # Of thousands of servers a job touches some hundred. Only these and the
    # switches above them get pieces.
    needed = _touched(nodes, points)
    pieces = _pieces(nodes, record, free, changes, now_s, needed)
    out = np.zeros((len(points.offset), nodes.n_components))
    n_nodes = len(nodes.level)
    scratch = _Scratch(
        np.full(n_nodes, -1, dtype=np.int64),
        np.empty(n_nodes, dtype=np.int64),
        np.zeros(n_nodes, dtype=np.int64),
        np.empty(nodes.most_above, dtype=np.int64),
        np.zeros(len(pieces.time)),
    )
    for point in range(len(points.offset)):
        if points.width[point] > 0:
            _increase(nodes, pieces, points, point, scratch, out[point])
    return out


def _touched(nodes: Nodes, points: Points) -> IntArray:
    """1 for the servers of any point and for the switches above them, except
    roots; shape (nodes,).
    """
    needed = np.zeros(len(nodes.level), dtype=np.int64)
    for point in range(len(points.offset)):
        lo = points.offset[point]
        needed[points.servers[lo : lo + points.width[point]]] = 1
    for node in nodes.upward:
        if needed[node]:
            first = nodes.above_start[node]
            last = nodes.above_start[node + 1]
            needed[nodes.above[first:last]] = 1
    # Roots belong to no component of U.
    needed[nodes.component < 0] = 0
    return needed


def _pieces(
    nodes: Nodes,
    record: Record,
    free: IntArray,
    changes: tuple[int, int],
    now_s: float,
    needed: IntArray,
) -> Pieces:
    """The pieces of all ``needed`` nodes, from one sweep over the changes."""
    n_nodes = len(nodes.level)
    inner, carried, dru = _state(nodes, free)
    relevant = _relevant(nodes, needed)
    log = _empty_log(nodes, record, changes, needed)
    # A node's first piece begins at the cursor, in the state of then.
    for node in range(n_nodes):
        if needed[node]:
            _append(log, now_s, node, inner[node], carried[node])
    dirty = _Dirty(
        np.empty((nodes.n_levels, n_nodes), dtype=np.int64),
        np.zeros(nodes.n_levels, dtype=np.int64),
        np.full(n_nodes, -1, dtype=np.int64),
    )
    listed = dirty.listed
    length = dirty.length
    stamp = dirty.stamp
    k = changes[0]
    while k < changes[1]:
        time = record.time[k]
        group = k
        # All changes of an instant together begin one new piece: pieces
        # without length would cost time for nothing.
        while k < changes[1] and record.time[k] == time:
            _apply_change(
                nodes, record, k, (inner, carried), dirty, relevant, group
            )
            k += 1
        # Upward, as a switch's state is the sum of its children's DRU.
        for level in range(nodes.n_levels):
            for j in range(length[level]):
                node = listed[level, j]
                if needed[node]:
                    _append(log, time, node, inner[node], carried[node])
                new = max(
                    inner[node] * nodes.per_inner[node],
                    carried[node] * nodes.per_uplink[node],
                )
                first = nodes.above_start[node]
                for e in range(first, nodes.above_start[node + 1]):
                    above = nodes.above[e]
                    # By the difference: the other children keep theirs.
                    inner[above] += new - dru[node]
                    if relevant[above] and stamp[above] != group:
                        stamp[above] = group
                        higher = nodes.level[above]
                        listed[higher, length[higher]] = above
                        length[higher] += 1
                dru[node] = new
            length[level] = 0
    return _by_node(n_nodes, log)


def _relevant(nodes: Nodes, needed: IntArray) -> IntArray:
    """1 for ``needed`` nodes and all nodes below them, on whose state theirs
    depends; shape (nodes,).
    """
    relevant = needed.copy()
    # Downward, so that parents are marked before their children.
    for node in nodes.upward[::-1]:
        for e in range(
            nodes.above_start[node], nodes.above_start[node + 1]
        ):
            relevant[node] |= relevant[nodes.above[e]]
    return relevant


def _empty_log(
    nodes: Nodes, record: Record, changes: tuple[int, int], needed: IntArray
) -> _PieceLog:
    """A log with room for the most pieces that there can be."""
    most = int(needed.sum())
    # The most nodes that one node's change affects: itself and all above.
    affected = 1
    on_level = 1
    for _ in range(nodes.n_levels - 1):
        on_level *= nodes.most_above
        affected += on_level
    for k in range(changes[0], changes[1]):
        most += record.length[record.what[k]] * affected
    return _PieceLog(
        np.zeros(1, dtype=np.int64),
        np.empty(most),
        np.empty(most, dtype=np.int64),
        np.empty(most),
        np.empty(most),
    )


def _append(
    log: _PieceLog, time: float, node: int, inner: float, carried: float
) -> None:
    """Appends a piece that begins at ``time``."""
    n = log.n[0]
    log.time[n] = time
    log.node[n] = node
    log.inner[n] = inner
    log.carried[n] = carried
    log.n[0] = n + 1


def _state(
    nodes: Nodes, free: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """``inner``, ``carried`` and DRU of every node at the cursor; see
    :class:`Pieces`.
    """
    n_nodes = len(nodes.level)
    inner = np.zeros(n_nodes)
    carried = np.zeros(n_nodes)
    dru = np.zeros(n_nodes)
    # What a link carries belongs to its lower end, for all uplinks together.
    for link in range(len(nodes.lower)):
        resource = nodes.n_servers + link
        used = nodes.capacity[resource] - free[resource]
        carried[nodes.lower[link]] += used
    for server in range(nodes.n_servers):
        inner[server] = nodes.capacity[server] - free[server]
    # Upward, so that a node's sum is complete when its DRU is computed.
    for node in nodes.upward:
        dru[node] = max(
            inner[node] * nodes.per_inner[node],
            carried[node] * nodes.per_uplink[node],
        )
        for e in range(
            nodes.above_start[node], nodes.above_start[node + 1]
        ):
            inner[nodes.above[e]] += dru[node]
    return inner, carried, dru


def _apply_change(
    nodes: Nodes,
    record: Record,
    k: int,
    state: tuple[FloatArray, FloatArray],
    dirty: _Dirty,
    relevant: IntArray,
    group: int,
) -> None:
    """Applies change ``k`` of the timeline to the state of the relevant nodes
    that it touches, and lists these in ``dirty``.
    """
    inner, carried = state
    amounts = record.amounts
    length = dirty.length
    sign = record.sign[k]
    n_servers = nodes.n_servers
    lo = record.start[record.what[k]]
    for j in range(lo, lo + record.length[record.what[k]]):
        resource = record.objects[j]
        # A link's change is one of the node below it.
        node = resource
        if resource >= n_servers:
            node = nodes.lower[resource - n_servers]
        if not relevant[node]:
            continue
        if resource < n_servers:
            inner[node] += sign * amounts[j]
        else:
            carried[node] += sign * amounts[j]
        if dirty.stamp[node] != group:
            dirty.stamp[node] = group
            level = nodes.level[node]
            dirty.listed[level, length[level]] = node
            length[level] += 1


def _by_node(n_nodes: int, log: _PieceLog) -> Pieces:
    """The log's pieces by node, and by time within a node.

    A counting sort, which keeps the log's order of time.
    """
    n = log.n[0]
    at_node = log.node
    first = np.zeros(n_nodes + 1, dtype=np.int64)
    for j in range(n):
        first[at_node[j] + 1] += 1
    first = np.cumsum(first)
    next_place = first[:-1].copy()
    time = np.empty(n)
    inner = np.empty(n)
    carried = np.empty(n)
    for j in range(n):
        to = next_place[at_node[j]]
        next_place[at_node[j]] += 1
        time[to] = log.time[j]
        inner[to] = log.inner[j]
        carried[to] = log.carried[j]
    return Pieces(first, time, inner, carried)


class _Scratch(NamedTuple):
    """Arrays for the computation of a point; all points use them in turn.

    Per node: ``point``, the last point that reached it; ``below``, this point's
    VMs below it in its tree. ``above`` lists the switches that this point
    reaches. ``at`` has, per parent of a node, a piece. ``risen``, per piece of a
    switch, is the increase of its ``inner``. Between points ``below`` and
    ``risen`` are 0.
    """

    point: IntArray
    above: IntArray
    below: IntArray
    at: IntArray
    risen: FloatArray


def _increase(
    nodes: Nodes,
    pieces: Pieces,
    points: Points,
    point: int,
    scratch: _Scratch,
    out: FloatArray,
) -> None:
    """Adds the increase of U by one point to ``out``, shape (components,)."""
    lo = points.offset[point]
    hi = lo + points.width[point]
    above = scratch.above
    below = scratch.below
    parent = nodes.parent[points.tree[point]]
    n_above = 0
    for k in range(lo, hi):
        server = points.servers[k]
        n_above = _list_parents(nodes, server, point, scratch, n_above)
        node = parent[server]
        while node >= 0 and nodes.component[node] >= 0:
            below[node] += points.counts[k]
            node = parent[node]
    # The list grows while it is read, until the parents of all are on it.
    j = 0
    while j < n_above:
        n_above = _list_parents(nodes, above[j], point, scratch, n_above)
        j += 1
    for k in range(lo, hi):
        server = points.servers[k]
        count = points.counts[k]
        _increase_at(
            nodes, pieces, points, point, server, count, count, scratch, out
        )
    # By level, as children come before their parents: in an uneven tree the
    # order of the list does not do it.
    for level in range(1, nodes.n_levels):
        for k in range(n_above):
            node = above[k]
            if nodes.level[node] == level:
                vms = below[node]
                _increase_at(
                    nodes, pieces, points, point, node, vms, 0, scratch, out
                )
                below[node] = 0


def _list_parents(
    nodes: Nodes, node: int, point: int, scratch: _Scratch, n_above: int
) -> int:
    """Lists a node's parents in ``above``, except roots and those listed already.

    ``n_above`` is the length of the list; returns its new length.
    """
    last = scratch.point
    for e in range(nodes.above_start[node], nodes.above_start[node + 1]):
        switch = nodes.above[e]
        if nodes.component[switch] >= 0 and last[switch] != point:
            last[switch] = point
            scratch.above[n_above] = switch
            n_above += 1
    return n_above


def _increase_at(
    nodes: Nodes,
    pieces: Pieces,
    points: Points,
    point: int,
    node: int,
    vms: int,
    slots: int,
    scratch: _Scratch,
    out: FloatArray,
) -> None:
    """Adds the increase at one node to ``out``, and to ``risen`` of its parents'
    pieces.

    ``vms``: the point's VMs at or below the node. ``slots``: those that it adds
    to a server; 0 for a switch, whose ``inner`` rises by ``risen``.
    """
    times = pieces.time
    inner = pieces.inner
    carried = pieces.carried
    first = pieces.first
    risen = scratch.risen
    at = scratch.at
    above = nodes.above
    per_inner = nodes.per_inner[node]
    per_uplink = nodes.per_uplink[node]
    begin = points.begin[point]
    end = points.end[point]
    # A hose loads a link with the VMs on its smaller side, times their rate.
    more = min(vms, points.n_vms[point] - vms) * points.rate[point]
    first_up = nodes.above_start[node]
    last_up = nodes.above_start[node + 1]
    last = first[node + 1]
    for e in range(first_up, last_up):
        at[e - first_up] = _piece_at(pieces, above[e], begin)
    total = 0.0
    for k in range(_piece_at(pieces, node, begin), last):
        if times[k] >= end:
            break
        until = min(times[k + 1], end) if k + 1 < last else end
        old = max(inner[k] * per_inner, carried[k] * per_uplink)
        added = float(slots) if slots > 0 else risen[k]
        # Back to 0 for the next point.
        risen[k] = 0.0
        new = max(
            (inner[k] + added) * per_inner, (carried[k] + more) * per_uplink
        )
        # Eq. 4: the integral, over the part of the piece in which the job
        # runs.
        total += (new - old) * (until - max(times[k], begin))
        for e in range(first_up, last_up):
            # A root has no pieces: up is its up_last at once.
            up = at[e - first_up]
            up_last = first[above[e] + 1]
            while up < up_last and times[up] < until:
                risen[up] += new - old
                up += 1
            at[e - first_up] = up
    out[nodes.component[node]] += total


def _piece_at(pieces: Pieces, node: int, at_s: float) -> int:
    """The piece of ``node`` during which ``at_s`` is, by binary search; before
    all pieces the first.
    """
    lo = int(pieces.first[node])
    hi = int(pieces.first[node + 1])
    while hi - lo > 1:
        middle = (lo + hi) // 2
        if pieces.time[middle] <= at_s:
            lo = middle
        else:
            hi = middle
    return lo


INCREASES = LazyLoop(increases_loop)
