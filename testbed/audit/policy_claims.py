"""Claims that policies declare, and the start of leases, proved from the
events.

EASY claims that no backfilled job delays the head of the queue. The head's due
time is computed here from the events alone: when enough nodes would have been
free, by the planned running times, if no job had been backfilled since it
became the head. A job that runs longer than planned voids due times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sortedcontainers import SortedDict

from testbed import events
from testbed.audit.history import (
    Findings,
    History,
    Invariant,
    JobHistory,
    about,
    job_of,
)


def options_within_deadline(history: History) -> Findings:
    """JSA grants options of a job's profile, which end by its deadline."""
    for request, event in history.reserved():
        offered = [request["bandwidth_bps"]]
        if request.get("profile"):
            offered = [bps for bps, _ in request["profile"]["options"]]
        if event.rate_bps not in offered:
            yield (
                event,
                f"{event.job_id}: {event.rate_bps} bit/s is none of its options",
            )
    yield from within_deadline(history)


def within_deadline(history: History) -> Findings:
    """Admitted jobs end by their deadline: t' + p' ≤ d, from their arrival."""
    for request, event in history.reserved():
        if request["deadline_s"] is None:
            continue
        due_s = request["submit_s"] + request["deadline_s"]
        end_s = event.end_s
        # An open end is judged by the estimate.
        if end_s is None:
            end_s = event.start_s + (event.estimate_s or 0.0)
        if not about(end_s, due_s):
            admitted = f"{event.job_id}: admitted until {end_s:.6g} s"
            yield event, f"{admitted}, its deadline is {due_s:.6g} s"


def granted_as_asked(history: History) -> Findings:
    """VC grants exactly the bandwidth that was asked for."""
    for request, event in history.reserved():
        asked = request["bandwidth_bps"]
        if event.rate_bps != asked:
            yield (
                event,
                f"{event.job_id}: {event.rate_bps} bit/s granted, {asked} asked for",
            )


def in_order_of_arrival(history: History) -> Findings:
    order: dict[str, int] = {}
    for event in history.of_kind(events.JobSubmitted):
        order[event.job["id"]] = len(order)
    # Jobs that a failure sent back to the queue may start again late.
    requeued = {
        event.job_id for event in history.of_kind(events.JobRequeued)
    }
    latest = -1
    latest_job = ""
    for started in history.of_kind(events.JobStarted):
        place = order.get(started.job_id, -1)
        if started.job_id in requeued:
            continue
        # One that was never submitted is another check's.
        if 0 <= place < latest:
            yield (
                started,
                f"{started.job_id} starts after {latest_job}, which arrived later",
            )
        elif place > latest:
            latest = place
            latest_job = started.job_id


def no_preemption(history: History) -> Findings:
    moved = (
        events.JobPreempted,
        events.JobMigrated,
        events.JobTierSwitched,
    )
    for job in history.jobs.values():
        for event in job.events:
            if isinstance(event, moved):
                yield event, f"{event.name} of {job.job_id}"


def moved_at_reservation_end(history: History) -> Findings:
    """Running jobs move once, at the end of their reservation, without
    bandwidth, to servers on which nothing is reserved.
    """
    reserved_on: dict[int, str] = {}
    for _, reserved in history.reserved():
        for server, _ in reserved.vms_on:
            reserved_on.setdefault(server, reserved.job_id)
    for job in history.jobs.values():
        yield from _moves(job, reserved_on, history.live_slack_s)


def _moves(
    job: JobHistory, reserved_on: Mapping[int, str], slack_s: float
) -> Findings:
    """Faults of a job's moves from its nodes."""
    due_s: float | None = None
    for event in job.events:
        kind = type(event)
        if kind in (events.JobPreempted, events.JobTierSwitched):
            yield event, f"{event.name} of {job.job_id}"
        elif isinstance(event, events.JobReserved):
            due_s = event.end_s
        elif isinstance(event, events.JobMigrated):
            for wrong in _moved_wrong(event, due_s, reserved_on, slack_s):
                yield event, f"{job.job_id} {wrong}"
            # It has no end from here on: a second move has no reason.
            due_s = None


