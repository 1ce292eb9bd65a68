"""Mininet's ``Topo``: read as a data centre, and written from a network plan.

The live backend does not use the written ``Topo``, as Mininet would start a
process for each step. Only writing needs Mininet to be installed.
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
    HostNames,
    LinkQuality,
    Problems,
    QualityPair,
    TopologyError,
    capacity_of,
    check_at_least,
)
from topologies.link_quality import (
    MININET_KEYS,
    count_text,
    is_set,
    mininet_options,
    quality_of,
)
from topologies.mininet_record import MininetRecord, Options, named

MBIT_BPS = 1_000_000
# Mininet's TCLink leaves a link above this unlimited, with a warning.
MININET_MAX_BPS = 1000 * MBIT_BPS


def mininet_topo(plan: Any, *, limits: bool = True) -> Any:
    """A plan as ``mininet.topo.Topo``, for ``Mininet(topo=...)`` or
    ``mn --custom``.

    - ``plan``: a result of :func:`testbed.plan.network_plan.network_plan`. Each
      of its bridges, of switches and of servers, becomes a switch; each VM slot
      becomes a host.
    - ``limits``: Mininet's ``TCLink`` limits links to their capacities. Links
      above 1 Gbit/s, which it cannot limit, stay unlimited.

    Delay, jitter, loss and queues of links are options of ``TCLink``, too. A
    server's bridge has the option ``slots``, an unlimited link the option
    ``capacity_mbit``. Mininet ignores both, and :func:`from_mininet` reads
    them. Trees work with switches in standalone mode; a fat-tree has loops and
    needs a controller. Raises ImportError without Mininet.
    """
    from mininet.topo import Topo

    topo = Topo()
    for bridge in plan.bridges:
        slots = plan.slots_of_server.get(bridge.node, ())
        options = {"slots": len(slots)} if bridge.role == "server" else {}
        topo.addSwitch(bridge.name, dpid=f"{bridge.dpid:016x}", **options)
    for slot in plan.slots:
        topo.addHost(slot.netns, mac=slot.mac)
        port = slot.port
        # Flow rules refer to the plan's port numbers. Mininet would number the
        # ports in the order of the calls.
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
            **_link_options(plan, link, limits=limits),
        )
    return topo


def _link_options(plan: Any, link: Any, *, limits: bool) -> dict[str, Any]:
    """Options of ``addLink`` for a link's capacities and qualities.

    They are for both ends if these are equal, else for each end.
    """
    # Mininet limits what an interface sends. The lower end sends upward.
    params1 = _interface_options(link.up_bps, limits=limits)
    params1 |= mininet_options(plan.quality_of_port[link.lower.name])
    params2 = _interface_options(link.down_bps, limits=limits)
    params2 |= mininet_options(plan.quality_of_port[link.upper.name])
    if params1 == params2:
        return params1
    return {"params1": params1, "params2": params2}


def _interface_options(sends_bps: int, *, limits: bool) -> Options:
    """Mininet's options of an interface that sends at most ``sends_bps``."""
    mbit = sends_bps / MBIT_BPS
    if limits and sends_bps <= MININET_MAX_BPS:
        return {"bw": mbit, "use_htb": True}
    return {"capacity_mbit": mbit}


# ------------------------------------------------------------------ reading

# Options that no note mentions as left out. They are read, they name parts of a
# network, or they choose a kind of shaping, which the testbed does itself.
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
MOST_HOSTS = 1_000_000
Adjacency = dict[str, dict[str, int]]
"""Neighbours of every node, with the capacity toward each in bit/s."""


