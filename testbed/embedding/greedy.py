"""Greedy: the server that leads to the least maximum link occupation (Li et al. 2018, Section 1).

"This strategy tries to assign the VMs to the servers that leads to the minimum value of maximum
link occupation".
"""

from __future__ import annotations

from testbed.embedding.packing import Packing, Subtree
from testbed.embedding.placement import Placement, Refusal, Residual
from topologies.datacentre import DataCentre


class Greedy:
    """AdaBa's search; the next server is the one whose VMs load their path's fullest link least.

    Each server offers to take as many VMs as it can (:meth:`Packing.most`); what counts is the
    largest occupation (reserved over capacity) of the links between it and the switch, these VMs
    included. Equal ones by id. O(servers² · slots · levels) for each switch.
    """

    name = "greedy"

    def embed(
        self,
        datacentre: DataCentre,
        residual: Residual,
        n_vms: int,
        rate_bps: int,
        *,
        largest_bps: int = 0,  # noqa: ARG002
    ) -> Placement | Refusal:
        packing = Packing(datacentre, residual, n_vms, rate_bps)
        occupation = _Occupation(packing)
        for subtree in packing.candidates():
            packing.clear()
            if _fill(packing, occupation, subtree):
                return Placement(subtree.root, tuple(sorted(packing.taken)))
        return packing.refusal()


class _Occupation:
    """Occupation of links by other tenants and this one together."""

    def __init__(self, packing: Packing) -> None:
        bps = packing.residual.free_bps
        self._packing = packing
        self._capacity: list[int] = packing.datacentre.link_capacity_bps.tolist()
        self._free: list[int] = [min(pair) for pair in bps.reshape(-1, 2).tolist()]

    def with_more(self, count: int, path: tuple[int, ...]) -> float:
        """The largest share in use on a path once ``count`` more VMs are at its end.

        Shares that are equal as fractions are equal as floats: division rounds correctly.
        """
        n, rate_bps = self._packing.n_vms, self._packing.rate_bps
        worst = 0.0
        for link in path:
            x = self._packing.below(link) + count
            used = self._capacity[link] - self._free[link] + min(x, n - x) * rate_bps
            worst = max(worst, used / self._capacity[link])
        return worst


def _fill(packing: Packing, occupation: _Occupation, subtree: Subtree) -> bool:
    """Servers one after another, least occupation first; whether all VMs found a place."""
    offers = [server for server in subtree.servers if packing.free_slots[server]]
    while packing.left:
        best: tuple[float, int, int] | None = None
        for server in offers:
            path = subtree.paths[server]
            count = packing.most(server, path)
            if count:
                offer = (occupation.with_more(count, path), server, count)
                best = offer if best is None else min(best, offer)
        if best is None:
            return False
        _, server, count = best
        packing.take(server, count, subtree.paths[server])
        offers.remove(server)
    return True


EMBEDDERS = (Greedy,)
