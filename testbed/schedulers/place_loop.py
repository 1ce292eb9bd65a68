"""Oktopus' greedy at all points of DCloud's grid, number by number: what is compiled.

The same decisions as :class:`testbed.embedding.oktopus.Oktopus` on every point's residual
(a test compares them), without making that residual or a placement for each. Windows with the same
start share one sweep over the changes; for each later end it only goes on.
"""

from __future__ import annotations

import numpy as np

from testbed.compiled import inline
from testbed.reservation.timeline import Record
from testbed.schedulers.dru import FloatArray
from testbed.schedulers.tree_arrays import TreeArrays
from topologies.datacentre import IntArray

NOWHERE, PLACED, UNSOUND = 0, 1, 2
"""What a point came to. UNSOUND: the greedy over-commits a link, and needs Oktopus' repair."""


def place_loop(
    tree: TreeArrays,
    record: Record,
    free: IntArray,
    changes: tuple[int, int],
    job: tuple[int, int],
    grid: tuple[IntArray, FloatArray, IntArray, FloatArray],
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Places ``job``, the pair (n VMs, room for how many servers a point may use).

    ``free`` is what is free at the cursor, ``changes`` the range after it. ``grid`` holds, per row,
    where it starts (``row[i] .. row[i + 1] - 1`` are its points) and its starting time; per point
    its rate and its end, ends rising within a row.

    Returns per point its status and how many servers it uses; and, point k from k·room on,
    servers and counts.
    """
    n_vms, room = job
    row, begin, rate, end = grid
    n_points = len(rate)
    status = np.zeros(n_points, dtype=np.int64)
    width = np.zeros(n_points, dtype=np.int64)
    servers = np.empty(n_points * room, dtype=np.int64)
    counts = np.empty(n_points * room, dtype=np.int64)
    most = np.zeros(len(tree.parent), dtype=np.int64)
    queue = np.empty((2, len(tree.parent)), dtype=np.int64)
    base = free.copy()
    k = changes[0]
    for i in range(len(begin)):
        while k < changes[1] and record.time[k] <= begin[i]:
            _apply(record, k, base, base)
            k += 1
        state, low = base.copy(), base.copy()
        j = k
        for point in range(row[i], row[i + 1]):
            while j < changes[1] and record.time[j] < end[point]:
                _apply(record, j, state, low)
                j += 1
            at = point * room
            status[point], width[point] = _place(
                tree, low, n_vms, rate[point], most, queue, servers[at:], counts[at:]
            )
    return status, width, servers, counts


@inline
def _apply(record: Record, k: int, state: IntArray, low: IntArray) -> None:
    """One change of the timeline; ``low`` keeps the minima."""
    lo = record.start[record.what[k]]
    hi = lo + record.length[record.what[k]]
    if record.sign[k] < 0:
        for j in range(lo, hi):
            state[record.objects[j]] += record.amounts[j]
    else:
        for j in range(lo, hi):
            here = record.objects[j]
            left = state[here] - record.amounts[j]
            state[here] = left
            low[here] = min(low[here], left)


@inline
def _place(
    tree: TreeArrays, low: IntArray, n_vms: int, rate: int, most: IntArray, queue: IntArray,
    servers: IntArray, counts: IntArray,
) -> tuple[int, int]:  # fmt: skip
    """The lowest subtree whose counts let the hose in, filled greedily."""
    for server in range(tree.n_servers):
        if low[server] >= n_vms:
            servers[0], counts[0] = server, n_vms
            return PLACED, 1
    for server in range(tree.n_servers):
        most[server] = _most(tree, low, server, low[server], n_vms, rate)
    for switch in tree.switches:
        total = 0
        for e in range(tree.child_start[switch], tree.child_start[switch + 1]):
            total += most[tree.child[e]]
        if total >= n_vms:
            return _deal(tree, low, n_vms, rate, most, queue, servers, counts, switch)
        most[switch] = _most(tree, low, switch, total, n_vms, rate)
    return NOWHERE, 0


@inline
def _most(tree: TreeArrays, low: IntArray, node: int, below: int, n_vms: int, rate: int) -> int:
    """The largest count that a node may take: its slots, and what its uplink lets through."""
    count = min(below, n_vms)
    if tree.uplink[node] < 0:
        return count
    free = low[tree.uplink[node]]
    if min(count, n_vms - count) * rate <= free:
        return count
    return free // rate


@inline
def _deal(
    tree: TreeArrays, low: IntArray, n_vms: int, rate: int, most: IntArray, queue: IntArray,
    servers: IntArray, counts: IntArray, subtree: int,
) -> tuple[int, int]:  # fmt: skip
    """Each child in turn takes as many as its count says, down to servers."""
    queue[0, 0], queue[1, 0] = subtree, n_vms
    head, tail, used = 0, 1, 0
    while head < tail:
        node, left = queue[0, head], queue[1, head]
        head += 1
        for e in range(tree.child_start[node], tree.child_start[node + 1]):
            child = tree.child[e]
            dealt = min(most[child], left)
            if dealt <= 0:
                continue
            left -= dealt
            link = tree.uplink[child]
            if link >= 0 and min(dealt, n_vms - dealt) * rate > low[link]:
                return UNSOUND, 0
            if child < tree.n_servers:
                servers[used], counts[used] = child, dealt
                used += 1
            else:
                queue[0, tail], queue[1, tail] = child, dealt
                tail += 1
            if left == 0:
                break
    return PLACED, used
