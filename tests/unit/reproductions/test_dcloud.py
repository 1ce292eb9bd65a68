"""A small run of DCloud's evaluation against sums over its jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reproductions.configuration import RunConfiguration, Variant
from reproductions.extractors import DAY_METRICS, DAY_S
from testbed.schedulers.charging import request_price

SMALL = Variant(
    "dcloud/dcloud-day.yaml",
    "vc",
    (
        ("topology.fanout", "[2, 3, 4]"),
        ("workload.vms.mean", "5"),
        ("workload.per_hour", "3.0"),
    ),
)


def run_of(policy: str = "vc", **changed: str) -> RunConfiguration:
    keys = {"per_hour": "workload.per_hour", "bandwidth": "workload.bandwidth.mean",
            "oversubscription": "topology.oversubscription"}  # fmt: skip
    values = dict(SMALL.settings) | {
        keys[name]: value for name, value in changed.items()
    }
    variant = replace(SMALL, policy=policy, settings=tuple(values.items()))
    return RunConfiguration(variant, 5, DAY_METRICS)


@pytest.mark.parametrize(
    "policy", ["dcloud", "dcloud-ts", "dcloud-bs", "vc", "bl"]
)
def test_no_job_vanishes(policy: str) -> None:
    found = run_of(policy).run()
    ends = ("met", "late", "rejected", "killed", "unfinished")
    assert (
        sum(found[end] for end in ends)
        == found["jobs"]
        == len(run_of().experiment().jobs)
    )
    assert found["success"] == found["met"] / found["jobs"]
    assert 0 < found["vm_use_day"] <= found["vm_use"]
    assert found["vm_use_day"] <= 1
    assert 0 < found["link_use_day"] <= 1
    assert found["undisturbed"] <= found["success"]


def test_where_all_are_accepted_uses_are_sums_over_the_jobs() -> None:
    empty = run_of(per_hour="0.3")
    found = empty.run()
    jobs = empty.experiment().jobs
    assert found["met"] == len(jobs) > 3
    vm_s = sum(job.n_vms * job.duration_s for job in jobs)
    assert found["vm_use"] == pytest.approx(vm_s / (24 * 4 * DAY_S))
    day = sum(
        job.n_vms * min(job.duration_s, DAY_S - job.submit_s)
        for job in jobs
    )
    assert found["vm_use_day"] == pytest.approx(day / (24 * 4 * DAY_S))
    uplink_bits = float(empty.experiment().datacentre.nic_bps.sum()) * DAY_S
    exchanged = sum(
        job.n_vms
        * job.bandwidth_bps
        * min(job.duration_s, DAY_S - job.submit_s)
        for job in jobs
        if job.n_vms > 1
    )
    assert found["traffic_day"] == pytest.approx(exchanged / uplink_bits)
    assert found["traffic_day"] > found["link_use_day"]
    dollars = sum(
        request_price(
            j.n_vms,
            j.bandwidth_bps,
            j.duration_s,
            j.deadline_s,
            discounts=False,
        )
        for j in jobs
    )
    assert found["revenue"] == pytest.approx(dollars)


def test_a_busy_network_disturbs_best_effort_jobs_alone() -> None:
    busy = {"oversubscription": "[2, 8]", "bandwidth": "800 Mbit/s"}
    assert run_of("bl", **busy).run()["undisturbed"] < 0.9
    vc = run_of(**busy).run()
    assert vc["undisturbed"] == vc["success"] < 1


def test_best_effort_jobs_alone_exchange_what_reserved_ones_do() -> None:
    # At so few jobs nobody competes.
    reserved = run_of(per_hour="0.3").run()["traffic_day"]
    shared = run_of("bl", per_hour="0.3").run()["traffic_day"]
    assert shared == pytest.approx(reserved, rel=0.05)


@pytest.mark.slow
def test_equal_configurations_measure_the_same() -> None:
    timings = (
        "cpu_s",
        "allocation_mean_s",
        "allocation_p99_s",
        "allocation_max_s",
    )
    first, second = (
        {k: v for k, v in run_of("bl").run().items() if k not in timings}
        for _ in range(2)
    )
    assert first == second
