"""The three phases of JSA's Algorithm 1, at one instant t_k (docs/decisions/0432).

Lines 5–19 place jobs at the least bandwidth that meets their deadlines, lines 21–29 shorten the
longest of them option by option, lines 31–33 give each the most that fits. Every change is in the
residuals, and in the job's τ, before the next one is considered.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from jobs.request import JobRequest
from testbed.schedulers.jsa_room import Held, Room
from testbed.units import human_bandwidth

SLACK = 1e-9


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
    """What phase 1 came to: J_run, who can no longer be on time, and who found no place."""

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
