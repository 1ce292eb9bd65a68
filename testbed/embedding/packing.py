"""AdaBa, best fit, first fit and greedy: a hose packed server by server into
the lowest subtree.

Algorithm 1 of Li et al., "Bandwidth-Guaranteed Resource Allocation and
Scheduling for Parallel Jobs in Cloud Data Center", 2018, Section 4.1. Every
switch of a level is tried, in order of id, from the edge up. The servers below
it are filled in an order that the embedder chooses, each with as many of the
remaining VMs as its free slots and its links up to the switch allow. The
printed algorithm cannot succeed and looks at each server by itself; here the
links up to the switch carry all VMs placed so far.

A search that goes server by server reads a few numbers at a time; plain lists
serve it ten times as fast as arrays do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from testbed.embedding.counts import (
    Counts,
    reason_of_no_room,
    servers_below,
)
from testbed.embedding.placement import Placement, Refusal, Residual
from topologies.datacentre import DataCentre


class Subtree(NamedTuple):
    """A switch with everything below it.

    ``root`` names the first tree that holds the switch; ``paths[s]`` are the
    links from server s up to the switch, bottom up (none where a flat cluster
    has no links), servers by id.
    """

    root: int
    paths: dict[int, tuple[int, ...]]


_KEPT: WeakKeyDictionary[DataCentre, dict[int, Subtree]] = (
    WeakKeyDictionary()
)


def subtree(datacentre: DataCentre, switch: int) -> Subtree:
    """The subtree of a switch, kept for as long as its data centre lives.

    O(servers below it · levels) the first time.
    """
    kept = _KEPT.setdefault(datacentre, {})
    if switch not in kept:
        root = int(datacentre.first_root[switch])
        tree = datacentre.tree_by_root[root]
        paths = {}
        inside = np.flatnonzero(servers_below(datacentre, switch))
        for server in inside.tolist():
            links = []
            for node in tree.path_to_root(server):
                if node == switch:
                    break
                if tree.uplink[node] >= 0:
                    links.append(int(tree.uplink[node]))
            paths[server] = tuple(links)
        kept[switch] = Subtree(root, paths)
    return kept[switch]


@dataclass(eq=False)
class Packing:
    """One hose and one residual, while its VMs are tried below one switch after
    another.

    ``free_slots`` per server. ``allowed[l]`` (Eq. 6) is the most that min(X,
    N-X) may be with X of the N VMs below link l. Below the present switch
    ``taken`` are the placed VMs (server, VMs), and ``left`` is the number of the
    others.
    """

    datacentre: DataCentre
    residual: Residual
    n_vms: int
    rate_bps: int

    def __post_init__(self) -> None:
        self.counts = Counts(
            self.datacentre, self.residual, self.n_vms, self.rate_bps
        )
        self.free_slots: list[int] = self.residual.free_slots.tolist()
        self.allowed: list[int] = self.counts.per_link.tolist()
        self.left = self.n_vms
        self.taken: list[tuple[int, int]] = []
        self.paths: dict[int, tuple[int, ...]] = {}
        self._below: dict[int, int] = {}

    def candidates(self) -> Iterator[Subtree]:
        """The subtrees that can hold the hose, lowest level first, then by id.

        By Oktopus' counts the others have no placement, whatever the order of
        servers. Each starts with nothing placed (line 26 of the algorithm).
        """
        for switch in self.counts.candidates():
            candidate = subtree(self.datacentre, switch)
            self.left = self.n_vms
            self.taken = []
            self.paths = candidate.paths
            self._below = {}
            yield candidate

    def most(self, server: int) -> int:
        """The most VMs that a server can take as things stand; 0 where it can
        take none.
        """
        n = self.n_vms
        allowed = self.allowed
        below = self._below
        path = self.paths[server]
        # Counted down, not bisected: as min(X, N-X) counts, a link may let 8
        # of 10 VMs through, and not 5.
        for count in range(min(self.free_slots[server], self.left), 0, -1):
            for link in path:
                x = below.get(link, 0) + count
                if x > allowed[link] and n - x > allowed[link]:
                    break
            else:
                return count
        return 0

    def take(self, server: int) -> None:
        """Place as many VMs on a server as it can take."""
        count = self.most(server)
        if count:
            for link in self.paths[server]:
                self._below[link] = self._below.get(link, 0) + count
            self.taken.append((server, count))
            self.left -= count

    def carried_bps(self, link: int, count: int) -> int:
        """Bandwidth that this hose needs on a link once ``count`` more VMs are
        below it.
        """
        x = self._below.get(link, 0) + count
        return min(x, self.n_vms - x) * self.rate_bps


# -- orders of the servers below a switch --------------------------------------

Order: TypeAlias = Callable[[Packing, int], Iterable[int]]
"""The servers of ``packing.paths`` in the order in which they are filled.

