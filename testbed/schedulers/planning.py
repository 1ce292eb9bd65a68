"""One scheduling pass over a waiting queue: what is free as it goes on, and what it decides.

A pass places several jobs before the engine books the first of them, so it keeps its own account
of what is free.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from jobs.request import JobRequest
from testbed.embedding.base import Embedder
from testbed.embedding.exact import least_bandwidth
from testbed.embedding.placement import Placement, Refusal, Residual
from testbed.reservation.ledger import footprint
from testbed.reservation.timeline import Footprint
from testbed.schedulers.actions import Action, Migrate, Preempt, Resume, Start, Wait
from testbed.schedulers.policy import View
from topologies.datacentre import DataCentre

Hose = tuple[int, int]
"""VMs and bit/s per VM."""


@dataclass
class Refused:
    """Hoses that found no place in what was free, for as long as nothing about it changes.

    An embedder is a function of what is free and of the largest request so far; asking it the same
    again costs time and has the same answer. Most passes begin where the last one ended.
    """

    largest_bps: int = -1
    slots: bytes = b""
    bps: bytes = b""
    reasons: dict[Hose, Refusal] = field(default_factory=dict)

    def still(self, largest_bps: int, free: Residual) -> dict[Hose, Refusal]:
        """What is known to be refused now; empty where anything is different."""
        now = (largest_bps, free.free_slots.tobytes(), free.free_bps.tobytes())
        if now != (self.largest_bps, self.slots, self.bps):
            self.largest_bps, self.slots, self.bps = now
            self.reasons = {}
        return self.reasons


class Pass:
    """One pass: tries jobs in the order it is told to, and gathers the actions.

    ``cost_s`` is what it costs a preempted job to go on (0: nothing).
    """

    def __init__(
        self, view: View, embedder: Embedder, refused: Refused, cost_s: float = 0.0
    ) -> None:
        self.view = view
        self.actions: list[Action] = []
        self._embedder = embedder
        self._refused = refused
        self._cost_s = cost_s
        self._free = view.residual(view.now_s, None)
        self._free_slots = int(self._free.free_slots.sum())
        self._known = refused.still(view.largest_bps, self._free)
        # Whom this pass has evicted, and from where: the view does not know it yet.
        self._evicted: dict[str, Placement] = {}

    def fit(self, job: JobRequest) -> Placement | Refusal:
        """Where a job fits in what is free, or why it does not."""
        if job.n_vms > self._free_slots:
            return Refusal(f"not enough slots: {job.n_vms} asked, {self._free_slots} free")
        hose = (job.n_vms, job.bandwidth_bps)
        known = self._known.get(hose)
        if known is not None:
            return known
        answer = self._embed(job)
        if isinstance(answer, Refusal):
            self._known[hose] = answer
        return answer

    def start(self, job: JobRequest, placement: Placement) -> None:
        """Start a job there, or let it go on there if it was preempted."""
        left = self._evicted.pop(job.id, None) or self.view.left(job.id)
        if left is None:
            self.actions.append(Start(job.id, placement, job.bandwidth_bps))
        elif left == placement:
            self.actions.append(Resume(job.id, self._cost_s))
        else:
            self.actions.append(Migrate(job.id, placement, "its place was given up", self._cost_s))
        self._book(footprint(self._datacentre, placement, job.bandwidth_bps), -1)

    def try_to_start(self, job: JobRequest) -> Refusal | None:
        """Start a job if it fits; else why it does not."""
        answer = self.fit(job)
        if isinstance(answer, Refusal):
            return answer
        self.start(job, answer)
        return None

    def place_alone(self, job: JobRequest) -> bool:
        """Start a job that its embedder finds no place for though nothing is taken.

        It had one when it arrived, but an order of servers that follows the largest request
        (AdaBa) may have changed since, and waiting would help nobody: it gets the placement with
        the least bandwidth. Returns False, having done nothing, where something is taken.
        """
        if self._free_slots != self._datacentre.total_slots:
            return False
        hose = (job.n_vms, job.bandwidth_bps)
        placement = least_bandwidth(self._datacentre, self._free, *hose)
        if placement is None:
            raise ValueError(f"job {job.id} does not fit in an empty data centre")
        self.start(job, placement)
        return True

    def backfilled(self, head: JobRequest) -> list[JobRequest]:
        """Running jobs that arrived later than ``head``, the earliest first."""
        order = self.view.order
        later = [
            job_id
            for job_id in self.view.running()
            if order(job_id) > order(head.id) and job_id not in self._evicted
        ]
        return [self.view.job(job_id) for job_id in sorted(later, key=order)]

    def evict(self, job: JobRequest, reason: str) -> None:
        """Take a running job off its nodes; it waits again."""
        self._evicted[job.id] = self._vacate(job)
        self.actions.append(Preempt(job.id, reason))

    def without(self, jobs: list[JobRequest]) -> Pass:
        """What a pass would find if these running jobs were not there; to ask, not to act."""
        other = Pass(self.view, self._embedder, Refused(), self._cost_s)
        other._free = self._free
        other._free_slots = self._free_slots
        for job in jobs:
            other._vacate(job)
        return other

    def wait(self, job: JobRequest, reason: str, behind: tuple[str, ...] = ()) -> None:
        """Note why a job waits."""
        self.actions.append(Wait(job.id, reason, behind))

    # -- inside -----------------------------------------------------------------------------

    @property
    def _datacentre(self) -> DataCentre:
        return self.view.datacentre

    def _embed(self, job: JobRequest) -> Placement | Refusal:
        return self._embedder.embed(
            self._datacentre,
            self._free,
            job.n_vms,
            job.bandwidth_bps,
            largest_bps=self.view.largest_bps,
        )

    def _vacate(self, job: JobRequest) -> Placement:
        placement = self.view.placement(job.id)
        if placement is None:
            raise ValueError(f"job {job.id} runs nowhere")
        self._book(self.view.ledger.held(job.id), +1)
        return placement

    def _book(self, change: Footprint, sign: int) -> None:
        """Take (-1) or give back (+1) a footprint."""
        servers = self._datacentre.n_servers
        slots, bps = self._free.free_slots.copy(), self._free.free_bps.copy()
        # Objects stand in order of their numbers: servers, then links.
        links = int(np.searchsorted(change.objects, servers))
        amounts = sign * change.amounts
        slots[change.objects[:links]] += amounts[:links]
        up = 2 * (change.objects[links:] - servers)
        bps[up] += amounts[links:]
        bps[up + 1] += amounts[links:]
        self._free = Residual(slots, bps)
        self._free_slots += int(amounts[:links].sum())
        self._known = self._refused.still(self.view.largest_bps, self._free)
