"""Best fit: the fullest servers first (Li et al. 2018, Section 5.3.1)."""

from __future__ import annotations

from collections.abc import Iterable

from testbed.embedding.packing import Packing, pack_in_order
from testbed.embedding.placement import Placement, Refusal, Residual
from testbed.embedding.subtree import Subtree
from topologies.datacentre import DataCentre


class BestFit:
    """AdaBa's search with servers in rising order of their free slots, equal ones by id.

    The paper: "different in the setting of weight function", and in that alone.
    """

    name = "best-fit"

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

        def fullest_first(subtree: Subtree) -> Iterable[int]:
            return sorted(subtree.servers, key=packing.free_slots.__getitem__)

        return pack_in_order(packing, fullest_first) or packing.refusal()


EMBEDDERS = (BestFit,)
