"""Why a job waited: of runs as the engine writes them, whoever schedules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.demand import Compute
from jobs.request import JobRequest
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.cli.main import run
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.errors import BadInput
from testbed.record.job_history import Overtaker, explained, kind_of_reason
from testbed.schedulers.cmbf import Cmbf
from testbed.schedulers.easy import Easy
from testbed.schedulers.policy import Policy
from testbed.schedulers.registry import build_policy
from tests.unit.record import sample
from tests.unit.record.written import write_run
from topologies.flat import flat


def job(
    name: str, nodes: int, runs_s: float, at: float = 0.0
) -> JobRequest:
    return JobRequest(name, at, nodes, 0, runs_s, demand=Compute())


def history(
    policy: Policy, jobs: list[JobRequest], nodes: int
) -> list[events.Event]:
    machine = flat(nodes, 1)
    out: list[events.Event] = [
        events.RunStarted(0.0, "x", policy.name, "sim", 1, {})
    ]
    Engine(
        machine, jobs, policy, SimulatedBackend(machine), out.append
    ).run()
    return out


JOBS = [
    job("a", 2, 10.0),
    job("b", 3, 5.0, 1.0),
    job("c", 1, 4.0, 2.0),
    job("d", 1, 90.0, 3.0),
    job("e", 1, 1.0, 7.0),
]


def test_what_stood_in_the_way_and_who_was_backfilled() -> None:
    found = explained(history(Easy(), JOBS, 3), "b")
    assert (found.submit_s, found.start_s, found.end_s, found.outcome) == (
        1.0,
        10.0,
        15.0,
        "finished",
    )
    assert found.waited_s == 9.0
    assert found.overtaken_by == [
        Overtaker("c", 2.0, 2.0, 1),
        Overtaker("e", 7.0, 7.0, 1),
    ]
    (waits,) = [step for step in found.steps if step.event == "job_waits"]
    assert waits.says == "waits: first in the queue: 3 nodes asked, 1 free"
    assert (waits.behind, waits.until_s) == (("a",), 10.0)


def test_who_came_before_has_overtaken_nobody() -> None:
    found = explained(history(Easy(), JOBS, 3), "d")
    assert [o.job_id for o in found.overtaken_by] == ["e"]
    assert found.waited_s == 12.0


def test_waiting_after_a_preemption_counts_too() -> None:
    jobs = [
        job("big", 2, 10.0),
        job("all", 3, 10.0, 1.0),
        job("small", 1, 100.0, 2.0),
    ]
    found = explained(history(Cmbf(), jobs, 3), "small")
    assert found.waited_s == 10.0
    assert [step.says for step in found.steps] == [
        "submitted, asks for 1 VM",
        "is placed on server 2",
        "starts",
        "is preempted: all arrived earlier and needs 3 nodes",
        "waits: first in the queue: 1 nodes asked, 0 idle, 0 held by jobs that came later",
        "resumes on server 0 after 20 s of restoring: nodes are free for it again",
        "finished",
    ]


def test_an_unknown_job_is_bad_input() -> None:
    with pytest.raises(BadInput, match="no job 'z'") as caught:
        explained(history(Easy(), JOBS, 3), "z")
    assert caught.value.hint == "jobs are named as a, b, c, d, e"


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = write_run(tmp_path, sample.two_tiers())
    assert run(["explain", str(folder.path), "behind"]) == 0
    shown = capsys.readouterr().out
    assert "waits: 1 node asked, 0 free; it waits for front" in shown
    assert "continues in the foreground of its nodes" in shown
    assert "It waited 5.00 s. No later job started meanwhile." in shown
    assert run(["explain", str(folder.path), "behind", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["waited_s"] == 5.0
    assert record["steps"][1]["behind"] == ["front"]
    assert run(["explain", str(folder.path), "nobody"]) == 2
    assert "no job 'nobody'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    ["fcfs", "sbf", "bgmbf", "easy", "cmbf", "ambf", "cmcbf", "amcbf"],
)
def test_every_queueing_policy_says_why_a_job_waits(name: str) -> None:
    jobs = [
        JobRequest(f"j{k}", float(k), 3, 0, 20.0, demand=Compute())
        for k in range(3)
    ]
    found = explained(
        history(build_policy(name, embedder("oktopus"), {}), jobs, 4), "j2"
    )
    if found.waited_s:
        reasons = [
            step.says for step in found.steps if step.event == "job_waits"
        ]
        assert reasons
        assert any(char.isdigit() for char in reasons[0])


def submitted(at_s: float, name: str) -> events.JobSubmitted:
    record = {"id": name, "n_vms": 2, "bandwidth_bps": 0}
    return events.JobSubmitted(at_s, record)


def test_a_job_that_is_cut_at_the_end_of_the_run_was_cut_until_then() -> (
    None
):
    stream = [
        submitted(0.0, "a"),
        events.JobStarted(1.0, "a", 0),
        events.JobCut(4.0, "a", "link 3 is lost"),
        events.RunEnded(10.0, "interrupted", "Ctrl-C"),
    ]
    history = explained(stream, "a")
    assert (history.waited_s, history.cut_s) == (1.0, 6.0)


def test_a_job_that_starts_anew_has_overtaken_once() -> None:
    stream = [
        submitted(0.0, "a"),
        submitted(1.0, "b"),
        events.JobStarted(2.0, "b", 0),
        events.JobRequeued(3.0, "b", "server 0 failed"),
        events.JobStarted(4.0, "b", 0),
    ]
    history = explained(stream, "a")
    assert history.overtaken_by == [Overtaker("b", 1.0, 2.0, 2)]


def test_reasons_of_a_kind_are_alike_whatever_their_units() -> None:
    kinds = {
        kind_of_reason("server 0: 800 Mbit/s asked, 1 Gbit/s free."),
        kind_of_reason("server 12: 1.2 Gbit/s asked, 0 bit/s free."),
    }
    assert kinds == {"server …: … asked, … free."}
    assert kind_of_reason("") == "none given"
