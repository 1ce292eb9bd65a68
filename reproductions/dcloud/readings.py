"""What other readings of DCloud's Section IV.A give: of TCP and traffic, and of the requests.

The paper says of BL that VMs compete "using TCP", and not who sends to whom; of the requests that
they are normal with deviations that make a quarter to two fifths of the draws negative. What we
take is in decisions 0310, 0401 and 0402; these figures show what the rest would give.
"""

from __future__ import annotations

from dataclasses import fields, replace

from reproductions.claims import Claim, about
from reproductions.dcloud.cell import DCloudCell
from reproductions.dcloud.grid import (
    ALSO,
    BL,
    DCLOUD,
    FULL,
    QUICK,
    REVENUE,
    SUCCESS,
    VC,
    VM_USE,
    cell,
    jobs_share,
)
from reproductions.dcloud.oversubscription import PUBLISHED, SPLITS
from reproductions.dcloud.unextended import UnextendedCell
from reproductions.figure import Figure, Panel
from reproductions.quantities import Level

# -- BL -------------------------------------------------------------------------------------------

TAKEN = "permutation, slowest flow"
UNEXTENDED = "permutation, no extension (d = p)"
WAYS: dict[str, dict[str, str]] = {
    TAKEN: {},
    "permutation, lockstep": {"coupling": "lockstep"},
    "permutation, independent": {"coupling": "independent"},
    "ring, slowest flow": {"pattern": "ring"},
    "all-to-all, slowest flow": {"pattern": "all-to-all"},
    UNEXTENDED: {},
}
RATES = (20.0, 40.0, 80.0, 160.0)


def _competing(way: str, per_hour: float, seed: int, quick: bool) -> DCloudCell:
    made = replace(cell(BL, seed, quick=quick), per_hour=per_hour * jobs_share(quick=quick))
    chosen: DCloudCell = replace(made, **WAYS[way])  # type: ignore[arg-type]  # names of patterns
    if way != UNEXTENDED:
        return chosen
    return UnextendedCell(**{f.name: getattr(chosen, f.name) for f in fields(chosen)})


BL_READINGS = Figure(
    name="dcloud-bl",
    title="BL under other readings of traffic, TCP and deadlines",
    source="DCloud, Fig. 8 (BL)",
    x_label="jobs per hour by day, λ (8,000 servers)",
    xs=RATES,
    series=tuple(WAYS),
    cell=_competing,
    panels=(Panel(SUCCESS, {(TAKEN, 80.0): 10.0}), Panel(VM_USE)),
    claims=tuple(
        Claim(
            f"λ = 80: BL violates about 90 % of the deadlines ({way})",
            "10 % succeed",
            about(Level(SUCCESS, way, 80.0), 10.0, 5.0),
        )
        for way in WAYS
    ),
    also=(REVENUE, *ALSO),
    size=FULL.words,
    quick_size=QUICK.words,
)

# -- requests -------------------------------------------------------------------------------------

DRAWS = {
    f"{policy}, {reading}": (policy, reading)
    for reading in ("G", "literal", "literal-clamped")
    for policy in (DCLOUD, VC)
}
TIMES = (1.0, 16.0)


def _drawn(series: str, times: float, seed: int, quick: bool) -> DCloudCell:
    policy, reading = DRAWS[series]
    made = cell(policy, seed, quick=quick)
    return replace(made, reading=reading, oversubscription=SPLITS[times])


def _published(measure_points: dict[tuple[str, float], float]) -> dict[tuple[str, float], float]:
    return {
        (series, x): measure_points[policy, x]
        for series, (policy, _) in DRAWS.items()
        for x in TIMES
        if (policy, x) in measure_points
    }


REQUESTS = Figure(
    name="dcloud-requests",
    title="DCloud and VC under other readings of the requests' distributions",
    source="DCloud, Fig. 7 (a), (b)",
    x_label="oversubscription ratio, n:1",
    xs=TIMES,
    series=tuple(DRAWS),
    cell=_drawn,
    panels=(
        Panel(SUCCESS, _published(PUBLISHED[SUCCESS])),
        Panel(VM_USE, _published(PUBLISHED[VM_USE])),
    ),
    claims=tuple(
        Claim(
            f"{x:g}:1: jobs within deadline under {series}",
            f"{published:g} %",
            about(Level(SUCCESS, series, x), published, 5.0),
        )
        for (series, x), published in _published(PUBLISHED[SUCCESS]).items()
    ),
    also=(REVENUE, *ALSO),
    size=FULL.words,
    quick_size=QUICK.words,
)
