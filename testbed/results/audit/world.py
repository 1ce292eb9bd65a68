"""The data centre as the run declared it, and what a hose needs in it, by own arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class World:
    """``topology`` of ``run_started``: slots per server, links, and the trees by their root."""

    record: dict[str, Any]

    @cached_property
    def slots(self) -> list[int]:
        return list(self.record["slots"])

    @cached_property
    def memory_mib(self) -> list[int] | None:
        """Memory per server; None where it limits nothing."""
        memory = self.record.get("memory_mib")
        return None if memory is None else list(memory)

    @cached_property
    def lower(self) -> list[int]:
        return list(self.record["links"]["lower"])

    @cached_property
    def upper(self) -> list[int]:
        return list(self.record["links"]["upper"])

    @cached_property
    def capacity_bps(self) -> list[int]:
        return list(self.record["links"]["capacity_bps"])

    @cached_property
    def trees(self) -> dict[int, dict[str, Any]]:
        return {tree["root"]: tree for tree in self.record["trees"]}

    @property
    def n_nodes(self) -> int:
        return len(self.record["names"])

    @property
    def n_directed(self) -> int:
        """Directed links: 2·l upward, 2·l + 1 downward."""
        return 2 * len(self.capacity_bps)

    def node(self, number: int) -> str:
        return str(self.record["names"][number])

    def link(self, directed: int) -> str:
        """A directed link's ends, in the direction of the traffic."""
        ends = [self.lower[directed // 2], self.upper[directed // 2]]
        return " -> ".join(self.node(end) for end in (ends[::-1] if directed % 2 else ends))

    def problems(self) -> list[str]:
        """What keeps the arrays from being a data centre; other checks rely on none."""
        n, links = self.n_nodes, self.record["links"]
        if len({len(links[key]) for key in ("lower", "upper", "capacity_bps")}) != 1:
            return ["the links' arrays differ in length"]
        out = []
        if len(self.slots) > n or any(count < 0 for count in self.slots):
            out.append("slots do not match the nodes")
        if self.memory_mib is not None and len(self.memory_mib) != len(self.slots):
            out.append("memory does not match the servers")
        for number, ends in enumerate(zip(self.lower, self.upper, strict=True)):
            if not all(0 <= end < n for end in ends):
                out.append(f"link {number} ends at a node that does not exist")
            if self.capacity_bps[number] < 0:
                out.append(f"link {number} has a capacity below 0")
        for tree in self.record["trees"]:
            out += self._tree_problems(tree)
        return out

    def _tree_problems(self, tree: dict[str, Any]) -> list[str]:
        root, parent, uplink = tree["root"], tree["parent"], tree["uplink"]
        if len(parent) != self.n_nodes or len(uplink) != self.n_nodes:
            return [f"the tree below {root} has not one entry a node"]
        for node, (above, link) in enumerate(zip(parent, uplink, strict=True)):
            if not -1 <= above < self.n_nodes or (node == root and above >= 0):
                return [f"the tree below {root}: node {node} cannot have {above} above it"]
            # Only a flat cluster's nodes stand below their root without links.
            if above >= 0 and link < 0 and self.lower:
                return [f"the tree below {root}: no link leads from {node} to {above}"]
            if link >= 0 and (link >= len(self.lower) or self._ends(link) != (node, above)):
                return [f"the tree below {root}: link {link} does not lead from {node} to {above}"]
        return [] if 0 <= root < self.n_nodes else [f"the tree's root {root} does not exist"]

    def _ends(self, link: int) -> tuple[int, int]:
        return self.lower[link], self.upper[link]

    def misplaced(self, root: int, vms_on: Sequence[Sequence[int]], n_vms: int) -> list[str]:
        """What is wrong with a placement, before its bandwidth is looked at."""
        if root not in self.trees:
            return [f"its root {root} is the root of no tree"]
        servers = [server for server, _ in vms_on]
        out = []
        if len(set(servers)) != len(servers):
            out.append("a server is named twice")
        if total := sum(count for _, count in vms_on) - n_vms:
            out.append(f"{n_vms + total} VMs are placed, {n_vms} were asked for")
        for server, count in vms_on:
            if not 0 <= server < len(self.slots):
                out.append(f"node {server} is not a server")
            elif count < 1:
                out.append(f"{count} VMs on {self.node(server)}")
            elif self._path(root, server) is None:
                out.append(f"{self.node(server)} is not below {self.node(root)}")
        return out

    def _path(self, root: int, server: int) -> list[int] | None:
        """The links from a server up to the root; None where they do not lead there."""
        parent, uplink = self.trees[root]["parent"], self.trees[root]["uplink"]
        links: list[int] = []
        node, steps = server, 0
        while node != root:
            if parent[node] < 0 or steps > self.n_nodes:
                return None
            if uplink[node] >= 0:
                links.append(uplink[node])
            node = parent[node]
            steps += 1
        return links

    def hose(self, root: int, vms_on: Iterable[Sequence[int]], rate_bps: int) -> dict[int, int]:
        """min(X, N-X)·B in both directions of every link with VMs on both of its sides."""
        below: dict[int, int] = {}
        n = 0
        for server, count in vms_on:
            n += count
            for link in self._path(root, server) or ():
                below[link] = below.get(link, 0) + count
        need = {}
        for link, x in below.items():
            if amount := min(x, n - x) * rate_bps:
                need[2 * link] = need[2 * link + 1] = amount
        return need
