"""DCloud's Figures 8 and 9, the rate of arrivals and batches, and other
interpretations of both.

The paper says of BL that VMs compete "using TCP", and not who sends to whom; of
the requests that they are normal with deviations that make a quarter to two
fifths of the values negative. Two figures show what interpretations other than
ours would give.
"""

from __future__ import annotations

from reproductions.claim_checks import (
    NEGATIVE,
    Band,
    Check,
    Claim,
    about,
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
    BS,
    DCLOUD,
    FULL,
    LINK_USE,
    QUICK,
    REVENUE,
    SLOWEST,
    SUCCESS,
    THREE,
    TS,
    VC,
    VM_USE,
    configuration,
    panels,
)
from reproductions.dcloud.dcloud_sweeps import PUBLISHED, SPLITS
from reproductions.grid_quantities import (
    Change,
    Difference,
    Gain,
    LeastStep,
    Level,
)
from reproductions.published_figure import Figure, Panel

# -- Figure 8 ------------------------------------------------------------------

RATES = (20.0, 40.0, 80.0, 120.0, 160.0, 200.0, 250.0)
BUSY = tuple(rate for rate in RATES if rate >= 80.0)


def _arriving(
    series: str, per_hour: float, seed: int, quick: bool
) -> RunConfiguration:
    return configuration(series, seed, quick=quick, per_hour=per_hour)


RATE_PUBLISHED = {
    SUCCESS: {(DCLOUD, 80.0): 100.0, (VC, 80.0): 60.0, (BL, 80.0): 10.0}
}

FIGURE_8 = Figure(
    name="dcloud-fig8",
    title="The job arrival rate",
    source="DCloud, Fig. 8",
    x_label="jobs per hour by day, λ (8,000 servers)",
    xs=RATES,
    series=THREE,
    configuration=_arriving,
    panels=panels(RATE_PUBLISHED),
    claims=(
        Claim(
            "Fewer jobs succeed at higher rates, under all three",
            "all fall",
            tuple(
                check
                for series in THREE
                for check in falls(SUCCESS, series, RATES)
            ),
        ),
        Claim(
            "λ = 80: DCloud accepts almost all jobs",
            "almost 100 %",
            (Check(Level(SUCCESS, DCLOUD, 80.0), Band(95.0, 100.0)),),
        ),
        Claim(
            "λ = 80: VC rejects 40 % of the jobs",
            "60 % succeed",
            about(Level(SUCCESS, VC, 80.0), 60.0, 5.0),
        ),
        Claim(
            "λ = 80: BL violates about 90 % of the deadlines",
            "10 % succeed",
            about(Level(SUCCESS, BL, 80.0), 10.0, 5.0),
            remark=BL_LEVEL,
        ),
        Claim(
            "VM use grows with the rate",
            "all rise",
            tuple(
                check
                for series in THREE
                for check in rises(VM_USE, series, RATES)
            ),
        ),
        Claim(
            "BL has the highest VM use",
            "BL > DCloud, VC",
            more(VM_USE, BL, (DCLOUD, VC), RATES),
        ),
        Claim(
            "From λ = 80 on DCloud uses about 40 % more VMs than VC",
            "+40 %",
            tuple(
                Check(Difference(VM_USE, DCLOUD, VC, x), Band(30.0, 50.0))
                for x in BUSY
            ),
            interpretation="40 points, as in Fig. 5; ± 10",
        ),
        Claim(
            "Link use grows with the rate",
            "all rise",
            tuple(
                check
                for series in THREE
                for check in rises(LINK_USE, series, RATES)
            ),
        ),
        Claim(
            "From λ = 80 on DCloud uses the servers' links more than VC and BL",
            "DCloud > VC, BL",
            more(LINK_USE, DCLOUD, (VC, BL), BUSY),
        ),
        Claim(
            "DCloud earns most",
            "DCloud > VC, BL",
            more(REVENUE, DCLOUD, (VC, BL), RATES[1:]),
            interpretation="from λ = 40 on: where all accept everything the discount alone tells",
        ),
        Claim(
            "The revenues of DCloud and VC grow with the rate",
            "rise",
            rises(REVENUE, DCLOUD, RATES) + rises(REVENUE, VC, RATES),
        ),
        Claim(
            "BL's revenue falls with the rate in some cases",
            "falls somewhere",
            (Check(LeastStep(REVENUE, BL, RATES), NEGATIVE),),
            remark=BL_LEVEL,
        ),
        Claim(
            "In most scenarios DCloud completes more than twice VC's jobs",
            "> +100 %",
            mostly([Gain(SUCCESS, DCLOUD, VC, x) for x in RATES], 100.0),
        ),
        Claim(
            "In most scenarios DCloud earns more than 50 % more than VC",
            "> +50 %",
            mostly([Gain(REVENUE, DCLOUD, VC, x) for x in RATES], 50.0),
        ),
        Claim(
            "DCloud allocates a job in less than a second",
            "< 1,000 ms",
            tuple(
                Check(Level(SLOWEST, DCLOUD, x), Band(0.0, 1000.0))
                for x in RATES
            ),
            interpretation="processor time of the slowest allocation of a run, on this machine",
        ),
    ),
    also=ALSO,
    size=FULL.words,
    quick_size=QUICK.words,
)

