"""DCloud through the engine: the paper's cases, its guarantees, the effect of profile errors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.demand import Compute, DemandCurve
from jobs.request import SERVICE_TAG, JobRequest
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.schedulers.dcloud import DCloud, Reshaping
from testbed.schedulers.policy import Policy
from testbed.schedulers.vc import VirtualCluster
from tests.support.examples import examples
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.flat import flat
from topologies.tree import tree

GIGA = 10**9
FIG1 = tree([6], GIGA, 4)
FIG1_INSIDE = tree([2, 2, 6], [4 * GIGA, 4 * GIGA, GIGA], 4)
SMALL = tree([2, 2, 2], [20, 12, 10], 3)


def play(
    dc: DataCentre, jobs: list[JobRequest], policy: Policy | None = None
) -> list[events.Event]:
    history: list[events.Event] = []
    engine = Engine(
        dc,
        jobs,
        policy or DCloud(embedder("oktopus")),
        SimulatedBackend(),
        history.append,
        after_step=lambda e: e.ledger.check(),
    )
    engine.run()
    assert not engine.ledger.holdings()
    assert (
        engine.ledger.residual(engine.now_s, None).free_slots.tolist()
        == dc.slots.tolist()
    )
    return history


def reserved(history: list[events.Event]) -> dict[str, events.JobReserved]:
    return {
        e.job_id: e for e in history if isinstance(e, events.JobReserved)
    }


def ended(history: list[events.Event]) -> dict[str, events.JobEnded]:
    return {e.job_id: e for e in history if isinstance(e, events.JobEnded)}


@pytest.mark.parametrize("dc", [FIG1, FIG1_INSIDE], ids=["alone", "inside"])
@pytest.mark.parametrize("by", ["oktopus", "exact"])
def test_figure_1(dc: DataCentre, by: str) -> None:
    theta = 600.0
    job = JobRequest("j", 0.0, 6, GIGA, theta, 2 * theta)
    found = reserved(play(dc, [job], DCloud(embedder(by), gamma=0.0)))["j"]
    assert (found.rate_bps, found.start_s, found.end_s) == (
        GIGA // 2,
        0.0,
        2 * theta,
    )
    assert sorted(count for _, count in found.vms_on) == [2, 4]


@pytest.mark.parametrize(
    "duration_s", [0.7, 33.0, 50.0, 100.0, 125.0, 200.0, 600.0, 3600.0]
)
@pytest.mark.parametrize("dc", [FIG1, FIG1_INSIDE], ids=["alone", "inside"])
def test_figure_1_with_profiles_that_may_err(
    dc: DataCentre, duration_s: float
) -> None:
    """p̃ of 12 % more, and twice that until the deadline, whatever p is: in
    floats 1.12 is above 1.12, and half the bandwidth did not last.
    """
    deadline_s = round(2.24 * duration_s, 6)
    job = JobRequest("j", 0.0, 6, GIGA, duration_s, deadline_s)
    found = reserved(play(dc, [job]))["j"]
    assert (found.rate_bps, found.start_s) == (GIGA // 2, 0.0)
    assert found.end_s == pytest.approx(deadline_s, rel=1e-12)
    assert sorted(count for _, count in found.vms_on) == [2, 4]


@pytest.mark.parametrize(
    "duration_s", [0.7, 33.0, 50.0, 100.0, 125.0, 200.0, 3600.0]
)
def test_a_job_starts_where_another_s_reservation_ends(
    duration_s: float,
) -> None:
    full = tree([2, 2], GIGA, 2)
    deadline_s = round(2.24 * duration_s, 6)
    jobs = [
        JobRequest(
            name, 0.0, 8, 0, duration_s, deadline_s, demand=Compute()
        )
        for name in ("first", "second")
    ]
    found = reserved(play(full, jobs))
    assert found["first"].start_s == 0.0
    assert found["second"].start_s == found["first"].end_s


def test_sliding_past_what_is_there() -> None:
    # The data centre is full until 10 s; a job that can wait does, and starts at a grid point.
    fills = JobRequest("fills", 0.0, 24, 0, 10.0, 10.0, demand=Compute())
    waits = JobRequest("waits", 5.0, 24, 0, 5.0, 25.0, demand=Compute())
    history = play(
        SMALL, [fills, waits], DCloud(embedder("oktopus"), gamma=0.0)
    )
    assert (
        reserved(history)["waits"].start_s == 5.0 + 6.0
    )  # steps of (25 - 5) / 10 s
    assert ended(history)["waits"].t == 16.0
    by_scaling_alone = DCloud(
        embedder("oktopus"), 0.0, Reshaping(slides=False), "dcloud-bs"
    )
    refused = ended(play(SMALL, [fills, waits], by_scaling_alone))["waits"]
    assert refused.outcome == "rejected"


def test_scaling_where_the_bandwidth_asked_for_does_not_fit() -> None:
    # Two VMs a server: their uplink carries 2b, so b' can be half the link at most.
    star = tree([2], 100, 2)
    job = JobRequest("j", 0.0, 4, 100, 10.0, 20.0)
    booked = reserved(
        play(star, [job], DCloud(embedder("oktopus"), gamma=0.0))
    )["j"]
    assert (booked.rate_bps, booked.start_s, booked.end_s) == (
        50,
        0.0,
        20.0,
    )
    only_slides = DCloud(
        embedder("oktopus"), 0.0, Reshaping(scales=False), "dcloud-ts"
    )
    assert ended(play(star, [job], only_slides))["j"].outcome == "rejected"


def test_what_is_left_of_a_reservation_is_free_when_the_job_ends_early() -> (
    None
):
    early = JobRequest(
        "early",
        0.0,
        24,
        0,
        10.0,
        10.0,
        demand=Compute(),
        true_duration_s=4.0,
    )
    after = JobRequest("after", 4.0, 24, 0, 5.0, 5.0, demand=Compute())
    assert {
        e.outcome for e in ended(play(SMALL, [early, after])).values()
    } == {"finished"}


@pytest.mark.parametrize(
    ("error", "outcome", "end_s"),
    [(-0.3, "finished", 70.0), (0.0, "finished", 100.0), (0.11, "finished", 111.0),
     (0.13, "killed", 112.0)],
)  # fmt: skip
def test_profiling_errors(error: float, outcome: str, end_s: float) -> None:
    job = JobRequest(
        "j", 0.0, 2, 5, 100.0, 150.0, true_duration_s=100.0 * (1 + error)
    )
    job = replace(job, demand=Compute(), bandwidth_bps=0)
    policy = DCloud(embedder("oktopus"), 0.12, Reshaping(slides=False))
    found = ended(play(SMALL, [job], policy))["j"]
    assert (found.outcome, found.t) == (outcome, pytest.approx(end_s))
    if outcome == "killed":
        assert "reservation ended" in found.reason


def test_an_error_beyond_the_deadline_is_killed_at_the_deadline() -> None:
    job = JobRequest(
        "j",
        3.0,
        2,
        0,
        100.0,
        100.0,
        demand=Compute(),
        true_duration_s=101.0,
    )
    assert ended(play(SMALL, [job]))["j"].t == 103.0


def test_a_demand_curve_ends_before_its_estimate_and_frees_the_rest() -> (
    None
):
    curve = DemandCurve(((0.5, 0), (1.0, 10)))
    job = JobRequest("j", 0.0, 6, 10, 10.0, 60.0, demand=curve)
    history = play(
        SMALL,
        [job],
        DCloud(embedder("oktopus"), 0.0, Reshaping(slides=False)),
    )
    booked, done = reserved(history)["j"], ended(history)["j"]
    assert booked.rate_bps < 10
    assert booked.end_s is not None
    assert done.outcome == "finished"
    assert done.t < booked.end_s


def test_a_service_is_neither_slid_nor_scaled_nor_killed() -> None:
    service = JobRequest(
        "web",
        0.0,
        2,
        5,
        10.0,
        10.0,
        tags=(SERVICE_TAG,),
        true_duration_s=500.0,
    )
    history = play(SMALL, [service])
    booked = reserved(history)["web"]
    assert (booked.rate_bps, booked.start_s, booked.end_s) == (5, 0.0, None)
    assert (ended(history)["web"].outcome, ended(history)["web"].t) == (
        "finished",
        500.0,
    )


def test_refusals_have_reasons() -> None:
    too_many = JobRequest("many", 0.0, 25, 1, 10.0, 100.0)
    short = JobRequest("short", 0.0, 1, 1, 10.0, 9.0)
    tight = JobRequest("tight", 0.0, 25, 1, 10.0, 10.0)
    found = ended(play(SMALL, [too_many, short, tight]))
    assert {e.outcome for e in found.values()} == {"rejected"}
    assert "110 later starts and smaller bandwidths" in found["many"].reason
    assert "deadline is shorter" in found["short"].reason
    assert "25" in found["tight"].reason
    assert "later starts" not in found["tight"].reason


def test_a_relax_index_outside_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        DCloud(embedder("oktopus"), gamma=1.2)


drawn_jobs = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(1, 12),
        st.integers(0, 12),
        st.integers(1, 10),
        st.sampled_from([1.0, 1.05, 2.0, 5.0]),
    ),
    min_size=1,
    max_size=12,
)


def requests(
    drawn: list[tuple[int, int, int, int, float]],
) -> list[JobRequest]:
    return [
        JobRequest(f"j{k:02}", float(at), n, b, float(p), p * r)
        for k, (at, n, b, p, r) in enumerate(drawn)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("by", ["oktopus", "exact"])
@examples(30)
@given(drawn=drawn_jobs)
def test_without_room_it_decides_as_vc_does(
    by: str, drawn: list[tuple[int, int, int, int, float]]
) -> None:
    jobs = [
        replace(job, deadline_s=job.duration_s) for job in requests(drawn)
    ]
    theirs = play(SMALL, jobs, VirtualCluster(embedder(by)))
    ours = play(SMALL, jobs, DCloud(embedder(by)))
    assert [
        (e.job_id, e.t, e.outcome, e.reason) for e in ended(theirs).values()
    ] == [
        (e.job_id, e.t, e.outcome, e.reason) for e in ended(ours).values()
    ]
    assert [
        (e.job_id, e.rate_bps, e.root, e.vms_on)
        for e in reserved(theirs).values()
    ] == [
        (e.job_id, e.rate_bps, e.root, e.vms_on)
        for e in reserved(ours).values()
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "dc",
    [SMALL, fat_tree(4, 10, 2), flat(6, 4)],
    ids=["tree", "fat-tree", "flat"],
)
@pytest.mark.parametrize(
    "reshaping",
    [Reshaping(), Reshaping(scales=False), Reshaping(slides=False)],
)
@examples(15)
@given(drawn=drawn_jobs, gamma=st.sampled_from([0.0, 0.12]))
def test_what_it_admits_ends_by_its_deadline(
    dc: DataCentre,
    reshaping: Reshaping,
    drawn: list[tuple[int, int, int, int, float]],
    gamma: float,
) -> None:
    jobs = requests(drawn)
    history = play(dc, jobs, DCloud(embedder("oktopus"), gamma, reshaping))
    found, booked = ended(history), reserved(history)
    assert sorted(found) == [job.id for job in jobs]
    for job in jobs:
        assert found[job.id].outcome in ("finished", "rejected")
        if job.id in booked:
            entry = booked[job.id]
            assert entry.end_s is not None
            assert job.deadline_at_s is not None
            assert entry.start_s >= job.submit_s
            assert entry.end_s <= job.deadline_at_s * (1 + 1e-12)
            assert found[job.id].t <= entry.end_s


@pytest.mark.slow
@examples(15)
@given(drawn=drawn_jobs)
def test_scaling_time_by_a_power_of_two_changes_no_decision(
    drawn: list[tuple[int, int, int, int, float]],
) -> None:
    jobs = requests(drawn)
    slower = [
        replace(
            job,
            submit_s=64 * job.submit_s,
            duration_s=64 * job.duration_s,
            deadline_s=64 * (job.deadline_s or 0),
        )
        for job in jobs
    ]
    fast, slow = reserved(play(SMALL, jobs)), reserved(play(SMALL, slower))
    assert {
        k: (e.rate_bps, e.vms_on, 64 * e.start_s) for k, e in fast.items()
    } == {k: (e.rate_bps, e.vms_on, e.start_s) for k, e in slow.items()}
