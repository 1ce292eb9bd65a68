"""BL: what clouds without guarantees do (DCloud, Section IV.A).

VMs go to the lowest subtree with enough free slots and compete for the network
like TCP; only a lack of slots turns a tenant away. The paper's amendment: a job
that has not ended by its deadline is killed then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jobs.request import JobRequest
from testbed.embedding.counts import (
    Counts,
    deal,
    on_one_server,
    placement_below,
    servers_below,
)
from testbed.embedding.placement import Placement, Refusal, Residual
from testbed.schedulers.actions import (
    Action,
    Arrived,
    PolicyEvent,
    Reject,
    Start,
)
from testbed.schedulers.charging import is_service, job_price
from testbed.schedulers.policy import (
    ALLOCATIONS,
    PolicyKind,
    SharingModel,
    View,
    parameter,
)
from topologies.datacentre import DataCentre


class Baseline:
    """Starts at rate 0: slots are reserved, bandwidth is not."""

    name = "bl"

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        # Nothing waits in BL, so what an end frees is for later arrivals.
        if not isinstance(event, Arrived):
            return []
        job = view.job(event.job_id)
        # BL reserves nothing ahead: what is free now is free for good.
        free = view.residual(view.now_s, None)
        answer = SlotsAlone().embed(view.datacentre, free, job.n_vms, 0)
        if isinstance(answer, Refusal):
            return [Reject(job.id, answer.reason)]
        # A service runs until its tenant ends it.
        due_s = None if is_service(job) else job.deadline_at_s
        return [
            Start(job.id, answer, 0, due_s, kill_at_end=due_s is not None)
        ]

    def price(self, job: JobRequest, ran_s: float) -> float:
        """Price, for its tenant, of a job that met its deadline: no discount."""
        return job_price(job, ran_s, discounts=False)


class SlotsAlone:
    """Embedder that looks at slots alone: it fills the lowest subtree with enough
    of them, in order of id.

    Of several on a level, that of the lowest id. BL's and PS-P's placement;
    O(nodes).
    """

    name = "slots-alone"

    def embed(
        self,
        datacentre: DataCentre,
        residual: Residual,
        n_vms: int,
        rate_bps: int,  # noqa: ARG002
        *,
        largest_bps: int = 0,  # noqa: ARG002
    ) -> Placement | Refusal:
        alone = on_one_server(datacentre, residual, n_vms)
        if alone is not None:
            return alone
        # At rate 0 no link lowers a count: slots alone decide. The first
        # candidate is of the lowest level.
        counts = Counts(datacentre, residual, n_vms, rate_bps=0)
        for switch in counts.candidates():
            servers = np.flatnonzero(servers_below(datacentre, switch))
            dealt = deal(residual.free_slots[servers], n_vms)
            used = dealt > 0
            return placement_below(
                datacentre, switch, servers[used], dealt[used]
            )
        return Refusal(
            f"{n_vms} slots asked, {int(residual.free_slots.sum())} free"
        )


@dataclass(frozen=True)
class Competition:
    """The network that BL's jobs compete for in the simulator."""

    allocation: str = parameter(
        "max-min",
        "a link's division among its flows in the simulator",
        choices=ALLOCATIONS,
    )
    capped: bool = parameter(
        True,  # noqa: FBT003
        "a VM sends at most its bandwidth in the simulator",
    )


POLICIES = (
    PolicyKind(
        "bl",
        "no guarantees: lowest subtree with free slots, TCP shares the network",
        lambda _, __: Baseline(),
        Competition,
        sharing=SharingModel(),
        on_failure=("wait", "kill"),
        claims=("no-preemption",),
    ),
)
