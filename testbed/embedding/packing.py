"""Packing a hose server by server into the lowest subtree that takes it: Algorithm 1 of AdaBa.

Every switch of a level is tried, in order of id, from the edge up (Li et al., "Bandwidth-Guaranteed
Resource Allocation and Scheduling for Parallel Jobs in Cloud Data Center", 2018, Section 4.1).
Below it servers come in an order that the embedder chooses; each takes as many of the VMs that are
left as its free slots and the links up to the switch let it. The printed algorithm cannot succeed
and looks at each server by itself; how it is read here is docs/decisions/0410.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from testbed.embedding.counts import Counts
from testbed.embedding.placement import Placement, Refusal, Residual
from testbed.embedding.reasons import missed
from testbed.embedding.subtree import Subtree, subtrees
from topologies.datacentre import DataCentre


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

        What is passed over has no placement, whatever the order of servers (decision 0101).
        """
        if sum(self.free_slots) < self.n_vms:
            return
        kept = subtrees(self.datacentre)
        for layer, total in self.counts.climb():
            for switch in layer.switches[total >= self.n_vms].tolist():
                yield kept.below(self.datacentre, switch)

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


def pack_in_order(packing: Packing, order: Callable[[Subtree], Iterable[int]]) -> Placement | None:
    """Fill servers in the given order below each candidate, until one takes all VMs."""
    for subtree in packing.candidates():
        packing.clear()
        for server in order(subtree):
            path = subtree.paths[server]
            count = packing.most(server, path)
            if count:
                packing.take(server, count, path)
                if not packing.left:
                    return Placement(subtree.root, tuple(sorted(packing.taken)))
    return None
