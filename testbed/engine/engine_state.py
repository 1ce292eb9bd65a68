"""The engine's state: jobs, reservations, and the time."""

from __future__ import annotations

from abc import ABC, abstractmethod

from testbed import events
from testbed.embedding.placement import Placement
from testbed.engine.backend import Backend
from testbed.engine.job_states import JobState
from testbed.engine.tier_reservations import Reservations
from testbed.reservation.ledger import Ledger
from testbed.schedulers import actions as act
from topologies.datacentre import DataCentre


class EngineState(ABC):
    """Jobs and reservations of a run, and what is done to them when something
    fails.
    """

    def __init__(self, datacentre: DataCentre, backend: Backend) -> None:
        self.datacentre = datacentre
        self.backend = backend
        self.reservations = Reservations(datacentre)
        self.jobs: dict[str, JobState] = {}
        self.waiting: dict[str, None] = {}
        self.running: dict[str, None] = {}
        self.now_s = 0.0
        self.largest_bps = 0
        self.out_of_order = False

    @property
    def ledger(self) -> Ledger:
        """The foreground's ledger: the only one of policies without tiers."""
        return self.reservations.ledger()

    def waiting_by_arrival(self) -> tuple[str, ...]:
        """Waiting jobs, preempted ones at their old place."""
        # Sorted on demand: most runs preempt nobody, and their jobs wait in
        # the order in which they came.
        if self.out_of_order:
            order = sorted(
                self.waiting, key=lambda job_id: self.jobs[job_id].order
            )
            self.waiting = dict.fromkeys(order)
            self.out_of_order = False
        return tuple(self.waiting)

    @abstractmethod
    def catch_up(self) -> None:
        """Sets the time to the backend's, which passes while the backend does
        what it is asked to.
        """

    @abstractmethod
    def ask(self, event: act.PolicyEvent) -> None:
        """Has the policy decide, and does what it says."""

    @abstractmethod
    def emit(self, event: events.Event) -> None: ...

    @abstractmethod
    def kill(self, job_id: str, reason: str) -> None: ...

    @abstractmethod
    def requeue(self, job: JobState, reason: str) -> None:
        """Lets a job start anew, at its old place in the queue."""

    @abstractmethod
    def links(self, placement: Placement, rate_bps: int) -> list[list[int]]:
        """Bandwidth that a placement takes of each link."""
