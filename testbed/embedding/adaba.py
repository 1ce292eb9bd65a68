"""AdaBa: servers by a weight that follows how large a request is (Li et al. 2018, Section 4.1).

Small requests go to servers with few slots free, large ones to servers with many, so that the
bandwidth of the large ones stays inside servers.
"""

from __future__ import annotations

from collections.abc import Iterable

from testbed.embedding.packing import InOrder, Packing


def weight(free_slots: int, slots: int, rate_bps: int, largest_bps: int) -> int:
    """Eq. 7 times 2·B_max, a whole number: -a²·B_max + 2·L·B·a.

    ``free_slots`` is a, ``slots`` is L (slots of an idle server), ``largest_bps`` is B_max. Where
    nobody ever asked for bandwidth the weight is that of a request that asks for none, -a².
    """
    return 2 * slots * rate_bps * free_slots - free_slots**2 * max(largest_bps, 1)


class AdaBa(InOrder):
    """Algorithm 1: the lowest switch below which servers in order of weight take all VMs.

    ``largest_bps`` is B_max before this request. Servers of equal weight come by id; L is the
    largest server's slots where they differ. O(servers · slots · levels) for each switch.
    """

    name = "adaba"

    def order(self, packing: Packing, servers: tuple[int, ...], largest_bps: int) -> Iterable[int]:
        free, slots, rate_bps = packing.free_slots, packing.most_slots, packing.rate_bps
        return sorted(servers, key=lambda s: -weight(free[s], slots, rate_bps, largest_bps))


EMBEDDERS = (AdaBa,)
