"""BL: what clouds without guarantees do (DCloud, Section IV.A).

VMs go to the lowest subtree with enough free slots and compete for the network like TCP; only a
lack of slots turns a tenant away. The paper's amendment: a job that has not ended by its deadline
is killed then.
"""

from __future__ import annotations

import numpy as np

from jobs.request import JobRequest
from testbed.embedding.counts import servers_below
from testbed.embedding.placement import Placement
from testbed.schedulers.actions import Action, Arrived, PolicyEvent, Reject, Start
from testbed.schedulers.charging import is_service, job_price, no_discount
from testbed.schedulers.policy import (
    PolicyKind,
    SharingModel,
    View,
)
from topologies.datacentre import DataCentre, IntArray


class Baseline:
    """Starts at rate 0: slots are reserved, bandwidth is not."""

    name = "bl"

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if not isinstance(event, Arrived):
            return []
        job = view.job(event.job_id)
        free = view.residual(view.now_s, None).free_slots
        placement = lowest_subtree(view.datacentre, free, job.n_vms)
        if placement is None:
            return [Reject(job.id, f"{job.n_vms} slots asked, {int(free.sum())} free")]
        due_s = None if is_service(job) else job.deadline_at_s
        return [Start(job.id, placement, 0, due_s, kill_at_end=due_s is not None)]

    def price(self, job: JobRequest, ran_s: float) -> float:
        """Price, for its tenant, of a job that met its deadline: no discount."""
        return job_price(job, ran_s, no_discount)


def lowest_subtree(datacentre: DataCentre, free: IntArray, n_vms: int) -> Placement | None:
    """The lowest subtree with enough free slots, the first of its level by id, filled in order.

    ``free`` are the free slots per server, shape ``(n_servers,)``. None where all of them together
    are too few. O(nodes).
    """
    alone = np.flatnonzero(free >= n_vms)
    if len(alone):
        server = int(alone[0])
        return Placement(int(datacentre.first_root[server]), ((server, n_vms),))
    below = np.zeros(datacentre.n_nodes, dtype=np.int64)
    below[: datacentre.n_servers] = free
    for layer in datacentre.layers:
        total = np.add.reduceat(below[layer.child_index], layer.segments)
        below[layer.switch_index] = total
        enough = np.flatnonzero(total >= n_vms)
        if len(enough):
            return _fill(datacentre, free, int(layer.switches[enough[0]]), n_vms)
    return None


def _fill(datacentre: DataCentre, free: IntArray, switch: int, n_vms: int) -> Placement:
    """The servers below a switch, by id, each as full as it can be."""
    servers = np.flatnonzero(servers_below(datacentre, switch))
    before = np.cumsum(free[servers]) - free[servers]
    counts = np.minimum(free[servers], np.maximum(n_vms - before, 0))
    used = counts > 0
    pairs = zip(servers[used].tolist(), counts[used].tolist(), strict=True)
    return Placement(int(datacentre.first_root[switch]), tuple(pairs))


POLICIES = (
    PolicyKind(
        "bl",
        "no guarantees: lowest subtree with free slots, TCP shares the network",
        lambda _, __: Baseline(),
        sharing=SharingModel(),
        claims=("no-preemption",),
    ),
)
