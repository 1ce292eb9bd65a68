"""JSA's three phases on random data centres, recomputed from scratch after each of them."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from jobs.demand import Transfer
from jobs.job_profile import Profile, linear_profile
from jobs.request import JobRequest
from testbed.embedding.check import check_placement
from testbed.embedding.exact import VMPLACE
from testbed.embedding.placement import (
    Placement,
    Residual,
    hose_bps,
    tree_of,
)
from testbed.schedulers.jsa import (
    JSA,
    ReadyJob,
    Room,
    Scheduled,
    admit,
    by_reward,
    least_option,
    raise_all,
    shorten_longest,
)
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.tree import tree

NOW_S = 50.0


@dataclass(frozen=True, eq=False)
class Case:
    """Something is free, and some jobs are ready."""

    datacentre: DataCentre
    free: Residual
    ready: list[ReadyJob]

    def room(self) -> Room:
        return Room(self.datacentre, self.free, VMPLACE)


def random_case(seed: object) -> Case:
    rng = random.Random(f"jsa {seed}")
    if rng.random() < 0.2:
        dc = fat_tree(4, rng.randint(20, 200), 2)
    else:
        fanout = [rng.randint(1, 3) for _ in range(rng.randint(1, 3))]
        dc = tree(
            fanout,
            [rng.randint(20, 300) for _ in fanout],
            rng.randint(1, 4),
        )
    slots = np.array([rng.randint(0, int(n)) for n in dc.slots])
    share = np.repeat([rng.random() ** 0.5 for _ in range(dc.n_links)], 2)
    free = Residual(
        slots, (dc.directed_capacity_bps * share).astype(np.int64)
    )
    return Case(
        dc, free, [_candidate(rng, k) for k in range(rng.randint(1, 12))]
    )


def _candidate(rng: random.Random, number: int) -> ReadyJob:
    bandwidth, took_s = rng.randint(5, 60), rng.uniform(5, 60)
    job = JobRequest(
        f"j{number}",
        rng.uniform(0, NOW_S),
        rng.randint(1, 8),
        bandwidth,
        took_s,
        rng.choice([None, took_s * rng.uniform(1, 7)]),
        value=float(rng.choice([0, 100, 500])),
        demand=Transfer(
            profile=rng.choice(
                [
                    None,
                    linear_profile(bandwidth, took_s, rng.uniform(0, 0.19)),
                ]
            )
        ),
    )
    return ReadyJob(job, JSA().options(job), number)


def left_over(case: Case, run: list[Scheduled]) -> Residual:
    """The residual after the jobs of a round; each of them is checked where it is placed."""
    slots, bps = case.free.free_slots.copy(), case.free.free_bps.copy()
    for job in run:
        n, rate, placement = (
            job.candidate.job.n_vms,
            job.rate_bps,
            job.held.placement,
        )
        wrong = check_placement(
            case.datacentre, Residual(slots, bps), placement, n, rate
        )
        assert wrong == []
        for server, count in placement.vms_on:
            slots[server] -= count
        pinned = tree_of(case.datacentre, placement.root)
        for link, need in hose_bps(pinned, placement, rate).items():
            bps[link] -= need
    return Residual(slots, bps)


def assert_invariants(case: Case, room: Room, run: list[Scheduled]) -> None:
    """Valid placements, current residuals, no τ above what is left of its deadline."""
    left = left_over(case, run)
    assert left.free_slots.tolist() == room.free.free_slots.tolist()
    assert left.free_bps.tolist() == room.free.free_bps.tolist()
    assert room.free_slots == int(left.free_slots.sum())
    for job in run:
        assert (job.rate_bps, job.duration_s) in job.candidate.options
        assert NOW_S + job.duration_s <= job.candidate.due_s + 1e-6


def can_rise(case: Case, run: list[Scheduled], job: Scheduled) -> bool:
    """True where a job's next option fits where it is, by trying it."""
    if job.option + 1 == len(job.candidate.options):
        return False
    others = left_over(case, [other for other in run if other is not job])
    rate = job.candidate.options[job.option + 1][0]
    n = job.candidate.job.n_vms
    return not check_placement(
        case.datacentre, others, job.held.placement, n, rate
    )


@pytest.mark.parametrize("seed", range(120))
def test_invariants_hold_after_each_phase(seed: int) -> None:
    case = random_case(seed)
    room = case.room()
    run, late, waiting = admit(room, case.ready, NOW_S)
    assert_invariants(case, room, run)
    assert len(run) + len(late) + len(waiting) == len(case.ready)
    before = [job.duration_s for job in run]
    for job in run:
        assert job.option == least_option(job.candidate, NOW_S)

    shorten_longest(room, run)
    assert_invariants(case, room, run)
    between = [job.duration_s for job in run]
    assert all(now <= was for now, was in zip(between, before, strict=True))
    longest = [job for job in run if job.duration_s == max(between)]
    assert not longest or not all(
        can_rise(case, run, job) for job in longest
    )

    raise_all(room, run)
    assert_invariants(case, room, run)
    after = [job.duration_s for job in run]
    assert all(now <= was for now, was in zip(after, between, strict=True))
    assert not any(can_rise(case, run, job) for job in run)


