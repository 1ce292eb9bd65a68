"""DCloud's Figures 4 to 7: relax index, deadlines, bandwidth per VM,
oversubscription.
"""

from __future__ import annotations

from reproductions.claim_checks import (
    NEGATIVE,
    POSITIVE,
    Band,
    Check,
    Claim,
    about,
    alike,
    constant,
    falls,
    gain_about,
    more,
    mostly,
    rises,
)
from reproductions.configuration import RunConfiguration
from reproductions.dcloud.dcloud_setup import (
    ALSO,
    BL,
    BL_LEVEL,
    DCLOUD,
    FULL,
    LINK_USE,
    QUICK,
    REVENUE,
    SCARCE,
    SUCCESS,
    THREE,
    VC,
    VM_USE,
    WORK_AFTER,
    configuration,
    panels,
)
from reproductions.grid_quantities import (
    Change,
    Difference,
    Gain,
    GainGrowth,
    Level,
    Measure,
)
from reproductions.published_figure import Figure

ALL_FOUR = (SUCCESS, VM_USE, LINK_USE, REVENUE)

# -- Figure 4 ------------------------------------------------------------------


def _relaxed(
    series: str, gamma: float, seed: int, quick: bool
) -> RunConfiguration:
    return configuration(
        series, seed, quick=quick, parameters=f"gamma: {gamma / 100.0}"
    )


def _drop(measure: Measure, published: float) -> Claim:
    return Claim(
        f"γ from 0 to 12 % changes {measure}",
        f"{published:+g} %",
        about(
            Change(measure, DCLOUD, 0.0, 12.0, relative=True),
            published,
            2.0,
        ),
        interpretation="in percent of the value at γ = 0",
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
    claims=(
        Claim(
            "The index has only minor impact on all four metrics",
            "2 to 4 % less",
            tuple(
                Check(
                    Change(m, DCLOUD, 0.0, 12.0, relative=True),
                    Band(-6.0, 6.0),
                )
                for m in ALL_FOUR
            ),
        ),
        _drop(SUCCESS, -2.8),
        _drop(REVENUE, -4.0),
        _drop(VM_USE, -3.5),
        _drop(LINK_USE, -2.0),
    ),
    also=ALSO,
    size=FULL.words,
    quick_size=QUICK.words,
)

# -- Figure 5 ------------------------------------------------------------------

RATIOS = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0)


