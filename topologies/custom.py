"""Custom data centres from a file's content: named servers, switches and links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter

from topologies.datacentre import (
    MAX_NODES,
    DataCentre,
    Path,
    Problems,
    TopologyError,
    Tree,
    at_least,
    capacity,
    frozen_array,
    make_tree,
)

_MAX_NAME = 40


@dataclass(frozen=True)
class _Content:
    """Readable entries: names in the file's order, links as ``(lower, upper, capacity_bps)``."""

    servers: dict[str, int]
    switches: list[str]
    links: list[tuple[str, str, int]]
    roots: list[str] | None


def custom(content: Mapping[str, object]) -> DataCentre:
    """A data centre from ``content``, plain values as a file holds them::

        servers: [{name: s0, slots: 2}, {name: s1, slots: 2}]
        switches: [r0]
        links:
          - {lower: s0, upper: r0, capacity: 1000000000}
          - {lower: s1, upper: r0, capacity: 1000000000}
        roots: [r0]

    ``capacity`` is a whole number of bit/s. The links must make a tree, or ``roots`` must name the
    switches without uplink; then each root with all that hangs below it is one tree that tenants
    can be pinned to, and no tree may reach a node in two ways. A switch's level is its height above
    the servers. Raises TopologyError with the problems of the entries, all at once; where those are
    good, with the problems of the structure, all at once.
    """
    problems = Problems()
    read = _read(problems, content)
    if not problems:
        _check_structure(problems, read)
    if problems:
        raise TopologyError(problems)
    return _build(read)


# ------------------------------------------------------------------ reading the entries


def _read(problems: Problems, content: Mapping[str, object]) -> _Content:
    known = ("servers", "switches", "links", "roots")
    for key in content:
        if key not in known:
            problems.report(f"unknown key{_hint(key, known)}", key)
    servers = _read_servers(problems, content.get("servers"))
    switches = _read_switches(problems, content.get("switches"), servers)
    links = _read_links(problems, content.get("links"), servers, switches)
    roots = _read_roots(problems, content.get("roots"), servers, switches)
    if len(servers) + len(switches) > MAX_NODES:
        problems.report(f"more than {MAX_NODES:,} nodes", "servers")
    return _Content(servers, switches, links, roots)


def _entries(problems: Problems, key: str, value: object) -> Sequence[object]:
    if value is None:
        problems.report("missing", key)
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        problems.report("must be a list", key)
        return ()
    if not value:
        problems.report("must not be empty", key)
    return value


def _fields(
    problems: Problems, path: Path, entry: object, wanted: tuple[str, ...]
) -> Mapping[str, object] | None:
    """The entry if it is a mapping with exactly the wanted keys."""
    if not isinstance(entry, Mapping):
        problems.report(f"must have the keys {', '.join(wanted)}", *path)
        return None
    for key in entry:
        if key not in wanted:
            problems.report(f"unknown key{_hint(str(key), wanted)}", *path, str(key))
    missing = [key for key in wanted if key not in entry]
    problems.extend(((*path, key), "missing") for key in missing)
    return None if missing else entry


def _name(problems: Problems, path: Path, value: object) -> str | None:
    if not isinstance(value, str) or not value.strip() or len(value) > _MAX_NAME:
        problems.report(f"a name is a text of 1 to {_MAX_NAME} characters, not {value!r}", *path)
        return None
    return value


def _read_servers(problems: Problems, value: object) -> dict[str, int]:
    servers: dict[str, int] = {}
    for i, entry in enumerate(_entries(problems, "servers", value)):
        fields = _fields(problems, ("servers", i), entry, ("name", "slots"))
        if fields is None:
            continue
        name = _name(problems, ("servers", i, "name"), fields["name"])
        at_least(problems, ("servers", i, "slots"), fields["slots"], 1, "a slot count")
        if name in servers:
            problems.report(f"{name!r} is already the name of a server", "servers", i, "name")
        elif name is not None:
            slots = fields["slots"]
            servers[name] = slots if isinstance(slots, int) else 1
    return servers


