"""Dominant resource utilisation, DRU (DCloud, Section III.C): how hard the next request will be.

At an instant a server's DRU is the larger of its slots' and its uplink's utilisation (Eq. 2), a
switch's the larger of its children's mean and its uplink's (Eq. 3: first the maximum, then the
integral); a node's DRU is its integral over time (Eq. 4). The network's is the tuple of sums over
the nodes of each level below the core, highest level first, compared lexicographically.

Where a node has several uplinks (fat-trees; the paper has trees alone) they count as one of their
total capacity, and a switch is among the parents' children of every one.

Admitting a job changes the DRU only at the nodes above and with its VMs, and only while it holds
them: :func:`increases` integrates those differences and nothing else. On a single tree with Oktopus
:mod:`testbed.schedulers.tree_dru` computes the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from testbed.embedding.counts import edges_up
from testbed.reservation.timeline import Footprint, Timeline
from topologies.datacentre import DataCentre, IntArray

FloatArray = npt.NDArray[np.float64]

RELATIVE_TOLERANCE = 1e-9
"""U's that differ by less are equal: otherwise rounding would decide ties."""

_NOTHING = 1e-12


@dataclass(frozen=True, eq=False)
class Utilisation:
    """A data centre as DRU needs it: capacities per node, and nodes by level."""

    datacentre: DataCentre

    @cached_property
    def slots(self) -> FloatArray:
        """Slots per server; 1 where there are none, so that their utilisation is 0."""
        return np.maximum(self.datacentre.slots, 1).astype(np.float64)

    @cached_property
    def uplink_bps(self) -> FloatArray:
        """Capacity of each node's uplinks together, infinite where it has none."""
        dc = self.datacentre
        total = np.bincount(dc.link_lower, dc.link_capacity_bps, minlength=dc.n_nodes)
        return np.where(total > 0, total, np.inf)

    @cached_property
    def levels(self) -> tuple[IntArray, ...]:
        """The nodes of each level that have a parent, highest level first."""
        dc = self.datacentre
        below = np.zeros(dc.n_nodes, dtype=np.bool_)
        for tree in dc.trees:
            below |= tree.parent >= 0
        groups = [np.flatnonzero(below & (dc.level == h)) for h in range(dc.n_levels)]
        return tuple(group for group in reversed(groups) if len(group))

    @cached_property
    def component(self) -> IntArray:
        """For every node which of :attr:`levels` it is counted in, -1 for roots."""
        found = np.full(self.datacentre.n_nodes, -1, dtype=np.int64)
        for k, group in enumerate(self.levels):
            found[group] = k
        return found

    @cached_property
    def children(self) -> tuple[FloatArray, ...]:
        """Number of children of every switch of a layer, per layer."""
        return tuple(np.diff(layer.start).astype(np.float64) for layer in self.datacentre.layers)

    def own(self, used: IntArray) -> tuple[FloatArray, FloatArray]:
        """Utilisation of the servers' slots, and of every node's uplinks, from the objects' use."""
        dc = self.datacentre
        slots = used[: dc.n_servers] / self.slots
        carried = np.bincount(
            dc.link_lower, used[dc.n_servers : dc.n_servers + dc.n_links], minlength=dc.n_nodes
        )
        return slots, carried / self.uplink_bps

    def nodes(self, used: IntArray) -> tuple[FloatArray, FloatArray]:
        """DRU of every node at an instant, and the mean over its children (0 for servers)."""
        dc = self.datacentre
        slots, uplink = self.own(used)
        mean = np.zeros(dc.n_nodes)
        dru = uplink
        dru[: dc.n_servers] = np.maximum(slots, uplink[: dc.n_servers])
        for layer, count in zip(dc.layers, self.children, strict=True):
            total = np.add.reduceat(dru[layer.child_index], layer.segments)
            mean[layer.switch_index] = total / count
            dru[layer.switch_index] = np.maximum(mean[layer.switch_index], dru[layer.switch_index])
        return dru, mean

    def by_level(self, dru: FloatArray) -> FloatArray:
        """U at an instant: sums by level, highest first."""
        return np.array([float(dru[group].sum()) for group in self.levels])


@dataclass(frozen=True, eq=False)
class Candidate:
    """A way to admit a job: what it takes, in ``[start_s, end_s)``."""

    footprint: Footprint
    start_s: float
    end_s: float


def less(a: Sequence[float], b: Sequence[float]) -> bool:
    """Compares U ``a`` with ``b``: true where smaller, lexicographically, up to the tolerance.

    What is nothing beside the largest component is equal to 0.
    """
    nothing = _NOTHING * max((abs(x) for x in (*a, *b)), default=0.0)
    for x, y in zip(a, b, strict=True):
        if abs(x - y) > RELATIVE_TOLERANCE * max(abs(x), abs(y)) + nothing:
            return x < y
    return False


def increases(
    utilisation: Utilisation, timeline: Timeline, candidates: Sequence[Candidate]
) -> FloatArray:
    """By how much each candidate would raise U: shape (candidates, levels).

    All candidates start at or after the timeline's cursor. Every instant at which anything changes
    is looked at once; then each candidate at its own nodes inside its own interval.
    """
    out = np.zeros((len(candidates), len(utilisation.levels)))
    if not candidates:
        return out
    sheet = _Sheet.over(utilisation, timeline, max(c.end_s for c in candidates), candidates)
    for row, candidate in zip(out, candidates, strict=True):
        row[:] = sheet.increase(candidate)
    return out


