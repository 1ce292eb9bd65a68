"""Why a job waited: what a run's events say of one job, and who overtook it
meanwhile.

Reads nothing of a policy but the reasons that it left in the events
(``job_waits``), so that it explains runs of any policy, simulated or live.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from testbed import events
from testbed.errors import BadInput
from testbed.record.job_lives import FOREGROUND, JobLives
from testbed.units import (
    human_bandwidth,
    human_duration,
    number_of,
)

SHOWN_SERVERS = 6
SHOWN_JOBS = 5


@dataclass(frozen=True)
class Step:
    """One event of the job: ``says`` is its description."""

    t: float
    event: str
    says: str
    behind: tuple[str, ...] = ()
    until_s: float | None = None


@dataclass(frozen=True)
class Overtaker:
    """A job that was submitted later and started while this one waited."""

    job_id: str
    submit_s: float
    start_s: float
    n_vms: int


@dataclass
class Explanation:
    """All that a run's events say of one job. Times are experiment seconds."""

    job_id: str
    policy: str
    submit_s: float
    n_vms: int
    bandwidth_bps: int
    start_s: float | None = None
    end_s: float | None = None
    outcome: str = "unfinished"
    reason: str = ""
    waited_s: float = 0.0
    cut_s: float = 0.0
    steps: list[Step] = field(default_factory=list)
    overtaken_by: list[Overtaker] = field(default_factory=list)

    @property
    def asked(self) -> str:
        """``6 VMs`` or ``6 VMs at 500 Mbit/s``."""
        vms = number_of(self.n_vms, "VM")
        if not self.bandwidth_bps:
            return vms
        return f"{vms} at {human_bandwidth(self.bandwidth_bps)}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def explained(stream: Iterable[events.Event], job_id: str) -> Explanation:
    """One pass over a run's events. Raises BadInput where no such job was
    submitted.

    Memory: two figures for every later job that is there at a time.
    """
    looking = _Looking(job_id)
    for event in stream:
        looking.at(event)
    return looking.result()


