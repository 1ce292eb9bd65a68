"""The claim of backfilling that no job delays the first in the queue, proved
from the events.

A job that starts before the first in the queue *delays* it if, by the planned
ends of the running jobs, the first could start later because of it. A running
job that is overdue may end at any moment. The first is due as soon as enough
nodes are free, or held by jobs that delay it. What a job causes by ending
before or after its planned end is therefore not held against the policy, and
hides no delay either.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import merge
from typing import Any, TypeAlias

from testbed import events
from testbed.audit.history import Findings, History, about

ROUNDING_S = 1e-6
"""Difference of two sums of the same times, at most."""
MAX_NAMES = 3
"""The most jobs that a finding names."""

Holder: TypeAlias = tuple[float, str, int]
"""A running job: its planned end in seconds, its id, its nodes."""


def head_not_delayed(history: History) -> Findings:
    """Every first job in the queue starts when it is due; see the module."""
    by_user = "head-not-delayed-by-user-estimates" in history.claims
    queue = _Queue(
        n_free=sum(history.topology.slots),
        by_user_estimates=by_user,
        slack_s=history.live_slack_s + ROUNDING_S,
        completed=history.status == "completed",
    )
    for event in history.events:
        late = queue.follow(event)
        if late is not None:
            yield event, late


@dataclass
class _Queue:
    """Waiting jobs in order of arrival, and the nodes of running ones.

    ``holders`` are the running jobs that do not delay the first in the queue
    (``head``), by planned end; ``delaying`` are those that do. ``held`` has
    both. ``left_s``: planned time that a preempted job still needs. ``due_s``:
    when the head became due (None: it is not), ``to_blame`` the jobs that
    delayed it then.

    ``now_s`` is the time of the last decision, and ``launched_s`` that at which
    a live machine had started what was decided. All that is decided meanwhile
    is decided at ``now_s``.
    """

    n_free: int
    by_user_estimates: bool
    slack_s: float
    completed: bool
    requests: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    order: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)
    holders: list[Holder] = field(default_factory=list)
    delaying: dict[str, Holder] = field(default_factory=dict)
    held: dict[str, Holder] = field(default_factory=dict)
    left_s: dict[str, float] = field(default_factory=dict)
    head: str | None = None
    due_s: float | None = None
    to_blame: tuple[str, ...] = ()
    now_s: float = 0.0
    launched_s: float = 0.0

    def follow(self, event: events.Event) -> str | None:
        """Updates the queue by an event; returns the event's fault, if any."""
        if self._is_launch(event):
            self.launched_s = event.t
        elif event.t > max(self.now_s, self.launched_s):
            self._note_due()
            self.now_s = event.t
        match event:
            case events.JobSubmitted():
                job_id = str(event.job["id"])
                self.requests[job_id] = event.job
                self.order.setdefault(job_id, len(self.order))
                self.waiting[job_id] = None
                self._update_head()
            case events.JobReserved() if event.start_s > event.t:
                # It holds its nodes from its start on.
                return None
            case (
                events.JobReserved()
                | events.JobStarted()
                | events.JobResumed()
                | events.JobMigrated()
            ):
                return self._starts(event.job_id)
            case events.JobPreempted() | events.JobRequeued():
                self._waits_again(event)
            case events.JobEnded():
                return self._ended(event)
        return None

    def _is_launch(self, event: events.Event) -> bool:
        """True for the end of a launch that was decided on at ``now_s``."""
        if isinstance(event, events.JobEnded):
            return event.reason.startswith(events.NOT_STARTED)
        return (
            isinstance(event, events.JobStarted)
            and event.job_id in self.held
        )

    def _starts(self, job_id: str) -> str | None:
        """Gives a waiting job its nodes; returns the fault of a late head."""
        if job_id not in self.waiting:
            return None
        del self.waiting[job_id]
        n_nodes = self._nodes(job_id)
        holder = (self.now_s + self._planned_s(job_id), job_id, n_nodes)
        late = None
        if job_id == self.head:
            late = self._lateness("starts")
            self._update_head()
            insort(self.holders, holder)
        elif self._delays_head(holder):
            self.delaying[job_id] = holder
        else:
            insort(self.holders, holder)
        self.held[job_id] = holder
        self.n_free -= n_nodes
        return late

    def _waits_again(
        self, event: events.JobPreempted | events.JobRequeued
    ) -> None:
        """Puts a running job back at its place by arrival."""
        job_id = event.job_id
        holder = self._leaves(job_id)
        if holder is None:
            return
        if isinstance(event, events.JobPreempted):
            self.left_s[job_id] = max(holder[0] - self.now_s, 0.0)
        waiting = sorted(
            [*self.waiting, job_id], key=self.order.__getitem__
        )
        self.waiting = dict.fromkeys(waiting)
        self._update_head()

    def _ended(self, event: events.JobEnded) -> str | None:
        """Removes a job; returns the fault of a head that never starts."""
        job_id = event.job_id
        self._leaves(job_id)
        self.waiting.pop(job_id, None)
        late = None
        # Of a run that was stopped, the head may have been about to start.
        if (
            job_id == self.head
            and self.completed
            and event.outcome == "unfinished"
        ):
            late = self._lateness("never starts, unfinished")
        self._update_head()
        return late

    def _leaves(self, job_id: str) -> Holder | None:
        """Frees a job's nodes; None where it holds none."""
        holder = self.held.pop(job_id, None)
        if holder is None:
            return None
        self.n_free += holder[2]
        if self.delaying.pop(job_id, None) is None:
            del self.holders[bisect_left(self.holders, holder)]
        return holder

    def _update_head(self) -> None:
        head = next(iter(self.waiting), None)
        if head == self.head:
            return
        self.head = head
        self.due_s = None
        # What runs when a job becomes the head does not delay it.
        for holder in self.delaying.values():
            insort(self.holders, holder)
        self.delaying.clear()

    def _nodes(self, job_id: str) -> int:
        request = self.requests[job_id]
        return int(request["n_vms"]) * int(request.get("cores", 1))

    def _planned_s(self, job_id: str) -> float:
        """The time that a job is planned to run from now on."""
        left_s = self.left_s.pop(job_id, None)
        if left_s is not None:
            return left_s
        request = self.requests[job_id]
        stated_s = None
        if self.by_user_estimates:
            stated_s = request.get("estimate_s")
        return float(
            request["duration_s"] if stated_s is None else stated_s
        )

    # -- the head's due time

    def _left_by_delaying(self) -> int:
        """Nodes that would be free without the jobs that delay the head."""
        return self.n_free + sum(n for _, _, n in self.delaying.values())

    def _note_due(self) -> None:
        """Notes that the head is due, at the end of a moment of decisions."""
        if self.head is None or self.due_s is not None:
            return
        if self._left_by_delaying() >= self._nodes(self.head):
            self.due_s = self.now_s
            self.to_blame = tuple(self.delaying)

    def _lateness(self, what: str) -> str | None:
        """The fault of the head that now is or does ``what``; None if it has
        none.
        """
        due_s = self.due_s
        if due_s is None or about(self.now_s, due_s, self.slack_s):
            return None
        why = "enough nodes were free"
        if self.to_blame:
            names = ", ".join(self.to_blame[:MAX_NAMES])
            if len(self.to_blame) > MAX_NAMES:
                names += " and others"
            why = f"its nodes were held by {names}, which started before it"
        return (
            f"{self.head}, first in the queue, was due at {due_s:.6g} s"
            f" and {what} at {self.now_s:.6g} s: {why}"
        )

    def _delays_head(self, holder: Holder) -> bool:
        """True if the head could start later because of a job that starts."""
        if self.head is None:
            return False
        n_nodes = self._nodes(self.head)
        free = self._left_by_delaying()
        without_s = self._enough_s(n_nodes, free, self.holders)
        end_s, _, taken = holder
        if about(end_s, without_s, self.slack_s):
            return False
        holders = merge(self.holders, [holder])
        with_s = self._enough_s(n_nodes, free - taken, holders)
        return not about(with_s, without_s, self.slack_s)

    def _enough_s(
        self, n_nodes: int, free: int, holders: Iterable[Holder]
    ) -> float:
        """The time from which ``n_nodes`` are free by plan; infinite if never."""
        if free >= n_nodes:
            return self.now_s
        for end_s, _, taken in holders:
            free += taken
            if free >= n_nodes:
                return max(end_s, self.now_s)
        return math.inf
