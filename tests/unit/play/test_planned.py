"""The text a run would install, of runs that preempt, migrate and book ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import BadInput
from testbed.play.planned import planned
from testbed.spec.experiment_file import load_experiment, parse_experiment

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_a_job_that_resumes_elsewhere_is_a_tenant_once_more() -> None:
    experiment = load_experiment(EXAMPLES / "cmbf-fig1.yaml")
    plan = planned(experiment, experiment.policies[0])
    assert [tenant.job_id for tenant in plan.tenants] == [
        "J1",
        "J2",
        "J5",
        "J6",
        "J4",
        "J5",
        "J3",
    ]
    # J4 comes while J5's VMs stand still in their namespaces; J5 continues in J2's.
    assert plan.tenants[4].summary.endswith(
        "in hn-s1v0, hn-s2v0, hn-s3v1, hn-s4v1"
    )
    assert plan.tenants[5].summary.endswith("in hn-s1v0, hn-s2v0")


def test_what_is_booked_ahead_takes_its_place_when_it_starts() -> None:
    experiment = load_experiment(
        EXAMPLES / "leases-live.yaml", {"workload.jobs": "12"}
    )
    plan = planned(experiment, experiment.policies[0])
    starts = [
        float(tenant.summary.split(" at ")[1].split(" s ")[0])
        for tenant in plan.tenants
    ]
    assert starts == sorted(starts)
    assert len(plan.tenants) >= 10


def test_what_moves_data_is_refused_where_no_network_is() -> None:
    text = """
topology: {kind: flat, nodes: 3}
policies: [fcfs]
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 5 s}]}
"""
    experiment = parse_experiment(text, Path("a.yaml"))
    with pytest.raises(BadInput, match="no network"):
        planned(experiment, experiment.policies[0])


def test_packets_are_as_large_as_the_jobs_volume_allows() -> None:
    text = """
topology: {kind: tree, fanout: [2], links: [10 Mbit/s], slots_per_server: 2}
policies: [vc]
workload:
  kind: jobs
  jobs:
    - {id: short, vms: 2, bandwidth: 3 Mbit/s, duration: 1 s}
    - {id: long, vms: 2, bandwidth: 3 Mbit/s, duration: 60 s}
"""
    experiment = parse_experiment(text, Path("a.yaml"))
    plan = planned(experiment, experiment.policies[0])
    texts = {tenant.job_id: tenant.text for tenant in plan.tenants}
    assert "gso_max_size 8754" in texts["short"]
    assert "gso_max_size 32768" in texts["long"]


def test_a_job_that_moves_without_bandwidth_has_no_class_on_links() -> None:
    text = """
topology: {kind: tree, fanout: [4], links: [10 Mbit/s], slots_per_server: 1}
policies: [{name: dcloud, gamma: 0 %, best_effort_servers: 50 %}]
workload:
  kind: batch
  jobs: 1
  vms: {mean: 2, sigma: 0}
  bandwidth: {mean: 3 Mbit/s, sigma: 0 Mbit/s}
  duration: {mean: 60 s, sigma: 0 s}
  deadline_ratio: {mean: 1, sigma: 0}
  profiling_error: {low: 0.1, high: 0.2}
"""
    experiment = parse_experiment(text, Path("a.yaml"))
    before, after = planned(experiment, experiment.policies[0]).tenants
    assert before.job_id == after.job_id
    assert before.summary.endswith("in hn-s0v0, hn-s1v0")
    assert after.summary.endswith("in hn-s2v0, hn-s3v0")
    assert "3.00 Mbit/s" in before.summary or "3 Mbit/s" in before.summary
    assert len(after.text) < len(before.text)
