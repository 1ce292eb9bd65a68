"""What an embedder is: a pure function from a residual data centre to a placement or a reason."""

from __future__ import annotations

from typing import Protocol

from testbed.embedding.placement import Placement, Refusal, Residual
from topologies.datacentre import DataCentre


class Embedder(Protocol):
    """Places a hose ⟨n, b⟩; deterministic; never over-commits a slot or a link.

    ``largest_bps`` is the most that any job so far has asked for per VM: what embedders that look
    ahead weigh a request against (AdaBa's B_max; docs/decisions/0410). The others do not read it.
    """

    name: str

    def embed(
        self,
        datacentre: DataCentre,
        residual: Residual,
        n_vms: int,
        rate_bps: int,
        *,
        largest_bps: int = 0,
    ) -> Placement | Refusal: ...
