"""A scripted policy: given jobs at given bandwidths, at given times (or after one another)."""

from __future__ import annotations

from testbed.embedding.base import Embedder
from testbed.embedding.placement import Refusal
from testbed.reservation.capacity import HoseCapacity
from testbed.schedulers.actions import Action, Arrived, PolicyEvent, Reject, Start
from testbed.schedulers.policy import PolicyKind, View


class Scripted:
    """Starts each job on arrival at its ``granted_bps`` (its own bandwidth where none is given).

    The placement is the embedder's for ⟨n, b'⟩ in what is free; a job that does not fit is
    rejected with the embedder's reason. What DCloud's Fig. 10 is measured with.
    """

    name = "scripted"

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if not isinstance(event, Arrived):
            return []
        job = view.job(event.job_id)
        rate_bps = job.bandwidth_bps if job.granted_bps is None else job.granted_bps
        answer = HoseCapacity(view, self._embedder).fit_hose(job.n_vms, rate_bps)
        if isinstance(answer, Refusal):
            return [Reject(job.id, answer.reason)]
        return [Start(job.id, answer, rate_bps)]


POLICIES = (
    PolicyKind(
        "scripted",
        "starts given jobs at given bandwidths",
        lambda embedder, _: Scripted(embedder),
        embeds=True,
        claims=("every-job-starts", "no-preemption"),
    ),
)
