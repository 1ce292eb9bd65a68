"""A small cell of DCloud's evaluation against sums over its jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reproductions.dcloud.cell import DCloudCell
from reproductions.dcloud.meter import DAY_S
from testbed.schedulers.charging import no_discount, request_price

SMALL = DCloudCell("vc", 5, fanout=(2, 3, 4), vms=5.0, per_hour=3.0, hours=24.0)
EMPTY = replace(SMALL, per_hour=0.3)


@pytest.mark.parametrize("policy", ["dcloud", "dcloud-ts", "dcloud-bs", "vc", "bl"])
def test_no_job_vanishes(policy: str) -> None:
    found = replace(SMALL, policy=policy).run()
    ends = ("met", "late", "rejected", "killed", "unfinished")
    assert sum(found[end] for end in ends) == found["jobs"] == len(SMALL.requests())
    assert found["success"] == found["met"] / found["jobs"]
    assert 0 < found["vm_use_day"] <= found["vm_use"]
    assert found["vm_use_day"] <= 1
    assert 0 < found["link_use_day"] <= 1
    assert found["undisturbed"] <= found["success"]


def test_where_all_are_accepted_uses_are_sums_over_the_jobs() -> None:
    found = EMPTY.run()
    jobs = EMPTY.requests()
    assert found["met"] == len(jobs) > 3
    vm_s = sum(job.n_vms * job.duration_s for job in jobs)
    assert found["vm_use"] == pytest.approx(vm_s / (24 * 4 * DAY_S))
    day = sum(job.n_vms * min(job.duration_s, DAY_S - job.submit_s) for job in jobs)
    assert found["vm_use_day"] == pytest.approx(day / (24 * 4 * DAY_S))
    dollars = sum(
        request_price(j.n_vms, j.bandwidth_bps, j.duration_s, j.deadline_s, discount=no_discount)
        for j in jobs
    )
    assert found["revenue"] == pytest.approx(dollars)


def test_a_busy_network_disturbs_best_effort_jobs_alone() -> None:
    busy = replace(SMALL, oversubscription=(8.0, 2.0), bandwidth_bps=800e6)
    assert replace(busy, policy="bl").run()["undisturbed"] < 0.9
    vc = busy.run()
    assert vc["undisturbed"] == vc["success"] < 1


def test_the_same_cell_measures_the_same() -> None:
    cell = replace(SMALL, policy="bl")
    timings = ("cpu_s", "allocation_mean_s", "allocation_p99_s", "allocation_max_s")
    first, second = ({k: v for k, v in cell.run().items() if k not in timings} for _ in range(2))
    assert first == second
