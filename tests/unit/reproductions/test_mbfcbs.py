"""MBFCBS's cells: what they measure is what the events say, and the same for equal cells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.demand import Lease
from jobs.request import JobRequest
from reproductions.mbfcbs.cell import LeaseCell, LeaseMeter
from reproductions.mbfcbs.figures import MBFCBS_FIGURES
from reproductions.mbfcbs.simulated import AR, FIGURE_7, IM, MBFCBS
from reproductions.mbfcbs.types import BetweenTypes
from reproductions.quantities import Grid
from testbed import events

CELL = LeaseCell("mbfcbs", 1, 60, hosts=4, load=1.5)


def lease(name: str, at_s: float, kind: str, cores: int, **given: float) -> JobRequest:
    demand = Lease(cores=cores, lease_type=kind, **given)  # type: ignore[arg-type]
    return JobRequest(name, at_s, 1, 0, 10.0, demand=demand)


def test_shares_core_time_and_times_to_completion_are_counted_by_hand() -> None:
    jobs = [
        lease("a", 0.0, "advance", 2, wanted_s=20.0), lease("b", 1.0, "immediate", 1),
        lease("c", 2.0, "best-effort", 4), lease("d", 10.0, "immediate", 1),
    ]  # fmt: skip
    meter = LeaseMeter(jobs, 8)
    for event in (
        events.JobStarted(2.0, "c", 0),
        events.JobEnded(1.0, "b", "rejected", "no room", None, {}),
        events.JobPreempted(8.0, "c", "a"),
        events.JobStarted(10.0, "d", 0),
        events.JobStarted(20.0, "a", 0),
        events.JobEnded(20.0, "d", "finished", "", 10.0, {}),
        events.JobEnded(30.0, "a", "finished", "", 10.0, {}),
        events.JobResumed(30.0, "c"),
        events.JobEnded(40.0, "c", "finished", "", 16.0, {}),
    ):
        meter(event)
    found = meter.measures()
    assert (found["accepted"], found["success"], found["preemptions"]) == (3, 0.75, 1)
    assert [found[f"success_{kind}"] for kind in ("ar", "im", "be")] == [1.0, 0.5, 1.0]
    core_s = 4 * 6 + 1 * 10 + 2 * 10 + 4 * 10
    assert found["use"] == pytest.approx(core_s / (8 * 40.0))
    assert found["use_early"] == pytest.approx(4 * 6 / (8 * 10.0))
    assert found["makespan_h"] == 40.0 / 3600.0
    # From the wanted start, or the arrival: 10 s, 10 s and 38 s.
    assert found["completion_h"] == pytest.approx(58.0 / 3 / 3600.0)


@pytest.mark.parametrize("policy", ["mbfcbs", "greedy", "v-mct", "priority"])
def test_equal_cells_give_equal_results(policy: str) -> None:
    cell = replace(CELL, policy=policy)
    first, second = (
        {key: value for key, value in cell.run().items() if key != "cpu_s"} for _ in range(2)
    )
    assert first == second
    assert first["leases"] == 60


def test_all_policies_meet_the_same_leases_and_more_of_them_begin_alike() -> None:
    assert CELL.requests() == replace(CELL, policy="v-mct").requests()
    kinds = [job.demand.lease_type for job in CELL.requests()]
    more = replace(CELL, leases=80).requests()
    assert [job.demand.lease_type for job in more][:60] == kinds


def test_every_figure_of_the_evaluation_is_there_under_its_name() -> None:
    assert [figure.name for figure in MBFCBS_FIGURES] == [f"mbfcbs-fig{n}" for n in range(4, 12)]
    for figure in MBFCBS_FIGURES:
        assert figure.claims
        for own in figure.cells(1, quick=True).values():
            assert own[0].cost() < 1000.0


def test_types_are_compared_under_one_policy() -> None:
    runs = {(MBFCBS, x): ({"success_ar": 1.0, "success_im": 0.75},) for x in FIGURE_7.xs}
    quantity = BetweenTypes(AR, IM, MBFCBS, 800.0)
    assert quantity.values(Grid(runs)) == (25.0,)
    assert str(quantity) == "success rate of AR − success rate of IM at 800"
