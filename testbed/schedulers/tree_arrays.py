"""A data centre that is one tree, as the flat arrays that compiled loops take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from testbed.reservation.ledger import capacities
from testbed.schedulers.dru import FloatArray, Utilisation
from topologies.datacentre import DataCentre, IntArray


class TreeArrays(NamedTuple):
    """Per node: ``parent``, ``uplink`` (the object above it, see footprint; -1 none), ``level``,
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


def is_one_tree(datacentre: DataCentre) -> bool:
    """Whether :func:`tree_arrays` takes it."""
    return len(datacentre.trees) == 1
