"""Mininet's ``Topo``: read as a data centre, and written from a network plan.

The live backend does not build the written one: Mininet would start a process
for each step. Writing needs Mininet, reading only an object like its ``Topo``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from ipaddress import IPv4Interface
from itertools import chain
from numbers import Real
from typing import Any

from topologies.custom import custom, distances
from topologies.datacentre import (
    MAX_LINK_BPS,
    PLAIN,
    DataCentre,
    Directions,
    HostNames,
    LinkQuality,
    Problems,
    TopologyError,
    at_least,
    capacity_of,
)
from topologies.link_quality import MININET_KEYS, count_text, quality_of
from topologies.mininet_record import MininetRecord, Options

MBIT_BPS = 1_000_000
# Mininet's TCLink leaves a link above this unlimited, with a warning.
MININET_MAX_BPS = 1000 * MBIT_BPS


def mininet_topo(plan: Any, *, limits: bool = True) -> Any:
    """A plan as ``mininet.topo.Topo``, for ``Mininet(topo=...)`` or
    ``mn --custom``.

    ``plan``: of :func:`testbed.plan.network_plan.network_plan`. All its bridges
    become switches, servers' bridges too, and its VM slots hosts. ``limits``:
    links have their capacity, for Mininet's ``link=TCLink``, up to its limit of
    1 Gbit/s. Trees work with switches in standalone mode; a fat-tree has loops
    and needs a controller. Servers' bridges have the option ``slots``, links
    without a limit ``capacity_mbit``: Mininet ignores both, and
    :func:`from_mininet` reads them. Raises ImportError without Mininet.
    """
    from mininet.topo import Topo

    topo = Topo()
    for bridge in plan.bridges:
        slots = plan.slots_of_server.get(bridge.node, ())
        of_server = {"slots": len(slots)} if bridge.role == "server" else {}
        topo.addSwitch(bridge.name, dpid=f"{bridge.dpid:016x}", **of_server)
    for slot in plan.slots:
        topo.addHost(slot.netns, mac=slot.mac)
        port = slot.port
        # Flow rules have the plan's number; Mininet's default is the order of
        # the calls.
        topo.addLink(
            slot.netns, port.bridge, port2=port.number, intfName2=port.name
        )
    for link in plan.links:
        topo.addLink(
            link.lower.bridge,
            link.upper.bridge,
            port1=link.lower.number,
            port2=link.upper.number,
            intfName1=link.lower.name,
            intfName2=link.upper.name,
            **_limits_of(link, limits=limits),
        )
    return topo


def _limits_of(link: Any, *, limits: bool) -> dict[str, Any]:
    """Options of a link, of each end where they differ."""
    # Mininet limits an interface's sending: the lower end's is upward.
    params1 = _interface(link.up_bps, limits=limits)
    params2 = _interface(link.down_bps, limits=limits)
    if params1 == params2:
        return params1
    return {"params1": params1, "params2": params2}


def _interface(sends_bps: int, *, limits: bool) -> Options:
    """Mininet's parameters of an interface, by the rate at which it sends."""
    mbit = sends_bps / MBIT_BPS
    if limits and sends_bps <= MININET_MAX_BPS:
        return {"bw": mbit, "use_htb": True}
    return {"capacity_mbit": mbit}


# ------------------------------------------------------------------ reading

# Options that are read, that name a network's parts, or that choose a kind of
# shaping, which the testbed does itself.
LINK_OPTIONS = frozenset(
    {*MININET_KEYS, "bw", "capacity_mbit", "params1", "params2"}
    | {"cls", "node1", "node2", "port1", "port2", "key", "link", "fast"}
    | {"intf", "intfName1", "intfName2"}
    | {"use_htb", "use_hfsc", "use_tbf", "r2q", "speedup"}
    | {"txo", "rxo", "gro"}
)
NODE_OPTIONS = frozenset(
    ("isSwitch", "slots", "ip", "mac", "cls", "protocols", "prefixLen")
)
Joined = dict[str, dict[str, int]]
"""Neighbours of every node, with the capacity toward each in bit/s."""


