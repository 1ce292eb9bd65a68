"""A job's history by a run's events: its waits with their reasons, and the jobs
that overtook it.

Of the policy it needs only the reasons in its ``job_waits`` events. So it
explains runs of any policy, simulated or live.
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
    """An event of the job; ``says`` describes it in words.

    ``behind``: the jobs that it waits for from then on; ``until_s``: its
    earliest start by what the policy knows.
    """

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
    """All that a run's events say of one job. Times are experiment seconds.

    ``waited_s`` and ``cut_s`` are lengths: of its waits before its start and
    after preemptions, and of the time for which lost links kept it from
    running.
    """

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
        """Size of its request: ``6 VMs`` or ``6 VMs at 500 Mbit/s``."""
        vms = number_of(self.n_vms, "VM")
        if not self.bandwidth_bps:
            return vms
        return f"{vms} at {human_bandwidth(self.bandwidth_bps)}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def explained(stream: Iterable[events.Event], job_id: str) -> Explanation:
    """The history of a job by one pass over a run's events.

    Raises BadInput where no such job was submitted. Memory grows with the
    number of later jobs that are in the system at once, not with all jobs.
    """
    follower = _Follower(job_id)
    for event in stream:
        follower.follow(event)
    return follower.result()


@dataclass
class _Stopwatch:
    """Time for which something was the case; ``since_s``: None while it is not."""

    total_s: float = 0.0
    since_s: float | None = None

    def note(self, now_s: float, *, runs: bool) -> None:
        """Notes at an event that it is the case from now on, or is not."""
        if self.since_s is None:
            if runs:
                self.since_s = now_s
        elif not runs:
            self.total_s += now_s - self.since_s
            self.since_s = None


class _Follower:
    """One job's history so far, and the jobs that may still overtake it."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._policy = ""
        self._now_s = 0.0
        # It follows the job's own events alone: memory does not grow with
        # other jobs.
        self._lives = JobLives()
        self._explanation: Explanation | None = None
        self._wait = _Stopwatch()
        self._cut = _Stopwatch()
        # Examples of names, for the error if the job is never submitted.
        self._earlier: list[str] = []
        # Job -> when it was submitted, and its number of VMs.
        self._later: dict[str, tuple[float, int]] = {}

    def follow(self, event: events.Event) -> None:
        self._now_s = event.t
        explanation = self._explanation
        if isinstance(event, events.RunStarted):
            self._policy = event.policy
        elif isinstance(event, events.JobSubmitted):
            self._submitted(event)
        elif explanation is None or not isinstance(event, events.JobEvent):
            return
        elif event.job_id == self._job_id:
            self._take_step(explanation, event)
        elif isinstance(event, events.JobEnded):
            # It cannot overtake any more: forgotten, for the memory.
            self._later.pop(event.job_id, None)
        elif (
            isinstance(event, events.JobStarted)
            and self._wait.since_s is not None
            and event.job_id in self._later
        ):
            # A job that is requeued starts again, but overtakes once.
            submit_s, n_vms = self._later.pop(event.job_id)
            overtaker = Overtaker(event.job_id, submit_s, event.t, n_vms)
            explanation.overtaken_by.append(overtaker)

    def result(self) -> Explanation:
        explanation = self._explanation
        if explanation is None:
            hint = None
            if self._earlier:
                hint = f"jobs are named as {', '.join(self._earlier)}"
            raise BadInput(
                f"no job {self._job_id!r} was submitted in this run", hint
            )
        # Where the events end, it may still wait or be cut.
        self._wait.note(self._now_s, runs=False)
        self._cut.note(self._now_s, runs=False)
        explanation.waited_s = self._wait.total_s
        explanation.cut_s = self._cut.total_s
        return explanation

    def _submitted(self, event: events.JobSubmitted) -> None:
        name = str(event.job["id"])
        n_vms = int(event.job["n_vms"])
        if name == self._job_id:
            explanation = Explanation(
                job_id=name,
                policy=self._policy,
                submit_s=event.t,
                n_vms=n_vms,
                bandwidth_bps=int(event.job["bandwidth_bps"]),
            )
            says = f"submitted, asks for {explanation.asked}"
            explanation.steps.append(Step(event.t, event.name, says))
            self._explanation = explanation
            self._wait.note(event.t, runs=True)
            self._lives.follow(event)
        # Only jobs submitted after it can overtake it.
        elif self._explanation is not None:
            self._later[name] = (event.t, n_vms)
        elif len(self._earlier) < SHOWN_JOBS:
            self._earlier.append(name)

    def _take_step(
        self, explanation: Explanation, event: events.JobEvent
    ) -> None:
        """Takes in an event of the job itself."""
        self._lives.follow(event)
        life = self._lives.jobs[self._job_id]
        explanation.start_s = life.start_s
        if isinstance(event, events.JobEnded):
            explanation.end_s = life.end_s
            explanation.outcome = life.outcome
            explanation.reason = life.reason
        self._wait.note(event.t, runs=life.waits)
        self._cut.note(event.t, runs=life.phase == "cut")
        sentence = event_sentence(event)
        if sentence is None:
            return
        step = Step(event.t, event.name, sentence)
        if isinstance(event, events.JobWaits):
            step = replace(
                step, behind=tuple(event.behind), until_s=event.until_s
            )
        explanation.steps.append(step)


_SENTENCES: dict[type[events.Event], str] = {
    events.JobWaits: "waits: {event.reason}",
    events.JobReserved: "is placed {where}",
    events.JobStarted: "starts",
    events.JobShortened: "is to give its place back at {event.until_s:.6g} s: {event.reason}",
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
    """An event in words that follow its job's name; None where it is of no
    interest to people.
    """
    sentence = _SENTENCES.get(type(event))
    if sentence is None:
        return None
    if isinstance(event, events.JobReserved) and event.start_s > event.t:
        sentence = "has a reservation from {event.start_s:.6g} s {where}"
    elif isinstance(event, events.JobEnded) and event.reason:
        sentence = "{event.outcome}: {event.reason}"
    # A kind of event has only some of these attributes; the sentence of a kind
    # that lacks one has no place for it.
    vms_on = getattr(event, "vms_on", [])
    tier = getattr(event, "tier", FOREGROUND)
    cost_s = getattr(event, "cost_s", 0.0)
    after = ""
    if cost_s:
        after = f" after {human_duration(cost_s)} of restoring"
    return sentence.format(
        event=event,
        where=_where(vms_on, tier),
        after=after,
        rate=human_bandwidth(getattr(event, "rate_bps", 0)),
    )


def kind_of_reason(reason: str) -> str:
    """A rejection's reason with … for its numbers, so that reasons of a kind
    are alike; 800 Mbit/s and 1.2 Gbit/s are, too.
    """
    return re.sub(r"\d[\d.,]*( [kMGT]?bit/s)?", "…", reason) or "none given"


def _where(vms_on: list[list[int]], tier: str) -> str:
    """``on servers 3 (2 VMs), 5, in the background``, by servers' numbers."""
    servers = []
    for server, count in vms_on:
        text = str(server)
        if count > 1:
            text += f" ({count} VMs)"
        servers.append(text)
    noun = "server"
    if len(servers) > 1:
        noun = "servers"
    where = f"on {noun} {', '.join(servers[:SHOWN_SERVERS])}"
    n_left = len(servers) - SHOWN_SERVERS
    if n_left > 0:
        where += f" and {n_left} more"
    if tier != FOREGROUND:
        where += f", in the {tier}"
    return where