Qualities = dict[tuple[str, str], LinkQuality]
"""Quality of the link from a node to a neighbour, unless it is plain."""
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
      writes it. The hosts at the bridge are the server's VMs.
    - A link has the capacity ``bw`` (Mbit/s), by default ``default_bps``
      (bit/s), and perhaps delay, jitter, loss and queue. ``params1`` has the
      options of what the first end sends, ``params2`` of what the second sends.

    The links must make a tree or a multi-rooted tree. Its roots are the
    switches farthest from their nearest host, which is right if all hosts are
    equally deep. Of a tree only one of these is the root: the one whose
    farthest host is nearest. Raises TopologyError with all problems of nodes
    and links, or, if there are none, with all problems of the structure.
    """
    record = topo
    if not isinstance(topo, MininetRecord):
        record = MininetRecord.of_topo(topo)
    problems = Problems()
    check_at_least(
        problems,
        ("slots_per_server",),
        slots_per_server,
        "slots per server",
    )
    slots, adjacency = _wiring(
        problems, record, slots_per_server, default_bps
    )
    qualities = _qualities(problems, record)
    # A host without a link is a problem already, and is not reported again.
    if not problems:
        reached = distances(adjacency, list(adjacency)[:1])
        unreached = [name for name in adjacency if name not in reached]
        _report(
            problems,
            "links",
            unreached,
            f"disconnected: nothing leads to {next(iter(adjacency))}",
        )
    content = {}
    if not problems:
        content = _content(problems, slots, adjacency, qualities)
    hosts = _hosts(problems, record, slots) if not problems else ()
    if problems:
        raise TopologyError(problems)
    return replace(custom(content), hosts=hosts)


def _hosts(
    problems: Problems, record: MininetRecord, slots: Mapping[str, int]
) -> tuple[HostNames, ...]:
    """Names and addresses of VM slots, by server.

    The slot of a host with a single slot has the host's name. Several slots are
    NAME-0, NAME-1, …, and the first has the host's addresses. More than
    :data:`MOST_HOSTS` have no names.
    """
    hosts: list[HostNames] = []
    # A short file can ask for so many that their names take all memory.
    if sum(slots.values()) > MOST_HOSTS:
        return ()
    for server, count in slots.items():
        # Options of a slot that is no node of the record.
        slot_options: Options = {}
        if not record.is_switch(server):
            slot_options = record.nodes[server]
        for name in _slot_names(record, server, count):
            options = record.nodes.get(name, slot_options)
            hosts.append(_host(problems, name, options))
            # Only the first slot has the host's addresses.
            slot_options = {}
    counts = Counter(host.name for host in hosts)
    repeated = sorted(name for name, n in counts.items() if n > 1)
    _report(problems, "servers", repeated, "the name of several VM slots")
    return _without_repeated_addresses(hosts)


def _slot_names(
    record: MininetRecord, server: str, count: int
) -> list[str]:
    """Names of a server's slots: its hosts' names, then numbered names."""
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
    # The empty string is taken from the start: it stands for no address.
    taken = {""}
    unique = []
    for host in hosts:
        address = host.address
        mac = host.mac
        ip = address.partition("/")[0]
        if ip in taken:
            address = ""
        if mac in taken:
            mac = ""
        taken |= {ip, mac}
        unique.append(HostNames(host.name, address, mac))
    return tuple(unique)


def _hosts_at(record: MininetRecord, switch: str) -> list[str]:
    """Names of hosts with a link to a switch."""
    names = []
    for end, other, _ in record.links:
        for name, at in ((end, other), (other, end)):
            if at == switch and not record.is_switch(name):
                names.append(name)
    return names


def _host(problems: Problems, name: str, options: Options) -> HostNames:
    """A host with the addresses in its options; notes unreadable addresses."""
    address = ""
    mac = ""
    try:
        address = _address(options.get("ip"))
        mac = _mac(options.get("mac"))
    except ValueError as error:
        problems.report(f"{name}: {error}", "servers")
    return HostNames(name, address, mac)


def _address(option: Any) -> str:
    """A host's ``ip`` with its prefix length; empty without an ``ip``.

    Raises ValueError.
    """
    if option in (None, "", "0.0.0.0"):  # noqa: S104 - Mininet's for none
        return ""
    text = str(option)
    # The prefix length of Mininet's ipBase, 10.0.0.0/8.
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
    """A host's ``mac`` as ``00:11:22:33:44:55``; empty without a ``mac``.

    Raises ValueError.
    """
    if not option:
        return ""
    parts = str(option).replace("-", ":").split(":")
    values = [int(part, 16) for part in parts]
    six_bytes = len(values) == 6 and all(0 <= part < 256 for part in values)
    # The lowest bit of the first byte marks a multicast address.
    if not six_bytes or values[0] & 1 or not any(values):
        raise ValueError(f"mac {option} is no address of a host")
    return bytes(values).hex(":")


def notes_of(
    record: MininetRecord,
    hosts: Iterable[HostNames] = (),
    default_bps: int | None = None,
) -> tuple[str, ...]:
    """Sentences about differences between a data centre and its record.

    They are about parts that are left out, addresses that are not kept, and
    links with the default capacity. ``hosts``: those of the data centre.
    """
    notes = [*record.left_out, *_lost_addresses(record, hosts)]
    n_by_default = 0
    vms, _ = _servers(record, slots_per_server=1)
    of_vms: dict[str, Options] = {}
    for end, other, options in record.links:
        # A VM's link to its server's bridge has no capacity.
        if not vms.isdisjoint((end, other)):
            of_vms[f"{end}<->{other}"] = options
        elif None in _mbit(options):
            n_by_default += 1
    notes += _left_out_of_vms(of_vms)
    if n_by_default and default_bps is not None:
        mbit = default_bps / MBIT_BPS
        notes.append(
            f"{count_text(n_by_default)} without bw: {mbit:g} Mbit/s, by default_bw"
        )
    link_options = []
    for _, _, options in record.links:
        names = set(_options_in_effect(options))
        for end in ("params1", "params2"):
            names.update(_options_in_effect(options.get(end) or {}))
        link_options.append(names)
    notes += _left_out("links", link_options, LINK_OPTIONS)
    node_options = map(_options_in_effect, record.nodes.values())
    notes += _left_out("nodes", node_options, NODE_OPTIONS)
    return tuple(notes)


def _lost_addresses(
    record: MininetRecord, hosts: Iterable[HostNames]
) -> Iterator[str]:
    """Sentences about addresses in the record that its hosts do not have."""
    for host in hosts:
        options = record.nodes.get(host.name, {})
        addresses = (
            (_address(options.get("ip")), host.address),
            (_mac(options.get("mac")), host.mac),
        )
        for recorded, kept in addresses:
            if recorded and not kept:
                yield (
                    f"{host.name}: {recorded} is another host's already; it has one"
                    " of the testbed's"
                )


def _options_in_effect(options: Options) -> Iterator[str]:
    """Names of options whose value is not None, False, 0 or empty."""
    return (name for name, value in options.items() if value)


def _left_out(
    nouns: str, options: Iterable[Iterable[str]], known: frozenset[str]
) -> list[str]:
    """A sentence that counts unknown options; empty if all are known.

    ``options``: names of the options of each link or node.
    """
    counts = Counter(chain.from_iterable(options))
    parts = []
    for name in sorted(counts.keys() - known):
        parts.append(f"{name} ({counts[name]:,})")
    if not parts:
        return []
    return [f"left out, options of {nouns}: {', '.join(parts)}"]


def _left_out_of_vms(links: Mapping[str, Options]) -> list[str]:
    """A sentence about what links between VMs and their server's bridge ask
    for, by their names; empty if they ask for nothing.
    """
    names = []
    asked: set[str] = set()
    for name, options in links.items():
        of_link = set()
        for params in ("params1", "params2"):
            of_end = _end_options(options, params)
            of_link |= {key for key in MININET_KEYS if is_set(of_end, key)}
        if any(_mbit(options)):
            of_link.add("bw")
        if of_link:
            names.append(name)
            asked |= of_link
    if not names:
        return []
    what = f"{', '.join(sorted(asked))} of {named(names)}"
    why = "a VM has no link of its own at its server's switch"
    return [
        f"left out, {what}: {why}; give them to the link above that switch"
    ]


def _end_options(options: Options, end: str) -> Options:
    """Options of one end of a link.

    An option for both ends overrides that of one end, as in Mininet.
    """
    of_end = options.get(end) or {}
    return {
        name: options.get(name, of_end.get(name)) for name in MININET_KEYS
    }


def _qualities(problems: Problems, record: MininetRecord) -> Qualities:
    """Qualities of links that are not plain; notes unreadable options."""
    qualities: Qualities = {}
    for end, other, options in record.links:
        # Options of an end are those of the direction in which it sends.
        directions = {
            "params1": (end, other),
            "params2": (other, end),
        }
        for params, direction in directions.items():
            try:
                quality = quality_of(_end_options(options, params))
            except ValueError as error:
                problems.report(f"{end}<->{other}: {error}", "links")
                # The other end may share the option: one report is enough.
                break
            if quality != PLAIN:
                qualities[direction] = quality
    return qualities


def _mbit(options: Options) -> tuple[Any, Any]:
    """Values of ``bw`` for what a link's first end sends, and its second.

    An option for both ends overrides that of one end, as in Mininet.
    """
    both = _bw(options)
    if both is not None:
        return both, both
    first = options.get("params1") or {}
    second = options.get("params2") or {}
    return _bw(first), _bw(second)


def _bw(options: Options) -> Any:
    """``bw``, or the capacity of a link that :func:`mininet_topo` leaves
    unlimited.
    """
    return options.get("bw", options.get("capacity_mbit"))


def _report(
    problems: Problems, key: str, names: list[str], message: str
) -> None:
    """Reports a problem that the named nodes or links share, if any do."""
    if names:
        problems.report(f"{named(names)}: {message}", key)


def _wiring(
    problems: Problems,
    record: MininetRecord,
    slots_per_server: int,
    default_bps: int | None,
) -> tuple[dict[str, int], Adjacency]:
    """Slots of every server, and the links of all nodes but VMs.

    Notes problems.
    """
    vms, slots = _servers(record, slots_per_server)
    for name, count in slots.items():
        if "slots" in record.nodes[name]:
            check_at_least(
                problems,
                ("servers",),
                count,
                f"the slot count of {name}",
            )
    if not slots:
        problems.report("the Topo has no hosts", "servers")
    adjacency: Adjacency = {
        name: {} for name in record.nodes if name not in vms
    }
    links = [link for link in record.links if vms.isdisjoint(link[:2])]
    _add_links(problems, adjacency, links, default_bps)
    # With a second uplink a tenant's path is ambiguous, and a server below a
    # server has no switch for reservations.
    wrong = [
        f"{name} (to {', '.join(adjacency[name]) or 'nothing'})"
        for name in slots
        if len(adjacency[name]) != 1
        or not slots.keys().isdisjoint(adjacency[name])
    ]
    _report(problems, "servers", wrong, "a host has one link, to a switch")
    return slots, adjacency


def _servers(
    record: MininetRecord, slots_per_server: int
) -> tuple[set[str], dict[str, int]]:
    """Hosts that are VMs, and the slots of all servers.

    A host with links to servers' bridges alone is a VM. Servers are these
    bridges, and all other hosts.
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


