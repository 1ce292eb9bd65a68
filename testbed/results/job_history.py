"""Why a job waited: what a run's events say of one job, and who overtook it meanwhile.

Reads nothing of a policy but the reasons that it left in the events (``job_waits``), so that it
explains runs of any policy, simulated or live.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from testbed import events
from testbed.errors import BadInput
from testbed.units import human_bandwidth, human_duration

SHOWN_SERVERS = 6


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
        vms = f"{self.n_vms} VM{'s' if self.n_vms != 1 else ''}"
        return vms if not self.bandwidth_bps else f"{vms} at {human_bandwidth(self.bandwidth_bps)}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def explained(stream: Iterable[events.Event], job_id: str) -> Explanation:
    """One pass over a run's events. Raises BadInput where no such job was submitted.

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
        self._found: Explanation | None = None
        self._since_s: float | None = None
        self._cut_since_s: float | None = None
        self._others: list[str] = []
        self._later: dict[str, tuple[float, int]] = {}

    def at(self, event: events.Event) -> None:
        self._now_s = event.t
        if isinstance(event, events.RunStarted):
            self._policy = event.policy
        elif isinstance(event, events.JobSubmitted):
            self._submitted(event)
        elif self._found is not None and getattr(event, "job_id", None) == self._job_id:
            self._follow(self._found, event)
        elif isinstance(event, events.JobEnded):
            self._later.pop(event.job_id, None)
        elif isinstance(event, events.JobStarted) and self._since_s is not None:
            self._overtaken(event)

    def result(self) -> Explanation:
        if self._found is None:
            hint = f"jobs are named as {', '.join(self._others)}" if self._others else None
            raise BadInput(f"no job {self._job_id!r} was submitted in this run", hint)
        if self._since_s is not None:
            self._found.waited_s += self._now_s - self._since_s
        return self._found

    def _submitted(self, event: events.JobSubmitted) -> None:
        name, n = str(event.job["id"]), int(event.job["n_vms"])
        if name == self._job_id:
            found = Explanation(name, self._policy, event.t, n, int(event.job["bandwidth_bps"]))
            found.steps.append(Step(event.t, event.name, f"submitted, asks for {found.asked}"))
            self._found, self._since_s = found, event.t
        elif self._found is not None:
            self._later[name] = (event.t, n)
        elif len(self._others) < 5:
            self._others.append(name)

    def _overtaken(self, event: events.JobStarted) -> None:
        """Records an overtaker: a job that arrives later and starts earlier."""
        if self._found is not None and event.job_id in self._later:
            came_s, n = self._later[event.job_id]
            self._found.overtaken_by.append(Overtaker(event.job_id, came_s, event.t, n))

    def _follow(self, found: Explanation, event: events.Event) -> None:
        """Records an event of the job, and whether it waits from then on."""
        message = words(event)
        if message is None:
            return
        behind: tuple[str, ...] = ()
        until_s: float | None = None
        if isinstance(event, events.JobWaits):
            behind, until_s = tuple(event.behind), event.until_s
        elif isinstance(event, events.JobStarted) and found.start_s is None:
            found.start_s = event.t
        elif isinstance(event, events.JobEnded):
            found.end_s, found.outcome, found.reason = event.t, event.outcome, event.reason
        found.steps.append(Step(event.t, event.name, message, behind, until_s))
        if isinstance(event, _CUT_UNTIL) and self._cut_since_s is not None:
            found.cut_s += event.t - self._cut_since_s
            self._cut_since_s = None
        elif isinstance(event, events.JobCut):
            self._cut_since_s = event.t
        if isinstance(event, _WAITS):
            self._since_s = event.t if self._since_s is None else self._since_s
        elif self._since_s is not None and not isinstance(event, events.JobRerooted):
            found.waited_s += event.t - self._since_s
            self._since_s = None


_CUT_UNTIL = (events.JobReconnected, events.JobRequeued, events.JobEnded)
_WAITS = (events.JobWaits, events.JobPreempted, events.JobReserved, events.JobRequeued)

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


def words(event: events.Event) -> str | None:
    """An event as a sentence about its job; None where it is of no interest to people."""
    says = _SAYS.get(type(event))
    if says is None:
        return None
    if isinstance(event, events.JobReserved) and event.start_s > event.t:
        says = "has a reservation from {event.start_s:.6g} s {where}"
    elif isinstance(event, events.JobEnded) and event.reason:
        says = "{event.outcome}: {event.reason}"
    cost_s = getattr(event, "cost_s", 0.0)
    return says.format(
        event=event,
        where=_where(getattr(event, "vms_on", []), getattr(event, "tier", "foreground")),
        after=f" after {human_duration(cost_s)} of restoring" if cost_s else "",
        rate=human_bandwidth(getattr(event, "rate_bps", 0)),
    )


def _where(vms_on: list[list[int]], tier: str) -> str:
    """``on server 3 (2 VMs), server 5`` by the servers' numbers."""
    named = [f"{server}" + (f" ({count} VMs)" if count > 1 else "") for server, count in vms_on]
    more = len(named) - SHOWN_SERVERS
    text = ", ".join(named[:SHOWN_SERVERS]) + (f" and {more} more" if more > 0 else "")
    return f"on server{'s' if len(named) > 1 else ''} {text}" + (
        "" if tier == "foreground" else f", in the {tier}"
    )
