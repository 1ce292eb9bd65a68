"""Flat clusters: nodes with slots, for policies that know no network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from topologies.datacentre import (
    MAX_NODES,
    DataCentre,
    IntArray,
    Problems,
    TopologyError,
    check_at_least,
    frozen_array,
    make_tree,
    one_or_all,
    slot_array,
)


def flat(
    nodes: int,
    slots: int | Sequence[int],
    memory_mib: int | Sequence[int] | None = None,
) -> DataCentre:
    """A cluster of ``nodes`` servers below one notional switch.

    The switch is the root of placements, as in other topologies. There are no
    links, so that any bandwidth fits. ``memory_mib``: memory of all nodes, or
    of each; None where memory limits nothing. Raises TopologyError with all
    problems.
    """
    problems = Problems()
    n_servers = _server_count(problems, nodes)
    slot_counts = slot_array(problems, slots, n_servers, "slots")
    memory = None if memory_mib is None else np.ravel(memory_mib)
    if memory is not None and n_servers is not None:
        _check_memory(problems, memory, n_servers)
    if problems:
        raise TopologyError(problems)
    level = np.append(np.zeros(nodes, dtype=np.int64), 1)
    parameters: dict[str, object] = {
        "nodes": int(nodes),
        "slots": one_or_all(slot_counts),
    }
    if memory is not None:
        memory = frozen_array(np.broadcast_to(memory, nodes))
        parameters["memory_mib"] = one_or_all(memory)
    return DataCentre(
        kind="flat",
        names=(*(f"server {i}" for i in range(nodes)), "cluster 0"),
        level=frozen_array(level),
        slots=frozen_array(slot_counts),
        link_lower=frozen_array([]),
        link_upper=frozen_array([]),
        directed_capacity_bps=frozen_array([]),
        trees=(
            make_tree(
                root=nodes,
                level=level,
                nodes=np.arange(nodes),
                parents=nodes,
                links=-1,
            ),
        ),
        parameters=parameters,
        memory_mib=memory,
    )


def _server_count(problems: Problems, nodes: int) -> int | None:
    """The number of servers; None where it is unusable, which is noted."""
    if not check_at_least(
        problems, ("nodes",), nodes, "the number of nodes"
    ):
        return None
    if nodes >= MAX_NODES:
        problems.report(
            f"{nodes:,} nodes: fewer than {MAX_NODES:,} are supported",
            "nodes",
        )
        return None
    return int(nodes)


def _check_memory(
    problems: Problems, memory: IntArray, n_servers: int
) -> None:
    if len(memory) not in (1, n_servers):
        problems.report(
            f"{len(memory)} amounts of memory for {n_servers} servers",
            "memory_mib",
        )
