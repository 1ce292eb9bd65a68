"""What a ``workload`` section comes to: jobs, their places, and what is known of their origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.request import JobRequest
from testbed.spec.problems import Place


@dataclass(frozen=True)
class Ladder:
    """What a profile is measured with: bandwidths rising, each tried ``repetitions`` times.

    ``modelled``: what is estimated is the application's model; of a command there is none.
    """

    application: str
    bandwidths_bps: tuple[int, ...]
    repetitions: int
    tolerance: float
    modelled: bool = True


@dataclass(frozen=True, eq=False)
class Workload:
    """What the ``workload`` section asks for.

    ``jobs`` are empty where anything is wrong with the section; those of a trace are made when
    they are looked at. ``places`` are by job id: the line of a trace or the entry of the file that
    asked for it. ``applications`` are the names that the jobs bear; None where they could not all
    be read. ``facts`` are where a trace's or a model's jobs come from, for JSON, ``notes`` the same
    in sentences; both are empty where the file lists the jobs itself. ``ladder`` is what a profile
    is to be measured with, where the jobs are its runs.
    """

    jobs: Sequence[JobRequest] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    applications: tuple[str, ...] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    ladder: Ladder | None = None
