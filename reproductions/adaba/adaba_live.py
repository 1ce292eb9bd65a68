"""AdaBa's Figure 4 live: a fat-tree accepts or refuses random jobs, and those
accepted move their bytes.
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

# The mean bandwidth per VM in Mbit/s.
X = 400.0
XS = (X,)


def _variant(series: str, mean_mbps: float, quick: bool) -> Variant:
    workload = settings(**{"bandwidth.mean": f"{mean_mbps:g} Mbit/s"})
    if quick:
        workload = (*workload, *settings(jobs=20))
    return Variant(
        file="adaba/adaba-live.yaml",
        policy="vc",
        settings=(("embedder", EMBEDDERS[series]), *workload),
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
    reduced=(
        "16 servers of 4 slots in place of 54 of 8, 80 jobs of 6 VMs on"
        " average in place of 1,000 of 8, a higher load, and parallel links"
        " that are not added up."
    ),
    seeds=1,
)
