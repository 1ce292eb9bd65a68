"""Packing a hose server by server into the lowest subtree that takes it: Algorithm 1 of AdaBa.

Every switch of a level is tried, in order of id, from the edge up (Li et al., "Bandwidth-Guaranteed
Resource Allocation and Scheduling for Parallel Jobs in Cloud Data Center", 2018, Section 4.1).
Below it servers come in an order that the embedder chooses; each takes as many of the VMs that are
left as its free slots and the links up to the switch let it. The printed algorithm cannot succeed
and looks at each server by itself; here the links up to the switch carry all VMs placed so far.

A search that goes server by server reads a few numbers at a time; plain lists, kept per data
centre, serve it ten times as fast as arrays do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from testbed.embedding.counts import Counts, missed, servers_below
from testbed.embedding.placement import Placement, Refusal, Residual
from topologies.datacentre import DataCentre


@dataclass(frozen=True, eq=False)
class Subtree:
    """A switch with everything below it.

    ``servers`` by id; ``paths[s]`` the links from server s up to ``switch``, bottom up (none where
    a flat cluster has no links); ``root`` names the first tree that holds the switch.
    """

    switch: int
    root: int
    servers: tuple[int, ...]
    paths: dict[int, tuple[int, ...]]


class Subtrees:
    """The subtrees of one data centre, each made when it is first asked for.

    It does not hold on to the data centre, so that the two can go together.
    """

    def __init__(self) -> None:
        self._made: dict[int, Subtree] = {}
        self._uplinks: dict[int, tuple[list[int], list[int]]] = {}

    def below(self, datacentre: DataCentre, switch: int) -> Subtree:
        """The subtree of a switch; O(servers below it · levels) the first time."""
        made = self._made.get(switch)
        if made is None:
            made = self._made[switch] = self._make(datacentre, switch)
        return made

    def _make(self, datacentre: DataCentre, switch: int) -> Subtree:
        servers = np.flatnonzero(servers_below(datacentre, switch)).tolist()
        root = int(datacentre.first_root[switch])
        parent, uplink = self._tree(datacentre, root)
        paths = {}
        for server in servers:
            node, path = server, []
            while node != switch:
                path.append(uplink[node])
                node = parent[node]
            paths[server] = tuple(link for link in path if link >= 0)
        return Subtree(switch, root, tuple(servers), paths)

    def _tree(self, datacentre: DataCentre, root: int) -> tuple[list[int], list[int]]:
        """Parent and uplink of every node in the tree below ``root``."""
        found = self._uplinks.get(root)
        if found is None:
            tree = datacentre.tree_by_root[root]
            found = self._uplinks[root] = (tree.parent.tolist(), tree.uplink.tolist())
        return found


_KEPT: WeakKeyDictionary[DataCentre, Subtrees] = WeakKeyDictionary()


def subtrees(datacentre: DataCentre) -> Subtrees:
    """The subtrees of a data centre, kept for as long as it lives."""
    kept = _KEPT.get(datacentre)
    if kept is None:
        kept = _KEPT[datacentre] = Subtrees()
    return kept


class Packing:
    """One hose and one residual, while its VMs are tried below one switch after another.

    ``free_slots`` per server; ``allowed[l]`` is Eq. 6 for link l: with X of the N VMs below it
    min(X, N-X) may be at most that.
    """

    def __init__(
        self, datacentre: DataCentre, residual: Residual, n_vms: int, rate_bps: int
    ) -> None:
        self.datacentre = datacentre
        self.n_vms = n_vms
        self.rate_bps = rate_bps
        self.residual = residual
        self.counts = Counts(datacentre, residual, n_vms, rate_bps)
        self.free_slots: list[int] = residual.free_slots.tolist()
        self.allowed: list[int] = self.counts.per_link.tolist()
        self.left = n_vms
        self.taken: list[tuple[int, int]] = []
        self._below: dict[int, int] = {}

    def candidates(self) -> Iterator[Subtree]:
        """The subtrees that can hold the hose at all, lowest level first, then by id.

        What is passed over has no placement, whatever the order of servers.
        """
        if sum(self.free_slots) < self.n_vms:
            return
        kept = subtrees(self.datacentre)
        for layer, total in self.counts.bottom_up():
            for switch in layer.switches[total >= self.n_vms].tolist():
                yield kept.below(self.datacentre, switch)

    @cached_property
    def most_slots(self) -> int:
        """Slots of the largest server, were it idle."""
        return int(self.datacentre.slots.max(initial=0))

    def clear(self) -> None:
        """Take back what was placed (line 26)."""
        self.left = self.n_vms
        self.taken = []
        self._below = {}

    def below(self, link: int) -> int:
        """VMs placed below a link so far."""
        return self._below.get(link, 0)

    def most(self, server: int, path: Iterable[int]) -> int:
        """The most VMs that a server can take as things stand; 0 where it can take none."""
        n, allowed, below = self.n_vms, self.allowed, self._below
        for count in range(min(self.free_slots[server], self.left), 0, -1):
            for link in path:
                x = below.get(link, 0) + count
                if x > allowed[link] and n - x > allowed[link]:
                    break
            else:
                return count
        return 0

    def take(self, server: int, count: int, path: Iterable[int]) -> None:
        """Place ``count`` VMs on a server."""
        for link in path:
            self._below[link] = self._below.get(link, 0) + count
        self.taken.append((server, count))
        self.left -= count

    def refusal(self) -> Refusal:
        """Why there is no placement, or that this way of searching missed what there is."""
        return missed(self.counts)


class InOrder:
    """Embedder that fills servers, in an order of its own, below each candidate in turn.

    The first candidate that takes all VMs is the placement.
    """

    name: str

    def order(self, packing: Packing, servers: tuple[int, ...], largest_bps: int) -> Iterable[int]:
        """The servers below one switch, given by id, in the order in which they are filled.

        ``largest_bps`` is the most that any job has asked for per VM, this one included.
        """
        raise NotImplementedError

    def embed(
        self,
        datacentre: DataCentre,
        residual: Residual,
        n_vms: int,
        rate_bps: int,
        *,
        largest_bps: int = 0,
    ) -> Placement | Refusal:
        packing = Packing(datacentre, residual, n_vms, rate_bps)
        largest_bps = max(largest_bps, rate_bps)
        for subtree in packing.candidates():
            packing.clear()
            for server in self.order(packing, subtree.servers, largest_bps):
                path = subtree.paths[server]
                count = packing.most(server, path)
                if count:
                    packing.take(server, count, path)
                    if not packing.left:
                        return Placement(subtree.root, tuple(sorted(packing.taken)))
        return packing.refusal()
