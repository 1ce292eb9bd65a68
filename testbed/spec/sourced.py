"""Jobs and the places in a file that they come from."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.request import JobRequest
from testbed.spec.problems import Place


@dataclass(frozen=True)
class SourcedJob:
    """A job of the workload; a line of a trace or an entry of the file asked for it."""

    job: JobRequest
    place: Place


@dataclass(frozen=True)
class Workload:
    """What the ``workload`` section asks for.

    ``jobs`` are empty where anything is wrong with the section. ``applications`` are the names
    that its jobs bear; None where they could not all be read.
    """

    jobs: tuple[SourcedJob, ...] = ()
    applications: tuple[str, ...] | None = None
