"""A job's profile: how long it runs at each bandwidth it can be given (JSA,
Section II.C).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

RATIOS = tuple(step / 5 for step in range(1, 11))
"""The published sweep: 0.2, 0.4 … 2.0 times the measured bandwidth B̄ (JSA,
Section V.A).
"""

STEP = 0.2
STEEPEST = 0.2
"""At this speed-up ratio the model's time at 2·B̄ is 0 (docs/decisions/32)."""


@dataclass(frozen=True, slots=True)
class Profile:
    """``options``: ``(bandwidth_bps, duration_s)``, bandwidths rising and
    durations falling.

    The last option's bandwidth is the no-elongation threshold: more makes
    nothing faster, and is never offered.
    """

    options: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        wrong = objections(self.options)
        if wrong:
            raise ValueError("; ".join(message for _, message in wrong))

    @property
    def threshold_bps(self) -> int:
        """The no-elongation threshold."""
        return self.options[-1][0]

    def duration_s(self, bandwidth_bps: float) -> float:
        """The running time at any bandwidth above 0 (docs/decisions/32).

        Linear between two options, as the published model is; at the
        threshold's time above it; below the least option as long as a transfer
        takes there, inversely proportional.
        """
        options = self.options
        if bandwidth_bps >= options[-1][0]:
            return options[-1][1]
        least_bps, longest_s = options[0]
        if bandwidth_bps <= least_bps:
            if bandwidth_bps <= 0:
                raise ValueError(
                    "a job that needs bandwidth has no running time at 0 bit/s"
                )
            return longest_s * least_bps / bandwidth_bps
        at = bisect_right(
            options, bandwidth_bps, key=lambda option: option[0]
        )
        low_bps, slow_s = options[at - 1]
        high_bps, fast_s = options[at]
        width_bps = high_bps - low_bps
        return (
            slow_s
            + (fast_s - slow_s) * (bandwidth_bps - low_bps) / width_bps
        )


_NOT_FASTER = (
    "durations must fall from option to option: above the no-elongation threshold bandwidth buys"
    " nothing, so leave this option out"
)


def objections(
    options: Sequence[tuple[float, float]],
) -> list[tuple[int, str]]:
    """Objections to options, each with the number of the option it concerns
    (from 0).
    """
    if not options:
        return [(0, "a profile needs at least one option")]
    out = []
    for at, option in enumerate(options):
        below = options[at - 1] if at else None
        objection = _objection(option, below)
        if objection is not None:
            out.append((at, objection))
    return out


def _objection(
    option: tuple[float, float],
    below: tuple[float, float] | None,
) -> str | None:
    """The objection to an option; ``below``: the one with less bandwidth."""
    bandwidth_bps, duration_s = option
    # Not a number is neither above nor below any: hence `not … >`.
    if not (bandwidth_bps > 0 and duration_s > 0):
        return "an option needs a bandwidth and a duration above 0"
    if below is None:
        return None
    if not bandwidth_bps > below[0]:
        return "bandwidths must rise from option to option"
    if not duration_s < below[1]:
        return _NOT_FASTER
    return None


def linear_profile(
    bandwidth_bps: int,
    duration_s: float,
    speedup: float,
) -> Profile:
    """The published speed-up model: τ(B) = τ̄·(1 - α·(B - B̄)/(0.2·B̄)) (JSA,
    Section V.A).

    ``bandwidth_bps`` is B̄, ``duration_s`` the time τ̄ at B̄ (printed τ₁) and
    ``speedup`` α, at least 0 and below 0.2. At α = 0 bandwidth buys nothing:
    one option is left, the least.
    """
    if not 0.0 <= speedup < STEEPEST:
        raise ValueError(
            f"a speed-up ratio is at least 0 and below {STEEPEST}, not {speedup:g}"
        )
    if bandwidth_bps < 1:
        raise ValueError(
            f"a profile's bandwidth is at least 1 bit/s, not {bandwidth_bps}"
        )
    options: list[tuple[int, float]] = []
    for ratio in RATIOS:
        # A fifth of 1 or 2 bit/s is rounded to none.
        option_bps = max(1, round(ratio * bandwidth_bps))
        above = option_bps / bandwidth_bps - 1.0
        option = (option_bps, duration_s * (1.0 - speedup * above / STEP))
        # Of a few bit/s two ratios are rounded to one bandwidth.
        below = options[-1] if options else None
        if _objection(option, below) is None:
            options.append(option)
    return Profile(tuple(options))


def measured_profile(
    measured: Sequence[tuple[int, float]],
    tolerance: float = 0.02,
) -> Profile:
    """A profile from times measured in a bandwidth sweep.

    Its threshold is the least bandwidth from which on no measured time is
    longer by more than ``tolerance`` than the shortest of all
    (docs/decisions/32). Below it, an option that is not slower than a larger
    one is noise, and left out.
    """
    points = sorted(measured)
    if not points:
        raise ValueError("nothing was measured")
    shortest_s = min(time_s for _, time_s in points)
    # From above: a short time by chance at a small bandwidth is no threshold
    # while a larger one was slower.
    longest_s = shortest_s * (1.0 + tolerance)
    top = len(points) - 1
    # If even the largest bandwidth was slower, it is the threshold.
    if points[top][1] <= longest_s:
        while top and points[top - 1][1] <= longest_s:
            top -= 1
    kept = [points[top]]
    for bandwidth_bps, time_s in reversed(points[:top]):
        if time_s > kept[-1][1] and bandwidth_bps < kept[-1][0]:
            kept.append((bandwidth_bps, time_s))
    return Profile(tuple(reversed(kept)))