def as_printed(case: Case) -> dict[str, int]:
    """Algorithm 1, lines 5–33, step by step: everything is derived anew at every step."""
    run: list[Scheduled] = []
    for candidate in sorted(
        case.ready,
        key=lambda c: (
            -c.job.value / max(c.due_s - NOW_S, 1e-300),
            c.due_s,
            c.order,
        ),
    ):
        options = candidate.options
        for k, (rate, took_s) in enumerate(options):
            if took_s > candidate.due_s - NOW_S:
                continue
            left = left_over(case, run)
            placement = VMPLACE.embed(
                case.datacentre, left, candidate.job.n_vms, rate
            )
            if isinstance(placement, Placement):
                held = case.room().book(placement, 0)
                run.append(Scheduled(candidate, held, k))
            break
    while run:
        longest = min(
            run, key=lambda job: (-job.duration_s, job.candidate.order)
        )
        if not can_rise(case, run, longest):
            break
        longest.option += 1
    for job in sorted(
        run, key=lambda job: (-job.candidate.job.n_vms, job.candidate.order)
    ):
        while can_rise(case, run, job):
            job.option += 1
    return {job.candidate.job.id: job.rate_bps for job in run}


@pytest.mark.parametrize("seed", range(60))
def test_a_round_is_the_printed_algorithm(seed: int) -> None:
    case = random_case(f"twin {seed}")
    room = case.room()
    run, _, _ = admit(room, case.ready, NOW_S)
    shorten_longest(room, run)
    raise_all(room, run)
    assert {
        job.candidate.job.id: job.rate_bps for job in run
    } == as_printed(case)


def ready(
    name: str,
    value: float,
    deadline_s: float,
    profile: Profile | None = None,
    order: int = 1,
) -> ReadyJob:
    job = JobRequest(
        name,
        0.0,
        2,
        10,
        10.0,
        deadline_s,
        value=value,
        demand=Transfer(profile=profile),
    )
    return ReadyJob(job, JSA().options(job), order)


def test_jobs_go_by_reward_over_the_time_left_now() -> None:
    # Now at 50 s, 100 and 10 s are left: 400/100 < 50/10, though at 0 s it was 400/150 > 50/60.
    late, early = (
        ready("a", 400.0, 150.0, order=1),
        ready("b", 50.0, 60.0, order=2),
    )
    assert [one.job.id for one in by_reward([late, early], NOW_S)] == [
        "b",
        "a",
    ]
    assert [one.job.id for one in by_reward([late, early], 0.0)] == [
        "a",
        "b",
    ]


def test_without_rewards_the_earliest_deadline_comes_first() -> None:
    jobs = [ready("a", 0.0, 90.0), ready("b", 0.0, 80.0)]
    assert [one.job.id for one in by_reward(jobs, NOW_S)] == ["b", "a"]


def test_a_time_equal_to_what_is_left_meets_the_deadline() -> None:
    profile = Profile(((5, 30.0), (10, 20.0)))
    assert least_option(ready("a", 1.0, 80.0, profile), NOW_S) == 0
    assert least_option(ready("a", 1.0, 79.0, profile), NOW_S) == 1
    assert least_option(ready("a", 1.0, 69.0, profile), NOW_S) is None


def test_the_longest_job_comes_first_and_the_largest_gets_the_rest() -> (
    None
):
    # One link of 60 each: two jobs of two VMs across it, 10 each.
    dc = tree([2], 60, 2)
    free = Residual(np.array([2, 2]), np.array([60, 60, 60, 60]))
    slow = Profile(((10, 40.0), (20, 30.0), (30, 20.0), (50, 10.0)))
    fast = Profile(((10, 25.0), (20, 15.0), (30, 5.0)))
    across = Placement(dc.trees[0].root, ((0, 1), (1, 1)))
    run = []
    room = Room(dc, free, VMPLACE)
    for number, profile in ((1, slow), (2, fast)):
        candidate = ready(f"j{number}", 1.0, 500.0, profile, number)
        held = room.book(across, 10)
        run.append(Scheduled(candidate, held, 0))
    shorten_longest(room, run)
    # slow 10 → 20 → 30 (20 s), then fast (25 s) 10 → 20, then slow cannot have 50: the end.
    assert [job.rate_bps for job in run] == [30, 20]
    raise_all(room, run)
    assert [job.rate_bps for job in run] == [30, 30]
