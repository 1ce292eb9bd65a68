"""CMBF and AMBF: the paper's example with its times, and what must always hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.demand import Lease
from jobs.request import JobRequest
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.engine.engine import Engine
from testbed.schedulers.cmbf import Cmbf, victims
from testbed.schedulers.easy import Easy
from testbed.schedulers.policy import Policy
from tests.support.examples import examples
from tests.unit.schedulers.machine import (
    evictions,
    finishes,
    job,
    run,
    starts,
)
from topologies.tree import tree


def every_policy() -> pytest.MarkDecorator:
    fresh = [Easy(), Cmbf(), Cmbf("cmcbf", background=True)]
    return pytest.mark.parametrize(
        "policy", fresh, ids=lambda policy: policy.name
    )


FIG1 = [
    job("J1", 1, 20.0),
    job("J2", 2, 5.0),
    job("J3", 6, 7.0),
    job("J4", 4, 5.0),
    job("J5", 2, 15.0),
    job("J6", 1, 10.0),
]


def near(times: dict[str, float]) -> object:
    return pytest.approx(times, abs=1e-6)


def test_cmbf_fig_1() -> None:
    history = run(Cmbf(cost_s=0.0), FIG1, 6)
    assert starts(history) == {
        "J1": [0.0],
        "J2": [0.0],
        "J5": [0.0, 10.0],
        "J6": [0.0],
        "J4": [5.0],
        "J3": [20.0],
    }
    assert evictions(history) == [(5.0, "J5")]
    ends = finishes(history)
    assert ends.pop("J3") == pytest.approx(27.0)
    assert ends == near(
        {"J2": 5.0, "J4": 10.0, "J6": 10.0, "J1": 20.0, "J5": 20.0}
    )


def test_ambf_fig_1() -> None:
    history = run(Cmbf("ambf", head_only=True, cost_s=0.0), FIG1, 6)
    assert evictions(history) == []
    assert starts(history) == {
        "J1": [0.0],
        "J2": [0.0],
        "J5": [0.0],
        "J6": [0.0],
        "J4": [15.0],
        "J3": [20.0],
    }
    assert finishes(history)["J5"] == 15.0


def test_j6_is_collected_and_spared() -> None:
    assert victims([(5, "J5", 2), (6, "J6", 1)], 2) == [(5, "J5", 2)]


@pytest.mark.parametrize(
    ("later", "needs", "gone"),
    [
        ([(1, "a", 4), (2, "b", 1), (3, "c", 1)], 2, ["c", "b"]),
        ([(1, "a", 4), (2, "b", 1), (3, "c", 1)], 3, ["a"]),
        ([(1, "a", 4), (2, "b", 1), (3, "c", 1)], 6, ["c", "b", "a"]),
        ([(1, "a", 2), (2, "b", 2), (3, "c", 3)], 4, ["c", "b"]),
    ],
)
def test_who_is_sent_away(
    later: list[tuple[int, str, int]], needs: int, gone: list[str]
) -> None:
    assert [name for _, name, _ in victims(later, needs)] == gone


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data())
def test_nobody_is_sent_away_in_vain(
    sizes: list[int], data: st.DataObject
) -> None:
    later = [(k, f"j{k}", n) for k, n in enumerate(sizes, 1)]
    needs = data.draw(st.integers(1, sum(sizes)))
    gone = victims(later, needs)
    have = sum(n for _, _, n in gone)
    assert have >= needs
    assert all(have - n < needs for _, _, n in gone)


def test_resuming_takes_its_cost() -> None:
    jobs = [
        job("big", 2, 10.0),
        job("all", 3, 10.0, 1.0),
        job("small", 1, 100.0, 2.0),
    ]
    history = run(Cmbf(cost_s=20.0), jobs, 3)
    # "small" had run for 8 s when "all" got its chance, and resumes at 20 s, with work from 40 s.
    assert evictions(history) == [(10.0, "small")]
    assert starts(history)["small"] == [2.0, 20.0]
    assert finishes(history)["small"] == pytest.approx(20.0 + 20.0 + 92.0)


def test_a_job_larger_than_the_machine_is_rejected_with_its_reason() -> (
    None
):
    history = run(Cmbf(), [job("huge", 4, 1.0), job("ok", 3, 1.0)], 3)
    reasons = {
        e.job_id: e.reason
        for e in history
        if isinstance(e, events.JobEnded)
    }
    assert reasons == {"huge": "4 nodes asked, the machine has 3", "ok": ""}


@every_policy()
def test_what_a_policy_does_not_count_it_does_not_run(
    policy: Policy,
) -> None:
    wide = JobRequest("wide", 0.0, 1, 0, 5.0, demand=Lease(cores=2))
    history = run(policy, [wide, job("ok", 1, 1.0)], 3)
    reasons = {
        e.job_id: e.reason
        for e in history
        if isinstance(e, events.JobEnded)
    }
    assert (
        reasons["wide"]
        == "it asks for several cores or memory, which this policy does not count"
    )
    assert reasons["ok"] == ""


@every_policy()
def test_bandwidth_is_refused_where_links_would_have_to_be_reserved(
    policy: Policy,
) -> None:
    dc = tree([2, 2], [1000, 1000], 1)
    history: list[events.Event] = []
    jobs = [JobRequest("wants", 0.0, 2, 100, 5.0), job("ok", 2, 1.0)]
    Engine(dc, jobs, policy, SimulatedBackend(dc), history.append).run()
    reasons = {
        e.job_id: e.reason
        for e in history
        if isinstance(e, events.JobEnded)
    }
    assert reasons == {
        "wants": "it asks for bandwidth, which this policy cannot reserve",
        "ok": "",
    }


JOBS = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 30), st.integers(0, 40)),
    min_size=1,
    max_size=14,
).map(
    lambda raw: [
        job(f"j{k}", n, runs / 2, at / 2)
        for k, (n, runs, at) in enumerate(raw)
    ]
)


@examples(40)
@given(JOBS, st.sampled_from([0.0, 3.0]))
def test_all_work_is_done_and_none_of_it_twice(
    jobs: list[object], cost_s: float
) -> None:
    """Busy node-seconds are the work plus the cost of resuming; every job ends."""
    history = run(Cmbf(cost_s=cost_s), jobs, 5)  # type: ignore[arg-type]
    measured = {
        e.job_id: e.measured_s
        for e in history
        if isinstance(e, events.JobEnded)
    }
    assert len(finishes(history)) == len(jobs)
    resuming: dict[str, list[float]] = {}
    since: dict[str, float] = {}
    for event in history:
        if isinstance(event, events.JobMigrated):
            since[event.job_id] = event.t
        elif (
            isinstance(event, events.JobPreempted | events.JobEnded)
            and event.job_id in since
        ):
            stay_s = event.t - since.pop(event.job_id)
            resuming.setdefault(event.job_id, []).append(
                min(cost_s, stay_s)
            )
    for one in jobs:
        work_s = one.duration_s + sum(resuming.get(one.id, []))  # type: ignore[attr-defined]
        assert measured[one.id] == pytest.approx(work_s, abs=1e-6)  # type: ignore[attr-defined]


@examples(40)
@given(JOBS)
def test_nobody_waits_who_could_have_the_nodes_of_later_jobs(
    jobs: list[object],
) -> None:
    """The property that Section 4.1 states, looked up after every step of CMBF."""

    def check(engine: object) -> None:
        orders = {k: s.order for k, s in engine.jobs.items()}  # type: ignore[attr-defined]
        size = {k: s.request.n_vms for k, s in engine.jobs.items()}  # type: ignore[attr-defined]
        running = list(engine.running)  # type: ignore[attr-defined]
        idle = 5 - sum(size[k] for k in running)
        for waiting in engine.waiting:  # type: ignore[attr-defined]
            later = sum(
                size[k] for k in running if orders[k] > orders[waiting]
            )
            assert size[waiting] > idle + later

    run(Cmbf(cost_s=0.0), jobs, 5, after_step=check)  # type: ignore[arg-type]
