"""Decisions about a job whose agents meanwhile do something that is not yet known."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jobs.demand import Compute
from jobs.live.agent_protocol import AgentReport
from jobs.request import JobRequest
from testbed.backends.emu import live_backend as emu
from testbed.backends.emu.live_backend import LiveBackend
from testbed.embedding.base import embedder
from testbed.embedding.placement import Placement
from testbed.engine.backend import StartFailed
from testbed.engine.engine import Engine
from testbed.events import Event, JobEnded
from testbed.schedulers.registry import build_policy
from testbed.spec.experiment import Scale
from tests.support.fake_emulation import (
    SCALE_RATE,
    FakeEmulation,
    own_clock,
)
from topologies.tree import tree

MBPS = 1_000_000
HERE = Placement(4, ((0, 1), (1, 1)))
THERE = Placement(4, ((2, 1), (3, 1)))


def live(
    namespaces_per_server: tuple[int, ...] = (2, 2, 2, 2), slots: int = 1
) -> tuple[FakeEmulation, LiveBackend]:
    fake = FakeEmulation(
        tree([4], [1000 * MBPS], slots), namespaces_per_server
    )
    emulation: Any = fake
    backend = LiveBackend(
        emulation, Scale(rate=SCALE_RATE), 1, lambda _: None
    )
    backend.begin()
    return fake, backend


def start(
    backend: LiveBackend, name: str, placement: Placement = HERE
) -> None:
    request = JobRequest(name, 0.0, 2, 500 * MBPS, 5.0)
    backend.start(request, placement, 500 * MBPS, "foreground")


def test_one_frozen_between_its_report_and_its_exit_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emulation, backend = live()
    start(backend, "x")
    emulation.agents.lingers.add("x.1")
    for name in ("x.0", "x.1"):
        emulation.agents.later(0, name)
    output = emulation.agents.poll(0.01)
    assert [type(message) for _, message in output].count(AgentReport) == 2
    for message in output:
        emulation.agents.later(0, message)  # received after its preemption
    backend.preempt("x")

    def end_all_in(_: object) -> None:
        pytest.fail(
            "it was ended by force, after its time to end by itself"
        )

    monkeypatch.setattr(emulation.agents, "end_all_in", end_all_in)
    (done,) = backend.wait(None)
    assert (done.job_id, done.outcome) == ("x", "finished")
    assert not emulation.here


def test_an_agent_that_ends_before_it_is_asked_to_is_no_trouble() -> None:
    emulation, backend = live()
    start(backend, "m")
    emulation.agents.later(0, "m.0")
    output = emulation.agents.poll(0.01)
    for message in output:
        emulation.agents.later(
            0, message
        )  # its report and, unheard as well, its exit
    emulation.agents.lasts_s["m"] = 0.05
    backend.migrate("m", THERE, 0.0, "foreground")
    assert emulation.agents.refused == ["m.0"]
    (done,) = backend.wait(None)
    assert (done.outcome, done.reason) == ("finished", "")


def test_a_job_that_gives_up_its_bandwidth_moves_on_without_limits() -> (
    None
):
    emulation, backend = live()
    start(backend, "m")
    before = emulation.admitted[-1]
    assert before.link_bps
    assert emulation.borrowing == 0
    emulation.agents.lasts_s["m"] = 0.05
    backend.migrate("m", THERE, 0.0, "foreground", best_effort=True)
    after = emulation.admitted[-1]
    assert (after.job_id, after.link_bps) == ("m", ())
    assert {vm.slot.server for vm in after.vms} == {2, 3}
    # Its VMs send at most what it asked for.
    assert after.rate_bps == before.rate_bps
    assert emulation.borrowing == 1
    (done,) = backend.wait(None)
    assert (done.outcome, done.reason) == ("finished", "")


def test_who_pays_for_going_on_keeps_its_namespaces() -> None:
    emulation, backend = live((3, 3, 3, 3), slots=2)
    for name in "ab":
        start(backend, name)
        backend.preempt(name)
    start(backend, "c")
    backend.preempt("c")
    emulation.agents.lasts_s["new"] = 0.01
    backend.resume("a", 1e9, "foreground")
    start(backend, "new")
    assert emulation.here == {"a", "c", "new"}


def test_a_start_that_misses_one_namespace_takes_none() -> None:
    emulation, backend = live((2, 1, 1, 1))
    start(backend, "x", Placement(4, ((1, 1), (2, 1))))
    for name in ("y", "z"):
        with pytest.raises(StartFailed, match="no VM namespace is left"):
            start(backend, name)
    start(backend, "v", Placement(4, ((0, 2),)))
    assert emulation.here == {"x", "v"}


@pytest.mark.parametrize("policy", ["bgmbf", "cmbf"])
def test_two_that_end_a_moment_apart_while_the_head_of_the_queue_waits(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy would preempt the second for the head, on hearing of the first."""
    own_clock(monkeypatch)
    emulation, backend = live((3, 3, 3, 3))
    hear = emulation.agents.poll

    def late(timeout_s: float) -> list[Any]:
        heard = hear(timeout_s)
        if any(isinstance(message, AgentReport) for _, message in heard):
            time.sleep(0.05)
            heard += hear(0)
        return heard

    emulation.agents.poll = late  # type: ignore[method-assign]
    emulation.agents.lasts_s = {"a": 0.5, "b": 0.32, "head": 0.1}

    def request(name: str, at_s: float, n_vms: int) -> JobRequest:
        if policy == "cmbf":
            return JobRequest(name, at_s, n_vms, 0, 5.0, demand=Compute())
        return JobRequest(name, at_s, n_vms, 100 * MBPS, 5.0)

    recorded: list[Event] = []
    jobs = [
        request("a", 0.0, 2),
        request("head", 0.1, 4),
        request("b", 0.2, 2),
    ]
    built = build_policy(policy, embedder("oktopus"), {})
    Engine(
        emulation.datacentre, jobs, built, backend, recorded.append
    ).run()
    ended = {
        event.job_id: event.outcome
        for event in recorded
        if isinstance(event, JobEnded)
    }
    assert ended == dict.fromkeys(("a", "b", "head"), "finished")


