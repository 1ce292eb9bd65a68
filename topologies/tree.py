"""Regular trees: any fan-out and any capacity per level, as in Oktopus and
DCloud, Section IV.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from topologies.datacentre import (
    MAX_LINK_BPS,
    MAX_NODES,
    Capacity,
    DataCentre,
    IntArray,
    Problems,
    TopologyError,
    both_directions,
    capacities,
    capacity_of,
    check_at_least,
    directed_array,
    frozen_array,
    make_tree,
    slot_array,
)

# Ratios are fractions whose denominators have at most six digits.
_LEAST_RATIO = 1e-6
_MAX_RATIO = 10**6


def tree(
    fanout: Sequence[int],
    link_bps: Capacity | Sequence[Capacity],
    slots_per_server: int | Sequence[int],
    oversubscription: Sequence[float] | None = None,
) -> DataCentre:
    """A tree with one core switch.

    ``fanout``: children per switch of each level, from the core down.
    ``[4, 2, 2]`` is a core over 4 aggregation switches, each over 2 racks of 2
    servers. ``link_bps``: capacity of the links below each level, from the top
    down, or one for all levels. ``slots_per_server``: one number, or one per
    server.

    ``oversubscription``: capacities of uplinks as ratios, from the top down,
    one for each level of switches with uplinks. Then ``link_bps`` is the
    servers' alone, and a switch's uplink has, in each direction, the capacity
    of all links below the switch divided by the ratio. DCloud's 8:1 is
    ``[2, 4]``: 2:1 at the aggregation, 4:1 at the racks.

    Servers come first, then racks and so on up, each level from left to right;
    link ``l`` is the uplink of node ``l``. Raises TopologyError with all
    problems at once. O(nodes), in numpy.
    """
    problems = Problems()
    counts = _level_counts(problems, fanout)
    per_level = _level_capacities(
        problems, fanout, link_bps, oversubscription
    )
    n_servers = counts[0] if counts else None
    slots = slot_array(
        problems, slots_per_server, n_servers, "slots_per_server"
    )
    if problems:
        raise TopologyError(problems)
    root = sum(counts) - 1
    level = np.repeat(np.arange(len(counts)), counts)
    parent = _parents(counts, fanout)
    links = np.arange(root)
    ratios = None
    if oversubscription is not None:
        ratios = list(oversubscription)
    return DataCentre(
        kind="tree",
        names=tree_names(counts),
        level=frozen_array(level),
        slots=frozen_array(slots),
        link_lower=frozen_array(links),
        link_upper=frozen_array(parent),
        directed_capacity_bps=_uplink_capacities_bps(per_level, counts),
        trees=(
            make_tree(
                root=root,
                level=level,
                nodes=links,
                parents=parent,
                links=links,
            ),
        ),
        parameters={
            "fanout": list(map(int, fanout)),
            "link_bps": per_level,
            "slots_per_server": np.asarray(slots_per_server).tolist(),
            "oversubscription": ratios,
        },
    )


def _uplink_capacities_bps(
    per_level: Sequence[Capacity], counts: Sequence[int]
) -> IntArray:
    """Capacities of the directed links, in the links' order."""
    # Levels are given from the top down, links numbered from the bottom up:
    # link l is the uplink of node l, for every node but the root.
    level_bps = directed_array(per_level[::-1]).reshape(-1, 2)
    return frozen_array(np.repeat(level_bps, counts[:-1], axis=0).ravel())


