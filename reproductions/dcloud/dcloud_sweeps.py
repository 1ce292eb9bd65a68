"""DCloud's Figures 4 to 7: relax index, deadlines, bandwidth per VM,
oversubscription.
"""

from __future__ import annotations

from reproductions.configuration import RunConfiguration
from reproductions.dcloud.dcloud_setup import (
    ALSO,
    DCLOUD,
    FULL,
    QUICK,
    REJECTED,
    THREE,
    configuration,
    panels,
)
from reproductions.published_figure import Figure

# -- Figure 4 ------------------------------------------------------------------


def _relaxed(
    series: str, gamma: float, seed: int, quick: bool
) -> RunConfiguration:
    return configuration(
        series, seed, quick=quick, parameters={"gamma": f"{gamma / 100.0}"}
    )


FIGURE_4 = Figure(
    name="dcloud-fig4",
    title="Impact of the profiling relax index",
    source="DCloud, Fig. 4",
    x_label="profiling relax index γ [%]",
    xs=(0.0, 3.0, 6.0, 9.0, 12.0),
    series=(DCLOUD,),
    configuration=_relaxed,
    panels=panels(),
    also=ALSO,
    size=FULL.words,
    quick_size=QUICK.words,
)

# -- Figure 5 ------------------------------------------------------------------

RATIOS = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0)


def _extended(
    series: str, ratio: float, seed: int, quick: bool
) -> RunConfiguration:
    # r = 1 leaves no job room: nothing is drawn.
    ratios = f"{{mean: {ratio}}}"
    if ratio == 1.0:
        ratios = "{mean: 1, sigma: 0}"
    return configuration(
        series, seed, quick=quick, workload={"deadline_ratio": ratios}
    )


FIGURE_5 = Figure(
    name="dcloud-fig5",
    title="The jobs' expected deadline extension ratio",
    source="DCloud, Fig. 5",
    x_label="mean deadline extension ratio r̄",
    xs=RATIOS,
    series=THREE,
    configuration=_extended,
    panels=panels(),
    also=ALSO,
    size=FULL.words,
    quick_size=QUICK.words,
)

# -- Figure 6 ------------------------------------------------------------------

MBPS = (50.0, 100.0, 150.0, 200.0, 250.0, 300.0, 350.0, 400.0, 450.0, 500.0)


def _requested(
    series: str, mbps: float, seed: int, quick: bool
) -> RunConfiguration:
    return configuration(
        series,
        seed,
        quick=quick,
        workload={"bandwidth.mean": f"{mbps:g} Mbit/s"},
    )


FIGURE_6 = Figure(
    name="dcloud-fig6",
    title="The mean requested bandwidth per VM",
    source="DCloud, Fig. 6",
    x_label="mean bandwidth per VM b̄ [Mbit/s]",
    xs=MBPS,
    series=THREE,
    configuration=_requested,
    panels=panels(),
    also=ALSO,
    size=FULL.words,
    quick_size=QUICK.words,
)

# -- Figure 7 ------------------------------------------------------------------

# The racks' and the aggregation switches' ratios; only 8 is published
# (decision 23).
SPLITS = {
    1.0: (1.0, 1.0),
    2.0: (2.0, 1.0),
    4.0: (4.0, 1.0),
    8.0: (4.0, 2.0),
    16.0: (16.0, 1.0),
}

TIMES = tuple(SPLITS)


def _oversubscribed(
    series: str, times: float, seed: int, quick: bool
) -> RunConfiguration:
    return configuration(series, seed, quick=quick, splits=SPLITS[times])


FIGURE_7 = Figure(
    name="dcloud-fig7",
    title="The network oversubscription ratio",
    source="DCloud, Fig. 7",
    x_label="oversubscription ratio, n:1",
    xs=TIMES,
    series=THREE,
    configuration=_oversubscribed,
    panels=panels(),
    also=(REJECTED, *ALSO),
    size=FULL.words,
    quick_size=QUICK.words,
)
