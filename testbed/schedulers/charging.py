"""Price of a job for its tenant (DCloud, Section III.E). Pure.

Job-based: the price depends on the request ⟨n, b, p, d⟩ alone, never on what
was allocated. Strategy-proof: asking for more, for a shorter deadline, or with
a profile taken at a smaller bandwidth never costs less than the truth.
"""

from __future__ import annotations

import math

from jobs.request import SERVICE_TAG, JobRequest

ALPHA = 0.288
"""α, dollars per Gbit/s and hour (Section IV.A)."""

BETA = 0.085
"""β, dollars per VM and hour."""


def deadline_discount(ratio: float) -> float:
    """DCloud's g(d/p) = log10(9 + p/d): 1 at d = p, falling to log10(9) =
    0.954.
    """
    return math.log10(9.0 + 1.0 / ratio)


def service_price(
    n_vms: int, bandwidth_bps: float, actual_s: float
) -> float:
    """(αb + β)·n·p'' in dollars, for a user-facing service that ran for p''
    (Section VI).
    """
    return (ALPHA * bandwidth_bps / 1e9 + BETA) * n_vms * actual_s / 3600.0


def request_price(
    n_vms: int,
    bandwidth_bps: float,
    duration_s: float,
    deadline_s: float | None,
    *,
    discounts: bool = True,
) -> float:
    """C = (αb + β)·n·p·g(d/p) in dollars (Eq. 5); g = 1 without a deadline, and
    for VC and BL.

    Raises ValueError when d < p with ``discounts``: no such request is sound.
    """
    price = service_price(n_vms, bandwidth_bps, duration_s)
    if deadline_s is None or not discounts:
        return price
    if deadline_s < duration_s:
        raise ValueError(
            f"deadline {deadline_s:g} s is shorter than duration {duration_s:g} s"
        )
    return price * deadline_discount(deadline_s / duration_s)


def is_service(job: JobRequest) -> bool:
    """True of a user-facing service."""
    return SERVICE_TAG in job.tags


def job_price(job: JobRequest, ran_s: float, *, discounts: bool) -> float:
    """Price of a job that met its deadline; ``ran_s`` counts for services
    alone.
    """
    n_vms = job.n_vms
    bandwidth_bps = job.bandwidth_bps
    if is_service(job):
        return service_price(n_vms, bandwidth_bps, ran_s)
    return request_price(
        n_vms,
        bandwidth_bps,
        job.duration_s,
        job.deadline_s,
        discounts=discounts,
    )
