"""Tenants' requests ⟨n, b, p, d⟩ as DCloud's simulations draw them (Section IV.A).

The paper gives ``Norm(n̄, 25n̄²)``, ``Norm(b̄, 2b̄²)``, ``Norm(p̄, 2p̄²)``, ``Norm(r̄, 2r̄²)`` and does not
say what became of the 24 to 42 % of draws that are then negative. Readings are named here
(docs/decisions/0401): :func:`reading_g`, fitted to the published figures and the default,
:func:`literal` and :func:`literal_clamped`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from jobs.demand import Pattern, Transfer
from jobs.request import SERVICE_TAG, JobRequest
from jobs.workload.arrivals import HOUR_S, Batch, DayAndNight
from jobs.workload.laws import Law
from jobs.workload.streams import stream

MINUTE_S = 60.0


@dataclass(frozen=True)
class ProfilingError:
    """The true duration is p·(1 + e), e uniform in ``[low, high]``."""

    low: float = 0.0
    high: float = 0.0

    def __post_init__(self) -> None:
        if not -1.0 < self.low <= self.high < math.inf:
            raise ValueError("a profiling error lies between above -100 % and a finite share")


@dataclass(frozen=True)
class Tenants:
    """What requests look like. ``ratio`` is r = d/p; quantities are drawn independently.

    ``vms`` counts, ``bandwidth`` in bit/s, ``duration`` in seconds. A ``service_share`` of the
    jobs are user-facing services: d = p, and tagged as such.
    """

    vms: Law
    bandwidth: Law
    duration: Law
    ratio: Law
    profiling_error: ProfilingError = ProfilingError()
    pattern: Pattern = "permutation"
    service_share: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.service_share <= 1.0:
            raise ValueError(
                f"the share of services lies between 0 and 1, not {self.service_share}"
            )

    def requests(
        self, arrivals: DayAndNight | Batch, seed: int, prefix: str = "job"
    ) -> tuple[JobRequest, ...]:
        """The jobs, in order of arrival. Ids sort in that order: ``job-00000``, ``job-00001`` …"""
        times = arrivals.times_s(seed)
        count = len(times)
        vms = np.rint(self.vms.draw(seed, "vms", count)).astype(np.int64)
        bandwidth = np.rint(self.bandwidth.draw(seed, "bandwidth", count)).astype(np.int64)
        duration = self.duration.draw(seed, "duration", count)
        ratio = self.ratio.draw(seed, "ratio", count)
        true_s = self._true_durations(seed, duration.tolist())
        service = stream(seed, "services").random(count) < self.service_share
        digits = max(5, len(str(max(0, count - 1))))
        demand = Transfer(self.pattern)
        return tuple(
            JobRequest(
                id=f"{prefix}-{k:0{digits}}",
                submit_s=float(times[k]),
                n_vms=max(1, int(vms[k])),
                bandwidth_bps=max(1, int(bandwidth[k])),
                duration_s=float(duration[k]),
                deadline_s=float(duration[k] * (1.0 if service[k] else ratio[k])),
                demand=demand,
                true_duration_s=true_s[k],
                tags=(SERVICE_TAG,) if service[k] else (),
            )
            for k in range(count)
        )

    def _true_durations(self, seed: int, stated_s: list[float]) -> list[float | None]:
        error = self.profiling_error
        if error == ProfilingError():
            return [None] * len(stated_s)
        drawn = stream(seed, "profiling error").uniform(error.low, error.high, len(stated_s))
        return [p * (1.0 + e) for p, e in zip(stated_s, drawn.tolist(), strict=True)]


def reading_g(
    n: float = 120, b_bps: float = 250e6, p_s: float = HOUR_S, r: float = 10.0
) -> Tenants:
    """Reading G, fitted: σ of n, b, p, r is 0.456, 0.09, 2 and 0.447 times the mean; redrawn."""
    return Tenants(
        vms=Law(n, 0.456 * n, 1.0),
        bandwidth=Law(b_bps, 0.09 * b_bps, 1.0),
        duration=Law(p_s, 2.0 * p_s, MINUTE_S),
        ratio=Law(r, 0.447 * r, 1.0),
    )


def literal(n: float = 120, b_bps: float = 250e6, p_s: float = HOUR_S, r: float = 10.0) -> Tenants:
    """The printed second parameters as variances: σ = 5n̄, √2b̄, √2p̄, √2r̄; redrawn."""
    root = math.sqrt(2.0)
    return Tenants(
        vms=Law(n, 5.0 * n, 1.0),
        bandwidth=Law(b_bps, root * b_bps, 1.0),
        duration=Law(p_s, root * p_s, MINUTE_S),
        ratio=Law(r, root * r, 1.0),
    )


def literal_clamped(
    n: float = 120, b_bps: float = 250e6, p_s: float = HOUR_S, r: float = 10.0
) -> Tenants:
    """:func:`literal`, with draws below the floor put onto it."""
    drawn = literal(n, b_bps, p_s, r)
    return replace(
        drawn,
        vms=replace(drawn.vms, rule="clamp"),
        bandwidth=replace(drawn.bandwidth, rule="clamp"),
        duration=replace(drawn.duration, rule="clamp"),
        ratio=replace(drawn.ratio, rule="clamp"),
    )


READINGS: dict[str, Callable[..., Tenants]] = {
    "G": reading_g,
    "literal": literal,
    "literal-clamped": literal_clamped,
}
