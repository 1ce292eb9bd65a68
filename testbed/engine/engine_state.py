"""The engine's state: jobs, reservations, and the time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from testbed import events
from testbed.embedding.placement import Placement, hose_bps, tree_of
from testbed.engine.backend import Backend
from testbed.engine.job_states import JobState
from testbed.engine.tier_reservations import Reservations
from testbed.reservation.ledger import Ledger
from testbed.schedulers import actions as act
from topologies.datacentre import DataCentre

Sink = Callable[[events.Event], None]
Fields = ParamSpec("Fields")


class EngineState(ABC):
    """Jobs and reservations of a run. Its abstract methods are those that
    :mod:`testbed.engine.outages` needs of the engine.
    """

    def __init__(
        self, datacentre: DataCentre, backend: Backend, sink: Sink | None
    ) -> None:
        self.datacentre = datacentre
        self.backend = backend
        self._sink = sink
        self.reservations = Reservations(datacentre)
        self.jobs: dict[str, JobState] = {}
        # Ids in order. Dictionaries, as a removal takes no longer in long ones.
        self.waiting: dict[str, None] = {}
        self.running: dict[str, None] = {}
        self.now_s = 0.0
        # The most that any job has asked for per VM (B_max).
        self.largest_bps = 0
        # True in the middle of a policy's list of actions.
        self.deciding = False
        # True where ``waiting`` has to be sorted again.
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

    def emit(
        self,
        kind: Callable[Concatenate[float, Fields], events.Event],
        *values: Fields.args,
        **fields: Fields.kwargs,
    ) -> None:
        """Sends an event of now to the sink, if there is one.

        For rare events. The engine makes those that every job has without this
        call, which would slow a whole simulation by a tenth.
        """
        if self._sink is not None:
            self._sink(kind(self.now_s, *values, **fields))

    def links(self, placement: Placement, rate_bps: int) -> list[list[int]]:
        """Pairs of each directed link and the bit/s that a placement takes of it,
        by link.
        """
        if not rate_bps or not self.datacentre.n_links:
            return []
        tree = tree_of(self.datacentre, placement.root)
        need = hose_bps(tree, placement, rate_bps)
        # In order: the same run makes the same bytes.
        return [[link, bps] for link, bps in sorted(need.items())]

    @abstractmethod
    def catch_up(self) -> None:
        """Sets the time to the backend's, whose clock runs on while it carries
        out requests.
        """

    @abstractmethod
    def ask(self, event: act.PolicyEvent) -> None:
        """Has the policy decide, and does what it says."""

    @abstractmethod
    def kill(self, job_id: str, reason: str) -> None:
        """Ends a job at once."""

    @abstractmethod
    def requeue(self, job: JobState, reason: str) -> None:
        """Lets a job start anew, at its old place in the queue."""
