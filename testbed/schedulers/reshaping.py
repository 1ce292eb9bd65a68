"""How DCloud may reshape a request: time sliding and bandwidth scaling (Section III.A–D). Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from jobs.demand import scaled_duration_s

STEPS = 10
"""Bins of either range: 11 starting times, and for each 11 bandwidths (Algorithm 1)."""


@dataclass(frozen=True)
class Reshaping:
    """Which of the two means are allowed, and how finely the room is searched."""

    slides: bool = True
    scales: bool = True
    steps: int = STEPS


@dataclass(frozen=True)
class Shape:
    """One point of the grid: start ``delay_s`` (t') after submission, at b' for p'."""

    delay_s: float
    rate_bps: int
    duration_s: float


def relaxed_s(duration_s: float, deadline_s: float, gamma: float) -> float:
    """p̃ = min((1 + γ)p, d): the profile with its tolerated error (Section III.A)."""
    return min((1.0 + gamma) * duration_s, deadline_s)


def shapes(
    bandwidth_bps: int, relaxed: float, deadline_s: float, reshaping: Reshaping
) -> list[list[Shape]]:
    """The grid of Algorithm 1, one list per t' in rising order, b' falling within it.

    t' goes from 0 to d - p̃, b' from b down to b·p̃/(d - t'), each in ``steps`` equal steps; a range
    without extent has one point (the printed loop would never end). b' is rounded up to whole
    bit/s, so that t' + p' ≤ d. Reckoned in exact fractions: a bandwidth of exactly one half is
    one half.

    Raises ValueError when p̃ > d.
    """
    p, d = Fraction(relaxed), Fraction(deadline_s)
    if not 0 < p <= d:
        raise ValueError(f"a relaxed duration of {relaxed:g} s does not fit {deadline_s:g} s")
    # Over the common denominator everything is an integer, and integers are fast.
    scale = math.lcm(p.denominator, d.denominator)
    p_ticks, d_ticks = int(p * scale), int(d * scale)
    room, n = d_ticks - p_ticks, reshaping.steps
    delays = range(n + 1) if room > 0 and reshaping.slides else range(1)
    return [
        [
            Shape(
                delay_s=float(Fraction(i * room, n * scale)) if i else 0.0,
                rate_bps=rate,
                duration_s=scaled_duration_s(relaxed, bandwidth_bps, rate),
            )
            for rate in _rates(bandwidth_bps, p_ticks * n, d_ticks * n - i * room, reshaping)
        ]
        for i in delays
    ]


def _rates(bandwidth_bps: int, need: int, time: int, reshaping: Reshaping) -> list[int]:
    """Falling bandwidths for a job that needs ``need`` ticks at b and has ``time`` ticks."""
    spare, n = time - need, reshaping.steps
    if spare <= 0 or not reshaping.scales or bandwidth_bps == 0:
        return [bandwidth_bps]
    # b' = b - k·b(d - t' - p̃) / (10(d - t')), rounded up.
    return [-(-bandwidth_bps * (n * time - k * spare) // (n * time)) for k in range(n + 1)]
