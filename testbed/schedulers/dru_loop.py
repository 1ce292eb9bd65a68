"""Differences of DRU for many candidates on one tree, number by number: what is compiled.

The same sums as :func:`testbed.schedulers.dru.increases` (a test compares them), from lists of
pieces: for every node that a candidate touches, the intervals in which its state stays the same. A
switch's pieces end wherever one of its children's does, so a child's difference covers whole pieces
of its parent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from testbed.compiled import inline
from testbed.reservation.timeline import Record
from testbed.schedulers.dru import FloatArray
from testbed.schedulers.tree_arrays import TreeArrays
from topologies.datacentre import IntArray


class Pieces(NamedTuple):
    """Node v's pieces are ``first[v] .. first[v + 1] - 1``, in time order, the last one for ever.

    ``inner`` is the slots used of a server, the sum of the children's DRU of a switch; ``carried``
    the bit/s on its uplink.
    """

    first: IntArray
    time: FloatArray
    inner: FloatArray
    carried: FloatArray


class Points(NamedTuple):
    """Candidates: point k takes ``counts`` on ``servers``, ``width[k]`` of them from ``offset[k]``."""

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


@inline
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


@inline
def _dru(tree: TreeArrays, node: int, inner: float, carried: float) -> float:
    """A node's DRU from its state (Eq. 2 and 3)."""
    whole = tree.slots[node] if node < tree.n_servers else tree.children[node]
    return max(inner / whole, carried / tree.uplink_bps[node])


@inline
def _pieces(
    tree: TreeArrays, record: Record, free: IntArray, changes: tuple[int, int], now_s: float,
    needed: IntArray,
) -> Pieces:  # fmt: skip
    """One sweep over the changes, noting the new state of every needed node that changes."""
    n_nodes = len(tree.parent)
    inner, carried, dru = _state(tree, free)
    most = int(needed.sum())
    for k in range(changes[0], changes[1]):
        most += record.length[record.what[k]] * tree.n_levels
    at_time, at_node = np.empty(most), np.empty(most, dtype=np.int64)
    at_inner, at_carried = np.empty(most), np.empty(most)
    n = 0
    for node in range(n_nodes):
        if needed[node]:
            at_time[n], at_node[n] = now_s, node
            at_inner[n], at_carried[n] = inner[node], carried[node]
            n += 1
    dirty = np.empty((tree.n_levels, n_nodes), dtype=np.int64)
    n_dirty = np.zeros(tree.n_levels, dtype=np.int64)
    stamp = np.full(n_nodes, -1, dtype=np.int64)
    k = changes[0]
    while k < changes[1]:
        time = record.time[k]
        group = k
        while k < changes[1] and record.time[k] == time:
            _change(tree, record, k, inner, carried, dirty, n_dirty, stamp, group)
            k += 1
        for level in range(tree.n_levels):
            for j in range(n_dirty[level]):
                node = dirty[level, j]
                if needed[node]:
                    at_time[n], at_node[n] = time, node
                    at_inner[n], at_carried[n] = inner[node], carried[node]
                    n += 1
                new = _dru(tree, node, inner[node], carried[node])
                parent = tree.parent[node]
                inner[parent] += new - dru[node]
                dru[node] = new
                _mark(tree, parent, dirty, n_dirty, stamp, group)
            n_dirty[level] = 0
    return _by_node(n_nodes, n, at_time, at_node, at_inner, at_carried)


@inline
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


@inline
def _change(
    tree: TreeArrays, record: Record, k: int, inner: FloatArray, carried: FloatArray,
    dirty: IntArray, n_dirty: IntArray, stamp: IntArray, group: int,
) -> None:  # fmt: skip
    """One change of the timeline: the nodes it touches get their new state and become dirty."""
    lo = record.start[record.what[k]]
    for j in range(lo, lo + record.length[record.what[k]]):
        here, amount = record.objects[j], record.sign[k] * record.amounts[j]
        if here < tree.n_servers:
            node = here
            inner[node] += amount
        else:
            node = tree.lower[here - tree.n_servers]
            carried[node] += amount
        _mark(tree, node, dirty, n_dirty, stamp, group)


@inline
def _mark(
    tree: TreeArrays, node: int, dirty: IntArray, n_dirty: IntArray, stamp: IntArray, group: int
) -> None:
    if tree.component[node] >= 0 and stamp[node] != group:
        stamp[node] = group
        level = tree.level[node]
        dirty[level, n_dirty[level]] = node
        n_dirty[level] += 1


@inline
def _by_node(
    n_nodes: int, n: int, at_time: FloatArray, at_node: IntArray, at_inner: FloatArray,
    at_carried: FloatArray,
) -> Pieces:  # fmt: skip
    """Pieces in order of their node; a counting sort keeps the order of time."""
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


@inline
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
    # Children stand before their parents: by level, for servers differ in depth in ragged trees.
    for level in range(1, tree.n_levels):
        for k in range(n_above):
            if tree.level[above[k]] == level:
                _rise(tree, pieces, points, point, above[k], below[above[k]], 0, risen, out)
    for k in range(n_above):
        below[above[k]] = 0


@inline
def _rise(
    tree: TreeArrays, pieces: Pieces, points: Points, point: int, node: int, vms: int,
    slots: int, risen: FloatArray, out: FloatArray,
) -> None:  # fmt: skip
    """A node's own differences: summed into ``out``, and passed on to its parent's pieces."""
    begin, end = points.begin[point], points.end[point]
    more = min(vms, points.n_vms - vms) * points.rate[point] if tree.uplink[node] >= 0 else 0
    parent = tree.parent[node]
    passes = tree.component[parent] >= 0
    last = pieces.first[node + 1]
    up = _piece_at(pieces, parent, begin) if passes else 0
    up_last = pieces.first[parent + 1]
    for k in range(_piece_at(pieces, node, begin), last):
        since = pieces.time[k]
        if since >= end:
            break
        until = pieces.time[k + 1] if k + 1 < last else np.inf
        inner = pieces.inner[k] + slots + (risen[k] if slots == 0 else 0.0)
        risen[k] = 0.0
        old = _dru(tree, node, pieces.inner[k], pieces.carried[k])
        difference = _dru(tree, node, inner, pieces.carried[k] + more) - old
        out[tree.component[node]] += difference * (min(until, end) - max(since, begin))
        while passes and up < up_last and pieces.time[up] < min(until, end):
            risen[up] += difference
            up += 1


@inline
def _piece_at(pieces: Pieces, node: int, at_s: float) -> int:
    """The piece of ``node`` that holds ``at_s``, or its first."""
    lo, hi = pieces.first[node], pieces.first[node + 1]
    while hi - lo > 1:
        middle = (lo + hi) // 2
        if pieces.time[middle] <= at_s:
            lo = middle
        else:
            hi = middle
    return lo
