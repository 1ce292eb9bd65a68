"""Dominant resource utilisation, DRU (DCloud, Section III.C): how hard the next
request will be.

At an instant a server's DRU is the larger of its slots' and its uplink's
utilisation (Eq. 2), a switch's the larger of its children's mean and its
uplink's (Eq. 3: first the maximum, then the integral); a node's DRU is its
integral over time (Eq. 4). The network's is the tuple of sums over the nodes of
each level below the core, highest level first, compared lexicographically.

Where a node has several uplinks (fat-trees; the paper has trees alone) they
count as one of their total capacity, and a switch is among the parents'
children of every one.

Admitting a job changes the DRU only at the nodes above and with its VMs, and
only while it holds them. Its differences are summed from lists of pieces: for
every node that a candidate touches, the intervals in which its state stays the
same. A switch's pieces end wherever one of its children's does, so a child's
difference covers whole pieces of its parents.
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
"""U's that differ by less are equal: otherwise rounding would decide ties."""

# Sums that cancel leave remainders of this share of the largest component,
# which must not decide before the next level does.
_NOTHING = 1e-12

STEPS_PER_NODE = 20
"""Steps of a loop in Python for each node and candidate's start, for
:class:`LazyLoop`.
"""


class Nodes(NamedTuple):
    """A data centre as the flat arrays that compiled loops take.

    Per node: ``level``, ``component`` of U it counts in (-1: none, as for
    roots), ``parent[t]`` in tree t (-1: none), and its parents in all trees,
    ``above[above_start[v] : above_start[v + 1]]``. ``per_inner`` is 1 over a
    server's slots or a switch's children, ``per_uplink`` 1 over the capacity of
    the uplinks (0: none): multiplying by them gives utilisations.

    ``upward`` are all nodes: servers by id, then switches by level and id.
    ``lower`` is the lower end of every link.
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
    """A data centre as DRU needs it: capacities per node, and nodes by level."""

    datacentre: DataCentre

    @cached_property
    def slots(self) -> FloatArray:
        """Slots per server; 1 where there are none, so that their utilisation
        is 0.
        """
        return np.maximum(self.datacentre.slots, 1).astype(np.float64)

    @cached_property
    def uplink_bps(self) -> FloatArray:
        """Capacity of each node's uplinks together, infinite where it has none."""
        dc = self.datacentre
        total = np.bincount(
            dc.link_lower, dc.link_capacity_bps, minlength=dc.n_nodes
        )
        return np.where(total > 0, total, np.inf)

    @cached_property
    def levels(self) -> tuple[IntArray, ...]:
        """The nodes of each level that have a parent, highest level first."""
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
        """For every node which of :attr:`levels` it is counted in, -1 for
        roots.
        """
        component = np.full(self.datacentre.n_nodes, -1, dtype=np.int64)
        for k, group in enumerate(self.levels):
            component[group] = k
        return component

    @cached_property
    def nodes(self) -> Nodes:
        """The same as flat arrays."""
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
            # By child: the parents of a node stand together.
            above=above[np.argsort(child, kind="stable")],
            upward=np.concatenate([np.arange(dc.n_servers), *switches]),
            per_inner=1.0 / inner,
            per_uplink=1.0 / self.uplink_bps,
            lower=np.array(dc.link_lower),
            capacity=capacities(dc),
        )


@dataclass(frozen=True, eq=False)
class AdmissionOffer:
    """A way to admit a job: a placement at a rate, in ``[start_s, end_s)``."""

    placement: Placement
    rate_bps: int
    start_s: float
    end_s: float


def less(a: Sequence[float], b: Sequence[float]) -> bool:
    """Compares U ``a`` with ``b``: true where smaller, lexicographically, up to
    the tolerance.

    What is nothing beside the largest component is equal to 0.
    """
    largest = max(map(abs, [*a, *b]), default=0.0)
    nothing = _NOTHING * largest
    for x, y in zip(a, b, strict=True):
        rounding = RELATIVE_TOLERANCE * max(abs(x), abs(y))
        if abs(x - y) > rounding + nothing:
            return x < y
    return False


def increases(
    utilisation: Utilisation,
    timeline: Timeline,
    candidates: Sequence[AdmissionOffer],
) -> FloatArray:
    """By how much each candidate would raise U: shape (candidates, levels).

    All candidates start at or after the timeline's cursor.
    """
    if not candidates:
        return np.zeros((0, len(utilisation.levels)))
    points = _points(utilisation.datacentre, candidates)
    return increases_of(utilisation, timeline, points)


def _points(dc: DataCentre, candidates: Sequence[AdmissionOffer]) -> Points:
    """Candidates as arrays."""
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
    """:func:`increases` of candidates that are arrays already."""
    # What happens after the last candidate has ended changes no difference.
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


# -- the loop, number by number ------------------------------------------------


class Pieces(NamedTuple):
    """Node v's pieces are ``first[v] .. first[v + 1] - 1``, in time order, the
    last one for ever.

    ``inner`` is the slots used of a server, the sum of the children's DRU of a
    switch; ``carried`` the bit/s on its uplink.
    """

    first: IntArray
    time: FloatArray
    inner: FloatArray
    carried: FloatArray