def _add_links(
    problems: Problems,
    adjacency: Adjacency,
    links: Iterable[tuple[str, str, Options]],
    default_bps: int | None,
) -> None:
    """Adds links to ``adjacency``.

    Notes links without a valid capacity, and parallel links.
    """
    without_capacity: list[str] = []
    parallel: list[str] = []
    for a, b, options in links:
        name = f"{a}<->{b}"
        forth_mbit, back_mbit = _mbit(options)
        forth_bps = _capacity(forth_mbit, default_bps)
        back_bps = _capacity(back_mbit, default_bps)
        if forth_bps is None:
            without_capacity.append(_with_bw(name, forth_mbit))
        elif back_bps is None:
            without_capacity.append(_with_bw(name, back_mbit))
        if b in adjacency[a]:
            parallel.append(name)
        # 1 bit/s replaces an invalid capacity, so that other problems are
        # found too.
        adjacency[a][b] = forth_bps or 1
        adjacency[b][a] = back_bps or 1
    _report(problems, "links", without_capacity, NEEDS_BW)
    _report(
        problems,
        "links",
        parallel,
        "a second link; add its bw to that of the first",
    )


def _with_bw(link: str, mbit: Any) -> str:
    """A link's name, with the value of ``bw`` if it has one."""
    return link if mbit is None else f"{link} (bw={mbit!r})"


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