def _moved_wrong(
    event: events.JobMigrated,
    due_s: float | None,
    reserved_on: Mapping[int, str],
    slack_s: float,
) -> Iterator[str]:
    """Faults of a move at the end of a reservation, ``due_s``."""
    if due_s is None:
        yield "moves, and has no reservation that ends"
    elif not (about(due_s, event.t) and about(event.t, due_s, slack_s)):
        at = f"moves at {event.t:.6g} s"
        yield f"{at}, its reservation ends at {due_s:.6g} s"
    if event.links:
        yield "moves, and keeps bandwidth"
    for server, _ in event.vms_on:
        if server in reserved_on:
            yield f"moves to server {server}, reserved by {reserved_on[server]}"


TIMED = ("advance", "immediate")


def _type(job: JobHistory) -> str | None:
    return job.request.get("lease")


def needs_leases(history: History) -> str | None:
    if any(_type(job) in TIMED for job in history.jobs.values()):
        return None
    return "no advance or immediate lease was asked for"


def lease_starts(history: History) -> Findings:
    """Advance leases start when they asked to, immediate ones on arrival.

    Otherwise they are rejected. A lease whose time had not come when the run
    was stopped is neither. In a live run a start is that of the VMs: a moment
    late, never early.
    """
    for job in history.requested:
        if _type(job) in TIMED:
            for event, wrong in _lease_start(job, history.live_slack_s):
                yield event, f"{_type(job)} lease {job.job_id} {wrong}"


def _lease_start(job: JobHistory, slack_s: float) -> Findings:
    wanted_s = job.request.get("wanted_s")
    # An immediate lease wants to start on its arrival.
    if wanted_s is None:
        wanted_s = job.all(events.JobSubmitted)[0].t
    due_s = float(wanted_s)
    started = job.first(events.JobStarted)
    ended = job.first(events.JobEnded)
    if started is not None:
        if not (
            about(started.t, due_s, slack_s) and about(due_s, started.t)
        ):
            yield (
                started,
                f"starts at {started.t:.6g} s, was to start at {due_s:.6g} s",
            )
    elif ended is not None:
        accepted = job.first(events.JobReserved) is not None
        wrong = _never_started_right(ended, due_s, accepted=accepted)
        if wrong:
            yield ended, wrong


def _never_started_right(
    ended: events.JobEnded, due_s: float, *, accepted: bool
) -> str:
    """The fault of a lease that ended without a start; empty where it has
    none.
    """
    if ended.outcome == "rejected":
        if accepted:
            return "was rejected after it had been accepted"
        return ""
    if ended.t > due_s or not (accepted or ended.outcome == "unfinished"):
        return f"was {ended.outcome} and never started at {due_s:.6g} s"
    return ""


def best_effort_preempted_once(history: History) -> Findings:
    """Preemptions of leases: best-effort ones at most once, others never."""
    for job in history.jobs.values():
        allowed = 1
        why = "a second time"
        if _type(job) in TIMED:
            allowed = 0
            why = f"though it is {_type(job)}"
        for event in job.all(events.JobPreempted)[allowed:]:
            yield (
                event,
                f"{job.job_id} is preempted {why}, at {event.t:.6g} s",
            )


# -- EASY: the head of the queue is never delayed by a backfilled job


def head_not_delayed(history: History) -> Findings:
    by_user = "head-not-delayed-by-user-estimates" in history.claims
    queue = _Queue(sum(history.topology.slots), by_user)
    instant_s = 0.0
    for event in history.events:
        if event.t > instant_s:
            # All events of one instant are read: determine the head of the
            # queue and its estimate.
            queue.advance(instant_s)
            instant_s = event.t
        late = queue.follow(event)
        if late is not None:
            yield event, late


