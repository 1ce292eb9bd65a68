"""The events of a run, from which progress, metrics, report and audit follow.

``events.jsonl`` has a JSON object a line: ``{"t": seconds since the run began,
"event": NAME, ...}``. Rates and times are in experiment units; raw values of
the emulated wire end in ``_raw``.
"""

from __future__ import annotations

import re
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

from annotated_types import Len
from pydantic import AfterValidator, ConfigDict, Field

LARGEST = 10**30
"""A bound on all numbers, far below where arithmetic with floats overflows."""

OUTLASTED = "its reservation ended before it did"
NOT_STARTED = "it could not be started"
FAILED = "stopped by a failure"
"""Reasons of kills that neither the policy nor a failure of the running job's
program caused.
"""

Int = Annotated[int, Field(strict=True, gt=-LARGEST, lt=LARGEST)]
Number = Annotated[float, Field(strict=True, gt=-LARGEST, lt=LARGEST)]
Pair = Annotated[list[Int], Len(2, 2)]


def _of_a_link(sample: list[float]) -> list[float]:
    if sample[0] != int(sample[0]):
        raise ValueError(f"{sample[0]} is no directed link")
    return sample


Sample = Annotated[list[Number], Len(3, 3), AfterValidator(_of_a_link)]
"""``[directed link, sent, reserved]``."""


@dataclass(frozen=True)
class Event:
    """``t``: experiment time in seconds. ``name``: the class's name in snake
    case.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    t: Number
    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def to_json(self) -> dict[str, Any]:
        """The record, as :func:`dataclasses.asdict` has it, in a tenth of the
        time. It shares its lists with the event: do not change them.
        """
        return {"t": self.t, "event": self.name, **vars(self)}


@dataclass(frozen=True)
class RunStarted(Event):
    """``topology``: names, slots, links (lower, upper, capacities) and trees, as
    audit and page need them.
    """

    run: str
    policy: str
    backend: str
    seed: Int
    topology: dict[str, Any]


class JobRecord(UserDict[str, Any]):
    """The record of a job's request, made by ``make`` on first access."""

    def __init__(self, make: Callable[[], dict[str, Any]]) -> None:
        self._make = make

    @cached_property
    def data(self) -> dict[str, Any]:  # type: ignore[override]
        return self._make()


@dataclass(frozen=True)
class JobEvent(Event):
    job_id: str


@dataclass(frozen=True)
class JobSubmitted(Event):
    job: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        job = (
            self.job.data
            if isinstance(self.job, JobRecord)
            else dict(self.job)
        )
        return {"t": self.t, "event": self.name, "job": job}


@dataclass(frozen=True)
class JobReserved(JobEvent):
    """A reservation for ``[start_s, end_s)``; ``end_s`` None until the job
    ends.

    ``estimate_s`` is None for best effort: a job at rate 0 that wants
    bandwidth. ``vms_on`` [[server, count]], ``links`` [[directed link, bps]].
    """

    start_s: Number
    end_s: Number | None
    rate_bps: Int
    estimate_s: Number | None
    root: Int
    vms_on: list[Pair]
    links: list[Pair]
    tier: str = "foreground"


@dataclass(frozen=True)
class JobWaits(JobEvent):
    """The reason for which a job waits from now on; written when it changes.

    ``behind``: ids of jobs that it waits for. ``until_s``: its earliest start as
    far as the policy knows.
    """

    reason: str
    behind: list[str]
    until_s: Number | None


@dataclass(frozen=True)
class JobStarted(JobEvent):
    rate_bps: Int
    tier: str = "foreground"


@dataclass(frozen=True)
class JobRescaled(JobEvent):
    """The reservation's links from now on."""

    rate_bps: Int
    links: list[Pair]


@dataclass(frozen=True)
class JobProgress(JobEvent):
    """``received_bytes``: payload so far over all VMs. ``share``: of the job's
    volume.
    """

    received_bytes: Int
    share: Number


@dataclass(frozen=True)
class JobEnded(JobEvent):
    """``outcome``: finished, rejected, killed, unfinished. The job's reservation
    is free from ``t``.
    """

    outcome: str
    reason: str
    measured_s: Number | None
    detail: dict[str, Any]

    @property
    def killed_by_policy(self) -> bool:
        """True for a Kill of the policy's; jobs that failed while they ran have a
        detail.
        """
        forced = self.detail or self.reason.startswith(
            (OUTLASTED, NOT_STARTED, FAILED)
        )
        return self.outcome == "killed" and not forced


@dataclass(frozen=True)
class JobShortened(JobEvent):
    """The reservation now ends at ``until_s``, when a job that has not ended is
    preempted.
    """

    until_s: Number
    reason: str


@dataclass(frozen=True)
class JobPreempted(JobEvent):
    reason: str


@dataclass(frozen=True)
class JobResumed(JobEvent):
    """It resumes where it was; its first ``cost_s`` there make no progress.

    ``end_s``: until when it is reserved there; None until the job ends.
    """

    tier: str = "foreground"
    cost_s: Number = 0.0
    end_s: Number | None = None


@dataclass(frozen=True)
class JobMigrated(JobEvent):
    """It resumes elsewhere; its first ``cost_s`` there make no progress.

    ``end_s``: until when it is reserved there; None until the job ends.
    """

    reason: str
    root: Int
    vms_on: list[Pair]
    links: list[Pair]
    tier: str = "foreground"
    cost_s: Number = 0.0
    end_s: Number | None = None


@dataclass(frozen=True)
class JobTierSwitched(JobEvent):
    """The same nodes, from now on the other tier's CPU priority."""

    tier: str


@dataclass(frozen=True)
class JobRerooted(JobEvent):
    """The same nodes, from now on below another root. ``links``: those of its
    reservation there.
    """

    reason: str
    root: Int
    links: list[Pair]


@dataclass(frozen=True)
class JobCut(JobEvent):
    """Some of its VMs do not reach others from now on; its reservation stays."""

    reason: str


@dataclass(frozen=True)
class JobReconnected(JobEvent):
    """All of its VMs reach each other again, on the paths that it has."""


@dataclass(frozen=True)
class JobRequeued(JobEvent):
    """It gives back what it holds and waits, at its old place, to start anew."""

    reason: str


@dataclass(frozen=True)
class LinkFailed(Event):
    """The link carries nothing from now on, in both directions. ``link``: an
    undirected link's number.
    """

    link: Int


@dataclass(frozen=True)
class LinkRestored(Event):
    link: Int


@dataclass(frozen=True)
class ServerFailed(Event):
    """``server``: its node's number; whatever its VMs did is lost."""

    server: Int


@dataclass(frozen=True)
class ServerRestored(Event):
    server: Int


@dataclass(frozen=True)
class SwitchRestarted(Event):
    """``switch``: its node's number."""

    switch: Int


@dataclass(frozen=True)
class ControllerKilled(Event):
    """It was killed, and started again."""


@dataclass(frozen=True)
class LinkSample(Event):
    """Rates on directed links in bit/s: [[id, mean sent since the last sample,
    reserved now]].
    """

    interval_s: Number
    links: list[Sample]


@dataclass(frozen=True)
class FidelityNoted(Event):
    """An observation about fidelity. ``level``: ok, suspect or invalid."""

    level: str
    check: str
    reason: str
    figures: dict[str, Number]


@dataclass(frozen=True)
class RunEnded(Event):
    status: str
    reason: str


EVENTS: dict[str, type[Event]] = {
    kind.name: kind
    for kind in (*Event.__subclasses__(), *JobEvent.__subclasses__())
    if kind is not JobEvent
}