def _roots(slots: Mapping[str, int], adjacency: Adjacency) -> list[str]:
    """The switches farthest from their nearest host.

    Of a tree only one of these: the one whose farthest host is nearest.
    """
    to_host = distances(adjacency, slots)
    height = max(to_host.values())
    tops = [name for name in adjacency if to_host[name] == height]
    # A connected graph is a tree if it has one link less than nodes; each link
    # is counted at both ends.
    n_ends = sum(map(len, adjacency.values()))
    if n_ends != 2 * (len(adjacency) - 1):
        return tops
    # In a tree, a host farthest from any node is an end of a longest path
    # between hosts. Conversely, one of this path's ends is a farthest host of
    # any node, so the distances to both ends are enough.
    from_top = distances(adjacency, tops[:1])
    end = max(slots, key=from_top.__getitem__)
    from_end = distances(adjacency, [end])
    other_end = max(slots, key=from_end.__getitem__)
    from_other = distances(adjacency, [other_end])
    return [
        min(tops, key=lambda name: max(from_end[name], from_other[name]))
    ]


def _content(
    problems: Problems,
    slots: Mapping[str, int],
    adjacency: Adjacency,
    qualities: Qualities,
) -> dict[str, Any]:
    """The network as content for :func:`topologies.custom.custom`.

    A link's upper end is the end that is nearer to a root.
    """
    roots = _roots(slots, adjacency)
    depth = distances(adjacency, roots)
    # The switches farthest from a root come first, as `custom` numbers them.
    switches = sorted(
        (n for n in adjacency if n not in slots),
        key=lambda name: -depth[name],
    )
    number = {name: i for i, name in enumerate([*slots, *switches])}
    links = _links_upward(problems, adjacency, number, depth)
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
                "capacity": capacity_of(adjacency[a][b], adjacency[b][a]),
                "quality": _both_ways(qualities, a, b),
            }
            for a, b in links
        ],
        "roots": roots,
    }


def _links_upward(
    problems: Problems,
    adjacency: Adjacency,
    number: Mapping[str, int],
    depth: Mapping[str, int],
) -> list[tuple[str, str]]:
    """Links as lower end and upper end; notes links within a level."""
    links: list[tuple[str, str]] = []
    within_level = []
    for name in number:
        for other in adjacency[name]:
            # Each link is visited at both ends, and kept at its lower end.
            if depth[name] >= depth[other]:
                links.append((name, other))
            # One end alone reports a link within a level. The ends are equal
            # where a link joins a node to itself.
            if (
                depth[name] == depth[other]
                and number[name] <= number[other]
            ):
                within_level.append(f"{name}<->{other}")
    loop = "joins switches of one level: a loop, and no multi-rooted tree"
    _report(
        problems,
        "links",
        within_level,
        f"{loop}; leave it out, or write kind: custom with roots",
    )
    return links


def _both_ways(qualities: Qualities, lower: str, upper: str) -> QualityPair:
    """Qualities of a link upward and downward."""
    return (
        qualities.get((lower, upper), PLAIN),
        qualities.get((upper, lower), PLAIN),
    )
