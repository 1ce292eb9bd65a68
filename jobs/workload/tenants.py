"""Tenants' requests ⟨n, b, p, d⟩ and their arrivals as in DCloud's simulations
(Section IV.A).

The paper gives ``Norm(n̄, 25n̄²)``, ``Norm(b̄, 2b̄²)``, ``Norm(p̄, 2p̄²)``,
``Norm(r̄, 2r̄²)``, by which 24 to 42 % of the draws are negative, and does not
say how it treats these. :data:`INTERPRETATIONS` has the treatments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from jobs.demand import Pattern, Transfer
from jobs.request import SERVICE_TAG, JobRequest
from jobs.workload.distributions import (
    Floats,
    Ints,
    NormalDistribution,
    Rule,
    stream,
)

MINUTE_S = 60.0
HOUR_S = 3600.0
HALF_DAY_S = 12 * HOUR_S

QUANTITIES = {
    "vms": (120.0, 1.0),
    "bandwidth": (250e6, 1.0),
    "duration": (HOUR_S, MINUTE_S),
    "deadline_ratio": (10.0, 1.0),
}
"""The mean and the floor of each quantity, in bit/s and seconds."""

_SQRT_2 = math.sqrt(2.0)
INTERPRETATIONS: dict[
    str, tuple[tuple[float, float, float, float], Rule]
] = {
    "G": ((0.456, 0.09, 2.0, 0.447), "redraw"),
    "literal": ((5.0, _SQRT_2, _SQRT_2, _SQRT_2), "redraw"),
    "literal-clamped": ((5.0, _SQRT_2, _SQRT_2, _SQRT_2), "clamp"),
}
"""Standard deviations of the :data:`QUANTITIES` over their means, in that
order, and the rule for draws below the floor.

G, the default, is fitted to the published figures. literal takes the second
parameters in the paper as variances and draws again below the floor;
literal-clamped raises such draws to the floor.
"""


def day_and_night(
    seed: int,
    per_hour: float,
    night_factor: float = 0.2,
    span_s: float = 24 * HOUR_S,
) -> Floats:
    """Sorted Poisson arrival times in ``[0, span_s)``, by day at rate
    ``per_hour`` and by night at ``night_factor`` times that.

    Days and nights of 12 h take turns, beginning with a day (DCloud, Section
    IV.A: 12 h of λ, 12 h of λ/5). Arrivals of a process of rate 1 are mapped
    to these rates, so that all rates use the same random numbers.
    """
    starts = np.append(np.arange(0.0, span_s, HALF_DAY_S), span_s)
    factor = np.where(
        np.arange(len(starts) - 1) % 2 == 0, 1.0, night_factor
    )
    per_s = per_hour / HOUR_S * factor
    # Arrivals expected by the time that a phase begins.
    expected = np.concatenate(([0.0], np.cumsum(per_s * np.diff(starts))))
    total = float(expected[-1])
    clock = _unit_arrivals(seed, total)
    # Time as a function of the expected count: a job arrives as soon as the
    # count has risen to the instant of an arrival of the process of rate 1.
    times: Floats = np.interp(clock, expected, starts)
    # An arrival just below the total may be rounded to the span's end.
    return times[times < span_s]


def _unit_arrivals(
    seed: int,
    until: float,
) -> Floats:
    """Arrivals of a Poisson process of rate 1 before an instant."""
    rng = stream(seed, "arrivals")
    # Eight standard deviations above the mean: hardly ever are more needed.
    likely = max(16, int(until + 8 * math.sqrt(until) + 8))
    clock = np.cumsum(rng.standard_exponential(likely))
    while clock[-1] < until:
        more = clock[-1] + np.cumsum(rng.standard_exponential(64))
        clock = np.concatenate((clock, more))
    return clock[clock < until]


@dataclass(frozen=True)
class Tenants:
    """The distributions of requests. Quantities are drawn independently.

    ``vms`` counts, ``bandwidth`` in bit/s, ``duration`` in seconds,
    ``deadline_ratio`` is d/p. The true duration is p·(1 + e), e uniform between
    the ends of ``profiling_error``. A ``service_share`` of the jobs are
    user-facing services: d = p, and tagged as such.
    """

    vms: NormalDistribution
    bandwidth: NormalDistribution
    duration: NormalDistribution
    deadline_ratio: NormalDistribution
    profiling_error: tuple[float, float] = (0.0, 0.0)
    pattern: Pattern = "permutation"
    service_share: float = 0.0

    def requests(
        self,
        times: Floats,
        seed: int,
    ) -> tuple[JobRequest, ...]:
        """The jobs that arrive at these times; ids sort in that order:
        ``job-00000`` …
        """
        count = len(times)
        # A stream for each quantity: a further one changes none of the
        # others.
        vms = _whole(self.vms.draw(seed, "vms", count))
        bandwidth_bps = _whole(
            self.bandwidth.draw(seed, "bandwidth", count)
        )
        duration_s = self.duration.draw(seed, "duration", count)
        ratio = self.deadline_ratio.draw(seed, "ratio", count)
        true_s = self._true_durations(seed, duration_s)
        is_service = (
            stream(seed, "services").random(count) < self.service_share
        )
        ratio[is_service] = 1.0
        deadline_s = duration_s * ratio
        # At least five, so that ids sort alike in runs of different lengths.
        digits = max(5, len(str(max(0, count - 1))))
        demand = Transfer(self.pattern)
        requests = []
        for k in range(count):
            request = JobRequest(
                id=f"job-{k:0{digits}}",
                submit_s=float(times[k]),
                n_vms=max(1, int(vms[k])),
                bandwidth_bps=max(1, int(bandwidth_bps[k])),
                duration_s=float(duration_s[k]),
                deadline_s=float(deadline_s[k]),
                demand=demand,
                true_duration_s=true_s[k],
                tags=(SERVICE_TAG,) if is_service[k] else (),
            )
            requests.append(request)
        return tuple(requests)

    def _true_durations(
        self,
        seed: int,
        stated_s: Floats,
    ) -> list[float] | list[None]:
        """By job, in s; None for each where the profiles have no errors."""
        if self.profiling_error == (0.0, 0.0):
            return [None] * len(stated_s)
        errors = stream(seed, "profiling error").uniform(
            *self.profiling_error, len(stated_s)
        )
        true_s: list[float] = (stated_s * (1.0 + errors)).tolist()
        return true_s


def _whole(values: Floats) -> Ints:
    return np.rint(values).astype(np.int64)


def distribution(
    reading: str,
    quantity: str,
    mean: float | None = None,
    sigma: float | None = None,
    rule: Rule | None = None,
) -> NormalDistribution:
    """A quantity's distribution in an interpretation.

    ``mean``, ``sigma`` and ``rule`` replace those of the interpretation.
    Raises ValueError if draws would hardly ever reach the floor.
    """
    usual, low = QUANTITIES[quantity]
    mean = usual if mean is None else float(mean)
    ratios, usual_rule = INTERPRETATIONS[reading]
    ratio = ratios[list(QUANTITIES).index(quantity)]
    deviation = ratio * mean if sigma is None else float(sigma)
    return NormalDistribution(mean, deviation, low, rule or usual_rule)


def interpretation(
    reading: str = "G",
    **means: float,
) -> Tenants:
    """The requests of an interpretation, with means by the names of
    :data:`QUANTITIES`.
    """
    vms, bandwidth, duration, deadline_ratio = (
        distribution(reading, name, means.get(name)) for name in QUANTITIES
    )
    return Tenants(vms, bandwidth, duration, deadline_ratio)
