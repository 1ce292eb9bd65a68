"""The search of DCloud's Algorithm 1: the points of the grid at which a job
fits, and by how much each raises U (:mod:`testbed.schedulers.dru`).

:class:`Search`, for any data centre and embedder, makes a residual, an embedding
and a difference of U for every point. :class:`TreeSearch`, for a single tree
with Oktopus, decides the same (a test compares them) by loops without residuals
and placements: 5 ms in place of 130 at 8,000 servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from testbed.compiled import LazyLoop
from testbed.embedding.counts import placement_below
from testbed.embedding.oktopus import Oktopus
from testbed.embedding.placement import (
    Embedder,
    Placement,
    Refusal,
    Residual,
    only_on_servers,
)
from testbed.reservation.ledger import Ledger
from testbed.reservation.timeline import FloatArray, Record
from testbed.schedulers.dru import (
    AdmissionOffer,
    Points,
    Utilisation,
    increases,
    increases_of,
    less,
)
from topologies.datacentre import DataCentre, IntArray

STEPS_PER_SERVER = 20
"""Estimated steps of the loop for each server and starting time, for
:class:`LazyLoop`.
"""


@dataclass(frozen=True)
class Shape:
    """One point of the grid: the paper's t' (after submission), b' and p'."""

    delay_s: float
    rate_bps: int
    duration_s: float


Rows = Sequence[Sequence[Shape]]


@dataclass(frozen=True)
class Choice:
    """A point of the grid at which the job fits, and the increase of U there,
    by level.
    """

    shape: Shape
    placement: Placement
    increase: tuple[float, ...]


class Search:
    """Finds the best point; one for a data centre and an embedder.

    With ``n_open``, it chooses no server from that number on.
    """

    def __init__(
        self,
        datacentre: DataCentre,
        embedder: Embedder,
        n_open: int | None = None,
    ) -> None:
        self.datacentre = datacentre
        self.n_open = datacentre.n_servers if n_open is None else n_open
        self._utilisation = Utilisation(datacentre)
        self._embedder = embedder

    def place(
        self, ledger: Ledger, now_s: float, n_vms: int, shape: Shape
    ) -> Placement | Refusal:
        """Place of Algorithm 1: embed in the least that is free while the job
        would run.
        """
        start_s = now_s + shape.delay_s
        free = ledger.residual(start_s, start_s + shape.duration_s)
        return self.embed(free, n_vms, shape.rate_bps)

    def embed(
        self, free: Residual, n_vms: int, rate_bps: int
    ) -> Placement | Refusal:
        """Embeds in what is free on the open servers."""
        if self.n_open < self.datacentre.n_servers:
            free = only_on_servers(free, slice(self.n_open))
        return self._embedder.embed(self.datacentre, free, n_vms, rate_bps)

    def best(
        self, ledger: Ledger, now_s: float, n_vms: int, grid: Rows
    ) -> Choice | None:
        """The point that raises U least, of equals the first; None if no point
        fits.
        """
        placed = self._placed(ledger, now_s, n_vms, grid)
        # _placed moved the cursor; differences of U are counted from it.
        ledger.timeline.seek(now_s)
        candidates = []
        for shape, placement in placed:
            begin_s = now_s + shape.delay_s
            end_s = begin_s + shape.duration_s
            candidates.append(
                AdmissionOffer(placement, shape.rate_bps, begin_s, end_s)
            )
        raised = increases(self._utilisation, ledger.timeline, candidates)
        at = _least(raised)
        if at is None:
            return None
        shape, placement = placed[at]
        return Choice(shape, placement, tuple(raised[at].tolist()))

    def _placed(
        self, ledger: Ledger, now_s: float, n_vms: int, grid: Rows
    ) -> list[tuple[Shape, Placement]]:
        """The points at which the job fits, and its place at each."""
        placed: list[tuple[Shape, Placement]] = []
        for row in grid:
            # A row's points start together and end one after another.
            start_s = now_s + row[0].delay_s
            windows = ledger.residuals(
                start_s, [start_s + shape.duration_s for shape in row]
            )
            for shape, free in zip(row, windows, strict=True):
                answer = self.embed(free, n_vms, shape.rate_bps)
                if isinstance(answer, Placement):
                    placed.append((shape, answer))
        return placed


def _least(raised: FloatArray) -> int | None:
    """The index of the least row, of equals the first; None without rows."""
    best: int | None = None
    rows = raised.tolist()
    for k, row in enumerate(rows):
        # Strictly less, as in line 9: of equals the first of the grid
        # stays.
        if best is None or less(row, rows[best]):
            best = k
    return best


def search_of(
    datacentre: DataCentre, embedder: Embedder, n_open: int | None = None
) -> Search:
    """The compiled search where there is one."""
    if len(datacentre.trees) == 1 and isinstance(embedder, Oktopus):
        return TreeSearch(datacentre, embedder, n_open)
    return Search(datacentre, embedder, n_open)


class TreeSearch(Search):
    """The compiled search on a single tree with Oktopus."""

    @cached_property
    def _tree(self) -> TreeArrays:
        return tree_arrays(self.datacentre)

    def best(
        self, ledger: Ledger, now_s: float, n_vms: int, grid: Rows
    ) -> Choice | None:
        # The timeline's record, which the loops read, does not know of losses.
        if ledger.has_lost:
            return super().best(ledger, now_s, n_vms, grid)
        shapes = list(chain.from_iterable(grid))
        points = _grid(now_s, grid, shapes)
        timeline = ledger.timeline
        timeline.seek(now_s)
        changes = timeline.upcoming(float(points.end.max()))
        tree = self._tree
        # Servers that are not open count as full. Best-effort jobs hold slots
        # there without an end, so that no upcoming change frees any.
        free = timeline.free.copy()
        free[self.n_open : tree.n_servers] = 0
        # No job is on more servers than it has VMs.
        room = min(n_vms, tree.n_servers)
        steps = STEPS_PER_SERVER * tree.n_servers * len(grid)
        status, width, servers, counts = PLACE(
            steps,
            tree,
            timeline.record(),
            free,
            changes,
            (n_vms, room),
            points,
        )
        offset = np.arange(len(shapes), dtype=np.int64) * room
        # Where the greedy filling breaks the hose's rule the embedder is asked.
        for k in np.flatnonzero(status == UNSOUND).tolist():
            answer = self.place(ledger, now_s, n_vms, shapes[k])
            if isinstance(answer, Placement):
                width[k] = len(answer.vms_on)
                span = slice(offset[k], offset[k] + width[k])
                servers[span], counts[span] = np.array(answer.vms_on).T
        # Points that do not fit have no width.
        fitting = np.flatnonzero(width)
        if not len(fitting):
            return None
        # The residuals for the embedder have moved the cursor.
        timeline.seek(now_s)
        begin = np.repeat(points.begin, np.diff(points.row))
        placed = Points(
            # All are pinned to the only tree.
            tree=np.zeros(len(fitting), dtype=np.int64),
            n_vms=np.full(len(fitting), n_vms),
            offset=offset[fitting],
            width=width[fitting],
            servers=servers,
            counts=counts,
            rate=points.rate[fitting],
            begin=begin[fitting],
            end=points.end[fitting],
        )
        raised = increases_of(self._utilisation, timeline, placed)
        least = _least(raised)
        if least is None:
            return None
        at = int(fitting[least])
        span = slice(offset[at], offset[at] + width[at])
        # It sorts: by breadth an uneven tree's servers are dealt out of order.
        placement = placement_below(
            self.datacentre,
            self.datacentre.trees[0].root,
            servers[span],
            counts[span],
        )
        return Choice(shapes[at], placement, tuple(raised[least].tolist()))


def _grid(now_s: float, rows: Rows, shapes: Sequence[Shape]) -> Grid:
    """The grid as arrays; ``shapes`` are the points of its rows, one row after
    another.
    """
    begin = now_s + np.array([row[0].delay_s for row in rows])
    lengths = list(map(len, rows))
    duration = np.array([shape.duration_s for shape in shapes])
    return Grid(
        row=np.concatenate(([0], np.cumsum(lengths))),
        begin=begin,
        rate=np.array([shape.rate_bps for shape in shapes], dtype=np.int64),
        end=np.repeat(begin, lengths) + duration,
    )


# -- Oktopus' greedy at all points, compiled -----------------------------------
#
# Points with the same start follow one another: each window prolongs the one before and each
# bandwidth is smaller. So one sweep over the changes serves them all, resuming where the last
# window ended, and a server's count (how many VMs it may take) is computed again only if what is
# free there has shrunk, or if its uplink held the count down before.

# The states of a point.
NOWHERE = 0
PLACED = 1
UNSOUND = 2
"""The greedy over-commits a link, and needs Oktopus' repair."""

