"""A placed job as the plans of its agents: who sends how much to whom, on the emulated wire. Pure.

Scales (design, "Scales"): ``scale_rate`` divides bandwidths, ``scale_time`` compresses time;
volumes follow, so that a job of p seconds at b lasts p / scale_time wall seconds at b·scale_rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

from jobs.demand import Command, DemandCurve
from jobs.live.agent_protocol import (
    AgentReport,
    CommandPlan,
    ComputePlan,
    Incoming,
    Outgoing,
    Plan,
    TransferPlan,
)
from jobs.live.agent_protocol import Plan as AgentPlan
from jobs.live.patterns import transfers
from jobs.request import JobRequest
from jobs.wire import payload_bytes, payload_rate_bps
from testbed.plan.network_plan import TenantPlan, scaled_bps
from testbed.spec.experiment import Scale

AGENT_PORT = 5001
TIMEOUT_FACTOR = 5.0
TIMEOUT_FLOOR_S = 60.0
# A preempted job's connections stand still, for as long as others have its nodes: neither TCP nor
# an agent may take that for a failure. Who looks after jobs that do not get on is the backend,
# which knows who is preempted.
PATIENCE_S = 7 * 24 * 3600.0
IDLE_SHARE = 0.01
ALL_OF_IT = 0.99


def volume_payload_bytes(job: JobRequest, scale: Scale, granted_bps: int = 0) -> int:
    """Payload that one VM of the job sends on the emulated wire; 0: nothing is reserved for it."""
    return payload_bytes(job.demand.volume_bits(job, granted_bps) * scale.rate / scale.time)


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
) -> tuple[AgentPlan, ...]:
    """What each VM burns: its use of a processor, ``scale.cpu`` of one of this machine's each.

    A VM of several cores burns as many times as much, one processor of this machine's at most.
    A process that uses all of its processor is not paced: its node's quota is what it gets, and
    who else is on the node makes the difference. Jobs that have nobody to talk to idle along.
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
        plans.append(ComputePlan(vm.index, cpu_s, paced, timeout_s=PATIENCE_S))
    return tuple(plans)


def agent_plans(
    job: JobRequest, tenant: TenantPlan, scale: Scale, seed: int, granted_bps: int = 0
) -> tuple[AgentPlan, ...]:
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
            sends=tuple(
                Outgoing(f.receiver, str(tenant.vms[f.receiver].ip), AGENT_PORT, f.size_bytes)
                for f in flows
                if f.sender == vm.index
            ),
            receives=tuple(
                Incoming(f.sender, f.size_bytes) for f in flows if f.receiver == vm.index
            ),
            demand=curve,
            cpu_share=min(1.0, demand.cpu_share * scale.cpu) if curve else 0.0,
            timeout_s=PATIENCE_S,
            stall_timeout_s=PATIENCE_S,
        )
        for vm in tenant.vms
    )


def _commands(job: JobRequest, demand: Command, tenant: TenantPlan) -> tuple[AgentPlan, ...]:
    """The application's own command in every VM; it has its rank and peers by its environment."""
    peers = tuple(str(vm.ip) for vm in tenant.vms)
    told = (("HOSENET_JOB", job.id), ("HOSENET_BANDWIDTH_BPS", str(tenant.rate_bps)))
    return tuple(CommandPlan(vm.index, str(vm.ip), peers, demand.words, told) for vm in tenant.vms)


# ------------------------------------------------------------------------------------- restart


Curve = tuple[tuple[float, int], ...]

# Less CPU than this is nobody's work; a plan wants something above 0.
LEAST_CPU_S = 1e-6


def remaining(plans: Sequence[Plan], reports: Mapping[int, AgentReport]) -> tuple[Plan, ...]:
    """Every VM's plan for the rest, by index. A VM without a report has done nothing that counts.

    Addresses are still the old ones: see :func:`moved`.
    """
    arrived = {
        (flow.peer, index): flow.size_bytes
        for index, report in reports.items()
        for flow in report.received
    }
    return tuple(_rest(plan, reports.get(plan.index), arrived) for plan in plans)


def moved(plans: Sequence[Plan], ips: Sequence[str]) -> tuple[Plan, ...]:
    """The same plans for VMs that have the addresses ``ips`` now, by index."""
    return tuple(_moved(plan, ips) for plan in plans)


def _moved(plan: Plan, ips: Sequence[str]) -> Plan:
    match plan:
        case TransferPlan():
            sends = tuple(replace(order, ip=ips[order.peer]) for order in plan.sends)
            return replace(plan, ip=ips[plan.index], sends=sends)
        case CommandPlan():
            return replace(plan, ip=ips[plan.index], peers=tuple(ips))
        case ComputePlan():
            return plan


def _rest(
    plan: Plan,
    report: AgentReport | None,
    arrived: Mapping[tuple[int, int], int],
) -> Plan:
    if isinstance(plan, CommandPlan):
        return plan
    if isinstance(plan, ComputePlan):
        burnt_s = 0.0 if report is None else report.cpu_s
        return replace(plan, cpu_s=max(LEAST_CPU_S, plan.cpu_s - burnt_s))
    sends, receives = [], []
    for order in plan.sends:
        left = order.size_bytes - arrived.get((plan.index, order.peer), 0)
        if left > 0:
            sends.append(replace(order, size_bytes=left))
    for source in plan.receives:
        left = source.size_bytes - arrived.get((source.peer, plan.index), 0)
        if left > 0:
            receives.append(Incoming(source.peer, left))
    total = sum(order.size_bytes for order in plan.sends)
    done = total - sum(order.size_bytes for order in sends)
    return replace(
        plan,
        sends=tuple(sends),
        receives=tuple(receives),
        demand=curve_after(plan.demand, done / total) if plan.demand and sends else (),
    )


def curve_after(curve: Curve, sent_share: float) -> Curve:
    """The demand curve from where ``sent_share`` of all bytes are sent, stretched to 0..1 again.

    With τ and the total both reduced in proportion, the rest takes as long as it would have.
    """
    starts = [0.0, *(end for end, _ in curve)]
    areas = [(b - a) * rate for (a, b), (_, rate) in zip(pairwise(starts), curve, strict=True)]
    done = sent_share * sum(areas)
    x0 = 0.0
    for start, (end, rate), area in zip(starts, curve, areas, strict=False):
        if done < area:
            x0 = start + done / rate
            break
        if area and done == area:
            x0 = end
            break
        done -= area
    rest = [((end - x0) / (1.0 - x0), rate) for end, rate in curve if end > x0]
    return (*rest[:-1], (1.0, rest[-1][1]))
