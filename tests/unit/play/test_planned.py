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
