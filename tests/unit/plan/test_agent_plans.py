from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.demand import DemandCurve, Iperf3, Pattern, Transfer
from jobs.job_profile import linear_profile
from jobs.live.compute import ComputePlan
from jobs.live.iperf3 import Iperf3Plan
from jobs.live.transfer_plan import TransferPlan
from jobs.request import JobRequest
from jobs.wire import ideal_transfer_s, payload_bytes
from testbed.embedding.placement import Placement
from testbed.plan.agent_plans import agent_plans, volume_payload_bytes
from testbed.plan.network_plan import (
    TenantPlan,
    network_plan,
    scaled_bps,
    tenant_plan,
)
from testbed.spec.experiment import Scale
from topologies.tree import tree

CENTRE = tree([2, 2], [1_000_000_000] * 2, 4)
NETWORK = network_plan(CENTRE)


def tenant(n_vms: int, rate_bps: int = 100_000_000) -> TenantPlan:
    vms_on = tuple(
        (s, min(4, n_vms - 4 * s)) for s in range((n_vms + 3) // 4)
    )
    slots = tuple(
        NETWORK.slots_of_server[s][i] for s, n in vms_on for i in range(n)
    )
    placement = Placement(CENTRE.trees[0].root, vms_on)
    return tenant_plan(CENTRE, NETWORK, placement, slots, 1, "j", rate_bps)


patterns = st.sampled_from(["ring", "permutation", "all-to-all"])


@given(n=st.integers(2, 16), pattern=patterns, seed=st.integers(0, 99))
def test_what_is_sent_is_what_is_expected_vm_by_vm(
    n: int, pattern: str, seed: int
) -> None:
    job = JobRequest(
        "j", 0, n, 500_000_000, 3.0, demand=Transfer(pattern=pattern)
    )  # type: ignore[arg-type]
    plans = agent_plans(job, tenant(n), Scale(0.1, 1), seed)
    sent, expected = {}, {}
    for plan in plans:
        assert isinstance(plan, TransferPlan)
        sent |= {
            (plan.index, flow.peer): flow.size_bytes for flow in plan.sends
        }
        expected |= {
            (flow.peer, plan.index): flow.size_bytes
            for flow in plan.receives
        }
        assert sum(
            f.size_bytes for f in plan.sends
        ) == volume_payload_bytes(job, Scale(0.1, 1))
    assert sent == expected


@given(
    rate=st.floats(0.001, 1),
    faster=st.floats(0.1, 100),
    b=st.integers(10**7, 10**10),
    p=st.floats(1, 1000),
)
def test_a_job_of_p_seconds_at_b_lasts_p_over_the_time_scale_on_the_wire(
    rate: float, faster: float, b: int, p: float
) -> None:
    job = JobRequest("j", 0, 2, b, p)
    size = volume_payload_bytes(job, Scale(rate, faster))
    wall_s = ideal_transfer_s(size, max(1, round(b * rate)))
    # Beside its data a VM sends a frame of 66 bytes for each packet of six segments or more.
    least = 1 / (1 + 66 / (6 * 1514))
    off = 1e-3 + 1e4 / (b * rate * p / faster)
    assert least - off < wall_s * faster / p < 1 + off


def test_less_bandwidth_moves_the_same_and_its_acknowledgements() -> None:
    job = JobRequest("j", 0, 2, 30_000_000, 6.0)
    whole = payload_bytes(30_000_000 * 6)
    size = volume_payload_bytes(job, Scale())
    # Packets of 32 kB: 22 segments of 1,514 bytes, and 66 bytes back.
    assert size == whole * 22 * 1514 // (22 * 1514 + 66)
    assert volume_payload_bytes(job, Scale(), 6_000_000) == size
    # One by one every second of them is answered.
    alone = volume_payload_bytes(job, Scale(), offloads=False)
    assert alone == whole * 2 * 1514 // (2 * 1514 + 66)
    curve = DemandCurve(((1.0, 30_000_000),))
    paced = replace(job, demand=curve)
    assert volume_payload_bytes(paced, Scale()) == whole


def test_a_demand_curve_becomes_payload_rates_on_the_emulated_wire() -> (
    None
):
    curve = DemandCurve(((0.5, 151_400_000), (1.0, 0)), cpu_share=0.2)
    job = JobRequest("j", 0, 2, 151_400_000, 2.0, demand=curve)
    (first, _) = agent_plans(job, tenant(2), Scale(0.1, 1), 1)
    assert isinstance(first, TransferPlan)
    assert first.demand == ((0.5, 14_480_000), (1.0, 0))
    assert first.cpu_share == 0.2
    assert job.demand.ends_computing


def test_jobs_without_a_network_burn_cpu_for_their_time() -> None:
    alone = JobRequest(
        "j", 0, 1, 500_000_000, 4.0, demand=Transfer(cpu_share=0.5)
    )
    (plan,) = agent_plans(alone, tenant(1), Scale(1, 2), 1)
    assert plan == ComputePlan(0, 1.0, 0.5)


def test_a_rate_of_nothing_is_a_trickle_that_tc_can_pace() -> None:
    assert scaled_bps(0, 0.1) == 8_000
    assert scaled_bps(750_000_000, 0.1) == 75_000_000


@given(speedup=st.floats(0.01, 0.14), option=st.integers(0, 9))
def test_an_elastic_job_fills_its_option_for_as_long_as_its_profile_says(
    speedup: float, option: int
) -> None:
    b, p = 200_000_000, 40.0
    job = JobRequest(
        "j",
        0,
        4,
        b,
        p,
        demand=Transfer(profile=linear_profile(b, p, speedup)),
    )
    scale = Scale(0.1, 4)
    assert job.demand.profile is not None
    granted_bps, lasts_s = job.demand.profile.options[option]
    size = volume_payload_bytes(job, scale, granted_bps)
    assert ideal_transfer_s(size, granted_bps // 10) * 4 == pytest.approx(
        lasts_s, rel=8e-3
    )
    plans = agent_plans(job, tenant(4), scale, 1, granted_bps)
    assert {
        sum(f.size_bytes for f in p.sends)
        for p in plans
        if isinstance(p, TransferPlan)
    } == {size}
    alone = agent_plans(
        replace(job, n_vms=1), tenant(1), scale, 1, granted_bps
    )[0]
    assert isinstance(alone, ComputePlan)
    assert alone.cpu_s / alone.share * 4 == pytest.approx(lasts_s)


def test_without_a_reservation_an_elastic_job_moves_what_it_moves_at_its_own_bandwidth() -> (
    None
):
    job = JobRequest(
        "j",
        0,
        4,
        10**8,
        40.0,
        demand=Transfer(profile=linear_profile(10**8, 40.0, 0.1)),
    )
    plain = replace(job, demand=Transfer())
    assert volume_payload_bytes(job, Scale()) == volume_payload_bytes(
        plain, Scale()
    )


@given(
    n=st.integers(2, 9),
    pattern=patterns,
    seconds=st.floats(0.1, 99.0),
    time=st.floats(0.5, 9),
)
def test_iperf3_runs_where_flows_would_for_whole_seconds(
    n: int, pattern: Pattern, seconds: float, time: float
) -> None:
    job = JobRequest(
        "j", 0, n, 500_000_000, seconds, demand=Iperf3(pattern)
    )
    plans = agent_plans(job, tenant(n), Scale(0.1, time), 1)
    sends, receives = set(), set()
    for plan in plans:
        assert isinstance(plan, Iperf3Plan)
        assert plan.seconds - 1 < seconds / time <= plan.seconds + 1e-5
        sends |= {(plan.index, peer) for peer, _ in plan.sends}
        receives |= {(peer, plan.index) for peer in plan.receives}
        assert all(ip == plans[peer].ip for peer, ip in plan.sends)  # type: ignore[attr-defined]
    flows = agent_plans(
        replace(job, demand=Transfer(pattern)),
        tenant(n),
        Scale(0.1, time),
        1,
    )
    assert (
        sends
        == receives
        == {(p.index, f.peer) for p in flows for f in p.sends}
    )  # type: ignore[attr-defined]


@pytest.mark.parametrize("granted_bps", [200_000_000, 50_000_000])
def test_a_transfer_of_a_single_vm_takes_as_long_as_it_would_send(
    granted_bps: int,
) -> None:
    lone = JobRequest("j", 0, 1, 200_000_000, 12.0)
    (plan,) = agent_plans(lone, tenant(1), Scale(0.1, 2), 1, granted_bps)
    assert isinstance(plan, ComputePlan)
    estimate_s = 12.0 * 200_000_000 / granted_bps
    assert plan.cpu_s / plan.share * 2 == pytest.approx(estimate_s)
