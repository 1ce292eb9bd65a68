"""Claims made for tests, as the ledger's files state them."""

from __future__ import annotations

from collections.abc import Sequence

from reproductions.claim_checks import Band, Check, Claim
from reproductions.grid_quantities import Difference, Level, Measure
from reproductions.live_figure import (
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


def more(
    measure: Measure,
    series: str,
    others: Sequence[str],
    xs: Sequence[float],
    by: float = 0.0,
) -> tuple[Check, ...]:
    """``series`` has more than each of the others at every x, by more than ``by``."""
    band = Band(low=by, strictly=True)
    return tuple(
        Check(Difference(measure, series, other, x), band)
        for other in others
        for x in xs
    )


OURS = "ours"
"""Stands for a published value where the claim is this project's own."""


def held(
    measure: Measure, band: Band, series: Sequence[str], xs: Sequence[float]
) -> tuple[Check, ...]:
    """A measure lies in a band at every point, without tolerance."""
    return tuple(
        Check(Level(measure, name, x), band) for name in series for x in xs
    )


def sound(series: Sequence[str], xs: Sequence[float]) -> Claim:
    """The claim that every live run's fidelity is ok."""
    return Claim(
        "The emulation kept up: every live run's fidelity verdict is ok",
        OURS,
        held(FIDELITY, Band(high=0.0), series, xs),
    )


def audited(series: Sequence[str], xs: Sequence[float]) -> Claim:
    """The claim that every live run's audit passes."""
    return Claim(
        "Audited, every live run kept its invariants: no server or link beyond its capacity, every "
        "reservation returned",
        OURS,
        held(AUDIT, Band(high=0.0), series, xs),
    )


def estimates_kept(
    series: Sequence[str], xs: Sequence[float], relax: float
) -> Claim:
    """The claim about measured over estimate under reservations; ``relax`` is
    γ.
    """
    return Claim(
        "Jobs with a reservation take what was estimated: median within 1 %, 95th percentile "
        f"within 2 %, none above 1 + {relax:.0%}",
        OURS,
        (
            *held(MEDIAN, Band(0.99, 1.01), series, xs),
            *held(P95, Band(0.98, 1.02), series, xs),
            *held(WORST, Band(high=1.0 + relax), series, xs),
        ),
        interpretation="network-limited jobs of more than one VM",
    )


def backends_agree(series: Sequence[str], xs: Sequence[float]) -> Claim:
    """The claim about live against simulated runs, each with its own decisions."""
    return Claim(
        "Live and simulated agree: success within 5 points, running times within 3 % in the median",
        OURS,
        (
            *held(POINTS, Band(-5.0, 5.0), series, xs),
            *held(
                COMPLETION, Band(high=0.03 * COMPLETION.factor), series, xs
            ),
        ),
    )


def replays_alike(series: Sequence[str], xs: Sequence[float]) -> Claim:
    """The claim that the simulator, given the live run's times, decides as it
    did.
    """
    return Claim(
        "Replayed with the live run's event times, the same jobs are accepted and every decision "
        "is the same",
        OURS,
        (
            *held(REPLAY, Band(high=0.0), series, xs),
            *held(REPLAYED, Band(high=0.0), series, xs),
        ),
    )