class _Looking:
    """The pass: what was seen of the job, and of those that came after it."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._policy = ""
        self._now_s = 0.0
        # Only the job's own events are followed: memory does not grow with
        # other jobs.
        self._lives = JobLives()
        self._explanation: Explanation | None = None
        self._since_s: float | None = None
        self._cut_since_s: float | None = None
        self._others: list[str] = []
        self._later: dict[str, tuple[float, int]] = {}

    def at(self, event: events.Event) -> None:
        self._now_s = event.t
        explanation = self._explanation
        if isinstance(event, events.RunStarted):
            self._policy = event.policy
        elif isinstance(event, events.JobSubmitted):
            self._submitted(event)
        elif explanation is None or not isinstance(event, events.JobEvent):
            return
        elif event.job_id == self._job_id:
            self._follow(explanation, event)
        elif isinstance(event, events.JobEnded):
            # It can overtake no more, so that memory follows the jobs that
            # are there at a time.
            self._later.pop(event.job_id, None)
        elif (
            isinstance(event, events.JobStarted)
            and self._since_s is not None
        ):
            self._overtaken(explanation, event)

    def result(self) -> Explanation:
        explanation = self._explanation
        if explanation is None:
            hint = None
            if self._others:
                hint = f"jobs are named as {', '.join(self._others)}"
            raise BadInput(
                f"no job {self._job_id!r} was submitted in this run", hint
            )
        # It still waits where the events end.
        if self._since_s is not None:
            explanation.waited_s += self._now_s - self._since_s
        return explanation

    def _submitted(self, event: events.JobSubmitted) -> None:
        name = str(event.job["id"])
        n_vms = int(event.job["n_vms"])
        if name == self._job_id:
            bandwidth_bps = int(event.job["bandwidth_bps"])
            explanation = Explanation(
                name, self._policy, event.t, n_vms, bandwidth_bps
            )
            says = f"submitted, asks for {explanation.asked}"
            explanation.steps.append(Step(event.t, event.name, says))
            self._explanation = explanation
            self._since_s = event.t
            self._lives.follow(event)
        # Only jobs submitted after it can overtake it.
        elif self._explanation is not None:
            self._later[name] = (event.t, n_vms)
        elif len(self._others) < SHOWN_JOBS:
            self._others.append(name)

    def _overtaken(
        self, explanation: Explanation, event: events.JobStarted
    ) -> None:
        """Records an overtaker: a job that arrives later and starts earlier."""
        if event.job_id in self._later:
            submit_s, n_vms = self._later[event.job_id]
            overtaker = Overtaker(event.job_id, submit_s, event.t, n_vms)
            explanation.overtaken_by.append(overtaker)

    def _follow(
        self, explanation: Explanation, event: events.JobEvent
    ) -> None:
        """Records an event of the job, and whether it waits from then on."""
        self._lives.follow(event)
        life = self._lives.jobs[self._job_id]
        explanation.start_s = life.start_s
        if isinstance(event, events.JobEnded):
            explanation.end_s = life.end_s
            explanation.outcome = life.outcome
            explanation.reason = life.reason
        message = event_sentence(event)
        if message is None:
            return
        step = Step(event.t, event.name, message)
        if isinstance(event, events.JobWaits):
            step = replace(
                step, behind=tuple(event.behind), until_s=event.until_s
            )
        explanation.steps.append(step)
        if life.waits:
            if self._since_s is None:
                self._since_s = event.t
        elif self._since_s is not None:
            explanation.waited_s += event.t - self._since_s
            self._since_s = None
        self._cut(explanation, life.phase == "cut")

    def _cut(self, explanation: Explanation, cut: bool) -> None:
        if cut:
            if self._cut_since_s is None:
                self._cut_since_s = self._now_s
        elif self._cut_since_s is not None:
            explanation.cut_s += self._now_s - self._cut_since_s
            self._cut_since_s = None


_SAYS: dict[type[events.Event], str] = {
    events.JobWaits: "waits: {event.reason}",
    events.JobReserved: "is placed {where}",
    events.JobStarted: "starts",
    events.JobPreempted: "is preempted: {event.reason}",
    events.JobResumed: "resumes where it was{after}",
    events.JobMigrated: "resumes {where}{after}: {event.reason}",
    events.JobTierSwitched: "continues in the {event.tier} of its nodes",
    events.JobRescaled: "has {rate} a VM from now on",
    events.JobRerooted: "takes the paths of another root, its VMs where they are: {event.reason}",
    events.JobCut: "is cut, and stands still: {event.reason}",
    events.JobReconnected: "gets on: all its VMs reach each other again",
    events.JobRequeued: "is stopped, and waits to start anew: {event.reason}",
    events.JobEnded: "{event.outcome}",
}


def event_sentence(event: events.Event) -> str | None:
    """An event as a sentence about its job; None where it is of no interest to
    people.
    """
    says = _SAYS.get(type(event))
    if says is None:
        return None
    if isinstance(event, events.JobReserved) and event.start_s > event.t:
        says = "has a reservation from {event.start_s:.6g} s {where}"
    elif isinstance(event, events.JobEnded) and event.reason:
        says = "{event.outcome}: {event.reason}"
    # Most kinds of events have but some of these.
    vms_on = getattr(event, "vms_on", [])
    tier = getattr(event, "tier", FOREGROUND)
    cost_s = getattr(event, "cost_s", 0.0)
    after = ""
    if cost_s:
        after = f" after {human_duration(cost_s)} of restoring"
    return says.format(
        event=event,
        where=_where(vms_on, tier),
        after=after,
        rate=human_bandwidth(getattr(event, "rate_bps", 0)),
    )


def kind_of_reason(reason: str) -> str:
    """A rejection's reason without its numbers: alike for all of its kind."""
    return re.sub(r"\d[\d.,]*", "…", reason) or "none given"


def _where(vms_on: list[list[int]], tier: str) -> str:
    """``on server 3 (2 VMs), server 5`` by the servers' numbers."""
    servers = []
    for server, count in vms_on:
        servers.append(
            f"{server} ({count} VMs)" if count > 1 else str(server)
        )
    text = "on server " if len(servers) <= 1 else "on servers "
    text += ", ".join(servers[:SHOWN_SERVERS])
    n_left = len(servers) - SHOWN_SERVERS
    if n_left > 0:
        text += f" and {n_left} more"
    if tier != FOREGROUND:
        text += f", in the {tier}"
    return text