UNLIMITED = 1 << 62
"""The free rate of a link that is not there."""


class TreeArrays(NamedTuple):
    """A data centre that is one tree, as the flat arrays that the compiled loop
    takes.

    Per node its ``parent``, and the number of its ``uplink`` among the ledger's
    objects, which are servers, then links (-1: none). Children of v by id are
    ``child[child_start[v] : child_start[v + 1]]``, those that are switches from
    ``switch_start[v]`` on. ``switches`` are all switches, by level and id.
    ``lower`` is the lower end of every link.
    """

    n_servers: int
    most_slots: int
    parent: IntArray
    uplink: IntArray
    child_start: IntArray
    switch_start: IntArray
    child: IntArray
    switches: IntArray
    lower: IntArray


def tree_arrays(dc: DataCentre) -> TreeArrays:
    """The arrays of a data centre with a single tree."""
    (tree,) = dc.trees
    child_start = np.array(tree.child_start)
    child = np.array(tree.child_list)
    # Servers come first among a switch's children: their ids are lowest.
    servers_before = np.concatenate(([0], np.cumsum(child < dc.n_servers)))
    return TreeArrays(
        n_servers=dc.n_servers,
        most_slots=int(dc.slots.max(initial=0)),
        parent=np.array(tree.parent),
        uplink=np.where(tree.uplink >= 0, tree.uplink + dc.n_servers, -1),
        child_start=child_start,
        switch_start=child_start[:-1]
        + np.diff(servers_before[child_start]),
        child=child,
        switches=np.concatenate([layer.switches for layer in dc.layers]),
        lower=np.array(dc.link_lower),
    )


