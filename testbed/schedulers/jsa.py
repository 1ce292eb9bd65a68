"""JSA: elastic bandwidth reservation for batches of jobs with deadlines and rewards (Shen et al.).

At every instant at which something arrives or ends, the jobs that wait are scheduled anew: the
paper's t_k, event driven instead of slot by slot. Algorithm 1 has three phases. Lines 5–19 place
jobs at the least bandwidth that meets their deadlines, lines 21–29 shorten the longest of them
option by option, lines 31–33 give each the most that fits. Every change is in the residuals, and
in the job's τ, before the next one is considered.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jobs.request import JobRequest
from testbed.embedding.counts import Counts, missed, refusal
from testbed.embedding.placement import Placement, Residual, empty_residual
from testbed.embedding.vmplace import most_localized
from testbed.reservation.ledger import footprint
from testbed.schedulers.actions import Action, Ended, PolicyEvent, Reject, Start, Wait, Wake, Woken
from testbed.schedulers.policy import PolicyKind, View
from testbed.units import human_bandwidth
from topologies.datacentre import DataCentre, IntArray

SLACK = 1e-9

Find = Callable[[DataCentre, Residual, int, int], Placement | None]
"""An embedder without its reasons: where ⟨n, b⟩ goes, or None."""


@dataclass(frozen=True, eq=False)
class Held:
    """A placed hose: ``crossing[k]`` = min(X, N-X) VMs on ``links[k]``, at any rate."""

    placement: Placement
    links: IntArray
    crossing: IntArray


class Room:
    """Slots and bandwidth that are free, shrinking as jobs are placed.

    ``complete`` says that ``find`` places ⟨n, b⟩ whenever that is possible. Feasibility is monotone
    in n and in b, so what failed once in a round spares it all hoses that ask for no less.
    """

    def __init__(
        self, datacentre: DataCentre, free: Residual, find: Find, *, complete: bool = True
    ) -> None:
        self.datacentre = datacentre
        self.free = Residual(free.free_slots.copy(), free.free_bps.copy())
        self.free_slots = int(free.free_slots.sum())
        self._find = find
        self.complete = complete
        self._failed: list[tuple[int, int]] = []

    @property
    def idle(self) -> bool:
        """True while no slot is taken."""
        return self.free_slots == self.datacentre.total_slots

    def place(self, n_vms: int, rate_bps: int) -> Held | None:
        """Book ⟨n, b⟩ where the embedder puts it; None where it finds no place."""
        if n_vms > self.free_slots or self.hopeless(n_vms, rate_bps):
            return None
        placement = self._find(self.datacentre, self.free, n_vms, rate_bps)
        if placement is None:
            self._fail(n_vms, rate_bps)
            return None
        return self.book(placement, rate_bps)

    def book(self, placement: Placement, rate_bps: int) -> Held:
        """Take a placement's slots, and its bandwidth at ``rate_bps``."""
        taken = footprint(self.datacentre, placement, 1)
        servers = self.datacentre.n_servers
        split = int(np.searchsorted(taken.objects, servers))
        self.free.free_slots[taken.objects[:split]] -= taken.amounts[:split]
        self.free_slots -= placement.n_vms
        held = Held(placement, taken.objects[split:] - servers, taken.amounts[split:])
        self.take(held, rate_bps)
        return held

    def take(self, held: Held, more_bps: int) -> None:
        """Give a placed job ``more_bps`` per VM; below 0 it gives back."""
        amount = held.crossing * more_bps
        self.free.free_bps[2 * held.links] -= amount
        self.free.free_bps[2 * held.links + 1] -= amount

    def spare_bps(self, held: Held) -> int | None:
        """Bandwidth that a placed job could have more, per VM; None: no link bounds it."""
        if not len(held.links):
            return None
        up, down = self.free.free_bps[2 * held.links], self.free.free_bps[2 * held.links + 1]
        return int((np.minimum(up, down) // held.crossing).min())

    def hopeless(self, n_vms: int, rate_bps: int) -> bool:
        """True where a hose that asks for no more than this one failed in this round already."""
        return any(n <= n_vms and b <= rate_bps for n, b in self._failed)

    def fits_when_empty(self, n_vms: int, rate_bps: int) -> bool:
        """True where the idle data centre has a place for ⟨n, b⟩."""
        if n_vms > self.datacentre.total_slots:
            return False
        idle = empty_residual(self.datacentre)
        return self._find(self.datacentre, idle, n_vms, rate_bps) is not None

    def _fail(self, n_vms: int, rate_bps: int) -> None:
        if self.complete:
            kept = [(n, b) for n, b in self._failed if n < n_vms or b < rate_bps]
            self._failed = [*kept, (n_vms, rate_bps)]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A job of J_ready: its options ``(bandwidth_bps, duration_s)`` and its number by arrival."""

    job: JobRequest
    options: tuple[tuple[int, float], ...]
    order: int

    @cached_property
    def due_s(self) -> float:
        """The deadline on the run's clock; infinite where there is none."""
        due_s = self.job.deadline_at_s
        return math.inf if due_s is None else due_s


@dataclass(eq=False)
class Scheduled:
    """A job of J_run: where it is, and which of its options it has."""

    candidate: Candidate
    held: Held
    option: int

    @property
    def rate_bps(self) -> int:
        return self.candidate.options[self.option][0]

    @property
    def duration_s(self) -> float:
        """τ_j at its present option."""
        return self.candidate.options[self.option][1]


@dataclass(frozen=True, eq=False)
class Admitted:
    """Outcome of phase 1: J_run, jobs that can no longer be on time, jobs without a place."""

    run: list[Scheduled]
    late: list[Candidate]
    waiting: list[tuple[Candidate, int]]


def options_of(job: JobRequest) -> tuple[tuple[int, float], ...]:
    """A job's profile; without one its own bandwidth is the only option."""
    if job.demand.profile is not None:
        return job.demand.profile.options
    return ((job.bandwidth_bps, job.duration_s),)


def by_reward(ready: Iterable[Candidate], now_s: float) -> list[Candidate]:
    """J_ready by reward over the time left, the highest first (line 5).

    Equal ones by the time left, then by arrival: without rewards that is earliest deadline first.
    """

    def rank(candidate: Candidate) -> tuple[float, float, int]:
        left_s = candidate.due_s - now_s
        ratio = candidate.job.value / left_s if left_s > 0 else math.inf
        return -ratio, left_s, candidate.order

    return sorted(ready, key=rank)


def least_option(candidate: Candidate, now_s: float) -> int | None:
    """The least bandwidth with τ ≤ d̂, d̂ being what is left until the deadline now (line 7)."""
    due_s = candidate.due_s
    limit_s = due_s - now_s
    if limit_s < math.inf:
        limit_s += SLACK * max(1.0, abs(due_s))
    for k, (_, took_s) in enumerate(candidate.options):
        if took_s <= limit_s:
            return k
    return None


def admit(room: Room, ready: Iterable[Candidate], now_s: float) -> Admitted:
    """Lines 5–19: each job at the least option that meets its deadline, if there is room."""
    run: list[Scheduled] = []
    late: list[Candidate] = []
    waiting: list[tuple[Candidate, int]] = []
    for candidate in by_reward(ready, now_s):
        option = least_option(candidate, now_s)
        if option is None:
            late.append(candidate)
            continue
        rate_bps = candidate.options[option][0]
        held = room.place(candidate.job.n_vms, rate_bps)
        if held is None:
            waiting.append((candidate, rate_bps))
        else:
            run.append(Scheduled(candidate, held, option))
    return Admitted(run, late, waiting)


def shorten_longest(room: Room, run: Iterable[Scheduled]) -> None:
    """Lines 21–29: the longest job gets its next option, until the longest cannot have it."""
    by_length = [(-job.duration_s, job.candidate.order, job) for job in run]
    heapq.heapify(by_length)
    while by_length:
        _, order, longest = by_length[0]
        options = longest.candidate.options
        if longest.option + 1 == len(options):
            return
        more_bps = options[longest.option + 1][0] - longest.rate_bps
        spare_bps = room.spare_bps(longest.held)
        if spare_bps is not None and more_bps > spare_bps:
            return
        room.take(longest.held, more_bps)
        longest.option += 1
        heapq.heapreplace(by_length, (-longest.duration_s, order, longest))


def raise_all(room: Room, run: Iterable[Scheduled]) -> None:
    """Lines 31–33: each job, those with most VMs first, gets the highest option that fits."""
    for job in sorted(run, key=lambda job: (-job.candidate.job.n_vms, job.candidate.order)):
        options = job.candidate.options
        spare_bps = room.spare_bps(job.held)
        best = job.option
        while best + 1 < len(options) and (
            spare_bps is None or options[best + 1][0] - job.rate_bps <= spare_bps
        ):
            best += 1
        room.take(job.held, options[best][0] - job.rate_bps)
        job.option = best


def why_late(candidate: Candidate, now_s: float) -> str:
    """Why a job is discarded (line 9)."""
    rate_bps, fastest_s = candidate.options[-1]
    left_s = candidate.due_s - now_s
    return (
        f"{max(left_s, 0.0):.6g} s are left until its deadline; at {human_bandwidth(rate_bps)},"
        f" its highest option, it takes {fastest_s:.6g} s"
    )


class Rounds:
    """Asks to be woken once in every instant in which something happens.

    A batch arrives as many jobs at one instant; scheduling it needs all of them. What a policy is
    woken for comes after the ends and arrivals of that instant.
    """

    def __init__(self) -> None:
        self._asked = False

    def ask(self, view: View, event: PolicyEvent) -> list[Action]:
        """Answer an arrival or an end: a round at this instant, unless one is due already."""
        if self._asked or (isinstance(event, Ended) and event.more_at_this_time):
            return []
        self._asked = True
        return [Wake(view.now_s)]

    def begin(self) -> None:
        """The round has come."""
        self._asked = False


def explain(room: Room, waiting: list[tuple[Candidate, int]], explained: set[str]) -> list[Action]:
    """Reasons for jobs that found no place at a rate, each job's once; ``explained`` is added to.

    A job that the idle data centre has no place for either is rejected: waiting, its deadline
    drawing nearer, it would ask for more bandwidth and not for less.
    """
    out: list[Action] = []
    idle = room.idle
    for candidate, rate_bps in waiting:
        job = candidate.job
        if job.id in explained and not idle:
            continue
        explained.add(job.id)
        if idle or not room.fits_when_empty(job.n_vms, rate_bps):
            what = f"{job.n_vms} VMs at {human_bandwidth(rate_bps)} each"
            what += "" if room.complete else " that this embedder finds"
            out.append(Reject(job.id, f"the idle data centre has no place for {what}"))
            continue
        counts = Counts(room.datacentre, room.free, job.n_vms, rate_bps)
        why = refusal(counts) if room.complete else missed(counts)
        out.append(Wait(job.id, why.reason))
    return out


class JSA:
    """Algorithm 1. ``speeds_up=False`` leaves out lines 21–33: that is SimpleJSA.

    Jobs keep what they got until they end by themselves; nothing that runs is changed.
    """

    def __init__(self, name: str = "jsa", *, speeds_up: bool = True) -> None:
        self.name = name
        self._speeds_up = speeds_up
        self._rounds = Rounds()
        self._candidates: dict[str, Candidate] = {}
        # Jobs whose reason to wait has been given: once, in their first round.
        self._explained: set[str] = set()

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if not isinstance(event, Woken):
            return self._rounds.ask(view, event)
        self._rounds.begin()
        return self._round(view)

    def _round(self, view: View) -> list[Action]:
        ready = [self._candidate(view, job_id) for job_id in view.waiting()]
        if not ready:
            return []
        room = Room(view.datacentre, view.residual(view.now_s, None), most_localized)
        found = admit(room, ready, view.now_s)
        waiting = explain(room, found.waiting, self._explained)
        if self._speeds_up:
            shorten_longest(room, found.run)
            raise_all(room, found.run)
        return [
            *(Reject(late.job.id, why_late(late, view.now_s)) for late in found.late),
            *(Start(job.candidate.job.id, job.held.placement, job.rate_bps) for job in found.run),
            *waiting,
        ]

    def _candidate(self, view: View, job_id: str) -> Candidate:
        known = self._candidates.get(job_id)
        if known is None:
            job = view.job(job_id)
            known = Candidate(job, options_of(job), view.order(job_id))
            self._candidates[job_id] = known
        return known


POLICIES = (
    PolicyKind(
        "jsa",
        "JSA: elastic bandwidth, most reward per time left first",
        lambda _, __: JSA(),
        claims=("options-within-deadline", "no-preemption"),
    ),
    PolicyKind(
        "simple-jsa",
        "JSA at the least bandwidth that meets the deadline",
        lambda _, __: JSA("simple-jsa", speeds_up=False),
        claims=("options-within-deadline", "no-preemption"),
    ),
)
