"""MBFCBS's Figures 4 and 5: the small cluster, beside the default of Haizea (Section 5.1)."""

from __future__ import annotations

from functools import partial

from reproductions.claims import Claim, more, mostly
from reproductions.figure import Figure, Panel
from reproductions.mbfcbs.cell import GREEDY_NAME, LeaseCell
from reproductions.quantities import Difference, Measure

MBFCBS, DEFAULT = "MBFCBS", "Haizea's default"
POLICIES = {MBFCBS: "mbfcbs", DEFAULT: GREEDY_NAME}
COUNTS = (10.0, 20.0, 30.0, 40.0)
BUSY = COUNTS[1:]
"""Ten leases are a load of 0.4: everything fits."""

ACCEPTED = Measure("accepted", "accepted leases", digits=1)
USE = Measure("use", "core use until the last end", "%", 100.0)
USE_EARLY = Measure("use_early", "core use while leases arrive", "%", 100.0)

SIZE = "4 hosts of 4 cores, leases of 1, 2 and 4 cores, 1 h on average; 40 leases are a load of 1.6"


def _cell(series: str, count: float, seed: int, quick: bool) -> LeaseCell:
    del quick  # it takes a second as it is
    return LeaseCell(
        POLICIES[series],
        seed,
        int(count),
        hosts=4,
        cores=4,
        advance=1.0 / 3.0,
        immediate=1.0 / 3.0,
        sizes=("small", "medium", "large"),
        memory=False,
        load=0.04 * count,
    )


_small = partial(
    Figure,
    x_label="leases",
    xs=COUNTS,
    series=tuple(POLICIES),
    cell=_cell,
    size=SIZE,
    quick_size=SIZE,
)

FIGURE_4 = _small(
    name="mbfcbs-fig4",
    title="Accepted requests in a small cluster",
    source="MBFCBS, Fig. 4",
    panels=(Panel(ACCEPTED),),
    claims=(
        Claim(
            "MBFCBS accepts more requests than Haizea's default",
            "more",
            more(ACCEPTED, MBFCBS, (DEFAULT,), BUSY),
            reading="from 20 leases on: ten are a load of 0.4",
        ),
        Claim(
            "MBFCBS accepts more at most numbers of requests",
            "more",
            mostly([Difference(ACCEPTED, MBFCBS, DEFAULT, x) for x in COUNTS], 0.0),
            reading="a weaker reading: ours, not the paper's",
        ),
    ),
)

FIGURE_5 = _small(
    name="mbfcbs-fig5",
    title="Utilisation of a small cluster",
    source="MBFCBS, Fig. 5",
    panels=(Panel(USE), Panel(USE_EARLY)),
    claims=(
        Claim(
            "MBFCBS uses the cluster better than Haizea's default",
            "more",
            more(USE, MBFCBS, (DEFAULT,), BUSY),
            reading="from 20 leases on",
        ),
        Claim(
            "While leases arrive too",
            "more",
            more(USE_EARLY, MBFCBS, (DEFAULT,), BUSY),
            reading="use up to the last arrival alone, from 20 leases on",
        ),
    ),
)
