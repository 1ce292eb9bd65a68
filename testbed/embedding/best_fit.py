"""Best fit: the fullest servers first (Li et al. 2018, Section 5.3.1)."""

from __future__ import annotations

from collections.abc import Iterable

from testbed.embedding.packing import InOrder, Packing


class BestFit(InOrder):
    """AdaBa's search with servers in rising order of their free slots, equal ones by id.

    The paper: "different in the setting of weight function", and in that alone.
    """

    name = "best-fit"

    def order(self, packing: Packing, servers: tuple[int, ...], largest_bps: int) -> Iterable[int]:
        del largest_bps
        return sorted(servers, key=packing.free_slots.__getitem__)


EMBEDDERS = (BestFit,)
