"""Differences of DRU for many candidates on a single tree, number by number: what is compiled.

The same sums as :func:`testbed.schedulers.dru.increases` (a test compares them), which stays for
networks of several trees. They come from lists of pieces: for every node that a candidate touches,
the intervals in which its state stays the same. A switch's pieces end wherever one of its
children's does, so a child's difference covers whole pieces of its parent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from testbed.compiled import LazyLoop
from testbed.reservation.ledger import capacities
from testbed.reservation.timeline import Record
from testbed.schedulers.dru import FloatArray, Utilisation
from topologies.datacentre import IntArray


class TreeArrays(NamedTuple):
    """A data centre that is one tree, as the flat arrays that compiled loops take.

    Per node: ``parent``, ``uplink`` (the object above it, see footprint; -1 none), ``level``,
    ``component`` of U it counts in (-1: none), ``top`` (the component's first level ancestor or
    itself, -1 for the root).

    ``per_inner`` is 1 over a server's slots or a switch's children, ``per_uplink`` 1 over the
    uplink's capacity (0: no uplink): multiplying by them gives utilisations.

    Children of v by id are ``child[child_start[v] : child_start[v + 1]]``, those that are switches
    from ``switch_start[v]`` on. ``switches`` are all of them, by level and id. ``lower`` is the
    lower end of every link.
    """

    n_servers: int
    n_levels: int
    n_components: int
    most_slots: int
    parent: IntArray
    uplink: IntArray
    level: IntArray
    component: IntArray
    top: IntArray
    per_inner: FloatArray
    per_uplink: FloatArray
    child_start: IntArray
    switch_start: IntArray
    child: IntArray
    switches: IntArray
    lower: IntArray
    capacity: IntArray


def tree_arrays(utilisation: Utilisation) -> TreeArrays:
    """The arrays of a data centre with a single tree; ValueError for any other."""
    dc = utilisation.datacentre
    if len(dc.trees) != 1:
        raise ValueError(f"this data centre has {len(dc.trees)} trees")
    tree = dc.trees[0]
    switches = np.arange(dc.n_servers, dc.n_nodes)
    inside = switches[np.isin(switches, tree.members)]
    by_level = inside[np.argsort(dc.level[inside], kind="stable")]
    child_start, child = np.array(tree.child_start), np.array(tree.child_list)
    is_server = np.concatenate(([0], np.cumsum(child < dc.n_servers)))
    inner = np.maximum(np.diff(child_start), 1).astype(np.float64)
    inner[: dc.n_servers] = utilisation.slots
    return TreeArrays(
        n_servers=dc.n_servers,
        n_levels=dc.n_levels,
        n_components=len(utilisation.levels),
        most_slots=int(dc.slots.max(initial=0)),
        parent=np.array(tree.parent),
        uplink=np.where(tree.uplink >= 0, tree.uplink + dc.n_servers, -1),
        level=np.array(dc.level),
        component=utilisation.component,
        top=_tops(tree.parent, by_level, dc.n_servers),
        per_inner=1.0 / inner,
        per_uplink=1.0 / utilisation.uplink_bps,
        child_start=child_start,
        switch_start=child_start[:-1] + np.diff(is_server[child_start]),
        child=child,
        switches=by_level,
        lower=np.array(dc.link_lower),
        capacity=capacities(dc),
    )


def _tops(parent: IntArray, switches: IntArray, n_servers: int) -> IntArray:
    """For every node the child of the root that it is, or hangs below."""
    top = np.full(len(parent), -1, dtype=np.int64)
    downward = np.concatenate((switches[::-1], np.arange(n_servers)))
    for node in downward.tolist():
        above = int(parent[node])
        if above >= 0:
            top[node] = node if top[above] < 0 else top[above]
    return top


class Pieces(NamedTuple):
    """Node v's pieces are ``first[v] .. first[v + 1] - 1``, in time order, the last one for ever.

    ``inner`` is the slots used of a server, the sum of the children's DRU of a switch; ``carried``
    the bit/s on its uplink.
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
    """Nodes that changed in one group of changes: ``listed`` by level, ``length`` of each list.

    ``stamp`` is the last group in which a node was listed.
    """

    listed: IntArray
    length: IntArray
    stamp: IntArray


class Points(NamedTuple):
    """Candidates: point k takes ``counts`` on ``servers``, ``width[k]`` long from ``offset[k]``."""

    n_vms: int
    offset: IntArray
    width: IntArray
    servers: IntArray
    counts: IntArray
    rate: IntArray
    begin: FloatArray
    end: FloatArray


