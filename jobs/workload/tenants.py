"""Tenants' requests ⟨n, b, p, d⟩ and their arrivals as in DCloud's simulations (Section IV.A).

The paper gives ``Norm(n̄, 25n̄²)``, ``Norm(b̄, 2b̄²)``, ``Norm(p̄, 2p̄²)``, ``Norm(r̄, 2r̄²)`` and does not
say what became of the 24 to 42 % of draws that are then negative. Interpretations are named here:
:func:`interpretation_g`, fitted to the published figures and the default, :func:`literal` and
:func:`literal_clamped`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from jobs.demand import Pattern, Transfer
from jobs.request import SERVICE_TAG, JobRequest
from jobs.workload.distributions import Floats, NormalDistribution, stream

MINUTE_S = 60.0
HOUR_S = 3600.0


@dataclass(frozen=True)
class DayAndNight:
    """Poisson arrivals: ``per_hour`` by day, ``night_factor`` times that by night, in turns.

    Days and nights last ``half_s`` each, beginning with a day, over ``span_s`` in all (DCloud,
    Section IV.A: 12 h of λ, 12 h of λ/5).
    """

    per_hour: float
    night_factor: float = 0.2
    span_s: float = 24 * HOUR_S
    half_s: float = 12 * HOUR_S

    def __post_init__(self) -> None:
        for name, value in (("per_hour", self.per_hour), ("night_factor", self.night_factor)):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is finite and at least 0, not {value}")
        if not (math.isfinite(self.span_s) and self.span_s > 0 and self.half_s > 0):
            raise ValueError("the span and the length of a day are finite and above 0 s")

    def times_s(self, seed: int, name: str = "arrivals") -> Floats:
        """Arrival times in ``[0, span_s)``, rising.

        A process of rate 1 with its time warped, so that all rates share their random numbers.
        """
        starts, expected = self._phases()
        total = float(expected[-1])
        rng = stream(seed, name)
        gaps = rng.standard_exponential(max(16, int(total + 8 * math.sqrt(total) + 8)))
        clock = np.cumsum(gaps)
        while clock[-1] < total:
            clock = np.concatenate((clock, clock[-1] + np.cumsum(rng.standard_exponential(64))))
        times: Floats = np.interp(clock[clock < total], expected, starts)
        return times[times < self.span_s]

    def _phases(self) -> tuple[Floats, Floats]:
        """Where phases begin (and the last one ends), and arrivals expected by then."""
        starts = np.append(np.arange(0.0, self.span_s, self.half_s), self.span_s)
        factor = np.where(np.arange(len(starts) - 1) % 2 == 0, 1.0, self.night_factor)
        per_s = self.per_hour / HOUR_S * factor
        return starts, np.concatenate(([0.0], np.cumsum(per_s * np.diff(starts))))


@dataclass(frozen=True)
class Batch:
    """``count`` jobs at once, at time 0 (DCloud, Section IV.E)."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"a batch has at least 0 jobs, not {self.count}")

    def times_s(self, seed: int, name: str = "arrivals") -> Floats:
        """``count`` zeros."""
        del seed, name
        return np.zeros(self.count)


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
    """The distributions of requests. ``ratio`` is r = d/p; quantities are drawn independently.

    ``vms`` counts, ``bandwidth`` in bit/s, ``duration`` in seconds. A ``service_share`` of the
    jobs are user-facing services: d = p, and tagged as such.
    """

    vms: NormalDistribution
    bandwidth: NormalDistribution
    duration: NormalDistribution
    ratio: NormalDistribution
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
        errors = stream(seed, "profiling error").uniform(error.low, error.high, len(stated_s))
        return [p * (1.0 + e) for p, e in zip(stated_s, errors.tolist(), strict=True)]


def interpretation_g(
    n: float = 120, b_bps: float = 250e6, p_s: float = HOUR_S, r: float = 10.0
) -> Tenants:
    """Interpretation G, fitted: σ of n, b, p, r is 0.456, 0.09, 2, 0.447 of its mean; redrawn."""
    return Tenants(
        vms=NormalDistribution(n, 0.456 * n, 1.0),
        bandwidth=NormalDistribution(b_bps, 0.09 * b_bps, 1.0),
        duration=NormalDistribution(p_s, 2.0 * p_s, MINUTE_S),
        ratio=NormalDistribution(r, 0.447 * r, 1.0),
    )


def literal(n: float = 120, b_bps: float = 250e6, p_s: float = HOUR_S, r: float = 10.0) -> Tenants:
    """The printed second parameters as variances: σ = 5n̄, √2b̄, √2p̄, √2r̄; redrawn."""
    root = math.sqrt(2.0)
    return Tenants(
        vms=NormalDistribution(n, 5.0 * n, 1.0),
        bandwidth=NormalDistribution(b_bps, root * b_bps, 1.0),
        duration=NormalDistribution(p_s, root * p_s, MINUTE_S),
        ratio=NormalDistribution(r, root * r, 1.0),
    )


def literal_clamped(
    n: float = 120, b_bps: float = 250e6, p_s: float = HOUR_S, r: float = 10.0
) -> Tenants:
    """:func:`literal`, with draws below the floor put onto it."""
    redrawn = literal(n, b_bps, p_s, r)
    names = ("vms", "bandwidth", "duration", "ratio")
    clamped = {name: replace(getattr(redrawn, name), rule="clamp") for name in names}
    return replace(redrawn, **clamped)


INTERPRETATIONS: dict[str, Callable[..., Tenants]] = {
    "G": interpretation_g,
    "literal": literal,
    "literal-clamped": literal_clamped,
}
