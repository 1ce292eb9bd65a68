"""Plans of a placed job's agents, with volumes on the emulated wire. Pure.

Scales (design, "Scales"): ``scale.rate`` multiplies bandwidths, ``scale.time``
divides times; volumes follow, so that a job of p seconds at b lasts p /
scale.time wall seconds at b·scale.rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from jobs.demand import Command, DemandCurve, Iperf3, Program
from jobs.live.agent_protocol import AgentReport, Plan
from jobs.live.command import CommandPlan
from jobs.live.compute import ComputePlan
from jobs.live.iperf3 import Iperf3Plan
from jobs.live.patterns import VmTransfer as Flow
from jobs.live.patterns import transfers
from jobs.live.program_plan import (
    FOLDER,
    ProgramPlan,
    launcher_words,
    ranks_in,
)
from jobs.live.transfer_plan import Incoming, Outgoing, TransferPlan
from jobs.request import JobRequest
from jobs.wire import (
    SEGMENT_BYTES,
    beside_acknowledgements,
    payload_bytes,
    payload_rate_bps,
)
from testbed.plan.batch_lines import bytes_in
from testbed.plan.limits import gso_bytes
from testbed.plan.network_plan import TenantPlan, scaled_bps
from testbed.spec.experiment import Scale

AGENT_PORT = 5001
TIMEOUT_FACTOR = 5.0
TIMEOUT_FLOOR_S = 60.0
IDLE_SHARE = 0.01
"""The CPU share of a transfer that has nobody to send to."""
ROUNDING_S = 1e-6
WHOLE_CORE = 0.99
"""The share of a core from which a process counts as using all of it."""
ACKNOWLEDGED_BYTES = 2 * SEGMENT_BYTES
"""Payload that TCP acknowledges at a time where segments arrive one by one
(RFC 1122, 4.2.3.2).
"""


def volume_payload_bytes(
    job: JobRequest,
    scale: Scale,
    granted_bps: int = 0,
    *,
    offloads: bool = True,
) -> int:
    """Payload that one VM of the job sends on the emulated wire.

    ``granted_bps`` is 0 for a job without a reservation. In every pattern a VM
    receives as much as it sends: its p·b bits on the wire are its data and the
    acknowledgements of what it receives. A demand curve's volume is data alone,
    as its own pace leaves room for acknowledgements. ``offloads``: VMs leave
    segmentation to the switch, so that packets arrive in the size in which they
    were sent.
    """
    demand = job.demand
    bits = demand.volume_bits(job, granted_bps)
    size_bytes = payload_bytes(bits * scale.rate / scale.time)
    if demand.pauses:
        return size_bytes
    # Packets are sized at b, so that less bandwidth does not change the volume;
    # only those of an elastic job are sized at what it was granted.
    rate_bps = job.bandwidth_bps
    if demand.profile is not None and granted_bps > 0:
        rate_bps = granted_bps
    packet_bytes = gso_bytes(scaled_bps(rate_bps, scale.rate), size_bytes)
    if not offloads:
        packet_bytes = ACKNOWLEDGED_BYTES
    return beside_acknowledgements(size_bytes, packet_bytes)


def with_volume(
    tenant: TenantPlan,
    job: JobRequest,
    scale: Scale,
    granted_bps: int,
    for_s: float = 0.0,
    *,
    offloads: bool = True,
) -> TenantPlan:
    """The tenant with the volume that each VM sends, at least what its rate
    carries in ``for_s`` seconds: packets are sized for a whole job, of which a
    run may play a piece.

    ``offloads``: VMs leave segmentation to the switch.
    """
    job_bytes = volume_payload_bytes(
        job, scale, granted_bps, offloads=offloads
    )
    least_bytes = bytes_in(tenant.rate_bps, for_s)
    return replace(tenant, volume_bytes=max(job_bytes, least_bytes))


def time_limit_s(
    job: JobRequest,
    rate_bps: int,
    scale: Scale,
    least_s: float | None = None,
) -> float:
    """The wall time after which a job at ``rate_bps`` is given up.

    Only time on its nodes counts. The limit is at least ``least_s``.
    """
    # With less bandwidth than it asks a transfer takes longer in proportion
    # (p·b/b').
    slower = 1.0
    if job.demand.network:
        slower = max(1.0, job.bandwidth_bps / max(1, rate_bps))
    expected_s = max(job.duration_s, job.true_s) * slower / scale.time
    return max(TIMEOUT_FLOOR_S, TIMEOUT_FACTOR * expected_s, least_s or 0.0)


def _burners(
    job: JobRequest, tenant: TenantPlan, scale: Scale, granted_bps: int
) -> tuple[Plan, ...]:
    """Compute plans: a core is ``scale.cpu`` of a processor of this machine.

    A VM of n cores uses n times as much, at most one processor. A process that
    uses a whole core is not paced: its node's quota and the node's other VMs
    limit it. A transfer of a single VM has nobody to send to: for as long as it
    would send it uses its ``cpu_share``, or next to nothing.
    """
    demand = job.demand
    true_s = job.true_s
    if granted_bps > 0:
        true_s = demand.duration_s(job, granted_bps)
    core_share = demand.cpu_share or 1.0
    uses = job.cpu_uses
    if demand.network:
        core_share = demand.cpu_share or IDLE_SHARE
        uses = (1.0,) * job.n_vms
    plans = []
    for vm, use in zip(tenant.vms, uses, strict=True):
        share = min(1.0, core_share * use * scale.cpu * demand.cores)
        cpu_s = share * true_s / scale.time
        pace = 1.0
        if core_share * use < WHOLE_CORE:
            pace = share
        plans.append(ComputePlan(vm.index, cpu_s=cpu_s, share=pace))
    return tuple(plans)


def agent_plans(
    job: JobRequest,
    tenant: TenantPlan,
    scale: Scale,
    seed: int,
    granted_bps: int = 0,
    *,
    offloads: bool = True,
) -> tuple[Plan, ...]:
    """The plans of a job's agents, one a VM, by index.

    ``granted_bps`` is what is reserved for each VM, in the experiment's units:
    0 where nothing is. ``offloads``: VMs leave segmentation to the switch.
    """
    demand = job.demand
    if isinstance(demand, Program):
        return _programs(job, demand, tenant)
    if isinstance(demand, Command):
        return _commands(job, demand, tenant)
    if not demand.network or job.n_vms == 1:
        return _burners(job, tenant, scale, granted_bps)
    # Seeded by the job, so that one more job changes no other job's pairs.
    stream = Random(f"{seed}/{job.id}")  # noqa: S311 reproducible, not secret
    size_bytes = volume_payload_bytes(
        job, scale, granted_bps, offloads=offloads
    )
    flows = transfers(demand.pattern, job.n_vms, size_bytes, stream)
    if isinstance(demand, Iperf3):
        return _measurements(job, tenant, scale, flows)
    return _transfers(job, tenant, scale, flows)


def _transfers(
    job: JobRequest, tenant: TenantPlan, scale: Scale, flows: Sequence[Flow]
) -> tuple[Plan, ...]:
    """Plans of transfers, paced where the job has a demand curve."""
    demand = job.demand
    curve: tuple[tuple[float, int], ...] = ()
    cpu_share = 0.0
    if isinstance(demand, DemandCurve):
        curve = _paced_curve(demand, scale)
        cpu_share = min(1.0, demand.cpu_share * scale.cpu)
    plans = []
    for vm in tenant.vms:
        plan = TransferPlan(
            index=vm.index,
            ip=str(vm.ip),
            port=AGENT_PORT,
            sends=_sends(tenant, vm.index, flows),
            receives=_receives(vm.index, flows),
            demand=curve,
            cpu_share=cpu_share,
            at_once=demand.at_once,
            rate_bps=payload_bps(tenant),
        )
        plans.append(plan)
    return tuple(plans)


def payload_bps(tenant: TenantPlan) -> int:
    """The payload that each VM of a tenant may send, in bit/s."""
    return 8 * payload_bytes(tenant.cap_bps)


def _paced_curve(
    demand: DemandCurve, scale: Scale
) -> tuple[tuple[float, int], ...]:
    """The demand curve as payload rates on the emulated wire, in bit/s."""
    curve = []
    for progress, bandwidth_bps in demand.steps:
        rate_bps = 0
        # A step without demand sends nothing; scaled_bps would let it trickle.
        if bandwidth_bps:
            rate_bps = payload_rate_bps(
                scaled_bps(bandwidth_bps, scale.rate)
            )
        curve.append((progress, rate_bps))
    return tuple(curve)


def _sends(
    tenant: TenantPlan, index: int, flows: Sequence[Flow]
) -> tuple[Outgoing, ...]:
    return tuple(
        Outgoing(
            flow.receiver,
            str(tenant.vms[flow.receiver].ip),
            AGENT_PORT,
            flow.size_bytes,
        )
        for flow in flows
        if flow.sender == index
    )


def _receives(index: int, flows: Sequence[Flow]) -> tuple[Incoming, ...]:
    return tuple(
        Incoming(flow.sender, flow.size_bytes)
        for flow in flows
        if flow.receiver == index
    )


def _measurements(
    job: JobRequest, tenant: TenantPlan, scale: Scale, flows: Sequence[Flow]
) -> tuple[Plan, ...]:
    """Plans of iperf3 in place of the flows.

    iperf3 counts whole seconds: the job's time is rounded up to them.
    """
    # Less a little, so that 60 s stay 60 where the division gave 60.0000001.
    seconds = max(1, math.ceil(job.true_s / scale.time - ROUNDING_S))
    plans = []
    for vm in tenant.vms:
        sends = _sends(tenant, vm.index, flows)
        receives = _receives(vm.index, flows)
        plan = Iperf3Plan(
            index=vm.index,
            ip=str(vm.ip),
            port=AGENT_PORT,
            seconds=seconds,
            sends=tuple((outgoing.peer, outgoing.ip) for outgoing in sends),
            receives=tuple(incoming.peer for incoming in receives),
        )
        plans.append(plan)
    return tuple(plans)


def _commands(
    job: JobRequest, demand: Command, tenant: TenantPlan
) -> tuple[Plan, ...]:
    """Plans of the application's own command in every VM.

    Its environment tells it its rank, its peers and its bandwidth.
    """
    peers = _peers(tenant)
    environment = _variables(job, tenant)
    plans = []
    for vm in tenant.vms:
        plan = CommandPlan(
            index=vm.index,
            ip=str(vm.ip),
            peers=peers,
            argv=demand.words,
            environment=environment,
        )
        plans.append(plan)
    return tuple(plans)


def _peers(tenant: TenantPlan) -> tuple[str, ...]:
    return tuple(str(vm.ip) for vm in tenant.vms)


def _variables(
    job: JobRequest, tenant: TenantPlan
) -> tuple[tuple[str, str], ...]:
    """Environment variables that are the same in all VMs of a job."""
    return (
        ("HOSENET_JOB", job.id),
        ("HOSENET_BANDWIDTH_BPS", str(tenant.rate_bps)),
    )


def _programs(
    job: JobRequest, demand: Program, tenant: TenantPlan
) -> tuple[Plan, ...]:
    """Plans of a launched program; the first VM runs its launcher."""
    # One path in all VMs, each of which has a /tmp of its own: a launcher starts
    # ranks below the path of its own working folder.
    folder = f"/tmp/{job.id}"  # noqa: S108 - in the VM
    counts = [ranks_in(demand, vm.index) for vm in tenant.vms]
    peers = _peers(tenant)
    environment = _variables(job, tenant)
    plans = []
    for vm in tenant.vms:
        launcher: tuple[str, ...] = ()
        if vm.index == 0:
            launcher = launcher_words(
                demand, job.n_vms, f"{folder}/{FOLDER}"
            )
        plan = ProgramPlan(
            index=vm.index,
            ip=str(vm.ip),
            peers=peers,
            argv=demand.words,
            environment=environment,
            folder=folder,
            launch=demand.launch,
            ranks=counts[vm.index],
            first_rank=sum(counts[: vm.index]),
            total=sum(counts),
            launcher=launcher,
            files=demand.files,
            prepare=demand.prepare,
            expected=demand.expected,
        )
        plans.append(plan)
    return tuple(plans)


def remaining(
    plans: Sequence[Plan], reports: Mapping[int, AgentReport]
) -> tuple[Plan, ...]:
    """Plans for what is left of a stopped job, by VM, to be resumed elsewhere.

    A job that migrates is ended where it is, each agent reporting what it has
    done: what a receiver has counted is not sent again, CPU time that was used
    is not used again. A VM without a report has done nothing that counts.
    Addresses are still the old ones.
    """
    arrived_bytes = {}
    for index, report in reports.items():
        for flow in report.received:
            arrived_bytes[flow.peer, index] = flow.size_bytes
    return tuple(
        plan.remaining(reports.get(plan.index), arrived_bytes)
        for plan in plans
    )
