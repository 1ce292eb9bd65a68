"""Preemption, migration, tiers and the reasons for waiting, as every policy finds them."""

from __future__ import annotations

import pytest

from testbed import events
from testbed.embedding.placement import Placement
from testbed.engine.backend import Completion
from testbed.engine.engine import Engine
from testbed.errors import RunFailed
from testbed.schedulers import actions as act
from testbed.schedulers.policy import View
from tests.unit.engine.test_engine import (
    PLACE,
    DecisionTable,
    ScriptedBackend,
    job,
    outcomes,
    play,
)
from topologies.flat import flat

OTHER = Placement(6, ((1, 2),))


def of(
    history: list[events.Event], kind: type[events.Event]
) -> list[events.Event]:
    return [event for event in history if isinstance(event, kind)]


def test_a_preempted_job_resumes_elsewhere_after_the_cost() -> None:
    policy = DecisionTable(
        {
            act.Arrived("a"): [act.Start("a", PLACE, 1)],
            act.Arrived("b"): [
                act.Preempt("a", "b first"),
                act.Start("b", PLACE, 1),
                act.Migrate("a", OTHER, "its nodes are taken", cost_s=20.0),
            ],
        }
    )
    backend = ScriptedBackend({"a": 10.0, "b": 2.0})
    history, engine = play([job("a"), job("b", 1.0)], policy, backend)
    assert outcomes(history) == {
        "b": ("finished", 3.0),
        "a": ("finished", 31.0),
    }
    (moved,) = of(history, events.JobMigrated)
    assert (moved.t, moved.vms_on, moved.cost_s) == (1.0, [[1, 2]], 20.0)  # type: ignore[attr-defined]
    assert not engine.ledger.holdings()


def test_a_running_job_may_move_to_nodes_that_overlap_its_own() -> None:
    halves = Placement(6, ((0, 1), (1, 1)))
    policy = DecisionTable(
        {
            act.Arrived("a"): [act.Start("a", PLACE, 1)],
            act.Arrived("b"): [act.Migrate("a", halves, "spread")],
        }
    )
    _, engine = play(
        [job("a"), job("b", 1.0)], policy, ScriptedBackend({"a": 5.0})
    )
    assert not engine.ledger.holdings()


def test_the_place_of_a_resumed_job_is_checked_like_that_of_a_start() -> (
    None
):
    policy = DecisionTable(
        {
            act.Arrived("a"): [act.Start("a", PLACE, 1)],
            act.Arrived("b"): [
                act.Start("b", OTHER, 1),
                act.Migrate("a", OTHER, "on top of b"),
            ],
        }
    )
    with pytest.raises(
        RunFailed,
        match=r"^policy table, at 1 s, on the arrival of job b: action 2, Migrate\(job a\), is"
        " refused: foreground: server 1: 2 slots asked, 0 free$",
    ):
        play(
            [job("a"), job("b", 1.0)],
            policy,
            ScriptedBackend({"a": 5.0, "b": 5.0}),
        )


def test_who_waits_stands_in_order_of_arrival_preempted_jobs_too() -> None:
    seen: list[tuple[str, ...]] = []

    class Watching(DecisionTable):
        def decide(
            self, view: View, event: act.PolicyEvent
        ) -> list[act.Action]:
            seen.append(view.waiting())
            return super().decide(view, event)

    policy = Watching(
        {
            act.Arrived("a"): [act.Start("a", PLACE, 1)],
            act.Arrived("c"): [act.Preempt("a", "to see")],
        }
    )
    play(
        [job("a"), job("b", 1.0), job("c", 2.0), job("d", 3.0)],
        policy,
        ScriptedBackend({"a": 9.0}),
    )
    assert seen == [("a",), ("b",), ("b", "c"), ("a", "b", "c", "d")]