def _read_switches(problems: Problems, value: object, servers: Mapping[str, int]) -> list[str]:
    switches: list[str] = []
    seen = set(servers)
    for i, entry in enumerate(_entries(problems, "switches", value)):
        name = _name(problems, ("switches", i), entry)
        if name is None:
            continue
        if name in seen:
            noun = "server" if name in servers else "switch"
            problems.report(f"{name!r} is already the name of a {noun}", "switches", i)
        else:
            seen.add(name)
            switches.append(name)
    return switches


def _read_links(
    problems: Problems, value: object, servers: Mapping[str, int], switches: list[str]
) -> list[tuple[str, str, int]]:
    links: list[tuple[str, str, int]] = []
    nodes, uppers = [*servers, *switches], frozenset(switches)
    first_with: dict[frozenset[str], int] = {}
    for i, entry in enumerate(_entries(problems, "links", value)):
        fields = _fields(problems, ("links", i), entry, ("lower", "upper", "capacity"))
        if fields is None:
            continue
        lower, upper = fields["lower"], fields["upper"]
        good = capacity(problems, ("links", i, "capacity"), fields["capacity"])
        for end, name in (("lower", lower), ("upper", upper)):
            if name not in nodes:
                problems.report(f"no node is named {name!r}{_hint(name, nodes)}", "links", i, end)
                good = False
        if good and upper not in uppers:
            problems.report(f"{upper} is a server: nothing hangs below it", "links", i, "upper")
            good = False
        if good and lower == upper:
            problems.report(f"both ends are {lower}", "links", i)
            good = False
        if not good:
            continue
        ends = frozenset((str(lower), str(upper)))
        if ends in first_with:
            problems.report(
                f"{lower} and {upper} are already joined by links[{first_with[ends]}]", "links", i
            )
            continue
        first_with[ends] = i
        links.append((str(lower), str(upper), int(str(fields["capacity"]))))
    return links


def _read_roots(
    problems: Problems, value: object, servers: Mapping[str, int], switches: list[str]
) -> list[str] | None:
    if value is None:
        return None
    roots: list[str] = []
    for i, name in enumerate(_entries(problems, "roots", value)):
        if name in servers:
            problems.report(f"{name} is a server, a root is a switch", "roots", i)
        elif name not in switches:
            problems.report(f"no switch is named {name!r}{_hint(name, switches)}", "roots", i)
        elif name in roots:
            problems.report(f"{name} is named twice", "roots", i)
        else:
            roots.append(str(name))
    return roots


