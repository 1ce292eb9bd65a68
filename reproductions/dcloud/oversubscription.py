"""DCloud's Figure 7: how far the network is oversubscribed."""

from __future__ import annotations

from dataclasses import replace

from reproductions.claims import (
    POSITIVE,
    Band,
    Check,
    Claim,
    about,
    falls,
    gain_about,
    more,
    mostly,
)
from reproductions.dcloud.cell import DCloudCell
from reproductions.dcloud.grid import (
    ALSO,
    BL,
    BL_LEVEL,
    DCLOUD,
    FULL,
    LINK_USE,
    QUICK,
    REVENUE,
    SUCCESS,
    THREE,
    VC,
    VM_USE,
    WORK_AFTER,
    cell,
    panels,
)
from reproductions.figure import Figure
from reproductions.quantities import Change, Difference, Gain, GainGrowth, Level

SPLITS = {1.0: (1.0, 1.0), 2.0: (2.0, 1.0), 4.0: (4.0, 1.0), 8.0: (4.0, 2.0), 16.0: (16.0, 1.0)}
"""The racks' and the aggregation switches' ratios; only 8 is published (decision 0310)."""

TIMES = tuple(SPLITS)


def _oversubscribed(series: str, times: float, seed: int, quick: bool) -> DCloudCell:
    return replace(cell(series, seed, quick=quick), oversubscription=SPLITS[times])


PUBLISHED = {
    SUCCESS: {
        (DCLOUD, 1.0): 99.1,
        (VC, 1.0): 80.9,
        (BL, 1.0): 64.3,
        (DCLOUD, 16.0): 39.6,
        (VC, 16.0): 20.7,
        (BL, 16.0): 0.0,
    },
    VM_USE: {(DCLOUD, 1.0): 73.3, (VC, 1.0): 54.8, (BL, 1.0): 73.3, (DCLOUD, 2.0): 78.6},
    LINK_USE: {(DCLOUD, 1.0): 73.3, (VC, 1.0): 55.2, (BL, 1.0): 68.6},
}

FIGURE_7 = Figure(
    name="dcloud-fig7",
    title="The network oversubscription ratio",
    source="DCloud, Fig. 7",
    x_label="oversubscription ratio, n:1",
    xs=TIMES,
    series=THREE,
    cell=_oversubscribed,
    panels=panels(PUBLISHED),
    claims=(
        *(
            Claim(
                f"{x:g}:1: {measure} under {series}",
                f"{published:g} %",
                about(Level(measure, series, x), published, 5.0),
                remark=BL_LEVEL if series == BL else "",
            )
            for measure, points in PUBLISHED.items()
            for (series, x), published in points.items()
        ),
        Claim(
            "1:1: DCloud completes more jobs than VC, and VC more than BL",
            "DCloud > VC > BL",
            more(SUCCESS, DCLOUD, (VC,), TIMES[:1]) + more(SUCCESS, VC, (BL,), TIMES[:1]),
        ),
        Claim(
            "Fewer jobs succeed at higher ratios, under all three",
            "all fall",
            tuple(check for series in THREE for check in falls(SUCCESS, series, TIMES)),
        ),
        Claim(
            "DCloud completes more jobs than VC and BL at every ratio",
            "DCloud > VC, BL",
            more(SUCCESS, DCLOUD, (VC, BL), TIMES),
        ),
        Claim(
            "1:1: DCloud and BL accept all jobs, and use equally many VMs",
            "DCloud = BL",
            (Check(Difference(VM_USE, DCLOUD, BL, 1.0), Band(-2.0, 2.0)),),
        ),
        Claim(
            "BL's VM use reaches 100 % at larger ratios",
            "BL = 100 %",
            tuple(Check(Level(VM_USE, BL, x), Band(90.0, 110.0)) for x in TIMES[2:]),
            reading="90 to 110 % from 4:1 on; over 100 % because work after the 24 hours counts",
        ),
        Claim(
            "DCloud's VM use grows from 1:1 to 2:1",
            "+5.3 points",
            (Check(Change(VM_USE, DCLOUD, 1.0, 2.0), POSITIVE),),
        ),
        Claim(
            "DCloud's VM use falls above 2:1",
            "falls",
            falls(VM_USE, DCLOUD, TIMES[1:]),
            remark=WORK_AFTER,
        ),
        Claim("VC's VM use falls with the ratio", "falls", falls(VM_USE, VC, TIMES)),
        Claim(
            "VC uses fewer VMs than DCloud at every ratio",
            "VC < DCloud",
            more(VM_USE, DCLOUD, (VC,), TIMES),
        ),
        Claim(
            "Higher ratios lower the use of the servers' links",
            "all fall",
            tuple(check for series in THREE for check in falls(LINK_USE, series, TIMES)),
        ),
        Claim(
            "Revenue falls with the ratio",
            "all fall",
            tuple(check for series in THREE for check in falls(REVENUE, series, TIMES)),
        ),
        *(
            Claim(
                f"{x:g}:1: DCloud's revenue over {other}'s",
                f"{published:+,g} %",
                gain_about(REVENUE, DCLOUD, other, x, published),
                remark=BL_LEVEL if other == BL else "",
            )
            for x, other, published in (
                (1.0, VC, 19.7),
                (1.0, BL, 49.1),
                (16.0, VC, 52.2),
                (16.0, BL, 2012.0),
            )
        ),
        Claim(
            "The gap in revenue grows with the ratio",
            "grows",
            tuple(
                Check(GainGrowth(REVENUE, DCLOUD, other, 1.0, 16.0), POSITIVE) for other in (VC, BL)
            ),
        ),
        Claim(
            "In most scenarios DCloud completes more than twice VC's jobs",
            "> +100 %",
            mostly([Gain(SUCCESS, DCLOUD, VC, x) for x in TIMES], 100.0),
        ),
        Claim(
            "In most scenarios DCloud earns more than 50 % more than VC",
            "> +50 %",
            mostly([Gain(REVENUE, DCLOUD, VC, x) for x in TIMES], 50.0),
        ),
    ),
    also=ALSO,
    size=FULL.words,
    quick_size=QUICK.words,
)
