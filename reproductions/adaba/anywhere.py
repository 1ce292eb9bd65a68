"""Best fit, greedy and first fit that fill any servers of the data centre.

Section 1 has greedy take "the server in the DCN", and Section 5.3.1 says that
best fit "always sorts the servers". As judged, both search subtree by subtree,
as AdaBa does, and differ in the order of the servers alone.
"""

from __future__ import annotations

from testbed.embedding.counts import reason_of_no_room
from testbed.embedding.packing import (
    Order,
    Packing,
    fullest,
    in_sequence,
    least_occupied,
)
from testbed.embedding.placement import Placement, Refusal, Residual
from topologies.datacentre import DataCentre


class _Anywhere:
    """Fills all servers in one order, below the lowest switch that has them
    all.
    """

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
        packing = Packing(datacentre, residual, n_vms, rate_bps)
        for subtree in packing.candidates():
            if len(subtree.paths) < datacentre.n_servers:
                continue
            for server in self.order(packing, max(largest_bps, rate_bps)):
                packing.take(server)
                if not packing.left:
                    taken = tuple(sorted(packing.taken))
                    return Placement(subtree.root, taken)
        return reason_of_no_room(packing.counts)


class BestFit(_Anywhere):
    order = staticmethod(fullest)


class Greedy(_Anywhere):
    order = staticmethod(least_occupied)


class FirstFit(_Anywhere):
    order = staticmethod(in_sequence)
