"""A policy is pure: ``decide(view, event) -> list[Action]``. The engine does the rest."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jobs.request import JobRequest
from testbed.embedding.placement import Placement, Residual
from testbed.reservation.ledger import Ledger
from testbed.schedulers.actions import Action, PolicyEvent, Tier
from topologies.datacentre import DataCentre


class View(Protocol):
    """What a policy may look at: time, data centre, what is reserved, who waits and runs."""

    @property
    def now_s(self) -> float: ...

    @property
    def datacentre(self) -> DataCentre: ...

    @property
    def listening(self) -> bool:
        """Whether anybody hears why jobs wait; where not, a policy need not work it out."""
        ...

    def job(self, job_id: str) -> JobRequest:
        """A job that is here: not after the decision about its end."""
        ...

    def waiting(self) -> tuple[str, ...]:
        """Jobs submitted and neither running, reserved nor rejected, in order of arrival.

        Preempted jobs are among them, at their old place.
        """
        ...

    def running(self) -> tuple[str, ...]:
        """Jobs that run now, in order of their (last) start."""
        ...

    def placement(self, job_id: str) -> Placement | None:
        """What a job holds now or later; None where it holds nothing."""
        ...

    def left(self, job_id: str) -> Placement | None:
        """Where a preempted job was: it goes on by Resume or Migrate. None for any other."""
        ...

    def tier(self, job_id: str) -> Tier:
        """The tier that a job runs in, or was in when it was preempted."""
        ...

    def order(self, job_id: str) -> int:
        """A job's number by arrival, from 1: the smaller one came earlier."""
        ...

    @property
    def largest_bps(self) -> int:
        """The largest bandwidth that any job submitted so far asked for (AdaBa's B_max)."""
        ...

    def residual(self, start_s: float, end_s: float | None, tier: Tier = "foreground") -> Residual:
        """The least that is free at any instant of ``[start_s, end_s)``; None: for ever."""
        ...

    @property
    def ledger(self) -> Ledger:
        """All reservations over time, to read: for policies that search them (DCloud's RUR)."""
        ...


@runtime_checkable
class Charging(Protocol):
    """A policy that charges: the engine asks it for every job that met its deadline."""

    def price(self, job: JobRequest, ran_s: float) -> float:
        """What the tenant pays, in dollars; ``ran_s`` is how long the job really ran."""
        ...


class Policy(Protocol):
    """A scheduler: deterministic, no clock, no I/O, no randomness of its own."""

    name: str

    def decide(self, view: View, event: PolicyEvent) -> list[Action]: ...
