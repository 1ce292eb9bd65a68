"""The loops of the search against its general form: the same choice, the same U, all day long."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.request import JobRequest
from jobs.workload.distributions import NormalDistribution
from jobs.workload.tenants import day_and_night, interpretation
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.schedulers.actions import Action, Arrived, PolicyEvent
from testbed.schedulers.dcloud import DCloud, first_best_effort
from testbed.schedulers.dcloud_search import Search, TreeSearch
from testbed.schedulers.policy import View
from tests.support.examples import examples
from tests.support.loops import BOTH_FORMS, loops
from topologies.custom import custom
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.flat import flat
from topologies.tree import tree

UNEVEN = custom(
    {
        "servers": [
            {"name": f"s{k}", "slots": 1 + k % 4} for k in range(7)
        ],
        "switches": ["top", "mid", "low"],
        "links": [
            {"lower": "s0", "upper": "top", "capacity": 30},
            {"lower": "s1", "upper": "top", "capacity": 20},
            {"lower": "s2", "upper": "mid", "capacity": 10},
            {"lower": "s3", "upper": "mid", "capacity": 15},
            {"lower": "s4", "upper": "low", "capacity": 12},
            {"lower": "s5", "upper": "low", "capacity": 8},
            {"lower": "s6", "upper": "low", "capacity": 9},
            {"lower": "low", "upper": "mid", "capacity": 16},
            {"lower": "mid", "upper": "top", "capacity": 25},
        ],
    }
)
CENTRES = {
    "tree": tree([2, 2, 3], [30, 20, 10], 3),
    "many slots": tree([2, 2], [40, 30], [9, 2, 5, 7]),
    "uneven": UNEVEN,
    "flat": flat(6, 4),
    "one server": tree([1], 10, 4),
    "pooled fat-tree": fat_tree(4, 10, 2, network="pooled"),
}


class Compared:
    """DCloud by its loops; every choice is also made without them, and compared."""

    name = "dcloud"

    def __init__(self, best_effort_servers: float) -> None:
        self._share = best_effort_servers
        self._dcloud = DCloud(
            embedder("oktopus"), best_effort_servers=best_effort_servers
        )
        self.choices = 0

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if isinstance(event, Arrived):
            self._compare(view, view.job(event.job_id))
        return self._dcloud.decide(view, event)

    def _compare(self, view: View, job: JobRequest) -> None:
        grid = self._dcloud.grid(job)
        n_open = first_best_effort(view.datacentre.n_servers, self._share)
        fast = TreeSearch(view.datacentre, embedder("oktopus"), n_open)
        slow = Search(view.datacentre, embedder("oktopus"), n_open)
        found = fast.best(view.ledger, view.now_s, job.n_vms, grid)
        expected = slow.best(view.ledger, view.now_s, job.n_vms, grid)
        if expected is None or found is None:
            assert found is expected
            return
        self.choices += 1
        assert found.increase == pytest.approx(
            expected.increase, rel=1e-9, abs=1e-9
        )
        assert found.shape == expected.shape
        assert found.placement == expected.placement


def run(
    dc: DataCentre,
    jobs: list[JobRequest],
    best_effort_servers: float = 0.0,
) -> int:
    policy = Compared(best_effort_servers)
    Engine(dc, jobs, policy, SimulatedBackend(dc), lambda _: None).run()
    return policy.choices


@pytest.mark.short("tree-", "uneven-False", "pooled fat-tree-False")
@pytest.mark.slow
@BOTH_FORMS
@pytest.mark.parametrize("name", CENTRES)
@examples(12)
@given(
    drawn=st.lists(
        st.tuples(
            st.integers(0, 20),
            st.integers(1, 14),
            st.integers(0, 14),
            st.integers(1, 9),
            st.sampled_from([1.0, 1.5, 4.0]),
            st.sampled_from([None, 0.5, 1.6]),
        ),
        min_size=1,
        max_size=10,
    ),
    best_effort_servers=st.sampled_from([0.0, 0.3]),
)
def test_small_data_centres(
    name: str,
    drawn: list[tuple[int, int, int, int, float, float | None]],
    best_effort_servers: float,
    *,
    machine_code: bool,
) -> None:
    jobs = [
        JobRequest(
            f"j{k:02}",
            float(at),
            n,
            b,
            float(p),
            p * r,
            true_duration_s=p * error if error else None,
        )
        for k, (at, n, b, p, r, error) in enumerate(drawn)
    ]
    with loops(machine_code=machine_code):
        run(CENTRES[name], jobs, best_effort_servers)


@pytest.mark.long
@pytest.mark.slow
def test_a_busy_day_in_a_middling_data_centre() -> None:
    dc = tree([4, 5, 5], [6 * 10**9, 25 * 10**8, 10**9], 4)
    tenants = replace(
        interpretation(vms=16, duration=1800.0, deadline_ratio=6.0),
        bandwidth=NormalDistribution(250e6, 90e6, 1e6),
    )
    jobs = tenants.requests(day_and_night(5, 60.0, span_s=3 * 3600.0), 5)
    assert run(dc, list(jobs)) > 80
