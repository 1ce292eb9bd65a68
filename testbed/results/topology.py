"""The data centre as the plain arrays that ``run_started`` carries: what an audit needs."""

from __future__ import annotations

from typing import Any

from topologies.datacentre import DataCentre


def topology_record(datacentre: DataCentre) -> dict[str, Any]:
    """The ``topology`` of a :class:`testbed.events.RunStarted`.

    ``names`` and ``level`` per node, ``slots`` per server, ``links`` as arrays ``lower``,
    ``upper``, ``capacity_bps`` per link, and every tree a tenant can be pinned to as ``root``,
    ``parent`` and ``uplink`` per node (-1 where there is none). ``memory_mib`` per server
    where memory limits anything.
    """
    return {
        "kind": datacentre.kind,
        "names": list(datacentre.names),
        "level": datacentre.level.tolist(),
        "slots": datacentre.slots.tolist(),
        "links": {
            "lower": datacentre.link_lower.tolist(),
            "upper": datacentre.link_upper.tolist(),
            "capacity_bps": datacentre.link_capacity_bps.tolist(),
        },
        "trees": [
            {
                "root": int(tree.root),
                "parent": tree.parent.tolist(),
                "uplink": tree.uplink.tolist(),
            }
            for tree in datacentre.trees
        ],
        **({} if datacentre.memory_mib is None else {"memory_mib": datacentre.memory_mib.tolist()}),
    }