Qualities = dict[tuple[str, str], LinkQuality]
"""Quality from a node to a neighbour, of links that have one."""
NEEDS_BW = (
    "a link needs bw, a number of Mbit/s above 0 and up to 10**9:"
    " addLink(..., bw=100), or topology: {default_bw: 100 Mbit/s} for all"
    " without"
)


def from_mininet(
    topo: Any, slots_per_server: int = 1, default_bps: int | None = None
) -> DataCentre:
    """The data centre of a ``mininet.topo.Topo`` or its record.

    - Nodes keep their names, and servers their order.
    - A host is a server with one link, its uplink. It has the VM slots of
      ``addHost(..., slots=N)``, by default ``slots_per_server``.
    - A switch with ``slots`` is a server's bridge, as :func:`mininet_topo`
      writes it: its hosts are that server's VMs.
    - A link has the capacity ``bw`` (Mbit/s), by default ``default_bps``
      (bit/s), and perhaps delay, jitter, loss and queue. ``params1`` limits
      what its first end sends, ``params2`` its second.

    The links must make a tree or a multi-rooted tree. Its roots are the
    switches farthest from their nearest host, which is right if all hosts are
    equally deep. A tree has one root: of several such switches, that nearest to
    the farthest host. Raises TopologyError with all problems of nodes and
    links, or, if there are none, with those of the structure.
    """
    record = topo
    if not isinstance(topo, MininetRecord):
        record = MininetRecord.of_topo(topo)
    problems = Problems()
    at_least(
        problems,
        ("slots_per_server",),
        slots_per_server,
        "slots per server",
    )
    slots, joined = _wiring(problems, record, slots_per_server, default_bps)
    qualities = _qualities(problems, record)
    # A host without a link, which is reported already, would be unreached too.
    if not problems:
        reached = distances(joined, list(joined)[:1])
        unreached = [name for name in joined if name not in reached]
        _report(
            problems,
            "links",
            unreached,
            f"disconnected: nothing leads to {next(iter(joined))}",
        )
    content = {}
    if not problems:
        content = _content(problems, slots, joined, qualities)
    hosts = _hosts(problems, record, slots) if not problems else ()
    if problems:
        raise TopologyError(problems)
    return replace(custom(content), hosts=hosts)


def _hosts(
    problems: Problems, record: MininetRecord, slots: Mapping[str, int]
) -> tuple[HostNames, ...]:
    """Names and addresses of VM slots, by server.

    The slot of a host with a single one has the host's name. Several slots are
    NAME-0, NAME-1, …, and the first has the host's addresses.
    """
    hosts: list[HostNames] = []
    for server, count in slots.items():
        # The first slot of a host with several has the host's addresses.
        default: Options = {}
        if not record.is_switch(server):
            default = record.nodes[server]
        for name in _slot_names(record, server, count):
            options = record.nodes.get(name, default)
            hosts.append(_host(problems, name, options))
            default = {}
    counts = Counter(host.name for host in hosts)
    repeated = sorted(name for name, n in counts.items() if n > 1)
    _report(problems, "servers", repeated, "the name of several VM slots")
    return _without_repeated_addresses(hosts)


def _slot_names(
    record: MininetRecord, server: str, count: int
) -> list[str]:
    """Names of a server's slots: those of hosts, then numbered ones."""
    names = []
    if record.is_switch(server):
        # A server's bridge: its hosts are the server's VMs.
        names = _hosts_at(record, server)[:count]
    elif count == 1:
        names = [server]
    names += [f"{server}-{i}" for i in range(len(names), count)]
    return names


def _without_repeated_addresses(
    hosts: Iterable[HostNames],
) -> tuple[HostNames, ...]:
    """The hosts without addresses that an earlier host has."""
    taken: set[str] = set()
    kept = []
    for host in hosts:
        address = host.address
        mac = host.mac
        if address.partition("/")[0] in taken:
            address = ""
        if mac in taken:
            mac = ""
        taken |= {address.partition("/")[0], mac} - {""}
        kept.append(HostNames(host.name, address, mac))
    return tuple(kept)