class Grid(NamedTuple):
    """Points ``row[i] .. row[i + 1] - 1`` start at ``begin[i]``, with falling
    rates.

    Per point its ``rate`` and its ``end``.
    """

    row: IntArray
    begin: FloatArray
    rate: IntArray
    end: FloatArray


class CountsOverTime(NamedTuple):
    """Counts of VMs that nodes may take, kept from point to point.

    - ``most``: per node; ``servers_sum``: per switch, the sum of ``most`` over
      its children that are servers.
    - ``held_down`` and ``shrunk``: lists of servers, behind their lengths: those
      whose uplink holds their count down, and those with less free than at the
      last point.
    - ``seen``: per server, the point at which it was last listed as shrunk.
    - ``queue``: scratch, nodes whose VMs are to be dealt to their children, and
      how many.
    """

    most: IntArray
    servers_sum: IntArray
    held_down: IntArray
    shrunk: IntArray
    seen: IntArray
    queue: IntArray


def place_loop(
    tree: TreeArrays,
    record: Record,
    free: IntArray,
    changes: tuple[int, int],
    job: tuple[int, int],
    grid: Grid,
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Places ``job`` (its VMs, the most servers that it may use) at every point.

    ``free`` is what is free at the cursor; ``changes``: the first change after
    it, and the end of those that count. Returns per point its status and its
    number of servers; then the servers and the VMs on each, those of point k
    from place k · ``job[1]`` on.
    """
    n_vms, room = job
    n_points = len(grid.rate)
    status = np.zeros(n_points, dtype=np.int64)
    width = np.zeros(n_points, dtype=np.int64)
    servers = np.empty(n_points * room, dtype=np.int64)
    amounts = np.empty(n_points * room, dtype=np.int64)
    n_nodes = len(tree.parent)
    n_servers = tree.n_servers
    counts = CountsOverTime(
        np.empty(n_nodes, dtype=np.int64),
        np.empty(n_nodes, dtype=np.int64),
        np.empty(n_servers + 1, dtype=np.int64),
        np.zeros(n_servers + 1, dtype=np.int64),
        np.full(n_servers, -1, dtype=np.int64),
        np.empty((2, n_nodes), dtype=np.int64),
    )
    base = free.copy()
    k = changes[0]
    for i in range(len(grid.begin)):
        # What has changed by the row's start holds for all its points; the
        # next row starts later and continues from here.
        while k < changes[1] and record.time[k] <= grid.begin[i]:
            _apply(tree, record, k, (base, base), counts, -1)
            k += 1
        state = base.copy()
        # What is least free within the window so far: each point of the row
        # only prolongs it.
        low = base.copy()
        j = k
        for point in range(grid.row[i], grid.row[i + 1]):
            rate = grid.rate[point]
            first = point == grid.row[i]
            # The first point counts every server: it needs no list of
            # shrunk ones.
            mark = -1 if first else point
            counts.shrunk[0] = 0
            # A window is open at its end: what begins then does not count.
            while j < changes[1] and record.time[j] < grid.end[point]:
                _apply(tree, record, j, (state, low), counts, mark)
                j += 1
            if first:
                _count_all(tree, low, n_vms, rate, counts)
            else:
                _count_again(tree, low, n_vms, rate, counts)
            at = point * room
            status[point], width[point] = _place(
                tree, low, n_vms, rate, counts, servers[at:], amounts[at:]
            )
    return status, width, servers, amounts


def _apply(
    tree: TreeArrays,
    record: Record,
    k: int,
    now_and_least: tuple[IntArray, IntArray],
    counts: CountsOverTime,
    mark: int,
) -> None:
    """Applies change ``k`` to the first array; the second keeps its minima.

    Unless ``mark`` is -1, servers with a new minimum are listed as shrunk.
    """
    state, low = now_and_least
    objects = record.objects
    amounts = record.amounts
    shrunk = counts.shrunk
    seen = counts.seen
    n_servers = tree.n_servers
    lo = record.start[record.what[k]]
    hi = lo + record.length[record.what[k]]
    # A release gives back and makes no new minimum.
    if record.sign[k] < 0:
        for j in range(lo, hi):
            state[objects[j]] += amounts[j]
        return
    listed = shrunk[0]
    for j in range(lo, hi):
        resource = objects[j]
        left = state[resource] - amounts[j]
        state[resource] = left
        if left < low[resource]:
            low[resource] = left
            if mark >= 0:
                node = resource
                if resource >= n_servers:
                    node = tree.lower[resource - n_servers]
                if node < n_servers and seen[node] != mark:
                    seen[node] = mark
                    listed += 1
                    shrunk[listed] = node
    shrunk[0] = listed


def _count_all(
    tree: TreeArrays,
    low: IntArray,
    n_vms: int,
    rate: int,
    counts: CountsOverTime,
) -> None:
    """Every server's count, from scratch."""
    counts.most[: tree.n_servers] = 0
    counts.servers_sum[:] = 0
    counts.held_down[0] = 0
    for server in range(tree.n_servers):
        _count(tree, low, n_vms, rate, counts, server)


def _count_again(
    tree: TreeArrays,
    low: IntArray,
    n_vms: int,
    rate: int,
    counts: CountsOverTime,
) -> None:
    """The counts that may have changed: at servers held down before, and at
    shrunk ones.
    """
    held_down = counts.held_down
    shrunk = counts.shrunk
    before = held_down[0]
    # The list is written anew while it is read, and never gets ahead.
    held_down[0] = 0
    for k in range(1, before + 1):
        _count(tree, low, n_vms, rate, counts, held_down[k])
    # Of the shrunk ones, those that are held down were counted anew above.
    for k in range(1, shrunk[0] + 1):
        if counts.most[shrunk[k]] >= min(low[shrunk[k]], n_vms):
            _count(tree, low, n_vms, rate, counts, shrunk[k])


def _count(
    tree: TreeArrays,
    low: IntArray,
    n_vms: int,
    rate: int,
    counts: CountsOverTime,
    server: int,
) -> None:
    """A server's count, in its parent's sum too; lists a server that its
    uplink holds down.
    """
    slots = min(low[server], n_vms)
    count = _fitting(slots, _free_above(tree, low, server), n_vms, rate)
    parent = tree.parent[server]
    if parent >= 0:
        counts.servers_sum[parent] += count - counts.most[server]
    counts.most[server] = count
    if count < slots:
        held = counts.held_down[0] + 1
        counts.held_down[held] = server
        counts.held_down[0] = held


def _free_above(tree: TreeArrays, low: IntArray, node: int) -> int:
    """The free bit/s of a node's uplink."""
    uplink = tree.uplink[node]
    return low[uplink] if uplink >= 0 else UNLIMITED


def _fitting(count: int, free: int, n_vms: int, rate: int) -> int:
    """The largest count, up to ``count``, that an uplink with ``free`` bit/s
    lets through.

    X VMs pass where min(X, N - X) is at most a = free // rate. If ``count`` does
    not, it is above a and below N - a: a is the largest that does.
    """
    if min(count, n_vms - count) * rate <= free:
        return count
    return free // rate


def _place(
    tree: TreeArrays,
    low: IntArray,
    n_vms: int,
    rate: int,
    counts: CountsOverTime,
    servers: IntArray,
    amounts: IntArray,
) -> tuple[int, int]:
    """Fills the lowest subtree whose counts let the hose in, greedily, into
    ``servers`` and ``amounts``. Returns the status and the number of servers.
    """
    # Inside one server no link is used, at whatever rate.
    if n_vms <= tree.most_slots:
        for server in range(tree.n_servers):
            if low[server] >= n_vms:
                servers[0] = server
                amounts[0] = n_vms
                return PLACED, 1
    most = counts.most
    # By level and id: the first with room is Oktopus' lowest subtree.
    for switch in tree.switches:
        # The sum over servers is kept up to date; switches below were
        # counted earlier in this loop.
        total = counts.servers_sum[switch]
        end = tree.child_start[switch + 1]
        for e in range(tree.switch_start[switch], end):
            total += most[tree.child[e]]
        if total >= n_vms:
            counts.queue[0, 0] = switch
            return _deal(tree, low, n_vms, rate, counts, servers, amounts)
        # For the switches above: what this one's uplink lets through.
        free = _free_above(tree, low, switch)
        most[switch] = _fitting(total, free, n_vms, rate)
    return NOWHERE, 0


def _deal(
    tree: TreeArrays,
    low: IntArray,
    n_vms: int,
    rate: int,
    counts: CountsOverTime,
    servers: IntArray,
    amounts: IntArray,
) -> tuple[int, int]:
    """Each child in turn takes as many as its count says, from the first node
    of the queue down to servers.
    """
    queue = counts.queue
    queue[1, 0] = n_vms
    head = 0
    tail = 1
    used = 0
    # By breadth, as Oktopus' Alloc goes down.
    while head < tail:
        node = queue[0, head]
        left = queue[1, head]
        head += 1
        for e in range(tree.child_start[node], tree.child_start[node + 1]):
            child = tree.child[e]
            dealt = min(counts.most[child], left)
            if dealt <= 0:
                continue
            left -= dealt
            carried = min(dealt, n_vms - dealt) * rate
            if carried > _free_above(tree, low, child):
                # The count passes, but fewer VMs need not: the nearer to N/2,
                # the more a link carries.
                return UNSOUND, 0
            if child < tree.n_servers:
                servers[used] = child
                amounts[used] = dealt
                used += 1
            else:
                queue[0, tail] = child
                queue[1, tail] = dealt
                tail += 1
            if left == 0:
                break
    return PLACED, used


PLACE = LazyLoop(place_loop)
