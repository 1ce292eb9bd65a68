"""Parallel jobs as columns: load, VMs, CPU use, bandwidth, and the requests made of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.demand import Compute
from jobs.request import JobRequest
from jobs.workload.parallel_jobs import (
    CAP_BPS,
    HoseDemand,
    NoSpan,
    ParallelJobs,
    Requests,
    in_order,
)
from jobs.workload.swf import jobs_of, read_swf
from tests.support.examples import examples
from tests.unit.workload.traces import KTH, NASA, trace


def jobs(*rows: tuple[float, int, float]) -> ParallelJobs:
    submit_s, processes, run_s = (
        np.array(column) for column in zip(*rows, strict=True)
    )
    return in_order(
        submit_s.astype(float), processes, run_s.astype(float), len(rows)
    )


ROWS = st.lists(
    st.tuples(st.floats(0, 1e6), st.integers(1, 64), st.floats(1, 1e5)),
    min_size=2,
    max_size=20,
)


@examples(50)
@given(ROWS, st.floats(0.01, 10), st.integers(1, 500))
def test_a_load_is_met_exactly_and_nothing_but_arrivals_changes(
    rows: list[tuple[float, int, float]], load: float, slots: int
) -> None:
    before = jobs(*rows)
    if before.span_s < 1e-3:
        return
    after = before.at_load(load, slots)
    work = sum(n * t for _, n, t in rows)
    assert work / (
        slots * (after.submit_s[-1] - after.submit_s[0])
    ) == pytest.approx(load)
    assert after.submit_s[0] == 0.0
    assert (np.diff(after.submit_s) >= 0).all()
    assert after.run_s.tolist() == before.run_s.tolist()
    assert after.processes.tolist() == before.processes.tolist()


def test_jobs_that_are_submitted_at_once_have_no_load() -> None:
    with pytest.raises(NoSpan):
        jobs((5, 1, 10), (5, 2, 10)).load(4)


def test_processes_are_put_into_vms_rounded_up() -> None:
    assert jobs((0, 1, 9), (1, 8, 9), (2, 9, 9)).in_vms(
        8
    ).processes.tolist() == [1, 1, 2]


def test_requests_by_row_by_slice_and_in_order_are_the_same() -> None:
    many = jobs(
        *((float(k), k % 7 + 1, 10.0 + k) for k in range(40))
    ).with_cpu_use(0.4, 1, 3)
    requests = Requests(many)
    assert (
        list(requests)
        == [requests[k] for k in range(40)]
        == list(requests[:])
    )
    assert requests[-1] == requests[39]
    with pytest.raises(IndexError):
        requests[40]
    assert sorted(job.id for job in requests) == [
        job.id for job in requests
    ]


def test_a_request_has_what_the_columns_say() -> None:
    assert Requests(jobs((3, 2, 60)).overestimated(1.0, 1))[
        0
    ] == JobRequest(
        "job-00001", 3.0, 2, 0, 60.0, demand=Compute(), estimate_s=60.0
    )


def test_cpu_use_is_all_of_a_node_for_one_process_and_uniform_for_several() -> (
    None
):
    many = jobs(
        *((float(k), k % 4 + 1, 10.0) for k in range(4000))
    ).with_cpu_use(0.4, 1.0, 1)
    uses = [(job.n_vms, job.cpu_uses) for job in Requests(many)]
    assert {use for n, each in uses if n == 1 for use in each} == {1.0}
    several = np.array([use for n, each in uses if n > 1 for use in each])
    assert several.min() >= 0.4
    assert several.max() <= 1.0
    assert several.mean() == pytest.approx(0.7, abs=0.01)
    assert several.var() == pytest.approx(0.6**2 / 12, rel=0.05)


def test_the_stated_cpu_use_can_be_wrong_or_absent() -> None:
    true = jobs(*((float(k), 3, 10.0) for k in range(500))).with_cpu_use(
        0.4, 1.0, 1
    )
    for job in Requests(true.with_cpu_error(0.1, 2)):
        assert isinstance(job.demand.cpu_estimate, tuple)
        for use, told in zip(
            job.cpu_uses, job.demand.cpu_estimate, strict=True
        ):
            assert abs(use - told) <= 0.1001
            assert 0 < told <= 1
    assert {
        job.demand.cpu_estimate
        for job in Requests(true.with_cpu_stated(0.7))
    } == {(0.7,) * 3}
    assert [
        job.demand.cpu_use for job in Requests(true.with_cpu_error(0.1, 2))
    ] == [job.demand.cpu_use for job in Requests(true)]


@examples(50)
@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=30),
    st.integers(0, 5),
)
def test_bandwidth_stays_between_a_tenth_of_the_greatest_and_the_greatest(
    vms: list[int], seed: int
) -> None:
    for cap in (None, CAP_BPS):
        drawn = HoseDemand(10**9, 54, cap).draw(
            seed, np.array(vms, dtype=np.int32)
        )
        for n, b in zip(vms, drawn.tolist(), strict=True):
            most = min(10**9 * 54 / n, cap or float("inf"))
            assert most / 10 - 1 <= b <= most + 1


def test_without_a_cap_a_job_asks_for_no_more_than_a_link_may_have() -> (
    None
):
    vms = np.array([1, 2], dtype=np.int32)
    greatest = HoseDemand(10**15, 900_000, None)
    assert greatest.draw(1, vms).tolist() == [10**15, 10**15]


def test_the_printed_rule_is_always_the_greatest() -> None:
    """max(min(Min_B, x), Max_B) of AdaBa's Section 5.2, for any x."""
    vms = np.array([1, 54, 100], dtype=np.int32)
    drawn = (
        HoseDemand(10**9, 54, None, rule="printed").draw(1, vms).tolist()
    )
    for x in (-1.0, 0.0, 1e8, 1e12):
        printed = [
            max(min(54e9 / n / 10, x), 54e9 / n) for n in vms.tolist()
        ]
        assert drawn == [round(b) for b in printed]


@pytest.mark.parametrize(("name", "table_1"), [(KTH, 251e6), (NASA, 247e6)])
def test_the_cap_brings_the_mean_to_table_1_and_without_it_it_is_forty_times_that(
    name: str, table_1: float
) -> None:
    vms = jobs_of(read_swf(trace(name), first=1000)).jobs.processes
    capped = [
        HoseDemand(10**9, 54).draw(seed, vms).mean() for seed in range(20)
    ]
    # Twice the scatter of means of 1,000 draws, and half of the table's last digit.
    assert abs(np.mean(capped) - table_1) < 2 * np.std(capped) + 0.5e6
    assert 10e9 < HoseDemand(10**9, 54, None).draw(1, vms).mean() < 12.5e9
