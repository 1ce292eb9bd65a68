"""BL through the engine: placement, competition, the deadline."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.demand import Transfer
from jobs.request import SERVICE_TAG, JobRequest
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.placement import Placement, Residual, empty_residual
from testbed.engine.engine import Engine
from testbed.schedulers.bl import Baseline, SlotsAlone
from testbed.schedulers.policy import (
    FLOW_DEPENDENCIES,
    FlowDependency,
    SharingModel,
)
from tests.support.examples import examples
from topologies.datacentre import DataCentre, IntArray
from topologies.fat_tree import fat_tree
from topologies.tree import tree

SMALL = tree([2, 2, 2], [40, 20, 10], 2)


def play(
    dc: DataCentre,
    jobs: list[JobRequest],
    dependency: FlowDependency = "slowest",
) -> dict[str, events.JobEnded]:
    history: list[events.Event] = []
    backend = SimulatedBackend(dc, SharingModel(dependency))
    engine = Engine(
        dc,
        jobs,
        Baseline(),
        backend,
        history.append,
        after_step=lambda e: e.ledger.check(),
    )
    engine.run()
    assert not engine.ledger.holdings()
    return {e.job_id: e for e in history if isinstance(e, events.JobEnded)}


def lowest_subtree(
    dc: DataCentre, free: IntArray, n_vms: int
) -> Placement | None:
    residual = Residual(free, empty_residual(dc).free_bps)
    answer = SlotsAlone().embed(dc, residual, n_vms, 0)
    return answer if isinstance(answer, Placement) else None


def test_the_lowest_subtree_with_enough_slots() -> None:
    free = np.array([1, 1, 0, 2, 2, 2, 1, 1])
    root = SMALL.trees[0].root

    def placed(n: int) -> tuple[tuple[int, int], ...] | None:
        found = lowest_subtree(SMALL, free, n)
        assert found is None or found.root == root
        return None if found is None else found.vms_on

    assert placed(2) == ((3, 2),)
    assert placed(3) == ((4, 2), (5, 1))
    assert placed(5) == ((4, 2), (5, 2), (6, 1))
    assert placed(7) == ((0, 1), (1, 1), (3, 2), (4, 2), (5, 1))
    assert placed(11) is None


@examples(100)
@given(
    free=st.lists(st.integers(0, 2), min_size=16, max_size=16),
    n=st.integers(1, 20),
)
def test_all_slots_can_be_used_in_a_fat_tree(
    free: list[int], n: int
) -> None:
    found = lowest_subtree(fat_tree(4, 10, 2), np.array(free), n)
    assert (found is not None) is (sum(free) >= n)
    if found is not None:
        assert found.n_vms == n
        assert all(count <= free[server] for server, count in found.vms_on)


def test_only_slots_turn_a_job_away() -> None:
    hungry = JobRequest("hungry", 0.0, 15, 10**6, 10.0, 1e9)
    late = JobRequest("late", 1.0, 2, 1, 10.0, 20.0)
    found = play(SMALL, [hungry, late])
    assert found["late"].outcome == "rejected"
    assert found["late"].reason == "2 slots asked, 1 free"


@pytest.mark.parametrize("dependency", FLOW_DEPENDENCIES)
def test_jobs_compete_and_are_killed_at_their_deadline(
    dependency: FlowDependency,
) -> None:
    # Both have a VM on server 1, whose uplink carries a flow of each: 5 of the 10 bit/s they want.
    jobs = [
        JobRequest("a", 0.0, 3, 10, 10.0, 25.0),
        JobRequest("b", 0.0, 3, 10, 10.0, 15.0),
    ]
    found = play(tree([3], 10, 2), jobs, dependency)
    assert (found["b"].outcome, found["b"].t) == ("killed", 15.0)
    assert "reservation ended" in found["b"].reason
    # From then on a has the link for itself: three quarters done at 15 s, the rest in 2.5.
    assert (found["a"].outcome, found["a"].t) == (
        "finished",
        pytest.approx(17.5),
    )


def test_alone_a_job_runs_as_profiled() -> None:
    jobs = [
        JobRequest(k, 0.0, n, 10, 10.0, 15.0)
        for k, n in (("a", 2), ("b", 2), ("c", 1))
    ]
    found = play(tree([8], 10, 1), jobs)
    assert {(e.outcome, e.t) for e in found.values()} == {
        ("finished", 10.0)
    }


def test_a_service_is_not_killed() -> None:
    service = JobRequest(
        "web",
        0.0,
        2,
        5,
        10.0,
        10.0,
        tags=(SERVICE_TAG,),
        true_duration_s=50.0,
    )
    assert play(SMALL, [service])["web"].t == 50.0


def test_no_estimate_is_given() -> None:
    history: list[events.Event] = []
    jobs = [JobRequest("a", 0.0, 2, 5, 10.0, 30.0)]
    Engine(
        SMALL, jobs, Baseline(), SimulatedBackend(SMALL), history.append
    ).run()
    (booked,) = [e for e in history if isinstance(e, events.JobReserved)]
    assert (booked.estimate_s, booked.rate_bps, booked.links) == (
        None,
        0,
        [],
    )


@pytest.mark.parametrize("dependency", FLOW_DEPENDENCIES)
@examples(20)
@given(
    drawn=st.lists(
        st.tuples(
            st.integers(0, 20), st.integers(1, 9), st.integers(1, 15), st.integers(1, 9),
            st.sampled_from(["ring", "permutation", "all-to-all"]),
        ),
        min_size=1,
        max_size=10,
    )
)  # fmt: skip
def test_every_job_has_an_outcome_in_time(
    dependency: FlowDependency, drawn: list[tuple[int, int, int, int, str]]
) -> None:
    jobs = [
        JobRequest(
            f"j{k:02}",
            float(at),
            n,
            b,
            float(p),
            2.0 * p,
            demand=Transfer(pattern=pattern),
        )  # type: ignore[arg-type]
        for k, (at, n, b, p, pattern) in enumerate(drawn)
    ]
    found = play(SMALL, jobs, dependency)
    assert sorted(found) == [job.id for job in jobs]
    for job in jobs:
        end = found[job.id]
        if end.outcome == "finished":
            assert end.measured_s is not None
            assert end.measured_s >= job.duration_s * (1 - 1e-9)
        elif end.outcome == "killed":
            assert end.t == job.deadline_at_s
