"""DCloud's Figures 4 to 6: the profiling relax index, deadlines, and bandwidth per VM."""

from __future__ import annotations

from dataclasses import replace

from reproductions.claims import (
    NEGATIVE,
    POSITIVE,
    Band,
    Check,
    Claim,
    about,
    alike,
    falls,
    gain_about,
    more,
    mostly,
    rises,
    steady,
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
    SCARCE,
    SUCCESS,
    THREE,
    VC,
    VM_USE,
    WORK_AFTER,
    cell,
    panels,
)
from reproductions.figure import Figure
from reproductions.quantities import Change, Difference, Gain, GainGrowth, Level, Measure

ALL_FOUR = (SUCCESS, VM_USE, LINK_USE, REVENUE)

# -- Figure 4 -------------------------------------------------------------------------------------


def _relaxed(series: str, gamma: float, seed: int, quick: bool) -> DCloudCell:
    return replace(cell(series, seed, quick=quick), gamma=gamma / 100.0)


def _drop(measure: Measure, published: float) -> Claim:
    return Claim(
        f"γ from 0 to 12 % changes {measure}",
        f"{published:+g} %",
        about(Change(measure, DCLOUD, 0.0, 12.0, relative=True), published, 2.0),
        reading="in percent of the value at γ = 0",
    )


FIGURE_4 = Figure(
    name="dcloud-fig4",
    title="Impact of the profiling relax index",
    source="DCloud, Fig. 4",
    x_label="profiling relax index γ [%]",
    xs=(0.0, 3.0, 6.0, 9.0, 12.0),
    series=(DCLOUD,),
    cell=_relaxed,
    panels=panels(),
    claims=(
        Claim(
            "The index has only minor impact on all four metrics",
            "2 to 4 % less",
            tuple(
                Check(Change(m, DCLOUD, 0.0, 12.0, relative=True), Band(-6.0, 6.0))
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

# -- Figure 5 -------------------------------------------------------------------------------------

RATIOS = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0)


def _extended(series: str, ratio: float, seed: int, quick: bool) -> DCloudCell:
    # Only here is r clamped: redrawn, a mean of 1 would leave every job room (decision 0401).
    return replace(cell(series, seed, quick=quick), ratio=ratio, ratio_rule="clamp")


FIGURE_5 = Figure(
    name="dcloud-fig5",
    title="The jobs' expected deadline extension ratio",
    source="DCloud, Fig. 5",
    x_label="mean deadline extension ratio r̄",
    xs=RATIOS,
    series=THREE,
    cell=_extended,
    panels=panels(),
    claims=(
        Claim(
            "Without room (r̄ = 1) DCloud performs as VC does",
            "DCloud = VC",
            tuple(c for m in (SUCCESS, VM_USE) for c in alike(m, DCLOUD, VC, RATIOS[:1], 2.0)),
            reading="within 2 points",
        ),
        Claim(
            "Without room BL is the worst of the three",
            "BL < VC, DCloud",
            more(SUCCESS, VC, (BL,), RATIOS[:1]) + more(SUCCESS, DCLOUD, (BL,), RATIOS[:1]),
        ),
        Claim("DCloud completes more jobs with larger r̄", "rises", rises(SUCCESS, DCLOUD, RATIOS)),
        Claim("BL completes more jobs with larger r̄", "rises", rises(SUCCESS, BL, RATIOS)),
        Claim(
            "r̄ has almost no impact on VC",
            "flat",
            steady(SUCCESS, VC, RATIOS, 2.0) + steady(VM_USE, VC, RATIOS, 2.0),
        ),
        Claim(
            "VC accepts far fewer jobs than DCloud",
            "VC < DCloud",
            more(SUCCESS, DCLOUD, (VC,), RATIOS[2:], by=10.0),
            reading="by over 10 points from r̄ = 5 on",
        ),
        Claim(
            "r̄ = 20: DCloud finishes about 40 % more jobs than VC",
            "+40 %",
            about(Difference(SUCCESS, DCLOUD, VC, 20.0), 40.0, 10.0),
            reading="40 points: at VC's level 40 % more would be below DCloud's at r̄ = 10",
        ),
        Claim(
            "r̄ = 20: DCloud finishes about 80 % more jobs than BL",
            "+80 %",
            about(Difference(SUCCESS, DCLOUD, BL, 20.0), 80.0, 10.0),
            reading="80 points",
            remark=BL_LEVEL,
        ),
        Claim(
            "BL has the highest VM use, close to 100 %",
            "BL ≈ 100 %",
            more(VM_USE, BL, (DCLOUD, VC), RATIOS)
            + tuple(Check(Level(VM_USE, BL, x), Band(90.0, 110.0)) for x in RATIOS),
            remark=WORK_AFTER,
        ),
        Claim("BL's VM use is not affected by r̄", "flat", steady(VM_USE, BL, RATIOS, 5.0)),
        Claim(
            "DCloud uses more VMs than VC",
            "DCloud > VC",
            more(VM_USE, DCLOUD, (VC,), RATIOS[1:]),
        ),
        Claim("DCloud's VM use grows with r̄", "rises", rises(VM_USE, DCLOUD, RATIOS)),
        Claim(
            "r̄ = 20: DCloud's VM use is almost three times VC's",
            "almost 3 ×",
            gain_about(VM_USE, DCLOUD, VC, 20.0, 190.0),
            reading="2.9 times, that is +190 %",
            remark=WORK_AFTER,
        ),
        Claim(
            "VC and BL use the servers' links alike",
            "VC ≈ BL",
            alike(LINK_USE, VC, BL, RATIOS, 5.0),
            reading="within 5 points",
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

# -- Figure 6 -------------------------------------------------------------------------------------

MBPS = (50.0, 100.0, 150.0, 200.0, 250.0, 300.0, 350.0, 400.0, 450.0, 500.0)


def _requested(series: str, mbps: float, seed: int, quick: bool) -> DCloudCell:
    return replace(cell(series, seed, quick=quick), bandwidth_bps=mbps * 1e6)


FIGURE_6 = Figure(
    name="dcloud-fig6",
    title="The mean requested bandwidth per VM",
    source="DCloud, Fig. 6",
    x_label="mean bandwidth per VM b̄ [Mbit/s]",
    xs=MBPS,
    series=THREE,
    cell=_requested,
    panels=panels(),
    claims=(
        Claim(
            "Larger bandwidths: fewer jobs succeed, under all three",
            "all fall",
            tuple(check for series in THREE for check in falls(SUCCESS, series, MBPS)),
        ),
        Claim(
            "DCloud completes more jobs than VC and BL at every bandwidth",
            "DCloud > VC, BL",
            more(SUCCESS, DCLOUD, (VC, BL), MBPS),
        ),
        Claim("VC's VM use falls with larger bandwidths", "falls", falls(VM_USE, VC, MBPS)),
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
            more(VM_USE, BL, (DCLOUD,), MBPS) + more(VM_USE, DCLOUD, (VC,), MBPS),
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
            reading="from 250 Mbit/s on: below, demand and not the network is what limits it",
        ),
        *(
            Claim(
                f"b̄ = {mbps:g} Mbit/s: DCloud's revenue over {other}'s",
                f"{published:+,g} %",
                gain_about(REVENUE, DCLOUD, other, mbps, published),
                remark=SCARCE if mbps < 100 else BL_LEVEL if other == BL else "",
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
                Check(GainGrowth(REVENUE, DCLOUD, other, 50.0, 500.0), POSITIVE)
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
