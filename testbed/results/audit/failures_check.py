"""Failures: whom each of them stops, where they move, and that nothing is put on what is lost.

Lost links and servers are followed through the events with the topology alone. At every failure and
its end, each running job whose VMs then do not all reach each other has to be moved to another
root, cut, requeued or killed at that instant, and one that is cut has to be reconnected as soon as
they do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, get_args

from testbed import events
from testbed.failures import FailureKind
from testbed.results.audit.capacity_check import Hold
from testbed.results.audit.history import Found, History, about
from testbed.results.folder import RESOLVED

_FAILURES = tuple(events.EVENTS[kind] for kind in get_args(FailureKind))


def has_failures(history: History) -> str | None:
    found = _declared(history) or any(history.each(kind) for kind in _FAILURES)
    return None if found else "nothing failed"


def _declared(history: History) -> list[dict[str, Any]]:
    """The failures of the experiment, in order of time."""
    found = history.resolved.get("failures") if isinstance(history.resolved, dict) else None
    listed = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return [one for one in listed if isinstance(one.get("at_s"), int | float)]


@dataclass
class _Job:
    root: int
    hold: Hold
    network: bool
    runs: bool = False
    cut: bool = False


@dataclass
class _Walk:
    history: History
    links: set[int] = field(default_factory=set)
    servers: set[int] = field(default_factory=set)
    jobs: dict[str, _Job] = field(default_factory=dict)
    requests: dict[str, Any] = field(default_factory=dict)
    # When each was first seen to be hit, and not yet seen to.
    due: dict[str, tuple[float, events.Event]] = field(default_factory=dict)

    def broken(self, job: _Job) -> str:
        """Why a job's VMs do not all reach each other; empty where they do."""
        gone = [server for server, _ in job.hold.vms_on if server in self.servers]
        if gone:
            return f"has VMs on {self.history.topology.node(gone[0])}, which is lost"
        if not (self.links and job.network) or self._misplaced(job):
            return ""
        used = self.history.topology.hose(job.root, job.hold.vms_on, 1)
        lost = sorted(self.links & {directed // 2 for directed in used})
        return f"needs {self.history.topology.link(2 * lost[0])}, which is lost" if lost else ""

    def _misplaced(self, job: _Job) -> list[str]:
        vms_on = job.hold.vms_on
        return self.history.topology.misplaced(job.root, vms_on, sum(n for _, n in vms_on))

    def take(self, event: events.Event) -> Iterator[str]:
        """Follows an event; faults of the event itself."""
        match event:
            case events.LinkFailed() | events.LinkRestored():
                yield from self._changed(event, self.links, event.link, "link")
            case events.ServerFailed() | events.ServerRestored():
                yield from self._changed(event, self.servers, event.server, "server")
            case events.SwitchRestarted():
                topology = self.history.topology
                if not len(topology.slots) <= event.switch < topology.n_nodes:
                    yield f"node {event.switch} is no switch"
            case events.JobSubmitted():
                kind = event.job.get("kind")
                self.requests[str(event.job["id"])] = kind != "compute"
            case _:
                yield from self._of_job(event)

    def _changed(self, event: events.Event, lost: set[int], part: int, what: str) -> Iterator[str]:
        topology, fails = self.history.topology, "failed" in event.name
        known = len(topology.lower) if what == "link" else len(topology.slots)
        if not 0 <= part < known:
            yield f"there is no {what} {part}"
        elif fails == (part in lost):
            yield f"{what} {part} {'fails, and was' if fails else 'returns, and was not'} lost"
        (lost.add if fails else lost.discard)(part)
        for job_id, job in self.jobs.items():
            if job.runs and bool(self.broken(job)) != job.cut:
                self.due.setdefault(job_id, (event.t, event))

    def _of_job(self, event: events.Event) -> Iterator[str]:
        job_id = getattr(event, "job_id", "")
        if isinstance(event, events.JobReserved | events.JobMigrated):
            runs = isinstance(event, events.JobMigrated)
            network = self.requests.get(job_id, False)
            self.jobs[job_id] = _Job(event.root, Hold().changed(event), network, runs)
            if isinstance(event, events.JobMigrated) or event.start_s == event.t:
                yield from self._on_lost(job_id)
        elif isinstance(event, events.JobRequeued | events.JobEnded):
            left = self.jobs.pop(job_id, None)
            if left is not None and _by_failure(event) and not self.broken(left):
                yield f"{job_id} is stopped by a failure, and nothing of it is lost"
        job = self.jobs.get(job_id)
        if job is not None:
            yield from (f"{job_id} {wrong}" for wrong in self._follow(job, event))
        if job is None or not job.runs or bool(self.broken(job)) == job.cut:
            self.due.pop(job_id, None)
        else:
            self.due.setdefault(job_id, (event.t, event))

    def _follow(self, job: _Job, event: events.Event) -> Iterator[str]:
        """Takes in an event of a job; faults of the event."""
        match event:
            case events.JobStarted() | events.JobResumed():
                job.runs, job.cut = True, False
            case events.JobPreempted():
                job.runs = job.cut = False
            case events.JobRerooted():
                if not self.broken(job):
                    yield "is moved, and all its VMs reach each other"
                job.root, job.hold = event.root, job.hold.changed(event)
                yield from self._misplaced(job)
                if any(directed // 2 in self.links for directed, _ in event.links):
                    yield f"is moved below {event.root}, to a link that is lost"
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

    def _on_lost(self, job_id: str) -> Iterator[str]:
        """Bandwidth or VMs that are newly put on what is lost."""
        hold, topology = self.jobs[job_id].hold, self.history.topology
        for directed in sorted({number for number, _ in hold.links if number // 2 in self.links}):
            yield f"{job_id} is put on {topology.link(directed)}, which is lost"
        for server in sorted(self.servers & {server for server, _ in hold.vms_on}):
            yield f"{job_id} is put on {topology.node(server)}, which is lost"

    def late(self, now_s: float) -> Found:
        """Jobs that were to be seen to before now.

        Live, switches have a second of the machine's time to confirm, beside a run's slack.
        """
        patience_s = self.history.live_slack_s + self.history.machine_second_s
        for job_id, (at_s, event) in list(self.due.items()):
            if now_s > at_s + patience_s:
                job = self.jobs[job_id]
                wrong = self.broken(job) or "is cut, and all its VMs reach each other"
                yield event, f"{job_id} {wrong}; nothing is done about it by {now_s:.6g} s"
                del self.due[job_id]


def _by_failure(event: events.JobRequeued | events.JobEnded) -> bool:
    return isinstance(event, events.JobRequeued) or event.reason.startswith(events.FAILED)


def failures(history: History) -> Found:
    """Each job that a failure hits is seen to at once, and nobody is put on what is lost."""
    yield from _as_declared(history)
    walk = _Walk(history)
    for event in history.events:
        yield from walk.late(event.t)
        for wrong in walk.take(event):
            yield event, wrong


def _as_declared(history: History) -> Found:
    """The failures of the experiment and no others, at their times, while there are jobs."""
    came, slack_s = [e for e in history.events if isinstance(e, _FAILURES)], history.live_slack_s
    ended_s = max((event.t for event in history.each(events.JobEnded)), default=0.0)
    for event, due in zip_longest(came, _declared(history)):
        if event is None:
            # A run that was stopped may have been at work on something else for long.
            if history.status == "completed" and not about(ended_s, due["at_s"], slack_s):
                yield history.events[-1], f"{due} of {RESOLVED} never came"
            return
        part = next((value for key, value in vars(event).items() if key != "t"), 0)
        if due is None or (event.name, part) != (due.get("kind"), due.get("part")):
            yield event, f"{RESOLVED} has {due or 'no more failures'} here"
            return
        late_s = event.t - due["at_s"]  # live, what brings it about takes its time
        if not about(0.0, late_s) or (history.started.backend == "sim" and not about(late_s, 0.0)):
            yield event, f"comes at {event.t:.6g} s, in {RESOLVED} at {due['at_s']:.6g} s"
