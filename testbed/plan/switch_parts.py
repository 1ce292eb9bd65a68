"""The switch in parts: which bridges share an ``ovs-vswitchd`` on the userspace datapath. Pure.

One pass of the daemon's main loop looks at every bridge and port that it has, and a packet waits
for a pass at every hop: a network of hundreds of ports is shared out among several daemons, each
with its own database, in its own network namespace. Cables between parts are veth pairs whose ends
lie in different namespaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed.plan.network_plan import NetworkPlan

BRIDGE_WEIGHT = 4
"""The cost of a bridge in a pass, in ports (docs/decisions/40)."""
MOST_WEIGHT = 300
"""The most that one daemon gets, in ports."""
PASS_S = 9e-6
"""Processor time of a pass for each port, in a daemon that is busy (one that wakes up: 17 µs)."""
PASSES_SHARE = 0.40
"""Of all processors, for passes over ports that may have nothing to receive."""


@dataclass(frozen=True)
class SwitchPart:
    """The bridges of one daemon, by node, and what a pass over them costs, in ports.

    ``netns``: the network namespace that it has to itself.
    """

    netns: str
    nodes: tuple[int, ...]
    weight: int


def switch_parts(network: NetworkPlan, most_weight: int = MOST_WEIGHT) -> tuple[SwitchPart, ...]:
    """As few parts as keep to ``most_weight`` each, alike in weight, whole subtrees where it can.

    A bridge that alone weighs more is a part of its own.
    """
    weights = bridge_weights(network)
    n_parts = -(-sum(weights.values()) // most_weight)
    share = sum(weights.values()) / max(1, n_parts)
    parts: list[SwitchPart] = []
    nodes: list[int] = []
    taken = own = 0
    for node in by_subtree(network):
        # Cut where the weight so far is nearest to a whole number of shares.
        if nodes and taken + weights[node] / 2 > share * (len(parts) + 1):
            parts.append(SwitchPart(f"{network.prefix}-part{len(parts)}", tuple(nodes), own))
            nodes, own = [], 0
        nodes.append(node)
        taken += weights[node]
        own += weights[node]
    return (*parts, SwitchPart(f"{network.prefix}-part{len(parts)}", tuple(nodes), own))


def pass_interval_s(network: NetworkPlan, processors: int) -> float:
    """The least time between two passes of a daemon, on average, where the network has parts.

    A packet ends a daemon's wait, so that many slow senders would have all daemons look at idle
    ports all the time: packets then wait as long, and whatever else runs waits for a processor.
    """
    return sum(bridge_weights(network).values()) * PASS_S / (PASSES_SHARE * processors)


def bridge_weights(network: NetworkPlan) -> dict[int, int]:
    """Node -> what its bridge and its ports cost a pass, in ports."""
    node_of = {bridge.name: bridge.node for bridge in network.bridges}
    weights = dict.fromkeys(node_of.values(), BRIDGE_WEIGHT)
    for port in network.ports:
        weights[node_of[port.bridge]] += 1
    return weights


def by_subtree(network: NetworkPlan) -> list[int]:
    """The bridges' nodes, subtree after subtree (pod after pod), the switches above them last."""
    node_of = {bridge.name: bridge.node for bridge in network.bridges}
    cables = [(node_of[k.lower.bridge], node_of[k.upper.bridge]) for k in network.links]
    level = dict.fromkeys(node_of.values(), 0)
    for lower, upper in sorted(cables):
        level[upper] = max(level[upper], level[lower] + 1)
    return _ordered(sorted(level), cables, level)


def _ordered(
    nodes: Sequence[int], cables: Sequence[tuple[int, int]], level: dict[int, int]
) -> list[int]:
    top = max((level[node] for node in nodes), default=0)
    above = [node for node in nodes if level[node] == top]
    below = [node for node in nodes if level[node] < top]
    inside = [(a, b) for a, b in cables if level[a] < top and level[b] < top]
    ordered = [
        node
        for group in _connected(below, inside)
        for node in _ordered(sorted(group), [c for c in inside if c[0] in group], level)
    ]
    return ordered + above


def _connected(nodes: Sequence[int], cables: Iterable[tuple[int, int]]) -> list[set[int]]:
    """Groups of nodes that cables tie together, in order of their first nodes."""
    group_of = {node: {node} for node in nodes}
    for a, b in cables:
        joined, other = group_of[a], group_of[b]
        if joined is not other:
            joined |= other
            group_of.update(dict.fromkeys(other, joined))
    return list({id(group): group for group in group_of.values()}.values())


def parts_text(network: NetworkPlan) -> str:
    """The parts with their bridges; empty where one daemon does for all."""
    parts = switch_parts(network)
    if len(parts) == 1:
        return ""
    lines = ["# switch parts, on the userspace datapath (namespace: bridges)"]
    for part in parts:
        names = " ".join(network.bridge_of_node[node].name for node in part.nodes)
        lines.append(f"{part.netns}: {names}")
    return "".join(f"{line}\n" for line in lines)