@dataclass
class _Queue:
    """Waiting jobs in order, and running ones with their nodes and planned
    ends.
    """

    nodes: int
    by_user: bool
    waiting: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    running: dict[str, tuple[float, int]] = field(default_factory=dict)
    head: str | None = None
    due_s: float | None = None

    def advance(self, now_s: float) -> None:
        head = next(iter(self.waiting), None)
        if head == self.head:
            return
        self.head = head
        self.due_s = None
        if head is not None:
            self.due_s = self._due_s(self.waiting[head]["n_vms"], now_s)

    def _due_s(self, n: int, now_s: float) -> float | None:
        # Jobs that are backfilled later are not among those that run now,
        # and so cannot move the due time.
        free = self.nodes - sum(held for _, held in self.running.values())
        if free >= n:
            return now_s
        # Jobs leave in the order of their planned ends.
        for end_s, held in sorted(self.running.values()):
            free += held
            if free >= n:
                return end_s
        return None

    def _planned_s(self, job: Mapping[str, Any]) -> float:
        stated_s = None
        if self.by_user:
            stated_s = job.get("estimate_s")
        return float(job["duration_s"] if stated_s is None else stated_s)

    def follow(self, event: events.Event) -> str | None:
        """Takes an event in; what is wrong with it."""
        if isinstance(event, events.JobSubmitted):
            self.waiting[str(event.job["id"])] = event.job
        elif isinstance(event, events.JobStarted):
            return self._started(event)
        elif isinstance(event, events.JobEnded):
            self.waiting.pop(event.job_id, None)
            planned = self.running.pop(event.job_id, None)
            # A job that ran longer than planned, or shorter, moves what is due.
            if planned is not None and not about(event.t, planned[0], 1e-6):
                self.due_s = None
        return None

    def _started(self, event: events.JobStarted) -> str | None:
        job = self.waiting.pop(event.job_id, None)
        if job is not None:
            end_s = event.t + self._planned_s(job)
            self.running[event.job_id] = (end_s, job["n_vms"])
        due_s = self.due_s
        if event.job_id != self.head or due_s is None:
            return None
        self.due_s = None
        if about(event.t, due_s, 1e-6):
            return None
        due = f"{event.job_id} was due at {due_s:.6g} s when it came to the head"
        return f"{due} of the queue, and starts at {event.t:.6g} s"


# -- no starvation: the first that waits is not overtaken for ever

GENERATIONS = 5
"""Generations of running jobs that a job may wait for once it is the first in
order of arrival: all that ran then, all that ran when those had left, and so
on. It is fewer than any stream has that is worth the name, and more than
policies need that drain the data centre, age or preempt.
"""


def needs_no_failures(history: History) -> str | None:
    lost = (events.LinkFailed, events.ServerFailed)
    if any(map(history.of_kind, lost)):
        return "failures took capacity away"
    return None


def no_starvation(history: History) -> Findings:
    """A job that fits the empty data centre starts, and later ones do not start
    for ever before it.

    Counted in generations of running jobs (:data:`GENERATIONS`), so that how
    long jobs are, or how late a live network is, is all the same.
    """
    queue = _FirstThatWaits()
    for event in history.events:
        if isinstance(event, events.JobEnded):
            yield from _never_started(history, queue, event)
        starved = queue.follow(event)
        if starved is not None:
            yield event, starved


def _never_started(
    history: History, queue: _FirstThatWaits, event: events.JobEnded
) -> Findings:
    job_id = event.job_id
    if job_id not in queue.never_started:
        return
    if event.outcome == "unfinished" and history.status == "completed":
        yield event, f"{job_id} never started, and was not rejected either"
    elif event.outcome == "rejected" and _surely_fits(history, job_id):
        fits = "though it fits the empty data centre"
        yield event, f"{job_id} was rejected, {fits}"


def _surely_fits(history: History, job_id: str) -> bool:
    """True of a job that one empty server holds, or without bandwidth the whole
    data centre.
    """
    request = history.jobs[job_id].request
    slots = history.topology.slots
    if request.get("cores", 1) != 1 or request.get("memory_mib"):
        return False
    if request["bandwidth_bps"] and "no-starvation" not in history.claims:
        return False
    anywhere = (
        not request["bandwidth_bps"] or not history.topology.capacity_bps
    )
    most = sum(slots) if anywhere else max(slots, default=0)
    return int(request["n_vms"]) <= most


