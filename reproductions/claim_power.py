"""The number of seeds at which a claim that is undecided would be decided.

For planning alone: were means and deviations over more seeds those of the seeds
that were computed. No verdict comes of it. A claim whose mean lies at the end of
its band needs more seeds than anybody computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from statistics import fmean, stdev
from typing import Literal

from reproductions.claim_checks import LEVEL, Band, JudgedClaim, chances_of
from reproductions.grid_quantities import Values
from reproductions.published_figure import Reproduced

LAST_SOUGHT = 1_000
"""More than this is said as "over 1,000"."""
Side = Literal["inside", "outside"]


def seeds_to_decide(done: Reproduced) -> Mapping[str, float]:
    """The seeds that would decide each undecided claim of the paper, by its
    sentence: infinite where more than :data:`LAST_SOUGHT` would be needed,
    not-a-number where one seed or none is there to tell.

    The level is Bonferroni's over the figure's claims, or over all their checks
    where a claim would be refuted: Holm's correction is no stricter.
    """
    papers = [
        judged
        for judged in done.judged
        if judged.claim.status != "own check"
    ]
    level = LEVEL / max(1, len(done.stages))
    n_checks = sum(len(judged.checks) for judged in papers)
    return {
        judged.claim.text: _of_claim(
            done, judged, level / len(papers), level / n_checks
        )
        for judged in papers
        if judged.verdict == "inconclusive"
    }


def _of_claim(
    done: Reproduced, judged: JudgedClaim, inside: float, outside: float
) -> float:
    """All its checks inside, or one of them outside: which takes fewer seeds.
    No fewer than the figure needs to decide anything.
    """
    confirmed, refuted = float(done.figure.needed), math.inf
    for check in judged.claim.checks:
        values = check.quantity.values(done.grid)
        if len(values) < 2 or not all(map(math.isfinite, values)):
            return math.nan
        wanted = partial(
            seeds_for,
            values=values,
            band=check.band,
            sampled=not done.grid.exact,
        )
        confirmed = max(confirmed, wanted(level=inside, side="inside"))
        refuted = min(refuted, wanted(level=outside, side="outside"))
    return min(confirmed, max(refuted, done.figure.needed))


def seeds_for(
    values: Values,
    band: Band,
    level: float,
    side: Side,
    *,
    sampled: bool = True,
) -> float:
    """The fewest seeds at which the judge decides for a side of the band at a
    level, with the mean and deviation of ``values``; infinite where none up to
    :data:`LAST_SOUGHT` do. ``sampled``: as in
    :func:`reproductions.claim_checks.chances_of`.
    """
    mean, deviation = fmean(values), stdev(values)

    def decides(seeds: int) -> bool:
        chances = chances_of(mean, deviation, seeds, band, sampled=sampled)
        if side == "inside":
            return chances.inside <= level
        return chances.outside <= level

    if not decides(LAST_SOUGHT):
        return math.inf
    low, high = 2, LAST_SOUGHT
    while low < high:
        middle = (low + high) // 2
        if decides(middle):
            high = middle
        else:
            low = middle + 1
    return float(low)
