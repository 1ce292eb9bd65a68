"""The read-only window that a policy decides from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.request import JobRequest
from testbed.embedding.placement import Placement, Residual
from testbed.reservation.ledger import Ledger
from testbed.schedulers.actions import Tier
from topologies.datacentre import DataCentre

if TYPE_CHECKING:
    from testbed.engine.engine import Engine


class EngineView:
    """See :class:`testbed.schedulers.policy.View`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._jobs = engine.jobs
        self.datacentre: DataCentre = engine.datacentre
        self.listening = engine.listening
        # Kept by the engine: nothing is looked at as often.
        self.now_s = engine.now_s

    def job(self, job_id: str) -> JobRequest:
        """The request as policies may know it: the true duration stays hidden."""
        return self._jobs[job_id].visible

    def waiting(self) -> tuple[str, ...]:
        return self._engine.waiting_by_arrival()

    def running(self) -> tuple[str, ...]:
        return tuple(self._engine.running)

    def placement(self, job_id: str) -> Placement | None:
        return self._jobs[job_id].placement

    def left(self, job_id: str) -> Placement | None:
        return self._jobs[job_id].left

    def tier(self, job_id: str) -> Tier:
        return self._jobs[job_id].tier

    def order(self, job_id: str) -> int:
        return self._jobs[job_id].order

    @property
    def largest_bps(self) -> int:
        return self._engine.largest_bps

    def residual(self, start_s: float, end_s: float | None, tier: Tier = "foreground") -> Residual:
        return self._engine.books.residual(start_s, end_s, tier)

    @property
    def ledger(self) -> Ledger:
        return self._engine.books.foreground
