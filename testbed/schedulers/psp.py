"""PS-P: slots alone are asked for; the network is shared by weights (FairCloud; JSA, Section V.A).

Oktopus' placement with bandwidth left out of it: the lowest subtree with enough free slots. What
the network does then is :mod:`testbed.backends.sim.sharing`'s ``proximate`` sharing
(docs/decisions/0434).
"""

from __future__ import annotations

from testbed.embedding.placement import Placement, Residual
from testbed.schedulers.bl import lowest_subtree
from testbed.schedulers.jsa_queue import FixedDemand, Late, Queue
from testbed.schedulers.queueing import by_arrival
from topologies.datacentre import DataCentre


def psp(late: Late, queue: Queue) -> FixedDemand:
    """The policy ``ps-p``."""
    return FixedDemand("ps-p", by_slots, by_arrival, late=late, queue=queue, reserves=False)


def by_slots(
    datacentre: DataCentre,
    free: Residual,
    n_vms: int,
    rate_bps: int,  # noqa: ARG001
) -> Placement | None:
    """The lowest subtree with enough slots, whatever its links have left."""
    return lowest_subtree(datacentre, free.free_slots, n_vms)
