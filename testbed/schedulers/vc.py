"""VC: virtual clusters with hard guarantees, on arrival or not at all (Oktopus;
DCloud, Sec. IV).

A tenant gets the bandwidth it asks for from its arrival to its end, or is
refused with the embedder's reason. Nothing waits, slides or is scaled;
deadlines are not looked at. ``scripted`` gives each job the bandwidth that its
file names: what DCloud's Fig. 10 is measured with.
"""

from __future__ import annotations

from jobs.request import JobRequest
from testbed.embedding.placement import Embedder, Refusal
from testbed.reservation.capacity import HoseCapacity
from testbed.schedulers.actions import (
    Action,
    Arrived,
    PolicyEvent,
    Reject,
    Start,
)
from testbed.schedulers.charging import job_price
from testbed.schedulers.policy import PolicyKind, View


class Scripted:
    """Starts each job on arrival at its ``granted_bps`` (its own bandwidth
    where none is given).

    Embeds ⟨n, b'⟩ in what is free now, and holds it until the job ends by
    itself. How long that will be is not known to it (a job may overrun the
    duration it states), so the reservation is open-ended and what is free must
    be free from now on for good.
    """

    name = "scripted"

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def rate_bps(self, job: JobRequest) -> int:
        if job.granted_bps is None:
            return job.bandwidth_bps
        return job.granted_bps

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if not isinstance(event, Arrived):
            return []
        job = view.job(event.job_id)
        rate_bps = self.rate_bps(job)
        answer = HoseCapacity(view, self._embedder).fit_hose(
            job.n_vms, rate_bps
        )
        if isinstance(answer, Refusal):
            return [Reject(job.id, answer.reason)]
        return [Start(job.id, answer, rate_bps)]


class VirtualCluster(Scripted):
    """The same at the bandwidth that the job asks for, which its tenant pays
    for.
    """

    name = "vc"

    def rate_bps(self, job: JobRequest) -> int:
        return job.bandwidth_bps

    def price(self, job: JobRequest, ran_s: float) -> float:
        """Price, for its tenant, of a job that met its deadline: no discount."""
        return job_price(job, ran_s, discounts=False)


POLICIES = (
    PolicyKind(
        "vc",
        "Oktopus virtual clusters: on arrival, as asked for, or not at all",
        lambda embedder, _: VirtualCluster(embedder),
        embeds=True,
        on_failure=("kill", "wait", "requeue"),
        claims=("granted-as-asked", "no-preemption"),
    ),
    PolicyKind(
        "scripted",
        "starts given jobs at given bandwidths",
        lambda embedder, _: Scripted(embedder),
        embeds=True,
        on_failure=("kill", "wait", "requeue"),
        claims=("every-job-starts", "no-preemption"),
    ),
)