def test_all_capacity_of_one_instant_is_back_before_the_policy_hears_of_it() -> (
    None
):
    free: list[tuple[act.PolicyEvent, int]] = []

    class Counting(DecisionTable):
        def decide(
            self, view: View, event: act.PolicyEvent
        ) -> list[act.Action]:
            if isinstance(event, act.Ended):
                free.append(
                    (
                        event,
                        int(
                            view.residual(view.now_s, None).free_slots.sum()
                        ),
                    )
                )
            return super().decide(view, event)

    class Together(ScriptedBackend):
        def wait(self, until_s: float | None) -> list[Completion]:
            first = super().wait(until_s)
            return first and [*first, *super().wait(first[0].at_s)]

    policy = Counting(
        {
            act.Arrived("a"): [act.Start("a", PLACE, 1)],
            act.Arrived("b"): [act.Start("b", OTHER, 1)],
        }
    )
    play([job("a"), job("b")], policy, Together({"a": 5.0, "b": 5.0}))
    assert free == [
        (act.Ended("a", "finished", more_at_this_time=True), 8),
        (act.Ended("b", "finished"), 8),
    ]


def test_the_background_is_a_second_set_of_slots() -> None:
    whole = Placement(2, ((0, 1), (1, 1)))
    policy = DecisionTable(
        {
            act.Arrived("a"): [act.Start("a", whole, 0)],
            act.Arrived("b"): [act.Start("b", whole, 0, tier="background")],
            act.Ended("a", "finished"): [act.SwitchTier("b", "foreground")],
        }
    )
    backend = ScriptedBackend({"a": 5.0, "b": 8.0})
    history: list[events.Event] = []
    seen: list[dict[str, int]] = []

    def look(engine: Engine) -> None:
        engine.reservations.check()
        seen.append(
            {
                "foreground": len(engine.reservations.ledger().holdings()),
                "background": len(
                    engine.reservations.ledger("background").holdings()
                ),
            }
        )

    jobs = [job("a"), job("b", 1.0)]
    Engine(flat(2, 1), jobs, policy, backend, history.append, look).run()  # type: ignore[arg-type]
    assert outcomes(history) == {
        "a": ("finished", 5.0),
        "b": ("finished", 9.0),
    }
    assert seen == [
        {"foreground": 1, "background": 0},
        {"foreground": 1, "background": 1},
        {"foreground": 1, "background": 0},
        {"foreground": 0, "background": 0},
    ]
    (switched,) = of(history, events.JobTierSwitched)
    assert (switched.t, switched.tier) == (5.0, "foreground")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (
            act.Start("b", PLACE, 0, tier="background"),
            r"Start\(job b at 0 bit/s\), is refused: background: server 0: 2 slots",
        ),
        (act.Start("b", OTHER, 5, tier="background"), "which has no links"),
        (
            act.SwitchTier("a", "background"),
            "job a is in the background already",
        ),
        (
            act.Rescale("a", 5),
            "refused: it is in the background, which has no links",
        ),
        (act.Resume("a"), "job a is running, not preempted"),
    ],
)
def test_the_background_too_is_checked(
    second: act.Action, words: str
) -> None:
    policy = DecisionTable(
        {
            act.Arrived("a"): [act.Start("a", PLACE, 0, tier="background")],
            act.Arrived("b"): [second],
        }
    )
    with pytest.raises(RunFailed, match=words):
        play(
            [job("a"), job("b", 1.0)],
            policy,
            ScriptedBackend({"a": 5.0, "b": 5.0}),
        )


def test_why_a_job_waits_is_written_down_when_it_is_news() -> None:
    busy = act.Wait("b", "2 slots asked, 0 free", ("a",), 10.0)
    policy = DecisionTable(
        {
            act.Arrived("a"): [act.Start("a", PLACE, 1)],
            act.Arrived("b"): [busy],
            act.Arrived("c"): [busy],
            act.Arrived("d"): [
                act.Wait("b", "2 slots asked, 1 free", ("a",), 10.0)
            ],
        }
    )
    jobs = [job("a"), job("b", 1.0), job("c", 2.0), job("d", 3.0)]
    history, _ = play(jobs, policy, ScriptedBackend({"a": 10.0}))
    assert [
        (e.t, e.reason, e.behind, e.until_s)
        for e in of(history, events.JobWaits)
    ] == [  # type: ignore[attr-defined]
        (1.0, "2 slots asked, 0 free", ["a"], 10.0),
        (3.0, "2 slots asked, 1 free", ["a"], 10.0),
    ]
