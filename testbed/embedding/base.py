"""What an embedder is: a pure function from a residual data centre to a placement or a reason."""

from __future__ import annotations

from typing import Protocol

from testbed.embedding.placement import Placement, Refusal, Residual
from topologies.datacentre import DataCentre


class Embedder(Protocol):
    """Places a hose ⟨n, b⟩; deterministic; never over-commits a slot or a link."""

    name: str

    def embed(
        self, datacentre: DataCentre, residual: Residual, n_vms: int, rate_bps: int
    ) -> Placement | Refusal: ...
