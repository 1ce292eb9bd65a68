"""Graphs in GraphML, as the Internet Topology Zoo has them: LinkSpeedRaw in
bit/s, or LinkSpeed with LinkSpeedUnits.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from testbed.importing.imported import (
    NO_BANDWIDTHS,
    Names,
    Notes,
    refusal,
    stated_capacity,
)
from testbed.importing.network_graph import Edge, Graph
from testbed.importing.safe_documents import Element
from testbed.units import (
    UnitError,
    number_of,
    parse_bandwidth,
)

# LinkSpeedUnits as the Topology Zoo writes them.
_UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
}
_CAPACITIES = ("bandwidth", "capacity", "bw")
_SPEEDS = ("LinkSpeedRaw", "LinkSpeed")
_ROLES = ("type", "device_type", "role", "kind")
_USED = frozenset(
    ("label", "hyperedge", "LinkSpeedRaw", "LinkSpeed", "LinkSpeedUnits")
) | {*_CAPACITIES, *_ROLES}

Values = dict[str, str]


class Graphml:
    """A graph as it is read from the elements of a file."""

    def __init__(self, path: Path) -> None:
        self.graph = Graph()
        self._path = path
        self._attribute_of: dict[str, str] = {}
        self._name_of: dict[str, str] = {}
        self._names = Names()
        self._unused: Counter[str] = Counter()
        self._unread: dict[str, None] = {}
        self._directed = False

    def read(self, root: Element, notes: Notes) -> None:
        """Takes nodes and edges. Raises BadInput."""
        # Data have short keys, whose names are declared once.
        for key in root.below("key"):
            name = key.get("attr.name")
            self._attribute_of[key.get("id")] = name
        for graph in root.below("graph"):
            values = self._values(graph)
            name = values.get("Network", values.get("label", ""))
            self.graph.name = name
            default = graph.get("edgedefault")
            self._directed = default == "directed"
        # An edge may stand before its nodes.
        for element in root.with_tag("node"):
            self._take_node(element)
        for element in root.with_tag("edge"):
            self._take_edge(element)
        for _ in root.with_tag("hyperedge"):
            self._unused["hyperedges"] += 1
        self._note(notes)

    def _note(self, notes: Notes) -> None:
        nodes = len(self._name_of)
        edges = len(self.graph.edges)
        notes.taken.append(
            f"{number_of(nodes, 'node')} and {number_of(edges, 'edge')}"
        )
        counts = []
        for name, count in sorted(self._unused.items()):
            counts.append(f"{name} ({count:,})")
        notes.leave_out(counts, "attributes of nodes and edges")
        notes.leave_out(self._unread, NO_BANDWIDTHS)

    def _values(self, element: Element) -> Values:
        """The texts of an element's ``data``, by the attribute's name."""
        values = {}
        for data in element.below("data"):
            key = data.get("key")
            text = data.text.strip()
            if text:
                values[self._attribute_of.get(key, key)] = text
        return values

    def _count_unused(self, values: Values) -> None:
        self._unused.update(values.keys() - _USED)

    # -- nodes

    def _take_node(self, element: Element) -> None:
        foreign = element.get("id")
        if foreign in self._name_of:
            why = f"node {foreign!r:.50} is there already"
            raise refusal(self._path, why, element.line)
        values = self._values(element)
        name = self._names.of(_label(element, values) or foreign)
        self._name_of[foreign] = name
        self._count_unused(values)
        roles = {values.get(key, "").lower() for key in _ROLES}
        if roles & {"host", "server"}:
            self.graph.hosts[name] = 1
            return
        self.graph.switches[name] = None
        # A medium that several nodes share.
        if values.get("hyperedge") == "1":
            self.graph.without_server.add(name)

    # -- edges

    def _take_edge(self, element: Element) -> None:
        values = self._values(element)
        self._count_unused(values)
        capacity_bps = _capacity(values)
        if capacity_bps is None:
            self._note_unread(values)
        # An edge's own direction overrides the graph's default.
        one_way = element.get("directed", str(self._directed))
        self.graph.edges.append(
            Edge(
                first=self._end(element, "source"),
                second=self._end(element, "target"),
                capacity_bps=capacity_bps,
                one_way=one_way.lower() == "true",
            )
        )

    def _note_unread(self, values: Values) -> None:
        """Notes the capacities that an edge states, of which none can be read."""
        for key in _SPEEDS + _CAPACITIES:
            if key not in values:
                continue
            text = values[key]
            if key == "LinkSpeed":
                text += f" {values.get('LinkSpeedUnits', '')}"
            self._unread[stated_capacity(key, text)] = None

    def _end(self, element: Element, key: str) -> str:
        foreign = element.get(key)
        if foreign not in self._name_of:
            why = f"an edge's {key} is {foreign!r:.50}, which is no node"
            raise refusal(self._path, why, element.line)
        return self._name_of[foreign]


def _label(element: Element, values: Values) -> str:
    """A node's label; yEd has it as an element of its own."""
    if "label" in values:
        return values["label"]
    for inner in element.with_tag("NodeLabel"):
        return inner.text.strip()
    return ""


def _capacity(values: Values) -> int | None:
    """Bit/s of an edge; None where it has no number with a unit."""
    units = values.get("LinkSpeedUnits", "").strip().upper()
    raw = _speed(values.get("LinkSpeedRaw", ""), unit_bps=1)
    # An unknown unit makes the product 0, which is no capacity.
    scaled = _speed(values.get("LinkSpeed", ""), _UNITS.get(units, 0))
    # The raw number first: the other one is in a larger unit.
    return raw or scaled or _quantity(values)


def _speed(text: str, unit_bps: int) -> int | None:
    try:
        speed = float(text) * unit_bps
    except ValueError:
        return None
    if math.isfinite(speed) and speed >= 1:
        return round(speed)
    return None


def _quantity(values: Values) -> int | None:
    """The first bandwidth with a unit of ours, as 40 Mbit/s."""
    for key in _CAPACITIES:
        try:
            return parse_bandwidth(values.get(key))
        except UnitError:
            continue
    return None
