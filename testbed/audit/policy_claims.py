"""Claims that policies declare, and the start of leases, proved from the
events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from testbed import events
from testbed.audit.head_of_queue import head_not_delayed
from testbed.audit.history import (
    Findings,
    History,
    Invariant,
    JobHistory,
    about,
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
        # A reservation without an end is judged by the estimated end.
        if end_s is None:
            end_s = event.start_s + (event.estimate_s or 0.0)
        if not about(end_s, due_s):
            admitted = f"{event.job_id}: admitted until {end_s:.6g} s"
            yield event, f"{admitted}, its deadline is {due_s:.6g} s"


def granted_as_asked(history: History) -> Findings:
    """VC grants exactly the bandwidth that was asked for, to the job's end."""
    for job in history.requested:
        asked = job.request["bandwidth_bps"]
        for event in job.events:
            if (
                isinstance(event, events.JobReserved | events.JobRescaled)
                and event.rate_bps != asked
            ):
                yield (
                    event,
                    f"{event.job_id}: {event.rate_bps} bit/s granted, {asked} asked for",
                )


def in_order_of_arrival(history: History) -> Findings:
    """Jobs start in their order of arrival, except those requeued by a failure."""
    order: dict[str, int] = {}
    for event in history.of_kind(events.JobSubmitted):
        order[event.job["id"]] = len(order)
    # A requeued job may start after jobs that arrived later.
    requeued = {
        event.job_id for event in history.of_kind(events.JobRequeued)
    }
    latest = -1
    latest_job = ""
    for started in history.of_kind(events.JobStarted):
        place = order.get(started.job_id, -1)
        if started.job_id in requeued:
            continue
        # A job that was never submitted (-1) has a finding of its own.
        if 0 <= place < latest:
            yield (
                started,
                f"{started.job_id} starts after {latest_job}, which arrived later",
            )
        elif place > latest:
            latest = place
            latest_job = started.job_id


def no_preemption(history: History) -> Findings:
    """No running job is preempted, migrated or switched to another tier."""
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
    """Running jobs move at most once: at the end of their reservation, without
    bandwidth, and to servers that no reservation of the run uses.
    """
    reserved_on: dict[int, str] = {}
    for _, reserved in history.reserved():
        for server, _ in reserved.vms_on:
            reserved_on.setdefault(server, reserved.job_id)
    for job in history.jobs.values():
        yield from _move_findings(job, reserved_on, history.live_slack_s)


def _move_findings(
    job: JobHistory, reserved_on: Mapping[int, str], slack_s: float
) -> Findings:
    """Findings on a job's moves.

    ``reserved_on`` names, by server, a job that reserved it; a move may be
    ``slack_s`` late.
    """
    due_s: float | None = None
    for event in job.events:
        kind = type(event)
        if kind in (events.JobPreempted, events.JobTierSwitched):
            yield event, f"{event.name} of {job.job_id}"
        elif isinstance(event, events.JobReserved):
            due_s = event.end_s
        elif isinstance(event, events.JobMigrated):
            for wrong in _move_faults(event, due_s, reserved_on, slack_s):
                yield event, f"{job.job_id} {wrong}"
            # The job has no reservation any more: a second move is a fault.
            due_s = None


def _move_faults(
    event: events.JobMigrated,
    due_s: float | None,
    reserved_on: Mapping[int, str],
    slack_s: float,
) -> Iterator[str]:
    """Faults of a move that is due at ``due_s``, a reservation's end.

    None: no reservation ends.
    """
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


TIMED_LEASES = ("advance", "immediate")
"""Kinds of leases whose time of start is fixed."""


def _lease(job: JobHistory) -> str | None:
    """A job's kind of lease; None where it asked for none."""
    return job.request.get("lease")


def needs_leases(history: History) -> str | None:
    if any(_lease(job) in TIMED_LEASES for job in history.jobs.values()):
        return None
    return "no advance or immediate lease was asked for"


def lease_starts(history: History) -> Findings:
    """Advance leases start at the time asked for, immediate ones on arrival.

    A lease that does not is rejected. If the run is stopped before its time,
    it is neither started nor rejected. In a live run a lease starts with its
    VMs, which may be late by the run's slack and never early.
    """
    for job in history.requested:
        if _lease(job) in TIMED_LEASES:
            for event, wrong in _lease_start_findings(
                job, history.live_slack_s
            ):
                yield event, f"{_lease(job)} lease {job.job_id} {wrong}"


def _lease_start_findings(job: JobHistory, slack_s: float) -> Findings:
    wanted_s = job.request.get("wanted_s")
    # An immediate lease asks for no time: it is due on arrival.
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
        wrong = _fault_without_start(ended, due_s, accepted=accepted)
        if wrong:
            yield ended, wrong


def _fault_without_start(
    ended: events.JobEnded, due_s: float, *, accepted: bool
) -> str:
    """The fault of a lease that ended without a start; empty where it has none.

    It may be rejected unless ``accepted`` before, or end by its due time:
    unfinished, as the run was stopped, or in any way once accepted.
    """
    if ended.outcome == "rejected":
        if accepted:
            return "was rejected after it had been accepted"
        return ""
    if ended.t > due_s or not (accepted or ended.outcome == "unfinished"):
        return f"was {ended.outcome} and never started at {due_s:.6g} s"
    return ""


def best_effort_preempted_once(history: History) -> Findings:
    """Best-effort leases are preempted at most once, timed ones never."""
    for job in history.jobs.values():
        allowed = 1
        why = "a second time"
        if _lease(job) in TIMED_LEASES:
            allowed = 0
            why = f"though it is {_lease(job)}"
        for event in job.all(events.JobPreempted)[allowed:]:
            yield (
                event,
                f"{job.job_id} is preempted {why}, at {event.t:.6g} s",
            )


