"""The data centre as ``run_started`` records it."""

from __future__ import annotations

from typing import Any

from topologies.datacentre import DataCentre

MAX_LISTED_NODES = 1_000_000
"""Nodes in all trees together whose parents and uplinks are listed.

Of larger data centres the audit derives them from the links.
"""


def topology_record(datacentre: DataCentre) -> dict[str, Any]:
    """The ``topology`` of a :class:`testbed.events.RunStarted`.

    - Per node: ``names``, ``level``. Per server: ``slots``, and ``memory_mib``
      where memory limits anything.
    - ``links``: arrays ``lower``, ``upper`` and ``capacity_bps`` per link, and
      ``capacity_down_bps`` where some link has another capacity downward.
    - ``trees``: every tree that a tenant can be pinned to, as ``root``, and
      ``parent`` and ``uplink`` per node (-1 where there is none). Of a large
      data centre the roots alone: the links say what hangs below them.
    """
    topology = {
        "kind": datacentre.kind,
        "names": list(datacentre.names),
        "level": datacentre.level.tolist(),
        "slots": datacentre.slots.tolist(),
        "links": _links_record(datacentre),
        "trees": _tree_records(datacentre),
    }
    if datacentre.memory_mib is not None:
        topology["memory_mib"] = datacentre.memory_mib.tolist()
    return topology


def _links_record(datacentre: DataCentre) -> dict[str, Any]:
    links = {
        "lower": datacentre.link_lower.tolist(),
        "upper": datacentre.link_upper.tolist(),
        "capacity_bps": datacentre.directed_capacity_bps[0::2].tolist(),
    }
    if not datacentre.symmetric:
        downward = datacentre.directed_capacity_bps[1::2]
        links["capacity_down_bps"] = downward.tolist()
    return links


def _tree_records(datacentre: DataCentre) -> list[dict[str, Any]]:
    # At k = 20 a fat-tree has 100 trees over 2,500 nodes each, whose arrays
    # would say no more than the roots.
    n_listed = len(datacentre.trees) * datacentre.n_nodes
    trees = []
    for tree in datacentre.trees:
        record: dict[str, Any] = {"root": int(tree.root)}
        if n_listed <= MAX_LISTED_NODES:
            record["parent"] = tree.parent.tolist()
            record["uplink"] = tree.uplink.tolist()
        trees.append(record)
    return trees