@dataclass(frozen=True, eq=False)
class _Sheet:
    """The state of all nodes that candidates touch, one row for each interval between changes.

    ``times`` has one entry more than there are rows. ``slots`` is of ``servers``, ``uplink``,
    ``dru`` and ``mean`` of ``nodes`` (servers first); all by column.
    """

    utilisation: Utilisation
    times: FloatArray
    nodes: IntArray
    slots: FloatArray
    uplink: FloatArray
    dru: FloatArray
    mean: FloatArray

    @classmethod
    def over(
        cls,
        utilisation: Utilisation,
        timeline: Timeline,
        end_s: float,
        candidates: Sequence[Candidate],
    ) -> _Sheet:
        dc = utilisation.datacentre
        capacity = np.concatenate((dc.slots, dc.link_capacity_bps))
        servers = np.unique(
            np.concatenate([_servers(dc, c.footprint)[0] for c in candidates])
        ).astype(np.int64)
        nodes = np.concatenate((servers, np.arange(dc.n_servers, dc.n_nodes)))
        record = timeline.record()
        first, last = timeline.upcoming(end_s)
        state = timeline.free.copy()
        scratch = state.copy()
        times = [timeline.cursor_s]
        rows = [_row(utilisation, capacity - state, servers, nodes)]
        k = first
        while k < last:
            at_s = float(record.time[k])
            group = k
            while group < last and record.time[group] == at_s:
                group += 1
            timeline.sweep(state, scratch, k, group)
            times.append(at_s)
            rows.append(_row(utilisation, capacity - state, servers, nodes))
            k = group
        columns = [np.stack(column) for column in zip(*rows, strict=True)]
        return cls(utilisation, np.array([*times, math.inf]), nodes, *columns)

    def increase(self, candidate: Candidate) -> FloatArray:
        """U's increase, by level."""
        lo = int(np.searchsorted(self.times, candidate.start_s, side="right")) - 1
        hi = int(np.searchsorted(self.times, candidate.end_s, side="left"))
        begin = np.maximum(self.times[lo:hi], candidate.start_s)
        width = np.minimum(self.times[lo + 1 : hi + 1], candidate.end_s) - begin
        nodes, rises = self._differences(candidate.footprint, slice(lo, hi))
        component = self.utilisation.component[nodes]
        counted = component >= 0
        whole = (width @ rises)[counted]
        found: FloatArray = np.bincount(
            component[counted], whole, minlength=len(self.utilisation.levels)
        ).astype(np.float64)
        return found

    def _differences(self, footprint: Footprint, rows: slice) -> tuple[IntArray, FloatArray]:
        """The touched nodes, and by how much the DRU of each rises; shape (rows, nodes)."""
        servers, counts = _servers(self.utilisation.datacentre, footprint)
        extra = self._extra_uplink(footprint)
        taken = self.slots[rows, np.searchsorted(self.nodes, servers)]
        more = taken + counts / self.utilisation.slots[servers]
        nodes, rises = servers, self._rise(rows, servers, more, extra)
        layers = self.utilisation.datacentre.layers
        for layer, count in zip(layers, self.utilisation.children, strict=True):
            below, edge = edges_up(layer, nodes)
            if not len(edge):
                continue
            # Edges stand by switch: those of one switch are neighbours once sorted.
            order = np.argsort(edge)
            below, owner = below[order], layer.owner[edge[order]]
            first = np.flatnonzero(np.diff(owner, prepend=-1))
            switches = layer.switches[owner[first]]
            grown = np.add.reduceat(rises[:, below] / count[owner], first, axis=1)
            more = self.mean[rows, np.searchsorted(self.nodes, switches)] + grown
            nodes = np.concatenate((nodes, switches))
            rises = np.hstack((rises, self._rise(rows, switches, more, extra)))
        return nodes, rises

    def _rise(
        self, rows: slice, nodes: IntArray, first: FloatArray, extra: FloatArray
    ) -> FloatArray:
        """max(first, uplink + extra) over what the nodes' DRU was."""
        at = np.searchsorted(self.nodes, nodes)
        risen: FloatArray = np.maximum(first, self.uplink[rows, at] + extra[nodes])
        return risen - self.dru[rows, at]

    def _extra_uplink(self, footprint: Footprint) -> FloatArray:
        """By how much the utilisation of every node's uplinks rises."""
        dc = self.utilisation.datacentre
        at_link = footprint.objects >= dc.n_servers
        lower = dc.link_lower[footprint.objects[at_link] - dc.n_servers]
        more = np.bincount(lower, footprint.amounts[at_link], minlength=dc.n_nodes)
        return more / self.utilisation.uplink_bps


def _row(
    utilisation: Utilisation, used: IntArray, servers: IntArray, nodes: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    slots, uplink = utilisation.own(used)
    dru, mean = utilisation.nodes(used)
    return slots[servers], uplink[nodes], dru[nodes], mean[nodes]


def _servers(datacentre: DataCentre, footprint: Footprint) -> tuple[IntArray, IntArray]:
    """The servers of a footprint and how many slots it takes there."""
    at_server = footprint.objects < datacentre.n_servers
    return footprint.objects[at_server], footprint.amounts[at_server]