@dataclass
class _FirstThatWaits:
    """Jobs that wait, in order of arrival, and the generations that the first
    has waited for.
    """

    order: dict[str, int] = field(default_factory=dict)
    waiting: SortedDict[int, str] = field(default_factory=SortedDict)
    never_started: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    first: str | None = None
    ahead: set[str] = field(default_factory=set)
    generations: int = 0
    overtaken: int = 0

    def follow(self, event: events.Event) -> str | None:
        """Takes an event in; what is wrong with it."""
        job_id = job_of(event)
        starved = None
        match event:
            case events.JobSubmitted() if job_id is not None:
                self.order.setdefault(job_id, len(self.order))
                self.never_started.add(job_id)
                self._waits(job_id)
            case (
                events.JobStarted()
                | events.JobResumed()
                | events.JobMigrated()
            ):
                starved = self._starts(event.job_id)
            case events.JobPreempted() | events.JobRequeued():
                self._leaves(event.job_id)
                self._waits(event.job_id)
            case events.JobReserved() if event.start_s > event.t:
                self._leaves(event.job_id)  # its time is fixed
            case events.JobEnded():
                self._leaves(event.job_id)
                self.never_started.discard(event.job_id)
            case _:
                pass
        return starved

    def _waits(self, job_id: str) -> None:
        if job_id in self.order:
            self.waiting[self.order[job_id]] = job_id
            self._look()

    def _leaves(self, job_id: str) -> None:
        self.running.discard(job_id)
        self.ahead.discard(job_id)
        self.waiting.pop(self.order.get(job_id, -1), None)
        self._look()

    def _starts(self, job_id: str) -> str | None:
        self.never_started.discard(job_id)
        first = self.first
        overtakes = self._overtakes(job_id)
        self.overtaken += overtakes
        self._leaves(job_id)
        self.running.add(job_id)
        if (
            not overtakes
            or self.generations != GENERATIONS
            or first not in self.never_started
        ):
            return None
        # It is reported once.
        self.generations += 1
        return (
            f"{job_id} is job {self.overtaken} that starts before {first}, which came earlier: all"
            f" that ran has left {GENERATIONS} times meanwhile"
        )

    def _overtakes(self, job_id: str) -> bool:
        """True if a job came later than the first that waits; one that runs
        already only moves.
        """
        if self.first is None or job_id in self.running:
            return False
        return self.order.get(job_id, -1) > self.order[self.first]

    def _look(self) -> None:
        """The first that waits now, and the next generation where the last has
        left.
        """
        first = self.waiting.peekitem(0)[1] if self.waiting else None
        if first != self.first:
            self.first = first
            self.generations = 0
            self.overtaken = 0
            self.ahead = set(self.running)
        elif not self.ahead and self.running:
            # No further than the limit, which is reported once.
            self.generations += self.generations < GENERATIONS
            self.ahead = set(self.running)


def _claim(
    says: str,
    find: Callable[[History], Findings],
    *claims: str,
    needs: Callable[[History], str | None] = lambda _: None,
) -> Invariant:
    return Invariant(
        name=claims[0], says=says, find=find, needs=needs, claims=claims
    )


CLAIM_CHECKS = (
    _claim(
        "every job has the bandwidth it asked for",
        granted_as_asked,
        "granted-as-asked",
    ),
    _claim(
        "every reservation ends by its deadline",
        within_deadline,
        "within-deadline",
    ),
    _claim(
        "every job has an option of its profile that meets the deadline",
        options_within_deadline,
        "options-within-deadline",
    ),
    _claim(
        "jobs start in the order of their arrival",
        in_order_of_arrival,
        "in-order-of-arrival",
    ),
    _claim(
        "no head of the queue starts later than was due",
        head_not_delayed,
        "head-not-delayed",
        "head-not-delayed-by-user-estimates",
    ),
    _claim(
        "only best-effort leases are preempted, each once at most",
        best_effort_preempted_once,
        "best-effort-preempted-once",
    ),
    _claim(
        "no running job is preempted or moved",
        no_preemption,
        "no-preemption",
    ),
    _claim(
        "jobs move at the end of their reservation alone, to servers without any",
        moved_at_reservation_end,
        "moved-at-reservation-end",
    ),
    _claim(
        "every job that fits the empty data centre starts",
        no_starvation,
        "no-starvation",
        "no-starvation-without-bandwidth",
        needs=needs_no_failures,
    ),
)
"""Checks by the claims that policies declare, each called as its (first) claim.
"""
