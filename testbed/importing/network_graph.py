"""Any graph of hosts and switches as a network on which bandwidth can be
reserved: a tree, or a multi-rooted tree.

A reservation needs one path between two servers below a root. Leaf-spine
fabrics are kept whole; other graphs are reduced to a spanning tree, and the
notes list the links outside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.importing.imported import (
    DEFAULT_LINK_BPS,
    Names,
    Network,
    NetworkLink,
    Notes,
    refusal,
)
from testbed.units import (
    format_bandwidth,
    number_of,
)
from topologies.custom import distances
from topologies.datacentre import MAX_LINK_BPS, DataCentre, TopologyError
from topologies.mininet_record import MininetRecord
from topologies.mininet_topo import MBIT_BPS, Adjacency, from_mininet

Ends = tuple[str, str]
MOST_NODES = 15_000


@dataclass(frozen=True)
class Edge:
    """A link of an imported file; ``capacity_bps`` is None where the file states
    none.

    A link that is ``one_way`` carries only from the first end to the second.
    """

    first: str
    second: str
    capacity_bps: int | None = None
    delay_s: float = 0.0
    one_way: bool = False

    @property
    def name(self) -> str:
        return f"{self.first} - {self.second}"


@dataclass
class Graph:
    """Nodes by name, and edges, of an imported file.

    ``hosts`` have their slots. In a graph without hosts a server is added to
    each of ``switches`` but those in ``without_server``. ``speed_flops`` is
    that of the slowest host, if known.
    """

    name: str = ""
    hosts: dict[str, int] = field(default_factory=dict)
    switches: dict[str, None] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    without_server: set[str] = field(default_factory=set)
    slots_of_added: int = 4
    speed_flops: float | None = None


def network_of(
    graph: Graph, notes: Notes, path: Path, *, whole: bool
) -> Network:
    """The network of a graph; omissions and choices are noted.

    Raises BadInput for a graph without links, for one with too many nodes, and
    with ``whole`` also where links would be left out.
    """
    if len(graph.hosts) + len(graph.switches) > MOST_NODES:
        why = f"has more than {MOST_NODES:,} nodes"
        raise refusal(
            path, f"{why}: its experiment file would exceed 1 MiB"
        )
    wiring = _Wiring(graph, notes)
    wiring.keep_largest_part()
    if not any(wiring.joined.values()):
        raise refusal(path, "has no two nodes that a link joins")
    # Hosts first: a switch is a dead end if it leads to none.
    wiring.place_hosts()
    wiring.drop_dead_ends()
    # A leaf-spine fabric is kept whole; other graphs are reduced to a tree.
    try:
        return wiring.network()
    except TopologyError as error:
        reason = error.problems[0][1]
    if whole:
        why = f"is no tree or multi-rooted tree ({reason})"
        raise refusal(
            path, f"{why}: without --whole a spanning tree of it is taken"
        )
    wiring.keep_spanning_tree()
    wiring.drop_dead_ends()
    try:
        return wiring.network()
    except TopologyError as error:
        raise refusal(path, error.problems[0][1]) from None


def _first(names: Iterable[str]) -> str:
    """``a``, or ``a and 3 more``."""
    listed = list(names)
    if len(listed) == 1:
        return listed[0]
    return f"{listed[0]} and {len(listed) - 1:,} more"


# ------------------------------------------------------------------ capacities


class _Capacities:
    """Capacities of directions, by their ends; parallel links are added up."""

    def __init__(self, edges: Sequence[Edge]) -> None:
        self.sums: dict[Ends, int] = {}
        self._loops: list[str] = []
        self._one_way: list[str] = []
        self._parallel: dict[str, None] = {}
        self._without: list[str] = []
        # A link without a capacity gets that of the slowest other link.
        known = [edge.capacity_bps for edge in edges if edge.capacity_bps]
        slowest_bps = min(known, default=DEFAULT_LINK_BPS)
        self.default_bps = min(slowest_bps, MAX_LINK_BPS)
        for edge in edges:
            self._take(edge)

    def _take(self, edge: Edge) -> None:
        if edge.first == edge.second:
            self._loops.append(edge.first)
            return
        directions = [(edge.first, edge.second)]
        if not edge.one_way:
            directions.append((edge.second, edge.first))
        if not self.sums.keys().isdisjoint(directions):
            self._parallel[edge.name] = None
        capacity_bps = self._capacity(edge)
        for ends in directions:
            self.sums[ends] = self.sums.get(ends, 0) + capacity_bps

    def _capacity(self, edge: Edge) -> int:
        if edge.capacity_bps:
            return edge.capacity_bps
        self._without.append(edge.name)
        return self.default_bps

    def join(self, joined: Adjacency) -> None:
        """Adds the links. One with a single direction gets its capacity in
        both.
        """
        # A link of the file, or the sum of parallel ones, may have more than
        # the largest capacity.
        for (first, second), capacity_bps in self.sums.items():
            back_bps = self.sums.get((second, first), capacity_bps)
            if (second, first) not in self.sums:
                self._one_way.append(f"{first} to {second}")
            joined[first][second] = min(capacity_bps, MAX_LINK_BPS)
            joined[second][first] = min(back_bps, MAX_LINK_BPS)

    def note(self, notes: Notes) -> None:
        """Notes loops, parallel links, and links without a capacity."""
        notes.leave_out(self._loops, "links of a node to itself")
        if self._one_way:
            notes.choices.append(
                "links with one direction in the file have the same capacity"
                f" back: {_first(self._one_way)}"
            )
        if self._parallel:
            notes.taken.append(
                f"parallel links as one of their sum: {_first(self._parallel)}"
            )
        if self._without:
            capacity = format_bandwidth(self.default_bps)
            links = number_of(len(self._without), "link")
            notes.choices.append(
                f"{capacity} of {links} whose capacity the file does not say:"
                f" {_first(self._without)}"
            )


# ------------------------------------------------------------------ nodes


class _Wiring:
    """Hosts, switches and links of a graph, reduced step by step to a network
    of the testbed.
    """

    def __init__(self, graph: Graph, notes: Notes) -> None:
        self.joined: Adjacency = {}
        self._graph = graph
        self._notes = notes
        self._names = Names()
        self._left_out: list[str] = []
        for name in (*graph.hosts, *graph.switches):
            self.joined[name] = {}
            self._names.of(name)
        capacities = _Capacities(graph.edges)
        capacities.join(self.joined)
        capacities.note(notes)

    def _join(self, first: str, second: str, capacity_bps: int) -> None:
        self.joined[first][second] = capacity_bps
        self.joined[second][first] = capacity_bps

    def _unlink(self, first: str, second: str) -> int:
        """Removes a link, and returns its smaller capacity."""
        back_bps = self.joined[second].pop(first)
        return min(self.joined[first].pop(second), back_bps)

    def _remove(self, name: str) -> None:
        # A copy, since `_unlink` removes from it.
        for neighbour in list(self.joined[name]):
            self._unlink(name, neighbour)
        del self.joined[name]
        self._graph.hosts.pop(name, None)
        self._graph.switches.pop(name, None)

    def keep_largest_part(self) -> None:
        """Leaves the connected part with the most hosts, then the most nodes."""
        largest = max(self._parts(), key=self._size, default={})
        lost = [name for name in self.joined if name not in largest]
        for name in lost:
            self._remove(name)
        self._notes.leave_out(
            lost, "nodes that no links join to the largest part"
        )

    def _parts(self) -> Iterator[dict[str, int]]:
        """Yields each connected part; its nodes are the keys."""
        seen: set[str] = set()
        for name in self.joined:
            if name not in seen:
                part = distances(self.joined, [name])
                seen.update(part)
                yield part

    def _size(self, part: dict[str, int]) -> tuple[int, int]:
        hosts = self._graph.hosts.keys() & part.keys()
        return len(hosts), len(part)

    def place_hosts(self) -> None:
        """Gives each host exactly one link, to a switch, and adds servers to a
        graph without hosts.
        """
        why = "the file has no hosts"
        if self._graph.hosts:
            why = "all hosts have several links"
        self._make_forwarding_hosts_switches()
        self._separate_neighbouring_hosts()
        if not self._graph.hosts:
            self._add_servers(why)

    def _separate_neighbouring_hosts(self) -> None:
        """Puts a switch on each link between two hosts."""
        hosts = self._graph.hosts
        for first in list(hosts):
            for second in list(self.joined[first]):
                if second not in hosts:
                    continue
                capacity_bps = self._unlink(first, second)
                # A reservation's path leads through switches.
                between = self._names.of(f"{first}-{second}")
                self._graph.switches[between] = None
                self.joined[between] = {}
                self._join(first, between, capacity_bps)
                self._join(second, between, capacity_bps)
                self._notes.taken.append(
                    f"a switch between the hosts {first} and {second}"
                )

    def _make_forwarding_hosts_switches(self) -> None:
        """Makes hosts with several links switches, since they forward packets."""
        several = []
        for name in list(self._graph.hosts):
            if len(self.joined[name]) > 1:
                several.append(name)
                del self._graph.hosts[name]
                self._graph.switches[name] = None
        if several:
            self._notes.taken.append(
                f"hosts with several links as switches: {_first(several)}"
            )

    def _add_servers(self, why: str) -> None:
        """Gives each switch a server, as fast as its fastest link.

        ``why``: the reason that the user is told.
        """
        graph = self._graph
        wanted = graph.switches.keys() - graph.without_server
        for switch in list(graph.switches):
            if switch in wanted or not wanted:
                server = self._names.of(f"{switch}-host")
                graph.hosts[server] = graph.slots_of_added
                # So fast that the file's own links stay the bottleneck.
                fastest_bps = max(self.joined[switch].values())
                self.joined[server] = {}
                self._join(server, switch, fastest_bps)
        self._notes.choices.append(
            f"a server of {graph.slots_of_added} slots at each node: {why};"
            " its link is as fast as the node's fastest"
        )

    def drop_dead_ends(self) -> None:
        """Drops switches that lead to no host."""
        dropped = []
        to_visit = list(self._graph.switches)
        # The list grows in the loop: behind a dead end may be another one.
        for name in to_visit:
            if self._is_dead_end(name):
                to_visit.extend(self.joined[name])
                self._remove(name)
                dropped.append(name)
        self._notes.leave_out(dropped, "switches that lead to no host")

    def _is_dead_end(self, name: str) -> bool:
        if name not in self._graph.switches or len(self.joined[name]) > 1:
            return False
        return self._graph.hosts.keys().isdisjoint(self.joined[name])

    # -- trees

    def keep_spanning_tree(self) -> None:
        """Leaves the spanning tree of the largest capacities; among equal
        capacities, links near the middle.

        It keeps the widest path between any two nodes (Kruskal's algorithm).
        """
        from scipy.cluster.hierarchy import DisjointSet

        trees = DisjointSet(self.joined)
        # Hosts have one link each: every cycle is among switches.
        links = self._links_by_width()
        for first, second in links:
            # Both ends are joined already: by links that are no narrower.
            if not trees.merge(first, second):
                capacity = format_bandwidth(self._unlink(first, second))
                self._left_out.append(f"{first} - {second} ({capacity})")
        self._notes.leave_out(
            self._left_out,
            f"{len(self._left_out):,} of {number_of(len(links), 'link')} between switches,"
            " outside the spanning tree of the largest capacities (bandwidth"
            " is reserved on trees)",
        )

    def _links_by_width(self) -> list[Ends]:
        """Links between switches, the widest and then the innermost first."""
        depth = distances(self.joined, [_middle(self.joined)])
        links = []
        for first, second in self._links():
            if {first, second} <= self._graph.switches.keys():
                hops = depth[first] + depth[second]
                # A reservation takes as much of both directions.
                width_bps = min(
                    self.joined[first][second], self.joined[second][first]
                )
                links.append((-width_bps, hops, first, second))
        links.sort()
        return [(first, second) for _, _, first, second in links]

    def _links(self) -> Iterator[Ends]:
        """Each link once, from the end that came first."""
        order = {name: number for number, name in enumerate(self.joined)}
        for first, neighbours in self.joined.items():
            for second in neighbours:
                if order[first] < order[second]:
                    yield first, second

    def network(self) -> Network:
        """The network. Raises TopologyError where it is no multi-rooted tree."""
        centre = from_mininet(self._record())
        servers = {}
        for name in centre.names[: centre.n_servers]:
            servers[name] = self._graph.hosts[name]
        return Network(
            servers=servers,
            switches=centre.names[centre.n_servers :],
            links=tuple(self._links_of(centre)),
            roots=tuple(centre.names[tree.root] for tree in centre.trees),
            left_out=tuple(self._left_out),
            speed_flops=self._graph.speed_flops,
        )

    def _record(self) -> MininetRecord:
        record = MininetRecord()
        for name in self.joined:
            record.nodes[name] = {"isSwitch": name in self._graph.switches}
        for first, second in self._links():
            options = {
                "params1": self._interface(first, second),
                "params2": self._interface(second, first),
            }
            record.links.append((first, second, options))
        return record

    def _interface(self, end: str, other: str) -> dict[str, float]:
        return {"bw": self.joined[end][other] / MBIT_BPS}

    def _links_of(self, centre: DataCentre) -> Iterator[NetworkLink]:
        delay_s = {}
        for edge in self._graph.edges:
            # Parallel links have the delay of the last one.
            delay_s[frozenset((edge.first, edge.second))] = edge.delay_s
        lowers = centre.link_lower.tolist()
        uppers = centre.link_upper.tolist()
        for lower_node, upper_node in zip(lowers, uppers, strict=True):
            lower = centre.names[lower_node]
            upper = centre.names[upper_node]
            yield NetworkLink(
                lower=lower,
                upper=upper,
                up_bps=self.joined[lower][upper],
                down_bps=self.joined[upper][lower],
                delay_s=delay_s.get(frozenset((lower, upper)), 0.0),
            )


def _middle(joined: Adjacency) -> str:
    """A node in the middle of a longest shortest path, or near it."""
    # The farthest node from any node, and the farthest from that: exact in a
    # tree, and near enough for an order of links.
    start = next(iter(joined))
    end = list(distances(joined, [start]))[-1]
    from_end = distances(joined, [end])
    other = list(from_end)[-1]
    from_other = distances(joined, [other])
    return min(
        joined, key=lambda name: max(from_end[name], from_other[name])
    )
