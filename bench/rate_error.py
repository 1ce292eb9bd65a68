"""Error of the rate that reserved transfers reach, in its parts, by the
kernel's counters of the VMs' own caps.

A VM that sends and receives has in its cap its own data with their headers,
and the acknowledgements of what it receives; one that only sends has no
acknowledgements in it. *filled* is what the cap let through over what its rate
allows; *acknowledgements* is what passed beside data, as a share of them. In
the same VMs iperf3 says how much arrives: its ratio is the payload that the
rate carries over that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from bench.live_network import class_count, network, play, spread
from bench.samples import Result
from jobs.demand import Iperf3
from jobs.live.agent_protocol import AgentReport, Plan
from jobs.live.transfer_plan import TransferPlan
from jobs.request import TRANSFER, JobRequest
from jobs.wire import payload_rate_bps, wire_bits
from testbed.backends.emu.emulation import Emulation
from testbed.plan.agent_plans import agent_plans, with_volume
from testbed.plan.limits import VM_MINOR
from testbed.plan.network_plan import TenantPlan
from testbed.spec.experiment import Scale
from topologies.tree import tree

LINK_BPS = 40_000_000
RATES_MBPS = (6, 12, 30)
DURATIONS_S: Sequence[float] = (6.0, 24.0)
QUICK_S = (6.0,)
VMS = 4
SCALE = Scale()
WITHIN = 0.005
ONE_WAY = "one way"
WAYS = {ONE_WAY: TRANSFER, "a ring": TRANSFER, "iperf3, a ring": Iperf3()}


def run(quick: bool) -> list[Result]:
    """Each way at all rates, for all durations."""
    durations_s = DURATIONS_S
    if quick:
        durations_s = QUICK_S
    results = []
    cases = product(RATES_MBPS, durations_s, WAYS)
    with network(tree([4, 1], [LINK_BPS, LINK_BPS], 1)) as emulation:
        for number, (mbps, duration_s, way) in enumerate(cases, 1):
            job = JobRequest(
                id=f"rate{number}",
                submit_s=0.0,
                n_vms=VMS,
                bandwidth_bps=mbps * 1_000_000,
                duration_s=duration_s,
                demand=WAYS[way],
            )
            results.append(_measured(emulation, number, job, way))
    return results


def _measured(
    emulation: Emulation, number: int, job: JobRequest, way: str
) -> Result:
    tenant = spread(emulation, number, job.bandwidth_bps, VMS)
    tenant = with_volume(tenant, job, SCALE, job.bandwidth_bps)
    plans = agent_plans(
        job=job,
        tenant=tenant,
        scale=SCALE,
        seed=number,
        granted_bps=job.bandwidth_bps,
    )
    if way == ONE_WAY:
        plans = _every_second(plans)
    # A new tenant has new classes: their counters begin at nothing.
    emulation.admit(tenant)
    timeout_s = 5 * job.duration_s + 30
    measured_s, reports = play(emulation, tenant, plans, timeout_s)
    ratio = measured_s / job.duration_s
    extra = {}
    if isinstance(job.demand, Iperf3):
        # iperf3 takes its time at any rate: what arrives is its measure.
        payload_bps = payload_rate_bps(job.bandwidth_bps)
        ratio = payload_bps / _reported_bps(reports)
    else:
        extra["late_s"] = measured_s - job.duration_s
        extra |= _parts(tenant, plans, measured_s)
    emulation.dismiss(tenant)
    return _row(job, way, ratio, extra)


def _row(
    job: JobRequest, way: str, ratio: float, extra: dict[str, float]
) -> Result:
    rate_mbps = job.bandwidth_bps / 1e6
    return Result(
        f"{way}, {rate_mbps:g} Mbit/s, {job.duration_s:g} s",
        "ratio",
        samples=(ratio,),
        target="within 0.5 % of 1",
        meets=abs(ratio - 1) <= WITHIN,
        extra=extra,
    )


def _reported_bps(reports: Sequence[AgentReport]) -> float:
    """The least that a VM's iperf3 says to have received."""
    # A ring is as fast as its slowest VM.
    least = []
    for report in reports:
        for flow in report.received:
            least.append(flow.reported_bps or 0.0)
    return min(least)


def _every_second(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """The ring's flows from VMs of even number, the others left out."""
    # A VM then either sends or receives: no acknowledgements in its cap.
    kept: list[Plan] = []
    for plan in plans:
        if not isinstance(plan, TransferPlan):
            continue
        if plan.index % 2:
            kept.append(replace(plan, sends=()))
        else:
            kept.append(replace(plan, receives=()))
    return tuple(kept)


def _size_bytes(plan: Plan) -> int:
    if not isinstance(plan, TransferPlan):
        return 0
    return sum(order.size_bytes for order in plan.sends)


def _parts(
    tenant: TenantPlan, plans: Sequence[Plan], measured_s: float
) -> dict[str, float]:
    """The greatest of the senders' caps: filled, and beside their data."""
    filled = []
    beside = []
    packets = []
    for vm, plan in zip(tenant.vms, plans, strict=True):
        size_bytes = _size_bytes(plan)
        if size_bytes:
            counted = class_count("eth0", VM_MINOR, vm.slot.netns)
            sent_bits = 8 * counted.sent_bytes
            filled.append(sent_bits / measured_s / tenant.rate_bps)
            beside.append(sent_bits / wire_bits(size_bytes) - 1.0)
            packets.append(counted.packets)
    return {
        "filled": max(filled),
        "acknowledgements": max(beside),
        "packets": max(packets),
    }
