"""The ``topology`` section: which data centre."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from testbed.spec.document import Document, read_document, read_text
from testbed.spec.files import find_file
from testbed.spec.problems import Path, Problem, SpecErrors, dotted
from testbed.spec.quantities import (
    BANDWIDTH_SCHEMA,
    MEMORY_SCHEMA,
    Memory,
    PositiveBandwidth,
    SpecModel,
)
from testbed.spec.reading import partial, read_kind, read_model
from testbed.units import UnitError, parse_bandwidth
from topologies.custom import custom
from topologies.datacentre import DataCentre, TopologyError
from topologies.fat_tree import Network, fat_tree
from topologies.flat import flat
from topologies.tree import tree

MAX_SLOTS = 1_000_000
_COUNT = {"type": "integer", "minimum": 1}
_SLOTS = {"anyOf": [_COUNT, {"type": "array", "items": {"type": "integer", "minimum": 0}}]}


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


# Whole numbers are checked by the builders, which know what they mean; the schema says it too.
Count = Annotated[Any, WithJsonSchema(_COUNT)]
Counts = Annotated[list[Any], WithJsonSchema({"type": "array", "items": _COUNT, "minItems": 1})]
Slots = Annotated[Any, WithJsonSchema(_SLOTS)]
Ratios = Annotated[
    list[Any],
    WithJsonSchema({"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}}),
]
Links = Annotated[
    list[PositiveBandwidth],
    BeforeValidator(_as_list),
    WithJsonSchema({"anyOf": [BANDWIDTH_SCHEMA, {"type": "array", "items": BANDWIDTH_SCHEMA}]}),
]

Memories = Annotated[
    list[Memory],
    BeforeValidator(_as_list),
    WithJsonSchema({"anyOf": [MEMORY_SCHEMA, {"type": "array", "items": MEMORY_SCHEMA}]}),
]


class TreeTopology(SpecModel):
    """A regular tree below one core switch."""

    kind: Literal["tree"]
    fanout: Counts = Field(
        description="children per level from the core down: [4, 2, 2] is 4 aggregation switches"
        " of 2 racks of 2 servers"
    )
    links: Links = Field(
        description="link capacities per level from the top down, or one for all levels;"
        " with oversubscription that of the servers' links"
    )
    slots_per_server: Slots = Field(description="VM slots of every server, or a list of them")
    oversubscription: Ratios | None = Field(
        None,
        description="ratios of the switches' uplinks from the top down: [2, 4] is 2:1 at the"
        " aggregation and 4:1 at the racks",
    )


class FatTreeTopology(SpecModel):
    """A fat-tree of k-port switches: k³/4 servers."""

    kind: Literal["fat-tree"]
    k: Annotated[Any, WithJsonSchema({"type": "integer", "minimum": 2, "multipleOf": 2})] = Field(
        description="ports per switch, an even number"
    )
    links: Links = Field(description="one capacity, or three: core, aggregation and server links")
    slots_per_server: Slots = Field(description="VM slots of every server, or a list of them")
    network: Network = Field(
        "tree",
        description="what parallel links carry: tree pins a tenant to the one tree below a core,"
        " pooled counts the links between two layers as one (default tree)",
    )


class FlatTopology(SpecModel):
    """Nodes without a network, for the policies that know none."""

    kind: Literal["flat"]
    nodes: Count = Field(description="how many nodes")
    slots_per_server: Slots = Field(1, description="VM slots of every node (default 1)")
    memory_per_server: Memories | None = Field(
        None, description="memory of every node, or a list of them (default: it limits nothing)"
    )


class CustomServer(SpecModel):
    """A server of a custom topology."""

    name: str = Field(description="the server's name")
    slots: Count = Field(description="its VM slots")


class CustomLink(SpecModel):
    """A link of a custom topology."""

    lower: str = Field(description="the server or switch at its lower end")
    upper: str = Field(description="the switch at its upper end")
    capacity: PositiveBandwidth = Field(description="its capacity in each direction")


class CustomContent(SpecModel):
    """Named servers, switches and links; what a file that ``path`` names holds."""

    servers: list[CustomServer] = Field(description="the servers")
    switches: list[str] = Field(description="the switches' names")
    links: list[CustomLink] = Field(description="the links")
    roots: list[str] | None = Field(
        None, description="the switches without uplink, where there are several"
    )


class CustomTopology(CustomContent):
    """A topology of named servers, switches and links."""

    kind: Literal["custom"]


class CustomFileTopology(SpecModel):
    """A topology in a file of its own."""

    kind: Literal["custom"]
    path: str = Field(description="a file with servers, switches and links, beside this one")


@dataclass(frozen=True)
class TopologyKind:
    """A kind of topology: its keys, what builds it, and what its builder calls the keys.

    ``stand_ins`` serve where a key could not be read, so that the others are checked all the same.
    """

    model: type[SpecModel]
    build: Callable[[Mapping[str, Any]], DataCentre]
    keys: Mapping[str, str] = field(default_factory=dict)
    stand_ins: Mapping[str, Any] = field(default_factory=dict)


_LINKS = {"link_bps": "links"}

TOPOLOGIES: dict[str, TopologyKind] = {
    "tree": TopologyKind(
        TreeTopology,
        lambda k: tree(k["fanout"], k["links"], k["slots_per_server"], k["oversubscription"]),
        _LINKS,
        {"links": [10**9], "slots_per_server": 1, "oversubscription": None},
    ),
    "fat-tree": TopologyKind(
        FatTreeTopology,
        lambda k: fat_tree(k["k"], k["links"], k["slots_per_server"], k["network"]),
        _LINKS,
        {"links": [10**9], "slots_per_server": 1, "network": "tree"},
    ),
    "flat": TopologyKind(
        FlatTopology,
        lambda k: flat(k["nodes"], k["slots_per_server"], _one_or_all(k["memory_per_server"])),
        {"slots": "slots_per_server", "memory_mib": "memory_per_server"},
        {"slots_per_server": 1, "memory_per_server": None},
    ),
    "custom": TopologyKind(CustomTopology, lambda k: custom(_plain_content(k))),
}


@dataclass(frozen=True)
class Site:
    """What the rest of a file is checked against: the data centre, as far as it is known."""

    datacentre: DataCentre | None = None
    slots_known: bool = False
    links_known: bool = False
    resolved: Mapping[str, Any] = field(default_factory=dict)


def read_topology(document: Document, path: Path, beside: FilePath) -> Site:
    """The data centre that the section describes; what is wrong goes to the document."""
    kind = read_kind(document, path, tuple(TOPOLOGIES), "topology")
    if kind is None:
        return Site()
    if kind == "custom":
        return _read_custom(document, path, beside)
    wanted = TOPOLOGIES[kind]
    read_model(wanted.model, document, path)
    known = partial(wanted.model, document, path)
    missing = [key for key in wanted.model.model_fields if key not in known]
    if any(key not in wanted.stand_ins for key in missing):
        return Site()
    datacentre = _build(document, path, wanted, {**wanted.stand_ins, **known})
    if datacentre is None:
        return Site()
    return Site(
        datacentre,
        slots_known="slots_per_server" not in missing,
        links_known="links" not in missing and "oversubscription" not in missing,
        resolved={"kind": kind, **datacentre.parameters},
    )


def _build(
    document: Document, path: Path, wanted: TopologyKind, known: Mapping[str, Any]
) -> DataCentre | None:
    try:
        datacentre = wanted.build(known)
        return datacentre if _countable(document, path, datacentre) else None
    except TopologyError as error:
        said = {problem.path for problem in document.problems}
        for (key, *rest), message in error.problems:
            here = (*path, wanted.keys.get(str(key), key), *rest)
            if not document.is_poisoned(here) and dotted(here) not in said:
                document.report(document.nearest(here), message)
        return None


def _countable(document: Document, path: Path, datacentre: DataCentre) -> bool:
    """Whether slots can be added up: a number beyond reason would overflow the sum."""
    for server in (datacentre.slots > MAX_SLOTS).nonzero()[0].tolist():
        each = (*path, "slots_per_server", server)
        named = (*path, "servers", server, "slots")
        here = document.nearest(named if datacentre.kind == "custom" else each)
        document.report(here, f"{datacentre.slots[server]} is above {MAX_SLOTS:,} slots a server")
        return False
    return True


def _read_custom(document: Document, path: Path, beside: FilePath) -> Site:
    """A custom topology, in the experiment file or in one of its own."""
    wanted = TOPOLOGIES["custom"]
    section = document.at(path)
    if "path" not in section:
        read_model(CustomTopology, document, path)
        built = _build(document, path, wanted, section)
    else:
        read_model(CustomFileTopology, document, path)
        name = partial(CustomFileTopology, document, path).get("path")
        other = None if name is None else _other_document(document, (*path, "path"), name, beside)
        if other is None:
            return Site()
        read_model(CustomContent, other, ())
        built = _build(other, (), wanted, other.data) if isinstance(other.data, dict) else None
        document.problems.extend(other.problems)
    if built is None:
        return Site()
    resolved = {"kind": "custom", **_described(built)}
    return Site(built, slots_known=True, links_known=True, resolved=resolved)


def _other_document(document: Document, path: Path, name: str, beside: FilePath) -> Document | None:
    """The file that a key names; what is wrong with it is reported with its own places."""
    found = find_file(name, beside)
    if found is None:
        document.report(path, f"there is no file {name!r} beside this one or along TESTBED_DATA")
        return None
    try:
        return read_document(read_text(found), str(found))
    except SpecErrors as errors:
        document.problems.extend(
            Problem(p.place, p.path or dotted(path), p.message) for p in errors.problems
        )
        return None


def _one_or_all(listed: list[int] | None) -> int | list[int] | None:
    """What the builder takes: one number for all servers, or one each."""
    return listed[0] if listed is not None and len(listed) == 1 else listed


def _plain_content(section: Mapping[str, Any]) -> dict[str, Any]:
    """What the builder of custom topologies takes: capacities in bit/s.

    Where a capacity cannot be read any other does, so that the structure is checked all the same.
    """
    content = {key: value for key, value in section.items() if key != "kind"}
    if isinstance(content.get("links"), list):
        content["links"] = [
            {**link, "capacity": _capacity(link["capacity"])}
            if isinstance(link, dict) and "capacity" in link
            else link
            for link in content["links"]
        ]
    return content


def _capacity(value: object) -> int:
    try:
        return parse_bandwidth(value) or 10**9
    except UnitError:
        return 10**9


def _described(datacentre: DataCentre) -> dict[str, Any]:
    """A custom data centre as JSON: the same names, links and slots as in its file."""
    names = datacentre.names
    return {
        "servers": [
            {"name": names[i], "slots": slots} for i, slots in enumerate(datacentre.slots.tolist())
        ],
        "switches": list(names[datacentre.n_servers :]),
        "links": [
            {"lower": names[lower], "upper": names[upper], "capacity_bps": capacity}
            for lower, upper, capacity in zip(
                datacentre.link_lower.tolist(),
                datacentre.link_upper.tolist(),
                datacentre.link_capacity_bps.tolist(),
                strict=True,
            )
        ],
        "roots": [names[tree.root] for tree in datacentre.trees],
    }
