"""DCloud's Figures 8 and 9, the rate of arrivals and batches, and other
interpretations of both.

The paper says of BL that VMs compete "using TCP", and not who sends to whom; of
the requests that they are normal with deviations that make a quarter to two
fifths of the values negative. Two figures show what interpretations other than
ours would give.
"""

from __future__ import annotations

from reproductions.configuration import RunConfiguration
from reproductions.dcloud.dcloud_setup import (
    ALSO,
    BL,
    BS,
    DCLOUD,
    FULL,
    QUICK,
    REVENUE,
    SUCCESS,
    THREE,
    TS,
    VC,
    VM_USE,
    arriving,
    configuration,
    panels,
)
from reproductions.dcloud.dcloud_sweeps import FIGURE_7, SPLITS
from reproductions.grid_quantities import Measure
from reproductions.interpretation_rows import panels_of, rows_of
from reproductions.interpretations import Parameters
from reproductions.published_figure import Figure, Panel, Point
from reproductions.published_values import published_points

# -- Figure 8 ------------------------------------------------------------------

RATES = (20.0, 40.0, 80.0, 120.0, 160.0, 200.0, 250.0)


FIGURE_8 = Figure(
    name="dcloud-fig8",
    title="The job arrival rate",
    source="DCloud, Fig. 8",
    x_label="jobs per hour by day, λ (8,000 servers)",
    xs=RATES,
    series=THREE,
    configuration=arriving,
    panels=panels(),
    also=ALSO,
    size=FULL.words,
    quick_size=QUICK.words,
)

# -- Figure 9 ------------------------------------------------------------------

BATCHES = (50.0, 100.0, 200.0, 300.0, 400.0, 500.0)


def _at_once(
    series: str, count: float, seed: int, quick: bool
) -> RunConfiguration:
    return configuration(series, seed, quick=quick, batch=count)


FIGURE_9 = Figure(
    name="dcloud-fig9",
    title="Batch processing: all jobs arrive at once",
    source="DCloud, Fig. 9",
    x_label="jobs in the batch (8,000 servers)",
    xs=BATCHES,
    series=(*THREE, TS, BS),
    configuration=_at_once,
    panels=(Panel(SUCCESS), Panel(REVENUE)),
    also=ALSO,
    size=FULL.words,
    quick_size=QUICK.words,
)

# -- BL ------------------------------------------------------------------------

TAKEN = "permutation, independent"
UNEXTENDED = "permutation, no extension (d = p)"
SLOWEST_FLOW = {"coupling": "slowest"}
# Parameters of the policy, and values of the workload section. Even shares
# are a link's capacity over its flows; without a cap a VM sends as fast as
# its link.
WAYS: dict[str, tuple[Parameters, dict[str, object]]] = {
    "permutation, slowest flow": (SLOWEST_FLOW, {}),
    "permutation, coupled flows": ({"coupling": "lockstep"}, {}),
    TAKEN: ({}, {}),
    "ring, slowest flow": (SLOWEST_FLOW, {"pattern": "ring"}),
    "all-to-all, slowest flow": (SLOWEST_FLOW, {"pattern": "all-to-all"}),
    "permutation, independent, no cap": ({"capped": "false"}, {}),
    "permutation, independent, even shares": ({"allocation": "even"}, {}),
    "permutation, slowest flow, even shares": (
        {**SLOWEST_FLOW, "allocation": "even"},
        {},
    ),
    UNEXTENDED: (
        SLOWEST_FLOW,
        {"deadline_ratio": "{mean: 1, sigma: 0, rule: clamp}"},
    ),
}
# The rate for which the paper gives a number.
BL_RATES = (80.0,)


def _competing(
    way: str, per_hour: float, seed: int, quick: bool
) -> RunConfiguration:
    parameters, workload = WAYS[way]
    return configuration(
        BL,
        seed,
        quick=quick,
        per_hour=per_hour,
        parameters=parameters,
        workload=workload,
    )


