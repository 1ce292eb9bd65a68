"""Figures that look for causes: how Figure 7's ratio is split between racks and
aggregation, what Figure 9's two halves of DCloud do with arrivals over a day,
what Figure 4's relax index costs at other loads, Figure 5's lead in revenue under
other distributions of the requests, and Figure 9's bandwidth scaling where every
job is scaled as far as it can be.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from reproductions.configuration import RunConfiguration
from reproductions.dcloud.dcloud_setup import (
    ALSO,
    BL,
    BS,
    DCLOUD,
    FULL,
    LINK_USE,
    PER_HOUR,
    QUICK,
    REVENUE,
    SUCCESS,
    TS,
    VC,
    VM_USE,
    arriving,
    configuration,
)
from reproductions.interpretation_rows import panels_of, rows_of
from reproductions.published_figure import Figure, Panel

_figure = partial(
    Figure, also=ALSO, size=FULL.words, quick_size=QUICK.words, seeds=5
)

# -- the ratio of 16:1 -----------------------------------------------------------

RATIO = 16.0
RACKS = (1.0, 2.0, 4.0, 8.0, 16.0)


def _split(
    series: str, racks: float, seed: int, quick: bool
) -> RunConfiguration:
    return configuration(
        series, seed, quick=quick, splits=(racks, RATIO / racks)
    )


SPLITS_OF_A_RATIO = _figure(
    name="dcloud-splits",
    title="An oversubscription of 16:1, split between racks and aggregation",
    source="DCloud, Fig. 7",
    x_label="the racks' ratio, n:1; the aggregation's is 16/n",
    xs=RACKS,
    series=(DCLOUD, VC),
    configuration=_split,
    panels=(Panel(SUCCESS), Panel(REVENUE)),
)

# -- time sliding and bandwidth scaling --------------------------------------------


HALVES = _figure(
    name="dcloud-halves",
    title="Time sliding and bandwidth scaling where jobs arrive over a day",
    source="DCloud, Fig. 9",
    x_label="jobs per hour by day, λ (8,000 servers)",
    xs=(80.0, PER_HOUR),
    series=(DCLOUD, TS, BS, VC),
    configuration=arriving,
    panels=(Panel(SUCCESS), Panel(REVENUE)),
)

# -- the relax index ---------------------------------------------------------------

INDICES = {"γ = 0": "0.0", "γ = 12 %": "0.12"}


def _relaxed(
    series: str, per_hour: float, seed: int, quick: bool
) -> RunConfiguration:
    return configuration(
        DCLOUD,
        seed,
        quick=quick,
        per_hour=per_hour,
        parameters={"gamma": INDICES[series]},
    )


INDEX_BY_LOAD = _figure(
    name="dcloud-index",
    title="What the profiling relax index costs at other loads",
    source="DCloud, Fig. 4",
    x_label="jobs per hour by day, λ (8,000 servers)",
    xs=(40.0, 80.0, PER_HOUR, 250.0),
    series=tuple(INDICES),
    configuration=_relaxed,
    panels=tuple(map(Panel, (SUCCESS, VM_USE, LINK_USE, REVENUE))),
)

# -- revenue where jobs have room ----------------------------------------------------

TWO = (DCLOUD, VC)
# Values of the workload's key ``reading``.
INTERPRETATIONS = ("G", "literal", "literal-clamped")
WITH_ROOM = rows_of(TWO, INTERPRETATIONS)


def _with_room(
    row: str, ratio: float, seed: int, quick: bool
) -> RunConfiguration:
    series, reading = WITH_ROOM[row]
    # Clamped are VMs, bandwidths and durations; deadlines are drawn again in
    # every interpretation.
    room = f"{{mean: {ratio}, rule: redraw}}"
    return configuration(
        series,
        seed,
        quick=quick,
        workload={"reading": reading, "deadline_ratio": room},
    )


LEAD_WITH_ROOM = _figure(
    name="dcloud-room",
    title="DCloud's lead where jobs have room, by the requests' distributions",
    source="DCloud, Fig. 5 (d)",
    x_label="mean deadline extension ratio r̄",
    xs=(20.0,),
    series=tuple(WITH_ROOM),
    configuration=_with_room,
    panels=panels_of(REVENUE, TWO, INTERPRETATIONS),
    also=(SUCCESS, *ALSO),
)

# -- bandwidth scaling -----------------------------------------------------------------

LEAST = "least bandwidth"
_LEAST_ENTRY = "{class: ./least_bandwidth.py:LeastBandwidth, gamma: 0.12}"


def _with_least(series: str, run: RunConfiguration) -> RunConfiguration:
    """The run, under the policy of its own where the series has that."""
    if series != LEAST:
        return run
    return replace(run, variant=replace(run.variant, policy=_LEAST_ENTRY))


def _scaled_at_once(
    series: str, count: float, seed: int, quick: bool
) -> RunConfiguration:
    policy = BS if series == LEAST else series
    run = configuration(policy, seed, quick=quick, batch=count)
    return _with_least(series, run)


LEAST_IN_A_BATCH = _figure(
    name="dcloud-least",
    title="A batch whose jobs all have the least bandwidth",
    source="DCloud, Fig. 9 (b)",
    x_label="jobs in the batch (8,000 servers)",
    xs=(200.0, 500.0),
    series=(BS, LEAST, VC, BL),
    configuration=_scaled_at_once,
    panels=(Panel(SUCCESS), Panel(REVENUE)),
)


def _scaled_by_day(
    series: str, per_hour: float, seed: int, quick: bool
) -> RunConfiguration:
    policy = BS if series == LEAST else series
    return _with_least(series, arriving(policy, per_hour, seed, quick))


LEAST_BY_DAY = _figure(
    name="dcloud-least-day",
    title="Arrivals over a day whose jobs all have the least bandwidth",
    source="DCloud, Fig. 9 (b)",
    x_label="jobs per hour by day, λ (8,000 servers)",
    xs=(PER_HOUR,),
    series=(BS, LEAST, VC),
    configuration=_scaled_by_day,
    panels=(Panel(SUCCESS), Panel(REVENUE)),
)