def _extended(
    series: str, ratio: float, seed: int, quick: bool
) -> RunConfiguration:
    # Only here is r clamped: redrawn, a mean of 1 would leave every job room.
    ratios = f"{{mean: {ratio}, rule: clamp}}"
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
    claims=(
        Claim(
            "Without room (r̄ = 1) DCloud performs as VC does",
            "DCloud = VC",
            tuple(
                c
                for m in (SUCCESS, VM_USE)
                for c in alike(m, DCLOUD, VC, RATIOS[:1], 2.0)
            ),
            interpretation="within 2 points",
        ),
        Claim(
            "Without room BL is the worst of the three",
            "BL < VC, DCloud",
            more(SUCCESS, VC, (BL,), RATIOS[:1])
            + more(SUCCESS, DCLOUD, (BL,), RATIOS[:1]),
        ),
        Claim(
            "DCloud completes more jobs with larger r̄",
            "rises",
            rises(SUCCESS, DCLOUD, RATIOS),
        ),
        Claim(
            "BL completes more jobs with larger r̄",
            "rises",
            rises(SUCCESS, BL, RATIOS),
        ),
        Claim(
            "r̄ has almost no impact on VC",
            "flat",
            constant(SUCCESS, VC, RATIOS, 2.0)
            + constant(VM_USE, VC, RATIOS, 2.0),
        ),
        Claim(
            "VC accepts far fewer jobs than DCloud",
            "VC < DCloud",
            more(SUCCESS, DCLOUD, (VC,), RATIOS[2:], by=10.0),
            interpretation="by over 10 points from r̄ = 5 on",
        ),
        Claim(
            "r̄ = 20: DCloud finishes about 40 % more jobs than VC",
            "+40 %",
            about(Difference(SUCCESS, DCLOUD, VC, 20.0), 40.0, 10.0),
            interpretation="40 points: at VC's level 40 % more would be below DCloud's at r̄ = 10",
        ),
        Claim(
            "r̄ = 20: DCloud finishes about 80 % more jobs than BL",
            "+80 %",
            about(Difference(SUCCESS, DCLOUD, BL, 20.0), 80.0, 10.0),
            interpretation="80 points",
            remark=BL_LEVEL,
        ),
        Claim(
            "BL has the highest VM use, close to 100 %",
            "BL ≈ 100 %",
            more(VM_USE, BL, (DCLOUD, VC), RATIOS)
            + tuple(
                Check(Level(VM_USE, BL, x), Band(90.0, 110.0))
                for x in RATIOS
            ),
            remark=WORK_AFTER,
        ),
        Claim(
            "BL's VM use is not affected by r̄",
            "flat",
            constant(VM_USE, BL, RATIOS, 5.0),
        ),
        Claim(
            "DCloud uses more VMs than VC",
            "DCloud > VC",
            more(VM_USE, DCLOUD, (VC,), RATIOS[1:]),
        ),
        Claim(
            "DCloud's VM use grows with r̄",
            "rises",
            rises(VM_USE, DCLOUD, RATIOS),
        ),
        Claim(
            "r̄ = 20: DCloud's VM use is almost three times VC's",
            "almost 3 ×",
            gain_about(VM_USE, DCLOUD, VC, 20.0, 190.0),
            interpretation="2.9 times, that is +190 %",
            remark=WORK_AFTER,
        ),
        Claim(
            "VC and BL use the servers' links alike",
            "VC ≈ BL",
            alike(LINK_USE, VC, BL, RATIOS, 5.0),
            interpretation="within 5 points",
        ),
        Claim(
            "Both use the servers' links less than DCloud",
            "DCloud > VC, BL",
            more(LINK_USE, DCLOUD, (VC, BL), RATIOS[1:]),
        ),
        Claim(
            "DCloud earns more than VC and BL",
            "DCloud > VC, BL",
            more(REVENUE, DCLOUD, (VC, BL), RATIOS[1:]),
        ),
        Claim(
            "BL earns least",
            "BL < VC",
            more(REVENUE, VC, (BL,), RATIOS),
            remark=BL_LEVEL,
        ),
        Claim(
            "r̄ = 20: DCloud's revenue over VC's",
            "+76.7 %",
            gain_about(REVENUE, DCLOUD, VC, 20.0, 76.7),
        ),
        Claim(
            "r̄ = 20: DCloud's revenue over BL's",
            "+1,156 %",
            gain_about(REVENUE, DCLOUD, BL, 20.0, 1156.0),
            remark=BL_LEVEL,
        ),
        Claim(
            "In most scenarios DCloud completes more than twice VC's jobs",
            "> +100 %",
            mostly([Gain(SUCCESS, DCLOUD, VC, x) for x in RATIOS], 100.0),
        ),
        Claim(
            "In most scenarios DCloud earns more than 50 % more than VC",
            "> +50 %",
            mostly([Gain(REVENUE, DCLOUD, VC, x) for x in RATIOS], 50.0),
        ),
    ),
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
    claims=(
        Claim(
            "Larger bandwidths: fewer jobs succeed, under all three",
            "all fall",
            tuple(
                check
                for series in THREE
                for check in falls(SUCCESS, series, MBPS)
            ),
        ),
        Claim(
            "DCloud completes more jobs than VC and BL at every bandwidth",
            "DCloud > VC, BL",
            more(SUCCESS, DCLOUD, (VC, BL), MBPS),
        ),
        Claim(
            "VC's VM use falls with larger bandwidths",
            "falls",
            falls(VM_USE, VC, MBPS),
        ),
        Claim(
            "DCloud's VM use falls up to 450 Mbit/s",
            "falls",
            (Check(Change(VM_USE, DCLOUD, 50.0, 450.0), NEGATIVE),),
            remark=WORK_AFTER,
        ),
        Claim(
            "DCloud's VM use turns up above 450 Mbit/s",
            "rises",
            (Check(Change(VM_USE, DCLOUD, 450.0, 500.0), POSITIVE),),
        ),
        Claim(
            "BL has the highest VM use",
            "BL > DCloud > VC",
            more(VM_USE, BL, (DCLOUD,), MBPS)
            + more(VM_USE, DCLOUD, (VC,), MBPS),
        ),
        Claim(
            "DCloud uses the servers' links most",
            "DCloud > VC, BL",
            more(LINK_USE, DCLOUD, (VC, BL), MBPS),
        ),
        Claim(
            "DCloud's link use slowly decreases with larger bandwidths",
            "falls",
            (Check(Change(LINK_USE, DCLOUD, 250.0, 500.0), NEGATIVE),),
            interpretation="from 250 Mbit/s on: below, demand is the limit and not the network",
        ),
        *(
            Claim(
                f"b̄ = {mbps:g} Mbit/s: DCloud's revenue over {other}'s",
                f"{published:+,g} %",
                gain_about(REVENUE, DCLOUD, other, mbps, published),
                remark=SCARCE
                if mbps < 100
                else BL_LEVEL
                if other == BL
                else "",
            )
            for mbps, other, published in (
                (50.0, VC, 63.8),
                (50.0, BL, 926.0),
                (500.0, VC, 87.0),
                (500.0, BL, 2170.0),
            )
        ),
        Claim(
            "DCloud's advantage over VC and BL grows with the bandwidth",
            "grows",
            tuple(
                Check(
                    GainGrowth(REVENUE, DCLOUD, other, 50.0, 500.0),
                    POSITIVE,
                )
                for other in (VC, BL)
            ),
        ),
        Claim(
            "In most scenarios DCloud completes more than twice VC's jobs",
            "> +100 %",
            mostly([Gain(SUCCESS, DCLOUD, VC, x) for x in MBPS], 100.0),
        ),
        Claim(
            "In most scenarios DCloud earns more than 50 % more than VC",
            "> +50 %",
            mostly([Gain(REVENUE, DCLOUD, VC, x) for x in MBPS], 50.0),
        ),
    ),
    also=ALSO,
    size=FULL.words,
    quick_size=QUICK.words,
)

