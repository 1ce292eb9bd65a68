"""A data centre that is one tree, as the flat arrays that compiled loops take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from testbed.reservation.footprint import capacities
from testbed.schedulers.dru import FloatArray, Utilisation
from topologies.datacentre import DataCentre, IntArray


class TreeArrays(NamedTuple):
    """Per node: ``parent``, ``uplink`` (the object above it, see footprint; -1 none), ``level``,
    ``component`` of U it counts in (-1: none), ``children`` (how many), capacity ``uplink_bps``.

    Children of v by id are ``child[child_start[v] : child_start[v + 1]]``. ``switches`` are all of
    them, by level and id. ``slots`` per server, at least 1. ``lower`` per link its lower end.
    """

    n_servers: int
    n_levels: int
    n_components: int
    parent: IntArray
    uplink: IntArray
    level: IntArray
    component: IntArray
    children: FloatArray
    uplink_bps: FloatArray
    child_start: IntArray
    child: IntArray
    switches: IntArray
    slots: FloatArray
    lower: IntArray
    capacity: IntArray


def tree_arrays(utilisation: Utilisation) -> TreeArrays:
    """The arrays of a data centre with a single tree; ValueError for any other."""
    dc = utilisation.datacentre
    if len(dc.trees) != 1:
        raise ValueError(f"this data centre has {len(dc.trees)} trees")
    tree = dc.trees[0]
    component = np.full(dc.n_nodes, -1, dtype=np.int64)
    for k, group in enumerate(utilisation.levels):
        component[group] = k
    switches = np.arange(dc.n_servers, dc.n_nodes)
    inside = switches[np.isin(switches, tree.members)]
    by_level = inside[np.argsort(dc.level[inside], kind="stable")]
    return TreeArrays(
        n_servers=dc.n_servers,
        n_levels=dc.n_levels,
        n_components=len(utilisation.levels),
        parent=np.array(tree.parent),
        uplink=np.where(tree.uplink >= 0, tree.uplink + dc.n_servers, -1),
        level=np.array(dc.level),
        component=component,
        children=np.maximum(np.diff(tree.child_start), 1).astype(np.float64),
        uplink_bps=np.array(utilisation.uplink_bps),
        child_start=np.array(tree.child_start),
        child=np.array(tree.child_list),
        switches=by_level,
        slots=np.array(utilisation.slots),
        lower=np.array(dc.link_lower),
        capacity=capacities(dc),
    )


def is_one_tree(datacentre: DataCentre) -> bool:
    """Whether :func:`tree_arrays` takes it."""
    return len(datacentre.trees) == 1