def test_agents_that_do_not_end_are_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(emu, "EXIT_TIMEOUT_S", 0.1)
    emulation, backend = live()
    start(backend, "x")
    emulation.agents.lingers.update(("x.0", "x.1"))
    for name in ("x.0", "x.1"):
        emulation.agents.later(0, name)
    (done,) = backend.wait(None)
    assert done.outcome == "finished"
    assert not emulation.agents.alive


def test_one_that_was_ready_may_end_before_the_common_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake: Any = FakeEmulation(tree([4], [1000 * MBPS], 2))
    backend = LiveBackend(fake, Scale(rate=SCALE_RATE), 1, lambda _: None)
    agents = fake.agents

    def begin(names: list[str], _: int) -> None:
        # As the pool.
        assert agents.alive.keys() >= set(names)

    monkeypatch.setattr(agents, "begin", begin)
    start(backend, "x")
    agents.exit("x.1", None, 9)
    start(backend, "y", THERE)
    backend.begin()
    (done,) = backend.wait(0.0)
    assert (done.job_id, done.outcome) == ("x", "killed")
    assert "agent x.1 ended with" in done.reason


def test_another_rate_gives_no_limit_to_what_was_in_the_background() -> (
    None
):
    _, backend = live()
    start(backend, "x")
    backend.rescale("x", 400 * MBPS)
    assert backend._jobs["x"].limit_s
    backend.switch_tier("x", "background")
    backend.switch_tier("x", "foreground")
    backend.rescale("x", 250 * MBPS)
    assert backend._jobs["x"].limit_s is None
