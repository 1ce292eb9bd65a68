"""A run's events in order, with their lines, and each job's own: what every check reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from testbed import events
from testbed.results.audit.world import World
from testbed.results.read import EventFile, Line

Kind = TypeVar("Kind", bound=events.Event)


@dataclass
class Dossier:
    """One job: its request and all its events, in the order of the file."""

    job_id: str
    lines: list[Line] = field(default_factory=list)

    def all(self, kind: type[Kind]) -> list[tuple[int, Kind]]:
        return [(line.number, line.event) for line in self.lines if isinstance(line.event, kind)]

    def first(self, kind: type[Kind]) -> tuple[int, Kind] | None:
        return next(iter(self.all(kind)), None)

    @property
    def request(self) -> Mapping[str, Any] | None:
        submitted = self.first(events.JobSubmitted)
        return None if submitted is None else submitted[1].job

    @property
    def slots_per_vm(self) -> int:
        """What each of its VMs takes of a server's slots: the cores of a lease, else 1."""
        return int((self.request or {}).get("cores", 1))

    @property
    def memory_per_vm_mib(self) -> int:
        return int((self.request or {}).get("memory_mib", 0))


@dataclass(frozen=True)
class History:
    """The run under audit. ``folder`` is where its tables lie."""

    folder: Path
    file: EventFile
    started: events.RunStarted

    @cached_property
    def world(self) -> World:
        return World(self.started.topology)

    @cached_property
    def jobs(self) -> dict[str, Dossier]:
        """Every job any event names, by first mention."""
        out: dict[str, Dossier] = {}
        for line in self.file.lines:
            job_id = job_of(line.event)
            if job_id is not None:
                out.setdefault(job_id, Dossier(job_id)).lines.append(line)
        return out

    @property
    def end_s(self) -> float:
        return self.file.lines[-1].event.t

    @property
    def live_slack_s(self) -> float:
        """By how much a live world may be late, since processes take a moment to start and to be
        ended: a second, and one per cent of the run's length. Nothing in a simulated one.
        """
        return 1.0 + 0.01 * self.end_s if self.started.backend == "live" else 0.0

    def each(self, kind: type[Kind]) -> Iterator[tuple[int, Kind]]:
        """All events of a kind with their lines."""
        for line in self.file.lines:
            if isinstance(line.event, kind):
                yield line.number, line.event

    @property
    def policy(self) -> str:
        """The policy's name without its parameters: ``dcloud-ts`` of ``dcloud-ts-gamma=0.12``."""
        return re.split(r"-[a-z_]+=", self.started.policy, maxsplit=1)[0]


def job_of(event: events.Event) -> str | None:
    """The job an event is about; None for the run's own events."""
    if isinstance(event, events.JobSubmitted):
        return str(event.job["id"])
    job_id = getattr(event, "job_id", None)
    return job_id if isinstance(job_id, str) else None


def about(a: float, b: float, slack_s: float = 0.0) -> bool:
    """``a <= b`` but for the rounding of sums of floats (and ``slack_s``)."""
    return a <= b + slack_s + 1e-9 * max(1.0, abs(a), abs(b))