def _hosts_at(record: MininetRecord, switch: str) -> list[str]:
    """Names of hosts with a link to a switch."""
    names = []
    for end, other, _ in record.links:
        for name, at in ((end, other), (other, end)):
            if at == switch and not record.is_switch(name):
                names.append(name)
    return names


def _host(problems: Problems, name: str, options: Options) -> HostNames:
    """A host with the addresses in its options; unreadable ones are noted."""
    address = ""
    mac = ""
    try:
        address = _address(options.get("ip"))
        mac = _mac(options.get("mac"))
    except ValueError as error:
        problems.report(f"{name}: {error}", "servers")
    return HostNames(name, address, mac)


def _address(option: Any) -> str:
    """A host's ``ip`` with its prefix length, by default 8 as Mininet's.

    Raises ValueError.
    """
    if option in (None, "", "0.0.0.0"):  # noqa: S104 - Mininet's for none
        return ""
    text = str(option)
    # Mininet's ipBase is 10.0.0.0/8.
    if "/" not in text:
        text += "/8"
    address = IPv4Interface(text)
    if (
        address.is_multicast
        or address.is_loopback
        or address.is_unspecified
    ):
        raise ValueError(f"ip {option} is no address of a host")
    return str(address)


def _mac(option: Any) -> str:
    """A host's ``mac``, six pairs of hexadecimal digits. Raises ValueError."""
    if not option:
        return ""
    parts = str(option).replace("-", ":").split(":")
    values = [int(part, 16) for part in parts]
    six_bytes = len(values) == 6 and all(0 <= part < 256 for part in values)
    # An odd first byte is a group's address.
    if not six_bytes or values[0] & 1 or not any(values):
        raise ValueError(f"mac {option} is no address of a host")
    return bytes(values).hex(":")


def notes_of(
    record: MininetRecord,
    hosts: Iterable[HostNames] = (),
    default_bps: int | None = None,
) -> tuple[str, ...]:
    """Sentences about differences between a data centre and its record.

    Parts left out, addresses not kept, links with the default capacity.
    ``hosts``: the data centre's.
    """
    notes = [*record.left_out, *_lost_addresses(record, hosts)]
    by_default = 0
    vms, _ = _servers(record, slots_per_server=1)
    for end, other, options in record.links:
        # A VM's link to its server's bridge has no capacity.
        is_vms = not vms.isdisjoint((end, other))
        if not is_vms and None in _mbit(options):
            by_default += 1
    if by_default and default_bps is not None:
        mbit = default_bps / MBIT_BPS
        notes.append(
            f"{count_text(by_default)} without bw: {mbit:g} Mbit/s, by default_bw"
        )
    of_links = []
    for _, _, options in record.links:
        names = set(_set_in(options))
        for end in ("params1", "params2"):
            names.update(_set_in(options.get(end) or {}))
        of_links.append(names)
    notes += _left_out("links", of_links, LINK_OPTIONS)
    of_nodes = map(_set_in, record.nodes.values())
    notes += _left_out("nodes", of_nodes, NODE_OPTIONS)
    return tuple(notes)


def _lost_addresses(
    record: MininetRecord, hosts: Iterable[HostNames]
) -> Iterator[str]:
    """Addresses that hosts were given and do not have."""
    for host in hosts:
        options = record.nodes.get(host.name, {})
        addresses = (
            (_address(options.get("ip")), host.address),
            (_mac(options.get("mac")), host.mac),
        )
        for wanted, kept in addresses:
            if wanted and not kept:
                yield (
                    f"{host.name}: {wanted} is another host's already; it has one"
                    " of the testbed's"
                )


def _set_in(options: Options) -> Iterator[str]:
    """Names of the options that have an effect."""
    return (name for name, value in options.items() if value)


def _left_out(
    nouns: str, sets: Iterable[Iterable[str]], known: frozenset[str]
) -> list[str]:
    """A sentence about options without effect; empty without any."""
    counts = Counter(chain.from_iterable(sets))
    parts = []
    for name in sorted(counts.keys() - known):
        parts.append(f"{name} ({counts[name]:,})")
    if not parts:
        return []
    return [f"left out, options of {nouns}: {', '.join(parts)}"]


