"""EDF, Oktopus in batches and PS-P: JSA's baselines, each job at its fixed
demand B̄ or not yet.

They "use B̄ as predicted bandwidth demand" (JSA, Section V.A) and meet the same
rounds as JSA does: whenever something arrives or ends, the jobs that wait are
gone through in order and those that fit are started. EDF's order is the
earliest deadline first; ``oktopus-batch`` embeds virtual clusters in order of
arrival, and unlike ``vc`` lets those wait that do not fit; PS-P, in the same
order, asks for slots alone and leaves the network to weighted sharing
(FairCloud).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jobs.request import JobRequest
from testbed.embedding.placement import Embedder
from testbed.schedulers.actions import Action, Reject, Start
from testbed.schedulers.bl import SlotsAlone
from testbed.schedulers.jsa import (
    Options,
    ReadyJob,
    Room,
    Rounds,
    by_deadline,
    least_option,
    why_late,
)
from testbed.schedulers.policy import (
    Claim,
    PolicyKind,
    SharingModel,
    parameter,
)
from testbed.schedulers.queues import SortKey, by_arrival

COMPLETE = ("exact", "oktopus", "vmplace", SlotsAlone.name)
"""Embedders that find a placement whenever there is one (decisions 06 and 07).
"""

LATE, QUEUE = ("drop", "run"), ("skip", "block")


@dataclass(frozen=True)
class FixedDemandParameters:
    late: str = parameter(
        LATE[0],
        "what becomes of a job that is too late for B̄",
        choices=LATE,
    )
    queue: str = parameter(
        QUEUE[0], "jobs behind one that does not fit", choices=QUEUE
    )


class FixedDemand(Rounds):
    """Starts jobs at B̄, in the order of ``rank`` (smallest first, equal ones
    by arrival).

    ``reserves`` False: only slots are asked for, and jobs share the network at
    rate 0.
    """

    def __init__(
        self,
        name: str,
        embedder: Embedder,
        rank: SortKey,
        parameters: FixedDemandParameters,
        *,
        reserves: bool = True,
    ) -> None:
        super().__init__(name, embedder, complete=embedder.name in COMPLETE)
        self._rank = rank
        self._parameters = parameters
        self._reserves = reserves

    def options(self, job: JobRequest) -> Options:
        return ((job.bandwidth_bps, job.duration_s),)

    def round(
        self, room: Room, ready: list[ReadyJob], now_s: float
    ) -> list[Action]:
        out: list[Action] = []
        blocked = False

        def rank(candidate: ReadyJob) -> tuple[Any, int]:
            return self._rank(candidate.job), candidate.order

        for candidate in sorted(ready, key=rank):
            # Also behind one that blocks: who is too late never starts.
            if self._is_late(candidate, now_s):
                reason = why_late(candidate, now_s)
                out.append(Reject(candidate.job.id, reason))
            elif not blocked:
                actions, blocked = self._try(room, candidate)
                out += actions
        return out

    def _is_late(self, candidate: ReadyJob, now_s: float) -> bool:
        if self._parameters.late != "drop":
            return False
        return least_option(candidate, now_s) is None

    def _try(
        self, room: Room, candidate: ReadyJob
    ) -> tuple[list[Action], bool]:
        """The start of a job, or the reason why it waits; and True where those
        behind it wait too.
        """
        job = candidate.job
        rate_bps = job.bandwidth_bps if self._reserves else 0
        held = room.place(job.n_vms, rate_bps)
        if held is not None:
            return [Start(job.id, held.placement, rate_bps)], False
        reasons = self.explain(room, candidate, rate_bps)
        rejected = any(isinstance(reason, Reject) for reason in reasons)
        # A rejected job leaves the queue, and so blocks nobody.
        return reasons, self._parameters.queue == "block" and not rejected


def _claims(parameters: FixedDemandParameters) -> tuple[Claim, ...]:
    """Claims of policies in order of arrival."""
    # Everybody starts in the end only where nobody is dropped or overtaken.
    blocks = parameters.queue == "block" and parameters.late == "run"
    return ("no-preemption", *(("no-starvation",) if blocks else ()))


def _embedding(name: str, summary: str, rank: SortKey) -> PolicyKind:
    return PolicyKind(
        name,
        summary,
        lambda embedder, parameters: FixedDemand(
            name, embedder, rank, parameters
        ),
        FixedDemandParameters,
        embeds=True,
        on_failure=("requeue", "kill", "wait"),
        claims=_claims if rank is by_arrival else ("no-preemption",),
    )


POLICIES = (
    _embedding(
        "edf", "earliest deadline first, at a fixed bandwidth", by_deadline
    ),
    _embedding(
        "oktopus-batch",
        "Oktopus virtual clusters that wait, in order of arrival",
        by_arrival,
    ),
    PolicyKind(
        "ps-p",
        "slots in order of arrival, links shared by weights (FairCloud's PS-P)",
        lambda _, parameters: FixedDemand(
            "ps-p", SlotsAlone(), by_arrival, parameters, reserves=False
        ),
        FixedDemandParameters,
        sharing=SharingModel("lockstep", "proximate"),
        on_failure=("wait", "kill"),
        claims=_claims,
    ),
)
