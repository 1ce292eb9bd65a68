"""JSA and its baselines through the engine, in the simulator."""

from __future__ import annotations

import random

import pytest

from jobs.demand import Transfer
from jobs.job_profile import Profile, linear_profile
from jobs.request import JobRequest
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder, embedder_names
from testbed.engine.engine import Engine
from testbed.schedulers.policy import SharingModel
from testbed.schedulers.registry import build_policy
from topologies.datacentre import DataCentre
from topologies.tree import tree

RACKS = tree([2, 2], [80, 20], 2)
FAST = Profile(((5, 40.0), (10, 20.0), (20, 10.0)))


def play(
    policy: str,
    jobs: list[JobRequest],
    dc: DataCentre = RACKS,
    placing: str = "oktopus",
    **parameters: str,
) -> list[events.Event]:
    """All events; the ledger is checked against its own list after every step."""
    history: list[events.Event] = []
    built = build_policy(policy, embedder(placing), parameters)
    backend = SimulatedBackend(dc, SharingModel("lockstep"), 1)
    engine = Engine(
        dc,
        jobs,
        built,
        backend,
        history.append,
        after_step=lambda e: e.ledger.check(),
    )
    engine.run()
    assert not engine.ledger.holdings()
    return history


def ended(history: list[events.Event]) -> dict[str, events.JobEnded]:
    return {e.job_id: e for e in history if isinstance(e, events.JobEnded)}


def started(history: list[events.Event]) -> list[str]:
    return [e.job_id for e in history if isinstance(e, events.JobStarted)]


def rates(history: list[events.Event]) -> dict[str, int]:
    return {
        e.job_id: e.rate_bps
        for e in history
        if isinstance(e, events.JobReserved)
    }


def job(
    name: str, at_s: float, n: int, due_s: float, value: float = 1.0
) -> JobRequest:
    return JobRequest(
        name,
        at_s,
        n,
        10,
        20.0,
        due_s,
        value=value,
        demand=Transfer(profile=FAST),
    )


def test_jsa_starts_with_the_least_option_and_uses_what_is_left() -> None:
    alone = [job("a", 0.0, 4, 50.0)]
    assert rates(play("simple-jsa", alone)) == {"a": 5}
    history = play("jsa", alone)
    assert rates(history) == {"a": 10}
    assert ended(history)["a"].measured_s == pytest.approx(20.0)
    (reserved,) = [e for e in history if isinstance(e, events.JobReserved)]
    assert reserved.estimate_s == 20.0


def test_a_batch_is_scheduled_as_one_whatever_order_it_arrives_in() -> None:
    # Room for one of them: the higher reward wins although it arrives last.
    batch = [job("a", 0.0, 8, 30.0, 10.0), job("b", 0.0, 8, 30.0, 500.0)]
    assert started(play("jsa", batch))[0] == "b"


def test_a_job_is_discarded_when_no_option_can_bring_it_to_its_deadline() -> (
    None
):
    jobs = [job("a", 0.0, 8, 25.0), job("b", 1.0, 8, 25.0)]
    history = play("jsa", jobs)
    late = ended(history)["b"]
    assert late.outcome == "rejected"
    assert "left until its deadline" in late.reason
    assert late.t == ended(history)["a"].t


def test_what_waits_says_what_stands_in_its_way_once() -> None:
    jobs = [
        job("a", 0.0, 8, 90.0),
        job("b", 0.0, 8, 900.0, 0.5),
        job("c", 1.0, 1, 900.0, 0.1),
    ]
    waits = [e for e in play("jsa", jobs) if isinstance(e, events.JobWaits)]
    assert [(e.job_id, e.t) for e in waits] == [("b", 0.0), ("c", 1.0)]
    assert all("slot" in e.reason for e in waits)


def test_a_job_too_large_for_the_idle_data_centre_is_rejected_at_once() -> (
    None
):
    for policy in ("jsa", "edf", "oktopus-batch", "ps-p"):
        last = ended(
            play(policy, [job("a", 0.0, 8, 90.0), job("b", 0.0, 9, 900.0)])
        )["b"]
        assert (last.outcome, last.t) == ("rejected", 0.0)
        assert "idle data centre" in last.reason


def test_a_job_without_profile_or_deadline_has_its_own_bandwidth_as_its_only_option() -> (
    None
):
    history = play("jsa", [JobRequest("a", 0.0, 4, 6, 30.0)])
    assert rates(history) == {"a": 6}
    assert ended(history)["a"].measured_s == pytest.approx(30.0)


def test_edf_goes_by_deadline_and_oktopus_by_arrival() -> None:
    jobs = [
        job("a", 0.0, 8, 200.0),
        job("b", 0.0, 8, 100.0),
        job("c", 0.0, 8, 300.0),
    ]
    assert started(play("edf", jobs)) == ["b", "a", "c"]
    assert started(play("oktopus-batch", jobs)) == ["a", "b", "c"]


