"""AdaBa live: random jobs that a fat-tree accepts or refuses, and that move
their bytes.
"""

from __future__ import annotations

from reproductions.adaba.adaba_acceptance import EMBEDDERS, SERIES
from reproductions.configuration import Variant, settings
from reproductions.live_figure import (
    ACCEPTED,
    BESIDE,
    FIDELITY,
    MEDIAN,
    P95,
    SLOTS,
    WORST,
    LiveFigure,
    simulated,
)
from reproductions.published_figure import Panel

X = 400.0
XS = (X,)


def _variant(series: str, x: float, quick: bool) -> Variant:
    values = settings(**{"bandwidth.mean": f"{x:g} Mbit/s"})
    if quick:
        values = (*values, *settings(jobs=20))
    return Variant(
        "adaba/adaba-live.yaml",
        "vc",
        (("embedder", EMBEDDERS[series]), *values),
    )


FIGURE_4_LIVE = LiveFigure(
    name="adaba-fig4",
    title="Accepted jobs on a live fat-tree",
    source="AdaBa, Fig. 4",
    x_label="mean bandwidth per VM [Mbit/s]",
    xs=XS,
    series=SERIES,
    variant=_variant,
    panels=(
        Panel(ACCEPTED),
        Panel(SLOTS),
        Panel(simulated(ACCEPTED)),
        Panel(simulated(SLOTS)),
    ),
    also=BESIDE,
    printed=(
        ACCEPTED,
        simulated(ACCEPTED),
        MEDIAN,
        P95,
        WORST,
        FIDELITY,
    ),
    size=(
        "fat-tree of 16 servers × 4 slots; 80 random jobs of 6 VMs on average,"
        " of 20 minutes at least, load 0.8, live"
    ),
    quick_size="the same with 20 jobs, live",
    reduced="16 servers in place of 54, 80 jobs in place of 1,000, and a higher load.",
    seeds=1,
)