def _end_options(options: Options, end: str) -> Options:
    """Options of one end of a link.

    An option for both ends overrides that of one end, as in Mininet.
    """
    of_end = options.get(end) or {}
    return {
        name: options.get(name, of_end.get(name)) for name in MININET_KEYS
    }


def _qualities(problems: Problems, record: MininetRecord) -> Qualities:
    """Qualities of links that have one; unreadable options are noted."""
    qualities: Qualities = {}
    for end, other, options in record.links:
        ways = {
            "params1": (end, other),
            "params2": (other, end),
        }
        for of_end, way in ways.items():
            try:
                quality = quality_of(_end_options(options, of_end))
            except ValueError as error:
                problems.report(f"{end}<->{other}: {error}", "links")
                break
            if quality != PLAIN:
                qualities[way] = quality
    return qualities


def _mbit(options: Options) -> tuple[Any, Any]:
    """Values of ``bw`` of a link, from its first end and from its second.

    An option for both ends overrides that of one end, as in Mininet.
    """
    both = _bw(options)
    if both is not None:
        return both, both
    first = options.get("params1") or {}
    second = options.get("params2") or {}
    return _bw(first), _bw(second)


def _bw(options: Options) -> Any:
    return options.get("bw", options.get("capacity_mbit"))


MOST_NAMED = 5
"""Nodes or links that a message names."""


def _report(
    problems: Problems, key: str, names: list[str], message: str
) -> None:
    """Reports one problem of all named nodes or links, if any."""
    if names:
        named = ", ".join(names[:MOST_NAMED])
        if len(names) > MOST_NAMED:
            named += f" and {len(names) - MOST_NAMED:,} more"
        problems.report(f"{named}: {message}", key)


def _wiring(
    problems: Problems,
    record: MininetRecord,
    slots_per_server: int,
    default_bps: int | None,
) -> tuple[dict[str, int], Joined]:
    """Slots of every server, and all links; problems are noted."""
    vms, slots = _servers(record, slots_per_server)
    for name, count in slots.items():
        if "slots" in record.nodes[name]:
            at_least(
                problems,
                ("servers",),
                count,
                f"the slot count of {name}",
            )
    if not slots:
        problems.report("the Topo has no hosts", "servers")
    joined: Joined = {name: {} for name in record.nodes if name not in vms}
    links = [link for link in record.links if vms.isdisjoint(link[:2])]
    _join(problems, joined, links, default_bps)
    wrong = [
        f"{name} (to {', '.join(joined[name]) or 'nothing'})"
        for name in slots
        # With a second uplink a tenant's path is ambiguous, and a server below
        # a server has no switch for reservations.
        if len(joined[name]) != 1
        or not slots.keys().isdisjoint(joined[name])
    ]
    _report(problems, "servers", wrong, "a host has one link, to a switch")
    return slots, joined


def _servers(
    record: MininetRecord, slots_per_server: int
) -> tuple[set[str], dict[str, int]]:
    """Hosts that are VMs of a server's bridge, and the slots of all servers.

    A host with a link to another switch, too, is a server of its own.
    """
    ends: list[tuple[str, str]] = []
    for first, second, _ in record.links:
        ends.append((first, second))
        ends.append((second, first))
    bridges = {
        name
        for name, options in record.nodes.items()
        if record.is_switch(name) and "slots" in options
    }
    vms = {
        name
        for name, other in ends
        if other in bridges and not record.is_switch(name)
    }
    vms -= {name for name, other in ends if other not in bridges}
    slots = {}
    for name, options in record.nodes.items():
        if name in bridges or not (name in vms or record.is_switch(name)):
            slots[name] = options.get("slots", slots_per_server)
    return vms, slots


