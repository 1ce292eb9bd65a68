from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from jobs.demand import Transfer
from jobs.request import JobRequest
from testbed import events
from testbed.embedding.oktopus import Oktopus
from testbed.embedding.placement import Placement
from testbed.engine.backend import Completion, StartFailed
from testbed.engine.engine import Engine
from testbed.errors import RunFailed
from testbed.schedulers import actions as act
from testbed.schedulers.policy import View
from testbed.schedulers.vc import Scripted
from topologies.tree import tree

GBIT = 1_000_000_000


@dataclass
class ScriptedBackend:
    """Runs each job for the time the test gives; fails those listed in `refuses`."""

    runs_for_s: dict[str, float]
    refuses: frozenset[str] = frozenset()
    name: str = "script"
    now: float = 0.0
    ends: dict[str, float] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)

    def now_s(self) -> float:
        return self.now

    def wait(self, until_s: float | None) -> list[Completion]:
        due = sorted((at, job) for job, at in self.ends.items())
        if due and (until_s is None or due[0][0] <= until_s):
            at, job = due[0]
            self.now = max(self.now, at)
            del self.ends[job]
            return [
                Completion(job, at, "finished", "", self.runs_for_s[job])
            ]
        if until_s is not None:
            self.now = max(self.now, until_s)
        return []

    def start(
        self,
        job: JobRequest,
        placement: Placement,
        rate_bps: int,
        tier: act.Tier,
    ) -> None:
        self.calls.append(("start", job.id))
        if job.id in self.refuses:
            raise StartFailed("no room in the script")
        if job.id in self.runs_for_s:
            self.ends[job.id] = self.now + self.runs_for_s[job.id]

    def rescale(self, job_id: str, rate_bps: int) -> None:
        self.calls.append((f"rescale {rate_bps}", job_id))

    def preempt(self, job_id: str) -> None:
        self.calls.append(("preempt", job_id))
        self.ends.pop(job_id, None)

    def resume(self, job_id: str, cost_s: float, tier: act.Tier) -> None:
        self.calls.append(("resume", job_id))
        self.ends[job_id] = self.now + cost_s + self.runs_for_s[job_id]

    def migrate(
        self,
        job_id: str,
        placement: Placement,
        cost_s: float,
        tier: act.Tier,
        *,
        best_effort: bool = False,
    ) -> None:
        what = "migrate to best effort" if best_effort else "migrate"
        self.calls.append((what, job_id))
        self.ends[job_id] = self.now + cost_s + self.runs_for_s[job_id]

    def switch_tier(self, job_id: str, tier: act.Tier) -> None:
        self.calls.append((tier, job_id))

    def kill(self, job_id: str, reason: str) -> None:
        del reason
        self.calls.append(("kill", job_id))
        self.ends.pop(job_id, None)


class DecisionTable:
    """A policy whose decision for each event is given by the test."""

    name = "table"

    def __init__(
        self, decisions: dict[act.PolicyEvent, list[act.Action]]
    ) -> None:
        self.decisions = decisions
        self.heard: list[tuple[float, act.PolicyEvent]] = []

    def decide(
        self, view: View, event: act.PolicyEvent
    ) -> list[act.Action]:
        self.heard.append((view.now_s, event))
        return self.decisions.get(event, [])


def job(name: str, at: float = 0.0, **more: object) -> JobRequest:
    return JobRequest(name, at, 2, 100_000_000, 10.0, **more)  # type: ignore[arg-type]


def play(
    jobs: list[JobRequest], policy: object, backend: ScriptedBackend
) -> tuple[list[events.Event], Engine]:
    history: list[events.Event] = []
    engine = Engine(
        tree([2, 2], [GBIT, GBIT], 2),
        jobs,
        policy,  # type: ignore[arg-type]
        backend,
        history.append,
        after_step=lambda e: e.reservations.check(),
    )
    engine.run()
    return history, engine


