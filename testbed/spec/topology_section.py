"""The ``topology`` section: which data centre."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Tag,
    ValidationError,
    WithJsonSchema,
)

from testbed.plugins import PluginError, PluginUse, installed
from testbed.spec.document import (
    Location,
    SpecErrors,
    file_at,
    read_document,
    read_text,
)
from testbed.spec.mininet_file import read_network
from testbed.spec.size_limits import LIMITS, within
from testbed.spec.unit_types import (
    CAPACITY_SCHEMA,
    MEMORY_SCHEMA,
    Duration,
    LinkCapacity,
    Memory,
    PositiveBandwidth,
    Share,
    as_list,
    parse_capacity,
)
from testbed.spec.validation import (
    INSTALLED,
    Section,
    SpecModel,
    kind_tag,
    read_section,
)
from testbed.units import UnitError
from topologies.custom import custom
from topologies.datacentre import (
    PLAIN,
    Capacity,
    DataCentre,
    LinkQuality,
    QualityPair,
    TopologyError,
    capacity_of,
    dotted,
    down,
    up,
)
from topologies.fat_tree import Network, fat_tree
from topologies.flat import flat
from topologies.link_quality import (
    MOST_DELAY_S,
    MOST_QUEUE_PACKETS,
    quality_notes,
)
from topologies.mininet_topo import from_mininet, notes_of
from topologies.tree import tree

_COUNT = {"type": "integer", "minimum": 1}
_SLOTS = {
    "anyOf": [
        _COUNT,
        {"type": "array", "items": {"type": "integer", "minimum": 0}},
    ]
}


def _one_or_list(schema: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema(
        {"anyOf": [schema, {"type": "array", "items": schema}]}
    )


# The builders check whole numbers, with messages of their own; the schema has
# the same limits.
Count = Annotated[Any, WithJsonSchema(_COUNT)]
Counts = Annotated[
    list[Any],
    WithJsonSchema({"type": "array", "items": _COUNT, "minItems": 1}),
]
Slots = Annotated[Any, WithJsonSchema(_SLOTS)]
Ratios = Annotated[
    list[Any],
    WithJsonSchema(
        {
            "type": "array",
            "items": {"type": "number", "exclusiveMinimum": 0},
        }
    ),
]


class QualityKeys(SpecModel):
    """Keys of a link beside its capacity."""

    delay: Annotated[Duration, Field(le=MOST_DELAY_S)] = 0.0
    """how late each packet is, one way (default 0 s)"""
    jitter: Annotated[Duration, Field(le=MOST_DELAY_S)] = 0.0
    """by how much the delay varies (default 0 s)"""
    loss: Annotated[Share, Field(lt=1.0)] = 0.0
    """share of all packets that are lost (default 0 %)"""
    max_queue_size: Annotated[int, Field(ge=0, le=MOST_QUEUE_PACKETS)] = 0
    """full frames without a reservation that wait for the link (default
    0: the testbed's own choice)
    """

    @property
    def quality(self) -> LinkQuality:
        return LinkQuality(
            self.delay, self.jitter, self.loss, self.max_queue_size
        )


class LinkEntry(QualityKeys):
    """Links of a level: their capacity, and what they do to packets."""

    capacity: LinkCapacity
    """the capacity in each direction, or {up: …, down: …}"""


def _as_entries(value: object) -> list[object]:
    """Links as mappings: a capacity alone becomes ``{capacity: …}``."""
    entries: list[object] = []
    for entry in value if isinstance(value, list) else [value]:
        keys = entry.keys() if isinstance(entry, dict) else ()
        # {up: …, down: …} is a capacity, though it is a mapping.
        if LinkEntry.model_fields.keys().isdisjoint(keys):
            entries.append({"capacity": entry})
        else:
            entries.append(entry)
    return entries


class _LinksSchema:
    """The schema of links: each a capacity or a mapping, a list or alone."""

    def __get_pydantic_json_schema__(
        self, core_schema: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        listed = handler(core_schema)
        entry = {"anyOf": [CAPACITY_SCHEMA, listed["items"]]}
        return {"anyOf": [*entry["anyOf"], {**listed, "items": entry}]}


Links = Annotated[
    list[LinkEntry], BeforeValidator(_as_entries), _LinksSchema()
]


def _capacities(links: list[LinkEntry]) -> list[Capacity]:
    return [entry.capacity for entry in links]


def _with_qualities(
    built: DataCentre, links: list[LinkEntry]
) -> DataCentre:
    """The data centre with its links' qualities by level, from the top down."""
    return built.with_level_qualities([entry.quality for entry in links])


Memories = Annotated[
    list[Memory], BeforeValidator(as_list), _one_or_list(MEMORY_SCHEMA)
]


class RegularTopology(Section):
    """A topology that a few numbers describe.

    ``builder_names`` are the builder's names of keys, in its problems.
    """

    builder_names: ClassVar[Mapping[str, str]] = {}
    kind: str

    def build(self) -> DataCentre:
        """The data centre; raises TopologyError."""
        raise NotImplementedError


class TreeTopology(RegularTopology):
    """A regular tree below one core switch."""

    builder_names: ClassVar = {"link_bps": "links"}

    kind: Literal["tree"]
    fanout: Counts
    """children per level from the core down: [4, 2, 2] is 4 aggregation
    switches of 2 racks of 2 servers
    """
    links: Links
    """link capacities per level from the top down, or one for all
    levels; with oversubscription that of the servers' links
    """
    slots_per_server: Slots
    """VM slots of every server, or a list of them"""
    oversubscription: Ratios | None = None
    """ratios of the switches' uplinks from the top down: [2, 4] is 2:1
    at the aggregation and 4:1 at the racks
    """

    def build(self) -> DataCentre:
        built = tree(
            self.fanout,
            _capacities(self.links),
            self.slots_per_server,
            self.oversubscription,
        )
        return _with_qualities(built, self.links)


class FatTreeTopology(RegularTopology):
    """A fat-tree of k-port switches: k³/4 servers."""

    builder_names: ClassVar = {"link_bps": "links"}

    kind: Literal["fat-tree"]
    k: Annotated[
        Any,
        WithJsonSchema({"type": "integer", "minimum": 2, "multipleOf": 2}),
    ]
    """ports per switch, an even number"""
    links: Links
    """one capacity, or three: core, aggregation and server links"""
    slots_per_server: Slots
    """VM slots of every server, or a list of them"""
    network: Network = "tree"
    """what parallel links carry: tree pins a tenant to the one tree
    below a core, pooled counts the links between two layers as one
    (default tree)
    """

    def build(self) -> DataCentre:
        built = fat_tree(
            self.k,
            _capacities(self.links),
            self.slots_per_server,
            self.network,
        )
        return _with_qualities(built, self.links)


class FlatTopology(RegularTopology):
    """Nodes without a network, for the policies that know none."""

    builder_names: ClassVar = {
        "slots": "slots_per_server",
        "memory_mib": "memory_per_server",
    }

    kind: Literal["flat"]
    nodes: Count
    """how many nodes"""
    slots_per_server: Slots = 1
    """VM slots of every node (default 1)"""
    memory_per_server: Memories | None = None
    """memory of every node, or a list of them (default: it limits
    nothing)
    """

    def build(self) -> DataCentre:
        return flat(
            self.nodes, self.slots_per_server, self.memory_per_server
        )


class CustomServer(SpecModel):
    """A server of a custom topology."""

    name: str
    """the server's name"""
    slots: Count
    """its VM slots"""


class CustomLink(QualityKeys):
    """A link of a custom topology."""

    lower: str
    """the server or switch at its lower end"""
    upper: str
    """the switch at its upper end"""
    capacity: LinkCapacity
    """its capacity in each direction, or of either: {up: 50 Mbit/s, down:
    100 Mbit/s}
    """


class CustomContent(Section):
    """Named servers, switches and links; what a file that ``path`` names holds."""

    servers: list[CustomServer]
    """the servers"""
    switches: list[str]
    """the switches' names"""
    links: list[CustomLink]
    """the links"""
    roots: list[str] | None = None
    """the switches without uplink, where there are several"""


class CustomTopology(CustomContent):
    """A topology of named servers, switches and links."""

    kind: Literal["custom"]


class CustomFileTopology(Section):
    """A topology in a file of its own."""

    kind: Literal["custom"]
    path: str
    """a file with servers, switches and links, beside this one"""


class MininetTopology(Section):
    """A Mininet Topo, or a script that builds a Mininet, in a Python file, which
    is executed: its hosts are the servers.
    """

    kind: Literal["mininet"]
    path: str
    """a Python file, beside this one"""
    topo: str | None = None
    """a subclass of mininet.topo.Topo there, a function that makes a
    Topo or a Mininet, or a name in its topos (default: the Mininet that
    the file makes as a script)
    """
    args: dict[str, Any] | None = None
    """its arguments by name: {k: 4}"""
    argv: list[str | int | float] | None = None
    """arguments of the file as of a script: ['--hosts', 4] (default:
    none)
    """
    default_bw: PositiveBandwidth | None = None
    """capacity of links without bw (default: each needs one)"""
    slots_per_server: Count = 1
    """VM slots of hosts that state none (default 1)"""


class InstalledTopology(Section):
    """A topology of an installed package: its keys are the parameters of a
    function there.
    """

    model_config = ConfigDict(extra="allow")
    kind: str

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        return tuple(installed("topologies"))


def _tag(value: Any) -> Any:
    """The kind of a topology; a custom one may stand in a file of its own."""
    kind = kind_tag(value, Topology, "topologies")
    if kind == "custom" and "path" in value:
        return "custom file"
    return kind


# Values of keys that could not be read, so that the others are checked.
_STAND_INS: Mapping[str, Any] = {
    "links": [LinkEntry.model_construct(capacity=10**9)],
    "slots_per_server": 1,
}

Topology = Annotated[
    Annotated[TreeTopology, Tag("tree")]
    | Annotated[FatTreeTopology, Tag("fat-tree")]
    | Annotated[FlatTopology, Tag("flat")]
    | Annotated[CustomTopology, Tag("custom")]
    | Annotated[CustomFileTopology, Tag("custom file")]
    | Annotated[MininetTopology, Tag("mininet")]
    | Annotated[InstalledTopology, Tag(INSTALLED)],
    Discriminator(_tag),
]


@dataclass(frozen=True)
class LoadContext:
    """The parts of an experiment that a workload depends on beside its own
    keys.

    ``datacentre`` is None where its section cannot be read. ``slots_known`` and
    ``links_known`` are false where defaults replace what could not be read.
    """

    seed: int
    embedder: str
    datacentre: DataCentre | None = None
    slots_known: bool = False
    links_known: bool = False
    resolved: Mapping[str, Any] = field(default_factory=dict)
    plugins: tuple[PluginUse, ...] = ()
    notes: tuple[str, ...] = ()


def with_topology(
    context: LoadContext, section: Topology | None, location: Location
) -> LoadContext:
    """The context with the data centre of a section, and notes on its links.

    Problems with the meaning of the section are reported.
    """
    loaded = _with_data_centre(context, section, location)
    if loaded.datacentre is None:
        return loaded
    notes = quality_notes(loaded.datacentre.qualities)
    return replace(loaded, notes=(*loaded.notes, *notes))


def _with_data_centre(
    context: LoadContext, section: Topology | None, location: Location
) -> LoadContext:
    if isinstance(section, RegularTopology):
        return _regular(context, section, location)
    if isinstance(section, InstalledTopology):
        return _installed(context, section.kind, location)
    if isinstance(section, MininetTopology):
        return _mininet(context, section, location)
    built = None
    if isinstance(section, CustomFileTopology):
        built = _named_in_file(section, location)
    elif section is not None:
        built = _named(location)
    if built is None:
        return context
    return _with_named(context, built)


def _with_named(context: LoadContext, built: DataCentre) -> LoadContext:
    # A reader of the run needs neither the file nor Mininet.
    resolved = {"kind": "custom", **_described(built)}
    return replace(
        context,
        datacentre=built,
        slots_known=True,
        links_known=True,
        resolved=resolved,
    )


def _mininet(
    context: LoadContext, section: MininetTopology, location: Location
) -> LoadContext:
    """The data centre of a Mininet network, and notes on what it leaves out."""
    if not section.is_readable("path", "topo", "args", "argv"):
        return context
    record = read_network(
        location,
        section.path,
        topo=section.topo,
        args=section.args or {},
        argv=list(map(str, section.argv or ())),
    )
    readable = section.is_readable("slots_per_server", "default_bw")
    if record is None or not readable:
        return context
    default_bps = section.default_bw
    key = "path" if section.topo is None else "topo"
    names = dict.fromkeys(("servers", "switches", "links"), key)
    # Problems of the network are reported at the key that names its maker.
    built = _built(
        location,
        lambda: from_mininet(record, section.slots_per_server, default_bps),
        names,
    )
    if built is None:
        return context
    return replace(
        _with_named(context, built),
        notes=notes_of(record, built.hosts, default_bps),
    )


def _named_in_file(
    section: CustomFileTopology, location: Location
) -> DataCentre | None:
    """The data centre of a file of its own, whose problems are reported at their
    places in it.
    """
    content = _other_document(location / "path", section["path"])
    if content is None:
        return None
    # For its problems alone: the builder takes the plain content.
    read_section(CustomContent, content)
    built = _named(content)
    location.document.problems.extend(content.document.problems)
    return built


def _named(location: Location) -> DataCentre | None:
    """A data centre of named nodes."""
    content = location.value
    if not isinstance(content, dict):
        return None
    return _built(location, lambda: custom(_plain_content(content)), {})


def _installed(
    context: LoadContext, kind: str, location: Location
) -> LoadContext:
    """The data centre that a function of an installed package makes."""
    from testbed.spec.plugin_functions import plugin_function

    plugin = plugin_function(location / "kind", "topologies")
    arguments = None if plugin is None else plugin.read(location)
    if plugin is None or arguments is None:
        return context
    datacentre = _built(
        location, lambda: plugin.made(DataCentre, arguments), {}
    )
    if datacentre is None:
        return context
    # Its nodes are recorded by name: a reader of the run may lack the package.
    described = _with_named(context, datacentre)
    made_by = {"kind": kind, **arguments}
    return replace(
        described,
        resolved={**described.resolved, "made_by": made_by},
        plugins=(plugin.use,),
    )


def _regular(
    context: LoadContext, section: RegularTopology, location: Location
) -> LoadContext:
    stand_ins = _stand_ins(section)
    if stand_ins is None:
        return context
    whole = section.with_defaults().model_copy(update=stand_ins)
    datacentre = _built(location, whole.build, section.builder_names)
    if datacentre is None:
        return context
    return replace(
        context,
        datacentre=datacentre,
        slots_known=section.is_readable("slots_per_server"),
        links_known=section.is_readable("links", "oversubscription"),
        resolved={"kind": section.kind, **datacentre.parameters},
    )


def _stand_ins(section: RegularTopology) -> dict[str, Any] | None:
    """Values of keys that could not be read; None where a required key has
    no stand-in.
    """
    stand_ins = {}
    for name, key in type(section).model_fields.items():
        if section.is_readable(name):
            continue
        if name in _STAND_INS:
            stand_ins[name] = _STAND_INS[name]
        elif key.is_required():
            return None
    return stand_ins


def _built(
    location: Location,
    build: Callable[[], DataCentre],
    names: Mapping[str, str],
) -> DataCentre | None:
    document = location.document
    try:
        datacentre = build()
    except TopologyError as error:
        # Problems of form are not reported again.
        reported = {problem.path for problem in document.problems}
        for (key, *rest), message in error.problems:
            where = Location(
                document, (*location.path, names.get(str(key), key), *rest)
            )
            if where.is_readable and dotted(where.path) not in reported:
                where.nearest.report(message)
        return None
    except PluginError as error:
        location.report(error.reason)
        return None
    return datacentre if _countable(location, datacentre) else None


def _countable(location: Location, datacentre: DataCentre) -> bool:
    """True if the slots of each server and of all are within their limits."""
    too_many = datacentre.slots > LIMITS["slots a server"]
    # Only the first server is reported.
    for server in too_many.nonzero()[0].tolist():
        where = location / "slots_per_server" / server
        if datacentre.kind == "custom":
            where = location / "servers" / server / "slots"
        hint = "take fewer, on more servers"
        slots = int(datacentre.slots[server])
        return within(where, slots, "slots a server", hint)
    return within(
        location / "slots_per_server",
        datacentre.total_slots,
        "slots",
        "take fewer servers, or fewer slots a server",
    )


def _other_document(
    location: Location, name: str | None
) -> Location | None:
    """The document that a key names; None, and reported, where it cannot be
    read.
    """
    path = None if name is None else file_at(location, name)
    if path is None:
        return None
    try:
        return Location(read_document(read_text(path), str(path)))
    except SpecErrors as errors:
        key = dotted(location.path)
        for problem in errors.problems:
            # A problem of the whole file gets the key that names it.
            location.document.problems.append(
                replace(problem, path=problem.path or key)
            )
        return None


def _plain_content(section: Mapping[str, Any]) -> dict[str, Any]:
    """The content that the builder of custom topologies takes: capacities in
    bit/s.

    A capacity that cannot be read is replaced, so that the structure is
    checked.
    """
    content = {
        key: value for key, value in section.items() if key != "kind"
    }
    if isinstance(content.get("links"), list):
        content["links"] = [
            _plain_link(link) if isinstance(link, dict) else link
            for link in content["links"]
        ]
    return content


def _plain_link(link: dict[str, Any]) -> dict[str, Any]:
    plain = {**link, "quality": _quality(link)}
    if "capacity" in link:
        plain["capacity"] = _capacity(link["capacity"])
    return plain


def _quality(link: dict[str, Any]) -> QualityPair:
    """A link's quality in both directions; plain where it cannot be read."""
    keys = {
        key: value
        for key, value in link.items()
        if key in QualityKeys.model_fields
    }
    try:
        quality = QualityKeys.model_validate(keys).quality
    except ValidationError:
        quality = PLAIN
    return quality, quality


def _capacity(value: object) -> Capacity:
    try:
        return parse_capacity(value)
    except UnitError:
        return 10**9


def _described(datacentre: DataCentre) -> dict[str, Any]:
    """A custom data centre as JSON: the same names, links and slots as in its
    file.
    """
    names = datacentre.names
    return {
        "servers": _described_servers(datacentre),
        "switches": list(names[datacentre.n_servers :]),
        "links": _described_links(datacentre),
        "roots": [names[tree.root] for tree in datacentre.trees],
    }


def _described_servers(datacentre: DataCentre) -> list[dict[str, Any]]:
    servers = []
    for server, slots in enumerate(datacentre.slots.tolist()):
        record: dict[str, Any] = {
            "name": datacentre.names[server],
            "slots": slots,
        }
        if datacentre.memory_mib is not None:
            record["memory_mib"] = datacentre.memory_mib[server].item()
        servers.append(record)
    return servers


def _described_links(datacentre: DataCentre) -> list[dict[str, Any]]:
    names = datacentre.names
    lowers = datacentre.link_lower.tolist()
    uppers = datacentre.link_upper.tolist()
    directed_bps = datacentre.directed_capacity_bps.tolist()
    links = []
    for link in range(datacentre.n_links):
        record: dict[str, Any] = {
            "lower": names[lowers[link]],
            "upper": names[uppers[link]],
            "capacity_bps": capacity_of(
                directed_bps[up(link)], directed_bps[down(link)]
            ),
            **_quality_record(datacentre, link),
        }
        links.append(record)
    return links


def _quality_record(datacentre: DataCentre, link: int) -> dict[str, Any]:
    """A link's quality, upward and downward where they differ."""
    both = datacentre.qualities[up(link) : down(link) + 1]
    records = [quality.record() for quality in both]
    if not any(records):
        return {}
    if records[0] == records[1]:
        return {"quality": records[0]}
    return {"quality_up": records[0], "quality_down": records[1]}
