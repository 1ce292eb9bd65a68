"""Jobs that send for a time instead of a volume."""

from __future__ import annotations

import pytest

from jobs.demand import Iperf3
from jobs.request import JobRequest
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.placement import Placement
from testbed.schedulers.policy import FLOW_DEPENDENCIES, SharingModel
from topologies.tree import tree

STAR = tree([4], [100], 1)


def measurement(name: str = "m", duration_s: float = 10.0) -> JobRequest:
    return JobRequest(name, 0.0, 2, 100, duration_s, demand=Iperf3())


def star(*vms: tuple[int, int]) -> Placement:
    return Placement(STAR.trees[0].root, vms)


def test_its_duration_is_the_same_at_every_rate_and_its_volume_what_the_rate_gives() -> (
    None
):
    job = measurement()
    assert {job.demand.duration_s(job, rate) for rate in (1, 50, 100)} == {
        10.0
    }
    assert [job.demand.volume_bits(job, rate) for rate in (0, 50)] == [
        1000.0,
        500.0,
    ]
    assert (
        job.demand.estimate_s(job, 50) == 20.0
    )  # what a scheduler states knows no application
    assert job.is_best_effort(0)


def test_a_reservation_and_its_change_leave_its_end_where_it_is() -> None:
    backend = SimulatedBackend(STAR)
    backend.start(measurement(), star((0, 1), (1, 1)), 50, "foreground")
    assert backend.wait(4.0) == []
    backend.rescale("m", 10)
    assert [(c.job_id, c.at_s) for c in backend.wait(None)] == [("m", 10.0)]


def test_its_time_on_nodes_is_what_preemption_stretches() -> None:
    backend = SimulatedBackend(STAR)
    backend.start(measurement(), star((0, 1), (1, 1)), 50, "foreground")
    backend.wait(4.0)
    backend.preempt("m")
    backend.wait(7.0)
    backend.resume("m", 1.0, "foreground")
    ((_, at_s, *_),) = backend.wait(None)
    assert at_s == pytest.approx(14.0)


@pytest.mark.parametrize("dependency", FLOW_DEPENDENCIES)
def test_without_a_reservation_it_takes_its_share_of_the_links_until_its_time_is_over(
    dependency: str,
) -> None:
    backend = SimulatedBackend(STAR, SharingModel(dependency))  # type: ignore[arg-type]
    for name, demand_s in (("m", 10.0), ("n", 30.0)):
        backend.start(
            measurement(name, demand_s),
            star((0, 1), (1, 1)),
            0,
            "foreground",
        )
    transfer = JobRequest("t", 0.0, 2, 100, 10.0)
    backend.start(transfer, star((0, 1), (1, 1)), 0, "foreground")
    found = {}
    while done := backend.wait(None):
        found |= {completion.job_id: completion.at_s for completion in done}
    # A third of the link for 10 s, a half for the rest of 1000 bits.
    assert found == {
        "m": 10.0,
        "n": 30.0,
        "t": pytest.approx(10.0 + (1000 - 1000 / 3) / 50),
    }
