"""How long a job takes at a scaled bandwidth: what the scheduler promises, and what Eq. 1 gives.

The *estimate* knows nothing of the application: p' = p·b/b' (DCloud, Section III.B, the inversely
proportional rule), an upper bound. The *model* integrates the demand curve (DCloud, Eq. 1).
"""

from __future__ import annotations

from jobs.request import JobRequest


def estimated_duration_s(duration_s: float, bandwidth_bps: float, granted_bps: float) -> float:
    """p·b/b': the promised running time at ``granted_bps``. Scaling up promises nothing."""
    if bandwidth_bps <= 0:
        return duration_s
    if granted_bps <= 0:
        raise ValueError("a job that needs bandwidth cannot be estimated at 0 bit/s")
    return duration_s * max(1.0, bandwidth_bps / granted_bps)


def promised_duration_s(job: JobRequest, granted_bps: float) -> float:
    """What a scheduler promises at ``granted_bps``: its profile's time, without one p·b/b'."""
    if job.profile is not None and granted_bps > 0:
        return job.profile.duration_s(granted_bps)
    return estimated_duration_s(job.duration_s, job.bandwidth_bps, granted_bps)


def unconstrained_duration_s(job: JobRequest) -> float:
    """τ: the running time at infinite bandwidth, from p = τ ∫ max(1, c(x)/b) dx."""
    true_s = job.true_duration_s if job.true_duration_s is not None else job.duration_s
    return true_s if job.demand is None else true_s / job.demand.slowdown(job.bandwidth_bps)


def modelled_duration_s(job: JobRequest, granted_bps: float) -> float:
    """Running time at a constant ``granted_bps``: p·b/b' if network-limited, Eq. 1 otherwise.

    An elastic job takes what its profile says, longer or shorter by as much as its true duration
    is off its profiled one.
    """
    true_s = job.true_duration_s if job.true_duration_s is not None else job.duration_s
    if job.kind == "compute" or job.bandwidth_bps == 0:
        return true_s
    if job.profile is not None:
        return job.profile.duration_s(granted_bps) * (true_s / job.duration_s)
    if job.demand is None:
        return estimated_duration_s(true_s, job.bandwidth_bps, granted_bps)
    return unconstrained_duration_s(job) * job.demand.slowdown(granted_bps)


def volume_bits_per_vm(job: JobRequest) -> float:
    """What one VM sends, in bits as reserved (on the wire): p·b, or τ ∫ c(x) dx."""
    true_s = job.true_duration_s if job.true_duration_s is not None else job.duration_s
    if job.demand is None:
        return 0.0 if job.kind == "compute" else true_s * job.bandwidth_bps
    return unconstrained_duration_s(job) * job.demand.mean_bps()


def granted_volume_bits_per_vm(job: JobRequest, granted_bps: float) -> float:
    """What one VM sends when its bandwidth is ``granted_bps``; 0 where nothing is reserved for it.

    An elastic job uses the whole of the option that it was given for as long as its profile says,
    B·τ(B); without a reservation it moves what it moves at its own bandwidth
    (docs/decisions/0231). Others move the same at any bandwidth.
    """
    if job.profile is None or job.kind != "transfer" or granted_bps <= 0:
        return volume_bits_per_vm(job)
    return modelled_duration_s(job, granted_bps) * granted_bps