def increases_loop(
    tree: TreeArrays, record: Record, free: IntArray, changes: tuple[int, int], now_s: float,
    points: Points,
) -> FloatArray:  # fmt: skip
    """By how much every point would raise U: shape (points, components)."""
    needed = _touched(tree, points)
    pieces = _pieces(tree, record, free, changes, now_s, needed)
    out = np.zeros((len(points.offset), tree.n_components))
    n_nodes = len(tree.parent)
    below = np.zeros(n_nodes, dtype=np.int64)
    above = np.empty(n_nodes, dtype=np.int64)
    risen = np.zeros(len(pieces.time))
    for point in range(len(points.offset)):
        if points.width[point] > 0:
            _increase(tree, pieces, points, point, below, above, risen, out[point])
    return out


def _touched(tree: TreeArrays, points: Points) -> IntArray:
    """1 for the servers that any point uses and for all above them, the root left out."""
    needed = np.zeros(len(tree.parent), dtype=np.int64)
    for point in range(len(points.offset)):
        lo = points.offset[point]
        for k in range(lo, lo + points.width[point]):
            node = points.servers[k]
            while tree.component[node] >= 0 and needed[node] == 0:
                needed[node] = 1
                node = tree.parent[node]
    return needed


def _dru(tree: TreeArrays, node: int, inner: float, carried: float) -> float:
    """A node's DRU from its state (Eq. 2 and 3)."""
    dru: float = max(inner * tree.per_inner[node], carried * tree.per_uplink[node])
    return dru


def _pieces(
    tree: TreeArrays, record: Record, free: IntArray, changes: tuple[int, int], now_s: float,
    needed: IntArray,
) -> Pieces:  # fmt: skip
    """One sweep over the changes, noting the new state of every needed node that changes."""
    n_nodes = len(tree.parent)
    parent, per_inner, per_uplink = tree.parent, tree.per_inner, tree.per_uplink
    inner, carried, dru = _state(tree, free)
    matters = _mattering(tree, needed)
    log = _log(tree, record, changes, needed)
    for node in range(n_nodes):
        if needed[node]:
            _note(log, now_s, node, inner[node], carried[node])
    dirty = _Dirty(
        np.empty((tree.n_levels, n_nodes), dtype=np.int64),
        np.zeros(tree.n_levels, dtype=np.int64),
        np.full(n_nodes, -1, dtype=np.int64),
    )
    listed, length, stamp = dirty.listed, dirty.length, dirty.stamp
    k = changes[0]
    while k < changes[1]:
        time = record.time[k]
        group = k
        while k < changes[1] and record.time[k] == time:
            _change(tree, record, k, (inner, carried), dirty, matters, group)
            k += 1
        for level in range(tree.n_levels):
            for j in range(length[level]):
                node = listed[level, j]
                if needed[node]:
                    _note(log, time, node, inner[node], carried[node])
                new = max(inner[node] * per_inner[node], carried[node] * per_uplink[node])
                above = parent[node]
                inner[above] += new - dru[node]
                dru[node] = new
                if matters[above] and stamp[above] != group:
                    stamp[above] = group
                    higher = tree.level[above]
                    listed[higher, length[higher]] = above
                    length[higher] += 1
            length[level] = 0
    return _by_node(n_nodes, log)


def _mattering(tree: TreeArrays, needed: IntArray) -> IntArray:
    """1 for what is below a touched child of the root: only that can matter to what is touched."""
    top = tree.top
    matters = np.zeros(len(top), dtype=np.int64)
    for node in range(len(top)):
        if top[node] >= 0:
            matters[node] = needed[top[node]]
    return matters


def _log(tree: TreeArrays, record: Record, changes: tuple[int, int], needed: IntArray) -> _Log:
    """Room for as many notes as there can be."""
    most = int(needed.sum())
    for k in range(changes[0], changes[1]):
        most += record.length[record.what[k]] * tree.n_levels
    return _Log(
        np.zeros(1, dtype=np.int64), np.empty(most), np.empty(most, dtype=np.int64),
        np.empty(most), np.empty(most),
    )  # fmt: skip


def _note(log: _Log, time: float, node: int, inner: float, carried: float) -> None:
    n = log.n[0]
    log.time[n], log.node[n], log.inner[n], log.carried[n] = time, node, inner, carried
    log.n[0] = n + 1


