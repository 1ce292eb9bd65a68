"""Failures: every job that a failure stops is handled at once, and no job is
placed on a lost link or server.

Lost links and servers are followed through the events with the topology alone.
When a link or server fails, each running job whose VMs no longer all reach each
other has to be moved to another root, cut, requeued or killed at that instant.
When one returns, each cut job whose VMs all reach each other again has to be
reconnected at that instant.
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
_CONSEQUENCES = (
    events.JobRerooted,
    events.JobCut,
    events.JobReconnected,
    events.JobRequeued,
)
"""What only a failure does to a job, beside ending it."""


def needs_failures(history: History) -> str | None:
    """The need for a failure, or for a job that is said to be hit by one."""
    if _declared(history):
        return None
    if any(map(history.of_kind, _FAILURES + _CONSEQUENCES)):
        return None
    if any(map(_blames_failure, history.of_kind(events.JobEnded))):
        return None
    return "nothing failed"


def _declared(history: History) -> list[dict[str, Any]]:
    """The failures that the experiment declares, in order of time."""
    declared = history.stated("failures")
    if not isinstance(declared, list):
        return []
    return [failure for failure in declared if _has_time(failure)]


def _has_time(failure: object) -> bool:
    if not isinstance(failure, dict):
        return False
    return isinstance(failure.get("at_s"), int | float)


@dataclass
class _PlacedJob:
    """A job with nodes, running or yet to start.

    ``cut``: it waits for a lost link, after ``job_cut``.
    """

    root: int
    hold: AuditedHold
    needs_network: bool
    runs: bool = False
    cut: bool = False


@dataclass
class _OutageState:
    """Lost links and servers, and the jobs placed, after the events so far."""

    history: History
    lost_links: set[int] = field(default_factory=set)
    lost_servers: set[int] = field(default_factory=set)
    jobs: dict[str, _PlacedJob] = field(default_factory=dict)
    needs_network: dict[str, bool] = field(default_factory=dict)
    # Jobs still to be handled after a part has failed or returned: the time
    # and the event since which they are due.
    due: dict[str, tuple[float, events.Event]] = field(default_factory=dict)

    def disconnection(self, job: _PlacedJob) -> str:
        """The reason why a job's VMs do not all reach each other; empty if
        they do.
        """
        topology = self.history.topology
        for server, _ in job.hold.vms_on:
            if server in self.lost_servers:
                return f"has VMs on {topology.node(server)}, which is lost"
        may_lack_link = self.lost_links and job.needs_network
        # A faulty placement has a finding of its own.
        if not may_lack_link or self._misplaced(job):
            return ""
        # Any rate shows which links are used.
        used = topology.hose(job.root, job.hold.vms_on, rate_bps=1)
        lost = self.lost_links & {directed // 2 for directed in used}
        if not lost:
            return ""
        return f"needs {topology.link(2 * min(lost))}, which is lost"

    def _misplaced(self, job: _PlacedJob) -> list[str]:
        vms_on = job.hold.vms_on
        return self.history.topology.misplaced(
            job.root, vms_on, sum(n for _, n in vms_on)
        )

    def take(self, event: events.Event) -> Iterator[str]:
        """Updates the state by an event; yields the event's faults."""
        match event:
            case events.LinkFailed() | events.LinkRestored():
                yield from self._part_changed(
                    event, self.lost_links, event.link, "link"
                )
            case events.ServerFailed() | events.ServerRestored():
                yield from self._part_changed(
                    event, self.lost_servers, event.server, "server"
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
                yield from self._take_job_event(event)

    def _part_changed(
        self, event: events.Event, lost: set[int], part: int, kind: str
    ) -> Iterator[str]:
        """Updates ``lost``, the lost parts of a kind, by a failure or return.

        Yields the event's faults.
        """
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
        for job_id, job in self.jobs.items():
            if self._is_due(job):
                self.due.setdefault(job_id, (event.t, event))
            else:
                # A link that returned may have failed again: a cut job then
                # waits as before.
                self.due.pop(job_id, None)

    def _take_job_event(self, event: events.Event) -> Iterator[str]:
        job_id = getattr(event, "job_id", "")
        if isinstance(event, events.JobReserved | events.JobMigrated):
            yield from self._placed(event)
        elif isinstance(event, events.JobRequeued | events.JobEnded):
            # The job is gone after this event: whether a failure hit it is
            # decided by the nodes and links that it leaves.
            stopped = self.jobs.pop(job_id, None)
            was_hit = stopped is None or self.disconnection(stopped)
            if _blames_failure(event) and not was_hit:
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

    def _is_due(self, job: _PlacedJob) -> bool:
        """True if a running job is disconnected but not cut, or the reverse."""
        return job.runs and job.cut != bool(self.disconnection(job))

    def _placed(
        self, event: events.JobReserved | events.JobMigrated
    ) -> Iterator[str]:
        self.jobs[event.job_id] = _PlacedJob(
            event.root,
            AuditedHold().changed(event),
            needs_network=self.needs_network.get(event.job_id, False),
            # A migrated job runs on at once; a reserved one starts with an
            # event of its own.
            runs=isinstance(event, events.JobMigrated),
        )
        # A part that is lost now may be back when a later reservation begins.
        if (
            isinstance(event, events.JobMigrated)
            or event.start_s == event.t
        ):
            yield from self._on_lost(event.job_id)

    def _follow(
        self, job: _PlacedJob, event: events.Event
    ) -> Iterator[str]:
        """Updates a job by an event; yields the event's faults."""
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
                if not self.disconnection(job):
                    yield "is cut, and all its VMs reach each other"
            case events.JobReconnected():
                if not job.cut:
                    yield "is reconnected, and was not cut"
                job.cut = False
                if wrong := self.disconnection(job):
                    yield f"is reconnected, and {wrong}"
            case _:
                pass

    def _rerooted(
        self, job: _PlacedJob, event: events.JobRerooted
    ) -> Iterator[str]:
        # Judged by the old root: only a disconnected job may move.
        if not self.disconnection(job):
            yield "is moved, and all its VMs reach each other"
        job.root = event.root
        job.hold = job.hold.changed(event)
        yield from self._misplaced(job)
        if any(
            directed // 2 in self.lost_links for directed, _ in event.links
        ):
            yield f"is moved below {event.root}, to a link that is lost"

    def _on_lost(self, job_id: str) -> Iterator[str]:
        """Yields each lost link and server that a new placement uses."""
        hold = self.jobs[job_id].hold
        topology = self.history.topology
        for directed in sorted({number for number, _ in hold.links}):
            if directed // 2 in self.lost_links:
                yield f"{job_id} is put on {topology.link(directed)}, which is lost"
        for server in sorted({number for number, _ in hold.vms_on}):
            if server in self.lost_servers:
                yield f"{job_id} is put on {topology.node(server)}, which is lost"

    def late(self, now_s: float) -> Findings:
        """Findings of jobs that are due and had to be handled before ``now_s``.

        A live run has its slack, and a second of the machine's time in which
        switches confirm.
        """
        patience_s = (
            self.history.live_slack_s + self.history.machine_second_s
        )
        for job_id, (at_s, event) in list(self.due.items()):
            if now_s > at_s + patience_s:
                wrong = (
                    self.disconnection(self.jobs[job_id])
                    or "is cut, and all its VMs reach each other"
                )
                yield (
                    event,
                    f"{job_id} {wrong}; nothing is done about it by {now_s:.6g} s",
                )
                del self.due[job_id]


def _blames_failure(event: events.JobRequeued | events.JobEnded) -> bool:
    """True if an event gives a failure as the reason for a job's stop."""
    return isinstance(event, events.JobRequeued) or event.reason.startswith(
        events.FAILED
    )


def failures(history: History) -> Findings:
    """Jobs that a failure hits are handled at once, and no job is placed on a
    lost part.
    """
    yield from _differences_from_declared(history)
    state = _OutageState(history)
    for event in history.events:
        # When a later event comes, all that was due before it has to be done.
        yield from state.late(event.t)
        for wrong in state.take(event):
            yield event, wrong


def _differences_from_declared(history: History) -> Findings:
    """The first difference between the run's failures and the declared ones,
    and each failure at a wrong time.
    """
    occurred = [
        event for event in history.events if isinstance(event, _FAILURES)
    ]
    # Both are in order of time. After a difference the rest would not match.
    for event, due in zip_longest(occurred, _declared(history)):
        if event is None:
            yield from _omitted(history, due)
            return
        if due is None:
            yield event, f"{RESOLVED} has no more failures here"
            return
        same_kind = event.name == due.get("kind")
        if not same_kind or _part_number(event) != due.get("part"):
            yield event, f"{RESOLVED} has {due} here"
            return
        yield from _untimely(history, event, due["at_s"])


def _omitted(history: History, due: Mapping[str, Any]) -> Findings:
    """A finding if a declared failure did not occur in a completed run although
    it was due before the last job ended.
    """
    ends_s = [event.t for event in history.of_kind(events.JobEnded)]
    ended_s = max(ends_s, default=0.0)
    before_end = not about(ended_s, due["at_s"], history.live_slack_s)
    # A run that was stopped may have been busy when the failure was due.
    if history.status == "completed" and before_end:
        yield history.events[-1], f"{due} of {RESOLVED} never came"


def _part_number(event: events.Event) -> int:
    """The number of the part that fails: the event's first field after ``t``.

    0 for the controller, whose event has no such field.
    """
    for key, value in vars(event).items():
        if key != "t":
            return int(value)
    return 0


def _untimely(
    history: History, event: events.Event, due_s: float
) -> Findings:
    """A finding if a failure comes early, or in a simulated run late.

    In a live run it takes time to make a part fail.
    """
    late_s = event.t - due_s
    is_early = not about(0.0, late_s)
    is_late = not (history.live or about(late_s, 0.0))
    if is_early or is_late:
        yield (
            event,
            f"comes at {event.t:.6g} s, in {RESOLVED} at {due_s:.6g} s",
        )
