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
from reproductions.grid_quantities import Values, known
from reproductions.published_figure import Reproduced

# More seeds than these are shown as "over 1,000": nobody computes them.
LAST_SOUGHT = 1_000
Side = Literal["inside", "outside"]


def seeds_to_decide(done: Reproduced) -> Mapping[str, float]:
    """The seeds that would decide each undecided claim of the paper, by its
    sentence: infinite where it would take more than :data:`LAST_SOUGHT`,
    not-a-number where there are fewer than two seeds.

    The level is Bonferroni's over the figure's claims, or over all their checks
    where a claim would be refuted: Holm's correction is no stricter.
    """
    papers = []
    n_checks = 0
    for judged in done.judged:
        if judged.claim.status != "own check":
            papers.append(judged)
            n_checks += len(judged.checks)
    level = LEVEL / max(1, len(done.stages))
    wanted = {}
    for judged in papers:
        if judged.verdict == "inconclusive":
            wanted[judged.claim.text] = _of_claim(
                done,
                judged,
                inside=level / len(papers),
                outside=level / n_checks,
            )
    return wanted


def _of_claim(
    done: Reproduced,
    judged: JudgedClaim,
    *,
    inside: float,
    outside: float,
) -> float:
    """The fewest seeds at which all checks of a claim are inside their bands,
    or one is outside, but no fewer than the figure needs.

    ``inside`` and ``outside``: the levels of both. Not-a-number where a check
    has fewer than two values, or one that is not finite.
    """
    # All checks confirm a claim, the slowest of them last; any one refutes
    # it.
    confirmed = float(done.figure.needed)
    refuted = math.inf
    for check in judged.claim.checks:
        values = known(check.quantity.values(done.grid))
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
    mean = fmean(values)
    deviation = stdev(values)

    def decides(seeds: int) -> bool:
        chances = chances_of(mean, deviation, seeds, band, sampled=sampled)
        if side == "inside":
            return chances.inside <= level
        return chances.outside <= level

    if not decides(LAST_SOUGHT):
        return math.inf
    # Chances fall with every seed more, so that halving finds the first.
    low = 2
    high = LAST_SOUGHT
    while low < high:
        middle = (low + high) // 2
        if decides(middle):
            high = middle
        else:
            low = middle + 1
    return float(low)
