"""A running job outlasts its reservation: the policy is asked, and may move it."""

from __future__ import annotations

import pytest

from jobs.request import JobRequest
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.placement import Placement
from testbed.engine.engine import Engine
from testbed.errors import RunFailed
from testbed.schedulers import actions as act
from tests.unit.engine.test_engine import DecisionTable, outcomes
from topologies.tree import tree

DC = tree([4], 100, 2)
ROOT = DC.trees[0].root
HERE = Placement(ROOT, ((0, 1), (1, 1)))
THERE = Placement(ROOT, ((2, 1), (3, 1)))
START = act.Start("a", HERE, 50, 8.0, kill_at_end=True, ask_at_end=True)
MOVE = act.Migrate("a", THERE, "it is late", best_effort=True)


def job(job_id: str = "a", submit_s: float = 0.0) -> JobRequest:
    """Two VMs that need 10 s at 50 bit/s."""
    return JobRequest(job_id, submit_s, 2, 50, 10.0)


def played(
    jobs: list[JobRequest],
    decisions: dict[act.PolicyEvent, list[act.Action]],
) -> tuple[list[events.Event], DecisionTable]:
    history: list[events.Event] = []
    policy = DecisionTable(decisions)
    engine = Engine(
        DC,
        jobs,
        policy,
        SimulatedBackend(DC),
        history.append,
        after_step=lambda engine: engine.reservations.check(),
    )
    engine.run()
    assert not engine.ledger.holdings()
    return history, policy


@pytest.mark.parametrize("later", [False, True], ids=["now", "later"])
def test_it_moves_without_bandwidth_and_ends_by_itself(
    later: bool,
) -> None:
    start: act.Action = START
    if later:
        start = act.Reserve("a", HERE, 50, 1.0, 9.0, ask_at_end=True)
    history, policy = played(
        [job()], {act.Arrived("a"): [start], act.Outlasted("a"): [MOVE]}
    )
    end_s = 9.0 if later else 8.0
    assert policy.heard[1:] == [
        (end_s, act.Outlasted("a")),
        (end_s + 2.0, act.Ended("a", "finished")),
    ]
    moved = [event for event in history if event.t == end_s]
    assert moved == [
        events.JobRescaled(end_s, "a", 0, []),
        events.JobMigrated(
            end_s, "a", "it is late", ROOT, [[2, 1], [3, 1]], []
        ),
    ]


def test_its_place_is_free_for_what_starts_at_that_instant() -> None:
    after = act.Reserve("b", HERE, 50, 8.0, 18.0)
    history, _ = played(
        [job(), job("b", 1.0)],
        {
            act.Arrived("a"): [START],
            act.Arrived("b"): [after],
            act.Outlasted("a"): [MOVE],
        },
    )
    assert outcomes(history) == {
        "a": ("finished", 10.0),
        "b": ("finished", 18.0),
    }


def test_without_an_answer_it_is_killed_as_others_are() -> None:
    history, policy = played([job()], {act.Arrived("a"): [START]})
    (ended,) = (e for e in history if isinstance(e, events.JobEnded))
    assert (ended.t, ended.outcome) == (8.0, "killed")
    assert ended.reason == events.OUTLASTED
    assert policy.heard[-1] == (8.0, act.Ended("a", "killed"))


def test_who_did_not_ask_is_not_asked() -> None:
    start = START._replace(ask_at_end=False)
    _, policy = played([job()], {act.Arrived("a"): [start]})
    assert act.Outlasted("a") not in [event for _, event in policy.heard]


def test_it_may_be_preempted_and_resume_where_it_was() -> None:
    decisions: dict[act.PolicyEvent, list[act.Action]] = {
        act.Arrived("a"): [START],
        act.Outlasted("a"): [act.Preempt("a", "b"), act.Wake(20.0)],
        act.Woken(20.0): [act.Resume("a")],
    }
    history, _ = played([job()], decisions)
    assert outcomes(history) == {"a": ("finished", 22.0)}


def test_a_kill_by_the_policy_has_the_policys_reason() -> None:
    history, policy = played(
        [job()],
        {
            act.Arrived("a"): [START],
            act.Outlasted("a"): [act.Kill("a", "no room")],
        },
    )
    (ended,) = (e for e in history if isinstance(e, events.JobEnded))
    assert (ended.t, ended.reason) == (8.0, "no room")
    assert policy.heard[-1] == (8.0, act.Outlasted("a"))


@pytest.mark.parametrize(
    ("before", "move", "why"),
    [
        ([act.Preempt("a", "b")], MOVE, "only a running job"),
        (
            [],
            act.Migrate(
                "a", THERE, "late", tier="background", best_effort=True
            ),
            "needs the foreground",
        ),
        ([], act.Migrate("a", HERE, "", best_effort=True), None),
    ],
)
def test_what_cannot_give_up_its_bandwidth(
    before: list[act.Action], move: act.Migrate, why: str | None
) -> None:
    decisions = {
        act.Arrived("a"): [START],
        act.Outlasted("a"): [*before, move],
    }
    if why is None:
        # Old and new nodes may overlap.
        history, _ = played([job()], decisions)
        assert outcomes(history) == {"a": ("finished", 10.0)}
        return
    with pytest.raises(RunFailed, match=why):
        played([job()], decisions)