def _parents(counts: Sequence[int], fanout: Sequence[int]) -> IntArray:
    """The parent of each node but the core, in the nodes' order."""
    parents = []
    n_below = 0
    for count, width in zip(counts, reversed(fanout), strict=False):
        n_below += count
        parents.append(n_below + np.arange(count) // width)
    return np.concatenate(parents)


def tree_names(counts: Sequence[int]) -> tuple[str, ...]:
    """``server 12``, ``rack 3``, ``aggregation 1``, ``core 0``; counts per
    level, servers first.
    """
    between = [
        "rack",
        "aggregation",
        *(f"level-{i}" for i in range(3, len(counts))),
    ]
    nouns = ["server", *between[: len(counts) - 2], "core"]
    return tuple(
        f"{noun} {i}"
        for noun, n in zip(nouns, counts, strict=True)
        for i in range(n)
    )


def _level_counts(problems: Problems, fanout: Sequence[int]) -> list[int]:
    """Nodes per level, servers first."""
    if not len(fanout):
        problems.report(
            "a tree needs at least one level, such as [4, 2, 2]", "fanout"
        )
    good = [
        check_at_least(problems, ("fanout", i), f, "a fan-out")
        for i, f in enumerate(fanout)
    ]
    if not (good and all(good)):
        return []
    # From the single root to the servers; returned from the servers up.
    from_root = [1]
    n_nodes = 1
    for width in fanout:
        from_root.append(from_root[-1] * int(width))
        n_nodes += from_root[-1]
        # Further levels could make a number of thousands of digits.
        if n_nodes > MAX_NODES:
            problems.report(
                f"more than {MAX_NODES:,} nodes, as many as are supported",
                "fanout",
            )
            return []
    return from_root[::-1]


def _level_capacities(
    problems: Problems,
    fanout: Sequence[int],
    link_bps: Capacity | Sequence[Capacity],
    ratios: Sequence[float] | None,
) -> list[Capacity]:
    """Capacities of links per level from the top down."""
    if ratios is None:
        return capacities(problems, link_bps, len(fanout))
    return _oversubscribed(problems, fanout, link_bps, ratios)


def _oversubscribed(
    problems: Problems,
    fanout: Sequence[int],
    link_bps: Capacity | Sequence[Capacity],
    ratios: Sequence[float],
) -> list[Capacity]:
    """Capacities per level from the top down, from the servers' links and the
    ratios.
    """
    n_given = 1
    if not isinstance(link_bps, int | np.integer | Mapping):
        n_given = len(link_bps)
    if n_given != 1:
        problems.report(
            "with oversubscription give one capacity, that of the servers' links",
            "link_bps",
        )
        return [1] * len(fanout)
    server_bps = capacities(problems, link_bps, 1)[0]
    wanted = len(fanout) - 1
    if len(ratios) != wanted:
        problems.report(
            f"{len(ratios)} ratios for {wanted} levels of uplinks above the servers'",
            "oversubscription",
        )
    for i, ratio in enumerate(ratios):
        if not _is_ratio(ratio):
            problems.report(
                f"a ratio is a number above 0 (4 means 4:1), not {ratio!r}",
                "oversubscription",
                i,
            )
    if problems:
        return [1] * len(fanout)
    up_bps, down_bps = (
        _by_ratios(fanout, one_way_bps, ratios)
        for one_way_bps in both_directions(server_bps)
    )
    most_bps = max(*up_bps, *down_bps)
    if most_bps > MAX_LINK_BPS:
        problems.report(
            "an uplink of these ratios has more than 1000 Tbit/s",
            "oversubscription",
        )
    return [
        capacity_of(*both) for both in zip(up_bps, down_bps, strict=True)
    ]


def _by_ratios(
    fanout: Sequence[int], server_bps: int, ratios: Sequence[float]
) -> list[int]:
    """Capacities per level from the top down, in one direction."""
    # A ratio of 1.1 is the fraction 11/10, so that 11 Gbit/s of links below
    # give exactly 10 Gbit/s.
    below = Fraction(server_bps)
    upward = [below]
    # From the racks up: a rack has fanout[-1] links below it and the ratio
    # ratios[-1].
    for width, ratio in zip(
        reversed(fanout[1:]), reversed(ratios), strict=True
    ):
        below = (
            below * int(width) / Fraction(ratio).limit_denominator(10**6)
        )
        upward.append(below)
    return [max(1, round(capacity)) for capacity in reversed(upward)]


def _is_ratio(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and _LEAST_RATIO <= float(str(value)) < _MAX_RATIO
