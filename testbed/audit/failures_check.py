"""Failures: each job that one stops is seen to, and no job is put on what is
lost.

Lost links and servers are followed through the events with the topology alone.
At every failure and its end, each running job whose VMs then do not all reach
each other has to be moved to another root, cut, requeued or killed at that
instant, and one that is cut has to be reconnected as soon as they do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, get_args

from testbed import events
from testbed.audit.history import AuditedHold, Findings, History, about
from testbed.failures import FailureKind
from testbed.record.folder import RESOLVED

_FAILURES = tuple(events.EVENTS[kind] for kind in get_args(FailureKind))


def needs_failures(history: History) -> str | None:
    if _declared(history) or any(map(history.of_kind, _FAILURES)):
        return None
    return "nothing failed"


def _declared(history: History) -> list[dict[str, Any]]:
    """The failures of the experiment, in order of time."""
    declared = history.stated("failures")
    if not isinstance(declared, list):
        return []
    return [failure for failure in declared if _has_time(failure)]


def _has_time(failure: object) -> bool:
    if not isinstance(failure, dict):
        return False
    return isinstance(failure.get("at_s"), int | float)


@dataclass
class _Job:
    root: int
    hold: AuditedHold
    network: bool
    runs: bool = False
    cut: bool = False


@dataclass
class _Walk:
    history: History
    links: set[int] = field(default_factory=set)
    servers: set[int] = field(default_factory=set)
    jobs: dict[str, _Job] = field(default_factory=dict)
    needs_network: dict[str, bool] = field(default_factory=dict)
    # Jobs that a failure has hit and nothing was done about: since when, and
    # the event that hit them.
    due: dict[str, tuple[float, events.Event]] = field(default_factory=dict)

    def broken(self, job: _Job) -> str:
        """The reason why a job's VMs do not all reach each other; empty where
        they do.
        """
        topology = self.history.topology
        for server, _ in job.hold.vms_on:
            if server in self.servers:
                return f"has VMs on {topology.node(server)}, which is lost"
        # A job that needs no network is not stopped by a lost link; a
        # placement that makes no sense has its own finding.
        if not (self.links and job.network) or self._misplaced(job):
            return ""
        # At 1 bit/s: only which links are used matters here.
        used = topology.hose(job.root, job.hold.vms_on, 1)
        lost = self.links & {directed // 2 for directed in used}
        if not lost:
            return ""
        return f"needs {topology.link(2 * min(lost))}, which is lost"

    def _misplaced(self, job: _Job) -> list[str]:
        vms_on = job.hold.vms_on
        return self.history.topology.misplaced(
            job.root, vms_on, sum(n for _, n in vms_on)
        )

    def take(self, event: events.Event) -> Iterator[str]:
        """Follows an event; faults of the event itself."""
        match event:
            case events.LinkFailed() | events.LinkRestored():
                yield from self._changed(
                    event, self.links, event.link, "link"
                )
            case events.ServerFailed() | events.ServerRestored():
                yield from self._changed(
                    event, self.servers, event.server, "server"
                )
            case events.SwitchRestarted():
                topology = self.history.topology
                n_servers = len(topology.slots)
                if not n_servers <= event.switch < topology.n_nodes:
                    yield f"node {event.switch} is no switch"
            case events.JobSubmitted():
                kind = event.job.get("kind")
                job_id = str(event.job["id"])
                self.needs_network[job_id] = kind != "compute"
            case _:
                yield from self._of_job(event)

    def _changed(
        self, event: events.Event, lost: set[int], part: int, kind: str
    ) -> Iterator[str]:
        topology = self.history.topology
        fails = "failed" in event.name
        n_parts = len(topology.slots)
        if kind == "link":
            n_parts = len(topology.lower)
        if not 0 <= part < n_parts:
            yield f"there is no {kind} {part}"
        elif fails and part in lost:
            yield f"{kind} {part} fails, and was lost"
        elif not fails and part not in lost:
            yield f"{kind} {part} returns, and was not lost"
        if fails:
            lost.add(part)
        else:
            lost.discard(part)
        # Every job is looked at again: a link that returns reconnects some.
        for job_id, job in self.jobs.items():
            if self._is_due(job):
                self.due.setdefault(job_id, (event.t, event))

    def _of_job(self, event: events.Event) -> Iterator[str]:
        job_id = getattr(event, "job_id", "")
        if isinstance(event, events.JobReserved | events.JobMigrated):
            yield from self._placed(event)
        elif isinstance(event, events.JobRequeued | events.JobEnded):
            # The job is gone after this event, so it is judged by what it
            # held.
            left = self.jobs.pop(job_id, None)
            lost = left is None or self.broken(left)
            if _by_failure(event) and not lost:
                yield f"{job_id} is stopped by a failure, and nothing of it is lost"
        job = self.jobs.get(job_id)
        is_due = False
        if job is not None:
            for wrong in self._follow(job, event):
                yield f"{job_id} {wrong}"
            is_due = self._is_due(job)
        if is_due:
            self.due.setdefault(job_id, (event.t, event))
        else:
            self.due.pop(job_id, None)

    def _is_due(self, job: _Job) -> bool:
        """True if a job runs though it is broken, or is cut though it is not."""
        return job.runs and job.cut != bool(self.broken(job))

    def _placed(
        self, event: events.JobReserved | events.JobMigrated
    ) -> Iterator[str]:
        self.jobs[event.job_id] = _Job(
            event.root,
            AuditedHold().changed(event),
            network=self.needs_network.get(event.job_id, False),
            # A migrated job is on its nodes at once; a reserved one begins
            # by an event.
            runs=isinstance(event, events.JobMigrated),
        )
        # What is lost now may be back by the time of a later reservation.
        if (
            isinstance(event, events.JobMigrated)
            or event.start_s == event.t
        ):
            yield from self._on_lost(event.job_id)

    def _follow(self, job: _Job, event: events.Event) -> Iterator[str]:
        """Takes in an event of a job; faults of the event."""
        match event:
            case events.JobStarted() | events.JobResumed():
                job.runs = True
                job.cut = False
            case events.JobPreempted():
                job.runs = job.cut = False
            case events.JobRerooted():
                yield from self._rerooted(job, event)
            case events.JobCut():
                job.cut = True
                if not self.broken(job):
                    yield "is cut, and all its VMs reach each other"
            case events.JobReconnected():
                if not job.cut:
                    yield "is reconnected, and was not cut"
                job.cut = False
                if wrong := self.broken(job):
                    yield f"is reconnected, and {wrong}"
            case _:
                pass

    def _rerooted(
        self, job: _Job, event: events.JobRerooted
    ) -> Iterator[str]:
        # By its old root: only what is broken may move.
        if not self.broken(job):
            yield "is moved, and all its VMs reach each other"
        job.root = event.root
        job.hold = job.hold.changed(event)
        yield from self._misplaced(job)
        if any(directed // 2 in self.links for directed, _ in event.links):
            yield f"is moved below {event.root}, to a link that is lost"

    def _on_lost(self, job_id: str) -> Iterator[str]:
        """Bandwidth or VMs that are newly put on what is lost."""
        hold = self.jobs[job_id].hold
        topology = self.history.topology
        for directed in sorted({number for number, _ in hold.links}):
            if directed // 2 in self.links:
                yield f"{job_id} is put on {topology.link(directed)}, which is lost"
        for server in sorted({number for number, _ in hold.vms_on}):
            if server in self.servers:
                yield f"{job_id} is put on {topology.node(server)}, which is lost"

    def late(self, now_s: float) -> Findings:
        """Jobs that were to be seen to before now.

        Live, switches have a second of the machine's time to confirm, beside a
        run's slack.
        """
        patience_s = (
            self.history.live_slack_s + self.history.machine_second_s
        )
        for job_id, (at_s, event) in list(self.due.items()):
            if now_s > at_s + patience_s:
                job = self.jobs[job_id]
                wrong = (
                    self.broken(job)
                    or "is cut, and all its VMs reach each other"
                )
                yield (
                    event,
                    f"{job_id} {wrong}; nothing is done about it by {now_s:.6g} s",
                )
                del self.due[job_id]


def _by_failure(event: events.JobRequeued | events.JobEnded) -> bool:
    return isinstance(event, events.JobRequeued) or event.reason.startswith(
        events.FAILED
    )


def failures(history: History) -> Findings:
    """Each job that a failure hits is seen to at once, and nobody is put on
    what is lost.
    """
    yield from _as_declared(history)
    walk = _Walk(history)
    for event in history.events:
        # Time has passed when an event with a later time comes: what was
        # due before must have been done.
        yield from walk.late(event.t)
        for wrong in walk.take(event):
            yield event, wrong


def _as_declared(history: History) -> Findings:
    """The failures of the experiment and no others, at their times, while there
    are jobs.
    """
    came = [
        event for event in history.events if isinstance(event, _FAILURES)
    ]
    # In the order of time both lists must be the same, to the first
    # difference.
    for event, due in zip_longest(came, _declared(history)):
        if event is None:
            yield from _never_came(history, due)
            return
        if due is None:
            yield event, f"{RESOLVED} has no more failures here"
            return
        is_kind = event.name == due.get("kind")
        if not is_kind or _part(event) != due.get("part"):
            yield event, f"{RESOLVED} has {due} here"
            return
        yield from _untimely(history, event, due["at_s"])


def _never_came(history: History, due: Mapping[str, Any]) -> Findings:
    """A failure that was due while there were jobs, of a run that was not
    stopped.
    """
    ends_s = [event.t for event in history.of_kind(events.JobEnded)]
    ended_s = max(ends_s, default=0.0)
    # A run that was stopped may have been at work on something else for long.
    before_end = not about(ended_s, due["at_s"], history.live_slack_s)
    if history.status == "completed" and before_end:
        yield history.events[-1], f"{due} of {RESOLVED} never came"


def _part(event: events.Event) -> int:
    """The number of what fails; 0 of the controller, which is one."""
    for key, value in vars(event).items():
        if key != "t":
            return int(value)
    return 0


def _untimely(
    history: History, event: events.Event, due_s: float
) -> Findings:
    # Live, what brings a failure about takes its time.
    late_s = event.t - due_s
    simulated = history.started.backend == "sim"
    if not about(0.0, late_s) or (simulated and not about(late_s, 0.0)):
        yield (
            event,
            f"comes at {event.t:.6g} s, in {RESOLVED} at {due_s:.6g} s",
        )