def outcomes(history: list[events.Event]) -> dict[str, tuple[str, float]]:
    return {
        e.job_id: (e.outcome, e.t)
        for e in history
        if isinstance(e, events.JobEnded)
    }


PLACE = Placement(6, ((0, 2),))


def test_a_scripted_job_runs_where_the_embedder_says_and_ends_when_the_backend_says() -> (
    None
):
    history, engine = play(
        [job("a")], Scripted(Oktopus()), ScriptedBackend({"a": 9.5})
    )
    assert outcomes(history) == {"a": ("finished", 9.5)}
    reserved = next(e for e in history if isinstance(e, events.JobReserved))
    assert reserved.estimate_s == 10.0
    assert sum(count for _, count in reserved.vms_on) == 2
    assert not engine.ledger.holdings()
    assert isinstance(history[-1], events.RunEnded)


def test_at_one_instant_ends_come_before_starts_before_arrivals_then_by_id() -> (
    None
):
    start = act.Start("first", PLACE, 1, reserve_until_s=10.0)
    later = act.Reserve("slid", PLACE, 1, 10.0, 30.0)
    policy = DecisionTable(
        {act.Arrived("first"): [start], act.Arrived("slid"): [later]}
    )
    jobs = [job("first"), job("slid"), job("z", 10.0), job("b", 10.0)]
    backend = ScriptedBackend({"first": 10.0, "slid": 5.0})
    history, _ = play(jobs, policy, backend)
    at_ten = [
        (
            type(e).__name__,
            getattr(e, "job_id", "") or getattr(e, "job", {}).get("id"),
        )
        for e in history
        if e.t == 10.0
    ]
    assert at_ten == [
        ("JobEnded", "first"),
        ("JobStarted", "slid"),
        ("JobSubmitted", "b"),
        ("JobSubmitted", "z"),
    ]