# -- Figure 7 ------------------------------------------------------------------

SPLITS = {
    1.0: (1.0, 1.0),
    2.0: (2.0, 1.0),
    4.0: (4.0, 1.0),
    8.0: (4.0, 2.0),
    16.0: (16.0, 1.0),
}
"""The racks' and the aggregation switches' ratios; only 8 is published
(decision 23).
"""

TIMES = tuple(SPLITS)


def _oversubscribed(
    series: str, times: float, seed: int, quick: bool
) -> RunConfiguration:
    return configuration(series, seed, quick=quick, splits=SPLITS[times])


PUBLISHED = {
    SUCCESS: {
        (DCLOUD, 1.0): 99.1,
        (VC, 1.0): 80.9,
        (BL, 1.0): 64.3,
        (DCLOUD, 16.0): 39.6,
        (VC, 16.0): 20.7,
        (BL, 16.0): 0.0,
    },
    VM_USE: {
        (DCLOUD, 1.0): 73.3,
        (VC, 1.0): 54.8,
        (BL, 1.0): 73.3,
        (DCLOUD, 2.0): 78.6,
    },
    LINK_USE: {(DCLOUD, 1.0): 73.3, (VC, 1.0): 55.2, (BL, 1.0): 68.6},
}

FIGURE_7 = Figure(
    name="dcloud-fig7",
    title="The network oversubscription ratio",
    source="DCloud, Fig. 7",
    x_label="oversubscription ratio, n:1",
    xs=TIMES,
    series=THREE,
    configuration=_oversubscribed,
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
            more(SUCCESS, DCLOUD, (VC,), TIMES[:1])
            + more(SUCCESS, VC, (BL,), TIMES[:1]),
        ),
        Claim(
            "Fewer jobs succeed at higher ratios, under all three",
            "all fall",
            tuple(
                check
                for series in THREE
                for check in falls(SUCCESS, series, TIMES)
            ),
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
            tuple(
                Check(Level(VM_USE, BL, x), Band(90.0, 110.0))
                for x in TIMES[2:]
            ),
            interpretation="90 to 110 % from 4:1 on; work after the 24 hours counts too",
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
        Claim(
            "VC's VM use falls with the ratio",
            "falls",
            falls(VM_USE, VC, TIMES),
        ),
        Claim(
            "VC uses fewer VMs than DCloud at every ratio",
            "VC < DCloud",
            more(VM_USE, DCLOUD, (VC,), TIMES),
        ),
        Claim(
            "Higher ratios lower the use of the servers' links",
            "all fall",
            tuple(
                check
                for series in THREE
                for check in falls(LINK_USE, series, TIMES)
            ),
        ),
        Claim(
            "Revenue falls with the ratio",
            "all fall",
            tuple(
                check
                for series in THREE
                for check in falls(REVENUE, series, TIMES)
            ),
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
                Check(
                    GainGrowth(REVENUE, DCLOUD, other, 1.0, 16.0), POSITIVE
                )
                for other in (VC, BL)
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
