"""Plans of a placed job's agents, with volumes on the emulated wire. Pure.

Scales (design, "Scales"): ``scale_rate`` divides bandwidths, ``scale_time`` compresses time;
volumes follow, so that a job of p seconds at b lasts p / scale_time wall seconds at b·scale_rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from jobs.demand import Command, DemandCurve, Iperf3
from jobs.live.agent_protocol import AgentReport, Plan
from jobs.live.command import CommandPlan
from jobs.live.compute import ComputePlan
from jobs.live.iperf3 import Iperf3Plan
from jobs.live.patterns import Transfer as Flow
from jobs.live.patterns import transfers
from jobs.live.transfer_plan import Incoming, Outgoing, TransferPlan
from jobs.request import JobRequest
from jobs.wire import payload_bytes, payload_rate_bps
from testbed.plan.batch_lines import bytes_in
from testbed.plan.network_plan import TenantPlan, scaled_bps
from testbed.spec.experiment import Scale

AGENT_PORT = 5001
TIMEOUT_FACTOR = 5.0
TIMEOUT_FLOOR_S = 60.0
IDLE_SHARE = 0.01
ROUNDING_S = 1e-6
ALL_OF_IT = 0.99


def volume_payload_bytes(job: JobRequest, scale: Scale, granted_bps: int = 0) -> int:
    """Payload that one VM of the job sends on the emulated wire; 0: nothing is reserved for it."""
    return payload_bytes(job.demand.volume_bits(job, granted_bps) * scale.rate / scale.time)


def sending(
    tenant: TenantPlan, job: JobRequest, scale: Scale, granted_bps: int, for_s: float = 0.0
) -> TenantPlan:
    """The tenant with what each of its VMs is going to send; at least for ``for_s`` on the wire."""
    volume_bytes = volume_payload_bytes(job, scale, granted_bps)
    return replace(tenant, volume_bytes=max(volume_bytes, bytes_in(tenant.rate_bps, for_s)))


def time_limit_s(
    job: JobRequest, rate_bps: int, scale: Scale, least_s: float | None = None
) -> float:
    """The wall time on its nodes after which a job at ``rate_bps`` is given up; ``least_s`` at
    least.
    """
    slower = max(1.0, job.bandwidth_bps / max(1, rate_bps)) if job.demand.network else 1.0
    true_s = max(job.duration_s, job.true_s)
    limit_s = max(TIMEOUT_FLOOR_S, TIMEOUT_FACTOR * true_s * slower / scale.time)
    return limit_s if least_s is None else max(least_s, limit_s)


def _burners(
    job: JobRequest, tenant: TenantPlan, scale: Scale, granted_bps: int
) -> tuple[Plan, ...]:
    """Compute plans: each VM uses ``scale.cpu`` of one of this machine's processors a core.

    A VM of several cores burns as many times as much, one processor of this machine's at most.
    A process that uses all of its processor is not paced: its node's quota is what it gets, and
    the node's other VMs make the difference. Jobs of a single VM without CPU work sleep.
    """
    demand, true_s = job.demand, job.true_s
    if demand.profile is not None and granted_bps > 0:
        true_s = demand.duration_s(job, granted_bps)
    own = demand.cpu_share or (IDLE_SHARE if demand.network else 1.0)
    uses = (1.0,) * job.n_vms if demand.network else job.cpu_uses
    plans = []
    for vm, use in zip(tenant.vms, uses, strict=True):
        share = min(1.0, own * use * scale.cpu * demand.cores)
        paced = share if own * use < ALL_OF_IT else 1.0
        cpu_s = share * true_s / scale.time
        plans.append(ComputePlan(vm.index, cpu_s, paced))
    return tuple(plans)


def agent_plans(
    job: JobRequest, tenant: TenantPlan, scale: Scale, seed: int, granted_bps: int = 0
) -> tuple[Plan, ...]:
    """One plan a VM, by index. ``granted_bps`` is what is reserved for each, in the experiment's
    units: 0 where nothing is.
    """
    demand = job.demand
    if isinstance(demand, Command):
        return _commands(job, demand, tenant)
    if not demand.network or job.n_vms == 1:
        return _burners(job, tenant, scale, granted_bps)
    stream = Random(f"{seed}/{job.id}")  # noqa: S311 reproducible, not secret
    size_bytes = volume_payload_bytes(job, scale, granted_bps)
    flows = transfers(demand.pattern, job.n_vms, size_bytes, stream)
    if isinstance(demand, Iperf3):
        return _measurements(job, tenant, scale, flows)
    curve: tuple[tuple[float, int], ...] = ()
    if isinstance(demand, DemandCurve):
        curve = tuple(
            (x_end, payload_rate_bps(scaled_bps(bps, scale.rate)) if bps else 0)
            for x_end, bps in demand.steps
        )
    return tuple(
        TransferPlan(
            index=vm.index,
            ip=str(vm.ip),
            port=AGENT_PORT,
            sends=_sends(tenant, vm.index, flows),
            receives=_receives(vm.index, flows),
            demand=curve,
            cpu_share=min(1.0, demand.cpu_share * scale.cpu) if curve else 0.0,
        )
        for vm in tenant.vms
    )


def _sends(tenant: TenantPlan, index: int, flows: Sequence[Flow]) -> tuple[Outgoing, ...]:
    return tuple(
        Outgoing(f.receiver, str(tenant.vms[f.receiver].ip), AGENT_PORT, f.size_bytes)
        for f in flows
        if f.sender == index
    )


def _receives(index: int, flows: Sequence[Flow]) -> tuple[Incoming, ...]:
    return tuple(Incoming(f.sender, f.size_bytes) for f in flows if f.receiver == index)


def _measurements(
    job: JobRequest, tenant: TenantPlan, scale: Scale, flows: Sequence[Flow]
) -> tuple[Plan, ...]:
    """iperf3 in place of the flows, for the job's time rounded up to iperf3's whole seconds."""
    seconds = max(1, math.ceil(job.true_s / scale.time - ROUNDING_S))
    return tuple(
        Iperf3Plan(
            index=vm.index,
            ip=str(vm.ip),
            port=AGENT_PORT,
            seconds=seconds,
            sends=tuple((order.peer, order.ip) for order in _sends(tenant, vm.index, flows)),
            receives=tuple(flow.peer for flow in _receives(vm.index, flows)),
        )
        for vm in tenant.vms
    )


def _commands(job: JobRequest, demand: Command, tenant: TenantPlan) -> tuple[Plan, ...]:
    """The application's own command in every VM; it has its rank and peers by its environment."""
    peers = tuple(str(vm.ip) for vm in tenant.vms)
    environment = (("HOSENET_JOB", job.id), ("HOSENET_BANDWIDTH_BPS", str(tenant.rate_bps)))
    return tuple(
        CommandPlan(vm.index, str(vm.ip), peers, demand.words, environment) for vm in tenant.vms
    )


def remaining(plans: Sequence[Plan], reports: Mapping[int, AgentReport]) -> tuple[Plan, ...]:
    """The rest of a job that was stopped, for agents that resume it elsewhere, by VM.

    A job that migrates is ended where it is, each agent reporting what it has done: what a
    receiver has counted is not sent again, CPU time that was used is not used again. A VM without a
    report has done nothing that counts. Addresses are still the old ones.
    """
    arrived = {
        (flow.peer, index): flow.size_bytes
        for index, report in reports.items()
        for flow in report.received
    }
    return tuple(plan.remaining(reports.get(plan.index), arrived) for plan in plans)
