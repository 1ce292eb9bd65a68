"""Algorithm 1 of AdaBa, line by line as printed and corrected: slow, obvious, and on its own.

The corrections are those of docs/decisions/08. It shares no code with the embedders; it knows the
data centre's trees and the residual alone.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from testbed.embedding.placement import Placement, Residual
from topologies.datacentre import DataCentre, Tree

Order = Callable[[int], Fraction]


def heaviest(slots: int, rate_bps: int, largest_bps: int) -> Order:
    """Eq. 7 as a sorting key over free slots: rising keys are falling weights."""
    share = Fraction(rate_bps, largest_bps) if largest_bps else Fraction(0)
    return lambda a: -(-Fraction(a * a, 2) + slots * share * a)


def fullest(a: int) -> Fraction:
    return Fraction(a)


def in_sequence(_: int) -> Fraction:
    return Fraction(0)


def printed_search(
    dc: DataCentre,
    residual: Residual,
    n_vms: int,
    rate_bps: int,
    order: Order,
) -> Placement | None:
    levels = sorted(set(dc.level.tolist()) - {0})
    for level in levels:
        for switch in range(dc.n_servers, dc.n_nodes):
            if dc.level[switch] != level:
                continue
            tree = next(t for t in dc.trees if switch in t.members.tolist())
            inside = [
                s
                for s in range(dc.n_servers)
                if path(tree, s, switch) is not None
            ]
            inside.sort(
                key=lambda s: (order(int(residual.free_slots[s])), s)
            )
            placed = fill(residual, tree, switch, inside, n_vms, rate_bps)
            if sum(placed.values()) == n_vms:
                return Placement(tree.root, tuple(sorted(placed.items())))
    return None


def fill(
    residual: Residual,
    tree: Tree,
    switch: int,
    servers: list[int],
    n_vms: int,
    rate_bps: int,
) -> dict[int, int]:
    placed: dict[int, int] = {}
    left = n_vms
    for server in servers:
        assigned = 0
        for m in range(1, min(int(residual.free_slots[server]), left) + 1):
            if within(
                residual,
                tree,
                switch,
                {**placed, server: m},
                server,
                n_vms,
                rate_bps,
            ):
                assigned = m
        if assigned:
            placed[server] = assigned
            left -= assigned
    return placed


def within(
    residual: Residual,
    tree: Tree,
    switch: int,
    placed: dict[int, int],
    server: int,
    n_vms: int,
    rate_bps: int,
) -> bool:
    """Eq. 6 on every link of the path, with all VMs placed below that link."""
    for link in path(tree, server, switch) or ():
        x = sum(
            count
            for s, count in placed.items()
            if link in (path(tree, s, switch) or ())
        )
        free = min(
            residual.free_bps[2 * link], residual.free_bps[2 * link + 1]
        )
        if min(x, n_vms - x) * rate_bps > free:
            return False
    return True


def path(tree: Tree, server: int, switch: int) -> list[int] | None:
    """Links from a server up to a switch; None where it is not below it."""
    links: list[int] = []
    node = server
    while node != switch:
        if tree.parent[node] < 0:
            return None
        if tree.uplink[node] >= 0:
            links.append(int(tree.uplink[node]))
        node = int(tree.parent[node])
    return links
