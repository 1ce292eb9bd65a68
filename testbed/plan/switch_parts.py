"""Parts of the userspace switch: bridges that share an ``ovs-vswitchd``. Pure.

One pass of the daemon's main loop looks at every bridge and port that it has,
and a packet waits for a pass at every hop: a network of hundreds of ports is
shared out among several daemons, each with its own database, in its own network
namespace. Cables between parts are veth pairs whose ends lie in different
namespaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from testbed.plan.network_plan import NetworkPlan

BRIDGE_WEIGHT = 4
"""The cost of a bridge in a pass, in ports (docs/decisions/40)."""
MOST_WEIGHT = 300
"""The most that one daemon gets, in ports."""
PASS_S = 9e-6
"""Processor time of a pass for each port, in a daemon that is busy (one that
wakes up: 17 µs).
"""
PASSES_SHARE = 0.40
"""Of all processors, for passes over ports that may have nothing to receive."""


@dataclass(frozen=True)
class SwitchPart:
    """The bridges of one daemon, by node.

    ``netns`` is the network namespace that the daemon has to itself.
    """

    netns: str
    nodes: tuple[int, ...]


def switch_parts(
    network: NetworkPlan, most_weight: int = MOST_WEIGHT
) -> tuple[SwitchPart, ...]:
    """Splits the bridges into as many parts as a weight of ``most_weight`` each
    needs.

    Parts are alike in weight, and whole subtrees where that is possible, so
    that few cables cross between daemons. As they are cut between bridges, one
    may exceed ``most_weight`` by a bridge.
    """
    weights = bridge_weights(network)
    total_weight = sum(weights.values())
    # Equal shares of the fewest parts, not full ones and a rest: the
    # slowest daemon is the network's.
    n_parts = max(1, ceil(total_weight / most_weight))
    share = total_weight / n_parts
    groups: list[list[int]] = [[]]
    weight_so_far = 0
    for node in by_subtree(network):
        # Cut where the weight so far is nearest to a whole number of shares.
        middle_of_node = weight_so_far + weights[node] / 2
        if groups[-1] and middle_of_node > share * len(groups):
            groups.append([])
        groups[-1].append(node)
        weight_so_far += weights[node]
    parts = []
    for number, nodes in enumerate(groups):
        part = SwitchPart(
            netns=f"{network.prefix}-part{number}",
            nodes=tuple(nodes),
        )
        parts.append(part)
    return tuple(parts)


def pass_interval_s(network: NetworkPlan, processors: int) -> float:
    """The least mean time between two passes of a daemon, in s.

    A packet ends a daemon's wait, so that many slow senders would have all
    daemons look at idle ports all the time: packets then wait as long, and
    whatever else runs waits for a processor.
    """
    all_passes_s = sum(bridge_weights(network).values()) * PASS_S
    return all_passes_s / (PASSES_SHARE * processors)


def bridge_weights(network: NetworkPlan) -> dict[int, int]:
    """The cost of each node's bridge and ports in a pass, in ports."""
    node_of = {bridge.name: bridge.node for bridge in network.bridges}
    weights = dict.fromkeys(node_of.values(), BRIDGE_WEIGHT)
    for port in network.ports:
        weights[node_of[port.bridge]] += 1
    return weights


def by_subtree(network: NetworkPlan) -> list[int]:
    """The bridges' nodes, pod after pod, the switches above the pods last."""
    node_of = {bridge.name: bridge.node for bridge in network.bridges}
    cables = []
    for link in network.links:
        ends = (node_of[link.lower.bridge], node_of[link.upper.bridge])
        cables.append(ends)
    level = dict.fromkeys(node_of.values(), 0)
    # Nodes are numbered from the servers up, so a sorted cable's lower end has
    # its final level before its upper end is looked at.
    for lower, upper in sorted(cables):
        level[upper] = max(level[upper], level[lower] + 1)
    return _ordered(sorted(level), cables, level)


def _ordered(
    nodes: Sequence[int],
    cables: Sequence[tuple[int, int]],
    level: dict[int, int],
) -> list[int]:
    """Subtrees in order, each again in this order, then the nodes above them."""
    top = max((level[node] for node in nodes), default=0)
    above = [node for node in nodes if level[node] == top]
    below = [node for node in nodes if level[node] < top]
    # The upper end of a cable is the higher one.
    inside = [cable for cable in cables if level[cable[1]] < top]
    ordered = []
    for group in _connected(below, inside):
        of_group = [cable for cable in inside if cable[0] in group]
        ordered += _ordered(sorted(group), of_group, level)
    return ordered + above


def _connected(
    nodes: Sequence[int], cables: Iterable[tuple[int, int]]
) -> list[set[int]]:
    """Groups of nodes that cables tie together, in order of their first nodes."""
    group_of = {node: {node} for node in nodes}
    for lower, upper in cables:
        joined = group_of[lower]
        other = group_of[upper]
        if joined is not other:
            # The set is changed in place, so that every node of the group
            # sees it.
            joined |= other
            for node in other:
                group_of[node] = joined
    # Sets are not hashable: the same group stands under each of its nodes.
    by_identity = {id(group): group for group in group_of.values()}
    return list(by_identity.values())


def parts_text(network: NetworkPlan) -> str:
    """The parts with their bridges as text; empty where one daemon has all."""
    parts = switch_parts(network)
    if len(parts) == 1:
        return ""
    lines = [
        "# switch parts, on the userspace datapath (namespace: bridges)"
    ]
    for part in parts:
        names = [network.bridge_of_node[node].name for node in part.nodes]
        lines.append(f"{part.netns}: {' '.join(names)}")
    return "".join(f"{line}\n" for line in lines)