BL_INTERPRETATIONS = Figure(
    name="dcloud-bl",
    title="BL under other interpretations of traffic, TCP and deadlines",
    source="DCloud, Fig. 8 (BL)",
    x_label="jobs per hour by day, λ (8,000 servers)",
    xs=BL_RATES,
    series=tuple(WAYS),
    configuration=_competing,
    panels=(Panel(SUCCESS), Panel(VM_USE)),
    also=(REVENUE, *ALSO),
    size=FULL.words,
    quick_size=QUICK.words,
)

# -- revenue ---------------------------------------------------------------------

# Placements and distributions of requests.
LEADS: dict[str, tuple[Parameters, dict[str, object]]] = {
    "as judged": ({}, {}),
    "exact": ({"embedder": "exact"}, {}),
    "literal": ({}, {"reading": "literal"}),
    # As in the figure of the requests, deadlines are drawn again.
    "literal-clamped": (
        {},
        {"reading": "literal-clamped", "deadline_ratio": "{rule: redraw}"},
    ),
}
TWO = (DCLOUD, VC)
EARNING = rows_of(TWO, LEADS)
EARNING_MBPS = (50.0, 250.0, 500.0)


def _earned(
    row: str, mbps: float, seed: int, quick: bool
) -> RunConfiguration:
    del quick  # placing exactly takes minutes a run in 8,000 servers
    series, name = EARNING[row]
    parameters, workload = LEADS[name]
    bandwidth = {"bandwidth.mean": f"{mbps:g} Mbit/s"}
    return configuration(
        series,
        seed,
        quick=True,
        parameters=parameters,
        workload={**workload, **bandwidth},
    )


REVENUE_INTERPRETATIONS = Figure(
    name="dcloud-revenue",
    title=(
        "DCloud's lead in revenue under other placements and distributions"
    ),
    source="DCloud, Fig. 6 (d)",
    x_label="mean bandwidth per VM b̄ [Mbit/s]",
    xs=EARNING_MBPS,
    series=tuple(EARNING),
    configuration=_earned,
    panels=panels_of(REVENUE, TWO, LEADS),
    also=(SUCCESS, *ALSO),
    size=QUICK.words,
    quick_size=QUICK.words,
    seeds=5,
)

# -- requests ------------------------------------------------------------------

# The interpretations are values of the key ``reading``.
DRAWS = rows_of(TWO, ("G", "literal", "literal-clamped"))
TIMES = (1.0, 16.0)


def _drawn(
    series: str, times: float, seed: int, quick: bool
) -> RunConfiguration:
    policy, reading = DRAWS[series]
    # Clamped are VMs, bandwidths and durations; deadlines are drawn again
    # in every interpretation.
    values = {"reading": reading, "deadline_ratio": "{rule: redraw}"}
    return configuration(
        policy, seed, quick=quick, splits=SPLITS[times], workload=values
    )


def _published(measure: Measure) -> dict[Point, float]:
    """The values that are published for Figure 7, whatever the requests."""
    known = published_points(FIGURE_7, measure)
    values = {}
    for series, (policy, _) in DRAWS.items():
        for x in TIMES:
            if (policy, x) in known:
                values[series, x] = known[policy, x]
    return values


REQUESTS = Figure(
    name="dcloud-requests",
    title=(
        "DCloud and VC under other interpretations of the requests' "
        "distributions"
    ),
    source="DCloud, Fig. 7 (a), (b)",
    x_label="oversubscription ratio, n:1",
    xs=TIMES,
    series=tuple(DRAWS),
    configuration=_drawn,
    panels=(
        Panel(SUCCESS, _published(SUCCESS)),
        Panel(VM_USE, _published(VM_USE)),
    ),
    also=(REVENUE, *ALSO),
    size=FULL.words,
    quick_size=QUICK.words,
)
