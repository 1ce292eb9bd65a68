from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.demand import (
    Command,
    Compute,
    Demand,
    DemandCurve,
    Lease,
    Transfer,
)
from jobs.job_profile import Profile
from jobs.request import JobRequest

PLAIN = JobRequest("a", 0.0, 3, 0, 60.0)


def test_what_the_user_stated_stands_beside_the_running_time() -> None:
    assert PLAIN.stated_s == 60.0
    assert replace(PLAIN, estimate_s=3600.0).stated_s == 3600.0


def test_one_cpu_use_holds_for_every_process() -> None:
    assert PLAIN.cpu_uses == (1.0, 1.0, 1.0)
    assert replace(
        PLAIN, demand=Transfer(cpu_use=(0.5, 0.4, 1.0))
    ).cpu_uses == (0.5, 0.4, 1.0)


@pytest.mark.parametrize("use", [0.0, 1.1, (0.5, 0.5), (0.5, 0.5, 0.0), ()])
def test_cpu_uses_are_shares_of_a_node_one_for_each_process(
    use: float,
) -> None:
    with pytest.raises(ValueError, match="CPU use"):
        replace(PLAIN, demand=Transfer(cpu_use=use))


@pytest.mark.parametrize("stated", [0.0, -1.0, float("nan")])
def test_a_stated_running_time_is_above_zero(stated: float) -> None:
    with pytest.raises(ValueError, match="stated running time"):
        replace(PLAIN, estimate_s=stated)


@pytest.mark.parametrize("granted_bps", [0, 50, 100])
@pytest.mark.parametrize(
    "demand", [Compute(), Command(words=("true",), network=False)], ids=repr
)
def test_no_bandwidth_changes_the_time_of_a_job_that_only_computes(
    demand: Demand, granted_bps: int
) -> None:
    job = replace(PLAIN, bandwidth_bps=100, demand=demand)
    assert job.demand.estimate_s(job, granted_bps) == 60.0
    assert job.demand.duration_s(job, granted_bps) == 60.0


def test_its_record_is_flat_whatever_its_demand() -> None:
    absent = {
        "id": "a", "submit_s": 0.0, "n_vms": 3, "bandwidth_bps": 0, "duration_s": 60.0,
        "deadline_s": None, "kind": "transfer", "pattern": "ring", "demand": None,
        "cpu_share": 0.0, "granted_bps": None, "true_duration_s": None, "application": None,
        "value": 0.0, "tags": (), "after": None, "estimate_s": None, "cpu_use": 1.0,
        "cpu_estimate": None, "user": None, "queue": None, "profile": None, "cores": 1,
        "memory_mib": 0, "lease": None, "wanted_s": None, "command": None,
    }  # fmt: skip
    uses = (0.5, 0.4, 1.0)
    profile = Profile(((10, 60.0), (20, 30.0)))
    curve = ((0.5, 10), (1.0, 20))
    for demand, differs in (
        (Transfer(), {}),
        (Transfer("permutation", 0.5), {"pattern": "permutation", "cpu_share": 0.5}),
        (Transfer(cpu_use=uses, cpu_estimate=0.5), {"cpu_use": uses, "cpu_estimate": 0.5}),
        (Transfer(profile=profile), {"profile": {"options": profile.options}}),
        (DemandCurve(curve), {"kind": "demand", "demand": {"steps": curve}}),
        (Compute(uses), {"kind": "compute", "cpu_share": 1.0, "cpu_use": uses}),
        (
            Lease(cores=2, memory_mib=9, lease_type="advance", wanted_s=3.0),
            {"kind": "compute", "cpu_share": 1.0, "cores": 2, "memory_mib": 9, "lease": "advance",
             "wanted_s": 3.0},
        ),
        (Command(words=("true",)), {"command": ("true",)}),
        (Command(words=("true",), network=False), {"command": ("true",), "kind": "compute"}),
    ):  # fmt: skip
        record = replace(PLAIN, demand=demand).to_json()
        assert record == {**absent, **differs}
        assert list(record) == list(absent)


def test_what_a_demand_says_is_checked() -> None:
    for wrong in (
        lambda: Lease(cores=0),
        lambda: Lease(memory_mib=-1),
        lambda: Lease(lease_type="advance"),
        lambda: Lease(lease_type="immediate", wanted_s=1.0),
        Command,
    ):
        with pytest.raises(ValueError, match=r"VM|advance|word"):
            wrong()


def test_best_effort_is_a_wish_for_bandwidth_without_a_reservation() -> (
    None
):
    job = replace(PLAIN, bandwidth_bps=10)
    assert job.is_best_effort(0)
    assert not job.is_best_effort(5)
    assert not PLAIN.is_best_effort(0)
    assert not replace(job, demand=Compute()).is_best_effort(0)
    assert not replace(
        job, demand=Command(words=("true",), network=False)
    ).is_best_effort(0)