class _Log(NamedTuple):
    """Pieces in the order in which they came up; ``n`` holds their number."""

    n: IntArray
    time: FloatArray
    node: IntArray
    inner: FloatArray
    carried: FloatArray


class _Dirty(NamedTuple):
    """Nodes that changed in one group of changes: ``listed`` by level,
    ``length`` of each list.

    ``stamp`` is the last group in which a node was listed.
    """

    listed: IntArray
    length: IntArray
    stamp: IntArray


class Points(NamedTuple):
    """Candidates: point k takes ``counts`` on ``servers``, ``width[k]`` long
    from ``offset[k]``.

    ``tree[k]`` is the number of the tree that it is pinned to, of those of the
    data centre.
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
    """By how much every point would raise U: shape (points, components)."""
    # Of thousands of servers a job touches some hundred: only these, and
    # what is above them, are noted.
    needed = _touched(nodes, points)
    pieces = _pieces(nodes, record, free, changes, now_s, needed)
    out = np.zeros((len(points.offset), nodes.n_components))
    n_nodes = len(nodes.level)
    reach = _Reach(
        np.full(n_nodes, -1, dtype=np.int64),
        np.empty(n_nodes, dtype=np.int64),
        np.zeros(n_nodes, dtype=np.int64),
        np.empty(nodes.most_above, dtype=np.int64),
        np.zeros(len(pieces.time)),
    )
    for point in range(len(points.offset)):
        if points.width[point] > 0:
            _increase(nodes, pieces, points, point, reach, out[point])
    return out


def _touched(nodes: Nodes, points: Points) -> IntArray:
    """1 for the servers that any point uses and for all above them, roots left
    out.
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
    # A root has no uplink: it counts in no component of U.
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
    """One sweep over the changes, noting the new state of every needed node
    that changes.
    """
    n_nodes = len(nodes.level)
    inner, carried, dru = _state(nodes, free)
    matters = _mattering(nodes, needed)
    log = _log(nodes, record, changes, needed)
    # A node's first piece begins at the cursor, with what is held then.
    for node in range(n_nodes):
        if needed[node]:
            _note(log, now_s, node, inner[node], carried[node])
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
        # All changes of an instant make one new state: pieces of no length
        # would be compared for nothing.
        while k < changes[1] and record.time[k] == time:
            _change(
                nodes, record, k, (inner, carried), dirty, matters, group
            )
            k += 1
        # From below: a switch's state is the sum of its children's DRU.
        for level in range(nodes.n_levels):
            for j in range(length[level]):
                node = listed[level, j]
                if needed[node]:
                    _note(log, time, node, inner[node], carried[node])
                new = max(
                    inner[node] * nodes.per_inner[node],
                    carried[node] * nodes.per_uplink[node],
                )
                first = nodes.above_start[node]
                for e in range(first, nodes.above_start[node + 1]):
                    above = nodes.above[e]
                    # The sum of the other children stands already.
                    inner[above] += new - dru[node]
                    if matters[above] and stamp[above] != group:
                        stamp[above] = group
                        higher = nodes.level[above]
                        listed[higher, length[higher]] = above
                        length[higher] += 1
                dru[node] = new
            length[level] = 0
    return _by_node(n_nodes, log)


def _mattering(nodes: Nodes, needed: IntArray) -> IntArray:
    """1 for touched nodes and all below them: only these can matter to what is
    touched.
    """
    matters = needed.copy()
    # From the top down, so that what is above a node is known before it.
    for node in nodes.upward[::-1]:
        for e in range(
            nodes.above_start[node], nodes.above_start[node + 1]
        ):
            matters[node] |= matters[nodes.above[e]]
    return matters


def _log(
    nodes: Nodes, record: Record, changes: tuple[int, int], needed: IntArray
) -> _Log:
    """Room for as many notes as there can be."""
    most = int(needed.sum())
    widest = 1
    step = 1
    for _ in range(nodes.n_levels - 1):
        step *= nodes.most_above
        widest += step
    # Each object of a change touches a node and, at most, all above it.
    for k in range(changes[0], changes[1]):
        most += record.length[record.what[k]] * widest
    return _Log(
        np.zeros(1, dtype=np.int64),
        np.empty(most),
        np.empty(most, dtype=np.int64),
        np.empty(most),
        np.empty(most),
    )


def _note(
    log: _Log, time: float, node: int, inner: float, carried: float
) -> None:
    n = log.n[0]
    log.time[n] = time
    log.node[n] = node
    log.inner[n] = inner
    log.carried[n] = carried
    log.n[0] = n + 1


