"""Custom data centres of named servers, switches and links."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from typing import Any

from topologies.datacentre import (
    MAX_NODES,
    MAX_TREE_ENTRIES,
    PLAIN,
    Capacity,
    DataCentre,
    IntArray,
    LinkQuality,
    Path,
    Problems,
    QualityPair,
    TopologyError,
    Tree,
    check_at_least,
    check_capacity,
    directed_array,
    frozen_array,
    make_tree,
)

_MAX_NAME = 40
_MOST_COMPARED = 1000
_MOST_HINTS = 100
"""Problems after which names are not compared any more."""

Edges = dict[str, tuple[str, int]]
"""Parent of each node of a tree, and the link between them."""


@dataclass(frozen=True)
class _Graph:
    """Nodes and links in the file's order, and each node's neighbours above
    and below.

    A neighbour is a name and the index of the link to it. ``ends`` are the
    lower and the upper end of each link, ``qualities`` two of each link: upward
    and downward.
    """

    servers: dict[str, int]
    switches: list[str]
    above: dict[str, list[tuple[str, int]]]
    below: dict[str, list[tuple[str, int]]]
    ends: list[tuple[str, str]] = field(default_factory=list)
    capacities: list[Capacity] = field(default_factory=list)
    qualities: list[LinkQuality] = field(default_factory=list)

    def join(
        self,
        lower: str,
        upper: str,
        capacity: Capacity,
        quality: QualityPair,
    ) -> None:
        """Adds a link. ``quality``: upward and downward."""
        link = len(self.capacities)
        self.ends.append((lower, upper))
        self.capacities.append(capacity)
        self.qualities.extend(quality)
        self.above[lower].append((upper, link))
        self.below[upper].append((lower, link))


def custom(content: Mapping[str, Any]) -> DataCentre:
    """A data centre from ``content``, plain values as a file holds them::

        servers: [{name: s0, slots: 2}, {name: s1, slots: 2}]
        switches: [r0]
        links:
          - {lower: s0, upper: r0, capacity: 1000000000}
          - {lower: s1, upper: r0, capacity: 1000000000}
        roots: [r0]

    ``capacity`` is a whole number of bit/s, or ``{up: …, down: …}`` where the
    directions differ. A link may have a ``quality``: two of
    :class:`LinkQuality`, upward and downward. The links must make a tree, or
    ``roots`` must name all switches without an uplink. Each root with all nodes
    below it is then a tree for tenants, and may reach a node in one way only. A
    switch's level is its height above the servers. Raises TopologyError with
    all problems of the entries, or, if there are none, with all problems of the
    structure.
    """
    unknown = content.keys() - {"servers", "switches", "links", "roots"}
    problems = Problems(((key,), "unknown key") for key in sorted(unknown))
    servers = _read_servers(problems, content)
    switches = _read_switches(problems, content, servers)
    names = [*servers, *switches]
    graph = _Graph(
        servers,
        switches,
        above={name: [] for name in names},
        below={name: [] for name in names},
    )
    _read_links(problems, content, graph)
    roots: list[str] | None = None
    # Without roots: the only switch without an uplink is the root.
    if content.get("roots") is not None:
        roots = _read_roots(problems, content, graph)
    _check_size(problems, n_nodes=len(names), n_roots=len(roots or ()))
    if problems:
        raise TopologyError(problems)
    # Only if all entries are valid: without an invalid link the nodes below it
    # would seem disconnected.
    trees = _trees(problems, graph, roots)
    if problems:
        raise TopologyError(problems)
    return _build(graph, trees)


def _check_size(problems: Problems, n_nodes: int, n_roots: int) -> None:
    if n_nodes > MAX_NODES:
        problems.report(f"more than {MAX_NODES:,} nodes", "servers")
    # Each tree has an entry for every node: a short file can ask for gigabytes.
    most_roots = MAX_TREE_ENTRIES // max(1, n_nodes)
    if n_roots > most_roots:
        problems.report(
            f"{n_nodes:,} nodes may have {most_roots:,} roots, not {n_roots:,}",
            "roots",
        )


# -- reading the entries -------------------------------------------------------


def _entries(
    problems: Problems,
    content: Mapping[str, Any],
    key: str,
    wanted: Sequence[str] = (),
) -> Iterator[tuple[int, Any]]:
    """Entries of a list that have all the wanted keys; others are noted."""
    entries = content.get(key)
    if entries == []:
        problems.report("must not be empty", key)
        return
    if not isinstance(entries, list):
        problems.report("missing", key)
        return
    for i, entry in enumerate(entries):
        missing: list[Path] = [(key, i)]
        if isinstance(entry, Mapping) or not wanted:
            missing = [
                (key, i, name) for name in wanted if name not in entry
            ]
        for path in missing:
            problems.report("missing", *path)
        if not missing:
            yield i, entry


def _is_name(problems: Problems, path: Path, value: object) -> bool:
    good = (
        isinstance(value, str)
        and bool(value.strip())
        and len(value) <= _MAX_NAME
    )
    if not good:
        problems.report(
            f"a name is a text of 1 to {_MAX_NAME} characters, not {value!r}",
            *path,
        )
    return good


def _read_servers(
    problems: Problems, content: Mapping[str, Any]
) -> dict[str, int]:
    servers: dict[str, int] = {}
    for i, entry in _entries(
        problems, content, "servers", ("name", "slots")
    ):
        name = entry["name"]
        slots = entry["slots"]
        good = _is_name(problems, ("servers", i, "name"), name)
        check_at_least(
            problems, ("servers", i, "slots"), slots, "a slot count"
        )
        if good and name in servers:
            problems.report(
                f"{name!r} is already the name of a server",
                "servers",
                i,
                "name",
            )
        elif good:
            servers[name] = slots
    return servers


def _read_switches(
    problems: Problems,
    content: Mapping[str, Any],
    servers: Mapping[str, int],
) -> list[str]:
    switches: dict[str, None] = {}
    for i, name in _entries(problems, content, "switches"):
        if not _is_name(problems, ("switches", i), name):
            continue
        if name in servers or name in switches:
            noun = "server" if name in servers else "switch"
            problems.report(
                f"{name!r} is already the name of a {noun}", "switches", i
            )
        # Kept in spite of a repetition, so that links to it are known.
        switches.setdefault(name)
    return list(switches)


def _read_links(
    problems: Problems, content: Mapping[str, Any], graph: _Graph
) -> None:
    first_with: dict[frozenset[str], int] = {}
    for i, entry in _entries(
        problems, content, "links", ("lower", "upper", "capacity")
    ):
        if not _ends_are_known(problems, graph, i, entry):
            continue
        lower = entry["lower"]
        upper = entry["upper"]
        # A set: a link in the other direction joins the same nodes.
        ends = frozenset((lower, upper))
        if upper in graph.servers:
            problems.report(
                f"{upper} is a server: nothing hangs below it",
                "links",
                i,
                "upper",
            )
        elif lower == upper:
            problems.report(f"both ends are {lower}", "links", i)
        elif ends in first_with:
            joined = f"{lower} and {upper} are already joined by links[{first_with[ends]}]"
            problems.report(joined, "links", i)
        else:
            first_with[ends] = i
            path = ("links", i, "capacity")
            check_capacity(problems, path, entry["capacity"])
            quality = entry.get("quality", (PLAIN, PLAIN))
            graph.join(lower, upper, entry["capacity"], quality)


def _ends_are_known(
    problems: Problems, graph: _Graph, i: int, entry: Mapping[str, Any]
) -> bool:
    known = True
    for end in ("lower", "upper"):
        name = entry[end]
        if not isinstance(name, str) or name not in graph.above:
            hint = _hint(problems, name, list(graph.above))
            problems.report(
                f"no node is named {name!r}{hint}", "links", i, end
            )
            known = False
    return known


def _read_roots(
    problems: Problems, content: Mapping[str, Any], graph: _Graph
) -> list[str]:
    roots: dict[str, None] = {}
    for i, name in _entries(problems, content, "roots"):
        if isinstance(name, str) and name in graph.servers:
            problems.report(
                f"{name} is a server, a root is a switch", "roots", i
            )
        elif not isinstance(name, str) or name not in graph.above:
            hint = _hint(problems, name, graph.switches)
            problems.report(
                f"no switch is named {name!r}{hint}", "roots", i
            )
        elif name in roots:
            problems.report(f"{name} is named twice", "roots", i)
        else:
            roots[name] = None
    return list(roots)


def _hint(problems: Problems, name: object, known: list[str]) -> str:
    # difflib compares with every name: many wrong ones would take minutes.
    if len(known) > _MOST_COMPARED or len(problems) >= _MOST_HINTS:
        return ""
    close = get_close_matches(str(name), known, n=1)
    if not close:
        return ""
    return f" (did you mean {close[0]!r}?)"


# -- checking the structure ----------------------------------------------------


def _trees(
    problems: Problems, graph: _Graph, named: list[str] | None
) -> dict[str, Edges]:
    """The tree below each root; problems of the structure are noted."""
    for i, name in enumerate(graph.servers):
        if not graph.above[name]:
            problems.report(f"server {name} has no uplink", "servers", i)
    for i, name in enumerate(graph.switches):
        if not graph.below[name]:
            problems.report(
                f"switch {name} has nothing below it", "switches", i
            )
    # Before the trees, which would miss a circle that no root leads to.
    circle = _circle(graph)
    if circle:
        problems.report(f"a circle upward: {' -> '.join(circle)}", "links")
        return {}
    roots = _roots(problems, graph, named)
    trees = {root: _edges(problems, graph, root) for root in roots}
    # An earlier problem may be the reason of unreached nodes.
    if not problems:
        reached = set(roots).union(*trees.values())
        _check_reached(problems, "servers", list(graph.servers), reached)
        _check_reached(problems, "switches", graph.switches, reached)
    if not problems:
        _check_connected(problems, graph)
    return trees


def _check_reached(
    problems: Problems, key: str, names: list[str], reached: set[str]
) -> None:
    for i, name in enumerate(names):
        if name not in reached:
            problems.report(f"{name} is below no root", key, i)


def _circle(graph: _Graph) -> list[str]:
    """Names along a circle of uplinks, with the first one again at the end.

    Empty if there is none.
    """
    uppers = {}
    for name, above in graph.above.items():
        uppers[name] = [upper for upper, _ in above]
    try:
        # A topological order of uplinks exists unless there is a circle.
        TopologicalSorter(uppers).prepare()
    except CycleError as error:
        # The error lists names from upper to lower ends, the first one twice.
        names: list[str] = error.args[1]
        return [*names[:0:-1], names[-1]]
    return []


def _roots(
    problems: Problems, graph: _Graph, named: list[str] | None
) -> list[str]:
    if named is None:
        tops = [name for name in graph.switches if not graph.above[name]]
        if len(tops) > 1:
            message = f"missing: {', '.join(tops)} have no uplink; name them as roots, or join them"
            problems.report(message, "roots")
            return []
        return tops
    for i, name in enumerate(named):
        if graph.above[name]:
            upper, _ = graph.above[name][0]
            problems.report(
                f"{name} is no root: it has an uplink to {upper}",
                "roots",
                i,
            )
    return [name for name in named if not graph.above[name]]


def _edges(problems: Problems, graph: _Graph, root: str) -> Edges:
    """The tree below ``root``; a node that is reached twice is noted."""
    edges: Edges = {root: ("", -1)}
    frontier = [root]
    for upper in frontier:
        for lower, link in graph.below[upper]:
            if lower in edges:
                ways = f"{lower} hangs from {edges[lower][0]} and {upper}"
                problems.report(f"no tree: below {root}, {ways}", "links")
                continue
            edges[lower] = (upper, link)
            frontier.append(lower)
    del edges[root]
    return edges


def _check_connected(problems: Problems, graph: _Graph) -> None:
    """Notes the first node that no path joins to the first of all."""
    first = next(iter(graph.above))
    joined = {}
    for name, above in graph.above.items():
        joined[name] = [other for other, _ in above + graph.below[name]]
    reached = distances(joined, [first])
    for name in graph.above:
        if name not in reached:
            problems.report(
                f"disconnected: nothing joins {first} and {name}", "links"
            )
            return


def distances(
    joined: Mapping[str, Iterable[str]], sources: Iterable[str]
) -> dict[str, int]:
    """Distance in links of each reachable node from its nearest source, in order
    of distance.
    """
    distance = dict.fromkeys(sources, 0)
    # Breadth-first: the list grows in the loop.
    to_visit = list(distance)
    for name in to_visit:
        for neighbour in joined[name]:
            if neighbour not in distance:
                distance[neighbour] = distance[name] + 1
                to_visit.append(neighbour)
    return distance


def _build(graph: _Graph, trees: Mapping[str, Edges]) -> DataCentre:
    height = _heights(graph)
    # Servers first, then switches upward: a node's number is above those of
    # all nodes below it.
    switches = sorted(graph.switches, key=lambda name: height[name])
    names = [*graph.servers, *switches]
    number = {name: i for i, name in enumerate(names)}
    level = frozen_array([height[name] for name in names])
    return DataCentre(
        kind="custom",
        names=tuple(names),
        level=level,
        slots=frozen_array(list(graph.servers.values())),
        link_lower=frozen_array([number[end] for end, _ in graph.ends]),
        link_upper=frozen_array([number[end] for _, end in graph.ends]),
        directed_capacity_bps=directed_array(graph.capacities),
        trees=_numbered(trees, number, level),
        parameters={
            "servers": len(graph.servers),
            "switches": len(graph.switches),
            "roots": list(trees),
        },
        qualities=_stated_qualities(graph),
    )


def _numbered(
    trees: Mapping[str, Edges], number: Mapping[str, int], level: IntArray
) -> tuple[Tree, ...]:
    """The trees with numbers in place of names, in order of their roots."""
    made = []
    for root in sorted(trees, key=lambda name: number[name]):
        edges = trees[root]
        tree = make_tree(
            root=number[root],
            level=level,
            nodes=[number[name] for name in edges],
            parents=[number[above] for above, _ in edges.values()],
            links=[link for _, link in edges.values()],
        )
        made.append(tree)
    return tuple(made)


def _stated_qualities(graph: _Graph) -> tuple[LinkQuality, ...]:
    """The qualities of all directed links; empty if all are plain."""
    if any(map(str, graph.qualities)):
        return tuple(graph.qualities)
    return ()


def _heights(graph: _Graph) -> dict[str, int]:
    """Each node's height above the servers, by the longest way down."""
    lowers = {}
    for switch in graph.switches:
        lowers[switch] = [lower for lower, _ in graph.below[switch]]
    height = dict.fromkeys(graph.servers, 0)
    # Lower nodes come first, so each switch finds the heights below it.
    for name in TopologicalSorter(lowers).static_order():
        if name in lowers:
            height[name] = 1 + max(height[lower] for lower in lowers[name])
    return height
