"""VMplace: the dynamic programme over (node, count), lowest subtree first (JSA, Section IV).

The paper takes it from TIVC (Xie et al., SIGCOMM 2012): going up from the servers it keeps for
every node which counts of VMs fit below it, and stops at the first level on which some subtree
holds them all. That programme is the one behind ``exact`` (:mod:`testbed.embedding.exact`), which
keeps the counts that matter as chains of heavy nodes; only the order of what is better differs:
here the level of the subtree comes first, and the reserved bandwidth decides among the subtrees and
placements of that level.
"""

from __future__ import annotations

from testbed.embedding.exact import Exact, least_bandwidth
from testbed.embedding.placement import Placement, Residual
from topologies.datacentre import DataCentre


class VMPlace(Exact):
    """The most localized placement; of the equally localized the one that reserves least.

    Finds one exactly when there is one. Ties as in :class:`testbed.embedding.exact.Exact`.
    """

    name = "vmplace"
    _lowest = True


def most_localized(
    datacentre: DataCentre, residual: Residual, n_vms: int, rate_bps: int
) -> Placement | None:
    """The placement that :class:`VMPlace` describes; None, without a reason, where there is none.

    O(nodes of the levels tried) in numpy.
    """
    return least_bandwidth(datacentre, residual, n_vms, rate_bps, lowest=True)


EMBEDDERS = (VMPlace,)
