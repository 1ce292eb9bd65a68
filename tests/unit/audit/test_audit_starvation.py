"""No starvation: the audit counts generations of running jobs while the first waits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from jobs.demand import Compute
from jobs.request import JobRequest
from testbed import events, load
from testbed.audit import audit
from testbed.audit.policy_claims import GENERATIONS
from testbed.embedding.base import embedder
from testbed.record.conclusion import conclude
from testbed.record.folder import RESOLVED, RunFolder
from testbed.record.stored_json import read_json
from testbed.record.topology_record import topology_record
from testbed.schedulers.registry import build_policy
from tests.unit.record.written import NOW, write_resolved
from tests.unit.schedulers.machine import job, run
from topologies.flat import flat

NODES = 4


def findings(
    base: Path,
    history: Sequence[events.Event],
    policy: str = "sdf",
    claim: str = "no-starvation",
) -> list[str]:
    """The findings of the claim's check on a run, whose policy is made to claim it."""
    head = events.RunStarted(
        0.0, "x", policy, "sim", 1, topology_record(flat(NODES, 1))
    )
    folder = RunFolder.create(base, "x", 1, now=NOW)
    with folder.open_events() as log:
        for event in (head, *history):
            log(event)
    write_resolved(folder, [head, *history])
    resolved = read_json(folder.path / RESOLVED)
    folder.write_json(RESOLVED, {**(resolved or {}), "claims": [claim]})
    conclude(folder, wall_s=0.0)
    [result] = [
        one
        for one in audit(folder.path).results
        if one.name == "no-starvation"
    ]
    return [finding.message for finding in result.findings]


def stream(number: int) -> list[JobRequest]:
    """A job of all nodes, after the first of so many jobs of half of them that overlap."""
    small = [job(f"s{n:02}", 2, 9.0, at=5.0 * n) for n in range(number)]
    return [*small, job("large", NODES, 100.0, at=7.0)]


def played(policy: str, jobs: Sequence[JobRequest]) -> list[events.Event]:
    values = {"skip": True} if policy == "sdf" else {}
    return run(
        build_policy(policy, embedder("oktopus"), values), jobs, NODES
    )


def test_a_job_that_is_overtaken_for_ever_is_found_and_said_once(
    tmp_path: Path,
) -> None:
    [found] = findings(tmp_path, played("sdf", stream(40)))
    assert "starts before large, which came earlier" in found
    assert found.endswith(
        f"all that ran has left {GENERATIONS} times meanwhile"
    )


def test_a_few_that_overtake_are_allowed(tmp_path: Path) -> None:
    assert findings(tmp_path, played("sdf", stream(5))) == []


@pytest.mark.parametrize("policy", ["fcfs", "easy", "cmbf", "ambf"])
def test_policies_that_declare_it_keep_it(
    policy: str, tmp_path: Path
) -> None:
    assert findings(tmp_path, played(policy, stream(40)), policy) == []


def test_a_job_that_is_never_started_is_found(tmp_path: Path) -> None:
    jobs = [job("a", 1, 1.0), job("forgotten", 1, 1.0, at=0.5)]
    history = played("fcfs", jobs)
    kept = [e for e in history if getattr(e, "job_id", "") != "forgotten"]
    end = events.JobEnded(
        2.0,
        "forgotten",
        "unfinished",
        "the policy never started it",
        None,
        {},
    )
    [found] = findings(
        tmp_path, [*kept[:-1], end, events.RunEnded(2.0, "completed", "")]
    )
    assert found == "forgotten never started, and was not rejected either"


@pytest.mark.parametrize(
    ("nodes", "fits"), [(NODES, True), (NODES + 1, False)]
)
def test_a_rejection_is_found_where_the_job_fits(
    nodes: int, fits: bool, tmp_path: Path
) -> None:
    request = JobRequest("a", 0.0, nodes, 0, 1.0, demand=Compute())
    record = events.JobSubmitted(0.0, events.JobRecord(request.to_json))
    end = events.JobEnded(0.0, "a", "rejected", "full", None, {})
    found = findings(
        tmp_path, [record, end, events.RunEnded(0.0, "completed", "")]
    )
    assert found == (
        ["a was rejected, though it fits the empty data centre"]
        if fits
        else []
    )


@pytest.mark.parametrize("bandwidth_bps", [0, 1_000])
@pytest.mark.parametrize(
    "claim", ["no-starvation", "no-starvation-without-bandwidth"]
)
def test_a_policy_that_reserves_no_bandwidth_may_reject_jobs_that_ask_for_some(
    claim: str, bandwidth_bps: int, tmp_path: Path
) -> None:
    request = JobRequest(
        "a", 0.0, NODES, bandwidth_bps, 1.0, demand=Compute()
    )
    record = events.JobSubmitted(0.0, events.JobRecord(request.to_json))
    end = events.JobEnded(0.0, "a", "rejected", "full", None, {})
    history = [record, end, events.RunEnded(0.0, "completed", "")]
    allowed = bandwidth_bps > 0 and claim != "no-starvation"
    assert bool(findings(tmp_path, history, claim=claim)) is not allowed


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("policy", ["easy", "cmbf", "amcbf", "ambf"])
def test_rejected_requests_for_bandwidth_on_a_tree_fail_no_audit(
    policy: str, tmp_path: Path
) -> None:
    experiment = load(
        {
            "name": "tree",
            "topology": {
                "kind": "tree",
                "fanout": [2, 2],
                "links": "1 Gbit/s",
                "slots_per_server": 1,
            },
            "policies": [policy],
            "workload": {
                "kind": "jobs",
                "jobs": [
                    {
                        "id": "bandwidth",
                        "kind": "transfer",
                        "vms": 2,
                        "bandwidth": "100 Mbit/s",
                        "duration": "10 s",
                    },
                    {
                        "id": "none",
                        "kind": "compute",
                        "vms": 2,
                        "duration": "10 s",
                    },
                ],
            },
        }
    )
    run = experiment.simulate(out=tmp_path)
    assert list(run.jobs["outcome"]) == ["rejected", "finished"]
    assert audit(run.folder).passed
