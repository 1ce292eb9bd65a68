"""Late completions and refused starts from a backend in the middle of a policy's decision."""

from __future__ import annotations

import pytest

from jobs.demand import Compute
from jobs.request import JobRequest
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.embedding.placement import Placement
from testbed.engine.backend import Completion, StartFailed
from testbed.engine.engine import Engine
from testbed.schedulers import actions as act
from testbed.schedulers.registry import build_policy, known_policies
from tests.unit.engine.test_engine import (
    GBIT,
    DecisionTable,
    ScriptedBackend,
    job,
    outcomes,
    play,
)
from topologies.tree import tree

OF_NODES_ALONE = ("cmbf", "ambf", "cmcbf", "amcbf", "easy")


class Lumping(ScriptedBackend):
    """A backend that polls late: one call reports all ends until 6 s, each at its time."""

    def wait(self, until_s: float | None) -> list[Completion]:
        first = super().wait(until_s)
        while first and (more := super().wait(6.0)):
            first += more
        return first


class Refusing(SimulatedBackend):
    """The simulator, but one job cannot be started."""

    def start(
        self,
        job: JobRequest,
        placement: Placement,
        rate_bps: int,
        tier: act.Tier,
    ) -> None:
        if job.id == "refused":
            raise StartFailed("its namespace is gone")
        super().start(job, placement, rate_bps, tier)


def on(server: int) -> Placement:
    return Placement(6, ((server, 2),))


def test_no_action_follows_on_a_job_that_the_backend_reports_as_ended() -> (
    None
):
    starts = [act.Start(name, on(k), 1) for k, name in enumerate("ab")]
    policy = DecisionTable({act.Arrived("b"): starts})
    history, _ = play(
        [job("a"), job("b")], policy, Lumping({"a": 5.0, "b": 5.01})
    )
    assert outcomes(history) == {
        "a": ("finished", 5.0),
        "b": ("finished", 5.01),
    }
    assert policy.heard[-2:] == [
        (5.01, act.Ended("a", "finished", more_at_this_time=True)),
        (5.01, act.Ended("b", "finished")),
    ]


def test_a_decision_is_carried_out_whole_before_the_policy_hears_what_failed() -> (
    None
):
    starts = [act.Start(name, on(k), 1) for k, name in enumerate("abc")]
    # The second is not there to be acted on: this was decided with its start.
    decided = [starts[0], starts[1], act.Rescale("b", 2), starts[2]]
    policy = DecisionTable({act.Arrived("c"): decided})
    backend = ScriptedBackend(
        {"a": 1.0, "c": 2.0}, refuses=frozenset({"b"})
    )
    history, engine = play([job("a"), job("b"), job("c")], policy, backend)
    assert outcomes(history) == {
        "a": ("finished", 1.0),
        "b": ("killed", 0.0),
        "c": ("finished", 2.0),
    }
    assert policy.heard[3:] == [
        (0.0, act.Ended("b", "killed")),
        (1.0, act.Ended("a", "finished")),
        (2.0, act.Ended("c", "finished")),
    ]
    assert not engine.ledger.holdings()


def test_several_failed_starts_are_reported_as_one_instant() -> None:
    starts = [act.Start(name, on(k), 1) for k, name in enumerate("ab")]
    policy = DecisionTable({act.Arrived("b"): starts})
    play(
        [job("a"), job("b")],
        policy,
        ScriptedBackend({}, refuses=frozenset("ab")),
    )
    assert policy.heard[2:] == [
        (0.0, act.Ended("a", "killed", more_at_this_time=True)),
        (0.0, act.Ended("b", "killed")),
    ]


@pytest.mark.parametrize("name", sorted(known_policies()))
def test_under_every_policy_a_failed_start_costs_that_job_alone(
    name: str,
) -> None:
    """All wait for the first; when it ends, one decision starts several, and one cannot be."""

    def request(job_id: str, at_s: float, n_vms: int) -> JobRequest:
        if name in OF_NODES_ALONE:
            return JobRequest(
                job_id, at_s, n_vms, 0, 10.0, demand=Compute()
            )
        return JobRequest(
            job_id, at_s, n_vms, 400_000_000, 10.0, deadline_s=500.0
        )

    requests = [request("first", 0.0, 4)]
    requests += [request(other, 1.0, 2) for other in ("refused", "y", "z")]
    history: list[events.Event] = []
    engine = Engine(
        tree([4], [GBIT], 1),
        requests,
        build_policy(name, embedder("oktopus"), {}),
        Refusing(tree([4], [GBIT], 1)),
        history.append,
        after_step=lambda e: e.reservations.check(),
    )
    engine.run()
    ended = outcomes(history)
    assert set(ended) == {"first", "refused", "y", "z"}
    if (
        ended["first"][0] == "finished"
        and ended["refused"][0] != "rejected"
    ):
        assert ended["refused"][0] == "killed"
        assert {ended["y"][0], ended["z"][0]} <= {"finished", "rejected"}
    assert not engine.ledger.holdings()
