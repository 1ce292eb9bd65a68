"""First fit: servers in sequence (Li et al. 2018, Section 4.1, Fig. 3)."""

from __future__ import annotations

from collections.abc import Iterable

from testbed.embedding.packing import InOrder, Packing


class FirstFit(InOrder):
    """AdaBa's search with servers in order of id."""

    name = "first-fit"

    def order(self, packing: Packing, servers: tuple[int, ...], largest_bps: int) -> Iterable[int]:
        del packing, largest_bps
        return servers


EMBEDDERS = (FirstFit,)