def test_jobs_may_come_one_by_one_and_are_forgotten_when_they_have_left() -> (
    None
):
    asked: list[str] = []
    here: list[int] = []

    def coming() -> Iterator[JobRequest]:
        for k in range(20):
            asked.append(f"j{k:02}")
            yield job(f"j{k:02}", float(k // 2))

    backend = ScriptedBackend({f"j{k:02}": 0.25 for k in range(20)})
    engine = Engine(
        tree([2, 2], [GBIT, GBIT], 2),
        coming(),
        Scripted(Oktopus()),
        backend,
        None,
        lambda engine: here.append(len(engine.jobs)),
    )
    assert asked == ["j00", "j01", "j02"]
    engine.run()
    assert len(asked) == 20
    assert max(here) == 2
    assert not engine.jobs


def test_jobs_that_come_one_by_one_must_be_in_order() -> None:
    jobs = iter([job("a", 5.0), job("b", 4.0)])
    with pytest.raises(
        ValueError, match="job b of a stream is out of order"
    ):
        Engine(
            tree([2, 2], [GBIT, GBIT], 2),
            jobs,
            Scripted(Oktopus()),
            ScriptedBackend({"a": 1.0}),
            None,
        ).run()


def test_the_same_jobs_in_any_form_are_the_same_run() -> None:
    jobs = [
        job(f"j{k}", float(at)) for k, at in enumerate((3, 1, 1, 0, 2, 3))
    ]
    times = {f"j{k}": 2.5 for k in range(6)}
    ordered = sorted(jobs, key=lambda each: each.submit_s)
    listed, _ = play(
        jobs, Scripted(Oktopus()), ScriptedBackend(dict(times))
    )
    streamed, _ = play(
        iter(ordered), Scripted(Oktopus()), ScriptedBackend(dict(times))
    )  # type: ignore[arg-type]
    assert [e.to_json() for e in listed] == [e.to_json() for e in streamed]


def test_a_chained_job_arrives_when_its_predecessor_has_ended() -> None:
    jobs = [
        job("one"),
        job("two", after="one"),
        job("three", 50.0, after="two"),
    ]
    backend = ScriptedBackend({"one": 4.0, "two": 3.0, "three": 1.0})
    history, _ = play(jobs, Scripted(Oktopus()), backend)
    submitted = {
        e.job["id"]: e.t
        for e in history
        if isinstance(e, events.JobSubmitted)
    }
    assert submitted == {"one": 0.0, "two": 4.0, "three": 50.0}
    assert {
        e.job["submit_s"]
        for e in history
        if isinstance(e, events.JobSubmitted)
    } == {
        0.0,
        4.0,
        50.0,
    }


def test_a_job_that_does_not_fit_is_rejected_with_a_reason() -> None:
    history, _ = play(
        [JobRequest("big", 0, 50, 1, 1.0)],
        Scripted(Oktopus()),
        ScriptedBackend({}),
    )
    ended = next(e for e in history if isinstance(e, events.JobEnded))
    assert ended.outcome == "rejected"
    assert "50" in ended.reason


def test_a_job_that_cannot_start_is_killed_and_gives_its_reservation_back() -> (
    None
):
    backend = ScriptedBackend({"b": 1.0}, refuses=frozenset({"a"}))
    history, engine = play(
        [job("a"), job("b", 1.0)], Scripted(Oktopus()), backend
    )
    assert outcomes(history) == {
        "a": ("killed", 0.0),
        "b": ("finished", 2.0),
    }
    assert "no room in the script" in next(
        e.reason
        for e in history
        if isinstance(e, events.JobEnded) and e.job_id == "a"
    )
    assert not engine.ledger.holdings()


def test_the_end_of_a_reservation_kills_what_still_runs() -> None:
    start = act.Start("a", PLACE, 1, reserve_until_s=5.0, kill_at_end=True)
    backend = ScriptedBackend({"a": 7.0})
    history, _ = play(
        [job("a")], DecisionTable({act.Arrived("a"): [start]}), backend
    )
    assert outcomes(history) == {"a": ("killed", 5.0)}
    assert ("kill", "a") in backend.calls


def test_an_end_at_the_very_end_of_its_reservation_is_a_finish() -> None:
    start = act.Start("a", PLACE, 1, reserve_until_s=5.0, kill_at_end=True)
    backend = ScriptedBackend({"a": 5.0})
    history, _ = play(
        [job("a")], DecisionTable({act.Arrived("a"): [start]}), backend
    )
    assert outcomes(history) == {"a": ("finished", 5.0)}


def test_an_over_committing_policy_ends_the_run_by_name() -> None:
    twice = [act.Start("a", PLACE, 1), act.Start("b", PLACE, 1)]
    policy = DecisionTable({act.Arrived("b"): twice})
    told = r"policy table, at 1 s, on the arrival of job b: action 2, Start\(job b at 1 bit/s\), is"
    with pytest.raises(RunFailed, match=told):
        play([job("a"), job("b", 1.0)], policy, ScriptedBackend({}))


def test_a_policy_may_not_start_what_has_not_arrived() -> None:
    policy = DecisionTable({act.Arrived("a"): [act.Start("b", PLACE, 1)]})
    with pytest.raises(RunFailed, match="job b is not there"):
        play([job("a"), job("b", 1.0)], policy, ScriptedBackend({}))


def test_policies_do_not_see_the_true_duration() -> None:
    seen: list[float | None] = []

    class Peeking(Scripted):
        def decide(
            self, view: View, event: act.PolicyEvent
        ) -> list[act.Action]:
            seen.extend(view.job(j).true_duration_s for j in view.waiting())
            return super().decide(view, event)

    play(
        [job("a", true_duration_s=99.0)],
        Peeking(Oktopus()),
        ScriptedBackend({"a": 1.0}),
    )
    assert seen == [None]


def test_policies_see_the_estimate_of_a_cpu_use_and_not_the_truth() -> None:
    seen: list[tuple[object, object]] = []

    class Peeking(Scripted):
        def decide(
            self, view: View, event: act.PolicyEvent
        ) -> list[act.Action]:
            seen.extend(
                (
                    view.job(j).demand.cpu_use,
                    view.job(j).demand.cpu_estimate,
                )
                for j in view.waiting()
            )
            return super().decide(view, event)

    play(
        [job("a", demand=Transfer(cpu_use=0.9, cpu_estimate=0.7))],
        Peeking(Oktopus()),
        ScriptedBackend({"a": 1.0}),
    )
    assert seen == [(0.7, None)]


def test_preemption_frees_and_resuming_takes_the_same_place_again() -> None:
    policy = DecisionTable(
        {
            act.Arrived("a"): [act.Start("a", PLACE, 1)],
            act.Arrived("b"): [
                act.Preempt("a", "b first"),
                act.Start("b", PLACE, 1),
            ],
            act.Ended("b", "finished"): [act.Resume("a")],
        }
    )
    backend = ScriptedBackend({"a": 10.0, "b": 2.0})
    history, _ = play([job("a"), job("b", 1.0)], policy, backend)
    assert outcomes(history) == {
        "b": ("finished", 3.0),
        "a": ("finished", 13.0),
    }
    assert [c for c in backend.calls if c[1] == "a"] == [
        ("start", "a"),
        ("preempt", "a"),
        ("resume", "a"),
    ]


def test_a_policy_that_never_starts_a_job_leaves_it_unfinished() -> None:
    history, _ = play([job("a")], DecisionTable({}), ScriptedBackend({}))
    assert outcomes(history) == {"a": ("unfinished", 0.0)}


def test_an_interrupt_leaves_running_jobs_unfinished_and_nothing_reserved() -> (
    None
):
    class Interrupted(ScriptedBackend):
        def wait(self, until_s: float | None) -> list[Completion]:
            if self.ends:
                self.now = 3.0  # events reported until then must not follow the end
                raise KeyboardInterrupt
            return super().wait(until_s)

    history: list[events.Event] = []
    backend = Interrupted({"a": 5.0})
    centre = tree([2, 2], [GBIT, GBIT], 2)
    engine = Engine(
        centre, [job("a")], Scripted(Oktopus()), backend, history.append
    )
    with pytest.raises(KeyboardInterrupt):
        engine.run()
    assert outcomes(history) == {"a": ("unfinished", 3.0)}
    (end,) = [each for each in history if isinstance(each, events.JobEnded)]
    assert end.reason == "the run stopped: interrupted"
    assert engine.now_s == 3.0
    assert not engine.ledger.holdings()


def test_a_wake_up_comes_when_asked_for() -> None:
    policy = DecisionTable({act.Arrived("a"): [act.Wake(7.5)]})
    play([job("a")], policy, ScriptedBackend({}))
    assert (7.5, act.Woken(7.5)) in policy.heard


def test_a_run_ends_with_its_last_job_and_not_with_a_wake_up() -> None:
    """A plan that was given up, for instance, leaves one behind."""
    policy = DecisionTable(
        {
            act.Arrived("a"): [act.Start("a", PLACE, 1), act.Wake(2.0)],
            act.Woken(2.0): [act.Wake(500.0)],
        }
    )
    backend = ScriptedBackend({"a": 5.0})
    history, _ = play([job("a")], policy, backend)
    assert (2.0, act.Woken(2.0)) in policy.heard
    assert history[-1].t == backend.now == 5.0


def test_a_run_ends_with_its_last_job_and_not_with_what_was_reserved_for_it() -> (
    None
):
    policy = DecisionTable(
        {
            act.Arrived("a"): [
                act.Start("a", PLACE, 1, 500.0, kill_at_end=True)
            ]
        }
    )
    backend = ScriptedBackend({"a": 5.0})
    history, _ = play([job("a")], policy, backend)
    assert outcomes(history) == {"a": ("finished", 5.0)}
    assert history[-1].t == backend.now == 5.0
