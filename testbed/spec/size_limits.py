"""Sizes that an experiment file implies, and the most of each that is built.

A line of a file can ask for more than any machine holds. Its size is computed
before anything is built; a size above the limit is an error at that line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from testbed.spec.document import Location
from topologies.datacentre import MAX_NODES, MAX_TREE_ENTRIES

LIMITS: Final[Mapping[str, int]] = {
    "nodes": MAX_NODES,
    "nodes in all trees together": MAX_TREE_ENTRIES,
    "slots a server": 1_000_000,
    "slots": 10_000_000,
    "policies": 100,
    "jobs": 100_000,
    "leases": 200_000,
    "jobs of a model": 2_000_000,
    "processes with a CPU use of their own": 50_000_000,
    "seconds of arrivals": 10**12,
    "calendar slots": 10_000_000,
    "cores in a table of availability": 10_000_000,
    "flows of one job": 1_000_000,
    "times that rates are computed anew": 200_000,
    "cells of a sweep": 1_000_000,
    "listed values of a key": 1000,
}
"""The most of each (docs/experiment-files.md)."""


def within(location: Location, amount: float, what: str, hint: str) -> bool:
    """True if ``amount`` is at most the limit of ``what``; otherwise it is
    reported at the location, or at the nearest one above it in the file.
    """
    most = LIMITS[what]
    if amount <= most:
        return True
    location.nearest.report(
        f"asks for some {amount:,.0f} {what}; at most {most:,} are supported: {hint}"
    )
    return False
