"""Topologies of containerlab: nodes by kind, and links between interfaces, in
the brief and the extended form.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from testbed.importing.imported import Names, Notes, refusal
from testbed.importing.network_graph import Edge, Graph
from testbed.importing.safe_documents import read_yaml
from testbed.units import number_of

HOSTS = frozenset(("linux", "host", "ext-container", "generic_vm"))
"""Kinds of nodes that run programs; the others forward packets."""
_OUTSIDE = frozenset(("host", "macvlan", "mgmt-net", "dummy"))
"""Ends of links that are no nodes of the topology."""
_PLACES = ("kind", "group", "position", "labels")
"""Keys that do not concern what a node runs."""

Mapping = dict[str, Any]


class ContainerlabTopology:
    """A lab as it is read from a topology file."""

    def __init__(self, path: Path) -> None:
        self.graph = Graph()
        self._path = path
        self._name_of: dict[str, str] = {}
        self._names = Names()
        self._keys: Counter[str] = Counter()
        self._outside: Counter[str] = Counter()

    def read(self, content: bytes, notes: Notes) -> None:
        """Takes nodes and links. Raises BadInput."""
        data = read_yaml(content, self._path)
        topology = _mapping(data, "topology")
        nodes = topology.get("nodes")
        links = topology.get("links") or []
        if not isinstance(nodes, dict):
            why = "is of no kind that is known: as containerlab's it has no topology with nodes"
            if not content.strip():
                why = "is empty"
            raise refusal(self._path, why)
        if not isinstance(links, list):
            raise refusal(self._path, "topology.links is no list")
        self.graph.name = str(data.get("name", ""))
        for foreign in nodes:
            self._take_node(foreign, _mapping(nodes, foreign), topology)
        for number, link in enumerate(links):
            self._take_link(f"topology.links[{number}]", link)
        self._note(notes)

    def _note(self, notes: Notes) -> None:
        forwarding = len(self.graph.switches)
        hosts = len(self.graph.hosts)
        edges = len(self.graph.edges)
        notes.taken.append(
            f"{number_of(forwarding, 'forwarding node')},"
            f" {number_of(hosts, 'host')}, {number_of(edges, 'link')}"
        )
        for noun, count in self._outside.items():
            notes.not_taken.append(f"links to outside ({noun}): {count}")
        keys = []
        for key, count in self._keys.items():
            keys.append(f"{key} ({count})")
        notes.leave_out(
            keys,
            "what nodes run and how they are set up; paths are the testbed's",
        )

    # -- nodes

    def _take_node(
        self, foreign: str, node: Mapping, topology: Mapping
    ) -> None:
        name = self._names.of(foreign)
        self._name_of[foreign] = name
        # Counted, so that the notes say how much of the lab was not taken.
        for key in node:
            if key not in _PLACES:
                self._keys[key] += 1
        if _kind(node, topology) in HOSTS:
            self.graph.hosts[name] = 1
        else:
            self.graph.switches[name] = None

    # -- links

    def _take_link(self, where: str, link: Any) -> None:
        if not isinstance(link, dict):
            raise refusal(self._path, f"{where} is no mapping")
        # In the extended form a link says its kind; those that leave the
        # lab have no second node.
        if link.get("type", "veth") != "veth":
            self._outside[str(link["type"])[:20]] += 1
            return
        ends = _ends(link)
        if len(ends) != 2:
            why = f"{where} has {len(ends)} endpoints, not 2"
            raise refusal(self._path, why)
        # A node may bear such a name itself.
        outside = _OUTSIDE.intersection(ends) - self._name_of.keys()
        if outside:
            self._outside.update(outside)
            return
        first, second = (self._known(where, end) for end in ends)
        self.graph.edges.append(Edge(first, second))

    def _known(self, where: str, end: str) -> str:
        if end not in self._name_of:
            why = f"{where}: no node is named {end!r:.50}"
            raise refusal(self._path, why)
        return self._name_of[end]


def _mapping(data: Any, key: str) -> Mapping:
    """A mapping in another one; an empty one for anything else."""
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}


def _kind(node: Mapping, topology: Mapping) -> str:
    """A node's kind: its own, its group's, or the default."""
    group = _mapping(_mapping(topology, "groups"), str(node.get("group")))
    for place in (node, group, _mapping(topology, "defaults")):
        if place.get("kind"):
            return str(place["kind"])
    return ""


def _ends(link: Mapping) -> list[str]:
    """The nodes of a link's ends: of ``NODE:INTERFACE``, or of ``{node: …,
    interface: …}``.
    """
    nodes = []
    endpoints = link.get("endpoints")
    for end in endpoints if isinstance(endpoints, list) else []:
        if isinstance(end, dict):
            nodes.append(str(end.get("node", "")))
        else:
            nodes.append(str(end).partition(":")[0])
    return nodes
