"""EASY against its slow twin, on the whole KTH trace and on anything; what must always hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.request import JobRequest
from jobs.workload.parallel_jobs import Requests
from jobs.workload.swf import jobs_of, read_swf
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.schedulers.easy import Easy
from testbed.schedulers.policy import Policy
from testbed.schedulers.registry import build_policy
from tests.support.examples import examples
from tests.unit.schedulers import queueing
from tests.unit.schedulers.machine import (
    finishes,
    job,
    jobs_with_estimates,
    run,
    starts,
)
from tests.unit.workload.traces import KTH, trace
from topologies.flat import flat


def plain(one: JobRequest, estimates: str) -> queueing.Plain:
    planned_s = one.stated_s if estimates == "user" else one.duration_s
    return queueing.Plain(
        one.id, one.submit_s, one.n_vms, one.duration_s, planned_s
    )


def first_starts(history: list[events.Event]) -> dict[str, float]:
    return {name: times[0] for name, times in starts(history).items()}


@pytest.fixture(scope="module")
def kth() -> Requests:
    """All 28,476 jobs of the log, read once."""
    return Requests(jobs_of(read_swf(trace(KTH))).jobs.from_zero())


def played(
    policy: Policy, jobs: Requests
) -> tuple[dict[str, float], set[str]]:
    """When each job starts on 100 nodes, and all outcomes."""
    begun: dict[str, float] = {}
    ended: dict[str, str] = {}

    def note(event: events.Event) -> None:
        if isinstance(event, events.JobStarted):
            begun[event.job_id] = event.t
        elif isinstance(event, events.JobEnded):
            ended[event.job_id] = event.outcome

    machine = flat(100, 1)
    Engine(machine, jobs, policy, SimulatedBackend(machine), note).run()
    assert begun.keys() == ended.keys()
    return begun, set(ended.values())


@pytest.mark.short("accurate")
@pytest.mark.slow
@pytest.mark.parametrize("estimates", ["accurate", "user"])
def test_every_job_of_kth_starts_when_the_slow_twin_says(
    estimates: str, kth: Requests
) -> None:
    twin = queueing.starts(
        [plain(job, estimates) for job in kth], 100, queueing.easy
    )
    assert len(twin) == 28_476
    assert played(Easy(estimates), kth) == (twin, {"finished"})


@pytest.mark.long
@pytest.mark.slow
def test_every_job_of_kth_under_fcfs_starts_when_the_slow_twin_says(
    kth: Requests,
) -> None:
    twin = queueing.starts(
        [plain(job, "user") for job in kth], 100, queueing.fcfs
    )
    assert len(twin) == 28_476
    fcfs = build_policy("fcfs", embedder("first-fit"), {})
    assert played(fcfs, kth) == (twin, {"finished"})


JOBS = jobs_with_estimates(
    most_nodes=6, latest_s=25, factors=[1.0, 1.5, 4.0], most=16
)


@examples(100)
@given(JOBS, st.sampled_from(["accurate", "user"]))
def test_any_jobs_start_when_the_slow_twin_says(
    jobs: list[JobRequest], estimates: str
) -> None:
    twin = queueing.starts(
        [plain(one, estimates) for one in jobs], 6, queueing.easy
    )
    assert first_starts(run(Easy(estimates), jobs, 6)) == twin


@examples(50)
@given(JOBS, st.floats(0.2, 0.9))
def test_jobs_that_outrun_their_estimates_start_when_the_slow_twin_says(
    jobs: list[JobRequest], share: float
) -> None:
    short = [job(j.id, j.n_vms, j.duration_s, j.submit_s, estimate_s=share * j.duration_s)
             for j in jobs]  # fmt: skip
    twin = queueing.starts(
        [plain(one, "user") for one in short], 6, queueing.easy
    )
    assert first_starts(run(Easy("user"), short, 6)) == twin


@examples(50)
@given(JOBS, st.sampled_from(["accurate", "user"]))
def test_the_head_is_never_delayed_by_a_backfilled_job(
    jobs: list[JobRequest], estimates: str
) -> None:
    """A job starts no later than the estimate given when it becomes the head of the queue."""
    history = run(Easy(estimates), jobs, 6)
    begun = first_starts(history)
    estimated: dict[str, float] = {}
    for event in history:
        if isinstance(event, events.JobWaits) and event.until_s is not None:
            estimated.setdefault(event.job_id, event.until_s)
            assert event.until_s <= estimated[event.job_id] + 1e-6
    for name, until_s in estimated.items():
        assert begun[name] <= until_s + 1e-6


def test_a_job_that_ends_just_as_the_head_starts_is_backfilled() -> None:
    """Ends come before starts: a tie delays nobody, and over-commits nothing."""
    jobs = [job("a", 2, 10.0), job("b", 3, 5.0, 1.0), job("c", 1, 8.0, 2.0)]
    assert first_starts(run(Easy(), jobs, 3)) == {
        "a": 0.0,
        "c": 2.0,
        "b": 10.0,
    }


def test_a_job_that_ends_after_it_is_not() -> None:
    jobs = [
        job("a", 2, 10.0),
        job("b", 3, 5.0, 1.0),
        job("c", 1, 8.001, 2.0),
    ]
    assert first_starts(run(Easy(), jobs, 3)) == {
        "a": 0.0,
        "b": 10.0,
        "c": 15.0,
    }


def test_extra_nodes_are_given_away_once() -> None:
    """Two long jobs could each have the one node that the head leaves: one of them gets it."""
    jobs = [
        job("a", 2, 10.0),
        job("b", 3, 5.0, 1.0),
        job("c", 1, 90.0, 2.0),
        job("d", 1, 90.0, 3.0),
    ]
    assert first_starts(run(Easy(), jobs, 4)) == {
        "a": 0.0,
        "c": 2.0,
        "b": 10.0,
        "d": 15.0,
    }


def test_all_that_ends_at_the_shadow_time_counts_for_the_extra_nodes() -> (
    None
):
    jobs = [
        job("a", 2, 10.0),
        job("b", 2, 10.0),
        job("c", 3, 5.0, 1.0),
        job("d", 2, 99.0, 2.0),
    ]
    # All six nodes are there from 10 on and c needs three: d may keep the other two.
    assert first_starts(run(Easy(), jobs, 6)) == {
        "a": 0.0,
        "b": 0.0,
        "c": 10.0,
        "d": 2.0,
    }


def test_no_job_is_left_behind_silently() -> None:
    jobs = [
        job("huge", 9, 1.0),
        *(job(f"j{k}", 6, 1.0, float(k)) for k in range(5)),
    ]
    history = run(Easy(), jobs, 6)
    assert len(finishes(history)) == 5
    assert {
        e.job_id: e.reason
        for e in history
        if isinstance(e, events.JobEnded)
    }["huge"] == ("9 nodes asked, the machine has 6")


def test_the_wait_reason_names_the_estimate_and_the_blocking_jobs() -> None:
    jobs = [
        job("a", 2, 10.0),
        job("b", 3, 5.0, 1.0),
        job("c", 1, 90.0, 2.0),
        job("d", 2, 1.0, 3.0),
    ]
    said = {
        e.job_id: (e.reason, e.behind, e.until_s)
        for e in run(Easy(), jobs, 3)
        if isinstance(e, events.JobWaits) and e.t <= 3.0
    }
    assert said == {
        "b": ("first in the queue: 3 nodes asked, 1 free", ["a"], 10.0),
        "c": ("1 of 1 free nodes asked for 90 s: it would delay b, which has them from 10 s",
              ["b"], None),
        "d": ("2 nodes asked, 1 free", ["b"], None),
    }  # fmt: skip


def test_a_job_that_comes_while_another_is_overdue_has_a_wait_reason() -> (
    None
):
    jobs = [
        job("a", 2, 20.0, estimate_s=5.0),
        job("b", 3, 5.0, 1.0),
        job("c", 2, 5.0, 10.0),
        job("d", 1, 1.0, 11.0, estimate_s=50.0),
    ]
    reasons = {
        (e.t, e.job_id): (e.reason, e.behind)
        for e in run(Easy("user"), jobs, 3)
        if isinstance(e, events.JobWaits)
    }
    # The first is recorded anew as well: its time moves with the clock.
    assert list(reasons)[:5] == [
        (1.0, "b"),
        (10.0, "b"),
        (10.0, "c"),
        (11.0, "b"),
        (11.0, "d"),
    ]
    assert reasons[10.0, "c"] == ("2 nodes asked, 1 free", ["b"])
    reason, behind = reasons[11.0, "d"]
    assert reason.startswith("1 of 1 free nodes asked for 50 s: it would")
    assert behind == ["b"]


def test_a_job_that_starts_while_another_is_overdue_has_no_wait_reason() -> (
    None
):
    jobs = [
        job("a", 1, 20.0, estimate_s=5.0),
        job("b", 2, 5.0, 1.0),
        job("c", 1, 5.0, 10.0),
    ]
    history = run(Easy("user"), jobs, 3)
    assert first_starts(history)["c"] == 10.0
    assert not [
        e
        for e in history
        if isinstance(e, events.JobWaits) and e.job_id == "c"
    ]


def test_a_job_that_asks_for_bandwidth_runs_where_the_network_limits_nothing() -> (
    None
):
    history = run(Easy(), [JobRequest("a", 0.0, 2, 100, 10.0)], 2)
    assert finishes(history) == {"a": 10.0}


def test_estimates_are_of_a_known_kind() -> None:
    with pytest.raises(ValueError, match="accurate, user"):
        Easy("guessed")
