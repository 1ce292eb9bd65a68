"""VC through the engine, in the simulator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.demand import Compute
from jobs.request import JobRequest
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.embedding.placement import Embedder
from testbed.engine.engine import Engine
from testbed.schedulers.vc import VirtualCluster
from tests.support.examples import examples
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.tree import tree

TREE = tree([2, 2, 2], [20, 12, 10], 3)
FAT = fat_tree(4, 10, 2)


def play(
    dc: DataCentre, jobs: list[JobRequest], by: Embedder | None = None
) -> list[events.Event]:
    """All events; the ledger is checked against its own list after every step."""
    history: list[events.Event] = []
    engine = Engine(
        dc,
        jobs,
        VirtualCluster(by or embedder("oktopus")),
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


def outcomes(history: list[events.Event]) -> dict[str, str]:
    return {
        e.job_id: e.outcome
        for e in history
        if isinstance(e, events.JobEnded)
    }


def test_a_job_runs_at_what_it_asks_for_from_its_arrival() -> None:
    history = play(TREE, [JobRequest("a", 3.0, 4, 5, 10.0)])
    (reserved,) = [e for e in history if isinstance(e, events.JobReserved)]
    assert (
        reserved.t,
        reserved.start_s,
        reserved.end_s,
        reserved.rate_bps,
    ) == (3.0, 3.0, None, 5)
    (ended,) = [e for e in history if isinstance(e, events.JobEnded)]
    assert (ended.t, ended.outcome, ended.measured_s) == (
        13.0,
        "finished",
        10.0,
    )


def test_what_does_not_fit_now_is_rejected_with_the_reason_and_never_waits() -> (
    None
):
    fills = JobRequest("a", 0.0, 24, 0, 10.0, demand=Compute())
    late, next_one = (
        JobRequest("b", 9.0, 1, 1, 1.0),
        JobRequest("c", 10.0, 1, 1, 1.0),
    )
    history = play(TREE, [fills, late, next_one])
    assert outcomes(history) == {
        "a": "finished",
        "b": "rejected",
        "c": "finished",
    }
    (refused,) = [
        e
        for e in history
        if isinstance(e, events.JobEnded) and e.job_id == "b"
    ]
    assert refused.t == 9.0
    assert "slot" in refused.reason


def test_a_job_larger_than_the_data_centre_is_rejected_with_a_reason() -> (
    None
):
    (ended,) = [
        e
        for e in play(TREE, [JobRequest("a", 0.0, 1000, 1, 1.0)])
        if isinstance(e, events.JobEnded)
    ]
    assert ended.outcome == "rejected"
    assert "1000" in ended.reason


def test_an_overrunning_job_keeps_its_reservation_to_its_true_end() -> None:
    overruns = JobRequest(
        "a", 0.0, 24, 0, 10.0, demand=Compute(), true_duration_s=25.0
    )
    waits_not = JobRequest("b", 20.0, 1, 1, 1.0)
    assert outcomes(play(TREE, [overruns, waits_not])) == {
        "a": "finished",
        "b": "rejected",
    }


workloads = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.integers(1, 14),
        st.integers(0, 12),
        st.integers(1, 10),
    ),
    min_size=1,
    max_size=14,
)


@pytest.mark.slow
@pytest.mark.parametrize("dc", [TREE, FAT], ids=["tree", "fat-tree"])
@pytest.mark.parametrize("by", ["oktopus", "exact"])
@examples(40)
@given(drawn=workloads)
def test_every_job_has_one_outcome_and_nothing_is_over_committed(
    dc: DataCentre, by: str, drawn: list[tuple[int, int, int, int]]
) -> None:
    jobs = [
        JobRequest(f"j{k:02}", float(at), n, b, float(p))
        for k, (at, n, b, p) in enumerate(drawn)
    ]
    history = play(dc, jobs, embedder(by))
    found = outcomes(history)
    assert sorted(found) == [job.id for job in jobs]
    assert set(found.values()) <= {"finished", "rejected"}
    started = {
        e.job_id: e.t for e in history if isinstance(e, events.JobStarted)
    }
    assert all(
        started[job.id] == job.submit_s
        for job in jobs
        if found[job.id] == "finished"
    )