def _hint(name: object, known: Sequence[str]) -> str:
    close = get_close_matches(str(name), known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


# ------------------------------------------------------------------ checking the structure


def _check_structure(problems: Problems, read: _Content) -> None:
    below: dict[str, list[str]] = {name: [] for name in (*read.servers, *read.switches)}
    above: dict[str, list[str]] = {name: [] for name in (*read.servers, *read.switches)}
    for lower, upper, _ in read.links:
        below[upper].append(lower)
        above[lower].append(upper)
    for i, name in enumerate(read.servers):
        if not above[name]:
            problems.report(f"server {name} has no uplink", "servers", i)
    for i, name in enumerate(read.switches):
        if not below[name]:
            problems.report(f"switch {name} has nothing below it", "switches", i)
    circle = _circle(above)
    if circle:
        problems.report(f"a circle upward: {' -> '.join([*circle, circle[0]])}", "links")
        return
    roots = _check_roots(problems, read, above)
    reached: dict[str, int] = {}
    for root in roots:
        reached.update(dict.fromkeys(_check_one_tree(problems, root, below), 1))
    if problems:
        return
    for key, names in (("servers", list(read.servers)), ("switches", read.switches)):
        lost = [(i, name) for i, name in enumerate(names) if name not in reached]
        problems.extend(((key, i), f"{name} is below no root") for i, name in lost)
    lone = None if problems else _unconnected(above, below)
    if lone is not None:
        problems.report(f"disconnected: nothing joins {lone[0]} and {lone[1]}", "links")


def _circle(above: Mapping[str, list[str]]) -> list[str]:
    """Names along one circle of uplinks, or nothing."""
    try:
        TopologicalSorter(above).prepare()
    except CycleError as error:
        # Its names go from an upper end to a lower one, and the first one is the last one again.
        names: list[str] = error.args[1]
        return names[:0:-1]
    return []


def _check_roots(problems: Problems, read: _Content, above: Mapping[str, list[str]]) -> list[str]:
    tops = [name for name in read.switches if not above[name]]
    if read.roots is None:
        if len(tops) > 1:
            problems.report(
                f"missing: {', '.join(tops)} have no uplink; name them as roots, or join them",
                "roots",
            )
        return tops[:1] if len(tops) == 1 else []
    for i, name in enumerate(read.roots):
        if above[name]:
            problems.report(f"{name} is no root: it has an uplink to {above[name][0]}", "roots", i)
    return [name for name in read.roots if not above[name]]


def _check_one_tree(
    problems: Problems, root: str, below: Mapping[str, list[str]]
) -> dict[str, str]:
    """Every node below ``root`` with the node it hangs from; a second way to one is a problem."""
    parent = {root: ""}
    frontier = [root]
    for upper in frontier:
        for lower in below[upper]:
            if lower in parent:
                problems.report(
                    f"no tree: below {root}, {lower} hangs from {parent[lower]} and {upper}",
                    "links",
                )
                continue
            parent[lower] = upper
            frontier.append(lower)
    return parent


def _unconnected(
    above: Mapping[str, list[str]], below: Mapping[str, list[str]]
) -> tuple[str, str] | None:
    """The first node and the first one that no links join to it."""
    first = next(iter(above))
    joined = {first: True}
    for name in (waiting := [first]):
        found = [other for other in (*above[name], *below[name]) if other not in joined]
        joined |= dict.fromkeys(found, True)
        waiting += dict.fromkeys(found)
    lone = next((name for name in above if name not in joined), None)
    return None if lone is None else (first, lone)


def _build(read: _Content) -> DataCentre:
    below: dict[str, list[tuple[str, int]]] = {name: [] for name in (*read.servers, *read.switches)}
    for link, (lower, upper, _) in enumerate(read.links):
        below[upper].append((lower, link))
    height = _heights(read, below)
    order = sorted(read.switches, key=lambda name: height[name])
    names = [*read.servers, *order]
    number = {name: i for i, name in enumerate(names)}
    level = frozen_array([height[name] for name in names])
    lowers = [lower for lower, _, _ in read.links]
    roots = read.roots or [name for name in read.switches if name not in lowers]
    return DataCentre(
        kind="custom",
        names=tuple(names),
        level=level,
        slots=frozen_array(list(read.servers.values())),
        link_lower=frozen_array([number[lower] for lower, _, _ in read.links]),
        link_upper=frozen_array([number[upper] for _, upper, _ in read.links]),
        link_capacity_bps=frozen_array([bps for _, _, bps in read.links]),
        trees=tuple(
            _tree(root, below, number, level)
            for root in sorted(roots, key=lambda name: number[name])
        ),
        parameters={"servers": len(read.servers), "switches": len(read.switches), "roots": roots},
    )


def _heights(read: _Content, below: Mapping[str, list[tuple[str, int]]]) -> dict[str, int]:
    """Servers 0, every switch one more than the highest node below it."""
    height = dict.fromkeys(read.servers, 0)
    waiting = {name: len(below[name]) for name in read.switches}
    above: dict[str, list[str]] = {name: [] for name in (*read.servers, *read.switches)}
    for lower, upper, _ in read.links:
        above[lower].append(upper)
    ready = list(read.servers)
    for name in ready:
        for upper in above[name]:
            waiting[upper] -= 1
            height[upper] = max(height.get(upper, 0), height[name] + 1)
            if waiting[upper] == 0:
                ready.append(upper)
    return height


def _tree(
    root: str,
    below: Mapping[str, list[tuple[str, int]]],
    number: Mapping[str, int],
    level: object,
) -> Tree:
    edges: dict[int, tuple[int, int]] = {}
    frontier = [root]
    for upper in frontier:
        for lower, link in below[upper]:
            edges[number[lower]] = (number[upper], link)
            frontier.append(lower)
    return make_tree(number[root], len(number), edges, frozen_array(level))  # type: ignore[arg-type]