def test_baselines_reserve_the_measured_bandwidth() -> None:
    for policy in ("edf", "oktopus-batch"):
        assert rates(play(policy, [job("a", 0.0, 4, 50.0)])) == {"a": 10}
    history = play("ps-p", [job("a", 0.0, 4, 50.0)])
    assert rates(history) == {"a": 0}


def test_late_jobs_are_dropped_or_run_as_asked() -> None:
    jobs = [job("a", 0.0, 8, 25.0), job("b", 0.0, 8, 30.0)]
    dropped = ended(play("edf", jobs))["b"]
    assert dropped.outcome == "rejected"
    ran = ended(play("edf", jobs, late="run"))["b"]
    assert (ran.outcome, ran.t) == ("finished", pytest.approx(40.0))


def test_those_behind_a_job_that_does_not_fit_are_tried_unless_it_blocks() -> (
    None
):
    jobs = [
        job("a", 0.0, 6, 99.0),
        job("b", 0.0, 6, 99.0),
        job("c", 0.0, 2, 99.0),
    ]
    assert started(play("oktopus-batch", jobs)) == ["a", "c", "b"]
    assert started(play("oktopus-batch", jobs, queue="block")) == [
        "a",
        "b",
        "c",
    ]


def test_a_head_that_can_never_fit_blocks_nobody() -> None:
    jobs = [job("a", 0.0, 9, 99.0), job("b", 0.0, 6, 99.0)]
    assert started(play("oktopus-batch", jobs, queue="block")) == ["b"]


@pytest.mark.parametrize("policy", ["edf", "oktopus-batch"])
def test_an_embedder_that_misses_a_placement_makes_a_job_wait_and_says_so(
    policy: str,
) -> None:
    # With a and b there are 2, 3, 6 and 6 slots left; a link takes one of five VMs, or four.
    # In sequence that is 1 + 1 + 1 + 1, and the fifth has no place; all five on the third have.
    dc = tree([4], 10, 6)
    jobs = [
        JobRequest(name, 0.0, n, rate, 20.0, 99.0 + k)
        for k, (name, n, rate) in enumerate(
            (("a", 4, 10), ("b", 3, 30), ("c", 5, 10))
        )
    ]
    waits = [
        e
        for e in play(policy, jobs, dc, "first-fit")
        if isinstance(e, events.JobWaits)
    ]
    assert [
        (e.job_id, "placements do exist" in e.reason) for e in waits
    ] == [("c", True)]


@pytest.mark.parametrize("policy", ["vc", "edf", "oktopus-batch"])
def test_adaba_weighs_a_job_against_the_largest_so_far(policy: str) -> None:
    # The large job leaves one slot on server 0: the place for small ones.
    jobs = [
        JobRequest("large", 0.0, 3, 100, 20.0, 99.0),
        JobRequest("small", 1.0, 1, 1, 20.0, 99.0),
    ]
    history = play(policy, jobs, tree([2], 1000, 4), "adaba")
    vms_on = {
        e.job_id: e.vms_on
        for e in history
        if isinstance(e, events.JobReserved)
    }
    assert vms_on == {"large": [[0, 3]], "small": [[0, 1]]}


@pytest.mark.short(
    "jsa-oktopus", "edf-exact", "oktopus-batch-greedy", "simple-jsa-oktopus"
)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "placing"),
    [("jsa", "oktopus"), ("simple-jsa", "oktopus")]
    + [(p, e) for p in ("edf", "oktopus-batch") for e in embedder_names()],
)
def test_whatever_is_started_ends_by_its_deadline(
    policy: str, placing: str
) -> None:
    rng = random.Random(policy)
    for _ in range(15):
        jobs = []
        for number in range(25):
            took_s, bandwidth = rng.uniform(5, 40), rng.randint(1, 10)
            jobs.append(
                JobRequest(
                    f"j{number}",
                    20.0 * (number // 5),
                    rng.randint(1, 6),
                    bandwidth,
                    took_s,
                    took_s * rng.uniform(2, 7),
                    value=rng.uniform(100, 1000),
                    demand=Transfer(
                        profile=linear_profile(
                            bandwidth, took_s, rng.uniform(0, 0.14)
                        )
                    ),
                )
            )
        due = {one.id: one.deadline_at_s or 0.0 for one in jobs}
        over = ended(play(policy, jobs, placing=placing))
        assert len(over) == 25
        for job_id, end in over.items():
            assert end.outcome in ("finished", "rejected")
            assert end.outcome == "rejected" or end.t <= due[job_id] + 1e-6
