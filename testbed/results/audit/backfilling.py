"""EASY's promise: whoever comes to the head of the queue is never delayed by a backfilled job.

The promise is worked out here from the events alone: when, by the planned running times, enough
nodes would have been free for the head had nobody been backfilled after it came there. Where a
job runs longer than planned the promises of that moment are void: nobody could have kept them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed import events
from testbed.results.audit.findings import Finding
from testbed.results.audit.history import History, about
from testbed.results.folder import EVENTS


def is_easy(history: History) -> str | None:
    return None if history.policy == "easy" else f"the policy is {history.policy}, not easy"


def head_in_time(history: History) -> Iterator[Finding]:
    """Nobody at the head of the queue starts later than was due when it came there."""
    queue = _Queue(sum(history.world.slots), "estimates=user" in history.started.policy)
    settled_s = 0.0
    for entry in history.file.lines:
        event = entry.event
        if event.t > settled_s:
            # All that happened at one instant is in: who is the head now, and what is due to it?
            queue.look(settled_s)
            settled_s = event.t
        late = queue.follow(event)
        if late is not None:
            yield Finding(EVENTS, entry.number, late)


@dataclass
class _Queue:
    """Who waits, in order, and who runs, with nodes and planned ends."""

    nodes: int
    by_user: bool
    waiting: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    running: dict[str, tuple[float, int]] = field(default_factory=dict)
    head: str | None = None
    due_s: float | None = None

    def look(self, now_s: float) -> None:
        head = next(iter(self.waiting), None)
        if head == self.head:
            return
        self.head = head
        self.due_s = None if head is None else self._due_s(self.waiting[head]["n_vms"], now_s)

    def _due_s(self, n: int, now_s: float) -> float | None:
        free = self.nodes - sum(held for _, held in self.running.values())
        if free >= n:
            return now_s
        for end_s, held in sorted(self.running.values()):
            free += held
            if free >= n:
                return end_s
        return None

    def _planned_s(self, job: Mapping[str, Any]) -> float:
        stated_s = job.get("estimate_s") if self.by_user else None
        return float(job["duration_s"] if stated_s is None else stated_s)

    def follow(self, event: events.Event) -> str | None:
        """Take an event in; what is wrong with it."""
        match event:
            case events.JobSubmitted():
                self.waiting[str(event.job["id"])] = event.job
            case events.JobStarted():
                job = self.waiting.pop(event.job_id, None)
                if job is not None:
                    self.running[event.job_id] = (event.t + self._planned_s(job), job["n_vms"])
                if event.job_id == self.head and self.due_s is not None:
                    due_s, self.due_s = self.due_s, None
                    if not about(event.t, due_s, 1e-6):
                        return (
                            f"{event.job_id} was due at {due_s:.6g} s when it came to the head of"
                            f" the queue, and starts at {event.t:.6g} s"
                        )
            case events.JobEnded():
                self.waiting.pop(event.job_id, None)
                planned = self.running.pop(event.job_id, None)
                if planned is not None and not about(event.t, planned[0], 1e-6):
                    self.due_s = None
            case _:
                pass
        return None