def _join(
    problems: Problems,
    joined: Joined,
    links: Iterable[tuple[str, str, Options]],
    default_bps: int | None,
) -> None:
    """Adds links to ``joined``; unlimited and parallel ones are noted."""
    unlimited: list[str] = []
    parallel: list[str] = []
    for a, b, options in links:
        name = f"{a}<->{b}"
        mbit = _mbit(options)
        forth_bps, back_bps = (
            _capacity(value, default_bps) for value in mbit
        )
        if forth_bps is None or back_bps is None:
            wrong = mbit[0 if forth_bps is None else 1]
            unlimited.append(
                name if wrong is None else f"{name} (bw={wrong!r})"
            )
        if b in joined[a]:
            parallel.append(name)
        # 1 bit/s replaces an invalid capacity, so that other problems are
        # found.
        joined[a][b] = forth_bps or 1
        joined[b][a] = back_bps or 1
    _report(problems, "links", unlimited, NEEDS_BW)
    _report(
        problems,
        "links",
        parallel,
        "a second link; add its bw to that of the first",
    )


def _capacity(mbit: Any, default_bps: int | None) -> int | None:
    """Bit/s of a ``bw`` in Mbit/s, or the default; None if it is invalid."""
    if mbit is None:
        return default_bps
    if not isinstance(mbit, Real):
        return None
    capacity_bps = float(mbit) * MBIT_BPS
    # Less would be rounded to 0 bit/s.
    if not 0.5 < capacity_bps <= MAX_LINK_BPS:
        return None
    return round(capacity_bps)


def _roots(slots: Mapping[str, int], joined: Joined) -> list[str]:
    """The switches farthest from their nearest host.

    In a tree only one of them: that with the smallest distance to its farthest
    host.
    """
    to_host = distances(joined, slots)
    height = max(to_host.values())
    tops = [name for name in joined if to_host[name] == height]
    # A connected graph is a tree if it has one link less than nodes; each link
    # is counted at both ends.
    n_ends = sum(map(len, joined.values()))
    if n_ends != 2 * (len(joined) - 1):
        return tops
    # In a tree the host farthest from any node is an end of a longest path
    # between hosts, and a node's farthest host is an end of that path.
    from_top = distances(joined, tops[:1])
    end = max(slots, key=from_top.__getitem__)
    from_end = distances(joined, [end])
    other_end = max(slots, key=from_end.__getitem__)
    from_other = distances(joined, [other_end])
    return [
        min(tops, key=lambda name: max(from_end[name], from_other[name]))
    ]


def _content(
    problems: Problems,
    slots: Mapping[str, int],
    joined: Joined,
    qualities: Qualities,
) -> dict[str, Any]:
    """The network as content for :func:`topologies.custom.custom`.

    Links lead upward: to the end that is nearer to a root.
    """
    roots = _roots(slots, joined)
    depth = distances(joined, roots)
    # From below: the farthest from a root first, as `custom` numbers them.
    switches = sorted(
        (n for n in joined if n not in slots), key=lambda name: -depth[name]
    )
    number = {name: i for i, name in enumerate([*slots, *switches])}
    links = _links_upward(problems, joined, number, depth)
    links.sort(key=lambda ends: (number[ends[0]], number[ends[1]]))
    return {
        "servers": [
            {"name": name, "slots": count} for name, count in slots.items()
        ],
        "switches": switches,
        "links": [
            {
                "lower": a,
                "upper": b,
                "capacity": capacity_of(joined[a][b], joined[b][a]),
                "quality": _directions(qualities, a, b),
            }
            for a, b in links
        ],
        "roots": roots,
    }


def _links_upward(
    problems: Problems,
    joined: Joined,
    number: Mapping[str, int],
    depth: Mapping[str, int],
) -> list[tuple[str, str]]:
    """Links from their lower ends; those within a level are noted."""
    links: list[tuple[str, str]] = []
    level = []
    for name in number:
        for other in joined[name]:
            # Each link is visited at both ends. The lower end keeps it; within
            # a level one end reports it, also where it joins a node to itself.
            if depth[name] >= depth[other]:
                links.append((name, other))
            if (
                depth[name] == depth[other]
                and number[name] <= number[other]
            ):
                level.append(f"{name}<->{other}")
    loop = "joins switches of one level: a loop, and no multi-rooted tree"
    _report(
        problems,
        "links",
        level,
        f"{loop}; leave it out, or write kind: custom with roots",
    )
    return links


def _directions(qualities: Qualities, lower: str, upper: str) -> Directions:
    return (
        qualities.get((lower, upper), PLAIN),
        qualities.get((upper, lower), PLAIN),
    )