The second argument is the most that any job has asked for per VM, this one
included (B_max).
"""


def in_sequence(packing: Packing, _: int) -> Iterable[int]:
    """First fit: servers by id (Section 4.1, Fig. 3)."""
    return packing.paths


def fullest(packing: Packing, _: int) -> Iterable[int]:
    """Best fit: fewest free slots first, equal ones by id (Section 5.3.1).

    The paper: "different in the setting of weight function", and in that alone.
    """
    return sorted(packing.paths, key=packing.free_slots.__getitem__)


def weight(
    free_slots: int, slots: int, rate_bps: int, largest_bps: int
) -> int:
    """Eq. 7 times 2·B_max, a whole number: -a²·B_max + 2·L·B·a.

    ``free_slots`` is a, ``slots`` is L (slots of an idle server),
    ``largest_bps`` is B_max. Where nobody ever asked for bandwidth the weight
    is that of a request that asks for none, -a².
    """
    # Integers: no rounding decides between servers of equal weight.
    return 2 * slots * rate_bps * free_slots - free_slots**2 * max(
        largest_bps, 1
    )


def heaviest(packing: Packing, largest_bps: int) -> Iterable[int]:
    """AdaBa: servers by Eq. 7, a weight that follows how large the request is;
    equal ones by id.

    Small requests go to servers with few slots free, large ones to servers with
    many, so that the bandwidth of the large ones stays inside servers. L is the
    largest server's slots where they differ.
    """
    free = packing.free_slots
    rate_bps = packing.rate_bps
    slots = int(packing.datacentre.slots.max(initial=0))
    return sorted(
        packing.paths,
        key=lambda s: -weight(free[s], slots, rate_bps, largest_bps),
    )


def least_occupied(packing: Packing, _: int) -> Iterator[int]:
    """Greedy: the server whose VMs load their path's fullest link least
    (Section 1).

    "This strategy tries to assign the VMs to the servers that leads to the
    minimum value of maximum link occupation." A server's rank is the largest
    occupation (reserved over capacity) of its links up to the switch, with as
    many VMs on it as it can take; equal ones by id. O(servers² · slots ·
    levels) for each switch.
    """
    capacity_bps: list[int] = packing.datacentre.link_capacity_bps.tolist()
    # Per link, the direction with less.
    free_bps: list[int] = (
        packing.residual.free_bps.reshape(-1, 2).min(axis=1).tolist()
    )

    def occupation(server: int, count: int) -> float:
        highest = 0.0
        for link in packing.paths[server]:
            reserved_bps = capacity_bps[link] - free_bps[link]
            carried_bps = reserved_bps + packing.carried_bps(link, count)
            # Shares that are equal as fractions are equal as floats, so that
            # ids decide: division rounds correctly.
            highest = max(highest, carried_bps / capacity_bps[link])
        return highest

    offers = [
        server for server in packing.paths if packing.free_slots[server]
    ]
    while True:
        ranked = []
        for server in offers:
            count = packing.most(server)
            if count:
                ranked.append((occupation(server, count), server))
        if not ranked:
            return
        # Ranked anew after each server: its VMs load others' links too.
        server = min(ranked)[1]
        offers.remove(server)
        yield server


@dataclass(eq=False)
class Packer:
    """Embedder that fills the servers below each candidate in turn, in
    ``order``.

    The first candidate that takes all VMs is the placement. Its order apart,
    O(servers · slots · levels) for each switch.
    """

    name: str
    order: Order

    def embed(
        self,
        datacentre: DataCentre,
        residual: Residual,
        n_vms: int,
        rate_bps: int,
        *,
        largest_bps: int = 0,
    ) -> Placement | Refusal:
        """``largest_bps``: B_max before this request."""
        packing = Packing(datacentre, residual, n_vms, rate_bps)
        for candidate in packing.candidates():
            # An order may be a generator that looks at what was taken so far.
            for server in self.order(packing, max(largest_bps, rate_bps)):
                packing.take(server)
                if not packing.left:
                    return Placement(
                        candidate.root, tuple(sorted(packing.taken))
                    )
        return reason_of_no_room(packing.counts)


EMBEDDERS = (
    Packer("first-fit", in_sequence),
    Packer("best-fit", fullest),
    Packer("adaba", heaviest),
    Packer("greedy", least_occupied),
)
