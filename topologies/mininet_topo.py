"""Mininet's ``Topo``, both ways: as a data centre, and the live network as one.

Mininet builds such a network port by port, with a process for each step; the
testbed's own live backend builds the same names and numbers in two batches.
Mininet is imported only when the live network's topology is asked for; reading
one needs nothing but its object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from topologies.custom import custom, distances
from topologies.datacentre import (
    MAX_LINK_BPS,
    DataCentre,
    Problems,
    TopologyError,
    at_least,
)

MBIT_BPS = 1_000_000
# Mininet's TCLink shapes no link above this; it leaves such a link unlimited
# and says so.
MININET_MAX_BPS = 1000 * MBIT_BPS


def mininet_topo(plan: Any, *, limits: bool = True) -> Any:
    """A ``mininet.topo.Topo`` of the whole network, for ``Mininet(topo=...)``
    or ``mn --custom``.

    ``plan`` is what :func:`testbed.plan.network_plan.network_plan` returns: its
    bridges become switches, servers' bridges too, its VM slots hosts.
    ``limits`` gives links their capacity (up to 1 Gbit/s, Mininet's own limit),
    which takes Mininet's ``link=TCLink``. Use switches in standalone mode for
    trees; a fat-tree has loops and needs a controller. A server's bridge has
    the option ``slots``, a link without limit ``capacity_mbit``: Mininet
    ignores them, and :func:`from_mininet` reads them. ImportError without
    Mininet.
    """
    from mininet.topo import Topo

    topo = Topo()
    for bridge in plan.bridges:
        slots = plan.slots_of_server.get(bridge.node, ())
        own = {"slots": len(slots)} if bridge.role == "server" else {}
        topo.addSwitch(bridge.name, dpid=f"{bridge.dpid:016x}", **own)
    for slot in plan.slots:
        topo.addHost(slot.netns, mac=slot.mac)
        port = slot.port
        topo.addLink(
            slot.netns, port.bridge, port2=port.number, intfName2=port.name
        )
    for link in plan.links:
        shaped = limits and link.capacity_bps <= MININET_MAX_BPS
        mbit = link.capacity_bps / MBIT_BPS
        topo.addLink(
            link.lower.bridge,
            link.upper.bridge,
            port1=link.lower.number,
            port2=link.upper.number,
            intfName1=link.lower.name,
            intfName2=link.upper.name,
            **(
                {"bw": mbit, "use_htb": True}
                if shaped
                else {"capacity_mbit": mbit}
            ),
        )
    return topo


# ------------------------------------------------------------------ reading

Joined = dict[str, dict[str, int]]
"""For every node its neighbours, and the capacity to each in bit/s."""


def from_mininet(topo: Any, slots_per_server: int = 1) -> DataCentre:
    """The data centre of a ``mininet.topo.Topo``: nodes under their names, in
    order of addition.

    A host is a server, with the VM slots of ``addHost(..., slots=N)`` or else
    ``slots_per_server``; its one link is the server's uplink. A link's capacity
    is its ``bw`` (Mbit/s). A switch with ``slots`` is a server's own: its hosts
    are that server's VMs, as :func:`mininet_topo` writes them.

    The links must make a tree or a multi-rooted tree. Its roots are the
    switches farthest from their nearest host, which is exact where all hosts
    are equally deep; a tree has one root, of several such switches the one in
    the middle. Raises TopologyError with the problems of nodes and links, all
    at once; where those are good, with those of the structure.
    """
    problems = Problems()
    at_least(
        problems, ("slots_per_server",), slots_per_server, 1, "slots per server"
    )
    slots, joined = _wiring(problems, topo, slots_per_server)
    if not problems:
        reached = distances(joined, list(joined)[:1])
        lost = [name for name in joined if name not in reached]
        _report(
            problems,
            "links",
            lost,
            f"disconnected: nothing leads to {next(iter(joined))}",
        )
    content = {} if problems else _content(problems, slots, joined)
    if problems:
        raise TopologyError(problems)
    return custom(content)


def _report(
    problems: Problems, key: str, names: list[str], message: str, most: int = 5
) -> None:
    """Notes one problem of nodes or links, if there are any; its text names
    ``most`` of them.
    """
    if names:
        more = f" and {len(names) - most:,} more" if len(names) > most else ""
        problems.report(f"{', '.join(names[:most])}{more}: {message}", key)


def _wiring(
    problems: Problems, topo: Any, slots_per_server: int
) -> tuple[dict[str, int], Joined]:
    """Slots of every server, and all links; what is wrong with each is noted."""
    info = {name: topo.nodeInfo(name) for name in topo.nodes(sort=False)}
    links = list(topo.iterLinks(withInfo=True))
    ends = [end for a, b, _ in links for end in ((a, b), (b, a))]
    bridges = {
        name for name in info if topo.isSwitch(name) and "slots" in info[name]
    }
    vms = {
        name
        for name, other in ends
        if other in bridges and not topo.isSwitch(name)
    }
    vms -= {name for name, other in ends if other not in bridges}
    slots = {
        name: options.get("slots", slots_per_server)
        for name, options in info.items()
        if name in bridges or not (name in vms or topo.isSwitch(name))
    }
    for name, count in slots.items():
        if "slots" in info[name]:
            at_least(
                problems, ("servers",), count, 1, f"the slot count of {name}"
            )
    if not slots:
        problems.report("the Topo has no hosts", "servers")
    joined: Joined = {name: {} for name in info if name not in vms}
    _join(
        problems, joined, [link for link in links if vms.isdisjoint(link[:2])]
    )
    wrong = [
        f"{name} (to {', '.join(joined[name]) or 'nothing'})"
        for name in slots
        if len(joined[name]) != 1 or not slots.keys().isdisjoint(joined[name])
    ]
    _report(problems, "servers", wrong, "a host has one link, to a switch")
    return slots, joined


def _join(
    problems: Problems,
    joined: Joined,
    links: Iterable[tuple[str, str, Mapping[str, Any]]],
) -> None:
    """Adds the links; those that cannot be are noted."""
    unlimited, parallel = [], []
    for a, b, options in links:
        name, bw = f"{a}<->{b}", options.get("bw", options.get("capacity_mbit"))
        capacity: Any = bw * MBIT_BPS if isinstance(bw, Real) else 0
        if not 0.5 < capacity <= MAX_LINK_BPS:
            unlimited.append(name if bw is None else f"{name} (bw={bw!r})")
            capacity = 1
        if b in joined[a]:
            parallel.append(name)
        joined[a][b] = joined[b][a] = round(capacity)
    needed = "a link needs bw, a number of Mbit/s above 0 and up to 10**9: addLink(..., bw=100)"
    _report(problems, "links", unlimited, needed)
    _report(
        problems,
        "links",
        parallel,
        "a second link; add its bw to that of the first",
    )


def _roots(slots: Mapping[str, int], joined: Joined) -> list[str]:
    """The switches farthest from the nearest host; of a tree one, nearest to
    the farthest host.
    """
    to_host = distances(joined, slots)
    most = max(to_host.values())
    tops = [name for name in joined if to_host[name] == most]
    if sum(map(len, joined.values())) != 2 * (len(joined) - 1):
        return tops
    # In a tree the host farthest from any node is an end of the longest path
    # between hosts.
    one = distances(
        joined, [max(slots, key=distances(joined, tops[:1]).__getitem__)]
    )
    other = distances(joined, [max(slots, key=one.__getitem__)])
    return [min(tops, key=lambda name: max(one[name], other[name]))]


def _content(
    problems: Problems, slots: Mapping[str, int], joined: Joined
) -> dict[str, Any]:
    """The network as :func:`topologies.custom.custom` takes it: links upward,
    to the roots.
    """
    roots = _roots(slots, joined)
    depth = distances(joined, roots)
    switches = sorted(
        (n for n in joined if n not in slots), key=lambda name: -depth[name]
    )
    number = {name: i for i, name in enumerate([*slots, *switches])}
    links = [(a, b) for a in number for b in joined[a] if depth[a] >= depth[b]]
    level = [
        f"{a}<->{b}"
        for a, b in links
        if depth[a] == depth[b] and number[a] <= number[b]
    ]
    loop = "joins switches of one level: a loop, and no multi-rooted tree"
    _report(
        problems,
        "links",
        level,
        f"{loop}; leave it out, or write kind: custom with roots",
    )
    links.sort(key=lambda ends: (number[ends[0]], number[ends[1]]))
    return {
        "servers": [
            {"name": name, "slots": count} for name, count in slots.items()
        ],
        "switches": switches,
        "links": [
            {"lower": a, "upper": b, "capacity": joined[a][b]} for a, b in links
        ],
        "roots": roots,
    }
