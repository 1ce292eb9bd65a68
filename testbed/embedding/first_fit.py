"""First fit: servers in sequence (Li et al. 2018, Section 4.1, Fig. 3)."""

from __future__ import annotations

from testbed.embedding.packing import Packing, pack_in_order
from testbed.embedding.placement import Placement, Refusal, Residual
from topologies.datacentre import DataCentre


class FirstFit:
    """AdaBa's search with servers in order of id."""

    name = "first-fit"

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
        return pack_in_order(packing, lambda subtree: subtree.servers) or packing.refusal()


EMBEDDERS = (FirstFit,)
