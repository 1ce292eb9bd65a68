"""What is claimed of every live figure: the emulation kept up, promises are kept, worlds agree."""

from __future__ import annotations

from collections.abc import Sequence

from reproductions.claims import Band, Check, Claim
from reproductions.live.measures import (
    AUDIT,
    COMPLETION,
    FIDELITY,
    MEDIAN,
    P95,
    POINTS,
    REPLAY,
    REPLAYED,
    WORST,
)
from reproductions.quantities import Level, Measure

OURS = "ours"
"""In place of a published value: the claim is this project's own."""


def held(
    measure: Measure, band: Band, series: Sequence[str], xs: Sequence[float]
) -> tuple[Check, ...]:
    """A measure lies in a band everywhere: what was counted is what it is, without tolerance."""
    return tuple(Check(Level(measure, one, x), band, 0.0) for one in series for x in xs)


def sound(series: Sequence[str], xs: Sequence[float]) -> Claim:
    """Every live run's verdict is ok."""
    return Claim(
        "The emulation kept up: every live run's validity verdict is ok",
        OURS,
        held(FIDELITY, Band(high=0.0), series, xs),
    )


def audited(series: Sequence[str], xs: Sequence[float]) -> Claim:
    """Every live run's audit passes."""
    return Claim(
        "Audited, every live run kept its invariants: no server or link beyond its capacity, every "
        "reservation returned",
        OURS,
        held(AUDIT, Band(high=0.0), series, xs),
    )


def promises_kept(series: Sequence[str], xs: Sequence[float], relax: float) -> Claim:
    """Measured over estimate under reservations; ``relax`` is γ."""
    return Claim(
        "Jobs with a reservation take what was estimated: median within 1 %, 95th percentile "
        f"within 2 %, none above 1 + {relax:.0%}",
        OURS,
        (
            *held(MEDIAN, Band(0.99, 1.01), series, xs),
            *held(P95, Band(0.98, 1.02), series, xs),
            *held(WORST, Band(high=1.0 + relax), series, xs),
        ),
        reading="network-limited jobs of more than one VM",
    )


def worlds_agree(series: Sequence[str], xs: Sequence[float]) -> Claim:
    """Live against simulated, decisions left to take their course."""
    return Claim(
        "Live and simulated agree: success within 5 points, running times within 3 % in the median",
        OURS,
        (
            *held(POINTS, Band(-5.0, 5.0), series, xs),
            *held(COMPLETION, Band(high=0.03 * COMPLETION.factor), series, xs),
        ),
    )


def replays_alike(series: Sequence[str], xs: Sequence[float]) -> Claim:
    """The simulator given the live run's times decides as it did."""
    return Claim(
        "Replayed with the live run's event times, the same jobs are accepted and every decision "
        "is the same",
        OURS,
        (
            *held(REPLAY, Band(high=0.0), series, xs),
            *held(REPLAYED, Band(high=0.0), series, xs),
        ),
    )
