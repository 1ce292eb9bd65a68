"""Price of a job for its tenant (DCloud, Section III.E). Pure.

Job-based: the price depends on the request ⟨n, b, p, d⟩ alone, never on what was allocated.
Strategy-proof: asking for more, for a shorter deadline, or with a profile taken at a smaller
bandwidth never costs less than the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from jobs.request import SERVICE_TAG, JobRequest

Discount = Callable[[float], float]


@dataclass(frozen=True)
class Tariff:
    """Unit prices in dollars: α per Gbit/s and hour, β per VM and hour (Section IV.A)."""

    alpha_per_gbps_hour: float = 0.288
    beta_per_vm_hour: float = 0.085

    def per_vm_hour(self, bandwidth_bps: float) -> float:
        """αb + β."""
        return self.alpha_per_gbps_hour * bandwidth_bps / 1e9 + self.beta_per_vm_hour


def deadline_discount(ratio: float) -> float:
    """DCloud's g(d/p) = log10(9 + p/d): 1 at d = p, falling to log10(9) = 0.954."""
    return math.log10(9.0 + 1.0 / ratio)


def no_discount(ratio: float) -> float:
    """The discount of VC and BL: none, g = 1."""
    del ratio
    return 1.0


def request_price(
    n_vms: int,
    bandwidth_bps: float,
    duration_s: float,
    deadline_s: float | None,
    *,
    discount: Discount = deadline_discount,
    tariff: Tariff = Tariff(),
) -> float:
    """C = (αb + β)·n·p·g(d/p) in dollars (Eq. 5). Without a deadline there is no discount.

    Raises ValueError when d < p: no such request is sound.
    """
    if deadline_s is not None and deadline_s < duration_s:
        raise ValueError(f"deadline {deadline_s:g} s is shorter than duration {duration_s:g} s")
    rate = tariff.per_vm_hour(bandwidth_bps) * n_vms * duration_s / 3600.0
    return rate * (1.0 if deadline_s is None else discount(deadline_s / duration_s))


def service_price(
    n_vms: int, bandwidth_bps: float, actual_s: float, tariff: Tariff = Tariff()
) -> float:
    """(αb + β)·n·p'' for a user-facing service that ran for p'' (Section VI)."""
    return tariff.per_vm_hour(bandwidth_bps) * n_vms * actual_s / 3600.0


def is_service(job: JobRequest) -> bool:
    """True of a user-facing service."""
    return SERVICE_TAG in job.tags


def job_price(
    job: JobRequest, ran_s: float, discount: Discount, tariff: Tariff = Tariff()
) -> float:
    """Price of a job that met its deadline; ``ran_s`` counts for services alone."""
    if is_service(job):
        return service_price(job.n_vms, job.bandwidth_bps, ran_s, tariff)
    return request_price(
        job.n_vms,
        job.bandwidth_bps,
        job.duration_s,
        job.deadline_s,
        discount=discount,
        tariff=tariff,
    )