# -- no starvation: the first waiting job is not overtaken for ever

GENERATIONS = 5
"""Generations of running jobs that the first waiting job may wait for.

The first generation are the jobs that run when it becomes the first; the next
are those that run when all of the one before have left. Policies that drain the
data centre, age jobs or preempt need fewer, and starvation lasts for more.
"""


def needs_no_failures(history: History) -> str | None:
    lost = (events.LinkFailed, events.ServerFailed)
    if any(map(history.of_kind, lost)):
        return "failures took capacity away"
    return None


def no_starvation(history: History) -> Findings:
    """A job that fits the empty data centre starts, and is not overtaken by later
    ones for ever.

    The limit is a number of generations of running jobs (:data:`GENERATIONS`),
    not a time, so that it does not depend on the jobs' lengths or on a live
    network's lateness.
    """
    queue = _ArrivalQueue()
    for event in history.events:
        if isinstance(event, events.JobEnded):
            yield from _end_findings(history, queue, event)
        starved = queue.follow(event)
        if starved is not None:
            yield event, starved


def _end_findings(
    history: History, queue: _ArrivalQueue, event: events.JobEnded
) -> Findings:
    """A finding on the end of a job that never started, but had to."""
    job_id = event.job_id
    if job_id not in queue.never_started:
        return
    if event.outcome == "unfinished" and history.status == "completed":
        yield event, f"{job_id} never started, and was not rejected either"
    elif event.outcome == "rejected" and _surely_fits(history, job_id):
        fits = "though it fits the empty data centre"
        yield event, f"{job_id} was rejected, {fits}"


def _surely_fits(history: History, job_id: str) -> bool:
    """True if a job certainly fits the empty data centre.

    Without bandwidth, or without limits of the links, its VMs may be on all
    servers; else only a job that fits a single server is certain to. False for
    jobs that the policy's claim leaves out, and where memory or cores decide.
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
class _ArrivalQueue:
    """Waiting jobs in order of arrival, and the generations that the first has
    waited for.

    ``by_arrival`` is a heap of the waiting jobs with their places in the order,
    and of some that wait no more. ``left_of_generation`` are jobs of the
    current generation that still run. ``n_overtakers`` counts later jobs that
    have started before the first.
    """

    order: dict[str, int] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    by_arrival: list[tuple[int, str]] = field(default_factory=list)
    never_started: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    first: str | None = None
    left_of_generation: set[str] = field(default_factory=set)
    generations: int = 0
    n_overtakers: int = 0

    def follow(self, event: events.Event) -> str | None:
        """Updates the queue by an event; returns the event's fault, if any."""
        match event:
            case events.JobSubmitted():
                job_id = str(event.job["id"])
                self.order.setdefault(job_id, len(self.order))
                self.never_started.add(job_id)
                self._waits(job_id)
            case (
                events.JobStarted()
                | events.JobResumed()
                | events.JobMigrated()
            ):
                return self._starts(event.job_id)
            case events.JobPreempted() | events.JobRequeued():
                self._leaves(event.job_id)
                self._waits(event.job_id)
            case events.JobReserved() if event.start_s > event.t:
                # A job with a fixed time does not wait any more.
                self._leaves(event.job_id)
            case events.JobEnded():
                self._leaves(event.job_id)
                self.never_started.discard(event.job_id)
        return None

    def _waits(self, job_id: str) -> None:
        if job_id in self.order:
            heappush(self.by_arrival, (self.order[job_id], job_id))
            self.waiting.add(job_id)
            self._update_first()

    def _leaves(self, job_id: str) -> None:
        """Removes a job from the running and from the waiting ones."""
        self.running.discard(job_id)
        self.left_of_generation.discard(job_id)
        self.waiting.discard(job_id)
        self._update_first()

    def _starts(self, job_id: str) -> str | None:
        """Counts a job as running; returns the fault if the first starves."""
        self.never_started.discard(job_id)
        first = self.first
        overtakes = self._overtakes(job_id)
        self.n_overtakers += overtakes
        self._leaves(job_id)
        self.running.add(job_id)
        if (
            not overtakes
            or self.generations != GENERATIONS
            or first not in self.never_started
        ):
            return None
        # Beyond the limit, so that the fault is reported once.
        self.generations += 1
        return (
            f"{job_id} is job {self.n_overtakers} that starts before {first},"
            f" which came earlier: all that ran has left {GENERATIONS} times meanwhile"
        )

    def _overtakes(self, job_id: str) -> bool:
        """True if a job that starts came later than the first waiting one.

        False for a job that runs already, as it only moves.
        """
        if self.first is None or job_id in self.running:
            return False
        return self.order.get(job_id, -1) > self.order[self.first]

    def _update_first(self) -> None:
        """Updates the first waiting job and its current generation."""
        first = self._first_waiting()
        if first != self.first:
            self.first = first
            self.generations = 0
            self.n_overtakers = 0
            self.left_of_generation = set(self.running)
        elif not self.left_of_generation and self.running:
            # Counted up to the limit only, at which `_starts` reports.
            self.generations += self.generations < GENERATIONS
            self.left_of_generation = set(self.running)

    def _first_waiting(self) -> str | None:
        """The first waiting job in order of arrival; None where none waits."""
        while self.by_arrival:
            job_id = self.by_arrival[0][1]
            if job_id in self.waiting:
                return job_id
            heappop(self.by_arrival)
        return None


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
        needs=needs_no_failures,
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
"""A check for each claim that policies declare, named after the claim, or after
the first of several.
"""
