"""EDF, Oktopus in batches and PS-P: JSA's baselines, each job at its fixed demand B̄ or not yet.

They "use B̄ as predicted bandwidth demand" (JSA, Section V.A) and meet the same rounds as JSA does:
whenever something arrives or ends, the jobs that wait are gone through in order and those that fit
are started. EDF's order is the earliest deadline first; ``oktopus-batch`` embeds virtual clusters
in order of arrival, and unlike ``vc`` lets those wait that do not fit; PS-P, in the same order,
asks for slots alone and leaves the network to weighted sharing (FairCloud).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from jobs.request import JobRequest
from testbed.embedding.base import Embedder
from testbed.embedding.placement import Placement, Residual
from testbed.schedulers.actions import Action, PolicyEvent, Reject, Start, Woken
from testbed.schedulers.bl import lowest_subtree
from testbed.schedulers.jsa import SLACK, Candidate, Find, Room, Rounds, explain, why_late
from testbed.schedulers.policy import PolicyKind, SharingModel, View, parameter
from testbed.schedulers.queues import SortKey, by_arrival
from topologies.datacentre import DataCentre

Late = Literal["drop", "run"]
"""What becomes of a waiting job that B̄ can no longer bring to its deadline."""

LATE: tuple[Late, ...] = get_args(Late)

Queue = Literal["skip", "block"]
"""Whether those behind a job that does not fit are tried."""

QUEUES: tuple[Queue, ...] = get_args(Queue)

COMPLETE = ("exact", "oktopus", "vmplace")
"""Embedders that find a placement whenever there is one (decisions 06 and 07)."""


def by_deadline(job: JobRequest) -> float:
    """The earliest deadline first."""
    return math.inf if job.deadline_at_s is None else job.deadline_at_s


def finder(embedder: Embedder) -> Find:
    """An embedder as called within a round."""

    def find(datacentre: DataCentre, free: Residual, n_vms: int, rate_bps: int) -> Placement | None:
        answer = embedder.embed(datacentre, free, n_vms, rate_bps)
        return answer if isinstance(answer, Placement) else None

    return find


def by_slots(
    datacentre: DataCentre,
    free: Residual,
    n_vms: int,
    rate_bps: int,  # noqa: ARG001
) -> Placement | None:
    """The lowest subtree with enough slots, whatever its links have left: PS-P's placement."""
    return lowest_subtree(datacentre, free.free_slots, n_vms)


class FixedDemand:
    """Starts jobs at B̄, in the order of ``rank`` (smallest first, equal ones by arrival).

    ``reserves`` False: only slots are asked for, and jobs share the network at rate 0.
    """

    def __init__(
        self,
        name: str,
        find: Find,
        rank: SortKey,
        *,
        late: Late = "drop",
        queue: Queue = "skip",
        complete: bool = True,
        reserves: bool = True,
    ) -> None:
        self.name = name
        self._find = find
        self._rank = rank
        self._late = late
        self._queue = queue
        self._complete = complete
        self._reserves = reserves
        self._rounds = Rounds()
        self._explained: set[str] = set()
        self._candidates: dict[str, tuple[float, int, Candidate]] = {}

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if not isinstance(event, Woken):
            return self._rounds.ask(view, event)
        self._rounds.begin()
        return self._round(view)

    def _round(self, view: View) -> list[Action]:
        if not view.waiting():
            return []
        free = view.residual(view.now_s, None)
        room = Room(view.datacentre, free, self._find, complete=self._complete)
        out: list[Action] = []
        blocked = False
        for candidate in self._in_order(view):
            if self._late == "drop" and is_late(candidate, view.now_s):
                out.append(Reject(candidate.job.id, why_late(candidate, view.now_s)))
                continue
            job = candidate.job
            rate_bps = job.bandwidth_bps if self._reserves else 0
            held = None if blocked else room.place(job.n_vms, rate_bps)
            if held is not None:
                out.append(Start(job.id, held.placement, rate_bps))
                continue
            if blocked or (job.id in self._explained and not room.idle):
                reasons: list[Action] = []
            else:
                reasons = explain(room, [(candidate, rate_bps)], self._explained)
            out += reasons
            if self._queue == "block" and not any(isinstance(one, Reject) for one in reasons):
                blocked = True
        return out

    def _in_order(self, view: View) -> list[Candidate]:
        ranked = sorted(self._ranked(view, job_id) for job_id in view.waiting())
        return [candidate for _, _, candidate in ranked]

    def _ranked(self, view: View, job_id: str) -> tuple[float, int, Candidate]:
        """A job with its rank and its arrival, of which no two are the same."""
        known = self._candidates.get(job_id)
        if known is None:
            job, order = view.job(job_id), view.order(job_id)
            only = ((job.bandwidth_bps, job.duration_s),)
            known = self._rank(job), order, Candidate(job, only, order)
            self._candidates[job_id] = known
        return known


def is_late(candidate: Candidate, now_s: float) -> bool:
    """True of a job that misses its deadline even if it starts now, at B̄."""
    due_s = candidate.due_s
    return now_s + candidate.options[0][1] > due_s + SLACK * max(1.0, abs(due_s))


@dataclass(frozen=True)
class FixedDemandParameters:
    late: Late = parameter(LATE[0], "what becomes of a job that is too late for B̄", choices=LATE)
    queue: Queue = parameter(QUEUES[0], "jobs behind one that does not fit", choices=QUEUES)


def _embedding(name: str, summary: str, rank: SortKey) -> PolicyKind:
    def build(embedder: Embedder, given: FixedDemandParameters) -> FixedDemand:
        return FixedDemand(
            name,
            finder(embedder),
            rank,
            late=given.late,
            queue=given.queue,
            complete=embedder.name in COMPLETE,
        )

    return PolicyKind(
        name, summary, build, FixedDemandParameters, embeds=True, claims=("no-preemption",)
    )


POLICIES = (
    _embedding("edf", "earliest deadline first, at a fixed bandwidth", by_deadline),
    _embedding(
        "oktopus-batch", "Oktopus virtual clusters that wait, in order of arrival", by_arrival
    ),
    PolicyKind(
        "ps-p",
        "slots in order of arrival, links shared by weights (FairCloud's PS-P)",
        lambda _, given: FixedDemand(
            "ps-p", by_slots, by_arrival, late=given.late, queue=given.queue, reserves=False
        ),
        FixedDemandParameters,
        sharing=SharingModel("lockstep", "proximate"),
        claims=("no-preemption",),
    ),
)
