"""A running job gives its nodes back at a set time, for others to reserve."""

from __future__ import annotations

import pytest

from jobs.demand import Lease
from jobs.request import JobRequest
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.placement import Placement
from testbed.engine.engine import Engine
from testbed.errors import RunFailed
from testbed.schedulers import actions as act
from tests.unit.engine.test_engine import DecisionTable, outcomes
from topologies.flat import flat

HERE, THERE = Placement(2, ((0, 1),)), Placement(2, ((1, 1),))


def lease(
    job_id: str, submit_s: float = 0.0, duration_s: float = 10.0
) -> JobRequest:
    return JobRequest(
        job_id, submit_s, 1, 0, duration_s, demand=Lease(cores=4)
    )


def played(
    jobs: list[JobRequest],
    decisions: dict[act.PolicyEvent, list[act.Action]],
) -> list[events.Event]:
    history: list[events.Event] = []
    engine = Engine(
        flat(2, 4),
        jobs,
        DecisionTable(decisions),
        SimulatedBackend(),
        history.append,
        after_step=lambda engine: engine.reservations.check(),
    )
    engine.run()
    assert not engine.ledger.holdings()
    return history


FIRST = {
    act.Arrived("a"): [act.Start("a", HERE, 0, 10.0, kill_at_end=True)],
    act.Arrived("b"): [
        act.Shorten("a", 4.0, "b"),
        act.Reserve("b", HERE, 0, 4.0, 14.0),
    ],
}


def test_it_is_preempted_then_and_the_reserving_job_starts_on_time() -> (
    None
):
    history = played(
        [lease("a"), lease("b", 1.0)],
        {
            **FIRST,
            act.Preempted("a"): [
                act.Migrate(
                    "a", THERE, "on", reserve_until_s=10.0, kill_at_end=True
                )
            ],
        },
    )
    assert outcomes(history) == {
        "a": ("finished", 10.0),
        "b": ("finished", 14.0),
    }
    at_four = [(e.t, e.name) for e in history if e.t == 4.0]
    assert at_four == [
        (4.0, "job_preempted"),
        (4.0, "job_migrated"),
        (4.0, "job_started"),
    ]


@pytest.mark.slow
def test_one_that_has_ended_by_then_is_not_preempted() -> None:
    decisions = {**FIRST, act.Arrived("a"): [act.Start("a", HERE, 0, 10.0)]}
    history = played(
        [lease("a", duration_s=3.0), lease("b", 1.0)], decisions
    )
    assert outcomes(history) == {
        "a": ("finished", 3.0),
        "b": ("finished", 14.0),
    }


def test_a_lease_that_moves_is_killed_at_the_end_it_was_given() -> None:
    move = act.Migrate(
        "a", THERE, "on", reserve_until_s=9.0, kill_at_end=True
    )
    history = played(
        [lease("a"), lease("b", 1.0)], {**FIRST, act.Preempted("a"): [move]}
    )
    assert outcomes(history) == {
        "a": ("killed", 9.0),
        "b": ("finished", 14.0),
    }


def test_a_resumed_job_blocks_nobody_after_its_reservation() -> None:
    history = played(
        [lease("a"), lease("b", 1.0, 2.0), lease("c", 5.0)],
        {
            act.Arrived("a"): [act.Start("a", HERE, 0, 10.0)],
            act.Arrived("b"): [
                act.Preempt("a", "b"),
                act.Start("b", HERE, 0, 3.0),
            ],
            act.Ended("b", "finished"): [
                act.Resume("a", reserve_until_s=12.0)
            ],
            act.Arrived("c"): [act.Reserve("c", HERE, 0, 12.0, 22.0)],
        },
    )
    assert outcomes(history) == {
        "b": ("finished", 3.0), "a": ("finished", 12.0), "c": ("finished", 22.0),
    }  # fmt: skip


@pytest.mark.parametrize("until_s", [1.0, 10.0, 11.0])
def test_a_reservation_is_shortened_to_a_time_inside_what_is_left_of_it(
    until_s: float,
) -> None:
    decisions = {
        **FIRST,
        act.Arrived("b"): [
            act.Shorten("a", until_s, "b"),
            act.Reject("b", "no"),
        ],
    }
    if until_s == 1.0:  # now: it ends at once
        history = played([lease("a"), lease("b", 1.0)], decisions)
        assert outcomes(history)["b"] == ("rejected", 1.0)
        return
    with pytest.raises(RunFailed, match="is not inside"):
        played([lease("a"), lease("b", 1.0)], decisions)


def test_only_a_running_job_is_shortened() -> None:
    with pytest.raises(RunFailed, match="job a is waiting, not running"):
        played(
            [lease("a")], {act.Arrived("a"): [act.Shorten("a", 4.0, "b")]}
        )
