"""Flat clusters: nodes with slots and no network, for the policies that know none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from topologies.datacentre import (
    MAX_NODES,
    DataCentre,
    IntArray,
    Problems,
    TopologyError,
    Tree,
    at_least,
    frozen_array,
    memory_array,
    slot_array,
)


def flat(
    nodes: int, slots: int | Sequence[int], memory_mib: int | Sequence[int] | None = None
) -> DataCentre:
    """``nodes`` servers without links below one notional switch, which limits nothing.

    The switch is there so that placements name a root as everywhere else; it has no links, so any
    bandwidth fits. ``memory_mib`` is every node's memory; None: it limits nothing. Raises
    TopologyError with all problems at once.
    """
    problems = Problems()
    if at_least(problems, ("nodes",), nodes, 1, "the number of nodes") and nodes >= MAX_NODES:
        problems.report(f"{nodes:,} nodes: fewer than {MAX_NODES:,} are supported", "nodes")
    slot_counts = slot_array(problems, slots, None if problems else int(nodes), "slots")
    memory = None
    if memory_mib is not None:
        memory = memory_array(problems, memory_mib, None if problems else int(nodes), "memory_mib")
    if problems:
        raise TopologyError(problems)
    parent = np.full(nodes + 1, nodes, dtype=np.int64)
    parent[nodes] = -1
    level = np.zeros(nodes + 1, dtype=np.int64)
    level[nodes] = 1
    return DataCentre(
        kind="flat",
        names=(*(f"server {i}" for i in range(nodes)), "cluster 0"),
        level=frozen_array(level),
        slots=frozen_array(slot_counts),
        link_lower=frozen_array([]),
        link_upper=frozen_array([]),
        link_capacity_bps=frozen_array([]),
        trees=(
            Tree(
                root=int(nodes),
                parent=frozen_array(parent),
                uplink=frozen_array(np.full(nodes + 1, -1)),
                level=frozen_array(level),
            ),
        ),
        parameters={
            "nodes": int(nodes),
            "slots": _one_or_all(slot_counts),
            **({} if memory is None else {"memory_mib": _one_or_all(memory)}),
        },
        memory_mib=None if memory is None else frozen_array(memory),
    )


def _one_or_all(values: IntArray) -> int | list[int]:
    """A number that all nodes share, or one each."""
    listed: list[int] = values.tolist()
    return listed[0] if len(set(listed)) == 1 else listed
