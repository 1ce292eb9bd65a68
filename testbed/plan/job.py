"""A placed job as the plans of its agents: who sends how much to whom, on the emulated wire. Pure.

Scales (design, "Scales"): ``scale_rate`` divides bandwidths, ``scale_time`` compresses time;
volumes follow, so that a job of p seconds at b lasts p / scale_time wall seconds at b·scale_rate.
"""

from __future__ import annotations

from random import Random

from jobs.estimate import volume_bits_per_vm
from jobs.live.patterns import transfers
from jobs.live.protocol import ComputePlan, Incoming, Outgoing, TransferPlan
from jobs.live.protocol import Plan as AgentPlan
from jobs.request import JobRequest
from jobs.wire import payload_bytes, payload_rate_bps
from testbed.plan.network import TenantPlan, scaled_bps
from testbed.spec.experiment import Scale

AGENT_PORT = 5001
TIMEOUT_FACTOR = 5.0
TIMEOUT_FLOOR_S = 60.0


def volume_payload_bytes(job: JobRequest, scale: Scale) -> int:
    """Payload that one VM of the job sends on the emulated wire."""
    return payload_bytes(volume_bits_per_vm(job) * scale.rate / scale.time)


def agent_plans(
    job: JobRequest, tenant: TenantPlan, scale: Scale, seed: int, estimate_s: float
) -> tuple[AgentPlan, ...]:
    """One plan a VM, by index. ``estimate_s`` (experiment time) bounds how long they may take."""
    limit_s = max(TIMEOUT_FLOOR_S, TIMEOUT_FACTOR * estimate_s / scale.time)
    if job.kind == "compute" or job.n_vms == 1:
        share = job.cpu_share or 0.01
        true_s = job.duration_s if job.true_duration_s is None else job.true_duration_s
        cpu_s = share * true_s / scale.time
        return tuple(ComputePlan(vm.index, cpu_s, share, timeout_s=limit_s) for vm in tenant.vms)
    stream = Random(f"{seed}/{job.id}")  # noqa: S311 reproducible, not secret
    flows = transfers(job.pattern, job.n_vms, volume_payload_bytes(job, scale), stream)
    demand: tuple[tuple[float, int], ...] = ()
    if job.demand is not None:
        demand = tuple(
            (x_end, payload_rate_bps(scaled_bps(bps, scale.rate)) if bps else 0)
            for x_end, bps in job.demand.steps
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
            demand=demand,
            cpu_share=job.cpu_share if job.demand is not None else 0.0,
            timeout_s=limit_s,
        )
        for vm in tenant.vms
    )


def produces_last(job: JobRequest) -> bool:
    """Whether the application still computes after its last byte (its curve ends at 0)."""
    return job.demand is not None and job.demand.steps[-1][1] == 0