def _state(
    nodes: Nodes, free: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """State and DRU of every node at the cursor."""
    n_nodes = len(nodes.level)
    inner = np.zeros(n_nodes)
    carried = np.zeros(n_nodes)
    dru = np.zeros(n_nodes)
    # A link counts at its lower end: uplinks of a node add up there.
    for link in range(len(nodes.lower)):
        resource = nodes.n_servers + link
        used = nodes.capacity[resource] - free[resource]
        carried[nodes.lower[link]] += used
    for server in range(nodes.n_servers):
        inner[server] = nodes.capacity[server] - free[server]
    # From below: the sum of a node's children is whole when it is its turn.
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


def _change(
    nodes: Nodes,
    record: Record,
    k: int,
    state: tuple[FloatArray, FloatArray],
    dirty: _Dirty,
    matters: IntArray,
    group: int,
) -> None:
    """One change of the timeline: the nodes it touches get their new state and
    become dirty.
    """
    inner, carried = state
    amounts = record.amounts
    length = dirty.length
    sign = record.sign[k]
    n_servers = nodes.n_servers
    lo = record.start[record.what[k]]
    for j in range(lo, lo + record.length[record.what[k]]):
        resource = record.objects[j]
        # What happens on a link happens to the node below it.
        node = resource
        if resource >= n_servers:
            node = nodes.lower[resource - n_servers]
        if not matters[node]:
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


def _by_node(n_nodes: int, log: _Log) -> Pieces:
    """Pieces in order of their node; a counting sort keeps the order of time."""
    n = log.n[0]
    at_node = log.node
    first = np.zeros(n_nodes + 1, dtype=np.int64)
    for j in range(n):
        first[at_node[j] + 1] += 1
    first = np.cumsum(first)
    where = first[:-1].copy()
    time = np.empty(n)
    inner = np.empty(n)
    carried = np.empty(n)
    for j in range(n):
        to = where[at_node[j]]
        where[at_node[j]] += 1
        time[to] = log.time[j]
        inner[to] = log.inner[j]
        carried[to] = log.carried[j]
    return Pieces(first, time, inner, carried)


class _Reach(NamedTuple):
    """Scratch for one point after another.

    ``point`` is the last one that touched a node, ``above`` lists the switches
    of this one, ``below`` counts its VMs below them in its tree, ``at`` are
    pieces of a node's parents. ``risen`` is, for the pieces of switches, by how
    much their children's sum rises. ``below`` and ``risen`` are 0 before and
    after.
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
    reach: _Reach,
    out: FloatArray,
) -> None:
    """One point's differences, from its servers up."""
    lo = points.offset[point]
    hi = lo + points.width[point]
    above = reach.above
    below = reach.below
    parent = nodes.parent[points.tree[point]]
    n_above = 0
    for k in range(lo, hi):
        server = points.servers[k]
        n_above = _reached(nodes, server, point, reach, n_above)
        node = parent[server]
        while node >= 0 and nodes.component[node] >= 0:
            below[node] += points.counts[k]
            node = parent[node]
    j = 0
    while j < n_above:
        n_above = _reached(nodes, above[j], point, reach, n_above)
        j += 1
    for k in range(lo, hi):
        server = points.servers[k]
        count = points.counts[k]
        _rise(
            nodes, pieces, points, point, server, count, count, reach, out
        )
    # Children stand before their parents: by level, for servers may differ in
    # depth.
    for level in range(1, nodes.n_levels):
        for k in range(n_above):
            node = above[k]
            if nodes.level[node] == level:
                vms = below[node]
                _rise(
                    nodes, pieces, points, point, node, vms, 0, reach, out
                )
                below[node] = 0


def _reached(
    nodes: Nodes, node: int, point: int, reach: _Reach, n_above: int
) -> int:
    """Lists a node's parents where they are not yet; how many are listed then."""
    last = reach.point
    for e in range(nodes.above_start[node], nodes.above_start[node + 1]):
        switch = nodes.above[e]
        if nodes.component[switch] >= 0 and last[switch] != point:
            last[switch] = point
            reach.above[n_above] = switch
            n_above += 1
    return n_above


def _rise(
    nodes: Nodes,
    pieces: Pieces,
    points: Points,
    point: int,
    node: int,
    vms: int,
    slots: int,
    reach: _Reach,
    out: FloatArray,
) -> None:
    """A node's own differences: summed into ``out``, and passed on to its
    parents' pieces.
    """
    times = pieces.time
    inner = pieces.inner
    carried = pieces.carried
    first = pieces.first
    risen = reach.risen
    at = reach.at
    above = nodes.above
    per_inner = nodes.per_inner[node]
    per_uplink = nodes.per_uplink[node]
    begin = points.begin[point]
    end = points.end[point]
    # A hose's rate over a link: the smaller side's VMs times each one's rate.
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
        # The scratch is left at 0 for the next point.
        risen[k] = 0.0
        new = max(
            (inner[k] + added) * per_inner, (carried[k] + more) * per_uplink
        )
        # Eq. 4: the integral over the part of the piece inside the job's
        # time.
        total += (new - old) * (until - max(times[k], begin))
        for e in range(first_up, last_up):
            # Roots count for nothing and have no pieces.
            up = at[e - first_up]
            up_last = first[above[e] + 1]
            while up < up_last and times[up] < until:
                risen[up] += new - old
                up += 1
            at[e - first_up] = up
    out[nodes.component[node]] += total


def _piece_at(pieces: Pieces, node: int, at_s: float) -> int:
    """The piece of ``node`` that holds ``at_s``, or its first."""
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