# -- Figure 9 ------------------------------------------------------------------

BATCHES = (50.0, 100.0, 200.0, 300.0, 400.0, 500.0)
LARGE = tuple(count for count in BATCHES if count > 200.0)


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
    claims=(
        Claim(
            "DCloud accepts significantly more jobs than VC and BL",
            "DCloud ≫ VC, BL",
            more(SUCCESS, DCLOUD, (VC, BL), LARGE, by=20.0),
            interpretation="by over 20 points in batches above 200 jobs",
        ),
        Claim(
            "Time sliding and bandwidth scaling each accept more jobs than VC",
            "TS > VC, BS > VC",
            more(SUCCESS, TS, (VC,), LARGE)
            + more(SUCCESS, BS, (VC,), LARGE),
        ),
        Claim(
            "Together they accept more jobs than either alone",
            "DCloud > TS, BS",
            more(SUCCESS, DCLOUD, (TS, BS), LARGE),
        ),
        Claim(
            "Time sliding contributes more than bandwidth scaling",
            "TS > BS",
            more(SUCCESS, TS, (BS,), LARGE)
            + more(REVENUE, TS, (BS,), LARGE),
        ),
        Claim(
            "DCloud's revenue grows with the batch",
            "rises",
            rises(REVENUE, DCLOUD, BATCHES),
        ),
        *(
            Claim(
                f"{series} earns no more above 200 jobs",
                "flat",
                (
                    Check(
                        Change(
                            REVENUE, series, 200.0, 500.0, relative=True
                        ),
                        Band(-15.0, 15.0),
                        5.0,
                    ),
                ),
                interpretation="from 200 to 500 jobs at most ± 15 %",
            )
            for series in (VC, BL)
        ),
        Claim(
            "Bandwidth scaling alone earns 176 % more than VC",
            "+176 %",
            gain_about(REVENUE, BS, VC, 500.0, 176.0),
            interpretation="at the largest batch, 500 jobs",
        ),
        Claim(
            "Bandwidth scaling alone earns 68.2 % more than BL",
            "+68.2 %",
            gain_about(REVENUE, BS, BL, 500.0, 68.2),
            interpretation="at the largest batch, 500 jobs",
            remark=BL_LEVEL,
        ),
        Claim(
            "Bandwidth scaling alone earns more than VC and BL",
            "BS > VC, BL",
            more(REVENUE, BS, (VC, BL), LARGE),
            remark=BL_LEVEL,
        ),
    ),
    also=ALSO,
    size=FULL.words,
    quick_size=QUICK.words,
)

# -- BL ------------------------------------------------------------------------

TAKEN = "permutation, slowest flow"
UNEXTENDED = "permutation, no extension (d = p)"
WAYS: dict[str, tuple[str, dict[str, object]]] = {
    TAKEN: ("", {}),
    "permutation, coupled flows": ("coupling: lockstep", {}),
    "permutation, independent": ("coupling: independent", {}),
    "ring, slowest flow": ("", {"pattern": "ring"}),
    "all-to-all, slowest flow": ("", {"pattern": "all-to-all"}),
    UNEXTENDED: (
        "",
        {"deadline_ratio": "{mean: 1, sigma: 0, rule: clamp}"},
    ),
}
"""Parameters of the policy, and values of the workload section."""
BL_RATES = (20.0, 40.0, 80.0, 160.0)


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

# -- requests ------------------------------------------------------------------

DRAWS = {
    f"{policy}, {reading}": (policy, reading)
    for reading in ("G", "literal", "literal-clamped")
    for policy in (DCLOUD, VC)
}
TIMES = (1.0, 16.0)


def _drawn(
    series: str, times: float, seed: int, quick: bool
) -> RunConfiguration:
    policy, reading = DRAWS[series]
    # Clamped are VMs, bandwidths and durations; deadlines are drawn again in
    # every interpretation.
    values = {"reading": reading, "deadline_ratio": "{rule: redraw}"}
    return configuration(
        policy, seed, quick=quick, splits=SPLITS[times], workload=values
    )


def _published(
    measure_points: dict[tuple[str, float], float],
) -> dict[tuple[str, float], float]:
    return {
        (series, x): measure_points[policy, x]
        for series, (policy, _) in DRAWS.items()
        for x in TIMES
        if (policy, x) in measure_points
    }


REQUESTS = Figure(
    name="dcloud-requests",
    title="DCloud and VC under other interpretations of the requests' distributions",
    source="DCloud, Fig. 7 (a), (b)",
    x_label="oversubscription ratio, n:1",
    xs=TIMES,
    series=tuple(DRAWS),
    configuration=_drawn,
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