def _state(tree: TreeArrays, free: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """State and DRU of every node at the cursor."""
    n_nodes = len(tree.parent)
    inner, carried, dru = np.zeros(n_nodes), np.zeros(n_nodes), np.zeros(n_nodes)
    for link in range(len(tree.lower)):
        here = tree.n_servers + link
        carried[tree.lower[link]] += tree.capacity[here] - free[here]
    for server in range(tree.n_servers):
        inner[server] = tree.capacity[server] - free[server]
        dru[server] = _dru(tree, server, inner[server], carried[server])
        if tree.parent[server] >= 0:
            inner[tree.parent[server]] += dru[server]
    for switch in tree.switches:
        dru[switch] = _dru(tree, switch, inner[switch], carried[switch])
        if tree.parent[switch] >= 0:
            inner[tree.parent[switch]] += dru[switch]
    return inner, carried, dru


def _change(
    tree: TreeArrays, record: Record, k: int, state: tuple[FloatArray, FloatArray],
    dirty: _Dirty, matters: IntArray, group: int,
) -> None:  # fmt: skip
    """One change of the timeline: the nodes it touches get their new state and become dirty."""
    inner, carried = state
    objects, amounts, lower, level = record.objects, record.amounts, tree.lower, tree.level
    listed, length, stamp = dirty.listed, dirty.length, dirty.stamp
    sign, n_servers = record.sign[k], tree.n_servers
    lo = record.start[record.what[k]]
    for j in range(lo, lo + record.length[record.what[k]]):
        here = objects[j]
        node = here if here < n_servers else lower[here - n_servers]
        if not matters[node]:
            continue
        if here < n_servers:
            inner[node] += sign * amounts[j]
        else:
            carried[node] += sign * amounts[j]
        if stamp[node] != group:
            stamp[node] = group
            at = level[node]
            listed[at, length[at]] = node
            length[at] += 1


def _by_node(n_nodes: int, log: _Log) -> Pieces:
    """Pieces in order of their node; a counting sort keeps the order of time."""
    n, at_node = log.n[0], log.node
    at_time, at_inner, at_carried = log.time, log.inner, log.carried
    first = np.zeros(n_nodes + 1, dtype=np.int64)
    for j in range(n):
        first[at_node[j] + 1] += 1
    for node in range(n_nodes):
        first[node + 1] += first[node]
    where = first[:-1].copy()
    time, inner, carried = np.empty(n), np.empty(n), np.empty(n)
    for j in range(n):
        to = where[at_node[j]]
        where[at_node[j]] += 1
        time[to], inner[to], carried[to] = at_time[j], at_inner[j], at_carried[j]
    return Pieces(first, time, inner, carried)


def _increase(
    tree: TreeArrays, pieces: Pieces, points: Points, point: int, below: IntArray,
    above: IntArray, risen: FloatArray, out: FloatArray,
) -> None:  # fmt: skip
    """One point's differences, from its servers up. ``below`` and ``risen`` are 0 before and after.

    ``risen`` is, for the pieces of switches, by how much their children's sum rises.
    """
    lo, hi = points.offset[point], points.offset[point] + points.width[point]
    n_above = 0
    for k in range(lo, hi):
        node = tree.parent[points.servers[k]]
        while node >= 0 and tree.component[node] >= 0:
            if below[node] == 0:
                above[n_above] = node
                n_above += 1
            below[node] += points.counts[k]
            node = tree.parent[node]
    for k in range(lo, hi):
        server, count = points.servers[k], points.counts[k]
        _rise(tree, pieces, points, point, server, count, count, risen, out)
    # Children stand before their parents: by level, for servers differ in depth in uneven trees.
    for level in range(1, tree.n_levels):
        for k in range(n_above):
            if tree.level[above[k]] == level:
                _rise(tree, pieces, points, point, above[k], below[above[k]], 0, risen, out)
    for k in range(n_above):
        below[above[k]] = 0


def _rise(
    tree: TreeArrays, pieces: Pieces, points: Points, point: int, node: int, vms: int,
    slots: int, risen: FloatArray, out: FloatArray,
) -> None:  # fmt: skip
    """A node's own differences: summed into ``out``, and passed on to its parent's pieces."""
    times, inner, carried = pieces.time, pieces.inner, pieces.carried
    per_inner, per_uplink = tree.per_inner[node], tree.per_uplink[node]
    begin, end = points.begin[point], points.end[point]
    more = min(vms, points.n_vms - vms) * points.rate[point]
    parent = tree.parent[node]
    passes = tree.component[parent] >= 0
    last, up_last = pieces.first[node + 1], pieces.first[parent + 1]
    up = _piece_at(pieces, parent, begin) if passes else up_last
    total = 0.0
    for k in range(_piece_at(pieces, node, begin), last):
        if times[k] >= end:
            break
        until = min(times[k + 1], end) if k + 1 < last else end
        old = max(inner[k] * per_inner, carried[k] * per_uplink)
        added = float(slots) if slots > 0 else risen[k]
        risen[k] = 0.0
        new = max((inner[k] + added) * per_inner, (carried[k] + more) * per_uplink)
        total += (new - old) * (until - max(times[k], begin))
        while up < up_last and times[up] < until:
            risen[up] += new - old
            up += 1
    out[tree.component[node]] += total


def _piece_at(pieces: Pieces, node: int, at_s: float) -> int:
    """The piece of ``node`` that holds ``at_s``, or its first."""
    lo, hi = int(pieces.first[node]), int(pieces.first[node + 1])
    while hi - lo > 1:
        middle = (lo + hi) // 2
        if pieces.time[middle] <= at_s:
            lo = middle
        else:
            hi = middle
    return lo


INCREASES = LazyLoop(increases_loop)
