"""JSA: elastic bandwidth reservation for batches of jobs with deadlines and
rewards (Shen et al.).

A round schedules all jobs that wait, at every instant at which a job arrives or
ends. These are the paper's t_k; the paper has one in every time slot. Algorithm
1 has three phases. Lines 5–19 place jobs at the least bandwidth that meets
their deadlines. Lines 21–29 shorten the longest of them option by option. Lines
31–33 give each the most that fits. Every change is in the residuals, and in the
job's τ, before the next one is considered.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from jobs.request import JobRequest
from testbed.embedding.counts import Counts, reason_of_no_room
from testbed.embedding.exact import VMPLACE
from testbed.embedding.placement import (
    Embedder,
    Placement,
    Residual,
    empty_residual,
    is_idle,
)
from testbed.reservation.ledger import footprint
from testbed.schedulers.actions import (
    Action,
    Ended,
    PolicyEvent,
    Reject,
    Start,
    Wait,
    Wake,
    Woken,
)
from testbed.schedulers.policy import PolicyKind, View
from testbed.units import human_bandwidth
from topologies.datacentre import DataCentre, IntArray

SLACK = 1e-9

Options: TypeAlias = tuple[tuple[int, float], ...]
"""``(bandwidth_bps, duration_s)``, bandwidths rising."""


@dataclass(frozen=True, eq=False)
class Held:
    """A placed hose: it needs min(X, N-X) times its rate on ``links[k]``.

    ``crossing[k]`` is that min(X, N-X).
    """

    placement: Placement
    links: IntArray
    crossing: IntArray


class Room:
    """Slots and bandwidth that are free, shrinking as jobs are placed.

    ``complete`` says that the embedder places ⟨n, b⟩ whenever that is possible.
    Where one hose has failed then, a hose of as many VMs or more, at the same
    bandwidth or more, fails too, and the embedder is not asked. ``largest_bps``
    is the embedder's.
    """

    def __init__(
        self,
        datacentre: DataCentre,
        free: Residual,
        embedder: Embedder,
        *,
        complete: bool = True,
        largest_bps: int = 0,
    ) -> None:
        self.datacentre = datacentre
        # A copy, which the paper calls virtual resource status. Jobs of this
        # round take from it before the engine has started them.
        self.free = Residual(free.free_slots.copy(), free.free_bps.copy())
        self.free_slots = int(free.free_slots.sum())
        self._embed = partial(
            embedder.embed, datacentre, largest_bps=largest_bps
        )
        self.complete = complete
        self._failed: list[tuple[int, int]] = []

    @property
    def idle(self) -> bool:
        """True while no slot is taken, and no server or link is lost."""
        return is_idle(self.datacentre, self.free)

    def place(self, n_vms: int, rate_bps: int) -> Held | None:
        """Book ⟨n, b⟩ where the embedder puts it; None where it finds no place."""
        if n_vms > self.free_slots:
            return None
        # In this round a hose that asks for no more has failed already.
        for failed_n_vms, failed_bps in self._failed:
            if failed_n_vms <= n_vms and failed_bps <= rate_bps:
                return None
        answer = self._embed(self.free, n_vms, rate_bps)
        if isinstance(answer, Placement):
            return self.book(answer, rate_bps)
        if self.complete:
            self._note_failure(n_vms, rate_bps)
        return None

    def _note_failure(self, n_vms: int, rate_bps: int) -> None:
        """Notes a failure, and drops those that it implies: hoses of as many VMs
        or more, at the same bandwidth or more.
        """
        least = []
        for failed_n_vms, failed_bps in self._failed:
            if failed_n_vms < n_vms or failed_bps < rate_bps:
                least.append((failed_n_vms, failed_bps))
        least.append((n_vms, rate_bps))
        self._failed = least

    def book(self, placement: Placement, rate_bps: int) -> Held:
        """Takes a placement's slots, and its bandwidth at ``rate_bps``."""
        # At 1 bit/s per VM the amounts on links are min(X, N-X).
        taken = footprint(self.datacentre, placement, 1)
        servers = self.datacentre.n_servers
        split = int(np.searchsorted(taken.objects, servers))
        self.free.free_slots[taken.objects[:split]] -= taken.amounts[:split]
        self.free_slots -= placement.n_vms
        held = Held(
            placement,
            taken.objects[split:] - servers,
            taken.amounts[split:],
        )
        self.take(held, rate_bps)
        return held

    def take(self, held: Held, more_bps: int) -> None:
        """Takes ``more_bps`` per VM for a placed job; below 0 it is given back."""
        amount = held.crossing * more_bps
        # A hose needs as much in either direction.
        self.free.free_bps[2 * held.links] -= amount
        self.free.free_bps[2 * held.links + 1] -= amount

    def spare_bps(self, held: Held) -> float:
        """Bandwidth per VM that a placed job could have beside its own.

        Infinite for a job that crosses no link.
        """
        if not len(held.links):
            return math.inf
        up = self.free.free_bps[2 * held.links]
        down = self.free.free_bps[2 * held.links + 1]
        return int((np.minimum(up, down) // held.crossing).min())

    def fits_when_empty(self, n_vms: int, rate_bps: int) -> bool:
        """True where the idle data centre has a place for ⟨n, b⟩."""
        idle = empty_residual(self.datacentre)
        answer = self._embed(idle, n_vms, rate_bps)
        return isinstance(answer, Placement)


def by_deadline(job: JobRequest) -> float:
    """The deadline on the run's clock; infinite where there is none."""
    if job.deadline_at_s is None:
        return math.inf
    return job.deadline_at_s


@dataclass(frozen=True, eq=False)
class ReadyJob:
    """A job of J_ready: its options, and its number by arrival."""

    job: JobRequest
    options: Options
    order: int

    @cached_property
    def due_s(self) -> float:
        return by_deadline(self.job)


@dataclass(eq=False)
class Scheduled:
    """A job of J_run: where it is, and which of its options it has."""

    candidate: ReadyJob
    held: Held
    option: int

    @property
    def rate_bps(self) -> int:
        return self.candidate.options[self.option][0]

    @property
    def duration_s(self) -> float:
        """τ_j at its present option."""
        return self.candidate.options[self.option][1]


def by_reward(ready: Iterable[ReadyJob], now_s: float) -> list[ReadyJob]:
    """J_ready by reward over the time left, the highest first (line 5).

    Jobs that are equal in that go by the time left, then by arrival. Without
    rewards that is the earliest deadline first.
    """

    def rank(candidate: ReadyJob) -> tuple[float, float, int]:
        left_s = candidate.due_s - now_s
        # An overdue job comes first, to be discarded at once (line 9).
        ratio = candidate.job.value / left_s if left_s > 0 else math.inf
        return -ratio, left_s, candidate.order

    return sorted(ready, key=rank)


def least_option(candidate: ReadyJob, now_s: float) -> int | None:
    """The number of the option with the least bandwidth whose τ ≤ d̂ (line 7).

    d̂ is the time left until the deadline. None: every option takes longer.
    """
    due_s = candidate.due_s
    limit_s = due_s - now_s
    if limit_s < math.inf:
        # The deadline is a sum of floats: an option that ends exactly then
        # is on time.
        limit_s += SLACK * max(1.0, abs(due_s))
    for k, (_, took_s) in enumerate(candidate.options):
        if took_s <= limit_s:
            # Bandwidths of options rise and their times fall: the first that
            # is fast enough has the least bandwidth.
            return k
    return None


def admit(
    room: Room, ready: Iterable[ReadyJob], now_s: float
) -> tuple[list[Scheduled], list[ReadyJob], list[tuple[ReadyJob, int]]]:
    """Lines 5–19: places each job at the least option that meets its deadline,
    if there is room.

    Returns J_run, the jobs that can no longer be on time, and the jobs without
    a place, each with the rate that was tried.
    """
    run: list[Scheduled] = []
    late: list[ReadyJob] = []
    waiting: list[tuple[ReadyJob, int]] = []
    for candidate in by_reward(ready, now_s):
        option = least_option(candidate, now_s)
        if option is None:
            late.append(candidate)
            continue
        rate_bps = candidate.options[option][0]
        held = room.place(candidate.job.n_vms, rate_bps)
        # A job without a place waits for the next round, and holds up nobody
        # behind it.
        if held is None:
            waiting.append((candidate, rate_bps))
        else:
            run.append(Scheduled(candidate, held, option))
    return run, late, waiting


def shorten_longest(room: Room, run: Iterable[Scheduled]) -> None:
    """Lines 21–29: gives the longest job its next option, again and again, until
    that has no room or there is none.
    """
    by_length = [(-job.duration_s, job.candidate.order, job) for job in run]
    heapq.heapify(by_length)
    while by_length:
        _, order, longest = by_length[0]
        options = longest.candidate.options
        if longest.option + 1 == len(options):
            # Line 29: the longest job gets no shorter, and so the round does
            # not either. Shorter jobs are left to lines 31–33.
            return
        more_bps = options[longest.option + 1][0] - longest.rate_bps
        if more_bps > room.spare_bps(longest.held):
            return
        room.take(longest.held, more_bps)
        longest.option += 1
        heapq.heapreplace(by_length, (-longest.duration_s, order, longest))


def raise_all(room: Room, run: Iterable[Scheduled]) -> None:
    """Lines 31–33: gives each job the highest option that fits, those with most
    VMs first.
    """
    # A job with many VMs that ends early gives most back to those that wait
    # (the text on Algorithm 1).
    for job in sorted(
        run, key=lambda job: (-job.candidate.job.n_vms, job.candidate.order)
    ):
        options = job.candidate.options
        best = _highest_option(job, room.spare_bps(job.held))
        room.take(job.held, options[best][0] - job.rate_bps)
        job.option = best


def _highest_option(job: Scheduled, spare_bps: float) -> int:
    """The number of the last option for which the spare bandwidth is enough."""
    options = job.candidate.options
    best = job.option
    while best + 1 < len(options):
        if options[best + 1][0] - job.rate_bps > spare_bps:
            break
        best += 1
    return best


def why_late(candidate: ReadyJob, now_s: float) -> str:
    """The reason for which a job is discarded (line 9)."""
    rate_bps, fastest_s = candidate.options[-1]
    left_s = candidate.due_s - now_s
    return (
        f"{max(left_s, 0.0):.6g} s are left until its deadline; at {human_bandwidth(rate_bps)},"
        f" its highest option, it takes {fastest_s:.6g} s"
    )


class Rounds:
    """Base of policies that schedule all waiting jobs together
    (:meth:`round`), once in an instant.

    A batch arrives as many jobs at one instant, and is scheduled when all of
    them are there: the policy asks to be woken at that same instant, which
    comes after all its ends and arrivals.
    """

    def __init__(
        self, name: str, embedder: Embedder, *, complete: bool = True
    ) -> None:
        self.name = name
        self._embedder = embedder
        self._complete = complete
        self._asked = False
        self._candidates: dict[str, ReadyJob] = {}
        # Jobs that wait, and whose reason has been given.
        self._explained: set[str] = set()

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if isinstance(event, Woken):
            self._asked = False
            return self._new_round(view)
        if isinstance(event, Ended):
            # A job that a failure stopped waits again, for another reason.
            self._explained.discard(event.job_id)
            if event.more_at_this_time:
                return []
        if self._asked:
            return []
        self._asked = True
        return [Wake(view.now_s)]

    def _new_round(self, view: View) -> list[Action]:
        ready = [self._candidate(view, job_id) for job_id in view.waiting()]
        if not ready:
            return []
        # Jobs that the last round started are in the engine's residual by now.
        room = Room(
            view.datacentre,
            view.residual(view.now_s, None),
            self._embedder,
            complete=self._complete,
            largest_bps=view.largest_bps,
        )
        return self.round(room, ready, view.now_s)

    def round(
        self, room: Room, ready: list[ReadyJob], now_s: float
    ) -> list[Action]:
        """Starts and rejects jobs that are ready, and says why others wait."""
        raise NotImplementedError

    def options(self, job: JobRequest) -> Options:
        """The bandwidths that a job may get, the least first, with its duration
        at each.

        They are its profile's. A job without a profile has its own bandwidth
        alone.
        """
        if job.demand.profile is not None:
            return job.demand.profile.options
        return ((job.bandwidth_bps, job.duration_s),)

    def explain(
        self, room: Room, candidate: ReadyJob, rate_bps: int
    ) -> list[Action]:
        """The reason, once, for a job that has no place at a rate.

        A job for which the idle data centre has no place is rejected: as its
        deadline draws nearer it asks for more bandwidth, and never for less.
        """
        job = candidate.job
        # Once is enough, unless the room is idle: then the job never fits.
        if job.id in self._explained and not room.idle:
            return []
        self._explained.add(job.id)
        # An idle room is as empty as one gets.
        if room.idle or not room.fits_when_empty(job.n_vms, rate_bps):
            reason = (
                "the idle data centre has no place for"
                f" {job.n_vms} VMs at {human_bandwidth(rate_bps)} each"
            )
            if not room.complete:
                reason += " that this embedder finds"
            return [Reject(job.id, reason)]
        counts = Counts(room.datacentre, room.free, job.n_vms, rate_bps)
        return [Wait(job.id, reason_of_no_room(counts).reason)]

    def _candidate(self, view: View, job_id: str) -> ReadyJob:
        """The same object in every round that the job waits for."""
        if job_id not in self._candidates:
            job = view.job(job_id)
            self._candidates[job_id] = ReadyJob(
                job, self.options(job), view.order(job_id)
            )
        return self._candidates[job_id]


class JSA(Rounds):
    """Algorithm 1; without lines 21–33 (``speeds_up=False``) it is SimpleJSA.

    Jobs keep their slots and bandwidth until they end.
    """

    def __init__(
        self, name: str = "jsa", *, speeds_up: bool = True
    ) -> None:
        super().__init__(name, VMPLACE)
        self._speeds_up = speeds_up

    def round(
        self, room: Room, ready: list[ReadyJob], now_s: float
    ) -> list[Action]:
        run, late, waiting = admit(room, ready, now_s)
        # Before bandwidths are raised: this is the room in which these jobs
        # found no place.
        reasons: list[Action] = []
        for candidate, rate_bps in waiting:
            reasons += self.explain(room, candidate, rate_bps)
        if self._speeds_up:
            shorten_longest(room, run)
            raise_all(room, run)
        out: list[Action] = []
        for candidate in late:
            out.append(Reject(candidate.job.id, why_late(candidate, now_s)))
        for job in run:
            out.append(
                Start(
                    job.candidate.job.id, job.held.placement, job.rate_bps
                )
            )
        return out + reasons


def _kind(name: str, summary: str, *, speeds_up: bool) -> PolicyKind:
    return PolicyKind(
        name,
        summary,
        lambda _, __: JSA(name, speeds_up=speeds_up),
        on_failure=("requeue", "kill", "wait"),
        claims=("options-within-deadline", "no-preemption"),
    )


POLICIES = (
    _kind(
        "jsa",
        "JSA: elastic bandwidth, most reward per time left first",
        speeds_up=True,
    ),
    _kind(
        "simple-jsa",
        "JSA at the least bandwidth that meets the deadline",
        speeds_up=False,
    ),
)
